import { createServer, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, connect, Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { exchange, parseAnswers, RAW_CASES } from '../../test/packs/raw-http.ts';
import { settled, until } from '../../test/support/wire.ts';
import { systemClock, TestClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { errorStatus } from '../operations/dialects/errors.ts';
import { readBody } from './read-body.ts';
import { checkRequest, type HardenOptions, hardenServer } from './server-options.ts';

/** Bytes of the write in progress that the kernel has not taken. */
const queueOf = (socket: Socket): number =>
  (socket as Socket & { _handle?: { writeQueueSize: number } | null })._handle?.writeQueueSize ?? 0;

interface Seen {
  readonly url: string;
  readonly body: string;
  readonly request: IncomingMessage;
}

/** A server as the gateway's listener is: checks first, then one handler that echoes what it saw. */
async function start(
  options: HardenOptions = {},
  answerFirst = false,
): Promise<{ port: number; seen: Seen[]; server: Server }> {
  const seen: Seen[] = [];
  const server = createServer(async (request, response) => {
    const send = (status: number, body: string) => {
      if (status !== 200) response.setHeader('connection', 'close');
      response.writeHead(status, { 'content-length': Buffer.byteLength(body) }).end(body);
    };
    try {
      const fault = checkRequest(request);
      if (fault) throw fault;
      if (answerFirst) return send(401, 'who are you');
      const body = await readBody(request, { limit: 1_000_000, clock: systemClock });
      seen.push({ url: request.url ?? '', body: body.toString('latin1'), request });
      send(200, request.url ?? '');
    } catch (error) {
      if (error instanceof SluiceError && error.kind !== 'client_closed') send(errorStatus(error), error.message);
    }
  });
  hardenServer(server, options);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { port: (server.address() as AddressInfo).port, seen, server };
}

const stop = (server: Server) => {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(resolve));
};

const MARKER = 'GET /marker HTTP/1.1\r\nHost: a.example\r\n\r\n';

describe('raw requests', () => {
  let running: Awaited<ReturnType<typeof start>>;
  beforeAll(async () => {
    running = await start({ connectionsPerPeer: 0 });
  });
  afterAll(() => stop(running.server));

  for (const split of [false, true]) {
    const how = split ? 'split at every byte' : 'in one piece';
    it.each(RAW_CASES.filter(({ bytes }) => !split || bytes.length < 3_000))(
      `$title, ${how}`,
      async ({ title, bytes, body }) => {
        running.seen.length = 0;
        const text = await exchange(running.port, bytes + MARKER, split, (so) => so.endsWith('/marker'));
        const answers = parseAnswers(text);
        if (body === null) {
          expect(answers.map(({ status }) => status).filter((status) => status < 400)).toEqual([]);
          expect(answers.length).toBeLessThanOrEqual(1);
          for (const answer of answers) {
            expect([400, 408, 413, 414, 431]).toContain(answer.status);
            expect(answer.headers).toContain('connection: close');
          }
          expect(running.seen.map(({ url }) => url)).toEqual([]);
        } else {
          expect(answers.map(({ status }) => status)).toEqual([200, 200]);
          // A body takes longer to read than none: the order of the answers counts, not that of the handlers.
          expect(answers.map((answer) => answer.body)).toEqual(['/x', '/marker']);
          expect(running.seen).toHaveLength(2);
          const first = running.seen.find(({ url }) => url === '/x');
          expect(first?.body).toBe(body);
          if (title.startsWith('trailers')) expect(first?.request.headers).not.toHaveProperty('x-gateway-api-key');
        }
      },
    );
  }

  it('keeps pipelined requests apart and in order', async () => {
    running.seen.length = 0;
    const many = Array.from(
      { length: 20 },
      (_, k) => `POST /p${k} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n${String(k).padStart(3, '0')}`,
    );
    const text = await exchange(running.port, many.join('') + MARKER, false, (so) => so.endsWith('/marker'));
    expect(parseAnswers(text).map(({ body }) => body)).toEqual([...many.map((_, k) => `/p${k}`), '/marker']);
    for (const { url, body } of running.seen) expect(body).toBe(url === '/marker' ? '' : url.slice(2).padStart(3, '0'));
  });
});

describe('a fault behind a whole request', () => {
  it('leaves the answer of the request before it alone, and closes after it', async () => {
    const server = createServer((request, response) => {
      if (checkRequest(request) !== null) return void response.writeHead(400, { connection: 'close' }).end();
      setTimeout(() => response.writeHead(200, { 'content-length': 4 }).end('slow'), 50);
    });
    hardenServer(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    for (const garbage of ['\0\0\0\r\n\r\n', 'GET /x HTTP/9.9\r\n\r\n', 'X']) {
      const text = await exchange(port, MARKER + garbage, false, (so) => garbage === 'X' && so.endsWith('slow'));
      expect(parseAnswers(text)).toMatchObject([{ status: 200, body: 'slow' }]);
    }
    await stop(server);
  });
});

describe('hardenServer', () => {
  const open: Server[] = [];
  const sockets: Socket[] = [];
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    for (const server of open.splice(0)) await stop(server);
  });
  const launch = async (options?: HardenOptions, answerFirst?: boolean) => {
    const running = await start(options, answerFirst);
    open.push(running.server);
    return running;
  };

  it('invites a body with 100 Continue only when somebody reads it', async () => {
    const request = 'POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n';
    const { port } = await launch();
    let sent = false;
    const text = await new Promise<string>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => socket.write(request));
      sockets.push(socket);
      let all = '';
      socket.on('data', (data) => {
        all += data.toString();
        if (!sent && all.includes('100 Continue')) {
          sent = true;
          socket.write('ok');
        }
        if (all.endsWith('/x')) resolve(all);
      });
    });
    expect(text).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK\r\n/);

    const strict = await launch({}, true);
    const refused = await exchange(strict.port, request, false, (so) => so.endsWith('who are you'));
    expect(refused).toMatch(/^HTTP\/1\.1 401 /);
    expect(refused).not.toContain('100 Continue');
  });

  it('closes a connection whose headers do not come to an end', async () => {
    const { port } = await launch({ headersTimeout: 200 });
    const text = await exchange(port, 'GET /x HTTP/1.1\r\nHost: a\r\nX-', false, () => false);
    expect(parseAnswers(text)[0]?.status).toBe(408);
  });

  it('closes an idle kept-alive connection', async () => {
    const { port } = await launch({ keepAliveTimeout: 100 });
    expect(parseAnswers(await exchange(port, MARKER, false, () => false))).toHaveLength(1);
  });

  it('lets one address open so many connections and no more, except a trusted proxy', async () => {
    const count = async (options: HardenOptions) => {
      const { port } = await launch(options);
      const results = await Promise.all(
        Array.from({ length: 6 }, () => {
          return new Promise<boolean>((resolve) => {
            const socket = connect(port, '127.0.0.1');
            sockets.push(socket);
            socket.on('error', () => resolve(false));
            socket.on('close', () => resolve(false));
            socket.on('connect', () => socket.write(MARKER));
            socket.on('data', () => resolve(true));
          });
        }),
      );
      return results.filter(Boolean).length;
    };
    expect(await count({ connectionsPerPeer: 4 })).toBe(4);
    expect(await count({ connectionsPerPeer: 4, trustedProxies: ['127.0.0.0/8'] })).toBe(6);
    expect(await count({ connectionsPerPeer: 0 })).toBe(6);
  });

  it('lets the addresses of one IPv6 /64 open eight times as many together, and another /64 its own', () => {
    const server = createServer();
    hardenServer(server, { connectionsPerPeer: 4 });
    const taken = (address: string) => {
      const socket = new Socket();
      Object.defineProperty(socket, 'remoteAddress', { value: address });
      sockets.push(socket);
      server.emit('connection', socket);
      return !socket.destroyed;
    };
    const many = (network: string) => Array.from({ length: 40 }, (_, k) => taken(`${network}::${k.toString(16)}`));
    expect(many('2001:db8:0:1').filter(Boolean)).toHaveLength(32);
    expect(many('2001:db8:0:2').filter(Boolean)).toHaveLength(32);
    expect(Array.from({ length: 6 }, () => taken('2001:db8:0:3::1')).filter(Boolean)).toHaveLength(4);
  });

  it('counts connections that have closed no longer', async () => {
    const { port } = await launch({ connectionsPerPeer: 1 });
    for (let k = 0; k < 5; k++) {
      const text = await exchange(port, MARKER, false, (so) => so.endsWith('/marker'));
      expect(parseAnswers(text)).toHaveLength(1);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  });

  it('cuts a client that takes nothing of its answer for a minute, and none that takes a little', async () => {
    const clock = new TestClock();
    const server = createServer((_request, response) => response.end(Buffer.alloc(64 * 1024 * 1024)));
    hardenServer(server, { clock });
    open.push(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const served: Socket[] = [];
    server.on('connection', (socket) => served.push(socket));
    const ask = async () => {
      const socket = connect((server.address() as AddressInfo).port, '127.0.0.1', () => socket.write(MARKER));
      sockets.push(socket);
      socket.on('error', () => {});
      socket.pause();
      const mine = served.length;
      await until(() => (served[mine]?.writableLength ?? 0) > 0);
      return { socket, there: served.at(-1) as Socket };
    };
    const idle = await ask();
    const slow = await ask();
    // The buffers of the kernel fill first.
    await settled(() => queueOf(idle.there) + queueOf(slow.there));
    await clock.advance(5_000);
    for (let k = 0; k < 5; k++) {
      await clock.advance(11_000);
      const before = queueOf(slow.there);
      slow.socket.resume();
      await until(() => queueOf(slow.there) < before);
      slow.socket.pause();
      expect(idle.there.destroyed).toBe(false);
    }
    await settled(() => queueOf(slow.there));
    await clock.advance(11_000);
    expect(idle.there.destroyed).toBe(true);
    expect(slow.there.destroyed).toBe(false);
    await clock.advance(65_000);
    expect(slow.there.destroyed).toBe(true);
  });

  it('closes a refused connection two seconds after its refusal, whatever the client does', async () => {
    const clock = new TestClock();
    const { port, server } = await launch({ clock });
    let there: Socket | null = null;
    server.on('connection', (socket) => {
      there = socket;
    });
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () => socket.write('nonsense\r\n\r\n'));
    sockets.push(socket);
    socket.on('error', () => {});
    const ended = new Promise((resolve) => socket.on('end', resolve));
    socket.resume();
    await ended;
    expect((there as unknown as Socket).destroyed).toBe(false);
    await clock.advance(2_100);
    expect((there as unknown as Socket).destroyed).toBe(true);
  });

  it('leaves a silent but healthy connection alone while an answer is being prepared', async () => {
    const server = createServer((_request, response) => {
      setTimeout(() => response.end('late'), 300);
    });
    hardenServer(server, { writeStallTimeout: 100 });
    open.push(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const text = await exchange((server.address() as AddressInfo).port, MARKER, false, (so) => so.includes('late'));
    expect(text).toContain('late');
  });
});
