import { once } from 'node:events';
import { request } from 'node:http';
import { connect } from 'node:net';
import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import { errorStatus } from '../../src/operations/dialects/errors.ts';
import { openUpload } from '../../src/training/upload.ts';
import { startLargeUploads, type Way } from '../support/large-upload.ts';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const LIMITS = { maxUploadBytes: 1000, maxBatchBytes: 500 };
const TYPE = 'multipart/form-data; boundary=b';

const part = (head: string, body: string | Buffer) =>
  Buffer.concat([
    Buffer.from(`--b\r\ncontent-disposition: form-data; ${head}\r\n\r\n`),
    Buffer.from(body),
    Buffer.from('\r\n'),
  ]);
const purpose = (value = 'fine-tune') => part('name="purpose"', value);
const file = (body: string | Buffer = 'abc', head = 'name="file"; filename="rows.jsonl"') => part(head, body);
const form = (...parts: readonly Buffer[]) => Buffer.concat([...parts, Buffer.from('--b--\r\n')]);

function source(bytes: Buffer, sizes: readonly number[] = []): Readable {
  const pieces: Buffer[] = [];
  let at = 0;
  for (const size of sizes) {
    if (at >= bytes.length) break;
    pieces.push(bytes.subarray(at, at + size));
    at += size;
  }
  pieces.push(bytes.subarray(at));
  return Readable.from(
    pieces.filter((piece) => piece.length > 0),
    { objectMode: false },
  );
}

async function read(bytes: Buffer, sizes: readonly number[] = [], named: string | null = null) {
  const upload = await openUpload(source(bytes, sizes), TYPE, LIMITS, named);
  const parts: Buffer[] = [];
  for await (const piece of upload.stream as AsyncIterable<Buffer>) parts.push(piece);
  return { ...upload, purpose: upload.purpose(), bytes: Buffer.concat(parts) };
}

async function refusal(bytes: Buffer, named: string | null = null): Promise<SluiceError> {
  const error = await read(bytes, [], named).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof SluiceError)) throw new Error(`not refused: ${String(error)}`);
  return error;
}

