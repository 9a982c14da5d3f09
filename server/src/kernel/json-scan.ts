import { isUtf8 } from 'node:buffer';
import { endianness } from 'node:os';
import { CONTAINER_WEIGHT, LONG_WEIGHT, MAX_WEIGHT, MEMBER_WEIGHT } from './json-exact.ts';
import { fail, KeyIndex } from './json-keys.ts';
import { simdBegin, simdEnd } from './json-simd.ts';

export { type JsonFault, JsonScanError } from './json-keys.ts';

/**
 * Strict JSON over raw bytes without building values: finds top-level members, refuses what two parsers could read
 * differently (duplicate keys at any level, bad UTF-8, trailing data) and bounds depth, keys and number literals.
 * It accepts exactly what `JSON.parse` accepts for an object, less those refusals.
 */

export type JsonKind = 'string' | 'number' | 'true' | 'false' | 'null' | 'object' | 'array';

/** Bytes `[start, end)` of one value; a string's range includes its quotes. */
export interface JsonRange {
  readonly start: number;
  readonly end: number;
  readonly kind: JsonKind;
}

export interface ScanLimits {
  /** Containers inside each other, the root included. Default 64. */
  readonly depth?: number;
  /** Members of all objects together. Default 20,000. */
  readonly keys?: number;
  /** Characters of one number literal. Default 64. */
  readonly number?: number;
  /** Weight of all values: at least what `json-exact.ts` counts, so that what was scanned is read. Default 400,000. */
  readonly weight?: number;
}

export interface ScanResult {
  /** The member's value, or undefined when the root object has no such member. Only wanted names are found. */
  get(name: string): JsonRange | undefined;
  /** Offset just after the root's `{`: where a member can be inserted. */
  readonly insertAt: number;
  /** True when the root is `{}`, so that an inserted member takes no comma. */
  readonly empty: boolean;
  /** Of all values, as `ScanLimits.weight` counts. */
  readonly weight: number;
  /** Texts of which `withTexts` has looked whether the body holds them; null: it has not looked. */
  readonly texts: ReadonlyMap<string, boolean> | null;
}

