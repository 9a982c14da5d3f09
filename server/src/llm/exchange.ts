import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Principal } from '../auth/principal.ts';
import type { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { ScanResult } from '../kernel/json-scan.ts';
import type { WireControl } from '../kernel/wire.ts';
import type { Quota, Reservation } from '../limits/admission.ts';
import type { Hold, LimitState } from '../limits/ledger/ledger.ts';
import type { Operation } from '../operations/operation.ts';
import type { TokenUsage } from '../operations/usage.ts';
import type { WorkspaceSnapshot } from '../runtime/snapshot.ts';
import type { LimitFacts } from '../store/limit-types.ts';
import type { FieldChanges } from '../telemetry/decision-facts.ts';
import type { AttemptRecord } from '../telemetry/record.ts';
import type { Caching } from './cache/caching.ts';
import type { Reserved } from './estimate.ts';
import type { Guarded } from './guard/guarded.ts';
import type { Media } from './media.ts';
import type { Creation } from './ownership/creation.ts';
import type { Plan } from './plan.ts';
import type { Shown } from './relay/shown.ts';
import type { Leg } from './routing/leg.ts';
import type { Walk } from './routing/walk.ts';
import type { Services } from './services.ts';
import type { Retry, Target } from './target.ts';

const EMPTY = Buffer.alloc(0);

/** What is left to send once the record is in the journal: a whole answer, or the held-back end of one. */
export type Ending =
  | { readonly kind: 'whole'; readonly status: number; readonly headers: string[]; readonly body: readonly Buffer[] }
  | { readonly kind: 'tail'; readonly body: readonly Buffer[] }
  /** The client is gone, or the connection must be cut because the answer cannot be completed. */
  | { readonly kind: 'destroy' };

/** What one attempt used that was not the last. */
export interface Spent {
  readonly usage: TokenUsage;
  /** Whose price it has. */
  readonly target: Target;
  /** As it was sent, and as the answer said, if it did. */
  readonly model: string;
  readonly answered: string | null;
}

/**
 * One data-plane request from its head to its record. Every field is set in the constructor, so the object keeps one
 * hidden class; steps fill it in the order of the table in `pipeline.ts`.
 */
export class Exchange {
  readonly services: Services;
  readonly operation: Operation;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly params: Readonly<Record<string, string>>;
  readonly id: string;
  /** Index in the list of requests under way (`gateway/in-flight.ts`). */
  place: number;
  /** Wall clock, milliseconds since the epoch, and the monotonic clock at the start. */
  readonly time: number;
  readonly started: number;
  traceId: string;
  spanId: string;
  parentSpanId: string | null;
  metadata: Record<string, string> | null;

  principal: Principal | null;
  /** Counted among the requests under way. */
  entered: boolean;
  /** Why the caller, known otherwise, must not call any more; the request is refused with it and recorded as theirs. */
  refusal: SluiceError | null;
  /** Header the gateway credential came in: its value must never leave. */
  credentialHeader: string;
  /** Provider token the caller brought itself. */
  callerToken: string | null;
  body: Buffer;
  /** Bytes of the body that are counted in the budget of all bodies. */
  bodyHeld: number;
  /** What its addresses of pictures and files lead to; null while nothing was fetched. */
  media: Media | null;
  /** Bytes of that. */
  mediaBytes: number;
  /** Bytes of the answer that are kept as a whole, counted with those of bodies. */
  answerHeld: number;
  scan: ScanResult | null;
  model: string;
  stream: boolean;
  dryRun: boolean;

  snapshot: WorkspaceSnapshot | null;
  plan: Plan | null;
  target: Target | null;
  /** A request with several targets: what is known of them so far. Null for all others. */
  walk: Walk | null;
  /** What the target under way is counted in by itself; null for requests with one target. */
  leg: Leg | null;
  reservation: Reservation | null;
  /** What is left of the limits that the request was counted in, or refused by. */
  quota: Quota | null;
  /** What is reserved under usage limits. */
  held: Hold | null;
  /** What limits had to do with it, for the record; null while none was asked. */
  limits: LimitFacts | null;
  /** What was reserved for, to reserve more when it becomes more. */
  reserved: Reserved | null;
  /** The usage limit that refused the request. */
  exhausted: LimitState | null;
  /** Its guardrails; null without any. */
  guard: Guarded | null;
  /** What the cache found, or keeps of the answer; null where no cache is asked. */
  caching: Caching | null;
  /** What the answer may tell to have been made at the provider; null where it makes nothing that is kept. */
  creation: Creation | null;
  /** Fields of the body that are not sent as they came; null where a body was not looked into. */
  changed: FieldChanges | null;
  /** The body is already what the config makes of it. */
  shaped: boolean;
  /** The body as it came, where guardrails have put another one in its place; null otherwise. */
  came: Buffer | null;
  readonly attempts: AttemptRecord[];
  /** Upstream calls begun. */
  tries: number;
  /** Milliseconds between attempts so far. */
  waited: number;
  /** Further attempts of the same target that may follow the one under way; null when none is left. */
  again: Retry | null;
  /** Whether the next target would take over from an attempt that fails so; null when there is none. */
  next: ((status: number, code: string | null) => boolean) | null;
  /** What the caller has seen of a stream that may have to be gone on with; null where it never will be. */
  shown: Shown | null;
  /** Upstream call under way; aborted when the client leaves. */
  control: WireControl | null;
  /** Ends whatever the request is waiting for: the client left, or the server has to stop. */
  cancel: ((error: SluiceError) => void) | null;
  clientGone: boolean;

  ending: Ending | null;
  headSent: boolean;
  status: number;
  outcome: 'ok' | 'refused' | 'failed' | 'aborted';
  errorCode: string | null;
  errorMessage: string | null;
  modelAnswered: string | null;
  usage: TokenUsage | null;
  /** What attempts used whose answers nobody got; null when there is nothing. */
  spent: Spent[] | null;
  usageEstimated: boolean;
  costMicros: number | null;
  /** What `costMicros` leaves out, picodollars (`pricing/cost.ts`). */
  costCarry: number;
  /** Something was used whose cost nobody knows. */
  unpriced: boolean;
  /** It began something whose usage nobody will be able to read. */
  uncounted: boolean;
  price: { readonly source: string; readonly rates: Readonly<Record<string, number>> } | null;
  ttft: number | null;
  bytesIn: number;
  bytesOut: number;
  upstreamBytesIn: number;
  upstreamBytesOut: number;

  constructor(
    services: Services,
    operation: Operation,
    request: IncomingMessage,
    response: ServerResponse,
    params: Readonly<Record<string, string>>,
  ) {
    this.services = services;
    this.operation = operation;
    this.request = request;
    this.response = response;
    this.params = params;
    this.id = uuidv7(services.clock);
    this.place = 0;
    // The store's time: records of nodes whose clocks differ stand in one order.
    this.time = services.storeClock.now();
    this.started = services.clock.monotonic();
    this.traceId = '';
    this.spanId = '';
    this.parentSpanId = null;
    this.metadata = null;
    this.principal = null;
    this.entered = false;
    this.refusal = null;
    this.credentialHeader = 'x-gateway-api-key';
    this.callerToken = null;
    this.body = EMPTY;
    this.bodyHeld = 0;
    this.media = null;
    this.mediaBytes = 0;
    this.answerHeld = 0;
    this.scan = null;
    this.model = '';
    this.stream = false;
    this.dryRun = false;
    this.snapshot = null;
    this.plan = null;
    this.target = null;
    this.walk = null;
    this.leg = null;
    this.reservation = null;
    this.quota = null;
    this.held = null;
    this.limits = null;
    this.reserved = null;
    this.exhausted = null;
    this.guard = null;
    this.caching = null;
    this.creation = null;
    this.changed = null;
    this.shaped = false;
    this.came = null;
    this.attempts = [];
    this.tries = 0;
    this.waited = 0;
    this.again = null;
    this.next = null;
    this.shown = null;
    this.control = null;
    this.cancel = null;
    this.clientGone = false;
    this.ending = null;
    this.headSent = false;
    this.status = 0;
    this.outcome = 'ok';
    this.errorCode = null;
    this.errorMessage = null;
    this.modelAnswered = null;
    this.usage = null;
    this.spent = null;
    this.usageEstimated = false;
    this.costMicros = null;
    this.costCarry = 0;
    this.unpriced = false;
    this.uncounted = false;
    this.price = null;
    this.ttft = null;
    this.bytesIn = 0;
    this.bytesOut = 0;
    this.upstreamBytesIn = 0;
    this.upstreamBytesOut = 0;
    readTrace(this);
  }

  /** One request header, or undefined when absent or empty. Names in lower case. */
  header(name: string): string | undefined {
    const value = this.request.headers[name];
    return typeof value === 'string' && value !== '' ? value : undefined;
  }

  /** Of the caller; empty until it is known. */
  get organisationId(): string {
    return this.principal?.organisationId ?? '';
  }

  elapsed(): number {
    return this.services.clock.monotonic() - this.started;
  }
}

const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$/;
/** An id that is safe wherever it is shown: in headers, logs, pages and spreadsheets. */
const TRACE_ID = /^[A-Za-z0-9._:-]{1,128}$/;

/**
 * Trace context: explicit gateway headers win, then W3C `traceparent`, else the request's own id. A value
 * that is no id is left out like a malformed `traceparent`: what only names a request must not make it fail.
 */
function readTrace(x: Exchange): void {
  const traceparent = x.header('traceparent');
  const parent = traceparent === undefined ? null : TRACEPARENT.exec(traceparent);
  const given = (name: string) => {
    const value = x.header(name);
    return value !== undefined && TRACE_ID.test(value) ? value : undefined;
  };
  x.traceId = given('x-gateway-trace-id') ?? parent?.[1] ?? x.id;
  x.spanId = given('x-gateway-span-id') ?? x.id;
  x.parentSpanId = given('x-gateway-parent-span-id') ?? parent?.[2] ?? null;
}
