import type { Clock } from '../kernel/clock.ts';
import { type Deadline, type Deadlines, deadlinesOf } from '../kernel/deadlines.ts';
import { SluiceError } from '../kernel/errors.ts';
import { FairShares } from '../kernel/fair-shares.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { WireControl, WireHandler, WireRequest } from '../kernel/wire.ts';
import { type Connection, ConnectionPool, type Failure, type PooledCall } from './connection-pool.ts';
import { codingOf, createDecoder, type Decoder } from './decode.ts';
import type { EgressGuard } from './egress-guard.ts';
import { ResponseFault } from './response-parser.ts';

/** Deadlines of one call in milliseconds; the pipeline gives the defaults. */
export interface WireTimeouts {
  /** From dispatch to the head of the answer; starts again when the request is written. Error kind `timeout`. */
  readonly headersMs: number;
  /** Between two chunks of the answer while we are reading. Error kind `upstream_idle`. */
  readonly idleMs: number;
  /** Until a connection is there, also one that becomes free. Error kind `timeout`. Null or absent: as for the head. */
  readonly connectMs?: number | null;
}

export interface Upstream extends Closable {
  /**
   * Sends one request and reports through `handler`. Never throws and, but for `onSent`, never calls back before it returned. No
   * redirects are followed. A request that a reused connection swallowed without a byte of answer is repeated once on
   * a new connection. After `pause` at most one more chunk is delivered.
   */
  dispatch(request: WireRequest, handler: WireHandler, timeouts: WireTimeouts): WireControl;
  stats(): { readonly pools: number; readonly inFlight: number };
  /** Pools of connections by organisation. */
  readonly pools: FairShares;
}

export interface UpstreamLimits {
  /** Sockets per organisation and origin. Default 256. */
  readonly connections?: number;
  /** Calls per organisation and origin that may wait for a socket; more are refused with 503. Default 1024. */
  readonly waiting?: number;
  /** Pools kept at once, of which each organisation has its share; idle ones are closed to make room. Default 1024. */
  readonly pools?: number;
  /** How long an idle socket is kept when the upstream does not say. Default 30 s. */
  readonly keepAliveMs?: number;
  /** Bytes of one decoded answer. Default 512 MiB; applies to compressed answers only. */
  readonly decodedBytes?: number;
}

const SWEEP_MS = 30_000;
const MAX_INTERIM = 16;
const CLOSE_MS = 5_000;

class Entry {
  readonly origin: string;
  /** `Host` of every request. */
  readonly host: string;
  readonly pool: ConnectionPool;
  /** Message of the refusal when a stored credential may not travel to this origin. */
  readonly storedFault: SluiceError | null;
  inFlight = 0;
  used = true;

  constructor(
    origin: string,
    egress: EgressGuard,
    organisationId: string,
    limits: Required<UpstreamLimits>,
    clock: Clock,
  ) {
    this.origin = origin;
    // Defence in depth: the code that built the request checked the URL; an origin that fails here is never connected to.
    egress.check(`${origin}/`, { storedCredential: false });
    let fault: SluiceError | null = null;
    try {
      egress.check(`${origin}/`, { storedCredential: true });
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
      fault = error;
    }
    this.storedFault = fault;
    const url = new URL(origin);
    this.host = url.host;
    this.pool = new ConnectionPool({
      origin: url,
      connect: egress.connector(organisationId),
      clock,
      connections: limits.connections,
      keepAliveMs: limits.keepAliveMs,
    });
  }
}

