/**
 * The WHATWG `fetch` for libraries that take one (MCP and A2A clients, OpenID Connect, key sets): standard requests and
 * responses, but every hop is judged by the egress guard and bounded in time and size.
 */
import { Readable } from 'node:stream';
import { createBrotliDecompress, createInflate, createUnzip } from 'node:zlib';
import type { FetchAnswer, Fetcher } from '../http/background-fetcher.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';

/** As the global one: rejects with a `TypeError` whose `cause` says what went wrong, or with the reason of the signal. */
export type GuardedFetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

export interface GuardedFetchOptions {
  /** The calls carry a credential of the store: `https` only, except to trusted hosts. */
  readonly storedCredential: boolean;
  /** `https` only, except to trusted hosts: token endpoints and key sets. */
  readonly httpsOnly?: boolean;
  /** Milliseconds until the head of a response. Default 30 000. */
  readonly headersTimeoutMs?: number;
  /** Milliseconds between two chunks of a response. Default 120 000. */
  readonly idleMs?: number;
  /** Milliseconds for everything, the end of the body included. Default: no limit, for streams that stay open. */
  readonly totalMs?: number;
  /** Decoded bytes of one response body. Default 16 MiB; `null`: no limit, for streams that stay open. */
  readonly maxBytes?: number | null;
  /** Hops that `redirect: 'follow'` may take. Default 5. */
  readonly maxRedirects?: number;
}

export interface GuardedFetchParts {
  readonly fetcher: Fetcher;
  readonly egress: EgressGuard;
  readonly clock: Clock;
}

