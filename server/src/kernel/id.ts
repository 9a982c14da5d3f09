import { randomBytes, randomFillSync } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Clock } from './clock.ts';

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

const VARIANTS = ['8', '9', 'a', 'b'];
const pool = Buffer.alloc(4096);
let poolAt = pool.length;

let prefixMs = -1;
let prefix = '';

/** A UUIDv7 (RFC 9562): sortable by creation time to the millisecond. Random bytes come from a pool of 4 KB. */
export function uuidv7(clock: Clock): string {
  const ms = clock.now();
  if (ms !== prefixMs) {
    const hex = ms.toString(16).padStart(12, '0');
    prefixMs = ms;
    prefix = `${hex.slice(0, 8)}-${hex.slice(8)}-7`;
  }
  if (poolAt + 10 > pool.length) {
    randomFillSync(pool);
    poolAt = 0;
  }
  const variant = VARIANTS[(pool[poolAt] ?? 0) & 3] ?? '8';
  const random = pool.toString('hex', poolAt + 1, poolAt + 10);
  poolAt += 10;
  return `${prefix}${random.slice(0, 3)}-${variant}${random.slice(3, 6)}-${random.slice(6)}`;
}

/** `n` characters of base62, unbiased. For secrets: 43 characters carry 256 random bits. */
export function base62(n: number): string {
  let out = '';
  while (out.length < n) {
    for (const byte of randomBytes(n * 2)) {
      if (byte < 248 && out.length < n) out += BASE62[byte % 62];
    }
  }
  return out;
}

/** Six lower-case hexadecimal characters, the random tail of a generated slug (`pc-testco-ca7a87`). */
export function hexSuffix(): string {
  return randomBytes(3).toString('hex');
}

/** CRC32 of `text` as six base62 characters, most significant first. */
export function checksum(text: string): string {
  let value = crc32(text);
  let out = '';
  for (let i = 0; i < 6; i++) {
    out = BASE62[value % 62] + out;
    value = Math.floor(value / 62);
  }
  return out;
}

/** A slug from a display name: ASCII letters, digits, hyphens; never empty. */
export function slugify(name: string, prefix = ''): string {
  const base = name
    .normalize('NFKD')
    .replace(/[^\x20-\x7e]/g, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 60);
  return `${prefix}${base || 'item'}-${hexSuffix()}`;
}
