import { Readable } from 'node:stream';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { BatchRequest, JobRequest } from '../../src/operations/training.ts';
import { togetherAi } from '../../src/providers/together-ai/together-ai.ts';
import type { UploadRequest } from '../../src/providers/training.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { batchRequest, readLines, readText, walk } from '../support/lists.ts';
import { startTogether, type TogetherUpstream } from '../support/upstreams/together-ai.ts';
import { BASE, requestFor } from './fields/inputs.ts';
import { refusal } from './support.ts';

const { jobs, files, batches } = togetherAi.training ?? {};
if (!jobs || !files || !batches) throw new Error('together-ai has lost a part');

let upstream: TogetherUpstream;
let context: TestContext;

beforeEach(async () => {
  upstream = await startTogether();
  context = adapterContext({ base: upstream.url });
});

afterEach(async () => {
  await context.close();
  await upstream.stop();
  expect(upstream.faults).toEqual([]);
});

const job = (fields: Partial<JobRequest> = {}): JobRequest => requestFor({ base: fields }, 'training_file');
const ready = { ...BASE.hyperparameters };

const row = (id: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  id,
  status: 'running',
  created_at: '2026-01-01T00:00:00.900Z',
  updated_at: '2026-01-01T01:00:00Z',
  model: 'base-model',
  model_output_name: 'user/base-model-v1',
  training_file: 'file-train',
  validation_file: '',
  n_epochs: 3,
  batch_size: 'max',
  learning_rate: 0.00002,
  token_count: 1234,
  ...more,
});

