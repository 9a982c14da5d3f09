/**
 * The journal of one process and the keeper of its machine: wakes the keeper when records wait, and lets go of segments once
 * everything in them is in log files. It reads that from the list of files, so that it holds for every worker and after every
 * restart.
 */
import type { Clock } from '../kernel/clock.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { JournalPosition } from '../store/ports.ts';

/** Between two looks. */
const LOOK_MS = 5_000;
/** Records wait so long, or until so many bytes of them are there: until then a server that does little starts no keeper. */
const WAIT_MS = 30_000;
const MANY_BYTES = 4 << 20;

interface Segment {
  readonly name: string;
  readonly size: number;
  /** It is still written to. */
  readonly live: boolean;
}

export interface KeptJournalOptions {
  /** A journal of `store/disk/journal.ts`. */
  readonly journal: { readonly name: string; segments(): readonly Segment[] };
  /** How far a journal is in files; null: not at all. */
  readonly keptTo: (journal: string) => Promise<JournalPosition | null>;
  /** There are records for the keeper. */
  readonly wake: () => void;
  readonly clock: Clock;
  readonly log: Log;
  /** How long records wait before the keeper is woken, milliseconds. */
  readonly waitMs?: number;
}

export class KeptJournal implements Closable {
  readonly #options: KeptJournalOptions;
  #kept: JournalPosition | null = null;
  #waitingSince: number | null = null;
  #cancel: () => void = () => undefined;
  #looking: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(options: KeptJournalOptions) {
    this.#options = options;
    this.#schedule();
  }

  /** Bytes that are in no file, as far as is known. */
  get bytes(): number {
    return bytesBehind(this.#options.journal.segments(), this.#kept);
  }

  /** Whether everything in a segment that is not written to any more is in files. */
  covers(segment: string): boolean {
    const found = this.#options.journal.segments().find(({ name }) => name === segment);
    return found === undefined || (!found.live && bytesBehind([found], this.#kept) === 0);
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
    const { journal, keptTo, wake, clock, log, waitMs = WAIT_MS } = this.#options;
    if (this.bytes > 0) {
      try {
        this.#kept = await keptTo(journal.name);
      } catch (error) {
        // The keeper writes there as well: there is nothing to wake it for.
        return log.debug('how far the journal is in files could not be read', { error });
      }
    }
    const { bytes } = this;
    if (bytes === 0) {
      this.#waitingSince = null;
      return;
    }
    this.#waitingSince ??= clock.monotonic();
    if (bytes >= MANY_BYTES || clock.monotonic() - this.#waitingSince >= waitMs) wake();
  }
}

/** Bytes of segments that come after a place. */
function bytesBehind(segments: readonly Segment[], position: JournalPosition | null): number {
  return segments.reduce((sum, { name, size }) => {
    if (position === null || name > position.segment) return sum + size;
    return name === position.segment ? sum + Math.max(0, size - position.offset) : sum;
  }, 0);
}