/** What an unanswered request on a dead connection fails with. */
function isDeadSocket(error: unknown): boolean {
  const code = codeOf(error);
  return code === 'ECLOSED' || code === 'ECONNRESET' || code === 'EPIPE';
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

/** One call in flight: what the pool serves and the relay's control in one object. */
class Call implements PooledCall, WireControl {
  readonly #upstream: Calls;
  readonly #entry: Entry;
  readonly #handler: WireHandler;
  readonly #idleMs: number;
  readonly #headersMs: number;
  readonly #connectMs: number;
  readonly #deadline: Deadline;
  readonly head: string;
  readonly body: readonly Buffer[] | null;
  readonly bodyBytes: number;
  readonly headOnly: boolean;
  pieceBytes = Number.POSITIVE_INFINITY;
  #connection: Connection | null = null;
  #decoder: Decoder | null = null;
  #returned = false;
  #done = false;
  #paused = false;
  #hasHead = false;
  #repeated = false;
  #interim = 0;

  constructor(upstream: Calls, entry: Entry, request: WireRequest, handler: WireHandler, timeouts: WireTimeouts) {
    this.#upstream = upstream;
    this.#entry = entry;
    this.#handler = handler;
    this.#headersMs = timeouts.headersMs;
    this.#connectMs = timeouts.connectMs ?? timeouts.headersMs;
    this.#idleMs = timeouts.idleMs;
    this.body = request.body;
    let bytes = 0;
    if (request.body !== null) for (const part of request.body) bytes += part.length;
    this.bodyBytes = bytes;
    this.head = headOf(request, entry.host, bytes);
    this.headOnly = request.method === 'HEAD';
    this.#deadline = upstream.deadlines.start(this.#connectMs, this.#onDeadline);
  }

  get done(): boolean {
    return this.#done;
  }

  get paused(): boolean {
    return this.#paused;
  }

  start(): void {
    this.#entry.inFlight++;
    this.#entry.used = true;
    this.#upstream.inFlight++;
    this.#entry.pool.run(this);
    this.#returned = true;
  }

  // The relay's side.

  pause(): void {
    if (this.#done || this.#paused) return;
    this.#paused = true;
    if (this.#decoder) this.#decoder.pause();
    else this.#connection?.pause();
  }

  resume(): void {
    if (this.#done || !this.#paused) return;
    this.#paused = false;
    if (this.#hasHead) this.#deadline.reset(this.#idleMs);
    if (this.#decoder) this.#decoder.resume();
    else this.#connection?.resume();
  }

  cut(bytes: number): void {
    this.pieceBytes = bytes;
  }

  abort(): void {
    if (this.#done) return;
    this.#finish();
    this.#leave();
  }

  /** The upstream sees its connection closed; a call that waited for one just goes. */
  #leave(): void {
    if (this.#connection === null) this.#entry.pool.forget(this);
    else this.#connection.abandon(this);
  }

  // The pool's side.

  onSent(connection: Connection): void {
    this.#connection = connection;
    this.#deadline.reset(this.#headersMs);
    this.#handler.onSent?.(this.#upstream.clock.monotonic(), connection.connectMs);
  }

  onInterim(): void {
    if (++this.#interim > MAX_INTERIM) this.#fail(invalid('sends interim answers without end'), true);
  }

  onHead(status: number, headers: string[]): void {
    if (this.#done) return;
    this.#deadline.reset(this.#idleMs);
    const coding = codingOf(contentEncoding(headers));
    if (coding === null) {
      this.#fail(invalid('uses a content coding that was not asked for'), true);
      return;
    }
    this.#hasHead = true;
    if (coding !== 'identity') {
      this.#decoder = createDecoder(coding, {
        maxBytes: this.#upstream.limits.decodedBytes,
        // Unlike undici, zlib has nobody above that would catch what the reader throws.
        onData: (chunk) => this.#guarded(() => this.#handler.onData(chunk)),
        onEnd: () => this.#guarded(() => this.#complete()),
        onError: (detail) => this.#fail(invalid('has a compressed body that cannot be decoded', detail), true),
        onPressure: (full) => (full ? this.#connection?.pause() : this.#connection?.resume()),
      });
      // From here on it is the decoder that waits for the reader, and the connection that waits for the decoder.
      if (this.#paused) {
        this.#decoder.pause();
        this.#connection?.resume();
      }
    }
    this.#handler.onHead(status, coding === 'identity' ? headers : withoutCoding(headers), this);
  }

  onData(chunk: Buffer): void {
    if (this.#done) return;
    this.#deadline.reset(this.#idleMs);
    if (this.#decoder) this.#decoder.write(chunk);
    else this.#handler.onData(chunk);
  }

  get takesLent(): boolean {
    return this.#decoder === null && this.#handler.onLent !== undefined;
  }

  onLent(chunk: Buffer): boolean {
    if (this.#done) return true;
    this.#deadline.reset(this.#idleMs);
    return this.#handler.onLent?.(chunk) ?? false;
  }

  onEnd(): void {
    if (this.#done) return;
    // The decoder may still hold data that the reader has not taken; it ends the call. The connection serves others by then.
    if (this.#decoder) {
      this.#connection = null;
      this.#decoder.end();
    } else this.#complete();
  }

  onFailure(failure: Failure): void {
    if (this.#done) return;
    const { error, reused, started } = failure;
    this.#connection = null;
    if (reused && !started && !this.#repeated && isDeadSocket(error)) {
      this.#repeated = true;
      // The pool may hold further sockets that died with this one.
      this.#entry.pool.runApart(this);
      return;
    }
    this.#fail(this.#explain(error, started), false);
  }

  #explain(error: unknown, started: boolean): SluiceError {
    if (error instanceof SluiceError) return error;
    if (error instanceof ResponseFault) return invalid(error.message, error);
    const code = codeOf(error);
    if (code.startsWith('ERR_SSL') || code.startsWith('ERR_TLS')) {
      return new SluiceError('upstream_tls', 'The secure connection to the provider failed', { detail: error });
    }
    if (this.#hasHead) {
      return new SluiceError('upstream_cut', 'The provider closed the connection before its answer was complete', {
        detail: error,
      });
    }
    if (started) return invalid('ended before its headers were complete', error);
    return new SluiceError('upstream_unreachable', 'The provider closed the connection without an answer', {
      detail: error,
    });
  }

  readonly #onDeadline = (): void => {
    if (this.#done) return;
    if (this.#connection === null && !this.#hasHead) {
      const message = `No connection to the provider was there within ${this.#connectMs} ms.`;
      this.#fail(new SluiceError('timeout', message, { reason: 'connect_timeout' }), true);
    } else if (!this.#hasHead) {
      const message = `The provider did not start to answer within ${this.#headersMs} ms.`;
      this.#fail(new SluiceError('timeout', message, { reason: 'first_token_timeout' }), true);
    } else if (this.#paused || this.#decoder?.full) {
      // It is we who are not reading.
      this.#deadline.reset(this.#idleMs);
    } else {
      const seconds = this.#idleMs / 1000;
      this.#fail(new SluiceError('upstream_idle', `The provider sent nothing for ${seconds} s`), true);
    }
  };

  #guarded(step: () => void): void {
    if (this.#done) return;
    try {
      step();
    } catch (error) {
      this.#fail(new SluiceError('unexpected', 'The answer could not be passed on', { detail: error }), true);
    }
  }

  #finish(): void {
    this.#done = true;
    this.#deadline.cancel();
    this.#decoder?.destroy();
    this.#entry.inFlight--;
    this.#upstream.inFlight--;
  }

  #complete(): void {
    if (this.#done) return;
    this.#finish();
    this.#handler.onEnd();
  }

  #fail(error: SluiceError, abort: boolean): void {
    if (this.#done) return;
    this.#finish();
    if (abort) this.#leave();
    if (this.#returned) this.#handler.onError(error);
    else queueMicrotask(() => this.#handler.onError(error));
  }
}

function invalid(what: string, detail?: unknown): SluiceError {
  return new SluiceError('upstream_invalid', `The provider's answer ${what}`, { detail });
}

/** Request line and headers. Throws `malformed_call` for what would break the request apart. */
function headOf(request: WireRequest, host: string, bodyBytes: number): string {
  const { method, path, headers, body } = request;
  if (!TOKEN.test(method) || !PATH.test(path)) throw unsendable('its method or path is not valid');
  let head = `${method} ${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: keep-alive\r\naccept-encoding: identity\r\n`;
  for (let n = 0; n + 1 < headers.length; n += 2) {
    const name = headers[n] as string;
    if (FRAMING.has(name)) continue;
    const value = headers[n + 1] as string;
    if (!TOKEN.test(name)) throw unsendable('the name of a header is not valid');
    if (!VALUE.test(value)) throw unsendable(`the value of the header ${name} is not valid`);
    head += `${name}: ${value}\r\n`;
  }
  if (body !== null || WITH_BODY.has(method)) head += `content-length: ${bodyBytes}\r\n`;
  return `${head}\r\n`;
}

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const PATH = /^[\x21-\xff]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
/** They state their length also when there is no body. */
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH']);

function unsendable(what: string): SluiceError {
  return new SluiceError('malformed_call', `The request cannot be sent to the provider: ${what}`);
}

/** Values of `content-encoding`: one, several, or none. */
function contentEncoding(headers: readonly string[]): string | string[] | undefined {
  let found: string | string[] | undefined;
  for (let n = 0; n < headers.length; n += 2) {
    if (headers[n] !== 'content-encoding') continue;
    const value = headers[n + 1] as string;
    found = found === undefined ? value : [...(Array.isArray(found) ? found : [found]), value];
  }
  return found;
}

/** Without the headers that speak of the coded body. */
function withoutCoding(headers: readonly string[]): string[] {
  const out: string[] = [];
  for (let n = 0; n < headers.length; n += 2) {
    const name = headers[n] as string;
    if (name !== 'content-encoding' && name !== 'content-length') out.push(name, headers[n + 1] as string);
  }
  return out;
}

/** A call refused before it became one. */
class Refused implements WireControl {
  #aborted = false;

  constructor(error: SluiceError, handler: WireHandler) {
    queueMicrotask(() => {
      if (!this.#aborted) handler.onError(error);
    });
  }

  pause(): void {}
  resume(): void {}
  abort(): void {
    this.#aborted = true;
  }
}

class Calls implements Upstream {
  readonly #egress: EgressGuard;
  readonly clock: Clock;
  readonly limits: Required<UpstreamLimits>;
  readonly deadlines: Deadlines;
  readonly #organisations = new Map<string, Map<string, Entry>>();
  readonly pools: FairShares;
  #stopSweep: (() => void) | null = null;
  #closed = false;
  inFlight = 0;

  constructor(egress: EgressGuard, clock: Clock, limits: UpstreamLimits) {
    this.#egress = egress;
    this.clock = clock;
    this.deadlines = deadlinesOf(clock);
    this.limits = {
      connections: limits.connections ?? 256,
      waiting: limits.waiting ?? 1024,
      pools: limits.pools ?? 1024,
      keepAliveMs: limits.keepAliveMs ?? 30_000,
      decodedBytes: limits.decodedBytes ?? 512 * 1024 * 1024,
    };
    this.pools = new FairShares('connection pools', this.limits.pools);
  }

  stats(): { pools: number; inFlight: number } {
    return { pools: this.pools.held, inFlight: this.inFlight };
  }

  dispatch(request: WireRequest, handler: WireHandler, timeouts: WireTimeouts): WireControl {
    try {
      const entry = this.#entry(request.organisationId, request.origin);
      if (request.storedCredential && entry.storedFault) return new Refused(entry.storedFault, handler);
      if (entry.inFlight >= this.limits.connections + this.limits.waiting) {
        return new Refused(
          new SluiceError('out_of_service', 'Too many calls wait for this provider; try again shortly', {
            retryAfter: 1,
          }),
          handler,
        );
      }
      const call = new Call(this, entry, request, handler, timeouts);
      call.start();
      return call;
    } catch (error) {
      const refusal =
        error instanceof SluiceError
          ? error
          : new SluiceError('unexpected', 'The request could not be sent', { detail: error });
      return new Refused(refusal, handler);
    }
  }

  #entry(organisationId: string, origin: string): Entry {
    if (this.#closed) throw new SluiceError('out_of_service', 'The gateway is shutting down');
    let origins = this.#organisations.get(organisationId);
    const known = origins?.get(origin);
    if (known) return known;
    const entry = new Entry(origin, this.#egress, organisationId, this.limits, this.clock);
    // A caller of many hosts that never answer must leave room for the others.
    while (!this.pools.take(organisationId)) {
      const own = origins !== undefined && origins.size >= this.pools.each ? origins : null;
      this.#makeRoom(own === null ? this.#organisations : [[organisationId, own]]);
    }
    // It may have been the last one of this organisation that was closed.
    origins = this.#organisations.get(organisationId);
    if (!origins) {
      origins = new Map();
      this.#organisations.set(organisationId, origins);
    }
    origins.set(origin, entry);
    this.#stopSweep ??= this.clock.after(SWEEP_MS, this.#sweep);
    return entry;
  }

  #remove(organisationId: string, entry: Entry): void {
    const origins = this.#organisations.get(organisationId);
    if (!origins?.delete(entry.origin)) return;
    if (origins.size === 0) this.#organisations.delete(organisationId);
    this.pools.give(organisationId);
    void entry.pool.close();
  }

  /** Closes one idle pool, the one not used since the last sweep first. */
  #makeRoom(among: Iterable<readonly [string, ReadonlyMap<string, Entry>]>): void {
    let candidate: [string, Entry] | null = null;
    for (const [organisationId, origins] of among) {
      for (const entry of origins.values()) {
        if (entry.inFlight > 0) continue;
        if (!entry.used) {
          this.#remove(organisationId, entry);
          return;
        }
        candidate ??= [organisationId, entry];
      }
    }
    if (!candidate) {
      throw new SluiceError('out_of_service', 'Too many different providers are being called; try again shortly', {
        retryAfter: 1,
      });
    }
    this.#remove(...candidate);
  }

  /** A pool that was not used between two sweeps is closed. */
  readonly #sweep = (): void => {
    for (const [organisationId, origins] of [...this.#organisations]) {
      for (const entry of [...origins.values()]) {
        entry.pool.sweep();
        if (entry.inFlight > 0) continue;
        if (!entry.used) this.#remove(organisationId, entry);
        entry.used = false;
      }
    }
    this.#stopSweep = this.pools.held > 0 && !this.#closed ? this.clock.after(SWEEP_MS, this.#sweep) : null;
  };

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#stopSweep?.();
    const pools = [...this.#organisations.values()].flatMap((origins) => [...origins.values()].map(({ pool }) => pool));
    for (const [organisationId, origins] of this.#organisations) this.pools.give(organisationId, origins.size);
    this.#organisations.clear();
    const stop = this.clock.after(CLOSE_MS, () => {
      for (const pool of pools) pool.destroy();
    });
    await Promise.allSettled(pools.map((pool) => pool.close()));
    stop();
  }
}

/** Set by the egress layer, or meaningless towards an upstream. */
const FRAMING: ReadonlySet<string> = new Set([
  'host',
  'content-length',
  'transfer-encoding',
  'connection',
  'keep-alive',
  'proxy-connection',
  'upgrade',
  'te',
  'trailer',
  'expect',
  'accept-encoding',
]);

/** Calls to upstreams through pools of connections, one per organisation and origin, over HTTP/1.1 with keep-alive. */
export function createUpstream(options: {
  readonly egress: EgressGuard;
  readonly clock: Clock;
  readonly limits?: UpstreamLimits;
}): Upstream {
  return new Calls(options.egress, options.clock, options.limits ?? {});
}