describe('the form of an upload', () => {
  it('gives back every file byte by byte, however the body is cut into pieces and whichever field comes first', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.uint8Array({ maxLength: 300 }),
          // What nearly is a boundary.
          fc
            .array(fc.constantFrom('\r', '\n', '\r\n', '--b', '\r\n--', '\r\n--a', '-', 'x'), { maxLength: 60 })
            .map((parts) => Buffer.from(parts.join(''))),
        ),
        fc.array(fc.integer({ min: 1, max: 40 }), { maxLength: 80 }),
        fc.boolean(),
        async (content, sizes, first) => {
          const bytes = Buffer.from(content);
          fc.pre(!bytes.includes('\r\n--b') && !Buffer.concat([Buffer.from('\r\n'), bytes]).includes('\r\n--b'));
          const body = first ? form(purpose(), file(bytes)) : form(file(bytes), purpose());
          const found = await read(body, sizes);
          expect(found.bytes.equals(bytes)).toBe(true);
          expect([found.purpose, found.filename, found.complete()]).toEqual(['fine-tune', 'rows.jsonl', true]);
        },
      ),
      { numRuns: 300 },
    );
  });

  it('fails wherever the body is cut, and never ends the file before', async () => {
    const whole = form(file('abcdef'), purpose());
    // The line end after the last boundary is optional.
    for (let length = 0; length < whole.length - 2; length++) {
      const upload = await openUpload(source(whole.subarray(0, length)), TYPE, LIMITS, null).catch(
        (error: unknown) => error,
      );
      if (upload instanceof SluiceError) continue;
      const opened = upload as Awaited<ReturnType<typeof openUpload>>;
      await expect(opened.stream.toArray()).rejects.toBeInstanceOf(SluiceError);
      expect(opened.complete()).toBe(false);
    }
  });

  it.each<[string, Buffer, string | null, number]>([
    ['no file', form(purpose()), 'file', 400],
    ['no purpose', form(file()), 'purpose', 400],
    ['another purpose', form(purpose('evals'), file()), 'purpose', 400],
    ['another purpose after the file', form(file(), purpose('evals')), 'purpose', 400],
    ['two purposes', form(purpose(), purpose(), file()), null, 400],
    ['two files', form(purpose(), file(), file()), 'file', 400],
    ['a file that is a text', form(purpose(), part('name="file"', 'abc')), 'file', 400],
    ['a file of another name', form(purpose(), file('abc', 'name="data"; filename="x"')), 'data', 400],
    ['an unknown field', form(part('name="expires_after"', '1'), purpose(), file()), 'expires_after', 400],
    ['a file without a name', form(purpose(), file('abc', 'name="file"; filename=""')), 'file', 400],
    ['a file named ..', form(purpose(), file('abc', 'name="file"; filename="a/.."')), 'file', 400],
    ['a file over the limit', form(purpose(), file('x'.repeat(1001))), 'file', 413],
    ['a batch over its own limit', form(purpose('batch'), file('x'.repeat(501))), 'file', 413],
    ['a batch over its limit, told late', form(file('x'.repeat(501)), purpose('batch')), 'file', 413],
    ['data before the first boundary', Buffer.concat([Buffer.from('x\r\n'), form(purpose(), file())]), null, 400],
    ['data after the last boundary', Buffer.concat([form(purpose(), file()), Buffer.from('x')]), null, 400],
    ['nothing', Buffer.alloc(0), null, 400],
  ])('is refused with %s', async (_what, body, param, status) => {
    const error = await refusal(body);
    expect([error.param, errorStatus(error)]).toEqual([param, status]);
  });

  it('takes the purpose of a header and refuses another one in the form', async () => {
    expect((await read(form(file()), [], 'vision')).purpose).toBe('vision');
    expect((await refusal(form(file(), purpose()), 'vision')).param).toBe('purpose');
  });

  it('keeps only the last segment of a path as the name, in UTF-8', async () => {
    const name = async (given: string) => (await read(form(purpose(), file('x', `name="file"; ${given}`)))).filename;
    expect(await name('filename="../../etc/rows.jsonl"')).toBe('rows.jsonl');
    expect(await name('filename="C:\\\\data\\\\rows.jsonl"')).toBe('rows.jsonl');
    expect(await name('filename="zeilen-ä.jsonl"')).toBe('zeilen-ä.jsonl');
    expect(await name("filename*=UTF-8''zeilen-%C3%A4.jsonl")).toBe('zeilen-ä.jsonl');
  });
});

