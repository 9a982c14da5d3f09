import { Client, type Dispatcher, Pool } from 'undici';
import type { Clock } from '../kernel/clock.ts';
import { type Deadline, type Deadlines, deadlinesOf } from '../kernel/deadlines.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { Log } from '../kernel/log.ts';
import type { WireControl, WireHandler, WireRequest } from '../kernel/wire.ts';
import { codingOf, createDecoder, type Decoder } from './decode.ts';
import type { EgressGuard } from './egress-guard.ts';

/** Deadlines of one call in milliseconds; see F-04 for the defaults the pipeline gives. */
export interface WireTimeouts {
  /** From dispatch to the head of the answer; starts again when the request is written. Error kind `timeout`. */
  readonly headersMs: number;
  /** Between two chunks of the answer while we are reading. Error kind `upstream_idle`. */
  readonly idleMs: number;
}

export interface Upstream extends Closable {
  /**
   * Sends one request and reports through `handler`. Never throws and never calls back before it returned. No
   * redirects are followed. A request that a reused connection swallowed without a byte of answer is repeated once on
   * a new connection. After `pause` at most one more chunk is delivered.
   */
  dispatch(request: WireRequest, handler: WireHandler, timeouts: WireTimeouts): WireControl;
  stats(): { readonly pools: number; readonly inFlight: number };
}

export interface UpstreamLimits {
  /** Sockets per organisation and origin. Default 256. */
  readonly connections?: number;
  /** Calls per organisation and origin that may wait for a socket; more are refused with 503. Default 1024. */
  readonly waiting?: number;
  /** Pools kept at once; idle ones are closed to make room. Default 1024. */
  readonly pools?: number;
  /** How long an idle socket is kept when the upstream does not say. Default 30 s. */
  readonly keepAliveMs?: number;
  /** Bytes of one decoded answer. Default 512 MiB; applies to compressed answers only. */
  readonly decodedBytes?: number;
}

const SWEEP_MS = 30_000;
const HEADER_BYTES = 32 * 1024;
const MAX_INTERIM = 16;
/** Up to this size the parts of a body are joined: a copy is cheaper than undici's iterator path. */
const JOIN_BYTES = 64 * 1024;
const CLOSE_MS = 5_000;

/** A client that can tell whether its present connection has answered before: only then is a repeat allowed. */
class TrackedClient extends Client {
  answered = 0;

  constructor(origin: URL | string, options: Client.Options) {
    super(origin, options);
    this.on('connect', () => {
      this.answered = 0;
    });
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    if (handler instanceof Call) handler.via = this;
    return super.dispatch(options, handler);
  }
}

class Entry {
  readonly origin: string;
  readonly options: Client.Options;
  readonly pool: Pool;
  /** Message of the refusal when a stored credential may not travel to this origin. */
  readonly storedFault: SluiceError | null;
  inFlight = 0;
  used = true;

  constructor(origin: string, guard: EgressGuard, organisationId: string, limits: Required<UpstreamLimits>) {
    this.origin = origin;
    // Defence in depth: whoever built the request checked the URL; an origin that fails here is never connected to.
    guard.check(`${origin}/`, { storedCredential: false });
    let fault: SluiceError | null = null;
    try {
      guard.check(`${origin}/`, { storedCredential: true });
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
      fault = error;
    }
    this.storedFault = fault;
    this.options = {
      connect: guard.connector(organisationId),
      pipelining: 1,
      allowH2: false,
      maxHeaderSize: HEADER_BYTES,
      // Deadlines are ours: undici's have a resolution of half a second.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: limits.keepAliveMs,
      keepAliveMaxTimeout: 600_000,
    };
    this.pool = new Pool(origin, {
      ...this.options,
      connections: limits.connections,
      factory: (url: URL, options: object) => new TrackedClient(url, options),
    });
  }
}

/** Thrown into undici to drop a request that was given up while it waited for a socket, without closing the socket. */
const GIVEN_UP = new Error('given up');

