/**
 * Pictures and sound in large events. To read 7 MB of base64 and to write them again takes 30 ms, and no conversion looks at them:
 * the middle of such a text is taken out of an event before it is read, and put back into what is made of the event.
 */
import { randomBytes } from 'node:crypto';
import { borrowBuffer } from '../../http/buffer-pool.ts';
import { tooMuch } from './answer-flaws.ts';

/** Shorter texts are read. */
const LEAST_BYTES = 64 * 1024;
/** What is left at both ends of a text: enough for the beginning of a data URL. */
const END_BYTES = 256;
/** Members that hold data and no words: conversions count and compare words. */
const MEMBERS = new Set(['data', 'url', 'b64_json', 'image_url', 'result', 'encrypted_content', 'thoughtSignature']);
/** Before a text: room for the longest name of them. */
const NAME_BYTES = 64;
/** Quotes that are looked at: an event with a picture has few. */
const MAX_QUOTES = 4096;
/** As much as the largest answer in one piece that is converted. */
const MAX_KEPT = 16 * 1024 * 1024;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

export class CarriedTexts {
  /** Events that are made later repeat what earlier ones held. */
  readonly #keeps: boolean;
  #kept = 0;
  /** What is put in place of a text ends with its number and a full stop. It cannot be guessed. */
  #mark = '';
  #texts: Buffer[] = [];
  /** The number of the first of `#texts`. */
  #first = 0;

  constructor(keeps: boolean) {
    this.#keeps = keeps;
  }

  /**
   * The event without the middle of its long texts; itself where it has none. The texts may be put back until the next call, or as
   * long as the stream lasts if it `keeps`. Throws `upstream_invalid` for more than is kept.
   */
  takeFrom(event: Buffer): Buffer {
    if (!this.#keeps) {
      this.#first += this.#texts.length;
      this.#texts = [];
    }
    const parts: Buffer[] = [];
    let from = 0;
    let at = event.indexOf(QUOTE);
    for (let quotes = 0; at !== -1 && quotes < MAX_QUOTES; quotes++) {
      let end = event.indexOf(QUOTE, at + 1);
      // The text has escapes: it is only passed over.
      while (end !== -1 && isEscaped(event, end) && quotes++ < MAX_QUOTES) end = event.indexOf(QUOTE, end + 1);
      if (end === -1) break;
      const [start, stop] = [at + 1 + END_BYTES, end - END_BYTES];
      if (stop - start >= LEAST_BYTES && isData(event, at) && isBare(event.subarray(at + 1, end))) {
        parts.push(event.subarray(from, start), Buffer.from(this.#take(event.subarray(start, stop))));
        from = stop;
      }
      at = event.indexOf(QUOTE, end + 1);
    }
    if (parts.length === 0) return event;
    parts.push(event.subarray(from));
    return Buffer.concat(parts);
  }

  /** The bytes of a text with everything that was taken put back, in lent memory; null where nothing is missing. */
  putBack(text: string): Buffer | null {
    if (this.#mark === '' || !text.includes(this.#mark)) return null;
    const [begin = '', ...others] = text.split(this.#mark);
    const parts: (Buffer | string)[] = [begin];
    for (const other of others) {
      const end = other.indexOf('.');
      const taken = this.#texts[Number(other.slice(0, end)) - this.#first];
      if (taken === undefined) throw tooMuch();
      parts.push(taken, other.slice(end + 1));
    }
    let bytes = 0;
    for (const part of parts) bytes += Buffer.byteLength(part);
    const made = borrowBuffer(bytes);
    let to = 0;
    for (const part of parts) to += typeof part === 'string' ? made.write(part, to) : part.copy(made, to);
    return made;
  }

  #take(text: Buffer): string {
    if (this.#mark === '') this.#mark = `carried-${randomBytes(16).toString('hex')}-`;
    if (this.#keeps) this.#kept += text.length;
    if (this.#kept > MAX_KEPT) throw tooMuch();
    // The memory of the event is used again for the next one.
    this.#texts.push(this.#keeps ? Buffer.from(text) : text);
    return `${this.#mark}${this.#first + this.#texts.length - 1}.`;
  }
}

function isEscaped(bytes: Buffer, quote: number): boolean {
  let before = quote;
  while (bytes[before - 1] === BACKSLASH) before--;
  return (quote - before) % 2 === 1;
}

/** Whether the text that opens at `quote` is the value of a member that holds data. */
function isData(bytes: Buffer, quote: number): boolean {
  const before = bytes.toString('latin1', Math.max(0, quote - NAME_BYTES), quote);
  const name = /"(\w+)"\s*:\s*$/.exec(before)?.[1];
  return name !== undefined && MEMBERS.has(name);
}

/** Whether the text is the same wherever JSON holds it, also as JSON in a text: ASCII without spaces and escapes. */
function isBare(text: Buffer): boolean {
  if (text.includes(BACKSLASH)) return false;
  const odd = -text.byteOffset & 3;
  const words = new Int32Array(text.buffer, text.byteOffset + odd, (text.length - odd) >> 2);
  // Four bytes at once: the highest bit of one is set where it is below 0x21, or no ASCII.
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as number;
    if ((((word - 0x21212121) | word) & 0x80808080) !== 0) return false;
  }
  // Up to three bytes more at both ends stay in the event.
  return true;
}
