import type { IncomingMessage } from 'node:http';
import { SluiceError } from '../kernel/errors.ts';
import {
  FRAMING_HEADERS,
  isCredentialHeader,
  METADATA_HEADERS,
  OWN_PREFIX,
  ROUTING_HEADERS,
  ROUTING_PREFIXES,
  SIGN_IN_HEADERS,
  validHeaderName,
} from '../kernel/header-names.ts';
import { isTrustedProxy, peerAddress, readForwardedFor } from './client-address.ts';

/** Header names the gateway treats specially (security 6), as data, and the few functions that read it. */

/** Of an upstream's answer: what speaks about the upstream's own site, or to the proxy in front of a client. */
export const ANSWER_HEADERS = [
  'location',
  'refresh',
  'strict-transport-security',
  'content-security-policy',
  'clear-site-data',
  'server',
  'x-powered-by',
  'via',
  'alt-svc',
  'x-sendfile',
  'x-lighttpd-send-file',
  'link',
  // Browsers keep these for the site that they come from, which would be Sluice's own.
  'nel',
  'report-to',
  'reporting-endpoints',
  'content-security-policy-report-only',
  'public-key-pins',
  'public-key-pins-report-only',
  'expect-ct',
  'service-worker-allowed',
  'origin-agent-cluster',
  'speculation-rules',
  'accept-ch',
  'critical-ch',
] as const;

const ANSWER_PREFIXES = ['access-control-', 'cross-origin-', 'x-accel-', 'x-reproxy-'] as const;

const metadata: ReadonlySet<string> = new Set(METADATA_HEADERS);
const routing: ReadonlySet<string> = new Set(ROUTING_HEADERS);
const framing: ReadonlySet<string> = new Set(FRAMING_HEADERS);
const signIn: ReadonlySet<string> = new Set(SIGN_IN_HEADERS);
const answer: ReadonlySet<string> = new Set(ANSWER_HEADERS);
const proxyCredentials: ReadonlySet<string> = new Set([
  'proxy-authorization',
  'proxy-authenticate',
  'proxy-authentication-info',
]);

function startsWithAny(name: string, prefixes: readonly string[]): boolean {
  return prefixes.some((prefix) => name.startsWith(prefix));
}

/**
 * Whether a request or config may name a header to be passed on. `refused`: the call is answered with 400. `never`: the
 * name is accepted but the header is not sent. Aliases of `x-gateway-*` need no rule: ingress has renamed them.
 */
export function isForwardable(name: string): 'yes' | 'never' | 'refused' {
  const lower = name.trim().toLowerCase();
  if (!validHeaderName(lower) || metadata.has(lower) || lower === `${OWN_PREFIX}forward-headers`) return 'refused';
  if (lower.startsWith(OWN_PREFIX) || framing.has(lower) || signIn.has(lower) || proxyCredentials.has(lower))
    return 'never';
  return 'yes';
}

function isStripped(name: string): boolean {
  return routing.has(name) || startsWithAny(name, ROUTING_PREFIXES) || name.startsWith(`${OWN_PREFIX}internal-`);
}

/**
 * Removes from `request.headers` what only a proxy or the gateway itself may say. A trusted proxy may say
 * `x-forwarded-for` and `x-forwarded-proto`; `clientAddress` knows the first from here on. `rawHeaders` stays what the
 * client sent; read `headers` after this.
 */
export function stripIngress(request: IncomingMessage, trustedProxies: readonly string[]): void {
  const { headers } = request;
  for (const name in headers) {
    // All names in question start with one of these letters, and few usual ones do.
    const c = name.charCodeAt(0);
    if (c !== 0x78 && c !== 0x66 && c !== 0x74 && c !== 0x63) continue;
    if (!isStripped(name)) continue;
    if (
      (name === 'x-forwarded-for' || name === 'x-forwarded-proto') &&
      isTrustedProxy(peerAddress(request.socket), trustedProxies)
    ) {
      if (name === 'x-forwarded-for') readForwardedFor(request, trustedProxies);
      continue;
    }
    delete headers[name];
  }
}

/**
 * Renames headers of other prefixes to `x-gateway-*`, once, at ingress, so that every later rule sees one
 * spelling; the new name is added to `rawHeaders`. Throws `malformed_call` when a header and its alias have different values
 * or an alias is given twice. Prefixes are lower case.
 */
export function applyAliases(request: IncomingMessage, prefixes: readonly string[]): void {
  const { headers, rawHeaders } = request;
  const sent = rawHeaders.length;
  for (let i = 0; i < sent; i += 2) {
    const name = (rawHeaders[i] as string).toLowerCase();
    for (const prefix of prefixes) {
      if (!name.startsWith(prefix) || prefix === OWN_PREFIX) continue;
      const value = headers[name];
      const target = OWN_PREFIX + name.slice(prefix.length);
      delete headers[name];
      if (isStripped(target)) break;
      // Gone already: this is the second copy, which Node had joined to the first or dropped.
      if (value === undefined) throw new SluiceError('malformed_call', `The header ${name} is given twice`);
      const present = headers[target];
      if (present !== undefined && present !== value) {
        throw new SluiceError(
          'malformed_call',
          `The headers ${target} and ${name} have different values; send one of them`,
        );
      }
      if (present === undefined) {
        headers[target] = value;
        // Rules that read the raw list must see it too: a header they miss would count as not sent.
        rawHeaders.push(target, String(value));
      }
      break;
    }
  }
}

const KEEP = 0;
const DROP = 1;
const REQUEST_ID = 2;

/** Verdicts by name. Upstreams use few names, but may send any: past the bound verdicts are computed each time. */
const verdicts = new Map<string, number>();

function verdictOf(name: string): number {
  const known = verdicts.get(name);
  if (known !== undefined) return known;
  const lower = name.toLowerCase();
  let verdict = KEEP;
  if (
    framing.has(lower) ||
    signIn.has(lower) ||
    answer.has(lower) ||
    metadata.has(lower) ||
    isStripped(lower) ||
    isCredentialHeader(lower) ||
    lower.startsWith(OWN_PREFIX) ||
    startsWithAny(lower, ANSWER_PREFIXES)
  ) {
    verdict = DROP;
  } else if (lower === 'x-request-id') verdict = REQUEST_ID;
  if (verdicts.size < 1024 && name.length <= 64) verdicts.set(name, verdict);
  return verdict;
}

/** Names of one Connection header that are heeded. */
const MAX_NAMED = 100;

/**
 * Appends to `into` (flat name, value list) the headers of an upstream's answer that the client may see. The
 * upstream's `x-request-id` becomes `x-upstream-request-id`. `secrets` are credentials sent to that upstream: a header
 * that echoes one is dropped.
 */
export function filterUpstreamHeaders(raw: readonly string[], into: string[], secrets?: readonly string[]): void {
  let named: Set<string> | null = null;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] as string;
    if (name.length === 10 && name.toLowerCase() === 'connection') {
      const value = (raw[i + 1] as string).toLowerCase();
      if (value !== 'keep-alive' && value !== 'close') {
        named ??= new Set();
        for (const token of value.split(',', MAX_NAMED)) named.add(token.trim());
      }
    }
  }
  next: for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    const verdict = verdictOf(name);
    if (verdict === DROP) continue;
    if (named?.has(name.toLowerCase())) continue;
    if (secrets) for (const secret of secrets) if (secret.length > 0 && value.includes(secret)) continue next;
    into.push(verdict === REQUEST_ID ? 'x-upstream-request-id' : name, value);
  }
}
