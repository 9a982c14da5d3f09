/** What conditions and sessions see of a request. */

import { isCredentialHeader, SIGN_IN_HEADERS } from '../../kernel/header-names.ts';
import { decodeString, type ScanResult, scanJson } from '../../kernel/json-scan.ts';
import { pathOnly } from '../../kernel/path-only.ts';
import type { Uses } from '../exchange.ts';
import type { Primitive, QueryFacts } from './conditions.ts';

const signIn: ReadonlySet<string> = new Set(SIGN_IN_HEADERS);

/**
 * `params`: the members of the body that may be asked for. They are looked for once, when the first is asked for, in the
 * body as it came.
 */
export function factsOf(x: Uses<'attempt' | 'request' | 'execution'>, params: readonly string[]): QueryFacts {
  const {
    request: { metadata, body },
  } = x;
  let scanned: ScanResult | null | undefined;
  /** Conditions ask for the same few again and again, and a text may be long. */
  const read = new Map<string, Primitive | undefined>();
  return {
    metadata: (name) => (metadata !== null && Object.hasOwn(metadata, name) ? metadata[name] : undefined),
    param(name) {
      if (scanned === undefined) scanned = body.scan === null ? null : scanJson(body.bytes, params);
      if (scanned === null) return undefined;
      if (!read.has(name)) read.set(name, memberOf(body.bytes, scanned, name));
      return read.get(name);
    },
    // Credentials are nothing to route by.
    header: (name) =>
      isCredentialHeader(name) || signIn.has(name) || name === x.request.credentialHeader
        ? undefined
        : x.request.header(name),
    pathname: pathOnly(x.request.incoming.url ?? ''),
    searched: x.execution?.searched ?? { work: 0 },
  };
}

function memberOf(body: Buffer, scan: ScanResult, name: string): Primitive | undefined {
  const range = scan.get(name);
  if (range === undefined || range.kind === 'object' || range.kind === 'array') return undefined;
  if (range.kind === 'string') return decodeString(body, range);
  return JSON.parse(body.toString('utf8', range.start, range.end)) as Primitive;
}
