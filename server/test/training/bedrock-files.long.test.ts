import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { bedrock } from '../../src/providers/bedrock/bedrock.ts';
import type { AdapterContext, UploadRequest } from '../../src/providers/training.ts';
import { type AdapterContextOptions, adapterContext, type TestContext } from '../support/adapter-context.ts';
import { S3_KEYS, S3_REGION, type S3Server, startS3Server } from '../support/s3-server.ts';
import { refusal, textOf } from './support.ts';

const { files } = bedrock.training ?? {};
if (!files?.abandon || !files.plannedId) throw new Error('a part is missing');
const { abandon, plannedId } = files;

const MIB = 1024 * 1024;
const NOW = Date.parse('2026-11-21T12:00:00Z');
const BUCKET = 'my-bucket';
const KEYS = { aws_access_key_id: S3_KEYS.accessKeyId, aws_secret_access_key: S3_KEYS.secretAccessKey };
const SETTINGS = { aws_auth_type: 'accessKey', aws_region: S3_REGION, ...KEYS };
const HEADERS = { 'x-gateway-object-store-bucket': BUCKET };

let now = NOW;
let s3: S3Server;
let context: TestContext;
const opened: TestContext[] = [];

function contextWith(options: Partial<AdapterContextOptions> = {}): TestContext {
  const made = adapterContext({
    base: 'http://127.0.0.1:1',
    key: null,
    settings: { ...SETTINGS, aws_s3_endpoint: s3.url },
    headers: HEADERS,
    now: () => now,
    ...options,
  });
  opened.push(made);
  return made;
}

beforeEach(async () => {
  now = NOW;
  s3 = await startS3Server({ buckets: [BUCKET], now: () => now });
  context = contextWith();
});

afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.close()));
  await s3.stop();
  expect(s3.faults).toEqual([]);
});

const upload = (content: Buffer | string | Readable, more: Partial<UploadRequest> = {}): UploadRequest => ({
  filename: 'train.jsonl',
  purpose: 'fine-tune',
  contentType: 'application/jsonl',
  stream: content instanceof Readable ? content : Readable.from([Buffer.from(content)]),
  bytes: content instanceof Readable ? null : Buffer.byteLength(content),
  ...more,
});

const named = (key: string, more: Readonly<Record<string, string>> = {}): TestContext =>
  contextWith({ headers: { ...HEADERS, 'x-gateway-aws-s3-object-key': key, ...more } });

const idOf = (key: string, bucket = BUCKET): string => encodeURIComponent(`s3://${bucket}/${key}`);
const operations = (): string[] => s3.requests.map((request) => request.operation);