describe('fine-tuning jobs at Together', () => {
  it('creates a supervised job with the learning rate left to the default for a multiplier of 1', async () => {
    const created = await jobs.create(job({ hyperparameters: { ...ready, batch_size: 8 } }), context);
    expect(upstream.last).toEqual({
      model: 'base-model',
      training_file: 'file-train',
      suffix: 'v1',
      n_epochs: 3,
      batch_size: 8,
      training_method: { method: 'sft', train_on_inputs: 'auto' },
    });
    expect(created).toMatchObject({
      object: 'fine_tuning.job',
      status: 'queued',
      fine_tuned_model: null,
      finished_at: null,
      trained_tokens: null,
      error: null,
      result_files: [],
      organization_id: 'user-1',
      validation_file: null,
      seed: 0,
    });
    expect(created.created_at).toBe(Date.UTC(2026, 0, 1, 0, 0, 1) / 1000);
  });

  it('creates a preference job with beta, an absolute rate, a seed, and an evaluation of the validation file', async () => {
    await jobs.create(
      job({
        method: 'dpo',
        hyperparametersPath: 'method.dpo.hyperparameters',
        hyperparameters: { n_epochs: 2, learning_rate_multiplier: 3, batch_size: 'auto', beta: 0.3 },
        validation_file: 'file-valid',
        seed: 7,
      }),
      context,
    );
    expect(upstream.last).toEqual({
      model: 'base-model',
      training_file: 'file-train',
      validation_file: 'file-valid',
      n_evals: 1,
      suffix: 'v1',
      n_epochs: 2,
      learning_rate: 0.00003,
      random_seed: 7,
      training_method: { method: 'dpo', dpo_beta: 0.3 },
    });
  });

  it('refuses what it cannot express by name and makes no call', async () => {
    const nested = job({});
    const cases: [JobRequest, string][] = [
      [job({ hyperparameters: { ...ready, n_epochs: 'auto' } }), 'method.supervised.hyperparameters.n_epochs'],
      [job({ hyperparameters: { ...ready, beta: 0.1 } }), 'method.supervised.hyperparameters.beta'],
      [job({ suffix: 'x'.repeat(65) }), 'suffix'],
      [job({ extra: { n_checkpoints: 3 } }), 'n_checkpoints'],
      [
        {
          ...nested,
          body: {
            ...nested.body,
            method: { type: 'supervised', supervised: { hyperparameters: { ...ready, warmup: 0.1 } } },
          },
        },
        'method.supervised.hyperparameters.warmup',
      ],
    ];
    for (const [request, param] of cases) {
      await expect(jobs.create(request, context)).rejects.toMatchObject({
        kind: 'unsupported_parameter',
        param,
        message: expect.stringContaining(`together-ai cannot express ${param} = `),
      });
    }
    expect(upstream.received).toEqual([]);
  });

  it.each([
    ['pending', 'queued'],
    ['queued', 'queued'],
    ['running', 'running'],
    ['compressing', 'running'],
    ['uploading', 'running'],
    ['completed', 'succeeded'],
    ['error', 'failed'],
    ['user_error', 'failed'],
    ['cancel_requested', 'cancelled'],
    ['cancelled', 'cancelled'],
    ['something_new', 'running'],
  ])('shows %s as %s', async (status, ours) => {
    upstream.jobs.set('ft-1', row('ft-1', { status }));
    const found = await jobs.retrieve('ft-1', context);
    const final = ['succeeded', 'failed', 'cancelled'].includes(ours);
    expect(found.status).toBe(ours);
    expect(found.finished_at).toBe(final ? Date.UTC(2026, 0, 1, 1) / 1000 : null);
    expect(found.trained_tokens).toBe(final ? 1234 : null);
    expect(found.fine_tuned_model).toBe(ours === 'succeeded' ? 'user/base-model-v1' : null);
    expect(found.error === null).toBe(ours !== 'failed');
  });

  it('gives hyperparameters back as they were asked for, and an estimate only while one exists', async () => {
    upstream.jobs.set('ft-1', row('ft-1', { progress: { estimate_available: true, seconds_remaining: 90 } }));
    const found = await jobs.retrieve('ft-1', context);
    expect(found.hyperparameters).toEqual({ n_epochs: 3, batch_size: 'auto', learning_rate_multiplier: 2 });
    expect(found.estimated_finish).toBe(context.now() / 1000 + 90);
    upstream.jobs.set('ft-1', row('ft-1', { status: 'completed', progress: { estimate_available: true } }));
    expect((await jobs.retrieve('ft-1', context)).estimated_finish).toBeNull();
  });

  it('takes the reason of a failed job from its last error event', async () => {
    upstream.jobs.set('ft-1', row('ft-1', { status: 'error' }));
    upstream.events.set('ft-1', [
      { created_at: '2026-01-01T00:00:01Z', level: 'error', message: 'out of memory' },
      { created_at: '2026-01-01T00:00:02Z', level: 'info', message: 'stopped' },
    ]);
    expect((await jobs.retrieve('ft-1', context)).error).toEqual({
      code: 'provider_error',
      message: 'out of memory',
      param: null,
    });
  });

  it('cancels a job, and says 400 for one that has ended', async () => {
    upstream.jobs.set('ft-1', row('ft-1'));
    expect((await jobs.cancel('ft-1', context)).status).toBe('cancelled');
    upstream.jobs.set('ft-2', row('ft-2', { status: 'completed' }));
    expect(await refusal(() => jobs.cancel('ft-2', context))).toMatchObject({
      status: 400,
      message: 'The job has ended.',
    });
  });

  it('keeps status, type and message of an error, and leaves no way out of the path', async () => {
    expect(await refusal(() => jobs.retrieve('ft-none', context))).toMatchObject({
      status: 404,
      type: 'not_found_error',
      message: 'Not found',
    });
    expect(await refusal(() => jobs.retrieve('..', context))).toMatchObject({ status: 404 });
    upstream.jobs.set('a/b?c', row('a/b?c'));
    expect((await jobs.retrieve('a/b?c', context)).id).toBe('a/b?c');
  });

  it('walks the whole list in any page size, newest first, while jobs are added', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(5), { maxLength: 25 }), fc.integer({ min: 1, max: 7 }), async (times, limit) => {
        upstream.jobs.clear();
        const add = (minute: number): void => {
          const id = `ft-${upstream.jobs.size}`;
          upstream.jobs.set(id, row(id, { created_at: `2026-01-01T00:0${minute}:00Z` }));
        };
        times.forEach(add);
        const before = [...upstream.jobs.keys()];
        const seen = await walk((after) => {
          if (after !== null && upstream.jobs.size < 60) add(9);
          return jobs.list({ after, limit }, context);
        });
        expect(new Set(seen).size).toBe(seen.length);
        expect(before.filter((id) => !seen.includes(id))).toEqual([]);
      }),
      { numRuns: 25 },
    );
    expect(await refusal(() => jobs.list({ after: 'ft-gone', limit: 3 }, context))).toMatchObject({
      status: 400,
      param: 'after',
    });
  });

  it('numbers events by their place, so that ids stay when more are added', async () => {
    upstream.jobs.set('ft-1', row('ft-1'));
    const event = (second: number, level: string | null): Record<string, unknown> => ({
      object: 'fine-tune-event',
      created_at: `2026-01-01T00:00:0${second}Z`,
      level,
      message: `event ${second}`,
      type: 'job_start',
      step: 0,
    });
    const list = [event(1, null), event(2, 'legacy_iwarning'), event(3, 'error')];
    upstream.events.set('ft-1', list);
    const first = await jobs.events('ft-1', { after: null, limit: 2 }, context);
    expect(first.data.map(({ id, level, message }) => [id, level, message])).toEqual([
      ['ft-1:2', 'error', 'event 3'],
      ['ft-1:1', 'warn', 'event 2'],
    ]);
    list.push(event(4, 'info'));
    const second = await jobs.events('ft-1', { after: 'ft-1:1', limit: 2 }, context);
    expect(second.data.map(({ id, level }) => [id, level])).toEqual([['ft-1:0', 'info']]);
    expect(second.has_more).toBe(false);
    upstream.events.set('ft-1', list.toReversed());
    expect((await jobs.events('ft-1', { after: null, limit: 1 }, context)).data[0]?.id).toBe('ft-1:3');
  });

  it('lists checkpoints, and tells two of one step apart', async () => {
    upstream.jobs.set('ft-1', row('ft-1'));
    const made = (step: number, type: string): Record<string, unknown> => ({
      step,
      created_at: '2026-01-01T00:00:05Z',
      path: `s3://bucket/${step}-${type}`,
      checkpoint_type: type,
    });
    upstream.checkpoints.set('ft-1', [made(10, 'Intermediate'), made(20, 'Final'), made(20, 'Final Adapter')]);
    const ids = await walk((after) => jobs.checkpoints('ft-1', { after, limit: 1 }, context));
    expect(ids).toEqual(['ft-1:20', 'ft-1:20:Final Adapter', 'ft-1:10']);
    expect((await jobs.checkpoints('ft-1', { after: null, limit: 1 }, context)).data[0]).toEqual({
      object: 'fine_tuning.job.checkpoint',
      id: 'ft-1:20',
      created_at: Date.UTC(2026, 0, 1, 0, 0, 5) / 1000,
      fine_tuned_model_checkpoint: 's3://bucket/20-Final',
      step_number: 20,
      metrics: { step: 20 },
      fine_tuning_job_id: 'ft-1',
      checkpoint_type: 'Final',
    });
  });

  it('finds a job that was created but not noted by its training file', async () => {
    const created = await jobs.create(job(), context);
    expect((await jobs.findByName?.(job(), context))?.id).toBe(created.id);
    expect(await jobs.findByName?.(job({ training_file: 'file-other' }), context)).toBeNull();
  });

  it('shows the exact request of a dry run and sends nothing', () => {
    const prepared = jobs.prepare(job(), context);
    expect(prepared).toMatchObject({ method: 'POST', url: `${upstream.url}/fine-tunes` });
    expect(prepared.headers).toContain('Bearer test-key');
    expect(upstream.received).toEqual([]);
  });
});

