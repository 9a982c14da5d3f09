/** A journal with its shipper that is opened when it is first needed, and does nothing while nothing comes. */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Closable } from '../../kernel/lifecycle.ts';
import { errorCode } from './files.ts';
import { type Journal, type JournalOptions, openJournal } from './journal.ts';
import { type ShipperOptions, startShipper } from './shipper.ts';

export interface OpenedJournal {
  append(line: string, done: () => void): void;
  readonly failing: boolean;
  /** Resolves when everything appended before is in the sink. */
  ship(): Promise<void>;
}

/** What an operator sees of a journal; all zero while it is not open. */
export interface JournalState {
  readonly depth_bytes: number;
  readonly dropped: number;
  readonly held: number;
  readonly failing: boolean;
}

export function stateOf(journal: Pick<Journal, 'depth' | 'dropped' | 'held' | 'failing'> | null): JournalState {
  if (journal === null) return { depth_bytes: 0, dropped: 0, held: 0, failing: false };
  const { dropped, held, failing } = journal;
  return { depth_bytes: journal.depth(), dropped, held, failing };
}

export interface LazyJournal extends Closable {
  readonly state: JournalState;
  /** Opens it at the first call. Rejects while the directory cannot be used; the next call tries again. */
  open(): Promise<OpenedJournal>;
  /** Resolves when all that was appended is on disk. */
  sync(): Promise<void>;
  /** Resolves when all that was appended is in the sink. */
  drain(): Promise<void>;
}

export type LazyJournalOptions = JournalOptions & Pick<ShipperOptions, 'sink' | 'everyMs'>;

/** Opens it at once when an earlier run has left something there, so that this is shipped. */
export async function openLazyJournal(options: LazyJournalOptions): Promise<LazyJournal> {
  const { dir, sink, clock, log, everyMs } = options;
  const ship = everyMs === undefined ? {} : { everyMs };
  let closed = false;
  let parts: ReturnType<typeof begin> | null = null;
  let present: Journal | null = null;

  async function begin() {
    const journal = await openJournal(options);
    present = journal;
    const shipper = startShipper({ dir, journal, sink, clock, log, ...ship, onDemand: true });
    const opened: OpenedJournal = {
      append(line, done) {
        journal.append(line, done);
        shipper.wake();
      },
      get failing() {
        return journal.failing;
      },
      ship: () => shipper.drain(),
    };
    return { journal, shipper, opened };
  }

  async function open(): Promise<OpenedJournal> {
    if (closed) throw new Error('the journal is closed');
    parts ??= begin();
    try {
      return (await parts).opened;
    } catch (error) {
      parts = null;
      throw error;
    }
  }

  if (await holdsLines(dir)) await open();
  return {
    get state() {
      return stateOf(present);
    },
    open,
    async sync() {
      await (await parts)?.journal.sync();
    },
    async drain() {
      await (await parts)?.shipper.drain();
    },
    async close() {
      closed = true;
      const open = await parts?.catch(() => null);
      await open?.shipper.close();
      await open?.journal.close();
    },
  };
}

async function holdsLines(dir: string): Promise<boolean> {
  const names = await readdir(dir).catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  });
  for (const name of names) {
    if (name.endsWith('.journal') && (await stat(join(dir, name))).size > 0) return true;
  }
  return false;
}
