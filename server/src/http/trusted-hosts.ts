import { domainToASCII } from 'node:url';
import { addressBytes, inRange, isNeverTrusted, parseRange, type Range } from './addresses.ts';
import { isRefusedName, nameFault } from './names.ts';

/**
 * The operator's list of hosts that outbound calls may reach although they are not public. No API can
 * change it. A trusted host skips the name class, the public-address check and the `https` demand, and nothing else.
 */
export interface TrustedHosts {
  /** Whether this host (lower-case name, or address without brackets) and port are named by the list. */
  host(host: string, port: number): boolean;
  /** Whether an address lies in a trusted range: opens names whose every address is public or inside. */
  address(bytes: readonly number[]): boolean;
}

interface Entry {
  readonly text: string;
  readonly port: number | null;
  readonly name?: string;
  /** `*.domain`: the apex and everything under it. */
  readonly wildcard?: boolean;
  readonly range?: Range;
}

function malformed(text: string, why: string): Error {
  return new Error(`Trusted host ${JSON.stringify(text)} ${why}`);
}

function parsePort(text: string, entry: string): number {
  const port = /^[1-9][0-9]{0,4}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65_535) throw malformed(entry, 'has a port that is not a number from 1 to 65535');
  return port;
}

function parseEntry(entry: string): Entry {
  // An entry may be pasted as a URL: scheme and path say nothing about which host is meant.
  let text = entry.toLowerCase();
  const scheme = /^https?:\/\//.exec(text);
  if (scheme) text = text.slice(scheme[0].length).replace(/[/?].*$/, '');
  if (text === '' || text === '*') throw malformed(entry, 'is not a host, host:port or address range');

  if (text.includes('/')) {
    const range = parseRange(text);
    if (range === null) throw malformed(entry, 'is not an address range such as 10.20.0.0/16');
    if (range.bits === 0) throw malformed(entry, 'would trust every address');
    return { text, port: null, range };
  }

  let host = text;
  let port: number | null = null;
  const bracket = /^\[([^\]]+)\](?::(.*))?$/.exec(text);
  if (bracket) {
    host = bracket[1] ?? '';
    if (bracket[2] !== undefined) port = parsePort(bracket[2], entry);
    if (!host.includes(':')) throw malformed(entry, 'is not an address');
  } else if (addressBytes(text) === null && text.includes(':')) {
    const colon = text.indexOf(':');
    host = text.slice(0, colon);
    port = parsePort(text.slice(colon + 1), entry);
  }

  const bytes = addressBytes(host);
  if (bytes !== null) return { text, port, range: { bytes, bits: bytes.length * 8 } };
  const wildcard = host.startsWith('*.');
  const name = canonicalName(wildcard ? host.slice(2) : host);
  // A name that ends in a number is read as an address by URL parsers and could never match.
  if (nameFault(name) !== null || /(^|\.)(\d+|0x[0-9a-f]*)$/.test(name)) {
    throw malformed(entry, 'is not a host, host:port or address range');
  }
  const canonical = `${wildcard ? '*.' : ''}${name}${port === null ? '' : `:${port}`}`;
  return { text: canonical, port, name, wildcard: wildcard || name === 'localhost' };
}

/** An internationalised name as URLs have it, `bücher.example` as `xn--bcher-kva.example`; empty for none that is valid. */
function canonicalName(name: string): string {
  if (!/[^\0-\x7f]|(?:^|\.)xn--/.test(name)) return name;
  // Node parses a whole URL for it: what ends a host there must not be in it.
  return /^[a-z0-9._\-\u{80}-\u{10ffff}]+$/u.test(name) ? domainToASCII(name) : '';
}

/**
 * Splits and checks the comma-separated list. Throws an Error of one line that names a malformed entry. Entries that
 * name what is refused to everyone (metadata, cluster and rebinding names, metadata addresses) are dropped.
 */
export function parseTrustedHosts(text: string): string[] {
  const kept: string[] = [];
  for (const part of text.split(',')) {
    const entry = part.trim();
    if (entry === '') continue;
    const { name, range, text: normal } = parseEntry(entry);
    if (name !== undefined && isRefusedName(name)) continue;
    if (range && range.bits === range.bytes.length * 8 && isNeverTrusted(range.bytes)) continue;
    kept.push(normal);
  }
  return kept;
}

export function compileTrustedHosts(list: readonly string[]): TrustedHosts {
  const entries = list.map(parseEntry);
  const ranges = entries.filter((entry) => entry.range && entry.text.includes('/'));
  return {
    host(host, port) {
      const bytes = addressBytes(host);
      return entries.some((entry) => {
        if (entry.port !== null && entry.port !== port) return false;
        if (entry.range) return bytes !== null && inRange(bytes, entry.range);
        if (bytes !== null || entry.name === undefined) return false;
        return host === entry.name || (entry.wildcard === true && host.endsWith(`.${entry.name}`));
      });
    },
    address(bytes) {
      return ranges.some((entry) => entry.range !== undefined && inRange(bytes, entry.range));
    },
  };
}