/** A scan as plain data, which can go to another thread. */
export interface ScanFacts {
  readonly wanted: readonly string[];
  readonly ranges: readonly (JsonRange | undefined)[];
  readonly insertAt: number;
  readonly empty: boolean;
  readonly weight: number;
  readonly texts: ReadonlyMap<string, boolean> | null;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const MAX_DEPTH = 1024;
/** Bytes of all keys together: the index reads each of them, at 6 ns a byte. */
const MAX_KEY_BYTES = 1024 * 1024;
/** Bytes outside of strings: white space and numbers are read one by one. */
const MAX_BARE_BYTES = 8 * 1024 * 1024;
/** Digits from which on an integer may be one that no double holds. */
const LONG_NUMBER = 16;

/** Bytes of a body from which its string values are given to `simdEnd`. Keys are short: the loop is as fast for them. */
const SIMD_FROM = 1024;

/** 1 where a byte ends a run of plain string bytes: quote, backslash, control characters. */
const STOPS = new Uint8Array(256);
STOPS.fill(1, 0, 0x20);
STOPS[QUOTE] = 1;
STOPS[BACKSLASH] = 1;

const LITTLE_ENDIAN = endianness() === 'LE';
const NO_WORDS = new Int32Array(0);

const WHITESPACE = new Uint8Array(256);
for (const byte of [0x20, 0x09, 0x0a, 0x0d]) WHITESPACE[byte] = 1;

const HEX = new Uint8Array(256);
for (const char of '0123456789abcdefABCDEF') HEX[char.charCodeAt(0)] = 1;

const ESCAPES = new Uint8Array(256);
for (const char of '"\\/bfnrt') ESCAPES[char.charCodeAt(0)] = 1;

const stackKind = new Uint8Array(MAX_DEPTH + 1);
const stackOwner = new Int32Array(MAX_DEPTH + 1);

/** Whether the string that `stringEnd` measured last holds an escape; a return value would cost an allocation. */
let escaped = false;

/** Keeps the bytes of a word from the n-th on; the first word of a string may hold bytes that come before it. */
const FROM = new Int32Array([-1, -0x100, -0x10000, -0x1000000]);

/**
 * Offset of the closing quote of the string whose first content byte is at `start`. Four bytes are tested at a time:
 * after `^ 0x02` the quote and the control characters, and nothing else, are below 0x21 (0x22 swaps with 0x20, 0x21
 * with 0x23), and the classic zero-byte test finds backslashes. The lowest flag of such a test is always exact.
 * `words[k]` covers bytes from `4k - shift`. From `n` on nothing is read: there the body ends, or a key is too long.
 */
function stringEnd(buf: Buffer, words: Int32Array, shift: number, start: number, n: number): number {
  const wordEnd = words.length;
  let i = start;
  escaped = false;
  for (;;) {
    let k = (i + shift) >> 2;
    if (k < wordEnd) {
      const keep = FROM[(i + shift) & 3] as number;
      let w = ((words[k] as number) & keep) | (0x61616161 & ~keep);
      let flags = 0;
      for (;;) {
        const x = w ^ 0x02020202;
        const y = w ^ 0x5c5c5c5c;
        flags = (((x - 0x21212121) & ~x) | ((y - 0x01010101) & ~y)) & 0x80808080;
        if (flags !== 0 || ++k >= wordEnd) break;
        w = words[k] as number;
      }
      i = (k << 2) - shift;
      if (flags !== 0) i += (31 - Math.clz32(flags & -flags)) >> 3;
    }
    while (i < n && STOPS[buf[i] as number] === 0) i++;
    if (i >= n) unclosed(buf, n);
    const c = buf[i] as number;
    if (c === QUOTE) return i;
    if (c !== BACKSLASH) fail('syntax', i, ': a string holds a control character');
    escaped = true;
    if (i + 1 >= n) unclosed(buf, n);
    const e = buf[i + 1] as number;
    if (ESCAPES[e] === 1) {
      // Escapes come in runs, above all in text that is made of them.
      do i += 2;
      while (i + 1 < n && buf[i] === BACKSLASH && ESCAPES[buf[i + 1] as number] === 1);
    } else if (e === 0x75) {
      if (
        i + 5 >= n ||
        (HEX[buf[i + 2] as number] as number) +
          (HEX[buf[i + 3] as number] as number) +
          (HEX[buf[i + 4] as number] as number) +
          (HEX[buf[i + 5] as number] as number) !==
          4
      ) {
        fail('syntax', i, ': a string holds a bad escape');
      }
      i += 6;
    } else {
      fail('syntax', i, ': a string holds a bad escape');
    }
  }
}

function unclosed(buf: Buffer, end: number): never {
  if (end < buf.length) fail('keys', end);
  fail('syntax', end, ': a string is not closed');
}

/** Whether the number that `numberEnd` measured last has an exponent that may make it infinite. */
let grows = false;

function noDigit(buf: Buffer, at: number, end: number): never {
  fail(at >= end && end < buf.length ? 'number' : 'syntax', at);
}

/** Offset after the number that starts at `start`. */
function numberEnd(buf: Buffer, start: number, limit: number): number {
  // Of a longer one no more is read.
  const n = Math.min(buf.length, start + limit + 1);
  let i = start;
  let c = buf[i] as number;
  grows = false;
  if (c === 0x2d) {
    i++;
    c = i < n ? (buf[i] as number) : 0;
  }
  if (c === 0x30) {
    i++;
  } else if (c >= 0x31 && c <= 0x39) {
    do i++;
    while (i < n && isDigit(buf[i] as number));
  } else {
    fail('syntax', i);
  }
  if (i < n && buf[i] === 0x2e) {
    i++;
    if (i >= n || !isDigit(buf[i] as number)) noDigit(buf, i, n);
    while (i < n && isDigit(buf[i] as number)) i++;
  }
  if (i < n && ((buf[i] as number) | 0x20) === 0x65) {
    i++;
    grows = buf[i] !== 0x2d;
    if (i < n && (buf[i] === 0x2b || buf[i] === 0x2d)) i++;
    if (i >= n || !isDigit(buf[i] as number)) noDigit(buf, i, n);
    while (i < n && isDigit(buf[i] as number)) i++;
  }
  if (i - start > limit) fail('number', start);
  return i;
}

/** No fraction and no exponent. */
function isPlain(buf: Buffer, start: number, end: number): boolean {
  for (let i = start; i < end; i++) if (buf[i] === 0x2e || ((buf[i] as number) | 0x20) === 0x65) return false;
  return true;
}

function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39;
}

