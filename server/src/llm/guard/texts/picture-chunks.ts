/** Texts in WebP (RFC 9649) and GIF (89a) files, and how one is written there. */
import { commentText, type Found, MAX_CHUNKS, MAX_TEXT, MAX_TEXTS, type Place, runs } from './picture-text.ts';

export const isWebp = (bytes: Buffer): boolean =>
  bytes.length >= 12 && bytes.toString('latin1', 0, 4) === 'RIFF' && bytes.toString('latin1', 8, 12) === 'WEBP';
export const isGif = (bytes: Buffer): boolean =>
  bytes.length >= 13 && /^GIF8[79]a$/.test(bytes.toString('latin1', 0, 6));

/** Chunks of the picture itself; whatever else there is may hold text. */
const PIXELS = new Set(['VP8 ', 'VP8L', 'VP8X', 'ALPH', 'ANIM', 'ANMF', 'ICCP']);

export function webp(bytes: Buffer): Found {
  const places: Place[] = [];
  let more = false;
  let at = 12;
  for (let chunks = 0; at + 8 <= bytes.length; chunks++) {
    if (chunks === MAX_CHUNKS || places.length === MAX_TEXTS) return { kind: 'webp', places, more: true };
    const type = bytes.toString('latin1', at, at + 4);
    const size = bytes.readUInt32LE(at + 4);
    const end = at + 8 + size + (size % 2);
    // What follows the picture is no chunk.
    if (!/^[\x20-\x7e]{4}$/.test(type) || end > bytes.length + 1) break;
    if (!PIXELS.has(type)) {
      const data = bytes.subarray(at + 8, at + 8 + size);
      if (data.length > MAX_TEXT) more = true;
      const text = type === 'XMP ' ? data.toString('utf8', 0, MAX_TEXT) : runs(data.subarray(0, MAX_TEXT));
      if (text !== '') places.push({ start: at, end: Math.min(end, bytes.length), text });
    }
    at = end;
  }
  return { kind: 'webp', places: withTail(bytes, at, places), more: more || bytes.length - at > MAX_TEXT };
}

/** The bytes behind the end of a picture. */
function withTail(bytes: Buffer, at: number, places: Place[]): Place[] {
  const tail = at < bytes.length ? runs(bytes.subarray(at, at + MAX_TEXT)) : '';
  return tail === '' ? places : [...places, { start: at, end: bytes.length, text: tail }];
}

export function webpText(text: string): Buffer {
  const data = Buffer.from(text);
  const head = Buffer.from('XMP \0\0\0\0', 'latin1');
  head.writeUInt32LE(data.length, 4);
  return Buffer.concat([head, data, Buffer.alloc(data.length % 2)]);
}

/** The file with its size where it says it. */
export function withWebpSize(bytes: Buffer): Buffer {
  bytes.writeUInt32LE(bytes.length - 8, 4);
  return bytes;
}

/** Extensions that only say how to play: how often, how long. */
const PLAYS = /^(?:NETSCAPE2\.0|ANIMEXTS1\.0)/;
const [EXTENSION, IMAGE, COMMENT, TIMING] = [0x21, 0x2c, 0xfe, 0xf9];

export function gif(bytes: Buffer): Found {
  const places: Place[] = [];
  let more = false;
  let at = 13 + colours(bytes[10] ?? 0);
  for (let blocks = 0; at < bytes.length; blocks++) {
    if (blocks === MAX_CHUNKS || places.length === MAX_TEXTS) return { kind: 'gif', places, more: true };
    const kind = bytes[at];
    if (kind === IMAGE) at = subBlocks(bytes, at + 11 + colours(bytes[at + 9] ?? 0), null);
    else if (kind === EXTENSION) {
      const label = bytes[at + 1];
      const parts: Buffer[] = [];
      const end = subBlocks(bytes, at + 2, label === TIMING ? null : parts);
      const data = Buffer.concat(parts);
      if (data.length > MAX_TEXT) more = true;
      const cut = data.subarray(0, MAX_TEXT);
      const text = label === COMMENT ? commentText(cut) : PLAYS.test(cut.toString('latin1', 0, 11)) ? '' : runs(cut);
      if (text !== '') places.push({ start: at, end, text });
      at = end;
    } else {
      // The end mark, or what is no block.
      if (kind === 0x3b) at += 1;
      break;
    }
  }
  return { kind: 'gif', places: withTail(bytes, at, places), more: more || bytes.length - at > MAX_TEXT };
}

/** Bytes of a table of colours, by the flags that announce it. */
const colours = (flags: number): number => (flags & 0x80 ? 3 * 2 ** ((flags & 7) + 1) : 0);

/** Where sub-blocks end; what they hold goes into `parts`. */
function subBlocks(bytes: Buffer, from: number, parts: Buffer[] | null): number {
  let at = from;
  for (;;) {
    const size = bytes[at];
    if (size === undefined || size === 0) return Math.min(at + 1, bytes.length);
    parts?.push(bytes.subarray(at + 1, at + 1 + size));
    at += 1 + size;
  }
}

export function gifComment(text: string): Buffer {
  const data = Buffer.from(text);
  const out: Buffer[] = [Buffer.from([EXTENSION, COMMENT])];
  for (let at = 0; at < data.length; at += 255) {
    const part = data.subarray(at, at + 255);
    out.push(Buffer.from([part.length]), part);
  }
  return Buffer.concat([...out, Buffer.from([0])]);
}
