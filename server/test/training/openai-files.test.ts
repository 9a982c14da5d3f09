import { createHash, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openai } from '../../src/providers/openai/openai.ts';
import type { ObjectApi } from '../../src/providers/openai/training-api.ts';
import { openAiFiles } from '../../src/providers/openai/training-files.ts';
import type { UploadRequest } from '../../src/providers/training.ts';
import { bearerHeaders } from '../../src/providers/training-calls.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { type OpenAiObjects, openAiError, startOpenAiObjects } from '../support/upstreams/openai.ts';
import { refusal, textOf } from './support.ts';

const { files } = openai.training ?? {};
if (!files) throw new Error('a part is missing');

let upstream: OpenAiObjects;
let context: TestContext;

beforeEach(async () => {
  upstream = await startOpenAiObjects();
  context = adapterContext({ base: upstream.base });
});

afterEach(async () => {
  await context.close();
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const upload = (content: string | Buffer, more: Partial<UploadRequest> = {}): UploadRequest => {
  const bytes = Buffer.from(content);
  return {
    filename: 'data.jsonl',
    purpose: 'fine-tune',
    contentType: 'application/jsonl',
    stream: Readable.from([bytes]),
    bytes: bytes.length,
    ...more,
  };
};

describe('files at OpenAI', () => {
  it('uploads in one streamed body with the purpose before the file', async () => {
    const content = '{"messages":[]}\n';
    const made = await files.upload(upload(content, { filename: 'dä"ta.jsonl' }), context);
    expect(made).toMatchObject({ object: 'file', bytes: content.length, purpose: 'fine-tune', status: 'processed' });
    expect(upstream.state.forms[0]).toMatchObject({
      fields: ['purpose', 'file'],
      filename: 'dä%22ta.jsonl',
      type: 'application/jsonl',
    });
    expect(upstream.received[0]?.headers['content-length']).toBeDefined();
    expect(await files.retrieve(made.id, context)).toEqual(made);
    const read = await files.content(made.id, context);
    expect(read).toMatchObject({ contentType: 'application/octet-stream', bytes: content.length });
    expect(await textOf(read.stream)).toBe(content);
  });

  it('uploads a file of unknown size without holding it', async () => {
    const chunks = Array.from({ length: 50 }, () => randomBytes(10_000));
    const made = await files.upload(upload('', { stream: Readable.from(chunks), bytes: null }), context);
    expect(made.bytes).toBe(500_000);
    expect(upstream.received[0]?.headers['transfer-encoding']).toBe('chunked');
    expect(upstream.state.contents.get(made.id)?.equals(Buffer.concat(chunks))).toBe(true);
  });

  it('refuses a purpose the provider does not know, and lets go of the upload', async () => {
    const file = upload('x', { purpose: 'assistants_output' });
    expect(await refusal(() => files.upload(file, context))).toMatchObject({ status: 400, param: 'purpose' });
    expect(file.stream.destroyed).toBe(true);
    expect(context.calls).toEqual([]);
  });

  it('fails with the reason of the upload when its stream breaks', async () => {
    const stream = Readable.from(
      (async function* () {
        yield Buffer.from('half');
        throw new Error('the client left');
      })(),
    );
    await expect(files.upload(upload('', { stream, bytes: 100 }), context)).rejects.toThrow();
    expect(upstream.state.files.size).toBe(0);
  });

  it('says so when the file is shorter than announced', async () => {
    const file = upload('short', { bytes: 100 });
    expect(await refusal(() => files.upload(file, context))).toMatchObject({ status: 400, param: 'file' });
    expect(upstream.state.files.size).toBe(0);
  });

  it.each([4_000_000, null])('tells why the provider refuses a file before it has read it (size %s)', async (bytes) => {
    const server = createServer((request, response) => {
      request.once('data', () => {
        request.pause();
        response.writeHead(413, { connection: 'close' }).end(JSON.stringify(openAiError('Too large.')));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const other = adapterContext({ base: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` });
    const chunks = Array.from({ length: 40 }, () => Buffer.alloc(100_000));
    const file = upload('', { stream: Readable.from(chunks), bytes });
    expect(await refusal(() => files.upload(file, other))).toMatchObject({ status: 413, message: 'Too large.' });
    expect(file.stream.destroyed).toBe(true);
    await other.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  it('lists by purpose, newest first, through all pages', async () => {
    for (let i = 0; i < 4; i++) await files.upload(upload('x', { purpose: i % 2 ? 'batch' : 'fine-tune' }), context);
    expect((await files.list(null, context)).map((one) => one.id)).toEqual(['file-4', 'file-3', 'file-2', 'file-1']);
    expect((await files.list('batch', context)).map((one) => one.id)).toEqual(['file-4', 'file-2']);
    expect(upstream.received.at(-1)?.path).toBe('/v1/files?purpose=batch&limit=10000');
    const pages = [
      {
        data: [
          { id: 'f3', created_at: 3 },
          { id: 'f2', created_at: 2 },
        ],
        has_more: true,
      },
      { data: [{ id: 'f1', created_at: 1 }], has_more: false },
    ];
    const asked: (string | null)[] = [];
    const paged = {
      ...context,
      call: (request: { url: URL }) => {
        asked.push(request.url.searchParams.get('after'));
        const text = JSON.stringify(pages[asked.length - 1]);
        const stream = Readable.from([text]);
        return Promise.resolve({
          status: 200,
          headers: {},
          stream,
          text: () => Promise.resolve(text),
          json: () => Promise.resolve(JSON.parse(text)),
        });
      },
    };
    expect((await files.list(null, paged)).map((one) => one.id)).toEqual(['f3', 'f2', 'f1']);
    expect(asked).toEqual([null, 'f2']);
  });

  it('deletes, and answers 404 afterwards', async () => {
    const { id } = await files.upload(upload('x'), context);
    await files.remove(id, context);
    expect(await refusal(() => files.retrieve(id, context))).toMatchObject({ status: 404 });
    expect(await refusal(() => files.remove(id, context))).toMatchObject({ status: 404 });
    expect(await refusal(() => files.content(id, context))).toMatchObject({ status: 404 });
  });

  it('stops reading at the provider when the reader stops', async () => {
    upstream.state.contents.set('file-big', randomBytes(8_000_000));
    const { stream } = await files.content('file-big', context);
    await stream[Symbol.asyncIterator]().next();
    stream.destroy();
    await expect.poll(() => upstream.open).toBe(0);
  });
});

describe('uploads in parts', () => {
  const api: ObjectApi = { title: 'openai', headers: bearerHeaders, plannedHeaders: bearerHeaders };
  const small = openAiFiles({
    api,
    purposes: new Set(['fine-tune', 'batch']),
    list: () => 'pages',
    parts: { above: 1000, size: 400 },
  });
  /** The content in pieces that do not fit the parts. */
  const pieces = (content: Buffer, size: number): Readable =>
    Readable.from(
      (function* () {
        for (let at = 0; at < content.length; at += size) yield content.subarray(at, at + size);
      })(),
    );

  it.each([1001, 1200, 1201, 4000])('send a file of %i bytes whole and in order', async (size) => {
    for (const chunk of [1, 137, 400, 5000]) {
      const content = randomBytes(size);
      const file = upload(content, { stream: pieces(content, chunk), contentType: '' });
      const made = await small.upload(file, context);
      expect(made.bytes).toBe(size);
      const stored = upstream.state.contents.get(made.id) ?? Buffer.alloc(0);
      expect(createHash('sha256').update(stored).digest('hex')).toBe(
        createHash('sha256').update(content).digest('hex'),
      );
      const row = [...upstream.state.uploads.values()].at(-1);
      expect(row).toMatchObject({ status: 'completed', mime_type: 'text/jsonl', bytes: size });
      expect(row?.parts.map((part) => part.length)).toEqual(
        Array.from({ length: Math.ceil(size / 400) }, (_, i) => Math.min(400, size - i * 400)),
      );
    }
  });

  it('are used above the limit only', async () => {
    await small.upload(upload(randomBytes(1000)), context);
    expect(upstream.state.uploads.size).toBe(0);
  });

  it.each([
    ['shorter', 1500],
    ['longer', 2500],
  ])('are taken back when the file is %s than announced', async (_how, size) => {
    const content = randomBytes(size);
    const file = upload(content, { stream: pieces(content, 300), bytes: 2000 });
    expect(await refusal(() => small.upload(file, context))).toMatchObject({ status: 400, param: 'file' });
    expect([...upstream.state.uploads.values()].map((row) => row.status)).toEqual(['cancelled']);
    expect(upstream.state.files.size).toBe(0);
    expect(file.stream.destroyed).toBe(true);
  });

  it('are taken back when the provider refuses a part', async () => {
    const content = randomBytes(2000);
    let calls = 0;
    const failing = {
      ...context,
      call: (request: Parameters<typeof context.call>[0]) => {
        calls++;
        if (calls === 3) upstream.state.fail = { status: 503, body: openAiError('Busy') };
        return context.call(request);
      },
    };
    const file = upload(content, { stream: pieces(content, 300) });
    expect(await refusal(() => small.upload(file, failing))).toMatchObject({ status: 503, message: 'Busy' });
    expect([...upstream.state.uploads.values()].map((row) => row.status)).toEqual(['cancelled']);
  });

  it('need the size beforehand: a longer stream without one is refused with what to send', async () => {
    const content = randomBytes(5000);
    const file = upload('', { stream: pieces(content, 500), bytes: null });
    expect(await refusal(() => small.upload(file, context))).toMatchObject({
      status: 400,
      param: 'x-gateway-file-upload-size',
    });
    expect(upstream.state.files.size).toBe(0);
  });
});
