import { readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { createServer as createHttps } from 'node:https';
import { afterEach, describe, expect, it } from 'vitest';
import { client, closeAll, http, idle, raw, read, send, serve, until } from '../../test/support/wire.ts';
import { TestClock } from '../kernel/clock.ts';

const fixture = (name: string) => readFileSync(new URL(`__fixtures__/${name}`, import.meta.url));

afterEach(closeAll);

describe('dispatch', () => {
  it('sends method, path, headers and all parts of the body in order, whatever their number and size', async () => {
    const { port } = await http(async (request, response) => {
      const body = await read(request);
      response.end(
        JSON.stringify({
          url: request.url,
          method: request.method,
          headers: request.headers,
          size: body.length,
          last: body.at(-1),
        }),
      );
    });
    const upstream = client();
    for (const parts of [[1], [1, 2, 3], [40_000, 40_000], [0, 70_000, 0, 5]]) {
      const body = parts.map((size, k) => Buffer.alloc(size, k + 1));
      const { answer } = send(upstream, port, { method: 'PUT', path: '/a?b=c', headers: ['x-a', '1'], body });
      const seen = JSON.parse((await answer).body.toString());
      const size = parts.reduce((sum, each) => sum + each, 0);
      expect(seen).toMatchObject({ url: '/a?b=c', method: 'PUT', size, last: parts.length });
      expect(seen.headers).toMatchObject({ 'x-a': '1', 'content-length': String(size) });
    }
    const get = await send(upstream, port, { method: 'GET', body: null }).answer;
    expect(JSON.parse(get.body.toString())).toMatchObject({ method: 'GET', size: 0 });
  });

  it('builds framing headers itself and asks for no compression, whatever the caller put there', async () => {
    const { port } = await http((request, response) => response.end(JSON.stringify(request.headers)));
    const headers = [
      'host',
      'evil.com',
      'content-length',
      '99',
      'accept-encoding',
      'gzip',
      'connection',
      'close',
      'transfer-encoding',
      'chunked',
      'expect',
      '100-continue',
      'upgrade',
      'h2c',
      'x-kept',
      '1',
    ];
    const seen = JSON.parse((await send(client(), port, { headers }).answer).body.toString());
    expect(seen).toEqual({
      host: `127.0.0.1:${port}`,
      connection: 'keep-alive',
      'accept-encoding': 'identity',
      'x-kept': '1',
      'content-length': '2',
    });
  });

  it('answers 400 for a header that would break the request, and sends nothing', async () => {
    const { port, opened } = await http((_request, response) => response.end());
    for (const headers of [
      ['x-a', 'a\r\nx-b: c'],
      ['x a', 'b'],
      ['x-a', '\0'],
    ]) {
      expect((await send(client(), port, { headers }).answer).error).toMatchObject({
        kind: 'malformed_call',
      });
    }
    expect((await send(client(), port, { path: '/a b' }).answer).error).toMatchObject({ kind: 'malformed_call' });
    expect(opened()).toBe(0);
  });

  it('follows no redirect', async () => {
    let requests = 0;
    const { port } = await http((request, response) => {
      requests++;
      const status = Number(request.url?.slice(1));
      response.writeHead(status, { location: 'http://169.254.169.254/' }).end();
    });
    const upstream = client();
    for (const status of [301, 302, 303, 307, 308]) {
      expect(await send(upstream, port, { path: `/${status}` }).answer).toMatchObject({ status, error: null });
    }
    expect(requests).toBe(5);
  });

  it('lets no stored credential travel over plain http to a host that is not trusted', async () => {
    const { port, opened } = await http((_request, response) => response.end());
    const upstream = client({ trusted: '' });
    const { error } = await send(upstream, 80, { origin: 'http://example.com', storedCredential: true }).answer;
    expect(error).toMatchObject({ kind: 'malformed_call', message: expect.stringContaining('https only') });
    expect((await send(upstream, port).answer).error).toMatchObject({ kind: 'malformed_call' });
    expect(opened()).toBe(0);
  });

  it('passes interim answers over and refuses an upstream that sends nothing else', async () => {
    const { port } = await raw((socket, text) => {
      if (text.includes('/endless')) socket.write('HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n'.repeat(50));
      else
        socket.write(
          'HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok',
        );
    });
    const upstream = client();
    expect(await send(upstream, port).answer).toMatchObject({ status: 200, error: null });
    expect((await send(upstream, port, { path: '/endless' }).answer).error).toMatchObject({ kind: 'upstream_invalid' });
  });

  it('keeps repeated headers of an answer apart', async () => {
    const { port } = await raw((socket) =>
      socket.write('HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\n__proto__: 3\r\ncontent-length: 0\r\n\r\n'),
    );
    const { raw: headers } = await send(client(), port).answer;
    expect(headers).toEqual(
      ['x-a', '1', 'x-a', '2', '__proto__', '3', 'content-length', '0'].filter(
        (_, k) => headers.includes('__proto__') || k < 4 || k > 5,
      ),
    );
  });
});

describe('dead keep-alive sockets', () => {
  /** Answers the first request of each connection and closes without a word when a second one arrives. */
  const oneShot = (seen: string[], dieOn: (connection: number, nth: number) => boolean, before = '') => {
    const counts = new Map<number, number>();
    return raw((socket, text, connection) => {
      const nth = (counts.get(connection) ?? 0) + 1;
      counts.set(connection, nth);
      seen.push(`${connection}.${nth} ${text.split(' ')[1]}`);
      if (!dieOn(connection, nth)) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
      else if (before) socket.end(before);
      else socket.resetAndDestroy();
    });
  };

  it('repeats once, on a new connection, a request that a reused socket swallowed', async () => {
    const seen: string[] = [];
    const { port } = await oneShot(seen, (_connection, nth) => nth > 1);
    const upstream = client();
    for (const path of ['/a', '/b', '/c']) {
      expect(await send(upstream, port, { path }).answer).toMatchObject({ status: 200, error: null });
      await idle();
    }
    expect(seen).toEqual(['1.1 /a', '1.2 /b', '2.1 /b', '3.1 /c']);
    expect(upstream.stats().inFlight).toBe(0);
  });

  it('repeats a body of many parts whole', async () => {
    let size = 0;
    let first = true;
    const server = await http(async (request, response) => {
      if (request.url === '/first') return response.end('ok');
      if (first) {
        first = false;
        return request.socket.resetAndDestroy();
      }
      size = (await read(request)).length;
      response.end('ok');
    });
    const upstream = client();
    await send(upstream, server.port, { path: '/first' }).answer;
    await idle();
    const body = [Buffer.alloc(50_000), Buffer.alloc(50_000)];
    expect((await send(upstream, server.port, { path: '/second', body }).answer).error).toBeNull();
    expect(size).toBe(100_000);
  });

  it('does not repeat on a fresh connection, after a byte of an answer, or a second time', async () => {
    const seen: string[] = [];
    const fresh = await oneShot(seen, () => true);
    expect((await send(client(), fresh.port).answer).error).toMatchObject({ kind: 'upstream_unreachable' });
    expect(seen).toHaveLength(1);

    seen.length = 0;
    const answered = await oneShot(seen, (_connection, nth) => nth > 1, 'HTTP/1.1 2');
    const upstream = client();
    await send(upstream, answered.port).answer;
    await idle();
    expect((await send(upstream, answered.port).answer).error).toMatchObject({ kind: 'upstream_invalid' });
    expect(seen).toHaveLength(2);

    seen.length = 0;
    const always = await oneShot(seen, (connection, nth) => connection > 1 || nth > 1);
    const other = client();
    await send(other, always.port).answer;
    await idle();
    expect((await send(other, always.port).answer).error).toMatchObject({ kind: 'upstream_unreachable' });
    expect(seen).toHaveLength(3);
  });
});

describe('a connection is used again', () => {
  const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n';

  it.each([
    ['as long as the upstream says', 'keep-alive: timeout=10', 7_000, 9_000],
    ['30 seconds when it says nothing', 'x: y', 29_000, 31_000],
  ])('%s', async (_title, header, within, beyond) => {
    const clock = new TestClock();
    const server = await raw((socket) => socket.write(`${OK}${header}\r\n\r\nok`));
    const upstream = client({ clock });
    await send(upstream, server.port).answer;
    await clock.advance(within);
    await send(upstream, server.port).answer;
    expect(server.opened()).toBe(1);
    await clock.advance(beyond);
    await send(upstream, server.port).answer;
    expect(server.opened()).toBe(2);
  });

  it.each([
    ['after a close that was announced', `${OK}connection: close\r\n\r\nok`],
    ['when it is to be closed at once', `${OK}keep-alive: timeout=1\r\n\r\nok`],
    ['when more came than was asked for', `${OK}\r\nokHTTP/1.1 200 OK\r\n\r\nsmuggled`],
  ])('never %s', async (_title, bytes) => {
    const server = await raw((socket) => socket.write(bytes));
    const upstream = client();
    for (const opened of [1, 2]) {
      const { body, error } = await send(upstream, server.port).answer;
      expect([body.toString(), error, server.opened()]).toEqual(['ok', null, opened]);
      await idle();
    }
  });

  it('never once bytes came that nobody asked for: the next call does not get them as its answer', async () => {
    const server = await raw((socket) => socket.write(`${OK}\r\nok`));
    const upstream = client();
    await send(upstream, server.port).answer;
    for (const socket of server.sockets) socket.write(`${OK}\r\nno`);
    await until(() => server.sockets.size === 0);
    expect((await send(upstream, server.port).answer).body.toString()).toBe('ok');
    expect(server.opened()).toBe(2);
  });

  it('never while the upstream has not read the request that it answered', async () => {
    const server = await raw((socket) => {
      socket.pause();
      socket.write(`${OK}\r\nok`);
    });
    const upstream = client();
    const body = [Buffer.alloc(32 * 1024 * 1024)];
    expect((await send(upstream, server.port, { body }).answer).error).toBeNull();
    expect((await send(upstream, server.port).answer).error).toBeNull();
    expect(server.opened()).toBe(2);
  });

  it('by calls that waited for it, and replaced for them when it breaks', async () => {
    let requests = 0;
    const server = await raw((socket) => {
      if (++requests % 2 === 0) socket.destroy();
      else socket.write(`${OK}\r\nok`);
    });
    const upstream = client({ limits: { connections: 1 } });
    const answers = await Promise.all([1, 2, 3, 4].map(() => send(upstream, server.port).answer));
    expect(answers.filter(({ error }) => error === null).length).toBeGreaterThanOrEqual(2);
    expect(upstream.stats().inFlight).toBe(0);
  });
});

describe('abort', () => {
  it('closes the upstream socket at once in every phase and reports nothing more', async () => {
    const server = await http((request, response) => {
      request.resume();
      if (request.url === '/body' || request.url === '/paused') response.write('x');
    });
    const upstream = client();
    for (const phase of ['/headers', '/body', '/paused', '/connect']) {
      const spent: number[] = [];
      for (let round = 0; round < 15; round++) {
        let settled = false;
        const sent = send(upstream, server.port, { path: phase });
        void sent.answer.then(() => {
          settled = true;
        });
        if (phase !== '/connect') await until(() => server.sockets.size > 0);
        if (phase === '/headers') await new Promise((resolve) => setTimeout(resolve, 5));
        if (phase === '/body' || phase === '/paused') await until(() => sent.bytes() > 0);
        if (phase === '/paused') sent.control.pause();
        const began = performance.now();
        sent.control.abort();
        sent.control.abort();
        sent.control.resume();
        expect(upstream.stats().inFlight).toBe(0);
        if (phase !== '/connect') {
          await until(() => server.sockets.size === 0);
          spent.push(performance.now() - began);
        }
        await new Promise((resolve) => setImmediate(resolve));
        expect(settled).toBe(false);
      }
      // The median: a single round may wait for a busy machine.
      if (phase !== '/connect') expect(spent.sort((a, b) => a - b)[7]).toBeLessThan(100);
    }
  });

  it('drops a call that still waits for a socket without harming the socket', async () => {
    const waiting: ServerResponse[] = [];
    const server = await http((_request, response) => waiting.push(response));
    const upstream = client({ limits: { connections: 1 } });
    const first = send(upstream, server.port, { path: '/1' });
    await until(() => waiting.length === 1);
    const second = send(upstream, server.port, { path: '/2' });
    const third = send(upstream, server.port, { path: '/3' });
    second.control.abort();
    waiting[0]?.end('1');
    expect((await first.answer).body.toString()).toBe('1');
    await until(() => waiting.length === 2);
    waiting[1]?.end('3');
    expect((await third.answer).body.toString()).toBe('3');
    expect(server.opened()).toBe(1);
  });
});

describe('deadlines', () => {
  it('gives up on an upstream that does not answer, and on one that falls silent', async () => {
    const clock = new TestClock();
    const server = await http((request, response) => {
      if (request.url !== '/silent') response.write('x');
    });
    const upstream = client({ clock });
    const timeouts = { headersMs: 1_000, idleMs: 500 };
    const silent = send(upstream, server.port, { path: '/silent' }, { timeouts });
    await until(() => server.sockets.size === 1);
    await clock.advance(990);
    await clock.advance(60);
    expect((await silent.answer).error).toMatchObject({ kind: 'timeout' });
    const idle = send(upstream, server.port, {}, { timeouts });
    await until(() => idle.bytes() === 1);
    await clock.advance(560);
    expect((await idle.answer).error).toMatchObject({ kind: 'upstream_idle' });
    await until(() => server.sockets.size === 0);
  });

  it('does not hold a paused reader against the upstream', async () => {
    const clock = new TestClock();
    const server = await http((_request, response) => response.write('x'));
    const sent = send(
      client({ clock }),
      server.port,
      {},
      { timeouts: { headersMs: 1_000, idleMs: 500 }, onData: (control) => control.pause() },
    );
    await until(() => sent.bytes() === 1);
    await clock.advance(10_000);
    for (const socket of server.sockets) expect(socket.destroyed).toBe(false);
    sent.control.resume();
    await clock.advance(600);
    expect((await sent.answer).error).toMatchObject({ kind: 'upstream_idle' });
  });

  it('bounds the wait for a free socket', async () => {
    const clock = new TestClock();
    const server = await http(() => {});
    const upstream = client({ clock, limits: { connections: 1 } });
    const first = send(upstream, server.port, {}, { timeouts: { headersMs: 60_000, idleMs: 1_000 } });
    await until(() => server.sockets.size === 1);
    const second = send(upstream, server.port, {}, { timeouts: { headersMs: 1_000, idleMs: 1_000 } });
    await clock.advance(1_060);
    expect((await second.answer).error).toMatchObject({ kind: 'timeout' });
    first.control.abort();
  });
});

describe('TLS', () => {
  const cert = fixture('test-server.pem');
  const key = fixture('test-server.key');
  const ca = fixture('test-ca.pem');
  const trusted = 'upstream.example.com,other.example.com,127.0.0.1';

  it('connects to the checked address with the name for SNI, certificate and Host', async () => {
    let sni: string | false | null = null;
    const server = createHttps({ cert, key }, (request, response) => response.end(request.headers.host));
    server.on('secureConnection', (socket) => {
      sni = socket.servername ?? null;
    });
    const { port } = await serve(server);
    const upstream = client({ ca, trusted });
    const named = await send(upstream, port, { origin: `https://upstream.example.com:${port}`, storedCredential: true })
      .answer;
    expect(named.error).toBeNull();
    expect(named.body.toString()).toBe(`upstream.example.com:${port}`);
    expect(sni).toBe('upstream.example.com');
    expect((await send(upstream, port, { origin: `https://127.0.0.1:${port}` }).answer).error).toBeNull();
  });

  it('answers upstream_tls for an unknown authority, another name and a port without TLS', async () => {
    const { port } = await serve(createHttps({ cert, key }, (_request, response) => response.end('ok')));
    const plain = await raw((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    const silent = await raw((socket) => socket.resetAndDestroy());
    for (const [upstream, origin] of [
      [client({ trusted }), `https://upstream.example.com:${port}`],
      [client({ trusted, ca }), `https://other.example.com:${port}`],
      [client({ trusted, ca }), `https://upstream.example.com:${plain.port}`],
      [client({ trusted, ca }), `https://upstream.example.com:${silent.port}`],
    ] as const) {
      const { error } = await send(upstream, port, { origin }).answer;
      expect(error, origin).toMatchObject({ kind: 'upstream_tls' });
    }
  });
});

describe('pools', () => {
  it('keeps sockets apart by organisation and reuses them within one', async () => {
    const server = await http((_request, response) => response.end('ok'));
    const upstream = client();
    for (const organisationId of ['a', 'a', 'b', 'a', 'b']) {
      await send(upstream, server.port, { organisationId }).answer;
      await idle();
    }
    expect(server.opened()).toBe(2);
    expect(upstream.stats()).toEqual({ pools: 2, inFlight: 0 });
  });

  it('closes idle pools to make room, and all of them when unused between two sweeps', async () => {
    const clock = new TestClock();
    const server = await http((_request, response) => response.end('ok'));
    const upstream = client({ clock, limits: { pools: 2 } });
    for (const organisationId of ['a', 'b', 'c', 'd']) await send(upstream, server.port, { organisationId }).answer;
    expect(upstream.stats().pools).toBe(2);
    await until(() => server.sockets.size === 2);
    await clock.advance(61_000);
    expect(upstream.stats().pools).toBe(0);
    await until(() => server.sockets.size === 0);
  });

  it('refuses with 503 when every pool is busy, and when too many calls wait for one', async () => {
    const server = await http(() => {});
    const upstream = client({ limits: { pools: 1, connections: 1, waiting: 1 } });
    const busy = [send(upstream, server.port), send(upstream, server.port)];
    expect((await send(upstream, server.port).answer).error).toMatchObject({
      kind: 'out_of_service',
      retryAfter: 1,
    });
    expect((await send(upstream, server.port, { organisationId: 'other' }).answer).error).toMatchObject({
      kind: 'out_of_service',
    });
    for (const call of busy) call.control.abort();
    expect(upstream.stats().inFlight).toBe(0);
  });

  it('makes room again and again, also by what the caller itself has left', async () => {
    const servers = await Promise.all([1, 2].map(() => http((_request, response) => response.end('ok'))));
    for (const pools of [1, 2]) {
      const upstream = client({ limits: { pools } });
      for (const server of [...servers, ...servers, ...servers])
        expect((await send(upstream, server.port).answer).error).toBeNull();
      expect(upstream.stats().pools).toBe(1);
    }
  });

  it('one organisation that calls many hosts that never answer leaves room for the others', async () => {
    const silent = await Promise.all(Array.from({ length: 3 }, () => http(() => {})));
    const server = await http((_request, response) => response.end('ok'));
    const upstream = client({ limits: { pools: 4 } });
    const [first, second, third] = silent;
    const busy = [first, second].map((one) => send(upstream, one?.port ?? 0, { organisationId: 'a' }));
    expect((await send(upstream, third?.port ?? 0, { organisationId: 'a' }).answer).error).toMatchObject({
      kind: 'out_of_service',
    });
    expect((await send(upstream, server.port, { organisationId: 'b' }).answer).error).toBeNull();
    for (const call of busy) call.control.abort();
    // What is idle makes room, but only what is its own: down to its quarter, because b has come.
    expect((await send(upstream, server.port, { organisationId: 'a' }).answer).error).toBeNull();
    expect([upstream.pools.heldBy('a'), upstream.pools.heldBy('b')]).toEqual([1, 1]);
  });

  it('lets running calls finish on close and takes no more', async () => {
    const waiting: ServerResponse[] = [];
    const server = await http((_request, response) => waiting.push(response));
    const upstream = client();
    const running = send(upstream, server.port);
    await until(() => waiting.length === 1);
    const closing = upstream.close();
    expect((await send(upstream, server.port).answer).error).toMatchObject({ kind: 'out_of_service' });
    waiting[0]?.end('done');
    expect((await running.answer).body.toString()).toBe('done');
    await closing;
    await until(() => server.sockets.size === 0);
  });
});
