import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished } from 'vitest';
import { S3_KEYS, S3_REGION, type S3Server, startS3Server } from '../../../test/support/s3-server.ts';
import { systemTenant } from '../../auth/tenant.ts';
import { operatorHttp } from '../../http/operator-http.ts';
import { systemClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { silentLog } from '../../kernel/log.ts';
import { blobsSuite } from '../conformance/blobs.ts';
import { openS3Blobs, type S3BlobsOptions } from './blobs.ts';

const optionsFor = (server: S3Server): S3BlobsOptions => ({
  bucket: 'blobs',
  prefix: 'sluice/eu',
  region: S3_REGION,
  endpoint: server.url,
  pathStyle: true,
  credentials: { ...S3_KEYS, sessionToken: null },
  variable: () => undefined,
  file: async () => '',
  http: operatorHttp(),
  clock: systemClock,
  log: silentLog,
});

blobsSuite('s3', async () => {
  const server = await startS3Server({ buckets: ['blobs'] });
  return {
    blobs: await openS3Blobs(optionsFor(server)),
    close: async () => {
      await server.stop();
      expect(server.faults).toEqual([]);
    },
  };
});

describe('blobs in an S3 bucket', () => {
  const tenant = systemTenant('org-a');

  async function start(change: Partial<S3BlobsOptions> = {}) {
    const server = await startS3Server({ buckets: ['blobs'] });
    const blobs = await openS3Blobs({ ...optionsFor(server), ...change });
    onTestFinished(async () => {
      await blobs.close();
      await server.stop();
      expect(server.faults).toEqual([]);
    });
    return { server, blobs };
  }

  it('lie under the prefix and their organisation', async () => {
    const { server, blobs } = await start();
    await blobs.put(tenant, 'file-1', Readable.from([Buffer.from('x')]));
    expect(server.keys('blobs')).toEqual(['sluice/eu/org-a/file-1']);
  });

  it('travel in parts of at least 5 MiB, without being held as a whole', async () => {
    const { server, blobs } = await start();
    const piece = randomBytes(1024 * 1024);
    let made = 0;
    let most = 0;
    const sent = () => server.requests.reduce((sum, request) => sum + request.bytes, 0);
    const body = Readable.from(
      (async function* () {
        for (let i = 0; i < 60; i++) {
          made += piece.length;
          most = Math.max(most, made - sent());
          yield piece;
        }
      })(),
    );
    expect((await blobs.put(tenant, 'large', body)).bytes).toBe(60 * piece.length);
    const parts = server.requests.filter((request) => request.operation === 'UploadPart').map(({ bytes }) => bytes);
    expect(parts.length).toBeGreaterThan(5);
    // Two are under way at a time, so the last of them, which may be shorter, may arrive before the one before it.
    const [, ...full] = parts.sort((a, b) => a - b);
    expect(Math.min(...full)).toBeGreaterThanOrEqual(5 * 1024 * 1024);
    expect(most).toBeLessThan(48 * 1024 * 1024);
    expect(server.openUploads('blobs')).toEqual([]);
  });

  it('leave no unfinished upload behind when the body fails after the first parts', async () => {
    const { server, blobs } = await start();
    async function* failing(): AsyncGenerator<Buffer> {
      for (let i = 0; i < 20; i++) yield Buffer.alloc(1024 * 1024);
      throw new Error('client went away');
    }
    await expect(blobs.put(tenant, 'failed', Readable.from(failing()))).rejects.toThrow('client went away');
    expect(server.keys('blobs')).toEqual([]);
    expect(server.openUploads('blobs')).toEqual([]);
  });

  it('leave no unfinished upload behind when the body is destroyed', async () => {
    const { server, blobs } = await start();
    const body = new Readable({ read() {} });
    body.push(Buffer.alloc(20 * 1024 * 1024));
    const put = blobs.put(tenant, 'destroyed', body);
    put.catch(() => undefined);
    while (server.requests.every(({ operation }) => operation !== 'UploadPart')) await new Promise(setImmediate);
    body.destroy(new SluiceError('client_closed', 'gone'));
    await expect(put).rejects.toThrow('gone');
    expect(server.keys('blobs')).toEqual([]);
    expect(server.openUploads('blobs')).toEqual([]);
  });

  it('end what a killed process left unfinished for a day, and nothing younger', async () => {
    const { server, blobs } = await start();
    server.fail = ({ operation }) =>
      operation === 'UploadPart' || operation === 'AbortMultipartUpload' ? { status: 403, code: 'AccessDenied' } : null;
    await expect(blobs.put(tenant, 'left', Readable.from([Buffer.alloc(20 * 1024 * 1024)]))).rejects.toThrow();
    server.fail = () => null;
    expect(server.openUploads('blobs')).toHaveLength(1);
    await (await openS3Blobs(optionsFor(server))).close();
    expect(server.openUploads('blobs')).toHaveLength(1);
    const later = { ...systemClock, now: () => systemClock.now() + 25 * 60 * 60_000 };
    await (await openS3Blobs({ ...optionsFor(server), clock: later })).close();
    expect(server.openUploads('blobs')).toEqual([]);
  });

  it('are swept page by page, and uploads of others in the same bucket are left alone', async () => {
    const { server, blobs } = await start({ prefix: '' });
    server.pageSize = 2;
    server.fail = ({ operation }) =>
      operation === 'UploadPart' || operation === 'AbortMultipartUpload' ? { status: 403, code: 'AccessDenied' } : null;
    const put = (key: string) => blobs.put(tenant, key, Readable.from([Buffer.alloc(9 * 1024 * 1024)]));
    for (let i = 0; i < 5; i++) await expect(put(`left-${i}`)).rejects.toThrow();
    server.fail = () => null;
    const others = await openS3Blobs({ ...optionsFor(server), prefix: 'of/others' });
    server.fail = ({ operation }) =>
      operation === 'UploadPart' || operation === 'AbortMultipartUpload' ? { status: 403, code: 'AccessDenied' } : null;
    await expect(others.put(tenant, 'theirs', Readable.from([Buffer.alloc(9 * 1024 * 1024)]))).rejects.toThrow();
    await others.close();
    server.fail = () => null;
    expect(server.openUploads('blobs')).toHaveLength(6);
    const later = { ...systemClock, now: () => systemClock.now() + 25 * 60 * 60_000 };
    await (await openS3Blobs({ ...optionsFor(server), prefix: '', clock: later })).close();
    expect(server.openUploads('blobs')).toEqual(['of/others/org-a/theirs']);
  });

  it('are listed page by page', async () => {
    const { server, blobs } = await start();
    server.pageSize = 2;
    const keys = ['a', 'b', 'c', 'd', 'e'];
    for (const key of keys) await blobs.put(tenant, key, Readable.from([Buffer.from(key)]));
    const found: string[] = [];
    for await (const { key } of blobs.all()) found.push(key);
    expect(found).toEqual(keys);
  });

  it('answer 503 when the bucket refuses or is missing, never "there is no such file"', async () => {
    const { server, blobs } = await start();
    server.fail = () => ({ status: 403, code: 'AccessDenied' });
    await expect(blobs.get(tenant, 'x')).rejects.toMatchObject({ kind: 'unavailable' });
    server.fail = () => null;
    const elsewhere = await openS3Blobs({ ...optionsFor(server), bucket: 'missing' });
    await expect(elsewhere.get(tenant, 'x')).rejects.toMatchObject({ kind: 'unavailable' });
    await elsewhere.close();
  });

  it('are repeated by the client when the service fails for a moment', async () => {
    const { server, blobs } = await start();
    await blobs.put(tenant, 'kept', Readable.from([Buffer.from('content')]));
    let failures = 1;
    server.fail = ({ operation }) =>
      operation === 'GetObject' && failures-- > 0 ? { status: 503, code: 'SlowDown' } : null;
    const stream = await blobs.get(tenant, 'kept');
    expect(stream && (await buffer(stream)).toString()).toBe('content');
  });
});