/** A stream in odd pieces. */
async function* chopped(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

describe('uploading', () => {
  it('a small file is one object, described as a file', async () => {
    const file = await files.upload(upload('{"a":1}\n'), named('data/train.jsonl'));
    expect(file).toEqual({
      id: idOf('data/train.jsonl'),
      object: 'file',
      bytes: 8,
      created_at: NOW / 1000,
      filename: 'train.jsonl',
      purpose: 'fine-tune',
      status: 'processed',
    });
    expect(operations()).toEqual(['HeadObject', 'PutObject', 'HeadObject']);
    expect((await s3.read(BUCKET, 'data/train.jsonl'))?.toString()).toBe('{"a":1}\n');
    expect(s3.headersOf(BUCKET, 'data/train.jsonl')).toEqual({
      'content-type': 'application/jsonl',
      'x-amz-meta-gateway-purpose': 'fine-tune',
    });
  });

  it('a file without a name in the headers gets a key of its own', async () => {
    const file = await files.upload(upload('x'), contextWith({ uuid: () => 'u-1' }));
    expect(file.id).toBe(idOf('u-1.jsonl'));
    expect(plannedId('train.jsonl', named('data/x.jsonl'))).toBe(idOf('data/x.jsonl'));
    const byName = contextWith({ headers: { ...HEADERS, 'x-gateway-provider-file-name': 'given.jsonl' } });
    expect((await files.upload(upload('x', { bytes: 1 }), byName)).id).toBe(idOf('given.jsonl'));
  });

  it('is never written over what did not come through Sluice, and again over what did', async () => {
    await s3.put(BUCKET, 'others/report.jsonl', 'precious');
    for (const header of ['x-gateway-aws-s3-object-key', 'x-gateway-provider-file-name']) {
      const taken = contextWith({ headers: { ...HEADERS, [header]: 'others/report.jsonl' } });
      expect(await refusal(() => files.upload(upload('mine'), taken))).toMatchObject({ status: 409, param: header });
    }
    expect(String(await s3.read(BUCKET, 'others/report.jsonl'))).toBe('precious');
    for (const text of ['first', 'second']) await files.upload(upload(text), named('mine.jsonl'));
    expect(String(await s3.read(BUCKET, 'mine.jsonl'))).toBe('second');
  });

  it('an empty file is stored empty', async () => {
    expect((await files.upload(upload(''), named('empty.jsonl'))).bytes).toBe(0);
    expect(operations()).toEqual(['HeadObject', 'PutObject', 'HeadObject']);
  });

  it('a large file goes in parts of at least 5 MiB, byte for byte, whether its size is known or not', async () => {
    const content = randomBytes(21 * MIB + 12_345);
    for (const bytes of [content.length, null]) {
      const stream = Readable.from(chopped(content, 1_000_003));
      const file = await files.upload(upload(stream, { bytes }), named('big.jsonl'));
      expect(file.bytes).toBe(content.length);
      expect((await s3.read(BUCKET, 'big.jsonl'))?.equals(content)).toBe(true);
    }
    const parts = s3.requests.filter((request) => request.operation === 'UploadPart');
    expect(parts.map((part) => part.bytes).sort((a, b) => b - a)).toEqual([
      ...Array<number>(4).fill(8 * MIB),
      ...Array<number>(2).fill(content.length - 16 * MIB),
    ]);
    expect(s3.openUploads(BUCKET)).toEqual([]);
  });

  it('a file of exactly one part is whole, too', async () => {
    const content = randomBytes(8 * MIB);
    expect((await files.upload(upload(content), named('even.jsonl'))).bytes).toBe(content.length);
    expect((await s3.read(BUCKET, 'even.jsonl'))?.equals(content)).toBe(true);
  });

  it('encryption is asked for when the object is made, and not on its parts', async () => {
    const headers = {
      'x-gateway-amz-server-side-encryption': 'aws:kms',
      'x-gateway-amz-server-side-encryption-aws-kms-key-id': 'arn:aws:kms:eu-central-1:123456789012:key/abc',
    };
    const kept = {
      'x-amz-server-side-encryption': 'aws:kms',
      'x-amz-server-side-encryption-aws-kms-key-id': 'arn:aws:kms:eu-central-1:123456789012:key/abc',
    };
    await files.upload(upload('x'), named('small.jsonl', headers));
    await files.upload(upload(randomBytes(9 * MIB)), named('large.jsonl', headers));
    expect(s3.headersOf(BUCKET, 'small.jsonl')).toMatchObject(kept);
    expect(s3.headersOf(BUCKET, 'large.jsonl')).toMatchObject(kept);
  });

  it('reads the caller no faster than S3 takes it', async () => {
    let given = 0;
    let most = 0;
    let stored = 0;
    async function* rows(): AsyncGenerator<Buffer> {
      for (let i = 0; i < 64; i++) {
        given += MIB;
        most = Math.max(most, given - stored);
        yield Buffer.alloc(MIB);
      }
    }
    s3.fail = (request) => {
      if (request.operation === 'UploadPart') stored += 8 * MIB;
      return null;
    };
    const stream = Readable.from(rows(), { highWaterMark: 1 });
    await files.upload(upload(stream), named('slow.jsonl'));
    expect(most).toBeLessThanOrEqual(4 * 8 * MIB);
  });
});

describe('uploads that fail leave nothing', () => {
  const large = () => Readable.from(chopped(randomBytes(25 * MIB), MIB));

  it('a caller that goes away', async () => {
    async function* cut(): AsyncGenerator<Buffer> {
      yield randomBytes(20 * MIB);
      throw new Error('the caller left');
    }
    await expect(files.upload(upload(Readable.from(cut())), named('cut.jsonl'))).rejects.toThrow('the caller left');
    expect(s3.openUploads(BUCKET)).toEqual([]);
    expect(s3.keys(BUCKET)).toEqual([]);
    expect(operations()).toContain('AbortMultipartUpload');
    expect(context.calls.concat(opened.at(-1)?.calls ?? []).find((call) => call.method === 'DELETE')?.cleanup).toBe(
      true,
    );
  });

  it('a file that is shorter than announced', async () => {
    const wrong = await refusal(() => files.upload(upload(large(), { bytes: 99 * MIB }), named('short.jsonl')));
    expect(wrong).toMatchObject({ status: 400, param: 'file' });
    const small = await refusal(() => files.upload(upload('abc', { bytes: 4 }), named('short.jsonl')));
    expect(small).toMatchObject({ status: 400, param: 'file' });
    expect([s3.openUploads(BUCKET), s3.keys(BUCKET)]).toEqual([[], []]);
  });

  it('a part that is refused', async () => {
    s3.fail = ({ operation, query }) =>
      operation === 'UploadPart' && query.get('partNumber') === '2'
        ? { status: 403, code: 'AccessDenied', message: 'Access Denied' }
        : null;
    const stream = large();
    expect(await refusal(() => files.upload(upload(stream), named('denied.jsonl')))).toMatchObject({
      status: 403,
      type: 'permission_error',
      message: 'Access Denied',
    });
    expect(stream.destroyed).toBe(true);
    expect(s3.openUploads(BUCKET)).toEqual([]);
  });

  it('a completion that fails after S3 began to answer 200', async () => {
    s3.fail = ({ operation }) =>
      operation === 'CompleteMultipartUpload' ? { status: 200, code: 'InternalError', message: 'we failed' } : null;
    expect(await refusal(() => files.upload(upload(large()), named('late.jsonl')))).toMatchObject({
      status: 500,
      message: 'we failed',
    });
    expect([s3.openUploads(BUCKET), s3.keys(BUCKET)]).toEqual([[], []]);
  });

  it('a part that fails for a moment is sent again', async () => {
    let failures = 0;
    s3.fail = ({ operation }) =>
      operation === 'UploadPart' && failures++ < 2
        ? { status: 503, code: 'SlowDown', message: 'Please reduce your request rate.', cut: failures === 2 }
        : null;
    expect((await files.upload(upload(large()), named('patient.jsonl'))).bytes).toBe(25 * MIB);
  });

  it('an abort that fails leaves the id of the upload in the log', async () => {
    s3.fail = ({ operation }) =>
      operation === 'UploadPart' || operation === 'AbortMultipartUpload'
        ? { status: 503, code: 'ServiceUnavailable', message: 'not now' }
        : null;
    const error = await files.upload(upload(large()), named('stuck.jsonl')).catch((problem: unknown) => problem);
    expect(error).toMatchObject({
      provider: { status: 503 },
      message: 'not now',
      detail: { bucket: BUCKET, key: 'stuck.jsonl', openUpload: expect.any(String) },
    });
    s3.fail = () => null;
    await abandon('stuck.jsonl', named('stuck.jsonl'));
    expect(s3.openUploads(BUCKET)).toEqual([]);
  });

  it('what a killed process left under a name is removed, and nothing else', async () => {
    s3.fail = ({ operation }) =>
      operation === 'AbortMultipartUpload' || operation === 'CompleteMultipartUpload'
        ? { status: 403, code: 'AccessDenied' }
        : null;
    for (const key of ['mine.jsonl', 'mine.jsonl', 'mine.jsonl.other']) {
      await refusal(() => files.upload(upload(large()), named(key)));
    }
    s3.fail = () => null;
    // Each on a page of its own.
    s3.pageSize = 1;
    await abandon('mine.jsonl', named('mine.jsonl'));
    expect(s3.openUploads(BUCKET)).toEqual(['mine.jsonl.other']);
  });
});

describe('what an upload may not be', () => {
  it.each([
    [{}, 'x-gateway-object-store-bucket'],
    [{ 'x-gateway-object-store-bucket': 'Not_A_Bucket' }, 'x-gateway-object-store-bucket'],
    [{ 'x-gateway-object-store-bucket': '10.0.0.1' }, 'x-gateway-object-store-bucket'],
    [{ 'x-gateway-object-store-bucket': 'a..b' }, 'x-gateway-object-store-bucket'],
    [{ ...HEADERS, 'x-gateway-aws-s3-object-key': 'with space' }, 'x-gateway-aws-s3-object-key'],
    [{ ...HEADERS, 'x-gateway-aws-s3-object-key': '../up' }, 'x-gateway-aws-s3-object-key'],
    [{ ...HEADERS, 'x-gateway-aws-s3-object-key': 'folder/' }, 'x-gateway-aws-s3-object-key'],
    [{ ...HEADERS, 'x-gateway-provider-file-name': 'ü.jsonl' }, 'x-gateway-provider-file-name'],
    [{ ...HEADERS, 'x-gateway-amz-server-side-encryption': 'rot13' }, 'x-gateway-amz-server-side-encryption'],
    [
      { ...HEADERS, 'x-gateway-amz-server-side-encryption-aws-kms-key-id': 'k' },
      'x-gateway-amz-server-side-encryption-aws-kms-key-id',
    ],
  ])('%j is refused by name, before anything is sent', async (headers, param) => {
    const wrong = contextWith({ headers: headers as Record<string, string> });
    expect(await refusal(() => files.upload(upload('x'), wrong))).toMatchObject({ status: 400, param });
    expect(wrong.calls).toEqual([]);
  });

  it('a Bedrock API key opens no bucket, and the refusal says so', async () => {
    const settings = { aws_auth_type: 'apiKey', aws_region: S3_REGION, aws_s3_endpoint: s3.url };
    const bearer = contextWith({ key: 'bedrock-key-canary', settings });
    const refused = await refusal(() => files.upload(upload('x'), bearer));
    expect(refused).toMatchObject({ status: 400, param: 'aws_auth_type' });
    expect(refused.message).toMatch(/S3/);
    expect(refused.message).not.toContain('canary');
  });

  it('with a custom host the public S3 is not asked', async () => {
    const custom = contextWith({ settings: SETTINGS, customHost: true });
    expect(await refusal(() => files.list(null, custom))).toMatchObject({ status: 400, param: 'aws_s3_endpoint' });
    expect(custom.calls).toEqual([]);
  });
});

describe('reading files', () => {
  beforeEach(async () => {
    await s3.put(BUCKET, 'a.jsonl', 'first\n', { 'x-amz-meta-gateway-purpose': 'batch', 'content-type': 'text/plain' });
    now += 5_000;
    await s3.put(BUCKET, 'folder/b+c d.jsonl', 'second\n');
    await s3.put(BUCKET, 'folder/', '');
  });

  it('lists the newest first, with the purpose each was stored with', async () => {
    const all = await files.list(null, context);
    expect(all.map(({ id, purpose, bytes, filename }) => ({ id, purpose, bytes, filename }))).toEqual([
      { id: idOf('folder/b+c d.jsonl'), purpose: 'fine-tune', bytes: 7, filename: 'b+c d.jsonl' },
      { id: idOf('a.jsonl'), purpose: 'batch', bytes: 6, filename: 'a.jsonl' },
    ]);
    expect((await files.list('batch', context)).map(({ id }) => id)).toEqual([idOf('a.jsonl')]);
    expect((await files.list(null, named('folder/'))).map(({ id }) => id)).toEqual([idOf('folder/b+c d.jsonl')]);
  });

  it('takes an id encoded or plain, and reads, describes and deletes the object it names', async () => {
    for (const id of [idOf('folder/b+c d.jsonl'), `s3://${BUCKET}/folder/b+c d.jsonl`]) {
      expect(await files.retrieve(id, context)).toMatchObject({ bytes: 7, created_at: NOW / 1000 + 5 });
      const content = await files.content(id, context);
      expect(content.bytes).toBe(7);
      expect(await textOf(content.stream)).toBe('second\n');
    }
    expect((await files.content(idOf('a.jsonl'), context)).contentType).toBe('text/plain');
    await files.remove(idOf('a.jsonl'), context);
    await files.remove(idOf('a.jsonl'), context);
    expect(s3.keys(BUCKET)).toEqual(['folder/', 'folder/b+c d.jsonl']);
  });

  it('a key with a percent sign is decoded once only', async () => {
    await s3.put(BUCKET, 'a%20b.jsonl', 'percent');
    expect(await textOf((await files.content(idOf('a%20b.jsonl'), context)).stream)).toBe('percent');
  });

  it('an object that is not there is 404', async () => {
    expect(await refusal(() => files.retrieve(idOf('none.jsonl'), context))).toMatchObject({
      status: 404,
      type: 'not_found_error',
    });
    expect(await refusal(() => files.content(idOf('none.jsonl'), context))).toMatchObject({ status: 404 });
    for (const id of ['file-123', 's3://', idOf(''), idOf('folder/'), idOf('../a'), '%zz']) {
      expect(await refusal(() => files.retrieve(id, context))).toMatchObject({ status: 404 });
    }
  });

  it('an object of another bucket is 403, although the credential could read it', async () => {
    s3.createBucket('other-bucket');
    await s3.put('other-bucket', 'secret.jsonl', 'secret');
    const before = context.calls.length;
    for (const read of [files.retrieve, files.content, files.remove]) {
      expect(await refusal(() => read(idOf('secret.jsonl', 'other-bucket'), context))).toMatchObject({ status: 403 });
    }
    expect(context.calls).toHaveLength(before);
  });

  it('an account may be bound to one bucket, whatever the request names', async () => {
    const settings = { ...SETTINGS, aws_s3_endpoint: s3.url, aws_s3_bucket: BUCKET };
    const bound = contextWith({ settings, headers: {} });
    expect(await files.retrieve(idOf('a.jsonl'), bound)).toMatchObject({ bytes: 6 });
    const elsewhere = contextWith({ settings, headers: { 'x-gateway-object-store-bucket': 'other-bucket' } });
    expect(await refusal(() => files.list(null, elsewhere))).toMatchObject({ status: 403 });
  });
});

describe('where a bucket is reached', () => {
  /** Sends the host of the URL as AWS would see it, over loopback. */
  function atAws(bucket: string): { context: AdapterContext; hosts: string[] } {
    const hosts: string[] = [];
    const inner = contextWith({
      base: `https://bedrock.${S3_REGION}.amazonaws.com`,
      customHost: false,
      settings: SETTINGS,
      headers: { 'x-gateway-object-store-bucket': bucket },
      redirect: Object.fromEntries(
        [`${bucket}.s3.${S3_REGION}.amazonaws.com`, `s3.${S3_REGION}.amazonaws.com`].map((host) => [host, s3.url]),
      ),
    });
    const context: AdapterContext = {
      ...inner,
      call: (request) => {
        hosts.push(request.url.host);
        return inner.call({ ...request, headers: ['host', request.url.host, ...request.headers] });
      },
    };
    return { context, hosts };
  }

  it('in the host at AWS', async () => {
    await s3.put(BUCKET, "odd key!*'()/ü.jsonl", 'odd');
    const { context, hosts } = atAws(BUCKET);
    const id = idOf("odd key!*'()/ü.jsonl");
    expect(await textOf((await files.content(id, context)).stream)).toBe('odd');
    expect(await files.list(null, context)).toHaveLength(1);
    expect(new Set(hosts)).toEqual(new Set([`${BUCKET}.s3.${S3_REGION}.amazonaws.com`]));
    expect(s3.requests.every((request) => request.style === 'host')).toBe(true);
  });

  it('in the path when its name has dots, which the certificate does not cover', async () => {
    s3.createBucket('with.dots');
    await s3.put('with.dots', 'a.jsonl', 'dots');
    const { context, hosts } = atAws('with.dots');
    expect(await textOf((await files.content(idOf('a.jsonl', 'with.dots'), context)).stream)).toBe('dots');
    expect(hosts).toEqual([`s3.${S3_REGION}.amazonaws.com`]);
  });

  it('a bucket of another region is said to be there', async () => {
    s3.fail = () => ({ status: 301, code: 'PermanentRedirect', message: 'elsewhere' });
    expect(await refusal(() => files.retrieve(idOf('a.jsonl'), context))).toMatchObject({
      status: 400,
      param: 'x-gateway-aws-region',
    });
  });
});
