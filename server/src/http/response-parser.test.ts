import { request as nodeRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ResponseFault, ResponseParser, type ResponseSink } from './response-parser.ts';

interface Read {
  status: number;
  headers: string[];
  body: string;
  interim: number;
  ended: boolean;
  reusable: boolean;
  fault: string | null;
}

/** What a parser makes of pieces; `full` after each piece of body when the reader is slow. */
function parse(
  pieces: readonly Buffer[],
  options: { headOnly?: boolean; slow?: boolean; close?: boolean; pieceBytes?: number; sizes?: number[] } = {},
): Read {
  const out: Read = { status: 0, headers: [], body: '', interim: 0, ended: false, reusable: false, fault: null };
  let full = false;
  const sink: ResponseSink = {
    onInterim: () => void out.interim++,
    onHead: (status, headers) => {
      out.status = status;
      out.headers = headers;
    },
    onData: (chunk) => {
      options.sizes?.push(chunk.length);
      out.body += chunk.toString('latin1');
      full = options.slow === true;
    },
    onEnd: () => {
      out.ended = true;
    },
    get full() {
      return full;
    },
    pieceBytes: options.pieceBytes ?? Number.POSITIVE_INFINITY,
  };
  const parser = new ResponseParser(sink);
  parser.begin(options.headOnly === true);
  try {
    for (const piece of pieces) {
      parser.push(piece);
      while (parser.waiting) {
        full = false;
        parser.more();
      }
    }
    if (options.close) parser.close();
  } catch (error) {
    if (!(error instanceof ResponseFault)) throw error;
    out.fault = error.message;
  }
  out.reusable = out.ended && parser.reusable;
  return out;
}

const whole = (text: string, options = {}) => parse([Buffer.from(text, 'latin1')], options);
const bytewise = (text: string, options = {}) =>
  parse(
    [...Buffer.from(text, 'latin1')].map((byte) => Buffer.from([byte])),
    options,
  );

const CHUNKED =
  'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n' +
  '5;name="a b"\r\nhello\r\n00b\r\n, world: \r\n\r\n1\r\n!\r\n0\r\ntrailer: 1\r\nother: 2\r\n\r\n';

describe('a reader that takes so many bytes at once', () => {
  it('gets no larger pieces, and all of the answer', () => {
    const sizes: number[] = [];
    const text = 'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n';
    for (const [head, body] of [
      [text, 'a'.repeat(100)],
      ['HTTP/1.1 200 OK\r\n\r\n', 'b'.repeat(100)],
    ] as const) {
      const read = whole(head + body, { pieceBytes: 16, close: true, slow: true, sizes });
      expect(read).toMatchObject({ body, fault: null });
    }
    expect(Math.max(...sizes)).toBe(16);
    expect(whole(CHUNKED, { pieceBytes: 2 })).toEqual(whole(CHUNKED));
  });
});

