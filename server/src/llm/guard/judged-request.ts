/** What guardrails know of a request beside what it says: of an exchange, or in the thread that judges what is large. */
import type { Clock } from '../../kernel/clock.ts';
import { type ScanFacts, scanOf } from '../../kernel/json-scan.ts';
import { OPERATIONS, type Operation, type OperationId } from '../../operations/operation.ts';
import type { Shaping } from '../shaping.ts';
import { RequestBody } from '../state/body.ts';
import type { SaidPart } from './texts.ts';

/** `texts`: all that is said to a model is read. `none`: nothing is. `unseen`: something is that cannot be read. */
export type InputView = 'texts' | 'none' | 'unseen';

/** A request that is judged, or whose answer is. */
export interface JudgedRequest {
  readonly operation: Operation;
  /** As it would be sent, but for its shaping. */
  readonly body: RequestBody;
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

/** The same as data, without the body. */
export interface JudgedFacts
  extends Pick<JudgedRequest, 'shaping' | 'model' | 'target' | 'otherModels' | 'streams' | 'metadata'> {
  readonly operation: OperationId;
  readonly scan: ScanFacts | null;
  readonly address: readonly SaidPart[];
  /** Of the caller, by names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

export function judgedFrom(facts: JudgedFacts, bytes: Buffer, clock: Clock): JudgedRequest {
  const { operation, scan, address, headers, ...rest } = facts;
  return {
    ...rest,
    operation: OPERATIONS[operation],
    body: new RequestBody(bytes, scan === null ? null : scanOf(scan)),
    address: () => address,
    header: (name) => headers[name] || undefined,
    services: { clock },
  };
}
