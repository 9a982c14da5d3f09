import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type Clock, systemClock } from '../kernel/clock.ts';
import { deadlinesOf } from '../kernel/deadlines.ts';
import { SluiceError } from '../kernel/errors.ts';
import { OWN_PREFIX } from '../kernel/header-names.ts';
import type { JsonObject } from '../kernel/json.ts';
import { networkOf } from '../kernel/network.ts';
import { isTrustedProxy, peerAddress } from './client-address.ts';
import { cutStalledClients } from './stalled-clients.ts';
import { checkTarget } from './target.ts';

/** What `node:http` accepts by default and this server does not (8.2). */

export interface HardenOptions {
  /** The body of the answer to what is no HTTP request. */
  readonly unparsedBody?: ((message: string) => JsonObject) | undefined;
  /** Addresses and CIDRs that may open any number of connections. */
  readonly trustedProxies?: readonly string[];
  /** Connections of one peer address, and an eighth of those of an IPv6 /64. Default 256; 0 removes the cap. */
  readonly connectionsPerPeer?: number;
  /** System time when absent. */
  readonly clock?: Clock;
  /** For tests: milliseconds in place of the documented ones. */
  readonly headersTimeout?: number;
  readonly keepAliveTimeout?: number;
  readonly writeStallTimeout?: number;
}

const MAX_HEADERS = 100;
/** How long a refused connection is kept for its client to read the refusal. */
const LINGER_MS = 2_000;

/** Set on a connection after a refusal: what follows on it was framed by somebody we do not trust. */
const refusedBefore = Symbol('refused');

interface HttpSocket extends Socket {
  /** Node's: the answer in progress on this connection. */
  _httpMessage?: ServerResponse | null;
  [refusedBefore]?: boolean;
}

const STATUS_LINES = {
  400: 'Bad Request',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
} as const;

/**
 * Sets deadlines and caps, answers framing errors with 400 and closes, and defers `100 Continue` until somebody reads
 * the body: nothing is invited before the caller is known.
 */
export function hardenServer(server: Server, options: HardenOptions = {}): void {
  server.headersTimeout = options.headersTimeout ?? 10_000;
  // Bodies are timed by rate while they are read (`readBody`), since an upload may take long; this bounds the rest.
  server.requestTimeout = 3_600_000;
  server.keepAliveTimeout = options.keepAliveTimeout ?? 65_000;
  server.maxRequestsPerSocket = 0;
  // Headers past this count would be dropped in silence; `checkRequest` refuses them instead.
  server.maxHeadersCount = 0;
  // `requireHostHeader`: Node's own refusal would let requests behind it run; `checkRequest` does it.
  Object.assign(server, {
    requireHostHeader: false,
    connectionsCheckingInterval: Math.min(2_000, server.headersTimeout / 2),
  });
  const clock = options.clock ?? systemClock;
  const stallMs = options.writeStallTimeout ?? 60_000;
  cutStalledClients(server, clock, stallMs);
  server.timeout = stallMs;
  // Silence is legal while an upstream thinks; an idle connection is not.
  server.on('timeout', (socket: HttpSocket) => {
    if (!socket._httpMessage) socket.destroy();
  });

  server.on('clientError', (error, socket: HttpSocket) =>
    answerClientError(error, socket, clock, options.unparsedBody),
  );
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    continueWhenRead(request, response);
    server.emit('request', request, response);
  });
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    server.emit('request', request, response);
  });

  const cap = options.connectionsPerPeer ?? 256;
  if (cap > 0) capPerPeer(server, cap, options.trustedProxies ?? []);
}

/** A network of many IPv6 clients may open more than one of them. */
const NETWORK_SHARES = 8;

function capPerPeer(server: Server, cap: number, trustedProxies: readonly string[]): void {
  const open = new Map<string, number>();
  server.on('connection', (socket) => {
    const peer = peerAddress(socket);
    if (peer === '' || isTrustedProxy(peer, trustedProxies)) return;
    const network = networkOf(peer);
    const counted = network === peer ? [peer] : [peer, network];
    if (counted.some((who) => (open.get(who) ?? 0) >= (who === peer ? cap : cap * NETWORK_SHARES))) {
      socket.destroy();
      return;
    }
    for (const who of counted) open.set(who, (open.get(who) ?? 0) + 1);
    socket.once('close', () => {
      for (const who of counted) {
        const left = (open.get(who) ?? 1) - 1;
        if (left > 0) open.set(who, left);
        else open.delete(who);
      }
    });
  });
}

/** `100 Continue` goes out with the first read of the body, and not at all when the answer came first. */
function continueWhenRead(request: IncomingMessage, response: ServerResponse): void {
  const read = request._read;
  request._read = function invite(size) {
    request._read = read;
    if (!response.headersSent && !response.writableEnded) response.writeContinue();
    read.call(request, size);
  };
}