describe('an answer', () => {
  it('reads the same whole, byte by byte, cut anywhere, and by a reader that is full after each piece', () => {
    const expected = {
      status: 200,
      headers: ['content-type', 'text/plain', 'transfer-encoding', 'chunked'],
      body: 'hello, world: \r\n!',
      interim: 1,
      ended: true,
      reusable: true,
      fault: null,
    };
    const text = CHUNKED;
    expect(whole(text)).toEqual(expected);
    expect(bytewise(text)).toEqual(expected);
    expect(whole(text, { slow: true })).toEqual(expected);
    expect(bytewise(text, { slow: true })).toEqual(expected);
    for (let at = 1; at < text.length; at++) {
      const cut = [Buffer.from(text.slice(0, at), 'latin1'), Buffer.from(text.slice(at), 'latin1')];
      expect(parse(cut), String(at)).toEqual(expected);
      expect(parse(cut, { slow: true }), String(at)).toEqual(expected);
    }
  });

  it.each<[string, string, object, Partial<Read>]>([
    ['a length', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok', {}, { body: 'ok', ended: true, reusable: true }],
    ['no length', 'HTTP/1.1 200 OK\r\n\r\nok', {}, { body: 'ok', ended: false }],
    [
      'no length, and the end',
      'HTTP/1.1 200 OK\r\n\r\nok',
      { close: true },
      { body: 'ok', ended: true, reusable: false },
    ],
    ['length 0', 'HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n', {}, { ended: true, reusable: true, body: '' }],
    ['204', 'HTTP/1.1 204 No Content\r\n\r\n', {}, { ended: true, reusable: true, body: '' }],
    ['304 with a length', 'HTTP/1.1 304 X\r\ncontent-length: 9\r\n\r\n', {}, { ended: true, reusable: true, body: '' }],
    ['HEAD', 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n', { headOnly: true }, { ended: true, reusable: true }],
    [
      'close',
      'HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 0\r\n\r\n',
      {},
      { ended: true, reusable: false },
    ],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n', {}, { ended: true, reusable: false }],
    [
      'close among other options',
      'HTTP/1.1 200 OK\r\nconnection: x-hop, Close\r\ncontent-length: 0\r\n\r\n',
      {},
      { ended: true, reusable: false },
    ],
    [
      'HTTP/1.0 that stays',
      'HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n',
      {},
      { ended: true, reusable: true },
    ],
    [
      'bytes behind it',
      'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200',
      {},
      { body: 'ok', reusable: false },
    ],
    [
      'an empty chunked body',
      'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
      {},
      { ended: true, body: '' },
    ],
    [
      'spaces around a value',
      'HTTP/1.1 200 OK\r\nX:  \t a b \t\r\ncontent-length:0\r\n\r\n',
      {},
      { headers: ['x', 'a b', 'content-length', '0'] },
    ],
  ])('with %s', (_title, text, options, expected) => {
    expect(whole(text, options)).toMatchObject({ fault: null, ...expected });
    expect(bytewise(text, options)).toMatchObject({ fault: null, ...expected });
  });

  it.each([
    ['another protocol', 'SSH-2.0\r\n\r\n'],
    ['HTTP/2', 'HTTP/2 200\r\n\r\n'],
    ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
    ['a bare line feed', 'HTTP/1.1 200 OK\ncontent-length: 0\r\n\r\n'],
    ['a bare carriage return', 'HTTP/1.1 200 OK\r\na: b\rc: d\r\n\r\n'],
    ['a folded line', 'HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n'],
    ['a space before the colon', 'HTTP/1.1 200 OK\r\ncontent-length : 0\r\n\r\n'],
    ['a header without a name', 'HTTP/1.1 200 OK\r\n: 0\r\n\r\n'],
    ['NUL in a value', 'HTTP/1.1 200 OK\r\na: \0\r\n\r\n'],
    ['a signed length', 'HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok'],
    ['a list of lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nok'],
    ['the same length twice', 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok'],
    ['a length that is no number of ours', `HTTP/1.1 200 OK\r\ncontent-length: ${'9'.repeat(16)}\r\n\r\nok`],
    [
      'length and chunks',
      'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    ],
    ['another transfer coding', 'HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n'],
    ['chunked twice', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n'],
    ['chunks with HTTP/1.0', 'HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'],
    ['bare line feeds only', 'HTTP/1.1 200 OK\ncontent-length: 2\n\nok'],
    ['a bare line feed behind a good line', 'HTTP/1.1 200 OK\r\na: b\nc: d'],
    ['more than 200 headers', `HTTP/1.1 200 OK\r\n${'a: b\r\n'.repeat(201)}\r\n`],
    ['an upgrade', 'HTTP/1.1 101 Switching Protocols\r\n\r\n'],
    ['a chunk size that is no number', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n'],
    ['an empty chunk size', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\r\n'],
    ['a chunk size with a prefix', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x2\r\nok\r\n'],
    ['a huge chunk size', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffff\r\n'],
    ['a chunk longer than its size', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nokay\r\n'],
    ['a chunk ended by a line feed', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\nok\r\n'],
    ['a line feed in an extension', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;a\nok\r\n'],
    ['an endless extension', `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;${'a'.repeat(5000)}`],
    ['endless headers', `HTTP/1.1 200 OK\r\n${'a: b\r\n'.repeat(6000)}`],
    ['endless trailers', `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n${'a: b\r\n'.repeat(6000)}`],
  ])('is refused for %s, whole and byte by byte', (_title, text) => {
    expect(whole(text).fault).toMatch(/^(has|uses|does not|switches)/);
    expect(bytewise(text).fault).toMatch(/^(has|uses|does not|switches)/);
    expect(whole(text).ended).toBe(false);
  });
});

describe('beside the client of Node.js', () => {
  let server: ReturnType<typeof createServer>;
  let bytes: Buffer = Buffer.alloc(0);
  beforeAll(async () => {
    server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.end(bytes));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterAll(() => new Promise((resolve) => server.close(resolve)));

  /** Status and body as Node reads them; null when it refuses the answer or finds it cut. */
  const byNode = (): Promise<{ status: number; body: string } | null> =>
    new Promise((resolve) => {
      const { port } = server.address() as AddressInfo;
      const request = nodeRequest({ port, host: '127.0.0.1', agent: false }, (response) => {
        let body = '';
        response.setEncoding('latin1');
        response.on('data', (text: string) => {
          body += text;
        });
        response.on('end', () => resolve(response.complete ? { status: response.statusCode ?? 0, body } : null));
        response.on('error', () => resolve(null));
      });
      request.on('error', () => resolve(null));
      request.on('upgrade', (_response, socket) => {
        socket.destroy();
        resolve(null);
      });
      request.end();
    });

  const line = fc.oneof(
    fc.constantFrom(
      'content-length: 5',
      'Content-Length: 3',
      'transfer-encoding: chunked',
      'connection: close',
      'x: y',
      ' folded',
      'bad name: x',
      'keep-alive: timeout=5',
      'x:\u00e9',
    ),
    fc.string({ maxLength: 12 }).map((text) => `x-${text}`),
  );
  const body = fc.oneof(
    fc.constantFrom('hello', '5\r\nhello\r\n0\r\n\r\n', '3\r\nabc\r\n2;q=1\r\nde\r\n0\r\nt: 1\r\n\r\n', '', '5\r\nhel'),
    fc.string({ maxLength: 20 }),
  );
  const answer = fc
    .tuple(
      fc.constantFrom(
        'HTTP/1.1 200 OK',
        'HTTP/1.1 404',
        'HTTP/1.0 200 OK',
        'HTTP/1.1 204 X',
        'HTTP/1.1 99 X',
        'http/1.1 200 OK',
      ),
      fc.array(line, { maxLength: 4 }),
      body,
    )
    .map(([status, lines, rest]) => Buffer.from(`${[status, ...lines].join('\r\n')}\r\n\r\n${rest}`, 'latin1'));

  it('never finds an answer whole that Node refuses, and reads the same body where both accept', async () => {
    await fc.assert(
      fc.asyncProperty(answer, fc.nat(), async (generated, cut) => {
        bytes = generated;
        const at = cut % (generated.length + 1);
        const ours = parse(
          [generated.subarray(0, at), generated.subarray(at)].filter(({ length }) => length > 0),
          {
            close: true,
          },
        );
        const theirs = await byNode();
        if (ours.ended && theirs !== null) {
          expect({ status: ours.status, body: ours.body }).toEqual(theirs);
        }
        // Node refuses whatever follows a whole answer on a connection that it closes; we do not use the connection again.
        if (ours.reusable) expect(theirs).not.toBeNull();
      }),
      { numRuns: 1500 },
    );
  });
});
