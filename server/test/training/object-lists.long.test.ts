import type OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import {
  AT_ONE,
  AT_TWO,
  asked,
  jobBody,
  method,
  mine,
  ROWS,
  server,
  TWO,
  upload,
  upstream,
  useSharedAccounts,
} from '../support/shared-account.ts';

useSharedAccounts();

describe('with the official client', () => {
  it('files are uploaded, listed, read and deleted', async () => {
    const file = await upload();
    expect(file).toMatchObject({ object: 'file', filename: 'rows.jsonl', purpose: 'fine-tune', bytes: ROWS.length });
    const listed: string[] = [];
    for await (const one of mine.files.list({ purpose: 'fine-tune' })) listed.push(one.id);
    expect(listed).toContain(file.id);
    expect((await mine.files.list({ purpose: 'batch' })).data).toEqual([]);
    expect(await mine.files.retrieve(file.id)).toMatchObject({ id: file.id });
    expect(await (await mine.files.content(file.id)).text()).toBe(ROWS);
    expect(await mine.files.delete(file.id)).toEqual({ id: file.id, object: 'file', deleted: true });
    await expect(mine.files.retrieve(file.id)).rejects.toMatchObject({ status: 404, code: 'AB08' });
  });

  it('a fine-tuning job is created, listed, followed and cancelled', async () => {
    const file = await upload();
    const job = await mine.fineTuning.jobs.create(jobBody(file.id, { seed: 7 }) as never);
    expect(job).toMatchObject({ object: 'fine_tuning.job', status: 'validating_files', error: null, result_files: [] });
    expect(upstream.last).toMatchObject({ suffix: 'v1', seed: 7, method });
    expect((await mine.fineTuning.jobs.retrieve(job.id)).id).toBe(job.id);
    upstream.state.events.set(job.id, [
      {
        id: 'ftevent-1',
        object: 'fine_tuning.job.event',
        created_at: 1_767_225_600,
        level: 'info',
        message: 'Created',
      },
    ]);
    const events = await mine.fineTuning.jobs.listEvents(job.id);
    expect(events.data.map((one) => one.message)).toEqual(['Created']);
    upstream.state.checkpoints.set(job.id, [
      {
        id: 'ftckpt-1',
        object: 'fine_tuning.job.checkpoint',
        created_at: 1_767_225_600,
        fine_tuned_model_checkpoint: 'ft:x:ckpt-step-1',
        fine_tuning_job_id: job.id,
        metrics: { step: 1, train_loss: 0.5 },
        step_number: 1,
      },
    ]);
    const checkpoints = await mine.fineTuning.jobs.checkpoints.list(job.id);
    expect(checkpoints.data[0]?.step_number).toBe(1);
    // No unified state says paused.
    expect((await mine.fineTuning.jobs.pause(job.id)).status).toBe('queued');
    expect((await mine.fineTuning.jobs.resume(job.id)).status).toBe('queued');
    expect((await mine.fineTuning.jobs.cancel(job.id)).status).toBe('cancelled');
    await expect(mine.fineTuning.jobs.cancel(job.id)).rejects.toMatchObject({ status: 400, code: 'AB01' });
  });

  it('a batch is created, listed and cancelled, and its output is the workspace’s', async () => {
    const file = await upload(
      mine,
      'batch',
      JSON.stringify({ custom_id: '1', method: 'POST', url: '/v1/chat/completions', body: {} }),
    );
    const batch = await mine.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    expect(batch).toMatchObject({ object: 'batch', status: 'validating' });
    expect((await mine.batches.list()).data.map((one) => one.id)).toContain(batch.id);
    const line = JSON.stringify({
      id: 'r',
      custom_id: '1',
      response: { status_code: 200, request_id: 'q', body: {} },
      error: null,
    });
    upstream.state.files.set('file-out', {
      id: 'file-out',
      object: 'file',
      bytes: line.length,
      created_at: 1_767_225_600,
      filename: 'out.jsonl',
      purpose: 'batch_output',
      status: 'processed',
    });
    upstream.state.contents.set('file-out', Buffer.from(line));
    const early = await server.first_.send('GET', `/batches/${batch.id}/output`, AT_ONE);
    expect([early.status, upstream.faults]).toEqual([400, []]);
    Object.assign(upstream.state.batches.get(batch.id) ?? {}, { status: 'completed', output_file_id: 'file-out' });
    await expect(mine.files.retrieve('file-out')).rejects.toMatchObject({ status: 404 });
    expect((await mine.batches.retrieve(batch.id)).output_file_id).toBe('file-out');
    expect((await mine.files.retrieve('file-out')).purpose).toBe('batch_output');
    const output = await server.first_.send('GET', `/batches/${batch.id}/output`, AT_ONE);
    expect(output.headers.get('content-type')).toBe('application/octet-stream');
    expect(output.text.trim()).toBe(line);
    upstream.state.fail = { status: 400, body: { error: { message: 'Cannot cancel', type: 'invalid_request_error' } } };
    await expect(mine.batches.cancel(batch.id)).rejects.toMatchObject({ status: 400, code: 'AB01' });
    const foreign = await server.second.send('GET', '/files/file-out', AT_TWO);
    expect(foreign.status).toBe(404);
  });
});

