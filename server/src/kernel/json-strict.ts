/** JSON of which two readers cannot make two things: for texts that decide who somebody is. */
import { isObject, type JsonObject } from './json.ts';

/** Objects and lists within each other. */
const MAX_DEPTH = 32;
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * The object that the bytes are, or null: for what is no JSON by RFC 8259, no UTF-8, no object, nested deeper than 32, or
 * has a name twice in one object, however it is escaped. Time grows with the length alone.
 */
export function parseStrictObject(bytes: Uint8Array): JsonObject | null {
  let text: string;
  let value: unknown;
  try {
    text = UTF8.decode(bytes);
    value = JSON.parse(text);
  } catch {
    return null;
  }
  return isObject(value) && namesAreUnique(text) ? (value as JsonObject) : null;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** @param text valid JSON */
function namesAreUnique(text: string): boolean {
  /** Names of each object that is open; null for a list. */
  const open: (Set<string> | null)[] = [];
  let start = -1;
  let end = -1;
  for (let i = 0; i < text.length; i++) {
    switch (text.charCodeAt(i)) {
      case QUOTE:
        start = i;
        for (i++; text.charCodeAt(i) !== QUOTE; i++) if (text.charCodeAt(i) === BACKSLASH) i++;
        end = i;
        break;
      case 0x7b: // {
        open.push(new Set());
        break;
      case 0x5b: // [
        open.push(null);
        break;
      case 0x7d: // }
      case 0x5d: // ]
        open.pop();
        break;
      case 0x3a: {
        // A colon outside a text: the text before it is a name.
        const names = open.at(-1);
        const raw = text.slice(start + 1, end);
        const name = raw.includes('\\') ? (JSON.parse(text.slice(start, end + 1)) as string) : raw;
        if (names == null || names.has(name)) return false;
        names.add(name);
        break;
      }
    }
    if (open.length > MAX_DEPTH) return false;
  }
  return true;
}
