import { expect, it, onTestFinished } from 'vitest';
import { jobRow, jobStore } from '../../../test/support/job-store.ts';
import { TestClock } from '../../kernel/clock.ts';
import type { FineTuningJob } from '../../operations/training.ts';
import { append, statusEvent } from './job-row.ts';

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