describe('what belongs to another workspace of the same account', () => {
  it('is 404 without a call, wherever it is named', async () => {
    const file = await upload();
    const input = await upload(mine, 'batch', '{}');
    const job = await mine.fineTuning.jobs.create(jobBody(file.id) as never);
    const batch = await mine.batches.create({
      input_file_id: input.id,
      endpoint: '/v1/embeddings',
      completion_window: '24h',
    });
    const other = await upload(server.second.client(TWO));
    const tries: [string, string, object?, string?][] = [
      ['GET', `/files/${file.id}`],
      ['GET', `/files/${file.id}/content`],
      ['DELETE', `/files/${file.id}`],
      ['GET', `/fine_tuning/jobs/${job.id}`],
      ['POST', `/fine_tuning/jobs/${job.id}/cancel`],
      ['POST', `/fine_tuning/jobs/${job.id}/pause`],
      ['POST', `/fine_tuning/jobs/${job.id}/resume`],
      ['GET', `/fine_tuning/jobs/${job.id}/events`],
      ['GET', `/fine_tuning/jobs/${job.id}/checkpoints`],
      ['GET', `/batches/${batch.id}`],
      ['POST', `/batches/${batch.id}/cancel`],
      ['GET', `/batches/${batch.id}/output`],
      ['POST', '/fine_tuning/jobs', jobBody(file.id), 'training_file'],
      ['POST', '/fine_tuning/jobs', jobBody(other.id, { validation_file: file.id }), 'validation_file'],
      ['POST', '/fine_tuning/jobs', jobBody('s3://bucket/rows.jsonl'), 'training_file'],
      [
        'POST',
        '/batches',
        { input_file_id: input.id, endpoint: '/v1/embeddings', completion_window: '24h' },
        'input_file_id',
      ],
    ];
    const calls = await asked(async () => {
      for (const [verb, path, body, param = null] of tries) {
        const answer = await server.second.send(verb, path, AT_TWO, body);
        expect([verb, path, answer.status, answer.error.code, answer.error.param]).toEqual([
          verb,
          path,
          404,
          param === null ? 'AB08' : 'AB02',
          param,
        ]);
        // The same words as for an id that never was: nothing tells that the object exists.
        if (body === undefined) {
          const never = await server.second.send(verb, path.replace(/(file|ftjob)-\d+|batch_\d+/, 'never-was'), AT_TWO);
          expect(never.text).toBe(answer.text);
        }
      }
    });
    expect(calls).toEqual([]);
    for (const path of ['/files', '/fine_tuning/jobs', '/batches']) {
      const listed = await server.second.send('GET', path, AT_TWO);
      const ids = ((listed.body?.data ?? []) as { id: string }[]).map((one) => one.id);
      expect(ids.filter((id) => id !== other.id)).toEqual([]);
    }
    expect(await mine.files.retrieve(file.id)).toMatchObject({ id: file.id });
  });

  it('does not bind a caller with a token of its own', async () => {
    const file = await upload();
    const answer = await server.second.send('GET', `/files/${file.id}`, {
      'x-gateway-provider': 'openai',
      'x-gateway-custom-host': upstream.base,
      authorization: 'Bearer test-key',
    });
    expect(answer.status).toBe(200);
  });
});

