/**
 * Answers of upstreams, from the bytes of a connection: RFC 9112 in its strict reading. What two readers could
 * understand differently (bare line feeds, folded lines, two lengths, length beside chunks, other transfer codings) is
 * refused, so that the end of an answer is never in doubt on a connection that is used again.
 */

/** What an answer does wrong, as a predicate: `follows no HTTP`. */
export class ResponseFault extends Error {
  override readonly name = 'AnswerFault';
}

export interface ResponseSink {
  /** An interim answer (1xx) passed. */
  onInterim(): void;
  /** Status and headers of the final answer, names in lower case, repeated ones apart: `[name, value, …]`. */
  onHead(status: number, headers: string[]): void;
  /** A piece of the body; a view into what was pushed. */
  onData(chunk: Buffer): void;
  /** The answer is whole. */
  onEnd(): void;
  /** True while the reader wants no more pieces: what is left of a push waits for `more`. */
  readonly full: boolean;
  /** Bytes of a piece at most. */
  readonly pieceBytes: number;
}

/** The head of an answer and all its trailers, each. */
const HEAD_BYTES = 32 * 1024;
/** Headers of a head: more are work for nothing. */
const MAX_HEADERS = 200;
/** What may follow the size of a chunk. */
const EXTENSION_BYTES = 4 * 1024;
const BLANK_LINE = Buffer.from('\r\n\r\n');
const CR = 13;
const LF = 10;
const SEMICOLON = 59;
/** A whole head without its blank line: every line at once, in time linear in its length. */
const HEAD_TEXT =
  /^HTTP\/1\.[01] [1-9][0-9]{2}(?: [\t\x20-\x7e\x80-\xff]*)?(?:\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*)*$/;
const DIGITS = /^[0-9]{1,15}$/;
const KEEP_ALIVE = /(?:^|[,;\s])timeout\s*=\s*"?([0-9]{1,9})/i;

// Where in an answer the parser is.
const HEAD = 0;
const LENGTH = 1;
const SIZE = 2;
const EXTENSION = 3;
const SIZE_END = 4;
const CHUNK = 5;
const CHUNK_CR = 6;
const CHUNK_LF = 7;
const TRAILERS = 8;
const UNTIL_CLOSE = 9;
const DONE = 10;

/** One connection's answers, one after another: `begin`, then `push` whatever arrives, until `done`. */
export class ResponseParser {
  readonly #sink: ResponseSink;
  #state: number = DONE;
  #headOnly = false;
  /** Bytes of a head, or of trailers, that are not complete yet. */
  #held: Buffer | null = null;
  /** What was pushed while the reader was full. */
  #rest: Buffer | null = null;
  /** Bytes that are left of the body or of the chunk. */
  #left = 0;
  #digits = 0;
  #extra = 0;
  /** Whether the connection may serve another request after this answer. */
  reusable = false;
  /** Seconds of the upstream's `keep-alive: timeout`, or null. */
  idleSeconds: number | null = null;

  constructor(sink: ResponseSink) {
    this.#sink = sink;
  }

  get done(): boolean {
    return this.#state === DONE;
  }

  /** Something is left of what was pushed. */
  get waiting(): boolean {
    return this.#rest !== null;
  }

  /** Expects the answer to a request; `headOnly` for HEAD. */
  begin(headOnly: boolean): void {
    this.#state = HEAD;
    this.#headOnly = headOnly;
    this.#held = null;
    this.#rest = null;
    this.reusable = false;
    this.idleSeconds = null;
  }

  /** Takes what arrived; throws `AnswerFault`. The sink keeps views of it. */
  push(chunk: Buffer): void {
    this.#parse(this.#rest === null ? chunk : Buffer.concat([this.#rest, chunk]));
  }

  /** Parses the bytes that waited for a reader that was full. */
  more(): void {
    const rest = this.#rest;
    if (rest !== null) this.#parse(rest);
  }