describe('an upload on its way', () => {
  let server: ObjectServer;
  let upstream: FakeUpstream;
  let own: Record<string, string>;

  beforeAll(async () => {
    upstream = await startUpstream((_request, response) =>
      sendJson(response, 200, {
        id: 'file-1',
        object: 'file',
        bytes: 3,
        created_at: 1,
        filename: 'f',
        purpose: 'fine-tune',
        status: 'processed',
      }),
    );
    server = await startObjectServer({ SLUICE_MAX_UPLOAD_BYTES: '4194304' });
    own = {
      'x-gateway-provider': 'openai',
      'x-gateway-custom-host': `${upstream.url}/v1`,
      authorization: 'Bearer sk-own-token',
    };
  });
  afterAll(async () => {
    await server?.stop();
    await upstream?.stop();
  });
  afterEach(() => {
    upstream.received.splice(0);
  });

  const send = (body: Buffer, headers: Record<string, string> = {}) =>
    server.first_.send('POST', '/files', { ...own, 'content-type': TYPE, ...headers }, body);

  it('reaches the provider in either order of the fields, and with the size a header announces', async () => {
    for (const body of [form(purpose(), file()), form(file(), purpose())]) {
      expect((await send(body)).status).toBe(200);
      expect((await send(body, { 'x-gateway-file-upload-size': '3' })).status).toBe(200);
      const wrong = await send(body, { 'x-gateway-file-upload-size': '4' });
      expect([wrong.status, wrong.error.param]).toEqual([400, 'x-gateway-file-upload-size']);
    }
    for (const { body } of upstream.received) expect(body.includes('\r\n\r\nabc\r\n')).toBe(true);
    expect(upstream.received.length).toBe(4);
  });

  it('is refused whole with 413 when it is too large, told by its length or while it comes', async () => {
    const big = form(purpose(), file('x'.repeat(4_194_305)));
    const answer = await send(big);
    expect([answer.status, answer.error.code, answer.error.param]).toEqual([413, 'AB01', 'file']);
    const huge = await send(form(purpose(), file('x'.repeat(6_000_000))));
    expect([huge.status, huge.error.param]).toEqual([413, 'file']);
    expect(upstream.received).toEqual([]);
  });

  it('is 400 without a form, and with a content coding', async () => {
    expect((await send(form(purpose(), file()), { 'content-type': 'application/json' })).status).toBe(400);
    expect((await send(form(purpose(), file()), { 'content-encoding': 'gzip' })).status).toBe(400);
  });

  it('that is cut short by its sender completes nowhere', async () => {
    const before = (await server.records()).length;
    for (const headers of [own, { 'x-gateway-provider': 'gateway' }]) {
      const socket = connect(Number(new URL(server.url).port), '127.0.0.1');
      const lines = Object.entries({ ...headers, 'x-gateway-api-key': server.first_.key, 'content-type': TYPE });
      socket.write(
        `POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n${lines.map(([name, value]) => `${name}: ${value}`).join('\r\n')}\r\n\r\n`,
      );
      socket.write(Buffer.concat([purpose(), file('y'.repeat(300_000))]).subarray(0, 250_000));
      await expect.poll(() => socket.writableLength).toBe(0);
      if (headers === own) await expect.poll(() => upstream.open).toBeGreaterThan(0);
      socket.destroy();
    }
    await expect.poll(async () => (await server.records()).length).toBe(before + 2);
    expect((await server.records()).slice(0, 2).map((one) => [one.status, one.outcome])).toEqual([
      [499, 'aborted'],
      [499, 'aborted'],
    ]);
    expect(upstream.received).toEqual([]);
    expect((await server.first_.send('GET', '/files', { 'x-gateway-provider': 'gateway' })).body?.data).toEqual([]);
  });

  it('of content ends with a break when the provider breaks off, never as if it were whole', async () => {
    const answer = upstream.answer;
    upstream.answer = (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream' });
      response.write(Buffer.alloc(200_000, 'z'));
      setImmediate(() => response.destroy());
    };
    const got = await fetch(`${server.url}/v1/files/file-1/content`, {
      headers: { ...own, 'x-gateway-api-key': server.first_.key },
    });
    await expect(got.status === 200 ? got.arrayBuffer() : Promise.reject(new Error('502'))).rejects.toThrow();
    upstream.answer = answer;
    expect((await server.records())[0]).toMatchObject({
      operation: 'file_content',
      outcome: 'failed',
      error_code: 'upstream_stream_cut',
    });
  });

  it('of content lets go of the provider when the client leaves', async () => {
    const answer = upstream.answer;
    let closed = false;
    upstream.answer = (_request, response) => {
      response.on('close', () => {
        closed = true;
      });
      response.writeHead(200, { 'content-type': 'application/octet-stream' });
      const more = () => {
        while (!response.destroyed && response.write(Buffer.alloc(64_000)));
        if (!response.destroyed) response.once('drain', more);
      };
      more();
    };
    const outgoing = request(`${server.url}/v1/files/file-1/content`, {
      headers: { ...own, 'x-gateway-api-key': server.first_.key },
    });
    outgoing.end();
    const [incoming] = (await once(outgoing, 'response')) as [Readable];
    await once(incoming, 'data');
    outgoing.destroy();
    await expect.poll(() => closed).toBe(true);
    upstream.answer = answer;
    await expect
      .poll(async () => (await server.records())[0])
      .toMatchObject({ operation: 'file_content', outcome: 'aborted' });
  });
});

describe('large uploads', () => {
  it.each<Way>(['purpose-first', 'file-first', 'kept'])(
    '%s: 160 MiB arrive unchanged and cost less than 96 MiB of memory',
    async (way) => {
      const uploads = await startLargeUploads();
      try {
        const { status, sent, arrived, growth } = await uploads.send(way, 160 * 1024 * 1024);
        expect([status, arrived]).toEqual([200, sent]);
        // Every byte is garbage of the heap's once or twice, which collects up to this much of it at a time beside load.
        expect(growth ?? 0).toBeLessThan(96 * 1024 * 1024);
      } finally {
        await uploads.stop();
      }
    },
    60_000,
  );
});
