/** Nodes that run gateway-managed jobs over one store, and a provider that trains. */
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { TestClock } from '../../src/kernel/clock.ts';
import type { FineTuningJob } from '../../src/operations/training.ts';
import type { ObjectAnswer } from '../../src/runtime/object-call.ts';
import type { Blobs } from '../../src/store/ports.ts';
import { type JobStore, jobStore } from './job-store.ts';
import { memoryBlobs, type NodeOptions, objectCall, startNode, Trainer, type TrainerNode } from './trainer.ts';

export const row = (text: string) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: text },
      { role: 'assistant', content: 'yes' },
    ],
  });
export const DATASET = `${[1, 2, 3].map((n) => row(`question ${n}`)).join('\n')}\n`;
export const BODY = {
  model: 'base',
  training_file: 'gw_file_train',
  suffix: 'v1',
  method: {
    type: 'supervised',
    supervised: { hyperparameters: { n_epochs: 2, learning_rate_multiplier: 1, batch_size: 1 } },
  },
  gateway_options: { 'x-gateway-virtual-key': 'trainer-prod' },
};

export interface Listed<T> {
  readonly data: readonly T[];
  readonly has_more: boolean;
}
interface ShownEvent {
  readonly id: string;
  readonly level: string;
  readonly message: string;
  readonly type?: string;
  readonly status?: string;
}

// biome-ignore lint/suspicious/noExplicitAny: answers are looked into by tests that expect a shape
export const parsed = (answer: ObjectAnswer): any => JSON.parse((answer.body as Buffer).toString('utf8'));
export let store: JobStore;
export let clock: TestClock;
export let blobs: Blobs;
export let trainer: Trainer;
const nodes: TrainerNode[] = [];

export async function addFile(id: string, text: string, workspace = 'w1'): Promise<void> {
  const bytes = Buffer.from(text);
  (blobs as ReturnType<typeof memoryBlobs>).held.set(id, bytes);
  await store.tables.systemWrite((tx) =>
    tx.insert('files', {
      id,
      organisation_id: 'o1',
      workspace_id: workspace,
      filename: `${id}.jsonl`,
      purpose: 'fine-tune',
      content_type: 'application/jsonl',
      bytes: bytes.length,
      status: 'uploaded',
      status_details: null,
      created_by: null,
      created_at: clock.now(),
    }),
  );
}

export function node(options: Partial<NodeOptions> = {}): TrainerNode {
  const made = startNode({ tables: store.tables, clock, blobs, trainer, ...options });
  nodes.push(made);
  return made;
}

export const create = async (on: TrainerNode, body: object = BODY): Promise<FineTuningJob> =>
  parsed(await on.jobs.create(objectCall(on, 'finetune_create', { body })));
export const retrieve = async (on: TrainerNode, id: string): Promise<FineTuningJob> =>
  parsed(await on.jobs.retrieve(objectCall(on, 'finetune_job', { id })));
export const events = async (on: TrainerNode, id: string): Promise<ShownEvent[]> => {
  const answer = await on.jobs.events(objectCall(on, 'finetune_events', { id, query: { limit: '100' } }));
  return [...(parsed(answer) as Listed<ShownEvent>).data].reverse();
};
export const stored = async (id: string) => {
  const found = await store.tables.systemRead((tx) => tx.find('training_jobs', { id }));
  if (found === undefined) throw new Error('no such job');
  return found;
};

/** Lets time pass until `done` holds, for as long as the nodes have work. */
export async function until(done: () => boolean | Promise<boolean>, stepMs = 5_000, steps = 400): Promise<void> {
  for (let i = 0; i < steps; i++) {
    await Promise.all(nodes.map(({ scheduler }) => scheduler.idle()));
    if (await done()) return;
    await clock.advance(stepMs);
  }
  throw new Error('it did not come to that');
}
export const untilDone = (id: string, stepMs?: number) => until(async () => (await stored(id)).step === 'done', stepMs);

export const statuses = (list: readonly ShownEvent[]) => list.filter((e) => e.type === 'status').map((e) => e.status);

/** Opens the store, and a new provider for each test. */
export function useJobs(engine: 'sqlite' | 'postgres'): void {
  beforeAll(async () => {
    clock = new TestClock();
    store = await jobStore(engine, clock);
  });
  afterAll(() => store.close());
  beforeEach(async () => {
    trainer = new Trainer();
    blobs = memoryBlobs();
    await addFile('gw_file_train', DATASET);
    await addFile('gw_file_valid', DATASET);
    await addFile('gw_file_theirs', DATASET, 'w2');
  });
  afterEach(async () => {
    for (const { scheduler } of nodes.splice(0)) await scheduler.close();
    await store.tables.systemWrite(async (tx) => {
      await tx.remove('object_owners', { account: 'acc-1' });
      for (const table of ['training_events', 'training_jobs', 'files'] as const) {
        await tx.remove(table, { id: { gte: '' } });
      }
    });
  });
}
