import { Readable } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { multipartBody } from './multipart.ts';

async function bytesOf(stream: Readable): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of stream as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts);
}

/** Reads a body with the platform's own parser. */
async function parse(contentType: string, body: Buffer): Promise<FormData> {
  return new Response(new Uint8Array(body), { headers: { 'content-type': contentType } }).formData();
}

const file = (content: Buffer, more: Partial<Parameters<typeof multipartBody>[1]> = {}) => ({
  name: 'file',
  filename: 'data.jsonl',
  contentType: 'application/jsonl',
  stream: Readable.from([content]),
  bytes: content.length,
  ...more,
});

describe('multipart bodies', () => {
  it('put the fields before the file, and state the exact length', async () => {
    const body = multipartBody([['purpose', 'fine-tune']], file(Buffer.from('{"a":1}\n')), 'xyz');
    const bytes = await bytesOf(body.stream);
    expect(bytes.length).toBe(body.length);
    expect(body.contentType).toBe('multipart/form-data; boundary=xyz');
    expect(bytes.toString()).toBe(
      '--xyz\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n' +
        '--xyz\r\ncontent-disposition: form-data; name="file"; filename="data.jsonl"\r\n' +
        'content-type: application/jsonl\r\n\r\n{"a":1}\n\r\n--xyz--\r\n',
    );
  });

  it('have no length when the size of the file is unknown', async () => {
    const body = multipartBody([], file(Buffer.from('abc'), { bytes: null }));
    expect(body.length).toBeNull();
    const form = await parse(body.contentType, await bytesOf(body.stream));
    expect(await (form.get('file') as File).text()).toBe('abc');
  });

  it('never let a file name leave its quotes, and bring any content through unchanged', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: 'binary', maxLength: 40 }),
        fc.string({ unit: 'binary', maxLength: 40 }),
        fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 5 }),
        async (filename, contentType, chunks) => {
          const content = Buffer.concat(chunks);
          const stream = Readable.from(chunks.filter((chunk) => chunk.length > 0).map((chunk) => Buffer.from(chunk)));
          const body = multipartBody([['purpose', 'batch']], file(content, { filename, contentType, stream }));
          const bytes = await bytesOf(body.stream);
          expect(bytes.length).toBe(body.length);
          const form = await parse(body.contentType, bytes);
          expect([...form.keys()]).toEqual(['purpose', 'file']);
          expect(form.get('purpose')).toBe('batch');
          expect(Buffer.from(await (form.get('file') as File).arrayBuffer()).equals(content)).toBe(true);
        },
      ),
      { numRuns: 200 },
    );
  });

  it.each([
    [2, 'more'],
    [9, 'only 3'],
  ])('fail when %i bytes were announced and the file has 3', async (bytes, found) => {
    const body = multipartBody([], file(Buffer.from('abc'), { bytes }));
    await expect(bytesOf(body.stream)).rejects.toMatchObject({
      kind: 'invalid_request',
      param: 'file',
      message: expect.stringContaining(found),
    });
  });

  it('let go of the file when they are given up, also before they were read, and fail when it fails', async () => {
    for (const read of [false, true]) {
      const source = Readable.from([Buffer.from('a'), Buffer.from('b')]);
      const body = multipartBody([], file(Buffer.alloc(0), { stream: source, bytes: null }));
      if (read) await body.stream[Symbol.asyncIterator]().next();
      body.stream.destroy();
      await new Promise((resolve) => source.once('close', resolve));
      expect(source.destroyed).toBe(true);
    }
    const source = new Readable({ read() {} });
    const body = multipartBody([], file(Buffer.alloc(0), { stream: source, bytes: null }));
    source.destroy(new Error('the disk is gone'));
    await expect(bytesOf(body.stream)).rejects.toThrow('the disk is gone');
  });
});
