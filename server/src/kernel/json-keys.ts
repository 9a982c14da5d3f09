import { randomBytes } from 'node:crypto';

/** The keys one JSON scan has seen, and the refusals of a scan. Used by `json-scan.ts` only. */

export type JsonFault =
  | 'empty'
  | 'encoding'
  | 'byte_order_mark'
  | 'not_object'
  | 'syntax'
  | 'duplicate_key'
  | 'depth'
  | 'keys'
  | 'number'
  | 'weight'
  | 'trailing';

const FAULTS: Record<JsonFault, string> = {
  empty: 'The body is empty; send a JSON object',
  encoding: 'The body is not valid UTF-8',
  byte_order_mark: 'The body starts with a byte order mark; send plain UTF-8',
  not_object: 'The body must be a JSON object',
  syntax: 'The body is not valid JSON',
  duplicate_key: 'The body names a key twice in one object',
  depth: 'The body is nested too deeply',
  keys: 'The body has too many keys: at most 20,000, and 1 MB of them, are read',
  weight: 'The body has too many values: at most 400,000, and 8 MB outside of texts, are read',
  number: 'The body has a number literal that is too long',
  trailing: 'The body has data after the JSON object',
};

/** `message` is fit for the caller: it carries the offset and, for a duplicate, the key, and no other content. */
export class JsonScanError extends Error {
  readonly reason: JsonFault;
  /** Byte offset of the fault. */
  readonly offset: number;

  constructor(reason: JsonFault, offset: number, note = '') {
    super(`${FAULTS[reason]}${note} (at byte ${offset})`);
    this.name = 'JsonScanError';
    this.reason = reason;
    this.offset = offset;
  }
}

export function fail(reason: JsonFault, offset: number, note?: string): never {
  throw new JsonScanError(reason, offset, note);
}

/**
 * The duplicate-key index is one open-addressing table for all objects of a scan, keyed by (object, key). It is reused
 * between scans and never cleared: a slot counts only when its stamp is this scan's. Seed and multiplier are secret, so
 * colliding keys cannot be prepared; should probing still grow past its budget, the keys are sorted instead, which
 * bounds the cost at n log n whatever the input.
 */
const SEED = randomBytes(4).readInt32LE();
const MULTIPLIER = randomBytes(4).readInt32LE() | 1;
let slots = new Int32Array(1 << 10);
let stamps = new Uint32Array(1 << 10);
let stamp = 0;
let keyHash = new Int32Array(256);
let keyOwner = new Int32Array(256);
let keyStart = new Int32Array(256);
let keyEnd = new Int32Array(256);

/** What follows a backslash for another byte; `u` is read apart, the rest stands for itself. */
const UNESCAPED = new Map([
  [0x62, 0x08],
  [0x66, 0x0c],
  [0x6e, 0x0a],
  [0x72, 0x0d],
  [0x74, 0x09],
]);

function hex4(buf: Buffer, at: number): number {
  let value = 0;
  for (let i = at; i < at + 4; i++) {
    const c = buf[i] as number;
    value = (value << 4) | (c <= 0x39 ? c - 0x30 : (c | 0x20) - 0x57);
  }
  return value;
}

/**
 * Writes the text of a valid JSON string into `out` as UTF-8 and returns its end. A lone surrogate is written as the
 * three bytes its number would take, which valid UTF-8 never holds, so that it equals nothing but itself.
 */
function decodeInto(buf: Buffer, start: number, end: number, out: Buffer, at: number): number {
  let i = start;
  let o = at;
  while (i < end) {
    const c = buf[i] as number;
    if (c !== 0x5c) {
      out[o++] = c;
      i++;
      continue;
    }
    const e = buf[i + 1] as number;
    if (e !== 0x75) {
      out[o++] = UNESCAPED.get(e) ?? e;
      i += 2;
      continue;
    }
    let code = hex4(buf, i + 2);
    i += 6;
    if (code >= 0xd800 && code < 0xdc00 && i + 6 <= end && buf[i] === 0x5c && buf[i + 1] === 0x75) {
      const low = hex4(buf, i + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        i += 6;
      }
    }
    if (code < 0x80) out[o++] = code;
    else if (code < 0x800) {
      out[o++] = 0xc0 | (code >> 6);
      out[o++] = 0x80 | (code & 63);
    } else if (code < 0x10000) {
      out[o++] = 0xe0 | (code >> 12);
      out[o++] = 0x80 | ((code >> 6) & 63);
      out[o++] = 0x80 | (code & 63);
    } else {
      out[o++] = 0xf0 | (code >> 18);
      out[o++] = 0x80 | ((code >> 12) & 63);
      out[o++] = 0x80 | ((code >> 6) & 63);
      out[o++] = 0x80 | (code & 63);
    }
  }
  return o;
}

