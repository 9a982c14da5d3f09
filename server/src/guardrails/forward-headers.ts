/** Headers of the caller's request that a check sends along. Absent: none. */
import { z } from 'zod';
import {
  FRAMING_HEADERS,
  isCredentialHeader,
  METADATA_HEADERS,
  OWN_PREFIX,
  ROUTING_HEADERS,
  ROUTING_PREFIXES,
  SIGN_IN_HEADERS,
  validHeaderName,
  validHeaderValue,
} from '../kernel/header-names.ts';
import { spanIdOf, traceIdOf, traceparentOf } from '../kernel/trace-context.ts';
import type { Subject } from './check.ts';

/** Names that one check may list. */
const MAX_NAMES = 16;

const REFUSED = new Map<string, string>(
  [
    { names: SIGN_IN_HEADERS, why: 'carries a session' },
    { names: METADATA_HEADERS, why: 'opens services of clouds' },
    { names: [...ROUTING_HEADERS, 'via'], why: 'says where a request came from, which others believe' },
    { names: [...FRAMING_HEADERS, 'content-type'], why: 'belongs to one connection' },
  ].flatMap(({ names, why }) => names.map((name) => [name, why] as const)),
);
const TRACE = new Set([`${OWN_PREFIX}trace-id`, `${OWN_PREFIX}span-id`]);

/** What is wrong with the name of a header to forward, as a phrase; null for one that may be sent. */
export function forwardHeaderProblem(name: string): string | null {
  if (!validHeaderName(name) || name !== name.toLowerCase()) {
    return 'must be a header name in lower case: at most 64 letters, digits and inner hyphens, no wildcard';
  }
  const why = REFUSED.get(name);
  if (why !== undefined) return `cannot be forwarded: it ${why}`;
  if (isCredentialHeader(name)) return 'cannot be forwarded: it carries credentials';
  if (ROUTING_PREFIXES.some((prefix) => name.startsWith(prefix))) {
    return 'cannot be forwarded: it says where a request came from, which others believe';
  }
  if (name.startsWith(OWN_PREFIX) && !TRACE.has(name)) return 'cannot be forwarded: it is for the gateway itself';
  return null;
}

/** The parameter, validated on create and update and again where a stored guardrail is compiled. */
export const forwardHeaders = z
  .array(
    z.string().superRefine((name, context) => {
      const problem = forwardHeaderProblem(name);
      if (problem !== null) context.addIssue({ code: 'custom', message: problem });
    }),
  )
  .max(MAX_NAMES, `must have at most ${MAX_NAMES} names`);

/** 00-<trace>-<parent>-<flags>, not all zeros (W3C Trace Context). */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}/;

/**
 * The headers as they are sent: no value that could not be one, and none that the request says is for its connection only.
 * A listed `traceparent` that the caller did not send is made of its `x-gateway-trace-id`: one
 * that is 32 hex digits (or a UUID) is kept, any other is hashed; so is the span.
 */
export function forwarded(names: readonly string[], subject: Subject): Record<string, string> {
  const out: Record<string, string> = {};
  if (names.length === 0) return out;
  const ownToConnection = (subject.header('connection') ?? '').toLowerCase().split(/[\s,]+/);
  for (const name of names) {
    const value = subject.header(name);
    if (ownToConnection.includes(name)) continue;
    if (name === 'traceparent' && (value === undefined || !TRACEPARENT.test(value))) {
      const made = traceparent(subject.header('x-gateway-trace-id'), subject.header('x-gateway-span-id'));
      if (made !== null) out[name] = made;
    } else if (value !== undefined && validHeaderValue(value)) out[name] = value;
  }
  return out;
}

function traceparent(trace: string | undefined, span: string | undefined): string | null {
  if (trace === undefined || trace === '') return null;
  return traceparentOf(traceIdOf(trace), spanIdOf(span ?? `span of ${trace}`), true);
}
