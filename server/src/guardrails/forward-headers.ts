/** Headers of the caller's request that a check sends along (api §7.8). Absent: none. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { METADATA_HEADERS } from '../kernel/header-names.ts';
import type { Subject } from './check.ts';

const REFUSED = new Map<string, string>([
  ...[
    'authorization',
    'x-api-key',
    'ocp-apim-subscription-key',
    'proxy-authorization',
    'api-key',
    'x-goog-api-key',
  ].map((name) => [name, 'carries credentials'] as const),
  ...['cookie', 'set-cookie'].map((name) => [name, 'carries a session'] as const),
  ...METADATA_HEADERS.map((name) => [name, 'opens services of clouds'] as const),
  ...[
    'connection',
    'host',
    'transfer-encoding',
    'keep-alive',
    'te',
    'trailer',
    'upgrade',
    'proxy-authenticate',
    'proxy-connection',
    'content-length',
    'content-type',
    'content-encoding',
    'expect',
  ].map((name) => [name, 'belongs to one connection'] as const),
]);
const TRACE = new Set(['x-gateway-trace-id', 'x-gateway-span-id']);

/** What is wrong with the name of a header to forward, as a phrase; null for one that may be sent. */
export function forwardHeaderProblem(name: string): string | null {
  if (!/^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(name) || name.length > 100)
    return 'must be a header name in lower case: letters, digits and hyphens, no wildcard';
  const why = REFUSED.get(name);
  if (why !== undefined) return `cannot be forwarded: it ${why}`;
  if (name.startsWith('x-gateway-') && !TRACE.has(name)) return 'cannot be forwarded: it is for the gateway itself';
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
  .max(50);

/** 00-<trace>-<parent>-<flags>, not all zeros (W3C Trace Context). */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}/;

/**
 * The headers as they are sent. A listed `traceparent` that the caller did not send is made of its `x-gateway-trace-id`: one
 * that is 32 hex digits (or a UUID) is kept, any other is hashed; so is the span.
 */
export function forwarded(names: readonly string[], subject: Subject): Record<string, string> {
  const out: Record<string, string> = {};
  for (const name of names) {
    const value = subject.header(name);
    if (name === 'traceparent' && (value === undefined || !TRACEPARENT.test(value))) {
      const made = traceparent(subject.header('x-gateway-trace-id'), subject.header('x-gateway-span-id'));
      if (made !== null) out[name] = made;
    } else if (value !== undefined) out[name] = value;
  }
  return out;
}

function traceparent(trace: string | undefined, span: string | undefined): string | null {
  if (trace === undefined || trace === '') return null;
  const part = (value: string, digits: number): string => {
    const plain = value.replaceAll('-', '').toLowerCase();
    return plain.length === digits && /^[0-9a-f]+$/.test(plain) && !/^0+$/.test(plain)
      ? plain
      : createHash('sha256').update(value).digest('hex').slice(0, digits);
  };
  return `00-${part(trace, 32)}-${part(span ?? `span of ${trace}`, 16)}-01`;
}