function skipSpace(buf: Buffer, start: number, stop: number): number {
  let i = start;
  while (i < stop && WHITESPACE[buf[i] as number] === 1) i++;
  return i;
}

/** The body ends here, or has had as much outside of strings as is read. */
function tooEarly(at: number, end: number): never {
  if (at < end) fail('weight', at);
  fail('syntax', end, ': it ends too early');
}

class Found implements ScanResult {
  readonly wanted: readonly string[];
  readonly ranges: (JsonRange | undefined)[];
  readonly insertAt: number;
  empty = true;
  weight = 0;
  texts: ReadonlyMap<string, boolean> | null = null;

  constructor(wanted: readonly string[], insertAt: number) {
    this.wanted = wanted;
    this.ranges = [];
    this.insertAt = insertAt;
  }

  get(name: string): JsonRange | undefined {
    return this.ranges[this.wanted.indexOf(name)];
  }

  set(index: number, range: JsonRange): void {
    this.ranges[index] = range;
  }
}

/** The scan of these facts, which are those of a scan. */
export function scanOf({ wanted, ranges, insertAt, empty, weight, texts }: ScanFacts): ScanResult {
  const found = new Found(wanted, insertAt);
  ranges.forEach((range, i) => {
    if (range !== undefined) found.set(i, range);
  });
  found.empty = empty;
  found.weight = weight;
  found.texts = texts;
  return found;
}

/** The facts with whether the body holds each of these texts: 30 MB are searched in 4 ms. */
export function withTexts(facts: ScanFacts, body: Buffer, texts: readonly string[]): ScanFacts {
  return { ...facts, texts: new Map(texts.map((text) => [text, body.includes(text)])) };
}

/** What a scan found, as plain data. */
export function factsOf(scan: ScanResult): ScanFacts {
  if (!(scan instanceof Found)) throw new TypeError('not a scan of this module');
  const { wanted, ranges, insertAt, empty, weight, texts } = scan;
  return { wanted, ranges, insertAt, empty, weight, texts };
}

/** Index in `wanted` of the key in bytes `[start, end)`, or -1. Wanted names are ASCII. */
function matchWanted(buf: Buffer, start: number, end: number, wanted: readonly string[]): number {
  const length = end - start;
  next: for (let w = 0; w < wanted.length; w++) {
    const name = wanted[w] as string;
    if (name.length !== length) continue;
    for (let j = 0; j < length; j++) if (buf[start + j] !== name.charCodeAt(j)) continue next;
    return w;
  }
  return -1;
}

const KINDS: readonly JsonKind[] = ['object', 'array', 'string', 'number', 'true', 'false', 'null'];
const OBJECT = 0;
const ARRAY = 1;

/** Offset after the literal `text` at `start`. */
function literalEnd(buf: Buffer, start: number, text: string): number {
  if (start + text.length > buf.length) fail('syntax', buf.length);
  for (let j = 1; j < text.length; j++) if (buf[start + j] !== text.charCodeAt(j)) fail('syntax', start + j);
  return start + text.length;
}

/**
 * Scans a whole body. `wanted` names top-level members (ASCII) whose byte ranges the caller needs.
 * Throws `JsonScanError`. Under 1 µs at 1 KB of chat; at 100 KB 15 µs for one message, 25 µs for a hundred, 55 µs for
 * 400. `simdFrom` is given by tests.
 */
