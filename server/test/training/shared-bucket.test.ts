/** What the dispatcher promises for any provider, with adapters of its own over calls that never leave the process. */

import { describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import type { Provider } from '../../src/providers/provider.ts';
import {
  account,
  answerOf,
  asked,
  call,
  create,
  files,
  jobs,
  object,
  on,
  provider,
  training,
  upload,
  useBacked,
} from '../support/backed-objects.ts';
import { refusal } from './support.ts';

useBacked();

/** The same bucket; uploads lie in a folder. */
const inFolder: Provider = {
  ...provider,
  training: {
    jobs,
    files: {
      ...files,
      plannedId: (filename) => `s3://bucket/deep/${filename}`,
      upload: async (file, context) => {
        await files.upload(file, context);
        return object(encodeURIComponent(`s3://bucket/deep/${file.filename}`));
      },
    },
  },
};

describe('objects in a bucket that workspaces share', () => {
  it('may be named by who owns them and by anybody while nobody does', async () => {
    expect(await answerOf(create('w1', { training_file: 's3://bucket/nobodys.jsonl' }))).toMatchObject({ id: 'job-1' });
    await upload('w2', 'theirs.jsonl');
    for (const id of ['s3://bucket/theirs.jsonl', 's3%3A%2F%2Fbucket%2Ftheirs.jsonl']) {
      expect(await refusal(() => create('w1', { training_file: id }))).toMatchObject({
        status: 404,
        param: 'training_file',
      });
    }
    asked.length = 0;
    expect(await refusal(() => create('w2', { training_file: 's3%3A%2F%2Fbucket%2Ftheirs.jsonl' }))).toMatchObject({
      status: 409,
    });
    expect(asked).toEqual(['create']);
    expect(await refusal(() => create('w1', { training_file: 'bucket/theirs.jsonl' }))).toMatchObject({ status: 404 });
  });

  it('of others are not reached by another spelling, a folder or a pattern', async () => {
    await upload('w2', 'hidden.jsonl');
    asked.length = 0;
    for (const training_file of [
      's3%3a%2f%2fbucket%2fhidden.jsonl',
      's3:%2f%2fbucket/hidden.jsonl',
      '%733://bucket/hidden.jsonl',
      's3://bucket/hid*',
      's3://bucket/h?dden.jsonl',
      's3%3A%2F%2Fbucket%2F%2A',
    ]) {
      expect(await refusal(() => create('w1', { training_file }))).toMatchObject({
        status: 404,
        param: 'training_file',
      });
    }
    await upload('w2', 'hidden.jsonl', { account: { ...account, provider: inFolder } });
    for (const training_file of ['s3://bucket/deep/', 's3://bucket/deep', 's3%3a%2f%2fbucket%2fdeep%2f']) {
      expect(await refusal(() => create('w1', { training_file }))).toMatchObject({ status: 404 });
    }
    expect(asked).toEqual(['upload']);
    expect(await answerOf(create('w1', { training_file: 's3://bucket/deeper/' }))).toMatchObject({ id: 'job-1' });
  });

  it('that are uploaded under one name at the same time have one owner, whose bytes stay', async () => {
    let release = () => {};
    const started = new Promise<void>((resolve) => {
      on.upload = () => {
        on.upload = async () => {};
        resolve();
        return new Promise<void>((go) => {
          release = go;
        });
      };
    });
    const first = upload('w1', 'raced.jsonl');
    await started;
    expect(await refusal(() => upload('w2', 'raced.jsonl'))).toMatchObject({ status: 409 });
    release();
    expect(await answerOf(first)).toMatchObject({ id: 's3://bucket/raced.jsonl' });
    expect(await refusal(() => upload('w2', 'raced.jsonl'))).toMatchObject({ status: 409 });
  });

  it('are free for others again after an upload that failed', async () => {
    on.upload = async () => {
      on.upload = async () => {};
      throw new SluiceError('upstream_unreachable', 'gone');
    };
    expect(await refusal(() => upload('w1', 'failed.jsonl'))).toMatchObject({ status: 502 });
    expect(
      await refusal(() => training.handle(call('file', 'w1', { params: { file_id: 's3://bucket/failed.jsonl' } }))),
    ).toMatchObject({ status: 404 });
    expect(await answerOf(upload('w2', 'failed.jsonl'))).toMatchObject({ id: 's3://bucket/failed.jsonl' });
  });

  it('are given out as what nobody shows or runs as a page', async () => {
    await upload('w1', 'page.html');
    const { headers } = await training.handle(
      call('file_content', 'w1', { params: { file_id: 's3://bucket/page.html' } }),
    );
    expect(headers).toEqual(['content-type', 'text/plain', 'x-content-type-options', 'nosniff']);
  });

  it('are not taken from a provider that answers before it has read the file', async () => {
    await expect(upload('w1', 'unread.jsonl')).rejects.toMatchObject({ kind: 'upstream_invalid' });
    expect(
      await refusal(() => training.handle(call('file', 'w1', { params: { file_id: 's3://bucket/unread.jsonl' } }))),
    ).toMatchObject({ status: 404 });
  });

  it('are never written over by another workspace, and again by their own', async () => {
    await upload('w1', 'mine.jsonl');
    asked.length = 0;
    expect(await refusal(() => upload('w2', 'mine.jsonl'))).toMatchObject({ status: 409 });
    expect(asked).toEqual([]);
    expect(await answerOf(upload('w1', 'mine.jsonl'))).toMatchObject({ id: 's3://bucket/mine.jsonl' });
  });

  it('are told to nobody else when a provider answers a creation with what another workspace made', async () => {
    await create('w1');
    expect(await refusal(() => create('w2'))).toMatchObject({
      status: 409,
      message: expect.not.stringContaining('job-1'),
    });
  });

  it('belong to the workspace whose job wrote them, written plainly or encoded', async () => {
    expect(
      await refusal(() => training.handle(call('file', 'w2', { params: { file_id: 's3://bucket/out.csv' } }))),
    ).toMatchObject({ status: 404 });
    await create('w1');
    for (const id of ['s3://bucket/out.csv', encodeURIComponent('s3://bucket/out.csv')]) {
      asked.length = 0;
      await training.handle(call('file', 'w1', { params: { file_id: id } }));
      expect(asked).toEqual(['retrieve s3://bucket/out.csv']);
    }
    expect(
      await refusal(() => training.handle(call('file', 'w2', { params: { file_id: 's3://bucket/out.csv' } }))),
    ).toMatchObject({ status: 404 });
  });
});