describe('lists', () => {
  const walk = async (path: string, limit: number, between: () => Promise<unknown> = async () => {}) => {
    const ids: string[] = [];
    let after = '';
    for (;;) {
      const page = await server.second.send(
        'GET',
        `${path}?limit=${limit}${after === '' ? '' : `&after=${after}`}`,
        AT_TWO,
      );
      expect(page.status).toBe(200);
      const data = page.body?.data as { id: string }[];
      expect(data.length).toBeLessThanOrEqual(limit);
      ids.push(...data.map((one) => one.id));
      if (page.body?.has_more !== true) return ids;
      expect(data.length).toBe(limit);
      after = ids.at(-1) ?? '';
      await between();
    }
  };

  it('show every own job once for any page size, among those of others and while some are added', async () => {
    const theirs = server.second.client(TWO);
    const file = await upload(theirs);
    const foreign = await upload();
    const create = (client: OpenAI, id: string) => client.fineTuning.jobs.create(jobBody(id) as never);
    const own: string[] = [];
    for (let i = 0; i < 7; i++) {
      own.unshift((await create(theirs, file.id)).id);
      for (let k = 0; k < 18; k++) await create(mine, foreign.id);
    }
    for (const limit of [1, 2, 3, 7, 100]) expect(await walk('/fine_tuning/jobs', limit)).toEqual(own);
    const seen = await walk('/fine_tuning/jobs', 2, () => create(theirs, file.id));
    expect(seen).toEqual(own);
    const calls = await asked(() => theirs.fineTuning.jobs.list({ limit: 1 }));
    expect(calls.length).toBe(1);
  });

  it.each([
    ['/fine_tuning/jobs?limit=0', 'limit'],
    ['/fine_tuning/jobs?limit=101', 'limit'],
    ['/fine_tuning/jobs?limit=1.5', 'limit'],
    ['/fine_tuning/jobs?limit=', 'limit'],
    ['/fine_tuning/jobs?limit=1&limit=2', 'limit'],
    ['/fine_tuning/jobs?after=ftjob-nope', 'after'],
    ['/fine_tuning/jobs?after=', 'after'],
    ['/fine_tuning/jobs?order=asc', 'order'],
    ['/batches?limit=-1', 'limit'],
    ['/batches?after=batch_nope', 'after'],
    ['/files?after=file-nope', 'after'],
    ['/files?order=up', 'order'],
    ['/files?page=1', 'page'],
  ])('refuse %s by name', async (path, param) => {
    const answer = await server.first_.send('GET', path, AT_ONE);
    expect([answer.status, answer.error.code, answer.error.param]).toEqual([400, 'AB01', param]);
  });

  it('of a caller’s own account refuse an unknown cursor the same way', async () => {
    const answer = await server.first_.send('GET', '/fine_tuning/jobs?after=ftjob-nope', {
      'x-gateway-provider': 'openai',
      'x-gateway-custom-host': upstream.base,
      authorization: 'Bearer test-key',
    });
    expect([answer.status, answer.error.code, answer.error.param]).toEqual([400, 'AB01', 'after']);
  });

  it('ask nobody while the workspace has nothing', async () => {
    const calls = await asked(async () => {
      expect((await server.second.send('GET', '/batches', AT_TWO)).body).toEqual({
        object: 'list',
        data: [],
        first_id: null,
        last_id: null,
        has_more: false,
      });
    });
    expect(calls).toEqual([]);
  });

  it('hold an unknown purpose to be one that no file has', async () => {
    const answer = await server.first_.send('GET', '/files?purpose=nonsense', AT_ONE);
    expect([answer.status, answer.body?.data]).toEqual([200, []]);
  });
});
