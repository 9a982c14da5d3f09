/** Batches that Sluice keeps, in a world of nodes, a store and a provider. */
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { silentLog } from '../../src/kernel/log.ts';
import type { ResultLine } from '../../src/providers/batch-lines.ts';
import { sandboxTraining } from '../../src/training/sandbox/sandbox.ts';
import { type BatchWorld, batchWorld, chatLine } from './batch-store.ts';

export const inputOf = (count: number, content: (i: number) => string = (i) => `line ${i}`) =>
  Array.from({ length: count }, (_, i) => chatLine(`id-${i}`, content(i))).join('\n');
export const ids = (lines: readonly ResultLine[]) => lines.map((line) => line.custom_id);
export let world: BatchWorld;

/** Opens the world on the engine, and empties it before each test. */
export function useBatches(engine: 'sqlite' | 'postgres'): void {
  beforeAll(async () => {
    world = await batchWorld(engine, { concurrency: 25 });
  });
  afterAll(() => world?.close());
  beforeEach(() => {
    world.answer = () => ({});
    world.local = (tenant) =>
      sandboxTraining({ tables: world.store.tables, blobs: world.blobs, clock: world.clock, log: silentLog }, tenant);
    world.fuse = null;
    world.lines.length = 0;
    Object.assign(world.load, { most: 0, now: 0 });
    world.load.starts.length = 0;
  });
}
