/** Texts that PNG, JPEG, WebP and GIF files carry beside the picture: comments, descriptions, XMP, EXIF. */
import { crc32, inflateSync } from 'node:zlib';
import { gif, gifComment, isGif, isWebp, webp, webpText, withWebpSize } from './picture-chunks.ts';
import { commentText, type Found, MAX_CHUNKS, MAX_TEXT, MAX_TEXTS, type Place, runs } from './picture-text.ts';

/** Null for what is neither. `more` tells of texts that were not read. */
export function pictureTexts(bytes: Buffer): { readonly texts: readonly string[]; readonly more: boolean } | null {
  const found = read(bytes);
  return found === null ? null : { texts: found.places.map((place) => place.text), more: found.more };
}

/** The file with another text in place of one: as a text chunk of PNG, XMP of WebP, a comment of JPEG and GIF. */
export function withPictureText(bytes: Buffer, index: number, text: string): Buffer {
  const found = read(bytes);
  const place = found?.places[index];
  if (found === null || place === undefined) return bytes;
  const next = Buffer.concat([bytes.subarray(0, place.start), MADE[found.kind](text), bytes.subarray(place.end)]);
  return found.kind === 'webp' ? withWebpSize(next) : next;
}

const PNG = Buffer.from('89504e470d0a1a0a', 'hex');

function read(bytes: Buffer): Found | null {
  if (bytes.length >= 8 && bytes.subarray(0, 8).equals(PNG)) return png(bytes);
  if (bytes.length >= 4 && bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff) return jpeg(bytes);
  if (isWebp(bytes)) return webp(bytes);
  return isGif(bytes) ? gif(bytes) : null;
}

function png(bytes: Buffer): Found {
  const places: Place[] = [];
  let more = false;
  let at = 8;
  let chunks = 0;
  for (; at + 12 <= bytes.length; chunks++) {
    if (chunks === MAX_CHUNKS || places.length === MAX_TEXTS) return { kind: 'png', places, more: true };
    const end = at + 12 + bytes.readUInt32BE(at);
    const type = bytes.toString('latin1', at + 4, at + 8);
    if (end > bytes.length) break;
    if (type === 'tEXt' || type === 'iTXt' || type === 'zTXt' || type === 'eXIf') {
      const text = chunkText(type, bytes.subarray(at + 8, end - 4));
      if (text === null) more = true;
      else if (text !== '') places.push({ start: at, end, text });
    }
    at = end;
    if (type === 'IEND') break;
  }
  // Bytes behind the end, or a chunk that is cut: no viewer shows them, and they may be text.
  const rest = bytes.subarray(at);
  const tail = runs(rest.subarray(0, MAX_TEXT));
  if (tail !== '' && rest.length > 0) places.push({ start: at, end: bytes.length, text: tail });
  return { kind: 'png', places, more: more || rest.length > MAX_TEXT };
}

/** Keyword and text in lines; null for what cannot be read. */
function chunkText(type: string, data: Buffer): string | null {
  if (data.length > MAX_TEXT) return null;
  if (type === 'eXIf') return runs(data);
  if (type === 'tEXt') return lines([data.toString('latin1')]);
  const name = data.indexOf(0);
  if (name === -1) return lines([data.toString('latin1')]);
  const keyword = data.toString('latin1', 0, name);
  if (type === 'zTXt') {
    const text = inflated(data.subarray(name + 2));
    return text === null ? null : lines([keyword, text.toString('latin1')]);
  }
  const language = data.indexOf(0, name + 3);
  const translated = language === -1 ? -1 : data.indexOf(0, language + 1);
  if (translated === -1) return lines([data.toString('utf8')]);
  const raw = data.subarray(translated + 1);
  const text = data[name + 1] === 1 ? inflated(raw) : raw;
  if (text === null) return null;
  return lines([keyword, data.toString('utf8', name + 3, translated), text.toString('utf8')]);
}

const lines = (texts: readonly string[]): string =>
  texts
    .flatMap((text) => text.split('\0'))
    .filter((text) => text !== '')
    .join('\n');

function inflated(data: Buffer): Buffer | null {
  try {
    return inflateSync(data, { maxOutputLength: MAX_TEXT });
  } catch {
    return null;
  }
}

/** The first of several lines is the keyword. */
function pngText(text: string): Buffer {
  const line = text.indexOf('\n');
  const first = line === -1 ? '' : text.slice(0, line);
  const named = /^[\x20-\x7e]{1,79}$/.test(first);
  const keyword = named ? first : 'Comment';
  const data = Buffer.from(`${keyword}\0\0\0\0\0${named ? text.slice(line + 1) : text}`);
  const body = Buffer.concat([Buffer.from('iTXt'), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc32(body), body.length + 4);
  return out;
}

const XMP = 'http://ns.adobe.com/xap/1.0/\0';

function jpeg(bytes: Buffer): Found {
  const places: Place[] = [];
  let at = 2;
  for (let segments = 0; at + 4 <= bytes.length; segments++) {
    if (segments === MAX_CHUNKS || places.length === MAX_TEXTS) return { kind: 'jpeg', places, more: true };
    if (bytes[at] !== 0xff) break;
    const marker = bytes[at + 1] ?? 0;
    if (marker === 0xff) {
      at += 1;
      continue;
    }
    // Scan data follows: the picture itself.
    if (marker === 0xda || marker === 0xd9) break;
    const end = at + 2 + bytes.readUInt16BE(at + 2);
    if (end > bytes.length || end < at + 4) break;
    const data = bytes.subarray(at + 4, end);
    const text = marker === 0xfe ? commentText(data) : marker === 0xe1 || marker === 0xed ? appText(data) : '';
    if (text !== '') places.push({ start: at, end, text });
    at = end;
  }
  // A comment after the scan is legal, and so is anything behind the end marker.
  const last = bytes.lastIndexOf(Buffer.from([0xff, 0xd9]));
  if (last > at && last + 2 < bytes.length) {
    const text = runs(bytes.subarray(last + 2, last + 2 + MAX_TEXT));
    if (text !== '') places.push({ start: last + 2, end: bytes.length, text });
  }
  return { kind: 'jpeg', places, more: false };
}

const appText = (data: Buffer): string =>
  data.toString('latin1', 0, XMP.length) === XMP ? data.toString('utf8', XMP.length) : runs(data);

function jpegComment(text: string): Buffer {
  const data = Buffer.from(text).subarray(0, 65_533);
  const head = Buffer.from([0xff, 0xfe, 0, 0]);
  head.writeUInt16BE(data.length + 2, 2);
  return Buffer.concat([head, data]);
}

const MADE: Readonly<Record<Found['kind'], (text: string) => Buffer>> = {
  png: pngText,
  jpeg: jpegComment,
  webp: webpText,
  gif: gifComment,
};
