import { createServer, get, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { borrowBuffer, returnBuffer } from './buffer-pool.ts';
import { endParts, endPartsInTurns, startParts, writePart } from './response-body.ts';

let server: Server | null = null;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
  server = null;
});

/** What the client gets for one or two requests on one connection, as it stands on the wire. */
async function wire(answer: (response: ServerResponse) => void, request: string, until: RegExp): Promise<string> {
  server = createServer((_request, response) => answer(response));
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.write(request);
  let text = '';
  await new Promise<void>((resolve) => {
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      if (until.test(text)) resolve();
    });
    socket.on('close', () => resolve());
  });
  socket.destroy();
  return text;
}

async function fetched(answer: (response: ServerResponse) => void): Promise<Buffer> {
  server = createServer((_request, response) => answer(response));
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  return Buffer.from(await response.arrayBuffer());
}

const GET = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n';
const END = /\r\n0\r\n\r\n/;

describe('a large body', () => {
  const MB = 1024 * 1024;

  it('is written in slices, each in a turn of the event loop, and arrives whole', async () => {
    const body = [Buffer.alloc(1.5 * MB, 'a'), Buffer.from('b'), Buffer.alloc(MB, 'c')];
    const slices: number[] = [];
    let turns = 0;
    const given = await fetched((response) => {
      const write = response.write.bind(response) as (...parts: unknown[]) => boolean;
      response.write = ((part: Buffer, ...rest: unknown[]) => {
        slices.push(part.length);
        return write(part, ...rest);
      }) as typeof response.write;
      response.writeHead(200, { 'content-length': 2.5 * MB + 1 });
      const written = endPartsInTurns(response, body, null, (work) => {
        turns += 1;
        setImmediate(work);
      });
      expect(written).toBeInstanceOf(Promise);
    });
    expect(given.equals(Buffer.concat(body))).toBe(true);
    expect(Math.max(...slices)).toBeLessThanOrEqual(128 * 1024);
    expect(turns).toBe(slices.length);
  });

  it('is not waited for when its client has gone', async () => {
    let written: Promise<void> | undefined;
    const began = new Promise<void>((resolve) => {
      server = createServer((_request, response) => {
        written = endPartsInTurns(response, [Buffer.alloc(64 * MB)], null, setImmediate);
        resolve();
      });
    });
    await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
    const address = server?.address();
    if (typeof address !== 'object' || address === null) throw new Error('no address');
    const socket = connect(address.port, '127.0.0.1');
    socket.pause();
    socket.write(GET);
    await began;
    socket.destroy();
    await expect(written).resolves.toBeUndefined();
  });
});

describe('the body of a streamed answer', () => {
  it('is framed as chunks, each in one piece, and the connection is kept', async () => {
    const text = await wire(
      (response) => {
        startParts(response, 200, ['content-type', 'text/event-stream']);
        writePart(response, Buffer.from('data: one\n\n'));
        endParts(response, [Buffer.from('data: two\n\n')]);
      },
      GET + GET,
      /0\r\n\r\n[\s\S]*\r\n0\r\n\r\n/,
    );
    const answers = text.split(/(?=HTTP\/1\.1)/);
    expect(answers).toHaveLength(2);
    for (const one of answers) {
      expect(one).toMatch(/transfer-encoding: chunked/i);
      expect(one.endsWith('\r\n\r\nb\r\ndata: one\n\n\r\nb\r\ndata: two\n\n\r\n0\r\n\r\n')).toBe(true);
    }
  });

  it('any parts arrive as they were written, small and large, empty ones too', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: 40_000 }), { maxLength: 6 }),
        fc.array(fc.integer({ min: 0, max: 40_000 }), { maxLength: 3 }),
        async (sizes, ends) => {
          const parts = sizes.map((size, i) => Buffer.alloc(size, 65 + i));
          const last = ends.map((size, i) => Buffer.alloc(size, 97 + i));
          const got = await fetched((response) => {
            startParts(response, 200, ['content-type', 'application/octet-stream']);
            for (const part of parts) writePart(response, part);
            endParts(response, last);
          });
          expect(got.equals(Buffer.concat([...parts, ...last]))).toBe(true);
          server?.closeAllConnections();
          server?.close();
        },
      ),
      { numRuns: 60 },
    );
  });

  it('has no frames when its length was declared, nor for HTTP/1.0, nor for HEAD', async () => {
    const answer = (headers: string[]) => (response: ServerResponse) => {
      startParts(response, 200, headers);
      writePart(response, Buffer.from('ab'));
      endParts(response, [Buffer.from('cd')]);
    };
    expect(await wire(answer(['content-length', '4']), GET, /abcd/)).toMatch(/\r\n\r\nabcd$/);
    server?.close();
    expect(await wire(answer([]), 'GET / HTTP/1.0\r\nhost: a\r\n\r\n', /abcd/)).toMatch(/\r\n\r\nabcd$/);
    server?.close();
    const head = await wire(answer([]), 'HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n', /never/);
    expect(head).toMatch(/\r\n\r\n$/);
    expect(head.split('\r\n\r\n')[1]).toBe('');
  });

  it('cut before its end it lacks the last chunk, so that a client sees it is not whole', async () => {
    const text = await wire(
      (response) => {
        startParts(response, 200, ['content-type', 'text/event-stream']);
        writePart(response, Buffer.from('data: one\n\n'));
        setImmediate(() => response.destroy());
      },
      GET,
      END,
    );
    expect(text).toContain('data: one');
    expect(text).not.toMatch(END);
  });
});

describe('lent memory', () => {
  /** Far more than the system takes of a client that does not read. */
  const BACKLOG = 24 * 1024 * 1024;
  const LENT = 64 * 1024;

  it.each([
    ['a part of a stream', true, writePart],
    ['a part of an answer with a length', false, writePart],
    ['the end of a stream', true, (response: ServerResponse, part: Buffer) => endParts(response, [part])],
    [
      'the end of an answer with a length',
      false,
      (response: ServerResponse, part: Buffer) => endParts(response, [part]),
    ],
  ])('is used again only when the system has it: %s', async (_, streamed, write) => {
    let memory: Buffer | null = null;
    server = createServer((_request, response) => {
      if (streamed) startParts(response, 200, []);
      else response.writeHead(200, { 'content-length': BACKLOG + LENT });
      writePart(response, Buffer.alloc(BACKLOG, 'a'));
      memory = borrowBuffer(LENT);
      memory.fill('b');
      write(response, memory);
      returnBuffer(memory);
      // The next borrower of this memory may write to it.
      const next = borrowBuffer(LENT);
      next.fill('x');
      returnBuffer(next);
      if (!response.writableEnded) endParts(response, []);
    });
    const { port } = await new Promise<AddressInfo>((resolve) => {
      server?.listen(0, '127.0.0.1', () => resolve(server?.address() as AddressInfo));
    });
    const answer = await new Promise<IncomingMessage>((resolve) => {
      get(`http://127.0.0.1:${port}/`, { agent: false }, resolve);
    });
    const parts: Buffer[] = [];
    for await (const part of answer) parts.push(part as Buffer);
    const got = Buffer.concat(parts);
    expect(got.length).toBe(BACKLOG + LENT);
    expect(got.subarray(BACKLOG).equals(Buffer.alloc(LENT, 'b'))).toBe(true);
  });
});
