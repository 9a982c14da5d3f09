import { randomBytes } from 'node:crypto';
import { createServer, request as httpRequest, type IncomingMessage, type OutgoingHttpHeaders } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type Clock, systemClock, TestClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { errorStatus } from '../operations/dialects/errors.ts';
import { BodyBudget } from './body-budget.ts';
import { readBody } from './read-body.ts';

interface Result {
  body: Buffer | null;
  error: SluiceError | null;
}

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** A server that reads bodies with `readBody` and tells what it got. */
async function serve(limit: number, clock: Clock = systemClock, budget?: BodyBudget, holder = '') {
  const results: Result[] = [];
  const waiting: ((result: Result) => void)[] = [];
  const requests: IncomingMessage[] = [];
  const server = createServer(async (request, response) => {
    requests.push(request);
    const result: Result = { body: null, error: null };
    try {
      result.body = await readBody(request, {
        limit,
        clock,
        holder,
        ...(budget ? { budget } : {}),
      });
      response.end(String(result.body.length));
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
      result.error = error;
      response.writeHead(errorStatus(error), { connection: 'close' }).end(error.message);
    }
    const next = waiting.shift();
    if (next) next(result);
    else results.push(result);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return {
    port: (server.address() as AddressInfo).port,
    requests,
    next: () =>
      new Promise<Result>((resolve) => {
        const ready = results.shift();
        if (ready) resolve(ready);
        else waiting.push(resolve);
      }),
  };
}

function post(port: number, chunks: readonly Buffer[], headers: OutgoingHttpHeaders): Promise<number> {
  return new Promise((resolve) => {
    const request = httpRequest({ port, host: '127.0.0.1', method: 'POST', headers, agent: false }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode ?? 0));
    });
    request.on('error', () => resolve(0));
    void (async () => {
      for (const chunk of chunks) {
        request.write(chunk);
        await new Promise((done) => setImmediate(done));
      }
      request.end();
    })();
  });
}

function dial(port: number, text: string): Promise<Socket> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(text);
      resolve(socket);
    });
    socket.on('error', () => {});
    closers.push(() => socket.destroy());
  });
}

const until = async (condition: () => boolean) => {
  const end = performance.now() + 5_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error('condition never came true');
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
};

it('reads a large body 256 KB at a time, however fast it comes, and the whole of it', async () => {
  const budget = new BodyBudget(8 * 1024 * 1024);
  const take = vi.spyOn(budget.turns, 'take');
  const { port, next } = await serve(8 * 1024 * 1024, systemClock, budget, 'sender');
  const sent = randomBytes(4 * 1024 * 1024);
  const [status, { body }] = await Promise.all([post(port, [sent], { 'content-length': sent.length }), next()]);
  expect(status).toBe(200);
  expect(body?.equals(sent)).toBe(true);
  // A chunk more than was asked for may come with each.
  expect(take.mock.calls.length).toBeGreaterThanOrEqual(10);
  expect(new Set(take.mock.calls.map(([holder]) => holder))).toEqual(new Set(['sender']));
});

