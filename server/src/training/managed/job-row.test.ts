import { expect, it, onTestFinished } from 'vitest';
import { jobRow, jobStore } from '../../../test/support/job-store.ts';
import { TestClock } from '../../kernel/clock.ts';
import type { FineTuningJob } from '../../operations/training.ts';
import { append, enteredAt, inOrder, type NewEvent, statusEvent } from './job-row.ts';

it('an event that is stored already is left out, and those behind it are numbered without a gap', async () => {
  const clock = new TestClock();
  const store = await jobStore('sqlite', clock);
  onTestFinished(() => store.close());
  const row = jobRow('j1', clock.now());
  const job = { training_file: 'a', validation_file: null, error: null, fine_tuned_model: null } as FineTuningJob;
  const queued = statusEvent('j1', job, 'queued', 1);
  const running = statusEvent('j1', job, 'running', 2);
  await store.tables.systemWrite(async (tx) => void (await tx.insert('training_jobs', row)));
  for (const events of [[queued], [queued, running, running], [running]]) {
    await store.tables.systemWrite((tx) => append(tx, row, events));
  }
  const stored = await store.tables.systemRead((tx) =>
    tx.list('training_events', { where: { job_id: 'j1' }, orderBy: [['seq', 'asc']] }),
  );
  expect(stored.map(({ seq, id }) => [seq, id])).toEqual([
    [1, queued.id],
    [2, running.id],
  ]);
});

const event = (id: string, created_at: number, message = id): NewEvent => ({
  id,
  level: 'info',
  message,
  data: { type: 'provider' },
  created_at,
});

it('states carry the times at which the provider says that they were entered, in order with its own events', () => {
  const job = { training_file: 'a', validation_file: null, error: null, fine_tuned_model: 'm' } as FineTuningJob;
  const said = [event('created', 10_000), event('Fine-tuning job started', 12_000), event('Step 1/1', 14_000)];
  const entered = ['queued', 'running', 'succeeded'] as const;
  const at = enteredAt(entered, { created_at: 10, finished_at: 15 }, said, 20_000);
  expect(at).toEqual([10_000, 12_000, 15_000]);
  const transitions = entered.map((status, i) => statusEvent('j1', job, status, at[i] ?? 0));
  expect(inOrder(said, transitions).map((one) => one.data?.status ?? one.id)).toEqual([
    'queued',
    'created',
    'running',
    'Fine-tuning job started',
    'Step 1/1',
    'succeeded',
  ]);
});

it('states of a provider that says no times are entered when they are seen, and never after what follows them', () => {
  expect(enteredAt(['queued', 'running'], {}, [], 20_000)).toEqual([20_000, 20_000]);
  expect(enteredAt(['queued', 'running', 'succeeded'], { finished_at: 15 }, [], 20_000)).toEqual([
    15_000, 15_000, 15_000,
  ]);
  expect(enteredAt(['failed'], { finished_at: 99 }, [], 20_000)).toEqual([20_000]);
});

it('an event never has a time before those that are stored', async () => {
  const store = await jobStore('sqlite', new TestClock());
  onTestFinished(() => store.close());
  const row = jobRow('j2', 0);
  await store.tables.systemWrite(async (tx) => void (await tx.insert('training_jobs', row)));
  for (const one of [event('a', 9_000), event('b', 5_000), event('c', 11_000)])
    await store.tables.systemWrite((tx) => append(tx, row, [one]));
  const stored = await store.tables.systemRead((tx) =>
    tx.list('training_events', { where: { job_id: 'j2' }, orderBy: [['seq', 'asc']] }),
  );
  expect(stored.map(({ created_at }) => created_at)).toEqual([9_000, 9_000, 11_000]);
});
