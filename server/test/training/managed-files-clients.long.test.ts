/** Sluice's own files with the official client, through the whole server, on both stores they may lie in. */
import { truncate } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import type OpenAI from 'openai';
import { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';
import { S3_KEYS, S3_REGION, type S3Server, startS3Server } from '../support/s3-server.ts';

const OWN = { 'x-gateway-provider': 'gateway' };
const ROWS = Array.from({ length: 12 }, (_, i) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: `Question ${i}` },
      { role: 'assistant', content: `Antwort ${i}, größer` },
    ],
  }),
).join('\n');

describe.each(['disk', 's3'] as const)('files that Sluice keeps, on %s', (kind) => {
  let s3: S3Server | null = null;
  let server: ObjectServer;
  let mine: OpenAI;
  let theirs: OpenAI;

  beforeAll(async () => {
    s3 = kind === 's3' ? await startS3Server({ buckets: ['files'] }) : null;
    server = await startObjectServer(
      s3 === null
        ? {}
        : {
            SLUICE_BLOBS_URL: `s3://files/sluice?region=${S3_REGION}&endpoint=${s3.url}&path_style=true`,
            AWS_ACCESS_KEY_ID: S3_KEYS.accessKeyId,
            AWS_SECRET_ACCESS_KEY: S3_KEYS.secretAccessKey,
          },
    );
    mine = server.first_.client('', OWN);
    theirs = server.second.client('', OWN);
  });
  afterAll(async () => {
    await server?.stop();
    await s3?.stop();
    expect(s3?.faults ?? []).toEqual([]);
  });

  const upload = (text = ROWS, purpose: 'fine-tune' | 'batch' | 'vision' = 'fine-tune', client = mine) =>
    toFile(Buffer.from(text), 'rows.jsonl').then((file) => client.files.create({ file, purpose }));
  const settled = (id: string) =>
    vi.waitFor(
      async () => {
        const file = await mine.files.retrieve(id);
        if (file.status === 'uploaded') throw new Error('not checked yet');
        return file;
      },
      { timeout: 20_000, interval: 20 },
    );

  it('are uploaded, checked, listed, read whole and in part, and deleted', async () => {
    const file = await upload();
    expect(file).toMatchObject({ object: 'file', status: 'uploaded', filename: 'rows.jsonl', purpose: 'fine-tune' });
    expect(file.bytes).toBe(Buffer.byteLength(ROWS));
    expect(file.id).toMatch(/^gw_file_/);
    expect(await settled(file.id)).toEqual({ ...file, status: 'processed' });

    const listed: string[] = [];
    for await (const one of mine.files.list({ purpose: 'fine-tune', limit: 1 })) listed.push(one.id);
    expect(listed).toContain(file.id);
    expect((await mine.files.list({ purpose: 'assistants' })).data).toEqual([]);

    const content = await mine.files.content(file.id);
    expect(content.headers.get('content-type')).toBe('application/octet-stream');
    expect(content.headers.get('content-length')).toBe(String(file.bytes));
    expect(await content.text()).toBe(ROWS);
    const middle = await server.first_.send('GET', `/files/${file.id}/content`, { ...OWN, range: 'bytes=5-20' });
    expect([middle.status, middle.text]).toEqual([206, ROWS.slice(5, 21)]);

    expect(await mine.files.delete(file.id)).toEqual({ id: file.id, object: 'file', deleted: true });
    await expect(mine.files.retrieve(file.id)).rejects.toMatchObject({ status: 404 });
    expect(s3?.keys('files').filter((key) => key.endsWith(file.id)) ?? []).toEqual([]);
  });

  it('tell which lines are wrong', async () => {
    const file = await upload(`${ROWS}\nnot a row\n{"messages":[]}`);
    expect(await settled(file.id)).toMatchObject({
      status: 'error',
      status_details:
        '12 of 14 rows are valid: line 13: the line is not valid JSON; line 14: "messages" must be a list with messages.',
    });
  });

  it('do not exist for another workspace of the organisation', async () => {
    const file = await upload();
    for (const attempt of [
      () => theirs.files.retrieve(file.id),
      () => theirs.files.content(file.id),
      () => theirs.files.delete(file.id),
    ])
      await expect(attempt()).rejects.toMatchObject({ status: 404 });
    expect((await theirs.files.list()).data).toEqual([]);
    expect(await (await mine.files.content(file.id)).text()).toBe(ROWS);
    await settled(file.id);
  });

  it('are refused with their reason, and nothing stays behind', async () => {
    const before = (await mine.files.list()).data.length;
    await expect(upload(ROWS, 'batch_output' as 'batch')).rejects.toMatchObject({ status: 400, param: 'purpose' });
    const answer = await server.first_.send('POST', '/files', OWN, new FormData());
    expect(answer.status).toBe(400);
    expect((await mine.files.list()).data).toHaveLength(before);
    expect(s3?.openUploads('files') ?? []).toEqual([]);
  });

  it('have the size that a header announced, or are refused', async () => {
    const form = () => {
      const made = new FormData();
      made.set('purpose', 'fine-tune');
      made.set('file', new Blob([ROWS]), 'rows.jsonl');
      return made;
    };
    const size = Buffer.byteLength(ROWS);
    const send = (bytes: number | string) =>
      server.first_.send('POST', '/files', { ...OWN, 'x-gateway-file-upload-size': String(bytes) }, form());
    for (const wrong of [3, size - 1, size + 1, 'many']) {
      expect(await send(wrong)).toMatchObject({ status: 400, error: { param: 'x-gateway-file-upload-size' } });
    }
    expect(await send(600_000_000)).toMatchObject({ status: 413, error: { param: 'file' } });
    const right = await send(size);
    expect(right).toMatchObject({ status: 200, body: { bytes: size } });
    await settled(String(right.body?.id));
    expect(s3?.openUploads('files') ?? []).toEqual([]);
  });

  it('are refused with an answer that the client can read, however much of them is still to come', async () => {
    for (const size of [1_000, 5_000_000]) {
      const file = await toFile(Buffer.alloc(size, 'a'), 'rows.jsonl');
      for (let i = 0; i < 20; i++) {
        await expect(mine.files.create({ file, purpose: 'evals' })).rejects.toMatchObject({ param: 'purpose' });
      }
    }
  });

  it('are refused by the length of the request before they are read', async () => {
    const url = new URL(server.url);
    const answer = new Promise<string>((resolve, reject) => {
      const socket = connect(Number(url.port), url.hostname, () => {
        socket.write(
          `POST /v1/files HTTP/1.1\r\nhost: ${url.host}\r\nx-gateway-api-key: ${server.first_.key}\r\n` +
            'x-gateway-provider: gateway\r\ncontent-type: multipart/form-data; boundary=abc\r\n' +
            'content-length: 629145600\r\n\r\n--abc\r\n',
        );
      });
      socket.once('data', (bytes) => {
        resolve(bytes.toString('latin1'));
        socket.destroy();
      });
      socket.once('error', reject);
    });
    expect(await answer).toMatch(/^HTTP\/1\.1 413 /);
  });

  it('of many megabytes come back as they went', async () => {
    const large = Buffer.alloc(20_000_000);
    for (let i = 0; i < large.length; i += 4) large.writeUInt32LE(i, i);
    const file = await mine.files.create({ file: await toFile(large, 'picture.bin'), purpose: 'vision' });
    const back = Buffer.from(await (await mine.files.content(file.id)).arrayBuffer());
    expect(back.equals(large)).toBe(true);
    await settled(file.id);
  });
});

describe('a kept file whose bytes are not all there any more', () => {
  it.each([20, 400_000])('of %i bytes is never answered as if it were whole', async (size) => {
    const server = await startObjectServer();
    try {
      const client = server.first_.client('', OWN);
      const file = await toFile(Buffer.alloc(size, 65), 'all.txt');
      const { id } = await client.files.create({ file, purpose: 'assistants' });
      await truncate(join(server.dataDir, 'blobs', server.first.organisation_id, id), size - 5);
      const answer = await fetch(`${server.url}/v1/files/${id}/content`, {
        headers: { ...OWN, 'x-gateway-api-key': server.first.workspace_api_key },
      });
      const whole =
        answer.status === 200
          ? await answer.arrayBuffer().then(
              () => true,
              () => false,
            )
          : false;
      expect(whole).toBe(false);
    } finally {
      await server.stop();
    }
  });
});