describe('readBody', () => {
  it('gives the bytes that were sent, by length or in chunks, in any pieces', async () => {
    const { port, next } = await serve(10_000_000);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 2000 }), { maxLength: 6 }),
        fc.boolean(),
        async (parts, chunked) => {
          const chunks = parts.map((part) => Buffer.from(part)).filter((part) => part.length > 0);
          const whole = Buffer.concat(chunks);
          const [status, { body }] = await Promise.all([
            post(port, chunks, chunked ? { 'transfer-encoding': 'chunked' } : { 'content-length': whole.length }),
            next(),
          ]);
          expect(status).toBe(200);
          expect(body?.equals(whole)).toBe(true);
        },
      ),
      { numRuns: 40 },
    );
    const large = Buffer.alloc(9_000_000, 7);
    for (const headers of [{ 'content-length': large.length }, { 'transfer-encoding': 'chunked' }]) {
      const [, { body }] = await Promise.all([post(port, [large], headers), next()]);
      expect(body?.equals(large)).toBe(true);
    }
  });

  it('accepts the limit and refuses one byte more with 413, by length and in chunks', async () => {
    const { port, next } = await serve(100_000);
    for (const chunked of [false, true]) {
      for (const [size, ok] of [
        [100_000, true],
        [100_001, false],
      ] as const) {
        const body = Buffer.alloc(size);
        const headers = chunked ? { 'transfer-encoding': 'chunked' } : { 'content-length': size };
        const [status, result] = await Promise.all([post(port, [body], headers), next()]);
        expect(status).toBe(ok ? 200 : 413);
        if (!ok)
          expect(result.error).toMatchObject({
            kind: 'too_large',
            message: expect.stringContaining('100000 bytes'),
          });
      }
    }
  });

  it('refuses a declared length over the limit before the body comes', async () => {
    const { port, next } = await serve(1000);
    await dial(port, 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n');
    expect((await next()).error).toMatchObject({ kind: 'too_large' });
  });

  it('cuts off a client that goes on sending after the refusal', async () => {
    const { port, next } = await serve(1000);
    const socket = await dial(port, 'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n');
    let answer = '';
    socket.on('data', (data) => {
      answer += data.toString();
    });
    const chunk = `10000\r\n${'a'.repeat(65_536)}\r\n`;
    let sent = 0;
    const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()));
    const pump = () => {
      while (!socket.destroyed && sent < 64 * 1024 * 1024) {
        sent += chunk.length;
        if (!socket.write(chunk)) return void socket.once('drain', pump);
      }
    };
    pump();
    expect((await next()).error).toMatchObject({ kind: 'too_large' });
    await closed;
    expect(sent).toBeLessThan(16 * 1024 * 1024);
    expect(answer).toContain('413');
  });

  it('does not believe a large declared length: memory follows what arrives', async () => {
    const { port, next, requests } = await serve(32 * 1024 * 1024);
    const before = process.memoryUsage().arrayBuffers;
    const sockets = await Promise.all(
      Array.from({ length: 50 }, () =>
        dial(port, `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${32 * 1024 * 1024}\r\n\r\nabc`),
      ),
    );
    await until(() => requests.length === 50);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(16 * 1024 * 1024);
    for (const socket of sockets) socket.destroy();
    for (let k = 0; k < 50; k++) expect((await next()).error).toMatchObject({ kind: 'client_closed' });
  });

  it('rejects at once when the client goes away', async () => {
    const { port, next } = await serve(1000);
    for (const head of [
      'Content-Length: 100',
      'Transfer-Encoding: chunked',
      'Content-Length: 100\r\nContent-Encoding: gzip',
    ]) {
      const socket = await dial(port, `POST / HTTP/1.1\r\nHost: a\r\n${head}\r\n\r\n`);
      await new Promise((resolve) => setTimeout(resolve, 10));
      const began = performance.now();
      socket.resetAndDestroy();
      expect((await next()).error).toMatchObject({ kind: 'client_closed' });
      // Far from the 10 s after which a body that is slow is given up.
      expect(performance.now() - began).toBeLessThan(5_000);
    }
  });

  it('gives up on a body slower than 1 KB/s after 10 s, and waits for one that keeps the rate', async () => {
    const clock = new TestClock();
    const { port, next, requests } = await serve(1_000_000, clock);
    const slow = await dial(port, 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n');
    slow.write('a'.repeat(9_000));
    await until(() => requests.length === 1);
    await new Promise((resolve) => setTimeout(resolve, 10));
    await clock.advance(9_900);
    await clock.advance(200);
    expect((await next()).error).toMatchObject({ kind: 'timeout' });

    const steady = await dial(port, 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n');
    await until(() => requests.length === 2);
    for (let k = 0; k < 5; k++) {
      steady.write('a'.repeat(12_000));
      await new Promise((resolve) => setTimeout(resolve, 10));
      await clock.advance(k < 4 ? 5_000 : 0);
    }
    expect((await next()).body).toHaveLength(60_000);
  });

  it('gives nothing for a request without a body', async () => {
    const { port, next } = await serve(10);
    for (const head of ['', 'Content-Length: 0\r\n']) {
      await dial(port, `POST / HTTP/1.1\r\nHost: a\r\n${head}\r\n`);
      expect((await next()).body).toHaveLength(0);
    }
  });
});

/** With one byte changed, counted from the end. */
function changed(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[copy.length + at] = (copy[copy.length + at] as number) ^ 1;
  return copy;
}

