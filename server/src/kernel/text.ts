import { isUtf8 } from 'node:buffer';

/** Whether a text has a control character (C0, DEL, C1): it could be read as the end of a line or a field. */
export function hasControls(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return true;
  }
  return false;
}

const ASCII = /^[\0-\x7f]*$/;
const BYTES = /^[\0-\xff]*$/;

/**
 * A header value as its sender wrote it. Node.js reads header values as Latin-1, and programs send UTF-8. Other bytes
 * stay Latin-1.
 */
export function headerText(value: string): string {
  if (ASCII.test(value) || !BYTES.test(value)) return value;
  const bytes = Buffer.from(value, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : value;
}

/** JSON of ASCII characters alone: as a header value it is read as it was written, also by `headerText`. */
export function headerJson(value: object): string {
  return JSON.stringify(value).replace(/[^\0-\x7f]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
