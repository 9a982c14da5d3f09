import type { JsonValue } from './json.ts';

type Reviver = (key: string, value: unknown, context: { source?: string }) => unknown;
const parseWithSource = JSON.parse as (text: string, reviver: Reviver) => JsonValue;
/** ES2026, in Node.js since 21; absent from the type library in use. */
const { rawJSON } = JSON as unknown as { rawJSON(text: string): JsonValue };

/** Doubles hold every integer of 15 digits; only longer runs of digits can lose precision. */
const LONG = 16;

const isDigit = (code: number): boolean => code >= 48 && code <= 57;

/** A run of 16 digits covers a position that is a multiple of 16, so only every 16th character is looked at. */
function hasLongNumber(text: string): boolean {
  for (let i = LONG - 1; i < text.length; i += LONG) {
    if (!isDigit(text.charCodeAt(i))) continue;
    let from = i;
    let to = i;
    while (from > 0 && isDigit(text.charCodeAt(from - 1))) from--;
    while (to + 1 < text.length && isDigit(text.charCodeAt(to + 1))) to++;
    if (to - from + 1 >= LONG) return true;
  }
  return false;
}

/** A number whose text would change on the way through a double, as a raw JSON value that is written back verbatim. */
const keep: Reviver = (_key, value, context) => {
  if (typeof value !== 'number' || context.source === undefined) return value;
  if (!Number.isFinite(value)) return rawJSON(context.source);
  const plain = !/[.eE]/.test(context.source);
  return plain && String(value) !== context.source && context.source !== '-0' ? rawJSON(context.source) : value;
};

/**
 * `JSON.parse` that keeps big integers: a number a double cannot hold becomes a raw JSON value, which
 * `JSON.stringify` writes back digit by digit. Costs one pass over the text more than `JSON.parse`; only texts with a
 * run of more than 15 digits pay for the reviver. Throws SyntaxError.
 */
export function parseExact(text: string): JsonValue {
  return hasLongNumber(text) ? parseWithSource(text, keep) : (JSON.parse(text) as JsonValue);
}
