import { SluiceError } from './errors.ts';

/** One server-sent event, decoded. `event` is null where none was named. */
export interface SseEvent {
  readonly event: string | null;
  readonly data: string;
}

const LF = 0x0a;
const CR = 0x0d;
const DEFAULT_MAX = 8 * 1024 * 1024;
/** Events that fit into so much lie in fresh memory. */
const FRESH_BYTES = 64 * 1024;
const MIDDLE_BYTES = 1024 * 1024;
/** Lines of one event: each costs more than its bytes. */
const MAX_LINES = 10_000;

/** Memory that is used again. */
export interface EventMemory {
  borrow(bytes: number): Buffer;
  giveBack(memory: Buffer): void;
}

/**
 * Cuts a byte stream into whole events, each slice with the blank line that ends it, so that all slices together are
 * the stream. Lines end with LF, CRLF or CR. The cut does not depend on how the stream was split into chunks; events
 * that lie inside one chunk are slices of it, not copies. An event that ends in a lone CR is given out with the next
 * byte, because a LF may still belong to it.
 */
export class SseSplitter {
  readonly #max: number;
  /** The beginning of an event whose end has not come; a growing buffer, handed out when the event is complete. */
  #held: Buffer | null = null;
  #heldBytes = 0;
  /** True where the next line end is a blank line: after a line end, and at the start. */
  #lineStart = true;
  /** The event has a line that is not blank. Blank lines before it belong to it: a flood of them makes no events. */
  #content = false;
  #lines = 0;
  /** The last byte was a CR, and a LF would belong to it. */
  #afterCr = false;
  /** That CR ended an event. */
  #blank = false;

  readonly #memory: EventMemory | null;
  #given: Buffer[] = [];

  /** `maxBytes` of one event; more are refused with `upstream_invalid`. `memory`: for large events. */
  constructor(maxBytes = DEFAULT_MAX, memory: EventMemory | null = null) {
    this.#max = maxBytes;
    this.#memory = memory;
  }

  /** What has come of an event whose end has not, from its beginning; null for less than `bytes`. Valid until the next `push`. */
  held(bytes: number): Buffer | null {
    return this.#held === null || this.#heldBytes < bytes ? null : this.#held.subarray(0, this.#heldBytes);
  }

