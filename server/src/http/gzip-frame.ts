import { crc32 } from 'node:zlib';

/** Header with its optional fields: more is nobody's file name. */
const HEADER_BYTES = 4 * 1024;
const TRAILER_BYTES = 8;
const HAS_CRC = 2;
const HAS_EXTRA = 4;
const HAS_NAME = 8;
const HAS_COMMENT = 16;
const RESERVED_FLAGS = 0xe0;
const NOTHING = Buffer.alloc(0);

/**
 * Header and trailer of one gzip member (RFC 1952) around raw deflate data. The gunzip of zlib reads as many members as
 * there are, and readers do not agree about that: here there is one.
 */
export class GzipFrame {
  /** Bytes of a header that is not complete yet; null once it was read. */
  #header: Buffer | null = NOTHING;
  /** The last bytes that came: the trailer, when nothing comes behind them. */
  #tail: Buffer = NOTHING;
  #crc = 0;

  /** The part of the next bytes that is deflate data; null when they are no gzip. */
  strip(chunk: Buffer): Buffer | null {
    let bytes = chunk;
    if (this.#header !== null) {
      bytes = Buffer.concat([this.#header, chunk]);
      const end = headerEnd(bytes);
      if (end < 0) return null;
      if (end === 0) {
        this.#header = bytes;
        return bytes.length > HEADER_BYTES ? null : NOTHING;
      }
      this.#header = null;
      bytes = bytes.subarray(end);
    }
    if (this.#tail.length > 0) bytes = Buffer.concat([this.#tail, bytes]);
    const cut = Math.max(0, bytes.length - TRAILER_BYTES);
    this.#tail = Buffer.from(bytes.subarray(cut));
    return bytes.subarray(0, cut);
  }

  /** The next decoded bytes. */
  decoded(chunk: Buffer): void {
    this.#crc = crc32(chunk, this.#crc);
  }

  /** Whether the trailer says what was decoded. */
  matches(decodedBytes: number): boolean {
    const tail = this.#tail;
    return (
      tail.length === TRAILER_BYTES && tail.readUInt32LE(0) === this.#crc && tail.readUInt32LE(4) === decodedBytes >>> 0
    );
  }
}

/** Where the header ends; 0 while it is not complete, -1 when it is none. */
function headerEnd(bytes: Buffer): number {
  const start = [0x1f, 0x8b, 8];
  if (start.some((byte, at) => at < bytes.length && bytes[at] !== byte)) return -1;
  if (bytes.length < 10) return 0;
  const flags = bytes[3] as number;
  if ((flags & RESERVED_FLAGS) !== 0) return -1;
  let at = 10;
  if (flags & HAS_EXTRA) {
    if (bytes.length < at + 2) return 0;
    at += 2 + bytes.readUInt16LE(at);
  }
  for (const field of [HAS_NAME, HAS_COMMENT]) {
    if ((flags & field) === 0) continue;
    const zero = bytes.indexOf(0, at);
    if (zero < 0) return 0;
    at = zero + 1;
  }
  if (flags & HAS_CRC) at += 2;
  return at <= bytes.length ? at : 0;
}
