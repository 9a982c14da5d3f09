import { SluiceError } from '../kernel/errors.ts';

/** The request target is judged as raw text, once, before anything is matched. */

const MAX_TARGET = 8_192;

/** 1 where the path may hold a byte. */
const PATH = new Uint8Array(128);
for (const c of "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~!$&'()*+,=:@%/-")
  PATH[c.charCodeAt(0)] = 1;

function refuse(message: string): SluiceError {
  return new SluiceError('malformed_call', message);
}

/**
 * Null when the target is acceptable, else the refusal: 400, or 414 past 8 KB. One pass over the characters; segments
 * are only decoded when a percent sign or a segment that starts with a dot occurs.
 */
export function checkTarget(target: string): SluiceError | null {
  const n = target.length;
  if (n > MAX_TARGET)
    return new SluiceError('uri_too_long', `The request target is longer than ${MAX_TARGET} characters`);
  if (n === 0 || target.charCodeAt(0) !== 0x2f) return refuse('The request target must be a path that starts with /');
  let suspicious = false;
  let previous = 0;
  let i = 0;
  for (; i < n; i++) {
    const c = target.charCodeAt(i);
    if (c === 0x3f) break;
    if (c > 0x7e || PATH[c] === 0) return refuse('The request path has a character that must be percent-encoded');
    if (c === 0x2f && previous === 0x2f) return refuse('The request path must not contain an empty segment (//)');
    if (c === 0x25 || (c === 0x2e && previous === 0x2f)) suspicious = true;
    previous = c;
  }
  const end = i;
  for (i++; i < n; i++) {
    const c = target.charCodeAt(i);
    if (c < 0x21 || c > 0x7e || c === 0x23) return refuse('The query has a character that must be percent-encoded');
  }
  return suspicious ? checkSegments(target.slice(1, end)) : null;
}

function checkSegments(path: string): SluiceError | null {
  for (const segment of path.split('/')) {
    // Routers decode these before they match: one path would have many spellings, of which a front sees only one.
    if (/%(?:2d|3\d|[46][1-9a-f]|[57][0-9a]|5f)/i.test(segment)) {
      return refuse('The request path must not percent-encode letters, digits, - or _');
    }
    let text: string;
    try {
      text = decodeURIComponent(segment);
    } catch {
      return refuse('The request path has a malformed percent-encoding');
    }
    for (let i = 0; i < text.length; i++) {
      const c = text.charCodeAt(i);
      if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return refuse('The request path must not contain control characters');
      if (c === 0x5c) return refuse('The request path must not contain a backslash');
    }
    // An id may hold an encoded slash; it must not make a dot segment out of it.
    for (const part of text.split('/')) {
      if (part === '.' || part === '..') return refuse('The request path must not contain dot segments');
    }
  }
  return null;
}