/** What an unanswered request on a dead connection fails with. */
function isDeadSocket(error: unknown): boolean {
  const code = codeOf(error);
  return code === 'UND_ERR_SOCKET' || code === 'ECONNRESET' || code === 'EPIPE';
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

/** One call in flight: undici's handler and the relay's control in one object. */
class Call implements Dispatcher.DispatchHandler, WireControl {
  readonly #upstream: Calls;
  readonly #entry: Entry;
  readonly #handler: WireHandler;
  readonly #idleMs: number;
  readonly #headersMs: number;
  readonly #request: Dispatcher.DispatchOptions;
  readonly #deadline: Deadline;
  /** Set by the client that took the call. */
  via: TrackedClient | null = null;
  #controller: Dispatcher.DispatchController | null = null;
  #decoder: Decoder | null = null;
  #returned = false;
  #done = false;
  #paused = false;
  #started = false;
  #head = false;
  #repeated = false;
  #interim = 0;

  constructor(
    upstream: Calls,
    entry: Entry,
    request: Dispatcher.DispatchOptions,
    handler: WireHandler,
    timeouts: WireTimeouts,
  ) {
    this.#upstream = upstream;
    this.#entry = entry;
    this.#request = request;
    this.#handler = handler;
    this.#headersMs = timeouts.headersMs;
    this.#idleMs = timeouts.idleMs;
    this.#deadline = upstream.deadlines.start(timeouts.headersMs, this.#onDeadline);
  }

  start(): void {
    this.#entry.inFlight++;
    this.#entry.used = true;
    this.#upstream.inFlight++;
    this.#entry.pool.dispatch(this.#request, this);
    this.#returned = true;
  }

  // The relay's side.

  pause(): void {
    if (this.#done || this.#paused) return;
    this.#paused = true;
    if (this.#decoder) this.#decoder.pause();
    else this.#controller?.pause();
  }

  resume(): void {
    if (this.#done || !this.#paused) return;
    this.#paused = false;
    if (this.#head) this.#deadline.reset(this.#idleMs);
    if (this.#decoder) this.#decoder.resume();
    else this.#controller?.resume();
  }

  abort(): void {
    if (this.#done) return;
    this.#finish();
    this.#controller?.abort(GIVEN_UP);
  }

  // undici's side.

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#done) throw GIVEN_UP;
    this.#controller = controller;
    this.#deadline.reset(this.#headersMs);
  }

  onResponseStarted(): void {
    this.#started = true;
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (this.#done) return;
    if (status < 200) {
      if (++this.#interim > MAX_INTERIM) this.#fail(invalid('sends interim answers without end'), true);
      return;
    }
    this.#deadline.reset(this.#idleMs);
    const coding = codingOf(headers['content-encoding']);
    if (coding === null) {
      this.#fail(invalid('uses a content coding that was not asked for'), true);
      return;
    }
    const flat: string[] = [];
    for (const name in headers) {
      if (coding !== 'identity' && (name === 'content-encoding' || name === 'content-length')) continue;
      const value = headers[name];
      if (typeof value === 'string') flat.push(name, value);
      else if (value !== undefined) for (const each of value) flat.push(name, each);
    }
    this.#head = true;
    if (coding !== 'identity') {
      this.#decoder = createDecoder(coding, {
        maxBytes: this.#upstream.limits.decodedBytes,
        // Unlike undici, zlib has nobody above that would catch what the reader throws.
        onData: (chunk) => this.#guarded(() => this.#handler.onData(chunk)),
        onEnd: () => this.#guarded(() => this.#complete()),
        onError: (detail) => this.#fail(invalid('has a compressed body that cannot be decoded', detail), true),
        onPressure: (full) => (full ? controller.pause() : controller.resume()),
      });
    }
    this.#handler.onHead(status, flat, this);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#done) return;
    this.#deadline.reset(this.#idleMs);
    if (this.#decoder) this.#decoder.write(chunk);
    else this.#handler.onData(chunk);
  }

  onResponseEnd(): void {
    if (this.via) this.via.answered++;
    if (this.#done) return;
    // The decoder may still hold data that the reader has not taken; it ends the call.
    if (this.#decoder) this.#decoder.end();
    else this.#complete();
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    if (this.#done) return;
    const reused = this.via !== null && this.via.answered > 0;
    if (reused && !this.#started && !this.#repeated && this.#controller && isDeadSocket(error)) {
      this.#repeated = true;
      this.#controller = null;
      this.#upstream.repeat(this.#entry, this.#request, this);
      return;
    }
    this.#fail(this.#explain(error), false);
  }

  #explain(error: Error): SluiceError {
    if (error instanceof SluiceError) return error;
    const code = codeOf(error);
    if (code === 'UND_ERR_HEADERS_OVERFLOW') return invalid(`has headers of more than ${HEADER_BYTES} bytes`, error);
    if (error.name === 'HTTPParserError') return invalid('does not follow HTTP', error);
    if (code === 'UND_ERR_INVALID_ARG' || code === 'UND_ERR_NOT_SUPPORTED') {
      return new SluiceError('bad_call', `The request cannot be sent to the provider: ${error.message}`, {
        detail: error,
      });
    }
    if (code.startsWith('ERR_SSL') || code.startsWith('ERR_TLS')) {
      return new SluiceError('upstream_tls', 'The secure connection to the provider failed', { detail: error });
    }
    if (this.#head) {
      return new SluiceError('upstream_cut', 'The provider closed the connection before its answer was complete', {
        detail: error,
      });
    }
    if (this.#started) return invalid('ended before its headers were complete', error);
    return new SluiceError('upstream_unreachable', 'The provider closed the connection without an answer', {
      detail: error,
    });
  }

  readonly #onDeadline = (): void => {
    if (this.#done) return;
    if (!this.#head) {
      const seconds = this.#headersMs / 1000;
      this.#fail(new SluiceError('timeout', `The provider did not start to answer within ${seconds} s`), true);
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
      this.#fail(new SluiceError('gateway_failure', 'The answer could not be passed on', { detail: error }), true);
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
    if (abort) this.#controller?.abort(GIVEN_UP);
    if (this.#returned) this.#handler.onError(error);
    else queueMicrotask(() => this.#handler.onError(error));
  }
}

function invalid(what: string, detail?: unknown): SluiceError {
  return new SluiceError('upstream_invalid', `The provider's answer ${what}`, { detail });
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
  readonly #guard: EgressGuard;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly limits: Required<UpstreamLimits>;
  readonly deadlines: Deadlines;
  readonly #organisations = new Map<string, Map<string, Entry>>();
  #pools = 0;
  #stopSweep: (() => void) | null = null;
  #closed = false;
  inFlight = 0;

  constructor(guard: EgressGuard, clock: Clock, log: Log, limits: UpstreamLimits) {
    this.#guard = guard;
    this.#clock = clock;
    this.#log = log;
    this.deadlines = deadlinesOf(clock);
    this.limits = {
      connections: limits.connections ?? 256,
      waiting: limits.waiting ?? 1024,
      pools: limits.pools ?? 1024,
      keepAliveMs: limits.keepAliveMs ?? 30_000,
      decodedBytes: limits.decodedBytes ?? 512 * 1024 * 1024,
    };
  }

  stats(): { pools: number; inFlight: number } {
    return { pools: this.#pools, inFlight: this.inFlight };
  }

  dispatch(request: WireRequest, handler: WireHandler, timeouts: WireTimeouts): WireControl {
    try {
      const entry = this.#entry(request.organisationId, request.origin);
      if (request.storedCredential && entry.storedFault) return new Refused(entry.storedFault, handler);
      if (entry.inFlight >= this.limits.connections + this.limits.waiting) {
        return new Refused(
          new SluiceError('gateway_unavailable', 'Too many calls wait for this provider; try again shortly', {
            retryAfter: 1,
          }),
          handler,
        );
      }
      const call = new Call(this, entry, this.#options(request), handler, timeouts);
      call.start();
      return call;
    } catch (error) {
      const refusal =
        error instanceof SluiceError
          ? error
          : new SluiceError('gateway_failure', 'The request could not be sent', { detail: error });
      return new Refused(refusal, handler);
    }
  }

  /** What undici is given. Framing headers are the egress layer's own: whatever the caller put there is dropped. */
  #options(request: WireRequest): Dispatcher.DispatchOptions {
    const { body } = request;
    const headers: string[] = ['accept-encoding', 'identity'];
    for (let n = 0; n + 1 < request.headers.length; n += 2) {
      const name = request.headers[n] as string;
      if (!FRAMING.has(name)) headers.push(name, request.headers[n + 1] as string);
    }
    let payload: Buffer | Buffer[] | null = null;
    if (body !== null && body.length > 0) {
      let size = 0;
      for (const part of body) size += part.length;
      if (body.length === 1) payload = body[0] as Buffer;
      else if (size <= JOIN_BYTES) payload = Buffer.concat(body, size);
      else {
        payload = body as Buffer[];
        headers.push('content-length', String(size));
      }
    }
    return {
      path: request.path,
      method: request.method as Dispatcher.HttpMethod,
      headers,
      body: payload as Buffer | null,
    };
  }

  #entry(organisationId: string, origin: string): Entry {
    if (this.#closed) throw new SluiceError('gateway_unavailable', 'The gateway is shutting down');
    let origins = this.#organisations.get(organisationId);
    const known = origins?.get(origin);
    if (known) return known;
    if (this.#pools >= this.limits.pools) this.#makeRoom();
    const entry = new Entry(origin, this.#guard, organisationId, this.limits);
    if (!origins) {
      origins = new Map();
      this.#organisations.set(organisationId, origins);
    }
    origins.set(origin, entry);
    this.#pools++;
    this.#stopSweep ??= this.#clock.after(SWEEP_MS, this.#sweep);
    return entry;
  }

  #remove(organisationId: string, entry: Entry): void {
    const origins = this.#organisations.get(organisationId);
    if (!origins?.delete(entry.origin)) return;
    if (origins.size === 0) this.#organisations.delete(organisationId);
    this.#pools--;
    entry.pool.close().catch((error: unknown) => this.#log.warn('closing a pool failed', { error: String(error) }));
  }

  /** Closes one idle pool, the one not used since the last sweep first. */
  #makeRoom(): void {
    let candidate: [string, Entry] | null = null;
    for (const [organisationId, origins] of this.#organisations) {
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
      throw new SluiceError('gateway_unavailable', 'Too many different providers are being called; try again shortly', {
        retryAfter: 1,
      });
    }
    this.#remove(...candidate);
  }

  /** A pool that was not used between two sweeps is closed. */
  readonly #sweep = (): void => {
    for (const [organisationId, origins] of [...this.#organisations]) {
      for (const entry of [...origins.values()]) {
        if (entry.inFlight > 0) continue;
        if (!entry.used) this.#remove(organisationId, entry);
        entry.used = false;
      }
    }
    this.#stopSweep = this.#pools > 0 && !this.#closed ? this.#clock.after(SWEEP_MS, this.#sweep) : null;
  };

  /** On a connection of its own: the pool may hold further sockets that died with the first. */
  repeat(entry: Entry, request: Dispatcher.DispatchOptions, call: Call): void {
    const client = new Client(entry.origin, entry.options);
    call.via = null;
    client.dispatch(request, call);
    client.close().catch(() => {});
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#stopSweep?.();
    const pools = [...this.#organisations.values()].flatMap((origins) => [...origins.values()].map(({ pool }) => pool));
    this.#organisations.clear();
    this.#pools = 0;
    const stop = this.#clock.after(CLOSE_MS, () => {
      for (const pool of pools) pool.destroy().catch(() => {});
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

/** Calls to upstreams through undici's pools, one per organisation and origin, over HTTP/1.1 with keep-alive. */
export function createUpstream(options: {
  readonly guard: EgressGuard;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits?: UpstreamLimits;
}): Upstream {
  return new Calls(options.guard, options.clock, options.log, options.limits ?? {});
}