export function scanJson(
  buf: Buffer,
  wanted: readonly string[],
  limits?: ScanLimits,
  simdFrom = SIMD_FROM,
): ScanResult {
  const depthLimit = Math.min(limits?.depth ?? 64, MAX_DEPTH);
  const keyLimit = limits?.keys ?? 20_000;
  const numberLimit = limits?.number ?? 64;
  const weightLimit = limits?.weight ?? MAX_WEIGHT;
  const n = buf.length;
  if (n === 0) fail('empty', 0);
  if (n >= 3 && buf[0] === 0xef && buf[1] === 0xbb && buf[2] === 0xbf) fail('byte_order_mark', 0);
  if (!isUtf8(buf)) fail('encoding', 0);

  const simd = n >= simdFrom && simdBegin();
  const shift = buf.byteOffset & 3;
  // Words may begin up to three bytes before the body. On a big-endian machine all is left to the byte loop, and so are
  // keys where values are found with SIMD: keys are short, and the view would be garbage of every request.
  const words =
    LITTLE_ENDIAN && !simd ? new Int32Array(buf.buffer, buf.byteOffset - shift, (n + shift) >> 2) : NO_WORDS;
  const keys = new KeyIndex(buf, keyLimit);

  let i = skipSpace(buf, 0, Math.min(n, MAX_BARE_BYTES));
  if (i >= n) fail('empty', n);
  if (buf[i] !== 0x7b) fail('not_object', i);
  const found = new Found(wanted, i + 1);
  let depth = 0;
  let owners = 0;
  let pending = -1;
  let pendingStart = 0;
  let weight = 0;
  let keyBytes = 0;
  let quoted = 0;
  // Where the body has had so much outside of strings that the rest is not read.
  let stop = Math.min(n, MAX_BARE_BYTES);
  let isObject = true;
  stackKind[0] = OBJECT;
  stackOwner[0] = 0;
  i++;
  // True where a container may close: directly after it opened, or after one of its values.
  let fresh = true;

  for (;;) {
    while (i < stop && WHITESPACE[buf[i] as number] === 1) i++;
    if (i >= stop) tooEarly(i, n);
    let c = buf[i] as number;

    if (fresh && c === (isObject ? 0x7d : 0x5d)) {
      i++;
    } else {
      if (isObject) {
        if (c !== QUOTE) fail('syntax', i);
        const start = i + 1;
        const end = stringEnd(buf, words, shift, start, Math.min(n, start + MAX_KEY_BYTES + 1));
        keyBytes += end - start;
        if (keys.count >= keyLimit || keyBytes > MAX_KEY_BYTES) fail('keys', i);
        weight += MEMBER_WEIGHT;
        quoted += end - start;
        const owner = stackOwner[depth] as number;
        if (escaped) {
          const key = keys.addEscaped(owner, start, end);
          if (depth === 0) pending = matchWanted(key, 0, key.length, wanted);
        } else {
          keys.add(owner, start, end);
          if (depth === 0) pending = matchWanted(buf, start, end, wanted);
        }
        i = end + 1;
        while (i < stop && WHITESPACE[buf[i] as number] === 1) i++;
        if (i >= stop) tooEarly(i, n);
        if (buf[i] !== 0x3a) fail('syntax', i);
        i++;
        while (i < stop && WHITESPACE[buf[i] as number] === 1) i++;
        if (i >= stop) tooEarly(i, n);
        c = buf[i] as number;
      }
      const start = i;
      let kind = 2;
      if (c === QUOTE) {
        const end = simd ? simdEnd(buf, i + 1) : -1;
        // A string with a fault is read again by the loop, which names it.
        i = (end >= 0 ? end : stringEnd(buf, words, shift, i + 1, n)) + 1;
        quoted += i - start;
        stop = Math.min(n, MAX_BARE_BYTES + quoted);
      } else if (c === 0x7b || c === 0x5b) {
        if (depth === 0) pendingStart = start;
        depth++;
        if (depth >= depthLimit) fail('depth', i);
        weight += CONTAINER_WEIGHT + 1;
        if (weight > weightLimit) fail('weight', start);
        isObject = c === 0x7b;
        stackKind[depth] = isObject ? OBJECT : ARRAY;
        stackOwner[depth] = isObject ? ++owners : 0;
        i++;
        fresh = true;
        continue;
      } else if (c === 0x74) {
        kind = 4;
        i = literalEnd(buf, i, 'true');
      } else if (c === 0x66) {
        kind = 5;
        i = literalEnd(buf, i, 'false');
      } else if (c === 0x6e) {
        kind = 6;
        i = literalEnd(buf, i, 'null');
      } else {
        kind = 3;
        i = numberEnd(buf, i, numberLimit);
        if (grows || (i - start >= LONG_NUMBER && isPlain(buf, start, i))) weight += LONG_WEIGHT;
      }
      if (++weight > weightLimit) fail('weight', start);
      if (depth === 0) {
        found.empty = false;
        if (pending >= 0) {
          found.set(pending, { start, end: i, kind: KINDS[kind] as JsonKind });
          pending = -1;
        }
      }
      // After a value only a comma or the container's end may follow.
      while (i < stop && WHITESPACE[buf[i] as number] === 1) i++;
      if (i >= stop) tooEarly(i, n);
      c = buf[i] as number;
      i++;
      if (c === 0x2c) {
        fresh = false;
        continue;
      }
      if (c !== (isObject ? 0x7d : 0x5d)) fail('syntax', i - 1);
    }

    // Here a container was just closed at i - 1; close as many as follow directly.
    for (;;) {
      if (depth === 0) {
        i = skipSpace(buf, i, stop);
        if (i < n) fail(i < stop ? 'trailing' : 'weight', i);
        keys.finish();
        found.weight = weight;
        return found;
      }
      const closed = stackKind[depth] as number;
      depth--;
      isObject = stackKind[depth] === OBJECT;
      if (depth === 0) {
        found.empty = false;
        if (pending >= 0) {
          found.set(pending, { start: pendingStart, end: i, kind: KINDS[closed] as JsonKind });
          pending = -1;
        }
      }
      while (i < stop && WHITESPACE[buf[i] as number] === 1) i++;
      if (i >= stop) tooEarly(i, n);
      const c2 = buf[i] as number;
      i++;
      if (c2 === 0x2c) {
        fresh = false;
        break;
      }
      if (c2 !== (isObject ? 0x7d : 0x5d)) fail('syntax', i - 1);
    }
  }
}