function answerClientError(
  error: Error & { code?: string },
  socket: HttpSocket,
  clock: Clock,
  bodyOf: HardenOptions['unparsedBody'] = (message) => ({ error: { message } }),
): void {
  const answer = socket._httpMessage;
  // Bytes of an answer that has begun must not be followed by another answer's head.
  if (error.code === 'ECONNRESET' || !socket.writable || answer?.headersSent) {
    socket.destroy(error);
    return;
  }
  if (answer?.req.complete) {
    // The fault is in what came behind a whole request: that one still gets its own answer, and the last.
    answer.shouldKeepAlive = false;
    socket[refusedBefore] = true;
    return;
  }
  const status = error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400;
  const message =
    status === 431
      ? 'The request line and headers are larger than 16 KB.'
      : status === 408
        ? 'The request did not arrive in time.'
        : 'The request does not follow HTTP/1.1.';
  const body = JSON.stringify(bodyOf(message));
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_LINES[status]}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  // Until the client closes its side the connection counts for its address; one that has read its answer has no reason to wait.
  const deadline = deadlinesOf(clock).start(LINGER_MS, () => socket.destroy());
  socket.once('close', () => deadline.cancel());
}

function refuse(message: string): SluiceError {
  return new SluiceError('malformed_call', message);
}

/** Headers that mean something else when there are two of them; Node would keep the first or join them. */
const SINGLE: ReadonlyMap<string, number> = new Map(
  [
    'host',
    'content-length',
    'transfer-encoding',
    'content-type',
    'content-encoding',
    'expect',
    'upgrade',
    'authorization',
    'proxy-authorization',
    'x-api-key',
    'api-key',
  ].map((name, bit) => [name, 1 << bit]),
);

const AUTHORITY = /^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?$/;
/** Hosts seen and found valid; a server is called by few names. */
const validHosts = new Set<string>();

function validHost(host: string): boolean {
  if (validHosts.has(host)) return true;
  if (host.length > 260 || !AUTHORITY.test(host)) return false;
  const port = /:([0-9]+)$/.exec(host.slice(host.lastIndexOf(']') + 1))?.[1];
  if (port !== undefined && Number(port) > 65_535) return false;
  if (validHosts.size < 64) validHosts.add(host);
  return true;
}

/**
 * Null when target and head of a request are acceptable, else the refusal (400 or 414). Reads `rawHeaders`, because Node
 * has joined or dropped repeated headers in `headers`. The answer to a refusal must close the connection; requests that
 * Node has already read behind it are refused as well.
 */
export function checkRequest(request: IncomingMessage): SluiceError | null {
  const socket: HttpSocket = request.socket;
  if (socket[refusedBefore]) return refuse('An earlier request on this connection was refused');
  const fault = checkTarget(request.url ?? '') ?? checkHead(request);
  if (fault !== null) socket[refusedBefore] = true;
  return fault;
}

function checkHead(request: IncomingMessage): SluiceError | null {
  const { method, rawHeaders } = request;
  const version10 = request.httpVersionMajor === 1 && request.httpVersionMinor === 0;
  if (!version10 && !(request.httpVersionMajor === 1 && request.httpVersionMinor === 1)) {
    return refuse('Use HTTP/1.1');
  }
  if (rawHeaders.length > MAX_HEADERS * 2) return refuse(`The request has more than ${MAX_HEADERS} headers`);
  let seen = 0;
  let own: string[] | null = null;
  let hosts = false;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = (rawHeaders[i] as string).toLowerCase();
    const value = rawHeaders[i + 1] as string;
    if (name.includes('_')) return refuse('Header names must not contain an underscore');
    const bit = SINGLE.get(name);
    if (bit === undefined) {
      if (name.startsWith(OWN_PREFIX)) {
        if (own === null) own = [name];
        else if (own.includes(name)) return refuse(`The header ${name} is given twice`);
        else own.push(name);
      }
      continue;
    }
    if ((seen & bit) !== 0) return refuse(`The header ${name} is given twice`);
    seen |= bit;
    switch (name) {
      case 'host':
        if (!validHost(value)) return refuse('The Host header is not one valid authority');
        hosts = true;
        break;
      case 'content-length':
        if (!/^(0|[1-9][0-9]{0,14})$/.test(value)) return refuse('Content-Length must be a plain decimal number');
        if ((method === 'GET' || method === 'HEAD') && value !== '0') return refuse(`${method} must not have a body`);
        break;
      case 'transfer-encoding':
        if (value.toLowerCase() !== 'chunked') return refuse('Transfer-Encoding must be exactly chunked');
        if (version10) return refuse('Transfer-Encoding needs HTTP/1.1');
        if (method === 'GET' || method === 'HEAD') return refuse(`${method} must not have a body`);
        break;
      case 'expect':
        if (value.toLowerCase() !== '100-continue') return refuse('The only expectation supported is 100-continue');
        break;
      case 'upgrade':
        if (value.toLowerCase() !== 'websocket' || !isRealtime(request.url ?? ''))
          return refuse('Upgrade is not supported here');
        break;
    }
  }
  if (!hosts) return refuse('The Host header is missing');
  return null;
}

function isRealtime(url: string): boolean {
  const query = url.indexOf('?');
  return (query < 0 ? url : url.slice(0, query)) === '/v1/realtime';
}
