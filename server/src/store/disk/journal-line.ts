/**
 * One line of a journal: a JSON object whose last member is its checksum, so that a segment is a file of NDJSON that other engines
 * read as it is: `{"id":"…",…,"seq":7,"crc":"89abcdef"}` and a line feed. `crc` is the CRC-32 (that of gzip) of all bytes before
 * `,"crc"`, which is the object without its closing brace, as 8 lower-case hexadecimal digits.
 *
 * Earlier versions wrote the checksum first: `89abcdef {"id":"…",…}`, the CRC-32 of the object. Such lines are still read.
 */
import { crc32 } from 'node:zlib';

/** Bytes behind the object without its brace, line feed included. */
const SEAL = Buffer.from(',"crc":"00000000"}\n', 'latin1');
/** Of them, those before the digits. */
const NAME = 8;
const DIGITS = 8;
/** Two digits of each byte. */
const HEX = Uint16Array.from({ length: 256 }, (_, byte) =>
  Buffer.from(byte.toString(16).padStart(2, '0'), 'latin1').readUInt16BE(0),
);
const LINE_FEED = 0x0a;
const QUOTE = 0x22;
const BRACE = 0x7d;
const OPEN_BRACE = 0x7b;
const SPACE = 0x20;
/** Of lines of earlier versions. */
const HEADER = 9;

/** Folder below a journal: while it is there, each new segment has a second name in it, for those that send records elsewhere. */
export const OUTGOING = 'outgoing';

/** Bytes that `sealLine` adds to an object. */
export const SEAL_BYTES = SEAL.length - 1;

/** Writes checksum and line feed behind the object in `[start, end)`, over its last brace. Answers where the next line begins. */
export function sealLine(buffer: Buffer, start: number, end: number): number {
  const at = end - 1;
  let crc = crc32(buffer.subarray(start, at));
  // Loops: a copy of so few bytes costs more in its call.
  for (let i = 0; i < NAME; i++) buffer[at + i] = SEAL[i] ?? 0;
  const digits = at + NAME;
  for (let i = digits + DIGITS - 2; i >= digits; i -= 2) {
    const pair = HEX[crc & 255] ?? 0;
    buffer[i] = pair >>> 8;
    buffer[i + 1] = pair & 255;
    crc >>>= 8;
  }
  buffer[digits + DIGITS] = QUOTE;
  buffer[digits + DIGITS + 1] = BRACE;
  buffer[digits + DIGITS + 2] = LINE_FEED;
  return at + SEAL.length;
}

/**
 * Copies the object of the line in `[start, end)`, with a line feed, to `at` of `into`, which has as much room as the line and its line
 * feed. Answers the end of it, or -1 for a line that is not what was written.
 */
export function copyRecord(buffer: Buffer, start: number, end: number, into: Buffer, at: number): number {
  let to: number;
  if (buffer[start] === OPEN_BRACE) {
    const cut = end - SEAL.length + 1;
    if (!isSealed(buffer, start, cut)) return -1;
    to = at + buffer.copy(into, at, start, cut);
    into[to++] = BRACE;
  } else {
    if (!isOldLine(buffer, start, end)) return -1;
    to = at + buffer.copy(into, at, start + HEADER, end);
  }
  into[to] = LINE_FEED;
  return to + 1;
}

/** `cut`: where the checksum's member begins. */
function isSealed(buffer: Buffer, start: number, cut: number): boolean {
  if (cut <= start + 1) return false;
  for (let i = 0; i < SEAL.length - 1; i++) {
    const digit = i >= NAME && i < NAME + DIGITS;
    if (!digit && buffer[cut + i] !== SEAL[i]) return false;
  }
  return crc32(buffer.subarray(start, cut)) === readHex(buffer, cut + NAME);
}

function isOldLine(buffer: Buffer, start: number, end: number): boolean {
  if (end - start <= HEADER || buffer[start + HEADER - 1] !== SPACE) return false;
  return crc32(buffer.subarray(start + HEADER, end)) === readHex(buffer, start);
}

/** Value of 8 lower-case hexadecimal digits at `at`, or -1. */
function readHex(buffer: Buffer, at: number): number {
  let value = 0;
  for (let i = at; i < at + DIGITS; i++) {
    const byte = buffer[i] ?? 0;
    const digit = byte >= 0x30 && byte <= 0x39 ? byte - 0x30 : byte >= 0x61 && byte <= 0x66 ? byte - 0x57 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}
