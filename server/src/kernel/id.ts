import { randomBytes, randomFillSync } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Clock } from './clock.ts';

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

const pool = Buffer.alloc(4096);
let poolAt = pool.length;

/** `n` random bytes from a pool: one kernel call per 4 KB instead of one per id. */
function take(n: number): Buffer {
  if (poolAt + n > pool.length) {
    randomFillSync(pool);
    poolAt = 0;
  }
  const out = pool.subarray(poolAt, poolAt + n);
  poolAt += n;
  return out;
}

/** A UUIDv7 (RFC 9562): sortable by creation time to the millisecond. */
export function uuidv7(clock: Clock): string {
  const ms = clock.now();
  const r = take(10);
  const hex = ms.toString(16).padStart(12, '0');
  const a = (0x7000 | (((r[0] ?? 0) << 8) & 0x0f00) | (r[1] ?? 0)).toString(16);
  const b = (0x8000 | ((((r[2] ?? 0) << 8) | (r[3] ?? 0)) & 0x3fff)).toString(16);
  return `${hex.slice(0, 8)}-${hex.slice(8)}-${a}-${b}-${r.toString('hex', 4, 10)}`;
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