  /** The connection ended; true when that ends the answer, too. */
  close(): boolean {
    if (this.#state !== UNTIL_CLOSE) return false;
    this.#end();
    return true;
  }

  #parse(chunk: Buffer): void {
    const sink = this.#sink;
    const { length } = chunk;
    this.#rest = null;
    let at = 0;
    while (at < length) {
      switch (this.#state) {
        case HEAD:
          at = this.#head(chunk, at);
          break;
        case LENGTH:
        case CHUNK:
        case UNTIL_CLOSE: {
          if (sink.full) {
            this.#rest = at === 0 ? chunk : chunk.subarray(at);
            return;
          }
          const most = Math.min(length, at + sink.pieceBytes);
          const end = this.#state === UNTIL_CLOSE ? most : Math.min(most, at + this.#left);
          const piece = at === 0 && end === length ? chunk : chunk.subarray(at, end);
          this.#left -= end - at;
          at = end;
          if (this.#left === 0 && this.#state === CHUNK) this.#state = CHUNK_CR;
          const last = this.#left === 0 && this.#state === LENGTH;
          sink.onData(piece);
          if (last) this.#end();
          break;
        }
        case SIZE: {
          const digit = hex(chunk[at] as number);
          if (digit >= 0) {
            if (++this.#digits > 12) throw new ResponseFault('has a chunk of an impossible size');
            this.#left = this.#left * 16 + digit;
            at++;
          } else if (this.#digits === 0) throw new ResponseFault('has a malformed chunk');
          else if (chunk[at] === CR) {
            this.#state = SIZE_END;
            at++;
          } else if (chunk[at] === SEMICOLON) {
            this.#state = EXTENSION;
            this.#extra = 0;
            at++;
          } else throw new ResponseFault('has a malformed chunk');
          break;
        }
        case EXTENSION: {
          const byte = chunk[at++] as number;
          if (byte === CR) this.#state = SIZE_END;
          else if ((byte < 32 && byte !== 9) || byte === 127 || ++this.#extra > EXTENSION_BYTES) {
            throw new ResponseFault('has a malformed chunk');
          }
          break;
        }
        case SIZE_END:
          if (chunk[at++] !== LF) throw new ResponseFault('has a malformed chunk');
          this.#digits = 0;
          this.#state = this.#left === 0 ? TRAILERS : CHUNK;
          break;
        case CHUNK_CR:
          if (chunk[at++] !== CR) throw new ResponseFault('has a chunk that is longer than its size');
          this.#state = CHUNK_LF;
          break;
        case CHUNK_LF:
          if (chunk[at++] !== LF) throw new ResponseFault('has a chunk that is longer than its size');
          this.#state = SIZE;
          break;
        case TRAILERS:
          at = this.#trailers(chunk, at);
          break;
        default:
          // Bytes behind an answer belong to nobody: the connection is not used again.
          this.reusable = false;
          return;
      }
    }
  }

  #end(): void {
    this.#state = DONE;
    this.#sink.onEnd();
  }

  /** Reads a head, or holds its beginning. Answers where the rest begins. */
  #head(chunk: Buffer, from: number): number {
    const held = this.#held;
    const bytes = held === null ? chunk : Buffer.concat([held, chunk.subarray(from)]);
    const start = held === null ? from : 0;
    const end = bytes.indexOf(BLANK_LINE, held === null ? from : Math.max(0, held.length - 3));
    if ((end < 0 ? bytes.length - start : end - start) > HEAD_BYTES) {
      throw new ResponseFault(`has headers of more than ${HEAD_BYTES} bytes`);
    }
    if (end < 0) {
      // An answer that is no HTTP fails at once, not when 32 KB of it have come.
      if (!couldBegin(bytes, start)) throw new ResponseFault('does not follow HTTP');
      this.#held = held === null ? Buffer.from(chunk.subarray(from)) : bytes;
      return chunk.length;
    }
    this.#held = null;
    this.#readHead(bytes.toString('latin1', start, end));
    const next = end + BLANK_LINE.length;
    return held === null ? next : from + (next - held.length);
  }

  #readHead(text: string): void {
    if (!HEAD_TEXT.test(text)) throw new ResponseFault('does not follow HTTP');
    const status = Number(text.slice(9, 12));
    const headers: string[] = [];
    const http10 = text.charCodeAt(7) === 48;
    let length: string | null = null;
    let chunked = false;
    let close = http10;
    let idle: number | null = null;
    let at = text.indexOf('\r\n');
    while (at >= 0) {
      const from = at + 2;
      const colon = text.indexOf(':', from);
      at = text.indexOf('\r\n', colon);
      const name = text.slice(from, colon).toLowerCase();
      const value = trimmed(text, colon + 1, at < 0 ? text.length : at);
      if (headers.push(name, value) > 2 * MAX_HEADERS) throw new ResponseFault(`has more than ${MAX_HEADERS} headers`);
      if (name === 'content-length') {
        if (length !== null || !DIGITS.test(value)) throw new ResponseFault('has no clear length');
        length = value;
      } else if (name === 'transfer-encoding') {
        if (chunked || http10 || value.toLowerCase() !== 'chunked')
          throw new ResponseFault('uses an unknown transfer coding');
        chunked = true;
      } else if (name === 'connection') {
        const options = value.toLowerCase();
        if (options.includes('close')) close = true;
        else if (options.includes('keep-alive')) close = false;
      } else if (name === 'keep-alive') {
        const seconds = KEEP_ALIVE.exec(value)?.[1];
        if (seconds !== undefined) idle = Number(seconds);
      }
    }
    if (status < 200) {
      if (status === 101) throw new ResponseFault('switches protocols, which the request did not ask for');
      this.#sink.onInterim();
      return;
    }
    if (chunked && length !== null) throw new ResponseFault('has no clear length');
    this.reusable = !close;
    this.idleSeconds = idle;
    this.#left = length === null ? 0 : Number(length);
    const empty = this.#headOnly || status === 204 || status === 304;
    if (empty || (length !== null && this.#left === 0)) this.#state = LENGTH;
    else if (chunked) this.#state = SIZE;
    else if (length !== null) this.#state = LENGTH;
    else {
      this.#state = UNTIL_CLOSE;
      this.reusable = false;
    }
    this.#digits = 0;
    this.#sink.onHead(status, headers);
    if (empty || (length !== null && this.#left === 0)) this.#end();
  }

  /** Trailers are read and dropped. */
  #trailers(chunk: Buffer, from: number): number {
    const held = this.#held;
    const bytes = held === null ? chunk.subarray(from) : Buffer.concat([held, chunk.subarray(from)]);
    const before = held === null ? 0 : held.length;
    let end = -1;
    if (bytes.length >= 2 && bytes[0] === CR && bytes[1] === LF) end = 2;
    else if (bytes.length >= 2 || bytes[0] !== CR) {
      const blank = bytes.indexOf(BLANK_LINE, Math.max(0, before - 3));
      if (blank >= 0) end = blank + BLANK_LINE.length;
    }
    if ((end < 0 ? bytes.length : end) > HEAD_BYTES) throw new ResponseFault('has trailers without end');
    if (end < 0) {
      this.#held = Buffer.from(bytes);
      return chunk.length;
    }
    this.#held = null;
    this.#end();
    return from + end - before;
  }
}

/** Whether the bytes can still become a head: the status line's beginning, and no bare line feed in what is there. */
function couldBegin(bytes: Buffer, start: number): boolean {
  const first = bytes.toString('latin1', start, start + 9);
  if (!'HTTP/1.1 '.startsWith(first) && !'HTTP/1.0 '.startsWith(first)) return false;
  for (let at = bytes.indexOf(LF, start); at >= 0; at = bytes.indexOf(LF, at + 1)) {
    if (bytes[at - 1] !== CR) return false;
  }
  return true;
}

function hex(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const lower = byte | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

/** Without the spaces and tabs at both ends. */
function trimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && blank(text.charCodeAt(start))) start++;
  while (end > start && blank(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

const blank = (code: number): boolean => code === 32 || code === 9;