function grow(): void {
  const size = keyHash.length * 4;
  const larger = (old: Int32Array<ArrayBuffer>) => {
    const next = new Int32Array(size);
    next.set(old);
    return next;
  };
  keyHash = larger(keyHash);
  keyOwner = larger(keyOwner);
  keyStart = larger(keyStart);
  keyEnd = larger(keyEnd);
}

function hashOf(bytes: Buffer, owner: number, start: number, end: number): number {
  let h = SEED ^ Math.imul(owner, 0x9e3779b1);
  for (let i = start; i < end; i++) h = Math.imul(h ^ (bytes[i] as number), MULTIPLIER) + (h >>> 15);
  return h | 0;
}

/** The keys one scan has seen, with the decoded form of those that were written with escapes. */
export class KeyIndex {
  readonly #buf: Buffer;
  readonly #mask: number;
  readonly #shift: number;
  /** Decoded forms, one behind the other; `keyStart` is `-1 - offset` for a key that lies here. */
  #decoded: Buffer | null = null;
  #decodedEnd = 0;
  #count = 0;
  #budget: number;

  /** `budget` of extra probes before sorting takes over; given by tests. */
  constructor(buf: Buffer, limit: number, budget = 1024) {
    this.#buf = buf;
    // A member takes at least 5 bytes (`"":1,`), which bounds the keys of a small body well below the limit.
    const most = Math.min(limit + 1, Math.ceil(buf.length / 5) + 1);
    const bits = Math.max(6, 33 - Math.clz32(most));
    if (slots.length < 1 << bits) {
      slots = new Int32Array(1 << bits);
      stamps = new Uint32Array(1 << bits);
      stamp = 0;
    }
    if (++stamp === 0xffffffff) {
      stamps.fill(0);
      stamp = 1;
    }
    this.#mask = (1 << bits) - 1;
    this.#shift = 32 - bits;
    this.#budget = budget;
  }

  get count(): number {
    return this.#count;
  }

  /** Adds the key between two quotes of the body to object `owner`; fails when the object has it already. */
  add(owner: number, start: number, end: number): void {
    this.#insert(owner, hashOf(this.#buf, owner, start, end), start, end, start);
  }

  /** The same for a key with escapes; returns its decoded bytes, valid until the next call. */
  addEscaped(owner: number, start: number, end: number): Buffer {
    const from = this.#decodedEnd;
    // Decoded text is never longer than its escapes.
    const need = from + end - start;
    if (this.#decoded === null || this.#decoded.length < need) {
      const larger = Buffer.allocUnsafeSlow(Math.max(256, need * 2));
      this.#decoded?.copy(larger, 0, 0, from);
      this.#decoded = larger;
    }
    const to = decodeInto(this.#buf, start, end, this.#decoded, from);
    this.#decodedEnd = to;
    this.#insert(owner, hashOf(this.#decoded, owner, from, to), -1 - from, to, start);
    return this.#decoded.subarray(from, to);
  }

  #insert(owner: number, hash: number, start: number, end: number, offset: number): void {
    const at = this.#count++;
    if (at >= keyHash.length) grow();
    keyHash[at] = hash;
    keyOwner[at] = owner;
    keyStart[at] = start;
    keyEnd[at] = end;
    if (this.#budget < 0) return;
    this.#budget += 8;
    let slot = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b) >>> this.#shift;
    while (stamps[slot] === stamp) {
      const other = slots[slot] as number;
      if (keyHash[other] === hash && keyOwner[other] === owner && this.#bytes(other).equals(this.#bytes(at))) {
        fail('duplicate_key', offset, `: ${this.#name(at)}`);
      }
      slot = (slot + 1) & this.#mask;
      // Past the budget the table is given up; `finish` compares all keys by sorting them.
      if (--this.#budget < 0) return;
    }
    stamps[slot] = stamp;
    slots[slot] = at;
  }

  finish(): void {
    if (this.#budget >= 0) return;
    const order = Array.from({ length: this.#count }, (_, at) => at);
    order.sort(
      (a, b) =>
        (keyOwner[a] as number) - (keyOwner[b] as number) || Buffer.compare(this.#bytes(a), this.#bytes(b)) || a - b,
    );
    for (let k = 1; k < order.length; k++) {
      const a = order[k - 1] as number;
      const b = order[k] as number;
      if (keyOwner[a] === keyOwner[b] && this.#bytes(a).equals(this.#bytes(b))) {
        fail('duplicate_key', Math.max(0, keyStart[b] as number), `: ${this.#name(b)}`);
      }
    }
  }

  #bytes(at: number): Buffer {
    const start = keyStart[at] as number;
    const end = keyEnd[at] as number;
    return start < 0 && this.#decoded ? this.#decoded.subarray(-1 - start, end) : this.#buf.subarray(start, end);
  }

  #name(at: number): string {
    const text = this.#bytes(at).toString('utf8');
    return JSON.stringify(text.length > 64 ? `${text.slice(0, 64)}…` : text);
  }
}