describe('a body that comes too slowly', () => {
  /** What becomes of a body that begins with `first` bytes and goes on with `each` a second. */
  async function outcome(first: number, each: number, seconds: number): Promise<Result | null> {
    const clock = new TestClock();
    const { port, next, requests } = await serve(2_000_000, clock);
    const socket = connect(port, '127.0.0.1');
    closers.push(() => socket.destroy());
    socket.on('error', () => {});
    socket.write('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1900000\r\n\r\n');
    socket.write(Buffer.alloc(first));
    let result: Result | null = null;
    void next().then((got) => {
      result = got;
    });
    let sent = first;
    for (let second = 0; second < seconds && result === null; second++) {
      // The server has everything that was sent.
      await until(() => (requests[0]?.socket.bytesRead ?? 0) >= sent);
      await clock.advance(1_000);
      if (each > 0) socket.write(Buffer.alloc(each));
      sent += each;
    }
    return result;
  }

  it('is 408 when much came at once and nothing since', async () => {
    expect((await outcome(1_800_000, 0, 25))?.error).toMatchObject({ kind: 'timeout' });
  });

  it('is 408 when much came at once and a little since', async () => {
    expect((await outcome(1_800_000, 900, 25))?.error).toMatchObject({ kind: 'timeout' });
  });

  it('is read for as long as it keeps the rate', async () => {
    expect(await outcome(1, 1_100, 60)).toBeNull();
  });
});

describe('content coding of requests', () => {
  const plain = Buffer.from(
    JSON.stringify({ messages: Array.from({ length: 500 }, (_, k) => ({ content: `${k * 7919}` })) }),
  );

  it('reads one gzip, by length and in chunks', async () => {
    const { port, next } = await serve(1_000_000);
    const coded = gzipSync(plain);
    for (const headers of [{ 'content-length': coded.length }, { 'transfer-encoding': 'chunked' }]) {
      const halves = [coded.subarray(0, 50), coded.subarray(50)];
      const [status, { body }] = await Promise.all([
        post(port, halves, { ...headers, 'content-encoding': 'gzip' }),
        next(),
      ]);
      expect(status).toBe(200);
      expect(body?.equals(plain)).toBe(true);
    }
  });

  it('reads a gzip that comes byte by byte, with every optional field of its header', async () => {
    const { port, next } = await serve(1_000_000);
    const text = Buffer.from('{"model":"m"}');
    const coded = gzipSync(text);
    const header = Buffer.from([0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 0, 0, 0, 0, 0, 255, 3, 0, 1, 2, 3, 110, 0, 99, 0, 7, 7]);
    for (const body of [coded, Buffer.concat([header, coded.subarray(10)])]) {
      const bytes = [...body].map((byte) => Buffer.from([byte]));
      const [status, read] = await Promise.all([
        post(port, bytes, { 'transfer-encoding': 'chunked', 'content-encoding': 'gzip' }),
        next(),
      ]);
      expect([status, read.body?.toString()]).toEqual([200, text.toString()]);
    }
  });

  it.each<[string, Buffer, string, number]>([
    ['a bomb', gzipSync(Buffer.alloc(10_000_000)), 'gzip', 400],
    ['a body that decodes past the limit', gzipSync(Buffer.from(randomBytes(600_000).toString('hex'))), 'gzip', 413],
    ['gzip of gzip under two codings', gzipSync(gzipSync(plain)), 'gzip, gzip', 400],
    ['a cut stream', gzipSync(plain).subarray(0, 300), 'gzip', 400],
    ['a damaged stream', Buffer.from('not gzip at all'), 'gzip', 400],
    ['trailing data', Buffer.concat([gzipSync(plain), Buffer.from('x')]), 'gzip', 400],
    ['two members', Buffer.concat([gzipSync(plain), gzipSync(plain)]), 'gzip', 400],
    ['an empty member before another', Buffer.concat([gzipSync(''), gzipSync(plain)]), 'gzip', 400],
    ['an empty member behind another', Buffer.concat([gzipSync(plain), gzipSync('')]), 'gzip', 400],
    ['zeros behind it', Buffer.concat([gzipSync(plain), Buffer.alloc(4)]), 'gzip', 400],
    ['a wrong checksum', changed(gzipSync(plain), -8), 'gzip', 400],
    ['a wrong length', changed(gzipSync(plain), -4), 'gzip', 400],
    [
      'a header without end',
      Buffer.concat([gzipSync(plain).subarray(0, 3), Buffer.from([8]), Buffer.alloc(6_000, 65)]),
      'gzip',
      400,
    ],
    ['brotli', plain, 'br', 400],
    ['deflate', plain, 'deflate', 400],
    ['an unknown coding', plain, 'x', 400],
    ['identity twice', plain, 'identity, identity', 400],
  ])('refuses %s', async (_title, body, coding, expected) => {
    const { port, next } = await serve(1_000_000);
    const [status, { error }] = await Promise.all([
      post(port, [body], { 'content-length': body.length, 'content-encoding': coding }),
      next(),
    ]);
    expect(error && errorStatus(error)).toBe(expected);
    expect(status).toBe(expected);
  });
});