const HEADERS_MS = 30_000;
const IDLE_MS = 120_000;
const MAX_BYTES = 16 * 1024 * 1024;
const MAX_REDIRECTS = 5;

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
const NO_BODY: ReadonlySet<number> = new Set([204, 205, 304]);
/** Framing and routing are ours: a `host` of the caller's would reach another site than the one that was judged. */
const OURS: ReadonlySet<string> = new Set([
  'accept-encoding',
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);
/** What follows a redirect to another origin. Any other header may be a credential under a name of its service's choice. */
const HARMLESS: ReadonlySet<string> = new Set([
  'accept',
  'accept-language',
  'content-language',
  'content-type',
  'mcp-protocol-version',
  'user-agent',
]);

/** Makes the fetch of one organisation, on whose sockets and share of look-ups it calls. */
export function createGuardedFetch(
  parts: GuardedFetchParts,
  organisationId: string,
  options: GuardedFetchOptions,
): GuardedFetch {
  return async (input, init) => {
    const call = new Call(parts, organisationId, options);
    try {
      return await call.run(input, init);
    } catch (error) {
      const failure = call.failure(error);
      call.end();
      throw failure;
    }
  };
}

/** Callers that need the head only leave the body unread: its socket is given back when they have dropped the response. */
const forgotten = new FinalizationRegistry<Call>((call) => call.end());
const responses = new WeakMap<ReadableStream, Response>();

/** One request as it goes out, redirect by redirect. */
interface Hop {
  readonly url: URL;
  readonly method: string;
  readonly headers: Headers;
  readonly body: Buffer | Readable | null;
}

class Call {
  readonly #parts: GuardedFetchParts;
  readonly #organisationId: string;
  readonly #options: GuardedFetchOptions;
  /** Ends the call under way: the caller's signal, the time limit or the end of its use. */
  readonly #ended = new AbortController();
  readonly #cancelTimer: () => void;
  #signal: AbortSignal | null = null;

  constructor(parts: GuardedFetchParts, organisationId: string, options: GuardedFetchOptions) {
    this.#parts = parts;
    this.#organisationId = organisationId;
    this.#options = options;
    const { totalMs } = options;
    const late = () => this.#ended.abort(new SluiceError('timeout', `The call took longer than ${totalMs} ms.`));
    this.#cancelTimer = totalMs === undefined ? () => {} : parts.clock.after(totalMs, late);
  }

  async run(input: string | URL | Request, init: RequestInit | undefined): Promise<Response> {
    // The text itself is judged: what parsing makes of 0x7f000001 no longer shows what was written.
    if (typeof input === 'string') this.#check(withoutFragment(input));
    const request = new Request(input, init);
    const { signal, redirect } = request;
    this.#signal = signal;
    signal.throwIfAborted();
    signal.addEventListener('abort', this.#leave);
    let hop: Hop = {
      url: new URL(withoutFragment(request.url)),
      method: request.method,
      headers: request.headers,
      body: await bodyOf(request, init),
    };
    for (let redirects = 0; ; redirects++) {
      const answer = await this.#send(hop);
      const location = REDIRECTS.has(answer.status) ? answer.headers.location : undefined;
      if (location === undefined || redirect === 'manual') return this.#response(answer, hop.url, redirects > 0);
      answer.stream.destroy();
      if (redirect === 'error') throw refused('The response is a redirect, which the caller does not allow.');
      if (redirects >= (this.#options.maxRedirects ?? MAX_REDIRECTS)) throw refused('There were too many redirects.');
      hop = redirected(hop, answer.status, location);
    }
  }

  #check(url: string): void {
    const { storedCredential, httpsOnly = false } = this.#options;
    this.#parts.egress.check(url, { storedCredential, httpsOnly });
  }

  #send({ url, method, headers, body }: Hop): Promise<FetchAnswer> {
    const { headersTimeoutMs = HEADERS_MS, idleMs = IDLE_MS, storedCredential } = this.#options;
    this.#check(url.href);
    const lines: string[] = [];
    for (const [name, value] of headers) if (!OURS.has(name)) lines.push(name, value);
    if (!headers.has('accept')) lines.push('accept', '*/*');
    if (!headers.has('user-agent')) lines.push('user-agent', 'sluice');
    lines.push('accept-encoding', 'identity');
    return this.#parts.fetcher.send({
      method,
      url,
      headers: lines,
      body,
      organisationId: this.#organisationId,
      storedCredential,
      headersTimeoutMs,
      idleMs,
      signal: this.#ended.signal,
    });
  }

  #response(answer: FetchAnswer, url: URL, redirected: boolean): Response {
    if (answer.status < 200 || answer.status > 599) throw refused(`The response has the status ${answer.status}.`);
    const headers = new Headers();
    for (let i = 0; i + 1 < answer.lines.length; i += 2)
      headers.append(answer.lines[i] ?? '', answer.lines[i + 1] ?? '');
    const empty = NO_BODY.has(answer.status);
    if (empty) {
      answer.stream.resume();
      this.#done();
    }
    const body = empty ? null : this.#body(decoded(answer));
    const response = new Response(body, { status: answer.status, headers });
    // Those of a response that was made, not received, are empty; libraries read them.
    Object.defineProperties(response, { url: { value: url.href }, redirected: { value: redirected } });
    if (body !== null) {
      // While one of both is in use, the other is.
      responses.set(body, response);
      forgotten.register(response, this);
    }
    return response;
  }

  /** Pulled as it is read, so that a slow reader slows the sender down. */
  #body(source: Readable): ReadableStream<Uint8Array> {
    const { maxBytes = MAX_BYTES } = this.#options;
    const chunks: AsyncIterator<Buffer> = source.iterator();
    let bytes = 0;
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          try {
            const { done, value } = await chunks.next();
            if (done === true) {
              this.#done();
              controller.close();
              return;
            }
            bytes += value.length;
            if (maxBytes !== null && bytes > maxBytes) {
              throw new SluiceError('upstream_invalid', `The response is longer than ${maxBytes} bytes.`);
            }
            // A view of pooled memory would show its reader the bytes beside it.
            controller.enqueue(new Uint8Array(value));
          } catch (error) {
            source.destroy();
            const failure = this.failure(error);
            this.end();
            controller.error(failure);
          }
        },
        cancel: () => {
          source.destroy();
          this.end();
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** What a caller of a standard fetch gets of an error. */
  failure(error: unknown): unknown {
    if (this.#signal?.aborted) return this.#signal.reason;
    const reason = this.#ended.signal.aborted ? this.#ended.signal.reason : error;
    if (reason instanceof TypeError) return reason;
    const cause =
      reason instanceof SluiceError
        ? reason
        : new SluiceError('upstream_cut', 'The response ended before it was complete.', { cause: reason });
    return new TypeError(`The call failed: ${cause.message}`, { cause });
  }

  /** Lets go of the socket and of everything that waits. */
  end(): void {
    this.#done();
    this.#ended.abort(new SluiceError('client_closed', 'The response is not read any further.'));
  }

  #done(): void {
    this.#cancelTimer();
    this.#signal?.removeEventListener('abort', this.#leave);
  }

  readonly #leave = (): void => {
    this.#ended.abort(new SluiceError('client_closed', 'The call was given up.', { cause: this.#signal?.reason }));
  };
}