const upload = (content: string, more: Partial<UploadRequest> = {}): UploadRequest => ({
  filename: 'rows.jsonl',
  purpose: 'fine-tune',
  contentType: 'application/jsonl',
  stream: Readable.from([Buffer.from(content.slice(0, 5)), Buffer.from(content.slice(5))], { objectMode: false }),
  bytes: content.length,
  ...more,
});

describe('files at Together', () => {
  it('uploads to the signed address without the key, and gives it back', async () => {
    const made = await files.upload(upload('{"text":"hello"}\n'), context);
    expect(made).toMatchObject({ object: 'file', filename: 'rows.jsonl', purpose: 'fine-tune', status: 'processed' });
    expect(made.bytes).toBe(17);
    expect(upstream.store.received.map(({ method }) => method)).toEqual(['PUT']);
    const content = await files.content(made.id, context);
    expect(await readText(content.stream)).toBe('{"text":"hello"}\n');
    expect(content.bytes).toBe(17);
    expect(context.calls.filter(({ accountHeaders }) => accountHeaders === false)).toHaveLength(2);
  });

  it('uses the form of the definition when the size is unknown or the server redirects nothing', async () => {
    const unknown = await files.upload(upload('{"text":"a"}\n', { bytes: null, purpose: 'batch' }), context);
    expect(unknown).toMatchObject({ purpose: 'batch', bytes: 13 });
    expect(upstream.last).toMatchObject({ purpose: 'batch-api', file_name: 'rows.jsonl', file_type: 'jsonl' });
    upstream.redirects = false;
    const whole = await files.upload(upload('{"text":"b"}\n', { filename: 'table.parquet' }), context);
    expect(whole.bytes).toBe(13);
    expect(upstream.last).toMatchObject({ file_type: 'parquet', file: { bytes: 13 } });
    expect(upstream.store.received).toEqual([]);
  });

  it('removes the empty file when the store refuses the bytes, and says what the store said', async () => {
    upstream.storeStatus = 503;
    expect(await refusal(() => files.upload(upload('{"text":"a"}\n'), context))).toMatchObject({
      status: 503,
      message: 'Please slow down.',
    });
    expect(upstream.files.size).toBe(0);
  });

  it('removes what a killed upload left under its name, and nothing else', async () => {
    for (const [id, filename, Processed] of [
      ['file-1', 'rows.jsonl', false],
      ['file-2', 'rows.jsonl', true],
      ['file-3', 'other.jsonl', false],
    ]) {
      upstream.files.set(String(id), { id, filename, Processed, purpose: 'fine-tune' });
    }
    await files.abandon?.('rows.jsonl', context);
    expect([...upstream.files.keys()]).toEqual(['file-2', 'file-3']);
  });

  it.each([
    ['http://169.254.169.254/latest/meta-data', 'a cloud metadata address'],
    ['http://user:secret@127.0.0.1/x', 'an address with a password'],
    ['file:///etc/passwd', 'another scheme'],
    ['//[', 'no address at all'],
  ])('does not follow a redirect to %s (%s)', async (location) => {
    upstream.answer = (_, response) => {
      response.writeHead(302, { location, 'x-together-file-id': 'file-1' }).end();
    };
    await expect(files.upload(upload('{"text":"a"}\n'), context)).rejects.toThrow();
    expect(upstream.store.received).toEqual([]);
  });

  it('does not follow a redirect from https to plain http', async () => {
    const secure = adapterContext({ base: 'https://api.example', redirect: { 'api.example': upstream.url } });
    upstream.answer = (_, response) => {
      response.writeHead(302, { location: upstream.store.url, 'x-together-file-id': 'file-1' }).end();
    };
    await expect(files.upload(upload('{"text":"a"}\n'), secure)).rejects.toMatchObject({ kind: 'upstream_invalid' });
    await secure.close();
  });

  it('refuses purposes it does not keep, by name', async () => {
    await expect(files.upload(upload('x', { purpose: 'vision' }), context)).rejects.toMatchObject({
      kind: 'unsupported_parameter',
      param: 'purpose',
    });
    expect([...files.purposes]).toEqual(['fine-tune', 'batch']);
  });

  it('lists by purpose under our names and hides evaluation files', async () => {
    const put = (id: string, purpose: string, created_at: number): void => {
      upstream.files.set(id, { id, purpose, created_at, filename: id, bytes: 1, Processed: created_at > 2 });
    };
    put('file-1', 'fine-tune', 1);
    put('file-2', 'batch-api', 2);
    put('file-3', 'batch-generated', 3);
    put('file-4', 'eval-output', 4);
    const all = await files.list(null, context);
    expect(all.map(({ id, purpose, status }) => [id, purpose, status])).toEqual([
      ['file-3', 'batch_output', 'processed'],
      ['file-2', 'batch', 'uploaded'],
      ['file-1', 'fine-tune', 'uploaded'],
    ]);
    expect((await files.list('batch', context)).map(({ id }) => id)).toEqual(['file-2']);
    expect(await files.list('eval-output', context)).toEqual([]);
    expect(await refusal(() => files.retrieve('file-4', context))).toMatchObject({ status: 404 });
    await files.remove('file-1', context);
    expect(upstream.files.has('file-1')).toBe(false);
  });
});

