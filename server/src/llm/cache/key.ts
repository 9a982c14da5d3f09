/**
 * Which requests may share an answer: those of one key of one workspace, under one version of one config, that would be
 * sent to one account in the same words. What would be sent is part of the key as it would be sent, credential and
 * all, so that nothing that could change an answer is forgotten here.
 */

import { createHash, hash } from 'node:crypto';
import { digestInTurns, isLongDigest } from '../../kernel/digest.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import type { Uses } from '../exchange.ts';
import { editedValue } from '../request-body.ts';
import type { RequestBody } from '../state/body.ts';
import type { Prepared } from '../state/prepared.ts';
import type { LlmRequest } from '../state/request.ts';
import type { Target } from '../target.ts';
import type { EntryKey } from './entry.ts';

/** A request of which some texts may differ. */
export interface SimilarKey {
  /** Digest of all that must be the same. */
  readonly scope: string;
  /** What the user said. */
  readonly text: string;
}

/** Headers that tell one call from another and never change an answer. */
const OF_THE_CALL = new Set(['x-request-id', 'x-client-request-id', 'traceparent', 'tracestate', 'baggage']);
/** Larger and heavier bodies are compared byte for byte: reading and writing one of this size takes 10 ms. */
const MAX_PARSED = 512 * 1024;
const MAX_WEIGHT = 50_000;
/** Longer texts are looked up as they are only. */
const MAX_TOKENS = 8191;

/** The key of the request that `prepared` would send; a promise where its body is large. */
export function entryKey(
  x: Uses<'attempt' | 'guard' | 'request'>,
  target: Target,
  prepared: Prepared,
): EntryKey | Promise<EntryKey> {
  const parts = prepared.request.body ?? [];
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const facts = about(x, target, prepared);
  if (isLongDigest(length)) {
    const hash = createHash('sha512').update(headOf(facts, length));
    return digestInTurns(hash, parts).then((digest) => keyOf(x.request, digest));
  }
  const [only] = parts;
  const body = parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
  const parsed = sentValue(x, prepared, body);
  return keyOf(x.request, digestOf('sha512', facts, parsed === null ? body : canonical(parsed)));
}

function keyOf(request: LlmRequest, digest: Buffer): EntryKey {
  const place = `answer:${request.principal?.organisationId ?? ''}:${request.principal?.workspaceId ?? ''}:${digest.toString('base64url', 0, 32)}`;
  return { place, secret: digest.subarray(32) };
}

/**
 * Null where only the very same request can be answered from the cache: other operations, long conversations, and what
 * has more than text in it.
 */
export function similarKey(
  x: Uses<'attempt' | 'guard' | 'request'>,
  target: Target,
  prepared: Prepared,
  system: 'ignore' | 'match',
  countTokens: (text: string) => number,
): SimilarKey | null {
  const parsed = parsedOf(x.attempt.body);
  if (parsed === null) return null;
  const said = x.request.operation.wire.similar(parsed, system);
  if (said === null || said.text === '' || countTokens(said.text) > MAX_TOKENS) return null;
  const digest = digestOf('sha256', about(x, target, prepared), canonical(said.rest));
  return { scope: digest.toString('base64url'), text: said.text };
}

/** All that the answer depends on beside the body. */
function about(x: Uses<'guard' | 'request'>, target: Target, prepared: Prepared): string {
  const {
    request: { principal, plan },
    guard,
  } = x;
  const { request } = prepared;
  const reference = x.request.header('x-gateway-config');
  const config = plan?.config?.versionId ?? null;
  const namespace = x.request.header('x-gateway-cache-namespace');
  const guardrails = [...(guard?.input ?? []), ...(guard?.output ?? [])];
  const sent: string[] = [];
  for (let i = 0; i + 1 < request.headers.length; i += 2) {
    const name = request.headers[i] ?? '';
    if (!OF_THE_CALL.has(name)) sent.push(`${name}: ${request.headers[i + 1] ?? ''}`);
  }
  return JSON.stringify([
    1,
    principal?.organisationId ?? null,
    principal?.workspaceId ?? null,
    principal?.keyId ?? principal?.limitOwner?.id ?? null,
    principal?.userId ?? null,
    config ?? reference ?? null,
    target.path,
    x.request.operation.id,
    target.strict,
    target.provider.id,
    target.stored?.entityId ?? null,
    target.stored?.accountId ?? null,
    target.credentials.settings,
    prepared.context.model,
    request.method,
    request.origin,
    request.path,
    sent.sort(),
    // What becomes a field of the body is not among the headers that are sent.
    prepared.seen,
    guardrails.map(({ id, version }) => [id, version ?? null]),
    // A namespace takes the place of what tells callers apart, never that of tenant, key or account.
    namespace === undefined ? [x.request.metadata ?? null] : { namespace },
  ]);
}

/**
 * Each part behind its length, so that they never run into each other. One call for all of a usual request: a call costs as
 * much as the digest of a kilobyte.
 */
function digestOf(algorithm: 'sha256' | 'sha512', facts: string, body: string | Buffer): Buffer {
  const head = headOf(facts, Buffer.byteLength(body));
  if (typeof body === 'string') return hash(algorithm, head + body, 'buffer');
  return createHash(algorithm).update(head).update(body).digest();
}

const headOf = (facts: string, length: number): string => `${Buffer.byteLength(facts)}:${facts}${length}:`;

/** What `body`, which would be sent, says: of the values of the request where it was made of them here. Null as `parse`. */
function sentValue({ attempt }: Uses<'attempt'>, prepared: Prepared, body: Buffer): JsonObject | null {
  const { scan } = attempt.body;
  if (body.length > MAX_PARSED) return null;
  if (prepared.written !== null) return prepared.written;
  if (scan === null || !prepared.edited) return parse(body);
  return scan.weight > MAX_WEIGHT ? null : editedValue(attempt, prepared.context.model, prepared.stripUsage);
}

function parsedOf(body: RequestBody): JsonObject | null {
  const { scan, bytes } = body;
  if (scan === null) return parse(bytes);
  if (bytes.length > MAX_PARSED || scan.weight > MAX_WEIGHT) return null;
  const value = body.value();
  return isObject(value) ? value : null;
}

function parse(body: Buffer): JsonObject | null {
  if (body.length > MAX_PARSED) return null;
  try {
    const value = parseExact(body.toString('utf8'), MAX_WEIGHT);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

/** JSON with the members of objects in the order of their names; long numbers keep their digits. */
function canonical(value: JsonValue | undefined): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  // A number that no double holds is an object to JavaScript, and writes itself.
  if (!isObject(value) || Object.getPrototypeOf(value) === null) return JSON.stringify(value) ?? 'null';
  let members = '';
  for (const name of Object.keys(value).sort()) {
    // As JSON leaves it out.
    if (value[name] === undefined) continue;
    members += `${members === '' ? '' : ','}${JSON.stringify(name)}:${canonical(value[name])}`;
  }
  return `{${members}}`;
}
