/** Files of Vertex AI, which are objects in Cloud Storage. */
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { UploadRequest } from '../../src/providers/training.ts';
import { BUCKET, context, contextWith, files, idOf, putRows, upstream, useVertex } from '../support/vertex-training.ts';
import { refusal, textOf } from './support.ts';

useVertex();

const upload = (content: string, more: Partial<UploadRequest> = {}): UploadRequest => ({
  filename: 'data.jsonl',
  purpose: 'fine-tune',
  contentType: 'application/jsonl',
  stream: Readable.from([Buffer.from(content)]),
  bytes: Buffer.byteLength(content),
  ...more,
});

describe('files in Cloud Storage', () => {
  it.each([true, false])('come back as they were sent, size known: %s', async (known) => {
    const content = '{"contents":[]}\r\n--x\r\n'.repeat(1000);
    const file = await files.upload(upload(content, known ? {} : { bytes: null }), context);
    expect(file).toMatchObject({
      object: 'file',
      bytes: content.length,
      purpose: 'fine-tune',
      status: 'processed',
      created_at: 1_767_225_601,
    });
    expect(file.id).toMatch(/^gs%3A%2F%2Fbucket%2F[0-9a-f-]{36}\.jsonl$/);
    // Clients encode an id once more; routers decode once.
    for (const id of [file.id, decodeURIComponent(file.id)]) {
      expect(await files.retrieve(id, context)).toEqual(file);
      const read = await files.content(id, context);
      expect(read).toMatchObject({ contentType: 'application/jsonl', bytes: content.length });
      expect(await textOf(read.stream)).toBe(content);
    }
    await files.remove(file.id, context);
    expect(await refusal(() => files.retrieve(file.id, context))).toMatchObject({ status: 404 });
  });

  it('go under the name that was asked for, in place of an earlier upload but of nothing else', async () => {
    const named = contextWith({ headers: { ...BUCKET, 'x-gateway-provider-file-name': 'a b/ü?#.jsonl' } });
    expect(files.plannedId?.('data.jsonl', named)).toBe(idOf('a b/ü?#.jsonl'));
    for (const content of ['one', 'two']) {
      const file = await files.upload(upload(content), named);
      expect(file).toMatchObject({ id: idOf('a b/ü?#.jsonl'), filename: 'ü?#.jsonl' });
      expect(await textOf((await files.content(file.id, named)).stream)).toBe(content);
    }
    putRows('taken.jsonl', [{ mine: true }]);
    const taken = contextWith({ headers: { ...BUCKET, 'x-gateway-provider-file-name': 'taken.jsonl' } });
    expect(await refusal(() => files.upload(upload('three'), taken))).toMatchObject({
      status: 409,
      type: 'conflict_error',
      param: 'x-gateway-provider-file-name',
    });
    expect(await textOf((await files.content(idOf('taken.jsonl'), taken)).stream)).toBe('{"mine":true}\n');
  });

  it('are listed newest first and by purpose, over all pages, without objects of others', async () => {
    upstream.storage.listPage = 2;
    const ids: string[] = [];
    for (const purpose of ['batch', 'fine-tune', 'batch', 'fine-tune', 'batch']) {
      ids.unshift((await files.upload(upload('x', { purpose }), context)).id);
    }
    const foreign = {
      content: Buffer.from('y'),
      contentType: 'text/plain',
      metadata: {},
      timeCreated: '2026-01-02T00:00:00Z',
    };
    upstream.storage.buckets.get('bucket')?.set('0-foreign.txt', foreign);
    expect((await files.list(null, context)).map((file) => file.id)).toEqual(ids);
    expect((await files.list('batch', context)).map((file) => file.id)).toEqual([ids[0], ids[2], ids[4]]);
    expect(await files.list('vision', context)).toEqual([]);
  });

  it('live in the named bucket only', async () => {
    const bare = contextWith({ headers: {} });
    const missing = { status: 400, param: 'x-gateway-cloud-storage-bucket-name' };
    expect(await refusal(() => files.upload(upload('x'), bare))).toMatchObject(missing);
    expect(await refusal(() => files.content(idOf('x'), bare))).toMatchObject(missing);
    expect(await refusal(() => files.list(null, bare))).toMatchObject(missing);
    const other = encodeURIComponent('gs://other-bucket/x.jsonl');
    for (const act of [files.retrieve, files.remove, files.content]) {
      expect(await refusal(() => act(other, context))).toMatchObject({ status: 403, type: 'permission_error' });
    }
    for (const name of ['UPPER', 'a', '10.0.0.1', 'a/b', '..']) {
      const wrong = contextWith({ headers: { 'x-gateway-cloud-storage-bucket-name': name } });
      expect(await refusal(() => files.list(null, wrong))).toMatchObject(missing);
    }
    expect(bare.calls).toEqual([]);
  });

  it('have no ids that leave the place of objects', async () => {
    for (const id of [
      'gs://bucket/..',
      'gs://bucket/.',
      'gs://bucket/',
      'gs://bucket',
      'gs://bucket/a\nb',
      'file-1',
      '%',
    ]) {
      expect(await refusal(() => files.remove(id, context))).toMatchObject({ status: 404 });
    }
    expect(context.calls).toEqual([]);
  });

  it('an upload that breaks off leaves nothing behind', async () => {
    const broken = new Readable({ read() {} });
    broken.push('first half');
    const sent = files.upload(upload('', { stream: broken, bytes: null }), context);
    broken.destroy(new Error('the client left'));
    await expect(sent).rejects.toThrow();
    expect(upstream.storage.buckets.get('bucket')?.size).toBe(0);
  });

  it('an object that arrived short is removed again', async () => {
    upstream.storage.lose = 3;
    expect(await refusal(() => files.upload(upload('0123456789'), context))).toMatchObject({
      kind: 'upstream_invalid',
    });
    expect(upstream.storage.buckets.get('bucket')?.size).toBe(0);
  });
});
