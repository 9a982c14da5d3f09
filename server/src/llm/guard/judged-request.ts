/** What guardrails know of a request beside what it says: of an exchange, or in the thread that judges what is large. */
import type { Clock } from '../../kernel/clock.ts';
import { OPERATIONS, type Operation, type OperationId } from '../../operations/operation.ts';
import type { Uses } from '../exchange.ts';
import { modelUnder, type Shaping } from '../shaping.ts';
import { addressModel, addressTexts } from './address.ts';
import type { SaidPart } from './texts.ts';

/** A request that is judged, or whose answer is. */
export interface JudgedRequest {
  readonly operation: Operation;
  /** As it would be sent, but for its shaping. */
  readonly body: Buffer;
  /** Whether the body was read as JSON already. */
  readonly scanned: boolean;
  /** What a config adds to the body and takes away; null where that is done, and without any. */
  readonly shaping: Shaping | null;
  /** As it was asked for. */
  readonly model: string;
  /** The model that will be asked: a config may name another than the request. */
  readonly target: { readonly model: string; readonly provider: string | null };
  /** What the address names beside it, and a deployment of the caller's choice. */
  readonly otherModels: readonly string[];
  readonly streams: boolean;
  readonly metadata: Readonly<Record<string, string>>;
  /** What the address says. */
  address(): readonly SaidPart[];
  header(name: string): string | undefined;
  readonly services: { readonly clock: Clock };
}

export function judgedRequest(x: Uses<'attempt' | 'request', 'clock'>): JudgedRequest {
  const { request, attempt } = x;
  const { target, shaped } = attempt;
  const shaping = target?.shaping ?? null;
  return {
    operation: request.operation,
    body: attempt.body,
    scanned: attempt.scan !== null,
    shaping: shaped ? null : shaping,
    model: request.model,
    target: { model: modelUnder(shaping, request.model), provider: target?.provider.id ?? null },
    otherModels: [addressModel(request), target?.chosen ?? null].filter((name) => name !== null),
    streams: attempt.stream,
    metadata: request.metadata ?? {},
    address: () => addressTexts(request),
    header: (name) => request.header(name),
    services: x.services,
  };
}

/** The same as data, without the body. */
export interface JudgedFacts
  extends Pick<JudgedRequest, 'scanned' | 'shaping' | 'model' | 'target' | 'otherModels' | 'streams' | 'metadata'> {
  readonly operation: OperationId;
  readonly address: readonly SaidPart[];
  /** Of the caller, by names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

export function judgedFacts(x: Uses<'attempt' | 'request', 'clock'>): JudgedFacts {
  const { operation, body: _, address, header: __, services: ___, ...rest } = judgedRequest(x);
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(x.request.incoming.headers))
    if (typeof value === 'string') headers[name] = value;
  return { ...rest, operation: operation.id, address: address(), headers };
}

export function judgedFrom(facts: JudgedFacts, body: Buffer, clock: Clock): JudgedRequest {
  const { operation, address, headers, ...rest } = facts;
  return {
    ...rest,
    operation: OPERATIONS[operation],
    body,
    address: () => address,
    header: (name) => headers[name] || undefined,
    services: { clock },
  };
}