  /** Gives back the memory of the events that `push` gave last: nothing reads them any more but what keeps it. */
  release(): void {
    for (const event of this.#given) this.#memory?.giveBack(event);
    this.#given = [];
  }

  /** Events that are complete with this chunk. Throws `SluiceError('upstream_invalid')` when one grows too large. */
  push(chunk: Buffer): Buffer[] {
    const out: Buffer[] = [];
    // Without `release` the garbage collector ends their memory.
    if (this.#given.length > 0) this.#given = [];
    const n = chunk.length;
    let from = 0;
    let i = 0;
    if (this.#afterCr && n > 0) {
      this.#afterCr = false;
      if (chunk[0] === LF) i = 1;
      if (this.#blank) {
        this.#blank = false;
        this.#take(chunk, 0, i, out);
        from = i;
      }
    }
    // Most streams have no CR at all; then only line feeds need to be looked for.
    let cr = chunk.indexOf(CR, i);
    while (i < n) {
      const lf = chunk.indexOf(LF, i);
      if (cr >= 0 && cr < i) cr = chunk.indexOf(CR, i);
      if (cr >= 0 && (lf < 0 || cr < lf)) {
        const ends = this.#endOfLine(this.#lineStart && cr === i);
        if (cr + 1 === n) {
          this.#afterCr = true;
          this.#blank = ends;
          i = n;
        } else {
          i = chunk[cr + 1] === LF ? cr + 2 : cr + 1;
          if (ends) {
            this.#take(chunk, from, i, out);
            from = i;
          }
        }
      } else if (lf >= 0) {
        const ends = this.#endOfLine(this.#lineStart && lf === i);
        i = lf + 1;
        if (ends) {
          this.#take(chunk, from, i, out);
          from = i;
        }
      } else {
        this.#lineStart = false;
        i = n;
      }
    }
    if (from < n) this.#hold(chunk, from);
    return out;
  }

  /** The event that a lone CR ended just before the stream did; a LF would have belonged to it. */
  last(): Buffer | null {
    if (!this.#blank) return null;
    this.#blank = false;
    return this.rest();
  }

  /** What came after the last whole event; null when nothing did. Ends the splitter's use. */
  rest(): Buffer | null {
    const held = this.#held;
    this.#held = null;
    return held === null ? null : held.subarray(0, this.#heldBytes);
  }

  /** Whether this line end ends an event. */
  #endOfLine(blank: boolean): boolean {
    this.#lineStart = true;
    const ends = blank && this.#content;
    this.#lines = ends ? 0 : this.#lines + 1;
    if (this.#lines > MAX_LINES)
      throw new SluiceError('upstream_invalid', `The provider sent an event of more than ${MAX_LINES} lines`);
    this.#content = !blank;
    return ends;
  }

  #take(chunk: Buffer, from: number, to: number, out: Buffer[]): void {
    if (this.#held === null) {
      out.push(chunk.subarray(from, to));
      return;
    }
    if (to > from) this.#hold(chunk.subarray(0, to), from);
    out.push(this.#held.subarray(0, this.#heldBytes));
    if (this.#held.length > FRESH_BYTES) this.#given.push(this.#held);
    this.#held = null;
    this.#heldBytes = 0;
  }

  #hold(chunk: Buffer, from: number): void {
    const size = this.#heldBytes + chunk.length - from;
    if (this.#held === null) {
      // A copy: keeping the slice would keep the whole chunk, however small the slice.
      this.#heldBytes = 0;
      this.#held = this.#allocate(Math.max(256, size));
    }
    if (this.#heldBytes + chunk.length - from > this.#max) {
      throw new SluiceError('upstream_invalid', `The provider sent an event of more than ${this.#max} bytes`);
    }
    if (size > this.#held.length) {
      const held = this.#held;
      const larger = this.#allocate(Math.max(size, held.length * 2));
      held.copy(larger, 0, 0, this.#heldBytes);
      this.#held = larger;
      if (held.length > FRESH_BYTES) this.#memory?.giveBack(held);
    }
    chunk.copy(this.#held, this.#heldBytes, from);
    this.#heldBytes += chunk.length - from;
  }

  /** Large events get room for the largest at once: copying one again and again costs more. */
  #allocate(bytes: number): Buffer {
    if (this.#memory === null || bytes <= FRESH_BYTES) return Buffer.allocUnsafeSlow(bytes);
    return this.#memory.borrow(bytes <= MIDDLE_BYTES ? MIDDLE_BYTES : Math.max(bytes, this.#max));
  }
}

/**
 * Reads one event as the HTML standard says: comments and unknown fields are skipped, `data` lines are joined with
 * LF, one space after the colon is dropped. Null when the event has no `data` line, such as a comment.
 */
export function parseEvent(bytes: Buffer): SseEvent | null {
  // The common event is one `data: …` line; it needs no splitting.
  const end = bytes.length;
  if (
    end > 7 &&
    bytes[0] === 0x64 &&
    bytes[1] === 0x61 &&
    bytes[2] === 0x74 &&
    bytes[3] === 0x61 &&
    bytes[4] === 0x3a &&
    bytes[end - 1] === LF &&
    bytes[end - 2] === LF &&
    bytes.indexOf(LF) === end - 2 &&
    bytes.indexOf(CR) < 0
  ) {
    return { event: null, data: bytes.toString('utf8', bytes[5] === 0x20 ? 6 : 5, end - 2) };
  }
  let event: string | null = null;
  let data: string | null = null;
  const text = bytes.toString('utf8');
  for (const line of text.charCodeAt(0) === 0xfeff ? text.slice(1).split(LINE_END) : text.split(LINE_END)) {
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    if (field !== 'data' && field !== 'event') continue;
    const value = colon < 0 ? '' : line.slice(line.charCodeAt(colon + 1) === 0x20 ? colon + 2 : colon + 1);
    if (field === 'event') event = value === '' ? null : value;
    else data = data === null ? value : `${data}\n${value}`;
  }
  return data === null ? null : { event, data };
}

const LINE_END = /\r\n|\n|\r/;

/** The bytes of one event. Line ends inside `data` become further `data` lines; in a name they are dropped. */
export function formatEvent(event: SseEvent): string {
  const data =
    event.data.includes('\n') || event.data.includes('\r') ? event.data.split(LINE_END).join('\ndata: ') : event.data;
  return event.event === null ? `data: ${data}\n\n` : `event: ${event.event.replace(/[\r\n]/g, '')}\ndata: ${data}\n\n`;
}
