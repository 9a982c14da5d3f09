import { createServer as createHttp, type IncomingMessage, type RequestListener } from 'node:http';
import { type AddressInfo, createServer as createTcp, type Server, type Socket } from 'node:net';
import { createEgressGuard, parseTrustedHosts } from '../../src/http/egress-guard.ts';
import { createUpstream, type Upstream, type UpstreamLimits, type WireTimeouts } from '../../src/http/upstream.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import type { SluiceError } from '../../src/kernel/errors.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { WireControl, WireHandler, WireRequest } from '../../src/kernel/wire.ts';

/** Real servers on loopback and a real upstream client, for tests of what passes between them. */

export const closers: (() => Promise<unknown> | unknown)[] = [];

/** Closes what the test opened, newest first. */
export async function closeAll(): Promise<void> {
  for (const close of closers.splice(0).reverse()) await close();
}

export async function serve(server: Server): Promise<{ port: number; sockets: Set<Socket>; opened: () => number }> {
  const sockets = new Set<Socket>();
  let opened = 0;
  server.on('connection', (socket) => {
    opened++;
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return { port: (server.address() as AddressInfo).port, sockets, opened: () => opened };
}

export const http = (listener: RequestListener) => serve(createHttp(listener));
/** A TCP server that gives each connection's bytes to `reply`. */
export const raw = (reply: (socket: Socket, text: string, connection: number) => void) => {
  let connections = 0;
  return serve(
    createTcp((socket) => {
      const mine = ++connections;
      socket.on('data', (data) => reply(socket, data.toString('latin1'), mine));
    }),
  );
};

export function client(
  options: { clock?: Clock; limits?: UpstreamLimits; trusted?: string; ca?: Buffer; host?: string } = {},
): Upstream {
  const clock = options.clock ?? systemClock;
  const egress = createEgressGuard({
    trustedHosts: parseTrustedHosts(options.trusted ?? '127.0.0.0/8'),
    ownListeners: () => [],
    clock,
    log: silentLog,
    resolver: {
      resolve: (_name, family) => Promise.resolve(family === 4 ? [{ address: '127.0.0.1', ttl: 60 }] : []),
    },
    ...(options.ca ? { ca: options.ca } : {}),
  });
  const upstream = createUpstream({
    egress,
    clock,
    ...(options.limits ? { limits: options.limits } : {}),
  });
  closers.push(() => upstream.close());
  return upstream;
}

export interface Answer {
  status: number;
  headers: Record<string, string>;
  raw: readonly string[];
  body: Buffer;
  error: SluiceError | null;
}

export interface Sent {
  control: WireControl;
  answer: Promise<Answer>;
  head: Promise<void>;
  bytes: () => number;
}

export const LONG: WireTimeouts = { headersMs: 60_000, idleMs: 60_000 };

export function send(
  upstream: Upstream,
  port: number,
  request: Partial<WireRequest> = {},
  options: { timeouts?: WireTimeouts; keep?: boolean; onData?: (control: WireControl) => void } = {},
): Sent {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let onHead = () => {};
  const head = new Promise<void>((resolve) => {
    onHead = resolve;
  });
  let control: WireControl = { pause() {}, resume() {}, abort() {} };
  const answer = new Promise<Answer>((resolve) => {
    const result: Answer = { status: 0, headers: {}, raw: [], body: Buffer.alloc(0), error: null };
    const done = (error: SluiceError | null) => {
      result.error = error;
      result.body = Buffer.concat(chunks);
      resolve(result);
    };
    const handler: WireHandler = {
      onHead(status, headers) {
        result.status = status;
        result.raw = headers;
        for (let i = 0; i < headers.length; i += 2) result.headers[headers[i] ?? ''] = headers[i + 1] ?? '';
        onHead();
      },
      onData(chunk) {
        bytes += chunk.length;
        if (options.keep !== false) chunks.push(chunk);
        options.onData?.(control);
      },
      onEnd: () => done(null),
      onError: done,
    };
    control = upstream.dispatch(
      {
        method: 'POST',
        origin: `http://127.0.0.1:${port}`,
        path: '/v1/chat/completions',
        headers: ['content-type', 'application/json'],
        body: [Buffer.from('{}')],
        organisationId: 'org',
        storedCredential: false,
        ...request,
      },
      handler,
      options.timeouts ?? LONG,
    );
  });
  return { control, answer, head, bytes: () => bytes };
}

export function read(request: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => resolve(Buffer.concat(chunks)));
  });
}

/** A few turns of the event loop: what both sides of a connection do after an answer has happened by then. */
export const idle = async () => {
  for (let k = 0; k < 3; k++) await new Promise((resolve) => setImmediate(resolve));
};

export const until = async (condition: () => boolean) => {
  const end = performance.now() + 5_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error('condition never came true');
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
};

/**
 * Waits until `read` gives the same value at 60 looks in a row and answers it. Each look lets everything that is ready
 * on this process's sockets happen first, so a busy machine makes it slower and not wrong; 60 of them outlast a delayed
 * acknowledgement of TCP.
 */
export async function settled(read: () => number): Promise<number> {
  let seen = read();
  for (let same = 0; same < 60; same++) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    const now = read();
    if (now === seen) continue;
    seen = now;
    same = -1;
  }
  return seen;
}