function refused(message: string): SluiceError {
  return new SluiceError('upstream_invalid', message);
}

function withoutFragment(url: string): string {
  const at = url.indexOf('#');
  return at === -1 ? url : url.slice(0, at);
}

/** In memory where it is whole already, so that its length is sent and a redirect of the same origin can repeat it. */
async function bodyOf(request: Request, init: RequestInit | undefined): Promise<Buffer | Readable | null> {
  if (request.body === null) return null;
  const given = init?.body;
  const streams = given == null || given instanceof ReadableStream || Symbol.asyncIterator in Object(given);
  if (!streams) return Buffer.from(await request.arrayBuffer());
  return Readable.fromWeb(request.body as Parameters<typeof Readable.fromWeb>[0]);
}

/** The next hop. Throws where following would hand on what was meant for the origin that redirects. */
function redirected({ url, method, headers, body }: Hop, status: number, location: string): Hop {
  const next = URL.parse(location, url.href);
  if (next === null) throw refused('The response redirects to an address that cannot be read.');
  next.hash = '';
  const same = next.origin === url.origin;
  if (url.protocol === 'https:' && next.protocol !== 'https:') {
    throw refused(`The response redirects from https to http, to ${next.origin}.`);
  }
  const kept = new Headers();
  for (const [name, value] of headers) if (same || HARMLESS.has(name)) kept.append(name, value);
  const turnsToGet = (status === 303 && method !== 'GET' && method !== 'HEAD') || (status <= 302 && method === 'POST');
  if (!turnsToGet) {
    if (body !== null && !same) {
      throw refused(
        `The response redirects a request with a body to another origin, ${next.origin}; call that instead.`,
      );
    }
    if (body !== null && !Buffer.isBuffer(body))
      throw refused('A streamed body cannot be sent again to where it is redirected.');
    return { url: next, method, headers: kept, body };
  }
  if (body !== null && !Buffer.isBuffer(body)) body.destroy();
  for (const name of [...kept.keys()]) if (name.startsWith('content-')) kept.delete(name);
  return { url: next, method: 'GET', headers: kept, body: null };
}

/** We ask for no coding; who sends one all the same is understood. */
function decoded({ headers, stream }: FetchAnswer): Readable {
  const coding = (headers['content-encoding'] ?? '').trim().toLowerCase();
  const decoder =
    coding === 'gzip' || coding === 'x-gzip'
      ? createUnzip()
      : coding === 'deflate'
        ? createInflate()
        : coding === 'br'
          ? createBrotliDecompress()
          : null;
  if (decoder === null) return stream;
  stream.on('error', (error) => decoder.destroy(error));
  decoder.on('close', () => stream.destroy());
  return stream.pipe(decoder);
}
