import type { IncomingMessage } from 'node:http';
import { returnBuffer } from '../http/buffer-pool.ts';
import { readBody } from '../http/read-body.ts';
import type { SluiceError } from '../kernel/errors.ts';
import type { JsonObject } from '../kernel/json.ts';
import type { AttemptRecord } from '../telemetry/record.ts';
import type { GuardrailState } from './guardrail-state.ts';
import type { InFlightRequest } from './in-flight.ts';
import { LimitState } from './limit-state.ts';
import {
  admitCall,
  type CallEstimate,
  type CallFacts,
  type CallUse,
  type PolicyTarget,
  reserveCall,
} from './non-model-call-limits.ts';
import { Outcome } from './outcome.ts';
import type { RecordPart } from './record.ts';
import { RequestContext } from './request-context.ts';
import type { GatewayServices } from './services.ts';

/** What a plane says of its calls. */
export interface CallKind {
  /** Of their records: the name of the plane. */
  readonly source: string;
  /** Of their records: what was asked for. */
  readonly operation: string;
  /** Scope that a key must have. */
  readonly scope: string;
  /**
   * Path of the resource that a request calls, as access tokens of the OAuth server name it: `/tools/mcp`. Absent: the plane
   * takes no such token.
   */
  resource?(incoming: IncomingMessage): string;
  /**
   * Value of `WWW-Authenticate` beside an error `unauthenticated` or `forbidden`: how a caller gets a token (RFC 6750 §3, RFC 9728 §5.1).
   * Null, or absent: there is none.
   */
  challenge?(incoming: IncomingMessage, error: SluiceError): string | null;
  /** An error as the plane's clients read it. `extra`: members beside it, such as `hook_results`. */
  errorBody(error: SluiceError, extra: JsonObject | undefined): { readonly status: number; readonly body: string };
}

/** One call of a plane: who asks, what limits and guardrails have said of it, and what became of it. */
export class Call extends RequestContext implements InFlightRequest {
  readonly services: GatewayServices;
  readonly kind: CallKind;
  readonly limits = new LimitState();
  readonly outcome = new Outcome();
  /** What only this plane has to say in the record. */
  detail: RecordPart['detail'] = undefined;
  /** What it has used, which the plane says once it begins what costs; null until then: no limit counts the call. */
  use: CallUse | null = null;
  guardrails: GuardrailState | null = null;
  /** Calls to others that were made for it. */
  readonly attempts: AttemptRecord[] = [];
  credentialHeader = 'x-gateway-api-key';
  callerToken: string | null = null;
  place = 0;
  entered = false;
  bodyHeld = 0;
  /** Memory of the body, lent by `http/buffer-pool.ts`. */
  #body: Buffer | null = null;
  readonly #ended = new AbortController();

  constructor(services: GatewayServices, kind: CallKind, incoming: IncomingMessage) {
    super(incoming, services);
    this.services = services;
    this.kind = kind;
  }

  /** Aborted when the caller leaves or the process stops; its reason is a `SluiceError`. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  readonly cancel = (error: SluiceError): void => this.#ended.abort(error);

  /** The whole body. Rejects with `too_large` and the like. */
  async body(): Promise<Buffer> {
    const { maxBodyBytes: limit, clock, bodies: budget } = this.services;
    const body = await readBody(this.incoming, { limit, clock, budget, holder: this.organisationId });
    this.#body = body;
    this.bodyHeld = body.length;
    this.outcome.bytesIn = body.length;
    return body;
  }

  /** The plane's work is over and nothing reads the body any more. */
  giveBody(): void {
    if (this.#body !== null) returnBuffer(this.#body);
    this.#body = null;
  }

  /** Counts it under rate limits; `target` says under which policies. */
  admit(facts: CallFacts, target: PolicyTarget): Promise<void> {
    return admitCall(this.services, this, this.limits, facts, target);
  }

  /** Reserves under usage limits; what is reserved and not used goes back at the end. */
  reserve(facts: CallFacts, estimate: CallEstimate): Promise<void> {
    return reserveCall(this.services, this, this.limits, facts, estimate);
  }
}
