import { randomBytes } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import { client, closeAll, closers, http, raw, send, settled, until } from '../../test/support/wire.ts';

afterEach(closeAll);

describe('broken answers', () => {
  it.each<[string, string, string, boolean]>([
    ['something that is not HTTP', 'SSH-2.0-x\r\n\r\n', 'upstream_invalid', true],
    ['a bare line feed head', 'HTTP/1.1 200 OK\ncontent-length: 2\n\nok', 'upstream_invalid', true],
    ['two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok', 'upstream_invalid', true],
    [
      'length and chunks',
      'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok',
      'upstream_invalid',
      true,
    ],
    [
      'a switch of protocols',
      'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n',
      'upstream_invalid',
      true,
    ],
    ['headers of more than 32 KB', `HTTP/1.1 200 OK\r\nx: ${'a'.repeat(33_000)}\r\n\r\n`, 'upstream_invalid', true],
    ['a head that is cut', 'HTTP/1.1 200 OK\r\ncontent-le', 'upstream_invalid', true],
    ['a body shorter than its length', 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nok', 'upstream_cut', true],
    ['chunks without an end', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n', 'upstream_cut', true],
    [
      'a malformed chunk',
      'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n',
      'upstream_invalid',
      true,
    ],
    ['no byte at all', '', 'upstream_unreachable', true],
  ])('answers 502 for %s', async (_title, bytes, kind, close) => {
    const { port } = await raw((socket) => {
      if (close) socket.end(bytes, 'latin1');
      else socket.write(bytes, 'latin1');
    });
    const { error } = await send(client(), port).answer;
    expect(error).toMatchObject({ kind });
  });

  it('answers 502 when nothing listens', async () => {
    const { port } = await http(() => {});
    await closers.pop()?.();
    expect((await send(client(), port).answer).error).toMatchObject({ kind: 'upstream_unreachable' });
  });
});

describe('content codings', () => {
  const text = Buffer.from(
    JSON.stringify({ text: 'abc '.repeat(5000), n: Array.from({ length: 2000 }, (_, k) => k * 7919) }),
  );
  const codings: [string, (data: Buffer) => Buffer][] = [
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
  ];

  function coded(header: string | string[] | undefined, body: Buffer) {
    return http((_request, response: ServerResponse) => {
      if (header !== undefined) response.setHeader('content-encoding', header);
      response.setHeader('content-length', body.length);
      response.end(body);
    });
  }

  it.each(codings)('decodes one %s coding and drops the headers that described it', async (name, encode) => {
    const { port } = await coded(name, encode(text));
    const answer = await send(client(), port).answer;
    expect(answer.error).toBeNull();
    expect(answer.body.equals(text)).toBe(true);
    expect(answer.headers).not.toHaveProperty('content-encoding');
    expect(answer.headers).not.toHaveProperty('content-length');
  });

  it.each(codings)('stops a %s bomb after 64 KB or twenty times its size', async (name, encode) => {
    const bomb = encode(Buffer.alloc(64 * 1024 * 1024));
    const { port } = await coded(name, bomb);
    const sent = send(client(), port);
    expect((await sent.answer).error).toMatchObject({ kind: 'upstream_invalid' });
    expect(sent.bytes()).toBeLessThanOrEqual(Math.max(64 * 1024, bomb.length * 20) + 16 * 1024);
  });

  it.each(['gzip, gzip', 'gzip,br', 'compress', 'zstd', 'x'])('refuses the coding %j', async (header) => {
    const { port } = await coded(header, gzipSync(gzipSync(text)));
    expect((await send(client(), port).answer).error).toMatchObject({ kind: 'upstream_invalid' });
  });

  it('refuses two coding headers, a cut or damaged coding, and data after it', async () => {
    const whole = gzipSync(text);
    const damaged = Buffer.from(whole);
    damaged[20] = (damaged[20] ?? 0) ^ 0xff;
    const cases: [string | string[], Buffer][] = [
      [['gzip', 'gzip'], gzipSync(whole)],
      ['gzip', whole.subarray(0, whole.length - 20)],
      ['gzip', damaged],
      ['gzip', Buffer.concat([whole, Buffer.from('trailing')])],
      ['deflate', Buffer.concat([deflateSync(text), Buffer.from('trailing')])],
      ['br', brotliCompressSync(text).subarray(0, 100)],
    ];
    for (const [header, body] of cases) {
      const { port } = await coded(header, body);
      expect((await send(client(), port).answer).error, String(header)).toMatchObject({ kind: 'upstream_invalid' });
    }
  });

  it('bounds the decoded bytes of an answer', async () => {
    const { port } = await coded('gzip', gzipSync(text));
    const sent = send(client({ limits: { decodedBytes: 1000 } }), port);
    expect((await sent.answer).error).toMatchObject({ kind: 'upstream_invalid' });
    expect(sent.bytes()).toBe(0);
  });
});

describe('backpressure and memory', () => {
  it('holds a 256 MB stream for a reader that stalls, with flat memory, and loses no byte', async () => {
    const total = 256 * 1024 * 1024;
    let written = 0;
    const block = Buffer.alloc(64 * 1024, 0x61);
    const { port } = await http((_request, response) => {
      const write = () => {
        while (written < total) {
          written += block.length;
          if (!response.write(block)) {
            response.once('drain', write);
            return;
          }
        }
        response.end();
      };
      write();
    });
    let stalled = false;
    const sent = send(
      client(),
      port,
      {},
      {
        keep: false,
        onData: (control) => {
          if (stalled) return;
          stalled = true;
          control.pause();
        },
      },
    );
    await sent.head;
    await until(() => stalled);
    const before = process.memoryUsage().rss;
    const held = await settled(() => written);
    expect(sent.bytes()).toBeLessThanOrEqual(256 * 1024);
    expect(held).toBeLessThan(32 * 1024 * 1024);
    expect(process.memoryUsage().rss - before).toBeLessThan(32 * 1024 * 1024);
    sent.control.resume();
    expect((await sent.answer).error).toBeNull();
    expect(sent.bytes()).toBe(total);
    expect(process.memoryUsage().rss - before).toBeLessThan(96 * 1024 * 1024);
  }, 60_000);

  it('pauses a compressed stream too', async () => {
    const random = randomBytes(4 * 1024 * 1024);
    const { port } = await http((_request, response) => {
      response.setHeader('content-encoding', 'gzip');
      response.end(gzipSync(random));
    });
    let paused = false;
    const sent = send(
      client(),
      port,
      {},
      {
        onData: (control) => {
          if (paused) return;
          paused = true;
          control.pause();
          setTimeout(() => control.resume(), 50);
        },
      },
    );
    const { body, error } = await sent.answer;
    expect(error).toBeNull();
    expect(body.equals(random)).toBe(true);
  });
});