describe('the budget of all bodies', () => {
  it('an organisation that sends large bodies and rests leaves room for the bodies of another', async () => {
    const budget = new BodyBudget(1_000_000);
    const [greedy, other] = [
      await serve(2_000_000, systemClock, budget, 'greedy'),
      await serve(2_000_000, systemClock, budget, 'other'),
    ];
    const half = Buffer.alloc(240_000);
    for (let n = 0; n < 8; n++) {
      const socket = connect(greedy.port, '127.0.0.1');
      closers.push(() => socket.destroy());
      socket.on('error', () => {});
      socket.write('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 250000\r\n\r\n');
      socket.write(half);
    }
    // Six of the eight are refused: no more than half of the bound is theirs.
    for (let n = 0; n < 6; n++) expect((await greedy.next()).error?.kind).toBe('out_of_service');
    expect(budget.shares.heldBy('greedy')).toBeLessThanOrEqual(500_000);
    const status = post(other.port, [half], { 'content-length': half.length });
    expect((await other.next()).body?.length).toBe(half.length);
    expect(await status).toBe(200);
  });

  const large = randomBytes(400_000);

  it('8.1 refuses a body that does not fit beside the others, declared, chunked or compressed, with 503', async () => {
    const budget = new BodyBudget(2_000_000);
    const { port, next } = await serve(2_000_000, systemClock, budget);
    for (let n = 0; n < 2; n++) {
      post(port, [large], { 'content-length': large.length });
      expect((await next()).body?.length).toBe(large.length);
    }
    expect(budget.held).toBe(2 * large.length);
    for (const [body, headers] of [
      [large, { 'content-length': large.length }],
      [large, { 'transfer-encoding': 'chunked' }],
      [gzipSync(large), { 'content-encoding': 'gzip', 'transfer-encoding': 'chunked' }],
    ] as const) {
      const status = post(port, [body], headers);
      expect((await next()).error?.kind).toBe('out_of_service');
      expect(await status).toBe(503);
      expect(budget.held).toBe(2 * large.length);
    }
    budget.release('', large.length);
    post(port, [large], { 'transfer-encoding': 'chunked' });
    expect((await next()).error).toBeNull();
  });

  it('8.1 does not count small bodies, and gives back what a body took that never became whole', async () => {
    const budget = new BodyBudget(600_000);
    const { port, next } = await serve(2_000_000, systemClock, budget);
    post(port, [Buffer.alloc(60_000)], { 'content-length': 60_000 });
    expect((await next()).body?.length).toBe(60_000);
    expect(budget.held).toBe(0);
    const socket = connect(port, '127.0.0.1');
    socket.write('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 290000\r\n\r\n');
    socket.write(Buffer.alloc(250_000), () => setImmediate(() => socket.destroy()));
    socket.on('error', () => {});
    expect((await next()).error?.kind).toBe('client_closed');
    expect(budget.held).toBe(0);
  });
});

describe('the memory of a large body', () => {
  it('is that of the whole alone: what it came in is freed at once', async () => {
    const sent = randomBytes(5_000_000);
    const chunks: Buffer[] = [];
    const whole = new Promise<Buffer>((resolve) => {
      const server = createServer((request, response) => {
        request.on('data', (chunk: Buffer) => chunks.push(chunk));
        void readBody(request, { limit: 10_000_000, clock: systemClock }).then((body) => {
          response.end();
          resolve(body);
        });
      });
      closers.push(() => {
        server.closeAllConnections();
        return new Promise((closed) => server.close(closed));
      });
      server.listen(0, '127.0.0.1', () => {
        const { port } = server.address() as AddressInfo;
        const call = httpRequest({ port, method: 'POST', headers: { 'content-length': 5_000_000 } });
        call.on('response', (response) => response.resume());
        call.end(sent);
      });
    });
    expect((await whole).equals(sent)).toBe(true);
    expect(chunks.length).toBeGreaterThan(10);
    expect(chunks.reduce((bytes, { buffer }) => bytes + buffer.byteLength, 0)).toBe(0);
  });
});