describe('batches at Together', () => {
  it('reads the batch out of the create answer, and statuses and times as ours', async () => {
    const made = await batches.create(batchRequest({ model: 'm-1' }), context);
    expect(upstream.last).toEqual({
      input_file_id: 'file-in',
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      model_id: 'm-1',
    });
    expect(made).toMatchObject({
      object: 'batch',
      status: 'validating',
      input_file_id: 'file-in',
      output_file_id: null,
      expires_at: Date.UTC(2026, 0, 2) / 1000,
    });
    expect(made).not.toHaveProperty('request_counts');
    Object.assign(upstream.batches.get(made.id) ?? {}, { status: 'FAILED', error: 'bad file' });
    const failed = await batches.retrieve(made.id, context);
    expect(failed.status).toBe('failed');
    expect(failed.errors?.data[0]).toMatchObject({ message: 'bad file' });
    expect(await refusal(() => batches.retrieve('none', context))).toMatchObject({
      status: 404,
      message: 'batch job not found',
    });
  });

  it('lists the bare array in pages, cancels, and refuses to cancel what has ended', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 5; i++)
      ids.unshift((await batches.create(batchRequest({ input_file_id: `f${i}` }), context)).id);
    expect(await walk((after) => batches.list({ after, limit: 2 }, context))).toEqual(ids);
    expect((await batches.cancel(ids[0] ?? '', context)).status).toBe('cancelled');
    Object.assign(upstream.batches.get(ids[1] ?? '') ?? {}, { status: 'COMPLETED' });
    expect(await refusal(() => batches.cancel(ids[1] ?? '', context))).toMatchObject({ status: 400 });
    expect((await batches.findByName?.(batchRequest({ input_file_id: 'f3' }), context))?.id).toBe(ids[1]);
  });

  it('refuses fields it cannot express by name', async () => {
    const cases: [Partial<BatchRequest>, string][] = [
      [{ metadata: { a: 'b' } }, 'metadata'],
      [{ role_arn: 'arn' }, 'role_arn'],
      [{ job_name: 'n' }, 'job_name'],
      [{ output_data_config: 's3://b' }, 'output_data_config'],
      [{ completion_window: 'immediate' }, 'completion_window'],
      [{ extra: { priority: 2 } }, 'priority'],
    ];
    for (const [fields, param] of cases) {
      await expect(batches.create(batchRequest(fields), context)).rejects.toMatchObject({
        kind: 'unsupported_parameter',
        param,
      });
    }
    expect(upstream.received).toEqual([]);
    const dropping = adapterContext({ base: upstream.url, dropParams: ['metadata'] });
    expect(batches.prepare(batchRequest({ metadata: { a: 'b' } }), dropping).body).not.toHaveProperty('metadata');
    await dropping.close();
  });

  it('gives results and errors as one stream of lines in our shape', async () => {
    const made = await batches.create(batchRequest(), context);
    expect(await refusal(() => batches.output(made.id, context))).toMatchObject({ status: 400 });
    const answer = { id: 'c', object: 'chat.completion', choices: [{ index: 0, finish_reason: 'eos', message: {} }] };
    const put = (id: string, lines: object[]): void => {
      upstream.files.set(id, { id, purpose: 'batch-generated' });
      upstream.contents.set(id, Buffer.from(lines.map((line) => JSON.stringify(line)).join('\n')));
    };
    put('file-out', [{ custom_id: 'a', response: { status_code: 200, body: answer } }]);
    put('file-err', [
      { custom_id: 'b', error: { message: 'expired', code: 'batch_expired' } },
      { custom_id: 'c', response: { status_code: 422, body: { error: 'too long' } } },
    ]);
    Object.assign(upstream.batches.get(made.id) ?? {}, {
      status: 'COMPLETED',
      output_file_id: 'file-out',
      error_file_id: 'file-err',
    });
    const lines = await readLines(await batches.output(made.id, context));
    expect(lines).toEqual([
      {
        id: `${made.id}:a`,
        custom_id: 'a',
        response: {
          status_code: 200,
          request_id: null,
          body: { ...answer, choices: [{ index: 0, finish_reason: 'stop', message: {} }] },
        },
        error: null,
      },
      { id: `${made.id}:b`, custom_id: 'b', response: null, error: { code: 'batch_expired', message: 'expired' } },
      {
        id: `${made.id}:c`,
        custom_id: 'c',
        response: {
          status_code: 400,
          request_id: null,
          body: { error: { message: 'too long', type: 'invalid_request_error', param: null, code: null } },
        },
        error: null,
      },
    ]);
    Object.assign(upstream.batches.get(made.id) ?? {}, { output_file_id: '', error_file_id: '' });
    expect(await readText(await batches.output(made.id, context))).toBe('');
  });

  it('writes input lines as a single call would be written, and refuses what that call would refuse', () => {
    const line = {
      custom_id: 'a',
      method: 'POST',
      url: '/v1/chat/completions',
      body: { model: 'ignored', messages: [{ role: 'developer', content: 'x' }], max_completion_tokens: 5, stop: 'z' },
    };
    expect(batches.inputLine?.(line, batchRequest({ model: 'm-1' }))).toEqual({
      custom_id: 'a',
      body: { model: 'm-1', messages: [{ role: 'system', content: 'x' }], max_tokens: 5, stop: ['z'] },
    });
    const wrong = [
      { ...line, url: '/v1/embeddings' },
      { ...line, method: 'GET' },
      { ...line, custom_id: 7 },
      { ...line, body: { ...line.body, stream: true } },
      { ...line, body: { ...line.body, parallel_tool_calls: false } },
    ];
    for (const one of wrong) expect(() => batches.inputLine?.(one, batchRequest())).toThrow();
  });
});
