import type { IncomingMessage } from 'node:http';
import type { Principal } from '../auth/principal.ts';
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import { pathOnly } from '../kernel/path-only.ts';
import { headerText } from '../kernel/text.ts';
import { isSpanName, isTraceId } from '../kernel/trace-context.ts';
import type { WorkspaceSnapshot } from '../runtime/snapshot.ts';

/** The clocks that a request is timed by. */
export interface RequestClocks {
  /** Of this process. */
  readonly clock: Clock;
  /** Of the store: records of nodes whose clocks differ have one order by it. */
  readonly storeClock: Clock;
}

/**
 * What is known of one request, whatever kind of traffic it is: who asks, when, and under which snapshot. The first steps
 * fill it; later ones only read it. The constructor sets every field, so that all requests of a kind have one hidden class.
 */
export class RequestContext {
  readonly incoming: IncomingMessage;
  readonly id: string;
  /** Wall clock of the store, milliseconds since the epoch. */
  readonly time: number;
  /** Monotonic clock at the start, milliseconds. */
  readonly started: number;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | null;
  /** What the flags of `traceparent` say; undefined without one. */
  readonly parentSampled: boolean | undefined;
  /** The name that the caller gave the span, for people; undefined without one. */
  readonly spanName: string | undefined;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly principal: Principal | null;
  /** The one look at the workspace; null before it. */
  readonly snapshot: WorkspaceSnapshot | null;
  readonly #clock: Clock;

  constructor(incoming: IncomingMessage, { clock, storeClock }: RequestClocks) {
    this.incoming = incoming;
    this.id = uuidv7(clock);
    this.time = storeClock.now();
    this.started = clock.monotonic();
    const traceparent = this.header('traceparent');
    const parent = traceparent === undefined ? null : parentOf(traceparent);
    this.traceId = traceHeader(this, 'x-gateway-trace-id') ?? parent?.[1] ?? this.id;
    this.spanId = traceHeader(this, 'x-gateway-span-id') ?? this.id;
    this.parentSpanId = traceHeader(this, 'x-gateway-parent-span-id') ?? parent?.[2] ?? null;
    this.parentSampled = parent === null ? undefined : isSampled(parent[3] ?? '');
    this.spanName = spanName(this) ?? (parent === null ? undefined : spanOf(incoming));
    this.metadata = null;
    this.principal = null;
    this.snapshot = null;
    this.#clock = clock;
  }

  /** One request header, or undefined when absent or empty. Names in lower case. */
  header(name: string): string | undefined {
    const value = this.incoming.headers[name];
    return typeof value === 'string' && value !== '' ? value : undefined;
  }

  /** Of the caller; empty until it is known. */
  get organisationId(): string {
    return this.principal?.organisationId ?? '';
  }

  /** Milliseconds since the start. */
  elapsed(): number {
    return this.#clock.monotonic() - this.started;
  }
}

/** The same, as the first steps may write it. */
export interface ContextHead extends RequestContext {
  metadata: RequestContext['metadata'];
  principal: RequestContext['principal'];
  snapshot: RequestContext['snapshot'];
}

const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;
const ZEROS = /^0+$/;
const MAX_SPAN_NAME = 128;

/**
 * Trace context: explicit gateway headers win, then W3C `traceparent`, else the request's own id. A value
 * that is no id is left out like a malformed `traceparent`: what only names a request must not make it fail.
 */
function traceHeader(request: RequestContext, name: string): string | undefined {
  const value = request.header(name);
  return value !== undefined && isTraceId(value) ? value : undefined;
}

/** Null for a malformed one, and for ids of zeros alone, which name nothing. */
function parentOf(traceparent: string): RegExpExecArray | null {
  const found = TRACEPARENT.exec(traceparent);
  return found === null || ZEROS.test(found[1] ?? '') || ZEROS.test(found[2] ?? '') ? null : found;
}

/** The lowest bit of the flags. */
const isSampled = (flags: string): boolean => (Number.parseInt(flags, 16) & 1) === 1;

/** The name that the caller gives its span, left out like an id where it is none. */
function spanName(request: RequestContext): string | undefined {
  const value = request.header('x-gateway-span-name');
  if (value === undefined) return undefined;
  const name = headerText(value);
  return isSpanName(name) ? name : undefined;
}

/** Of a request that is part of a trace. */
function spanOf({ method = '', url = '' }: IncomingMessage): string {
  return `${method} ${pathOnly(url)}`.slice(0, MAX_SPAN_NAME);
}
