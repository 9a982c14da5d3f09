/**
 * Makes one file of many of all nodes: by one node at a time, and beside everything else, for the blob store may be slow. Files
 * come often there. So eight of a level make one of the next, and no record is written anew each time. Erased rows are left
 * out in the same way.
 */
import { unlink } from 'node:fs/promises';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { LogFile, SharedLogFiles } from './catalog.ts';
import type { Connection, Engine } from './engine.ts';
import { nextOfAll } from './merge-plan.ts';
import type { RowsThatStay } from './parquet-file.ts';
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

  /**
   * Writes files anew of which not all rows stay, one after the other; none is made one of many meanwhile. A file keeps its place in the
   * list until the new one is in the blob store.
   *
   * @param list the files of now that may have such rows; what is added meanwhile is looked at, too
   */
  async rewrite(list: () => Promise<readonly LogFile[]>, rest: RowsThatStay): Promise<void> {
    const seen = new Set<string>();
    for (let files = await list(); ; ) {
      const next = files.find(({ id }) => !seen.has(id));
      if (next === undefined) {
        files = await list();
        if (files.every(({ id }) => seen.has(id))) return;
        continue;
      }
      seen.add(next.id);
      while (this.#running !== null) await this.#running;
      const work = this.#replaced([next], next.day, next.level, rest);
      this.#running = work
        .then(
          () => undefined,
          () => undefined,
        )
        .finally(() => {
          this.#running = null;
        });
      if (!(await work)) throw new Error(`log file ${next.id} could not be brought from the blob store`);
    }
  }

  async #merge(day: number, some: readonly LogFile[]): Promise<void> {
    const { files } = this.#parts;
    if (!(await files.lead())) return;
    const level = Math.max(...some.map((file) => file.level)) + 1;
    await this.#replaced(some, day, level, async (_, relation) => `SELECT * FROM ${relation}`);
  }

  /** Puts one file into the list in place of some; false where these do not come to this disk. */
  async #replaced(some: readonly LogFile[], day: number, level: number, rest: RowsThatStay): Promise<boolean> {
    const { files, store, engine, hold, write, replace, pathOf } = this.#parts;
    const ids = some.map(({ id }) => id);
    const release = hold(ids);
    const connection = await engine.connect();
    try {
      await files.bring(some);
      if (!ids.every((id) => files.has(id))) return false;
      const paths = ids.map((id) => ({ path: pathOf(id) }));
      const rows = await rest(connection, relationOf(paths, []));
      if (rows === null) return true;
      const written = await write(rows, day, level, connection);
      try {
        if (written.records > 0) await store.prepare(written, pathOf(written.id));
        await replace(some, written.records === 0 ? [] : [{ ...written, place: 'store' }]);
      } catch (error) {
        await unlink(pathOf(written.id)).catch(() => undefined);
        throw error;
      }
      if (written.records === 0) await unlink(pathOf(written.id));
      return true;
    } finally {
      connection.closeSync();
      release();
    }
  }
}
