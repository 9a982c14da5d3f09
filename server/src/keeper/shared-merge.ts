/**
 * Makes one file of many of all nodes: by one node at a time, and beside everything else, for the blob store may be slow. Files
 * come often there. So eight of a level make one of the next, and no record is written anew each time.
 */
import { unlink } from 'node:fs/promises';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { LogFile, SharedLogFiles } from './catalog.ts';
import type { Connection, Engine } from './engine.ts';
import { nextOfAll } from './merge-plan.ts';
import { relationOf } from './queries.ts';
import type { SharedFiles } from './shared-files.ts';

interface SharedMergeParts {
  readonly files: SharedFiles;
  readonly store: SharedLogFiles;
  readonly engine: Engine;
  /** Files stay on this disk until the answer is called. */
  readonly hold: (ids: readonly string[]) => () => void;
  /** Writes rows of a day to a file of this disk. */
  readonly write: (rows: string, day: number, level: number, connection: Connection) => Promise<LogFile>;
  /** Puts files into the list in place of others; rejects when one of those is in it no more. */
  readonly replace: (old: readonly LogFile[], add: readonly LogFile[]) => Promise<void>;
  readonly pathOf: (id: string) => string;
  readonly clock: Clock;
  readonly log: Log;
}

export class SharedMerge {
  readonly #parts: SharedMergeParts;
  #running: Promise<void> | null = null;

  constructor(parts: SharedMergeParts) {
    this.#parts = parts;
  }

  /** Begins what is due of the list, unless another merge is under way. Answers whether it did. */
  begin(list: readonly LogFile[]): boolean {
    if (this.#running !== null) return false;
    const { clock, log } = this.#parts;
    const next = nextOfAll(list, clock.now());
    if (next === null) return false;
    this.#running = this.#merge(next.day, next.files)
      .catch((error: unknown) => log.warn('log files could not be made one', { error }))
      .finally(() => {
        this.#running = null;
      });
    return true;
  }

  async settled(): Promise<void> {
    await this.#running;
  }

  async #merge(day: number, some: readonly LogFile[]): Promise<void> {
    const { files, store, engine, hold, write, replace, pathOf } = this.#parts;
    if (!(await files.lead())) return;
    const ids = some.map(({ id }) => id);
    const release = hold(ids);
    const connection = await engine.connect();
    try {
      await files.bring(some);
      if (!ids.every((id) => files.has(id))) return;
      const level = Math.max(...some.map((file) => file.level)) + 1;
      const rows = `SELECT * FROM ${relationOf(
        ids.map((id) => ({ path: pathOf(id) })),
        [],
      )}`;
      const merged = await write(rows, day, level, connection);
      try {
        await store.prepare(merged, pathOf(merged.id));
        await replace(some, [{ ...merged, place: 'store' }]);
      } catch (error) {
        await unlink(pathOf(merged.id)).catch(() => undefined);
        throw error;
      }
    } finally {
      connection.closeSync();
      release();
    }
  }
}
