/** What large events say of their stream, searched as they arrive: all at once would hold the event loop. */
import type { Dialect } from '../../operations/dialects/dialect.ts';
import { type EventMarks, LOOKED_BYTES, marksIn } from '../../operations/dialects/stream.ts';
import { USAGE, usageOpensAt } from './usage-extraction.ts';

/** A name and its value may come in two parts: as much is searched again. */
const OVERLAP = 256;

/** One event, searched part by part. */
class LargeEvent implements EventMarks {
  readonly #dialect: Dialect;
  #searched = 0;
  ends = false;
  fails = false;
  errs = false;
  finishes = false;
  /** Where the object of the last usage in it begins; -1 without any. */
  usageAt = -1;

  constructor(dialect: Dialect) {
    this.#dialect = dialect;
  }

  /** @param bytes as much of the event as has come, from its beginning */
  search(bytes: Buffer): void {
    const from = Math.max(0, this.#searched - OVERLAP);
    this.#searched = bytes.length;
    const { ends, fails, errs, finishes } = marksIn(this.#dialect, bytes, from);
    this.ends ||= ends;
    this.fails ||= fails;
    this.errs ||= errs;
    this.finishes ||= finishes;
    for (let at = bytes.indexOf(USAGE, from); at !== -1; at = bytes.indexOf(USAGE, at + 1)) {
      const open = usageOpensAt(bytes, at);
      if (open !== -1) this.usageAt = open;
    }
  }
}

/** The large events of one stream. */
export class LargeEvents {
  readonly #dialect: Dialect;
  #growing: LargeEvent | null = null;
  /** Of the events that came last, those that are large. */
  readonly #whole = new Map<Buffer, LargeEvent>();

  constructor(dialect: Dialect) {
    this.#dialect = dialect;
  }

  /**
   * Takes the events that a chunk has completed, and what has come of the next one; null while that is small.
   *
   * @param chunkBytes an event that fits into a chunk was not seen to grow
   */
  see(events: readonly Buffer[], held: Buffer | null, chunkBytes: number): void {
    if (this.#whole.size > 0) this.#whole.clear();
    if (events.length > 0 && (this.#growing !== null || chunkBytes > LOOKED_BYTES)) {
      for (const event of events) {
        if (event.length > LOOKED_BYTES) this.#whole.set(event, this.#searched(event));
        this.#growing = null;
      }
    }
    if (held !== null) this.#growing = this.#searched(held);
  }

  /** What the event says, if it is one of those that came last and is large. */
  of(event: Buffer): LargeEvent | null {
    return this.#whole.size === 0 ? null : (this.#whole.get(event) ?? null);
  }

  #searched(bytes: Buffer): LargeEvent {
    const event = this.#growing ?? new LargeEvent(this.#dialect);
    event.search(bytes);
    return event;
  }
}
