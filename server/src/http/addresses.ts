import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

/**
 * Our own registry of what is not public. The classes of address libraries are not used: they call
 * `::127.0.0.1` and `168.63.129.16` unicast. `ipaddr.js` only turns text into bytes.
 */

/** Address ranges as bytes and prefix length. */
export interface Range {
  readonly bytes: readonly number[];
  readonly bits: number;
}

/** Bytes of an address in canonical spelling, or null. Other spellings (octal, short, zones) are not addresses here. */
export function addressBytes(text: string): readonly number[] | null {
  if (isIP(text) === 0 || text.includes('%')) return null;
  return ipaddr.parse(text).toByteArray();
}

/** Parses `address/bits` or an address alone; null when malformed or when bits beyond the prefix are set. */
export function parseRange(text: string): Range | null {
  const slash = text.indexOf('/');
  const bytes = addressBytes(slash < 0 ? text : text.slice(0, slash));
  if (bytes === null) return null;
  const most = bytes.length * 8;
  if (slash < 0) return { bytes, bits: most };
  const suffix = text.slice(slash + 1);
  if (!/^(0|[1-9][0-9]{0,2})$/.test(suffix) || Number(suffix) > most) return null;
  const range = { bytes, bits: Number(suffix) };
  const masked = bytes.map((byte, k) => byte & (0xff00 >> Math.max(0, Math.min(8, range.bits - k * 8))) & 0xff);
  return masked.every((byte, k) => byte === bytes[k]) ? range : null;
}

export function inRange(bytes: readonly number[], range: Range): boolean {
  if (bytes.length !== range.bytes.length) return false;
  const whole = range.bits >> 3;
  for (let k = 0; k < whole; k++) if (bytes[k] !== range.bytes[k]) return false;
  const rest = range.bits & 7;
  if (rest === 0) return true;
  const mask = (0xff00 >> rest) & 0xff;
  return ((bytes[whole] ?? 0) & mask) === ((range.bytes[whole] ?? 0) & mask);
}

function ranges(texts: readonly string[]): readonly Range[] {
  return texts.map((text) => {
    const range = parseRange(text);
    if (range === null) throw new Error(`bad range ${text}`);
    return range;
  });
}

/** IPv4 that is never a public destination. */
export const REFUSED_IPV4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '168.63.129.16/32',
] as const;

/** Public IPv6 is inside `2000::/3` and outside these. Embedded IPv4 is thereby refused as a whole. */
const REFUSED_IPV6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'] as const;

/** Refused even for a trusted host: metadata services, and "any address", which connects to oneself. */
export const NEVER_TRUSTED = [
  '169.254.0.0/16',
  'fd00:ec2::/32',
  '100.100.100.200/32',
  '168.63.129.16/32',
  '192.0.0.192/32',
  '0.0.0.0/8',
  '::/128',
] as const;

const refused4 = ranges(REFUSED_IPV4);
const refused6 = ranges(REFUSED_IPV6);
const global6 = ranges(['2000::/3']);
const never = ranges(NEVER_TRUSTED);
const loopback = ranges(['127.0.0.0/8', '::1/128']);

/** IPv4 inside an IPv4-mapped IPv6 address, which the kernel connects to as IPv4; otherwise the address itself. */
export function unmapped(bytes: readonly number[]): readonly number[] {
  if (bytes.length !== 16) return bytes;
  for (let k = 0; k < 10; k++) if (bytes[k] !== 0) return bytes;
  return bytes[10] === 0xff && bytes[11] === 0xff ? bytes.slice(12) : bytes;
}

export function isPublic(bytes: readonly number[]): boolean {
  if (bytes.length === 4) return !refused4.some((range) => inRange(bytes, range));
  return global6.some((range) => inRange(bytes, range)) && !refused6.some((range) => inRange(bytes, range));
}

/**
 * IPv4 that an IPv6 form carries: mapped, compatible, translated, NAT64 (both prefixes) and 6to4. A trusted range must
 * not be a way to reach a metadata address in disguise.
 */
function embedded(bytes: readonly number[]): readonly number[] | null {
  if (bytes.length !== 16) return null;
  const zero = (from: number, to: number) => bytes.slice(from, to).every((byte) => byte === 0);
  const tail = bytes.slice(12);
  if (zero(0, 10) && bytes[10] === 0xff && bytes[11] === 0xff) return tail;
  if (zero(0, 8) && bytes[8] === 0xff && bytes[9] === 0xff && zero(10, 12)) return tail;
  if (zero(0, 12) && !zero(12, 15)) return tail;
  if (bytes[0] === 0 && bytes[1] === 0x64 && bytes[2] === 0xff && bytes[3] === 0x9b) return tail;
  if (bytes[0] === 0x20 && bytes[1] === 0x02) return bytes.slice(2, 6);
  return null;
}

export function isNeverTrusted(bytes: readonly number[]): boolean {
  const inner = embedded(bytes);
  return never.some((range) => inRange(bytes, range) || (inner !== null && inRange(inner, range)));
}

export function isLoopback(bytes: readonly number[]): boolean {
  return loopback.some((range) => inRange(unmapped(bytes), range));
}

export function sameAddress(a: readonly number[], b: readonly number[]): boolean {
  const x = unmapped(a);
  const y = unmapped(b);
  return x.length === y.length && x.every((byte, k) => byte === y[k]);
}
