import { crc32 } from 'node:zlib';
import { SluiceError } from './errors.ts';

/** One message of `application/vnd.amazon.eventstream`. */
export interface AwsMessage {
  /** Headers whose value is a text (`:message-type`, `:event-type` …); no other kind is of use to anybody here. */
  readonly headers: ReadonlyMap<string, string>;
  /** A view of bytes that were pushed: keeping it keeps the whole chunk. */
  readonly payload: Buffer;
}

/** Total length, length of the headers, CRC of both; each of four bytes. */
const PRELUDE = 12;
/** The CRC of everything before it. */
const TRAILER = 4;
const MAX_HEADERS = 128 * 1024;
const MAX_PAYLOAD = 24 * 1024 * 1024;
const TEXT = 7;
/** Bytes of a header's value by its type; those of types 6 and 7 say their own length. */
const SIZES: readonly (number | null)[] = [0, 0, 1, 2, 4, 8, null, null, 8, 16];

const broken = (what: string): SluiceError =>
  new SluiceError('upstream_invalid', `The provider sent a stream message ${what}.`);

/**
 * Cuts the bytes of an AWS event stream into its messages, wherever they were split. Both checksums are verified, and
 * the length before anything is kept for it. Throws `SluiceError('upstream_invalid')` for bytes that are no such stream;
 * nothing can be read after that.
 */
export class AwsEventStream {
  readonly #maxPayload: number;
  /** The beginning of a message whose end has not come. */
  #held: Buffer | null = null;
  #heldBytes = 0;

  constructor(maxPayload = MAX_PAYLOAD) {
    this.#maxPayload = maxPayload;
  }

  /** Whether a message has begun and not ended. */
  get partial(): boolean {
    return this.#heldBytes > 0;
  }

  /** Messages that are complete with this chunk. Those before a broken one come before the error. */
  *push(chunk: Buffer): Generator<AwsMessage, void, undefined> {
    let at = 0;
    while (at < chunk.length) {
      if (this.#held === null) {
        const there = chunk.length - at;
        const size = there < PRELUDE ? 0 : this.#sizeOf(chunk, at);
        if (size > 0 && size <= there) {
          const message = readMessage(chunk.subarray(at, at + size));
          at += size;
          yield message;
        } else at += this.#hold(chunk, at, there);
        continue;
      }
      const size = this.#heldBytes < PRELUDE ? PRELUDE : this.#sizeOf(this.#held, 0);
      at += this.#hold(chunk, at, Math.min(size - this.#heldBytes, chunk.length - at));
      if (this.#heldBytes < size || size === PRELUDE) continue;
      const whole = this.#held.subarray(0, size);
      this.#held = null;
      this.#heldBytes = 0;
      yield readMessage(whole);
    }
  }

  /** The length of the message that begins at `at`; its prelude is there. */
  #sizeOf(bytes: Buffer, at: number): number {
    const total = bytes.readUInt32BE(at);
    const headers = bytes.readUInt32BE(at + 4);
    if (crc32(bytes.subarray(at, at + 8)) !== bytes.readUInt32BE(at + 8)) throw broken('with a wrong checksum');
    const payload = total - headers - PRELUDE - TRAILER;
    if (payload < 0) throw broken('shorter than its own headers');
    if (headers > MAX_HEADERS || payload > this.#maxPayload) throw broken(`of ${total} bytes, which is too large`);
    return total;
  }

  /** Keeps `length` bytes; grows by doubling, so that a length that is only announced costs nothing. */
  #hold(chunk: Buffer, at: number, length: number): number {
    const size = this.#heldBytes + length;
    if (this.#held === null || size > this.#held.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(512, size, (this.#held?.length ?? 0) * 2));
      this.#held?.copy(larger, 0, 0, this.#heldBytes);
      this.#held = larger;
    }
    chunk.copy(this.#held, this.#heldBytes, at, at + length);
    this.#heldBytes = size;
    return length;
  }
}

function readMessage(bytes: Buffer): AwsMessage {
  const end = bytes.length - TRAILER;
  if (crc32(bytes.subarray(0, end)) !== bytes.readUInt32BE(end)) throw broken('with a wrong checksum');
  const start = PRELUDE + bytes.readUInt32BE(4);
  return { headers: readHeaders(bytes.subarray(PRELUDE, start)), payload: bytes.subarray(start, end) };
}

function readHeaders(bytes: Buffer): Map<string, string> {
  const headers = new Map<string, string>();
  let at = 0;
  const take = (count: number): number => {
    const from = at;
    at += count;
    if (at > bytes.length) throw broken('with headers that end too early');
    return from;
  };
  while (at < bytes.length) {
    const nameLength = bytes.readUInt8(take(1));
    const nameAt = take(nameLength);
    const name = bytes.toString('utf8', nameAt, at);
    const type = bytes.readUInt8(take(1));
    const fixed = SIZES[type];
    if (fixed === undefined) throw broken(`with a header of the unknown type ${type}`);
    const valueLength = fixed ?? bytes.readUInt16BE(take(2));
    const valueAt = take(valueLength);
    if (type === TEXT) headers.set(name, bytes.toString('utf8', valueAt, at));
  }
  return headers;
}
