/**
 * The journal of one process and the keeper of its machine: wakes the keeper when records wait, and lets go of segments once
 * everything in them is in log files. It reads that from the list of files, so that it holds for every worker and after every
 * restart.
 */
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import { errorCode } from '../store/disk/files.ts';
import type { JournalPosition } from '../store/ports.ts';

/** Between two looks. */
const LOOK_MS = 5_000;
/** Records wait so long, or until so many bytes of them are there: until then a server that does little starts no keeper. */
const WAIT_MS = 30_000;
const MANY_BYTES = 4 << 20;
/** No segment is written to for longer: what is erased, or past its days, is to be gone from the journal as well. */
const RENEW_MS = 600_000;

interface Segment {
  readonly name: string;
  readonly size: number;
  /** It is still written to. */
  readonly live: boolean;
}

/** What is used of a journal (`store/disk/journal.ts`). */
export interface WrittenJournal {
  readonly name: string;
  segments(): readonly Segment[];
  /** Bytes that are in no file, as far as is known. */
  depth(): number;
  shippedTo(position: JournalPosition): void;
  release(segment: string): void;
  renew(): void;
}

export interface KeptJournalOptions {
  readonly journal: WrittenJournal;
  /** Its directory. */
  readonly dir: string;
  /** How far a journal is in files; null: not at all. */
  readonly keptTo: (journal: string) => Promise<JournalPosition | null>;
  /** There are records for the keeper. */
  readonly wake: () => void;
  readonly clock: Clock;
  readonly log: Log;
}

export class KeptJournal implements Closable {
  readonly #options: KeptJournalOptions;
  #waitingSince: number | null = null;
  #cancel: () => void = () => undefined;
  #looking: Promise<void> = Promise.resolve();
  #closed = false;
  /** The segment that is written to, and since when it was seen. */
  #live: { readonly name: string; readonly since: number } | null = null;

  constructor(options: KeptJournalOptions) {
    this.#options = options;
    this.#schedule();
  }

  /** Milliseconds for which records wait, and none of them came into files. */
  get lag(): number {
    return this.#waitingSince === null ? 0 : this.#options.clock.monotonic() - this.#waitingSince;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel();
    await this.#looking;
  }

  #schedule(): void {
    this.#cancel = this.#options.clock.after(LOOK_MS, () => {
      this.#looking = this.#look().finally(() => {
        if (!this.#closed) this.#schedule();
      });
    });
  }

  async #look(): Promise<void> {
    const { journal, wake, clock, log } = this.#options;
    const before = journal.depth();
    try {
      if (before > 0 || journal.segments().length > 1) await this.#letGo();
    } catch (error) {
      log.debug('how far the journal is in log files could not be found out', { error });
    }
    const bytes = journal.depth();
    if (bytes === 0) this.#waitingSince = null;
    else if (this.#waitingSince === null || bytes < before) this.#waitingSince = clock.monotonic();
    this.#renew();
    if (bytes >= MANY_BYTES || (bytes > 0 && this.lag >= WAIT_MS)) wake();
  }

  /** A live segment of which everything is in files, or that is old, gets a successor: the next look lets go of it. */
  #renew(): void {
    const { journal, clock } = this.#options;
    const live = journal.segments().find((segment) => segment.live);
    if (live === undefined || live.size === 0) return;
    const now = clock.monotonic();
    if (this.#live?.name !== live.name) this.#live = { name: live.name, since: now };
    if (journal.depth() === 0 || now - this.#live.since >= RENEW_MS) journal.renew();
  }

  async #letGo(): Promise<void> {
    const { journal, dir, keptTo } = this.#options;
    const kept = await keptTo(journal.name);
    if (kept !== null) journal.shippedTo(kept);
    for (const { name, size, live } of journal.segments()) {
      if (live || (size > 0 && !isBefore(name, size, kept))) continue;
      journal.release(name);
      await unlink(join(dir, name)).catch((error: unknown) => {
        if (errorCode(error) !== 'ENOENT') throw error;
      });
    }
  }
}

/** Whether all of a segment is before a place. */
function isBefore(name: string, size: number, place: JournalPosition | null): boolean {
  return place !== null && (name < place.segment || (name === place.segment && size <= place.offset));
}
