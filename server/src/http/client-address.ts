import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { addressBytes, inRange, parseRange, type Range, unmapped } from './addresses.ts';

/** Who a client is, by address: the one place that reads the peer of a connection we accepted. */

/** Ranges of a list that does not change after the start. */
const compiled = new WeakMap<readonly string[], readonly Range[]>();

/** Whether an address is one of SLUICE_TRUSTED_PROXIES (addresses and CIDRs). */
export function isTrustedProxy(address: string | undefined, list: readonly string[]): boolean {
  if (list.length === 0 || address === undefined) return false;
  let known = compiled.get(list);
  if (!known) {
    known = parseTrustedProxies(list);
    compiled.set(list, known);
  }
  const bytes = addressBytes(address.replace(/%.*/, ''));
  return bytes !== null && known.some((range) => inRange(bytes, range) || inRange(unmapped(bytes), range));
}

/** The ranges of SLUICE_TRUSTED_PROXIES. Throws an Error of one line for an entry that is no address or range. */
export function parseTrustedProxies(list: readonly string[]): readonly Range[] {
  return list.map((text) => {
    const range = parseRange(text.trim());
    if (!range)
      throw new Error(`Trusted proxy ${JSON.stringify(text)} is not an address or a range such as 10.0.0.0/8`);
    return range;
  });
}

/** Entries of x-forwarded-for that are looked at; a longer chain of trusted proxies is nobody's. */
const MAX_HOPS = 32;

/** The address behind trusted proxies, once it is known to differ from the peer's. */
const FORWARDED = Symbol('client address');
type Forwarded = IncomingMessage & { [FORWARDED]?: string };

/**
 * The address of the client that sent a request; empty for a request without a socket. Behind trusted proxies it is the
 * last address of x-forwarded-for that is no trusted proxy's. An IPv4 client has the same text on every kind of socket.
 */
export function clientAddress(request: IncomingMessage): string {
  return (request as Forwarded)[FORWARDED] ?? peerAddress(request.socket);
}

/** The address at the other end of a connection; empty when it is closed. */
export function peerAddress(socket: Socket): string {
  const address = socket.remoteAddress;
  return address === undefined ? '' : plain(address);
}

/**
 * Reads x-forwarded-for of a request whose peer is a trusted proxy, for `clientAddress`. Each proxy appends the address
 * it was called from: from the right, trusted proxies are passed over and the first other address is the client's. What
 * stands left of it the client wrote itself. An entry that is no address ends the walk at the proxy that sent it.
 */
export function readForwardedFor(request: IncomingMessage, trustedProxies: readonly string[]): void {
  const header = request.headers['x-forwarded-for'];
  if (typeof header !== 'string') return;
  const hops = header.split(',');
  let found: string | null = null;
  for (let at = hops.length - 1; at >= Math.max(0, hops.length - MAX_HOPS); at--) {
    const address = hopAddress(hops[at] as string);
    if (address === null) break;
    found = address;
    if (!isTrustedProxy(address, trustedProxies)) break;
  }
  if (found !== null) (request as Forwarded)[FORWARDED] = found;
}

const WITH_PORT = /^(?:\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5})$/;

/** An entry as an address; some load balancers put the port behind it. Null for anything else. */
function hopAddress(entry: string): string | null {
  const text = entry.trim();
  const match = WITH_PORT.exec(text);
  const address = match === null ? text : (match[1] ?? match[2] ?? '');
  const bytes = addressBytes(address);
  if (bytes === null) return null;
  const four = unmapped(bytes);
  return four.length === 4 ? four.join('.') : address.toLowerCase();
}

/** IPv4 as such when a socket of both families has it mapped into IPv6. */
function plain(address: string): string {
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice(7) : address;
}