/** The text of a string value found by `scanJson`. */
export function decodeString(buf: Buffer, range: JsonRange): string {
  // Of the value alone: behind it there may be 31 MB without one.
  if (!buf.subarray(range.start, range.end).includes(BACKSLASH))
    return buf.toString('utf8', range.start + 1, range.end - 1);
  return JSON.parse(buf.toString('utf8', range.start, range.end)) as string;
}

/** Replaces bytes `[start, end)` by `bytes`; an insertion has `start === end`. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly bytes: Buffer;
}

/**
 * The body with some ranges replaced, as a list of parts over the same memory: nothing is copied, whatever the size.
 * Edits may come in any order and must not overlap.
 */
export function spliceParts(buf: Buffer, edits: readonly Splice[]): Buffer[] {
  const sorted = edits.length > 1 ? [...edits].sort((a, b) => a.start - b.start) : edits;
  const parts: Buffer[] = [];
  let at = 0;
  for (const edit of sorted) {
    if (edit.start < at || edit.end < edit.start || edit.end > buf.length) throw new RangeError('edits overlap');
    if (edit.start > at) parts.push(buf.subarray(at, edit.start));
    if (edit.bytes.length > 0) parts.push(edit.bytes);
    at = edit.end;
  }
  if (at < buf.length) parts.push(buf.subarray(at));
  return parts;
}
