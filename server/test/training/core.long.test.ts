import type OpenAI from 'openai';
import { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';
import { startUpstream } from '../support/upstream.ts';
import { type OpenAiObjects, startOpenAiObjects } from '../support/upstreams/openai.ts';

const ROWS = Array.from({ length: 12 }, (_, i) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: `Question ${i}` },
      { role: 'assistant', content: `Answer ${i}` },
    ],
  }),
).join('\n');
const hyperparameters = { n_epochs: 3, learning_rate_multiplier: 0.5, batch_size: 8 };
const method = { type: 'supervised', supervised: { hyperparameters } };
const ONE = 'openai-shared-one';
const TWO = 'openai-shared-two';
const AT_ONE = { 'x-gateway-provider': `@${ONE}` };
const AT_TWO = { 'x-gateway-provider': `@${TWO}` };

let server: ObjectServer;
let upstream: OpenAiObjects;
let mine: OpenAI;

beforeAll(async () => {
  upstream = await startOpenAiObjects();
  server = await startObjectServer();
  await server.shared({ id: 'openai', host: upstream.base });
  await server.provider({ id: 'cohere', host: upstream.base });
  mine = server.first_.client(ONE);
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});
afterEach(() => {
  expect(upstream.faults.splice(0)).toEqual([]);
});

const upload = (client = mine, purpose: 'fine-tune' | 'batch' = 'fine-tune', text = ROWS) =>
  toFile(Buffer.from(text), 'rows.jsonl').then((file) => client.files.create({ file, purpose }));

/** What the provider was asked while `run` ran, as `METHOD path`. */
async function asked(run: () => Promise<unknown>): Promise<string[]> {
  const before = upstream.received.length;
  await run();
  return upstream.received.slice(before).map((one) => `${one.method} ${one.path}`);
}

const jobBody = (training_file: string, more: object = {}) => ({
  model: 'gpt-4o-mini-2024-07-18',
  training_file,
  suffix: 'v1',
  method,
  ...more,
});

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

describe('creating a job', () => {
  const block = (more: object) => ({
    method: { type: 'supervised', supervised: { hyperparameters: { ...hyperparameters, ...more } } },
  });
  const H = 'method.supervised.hyperparameters';
  const tracker = { type: 'tracker', tracker: { project: 'p' } };
  const options = { 'x-gateway-virtual-key': ONE };
  it.each<[string, object | string, string | null]>([
    ['no model', { model: undefined }, 'model'],
    ['a model that is no text', { model: 1 }, 'model'],
    ['no training_file', { training_file: undefined }, 'training_file'],
    ['an empty training_file', { training_file: '' }, 'training_file'],
    ['a validation_file that is no text', { validation_file: {} }, 'validation_file'],
    ['no suffix', { suffix: undefined }, 'suffix'],
    ['no method', { method: undefined }, 'method'],
    ['a method that is a text', { method: 'dpo' }, 'method'],
    ['no method.type', { method: { supervised: { hyperparameters } } }, 'method.type'],
    ['another method.type', { method: { type: 'reinforcement' } }, 'method.type'],
    ['a type without its block', { method: { type: 'supervised' } }, 'method.supervised'],
    ['the block of the other type', { method: { type: 'dpo', supervised: { hyperparameters } } }, 'method.dpo'],
    ['a block without hyperparameters', { method: { type: 'dpo', dpo: {} } }, 'method.dpo.hyperparameters'],
    ['no n_epochs', block({ n_epochs: undefined }), `${H}.n_epochs`],
    ['n_epochs 0', block({ n_epochs: 0 }), `${H}.n_epochs`],
    ['n_epochs 1.5', block({ n_epochs: 1.5 }), `${H}.n_epochs`],
    ['n_epochs as a text', block({ n_epochs: '3' }), `${H}.n_epochs`],
    ['n_epochs past int32', block({ n_epochs: 2_147_483_648 }), `${H}.n_epochs`],
    ['no batch_size', block({ batch_size: undefined }), `${H}.batch_size`],
    ['batch_size -1', block({ batch_size: -1 }), `${H}.batch_size`],
    ['no learning_rate_multiplier', block({ learning_rate_multiplier: undefined }), `${H}.learning_rate_multiplier`],
    ['learning_rate_multiplier 0', block({ learning_rate_multiplier: 0 }), `${H}.learning_rate_multiplier`],
    ['learning_rate_multiplier past float', block({ learning_rate_multiplier: 1e39 }), `${H}.learning_rate_multiplier`],
    ['a rate too small for a float', block({ learning_rate_multiplier: 1e-60 }), `${H}.learning_rate_multiplier`],
    ['older hyperparameters that differ', { hyperparameters: { ...hyperparameters, n_epochs: 4 } }, 'hyperparameters'],
    [
      'older hyperparameters alone, one missing',
      { method: undefined, hyperparameters: { n_epochs: 1, batch_size: 'auto' } },
      'hyperparameters.learning_rate_multiplier',
    ],
    ['a seed below 0', { seed: -1 }, 'seed'],
    ['6 integrations', { integrations: Array(6).fill(tracker) }, 'integrations'],
    ['another kind of integration', { integrations: [{ type: 'wandb', wandb: {} }] }, 'integrations[0].type'],
    [
      'a tracker without project',
      { integrations: [{ type: 'tracker', tracker: {} }] },
      'integrations[0].tracker.project',
    ],
    [
      'tags that are no texts',
      { integrations: [{ type: 'tracker', tracker: { project: 'p', tags: [1] } }] },
      'integrations[0].tracker.tags[0]',
    ],
    [
      'metadata of 17 pairs',
      { metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, 'v'])) },
      'metadata',
    ],
    ['a long metadata value', { metadata: { k: 'v'.repeat(513) } }, 'metadata.k'],
    ['a job_name that is no text', { job_name: 5 }, 'job_name'],
    [
      'gateway_options without an account',
      { gateway_options: { 'x-gateway-object-store-bucket': 'my-bucket' } },
      'gateway_options.x-gateway-virtual-key',
    ],
    [
      'gateway_options of another kind',
      { gateway_options: { ...options, authorization: 'x' } },
      'gateway_options.authorization',
    ],
    [
      'gateway_options with a host',
      { gateway_options: { ...options, 'x-gateway-custom-host': 'http://x' } },
      'gateway_options.x-gateway-custom-host',
    ],
    [
      'gateway_options with a provider name',
      { gateway_options: { 'x-gateway-provider': 'openai' } },
      'gateway_options.x-gateway-provider',
    ],
    ['gateway_options that are a list', { gateway_options: [] }, 'gateway_options'],
    ['unknown provider_options', { provider_options: { region: 'x' } }, 'provider_options.region'],
    ['provider_options that are no text', { provider_options: { model: 1 } }, 'provider_options.model'],
  ])('is refused with %s', async (_what, change, param) => {
    const calls = await asked(async () => {
      const answer = await server.first_.send('POST', '/fine_tuning/jobs', AT_ONE, jobBody('file-x', change as object));
      expect([answer.status, answer.error.code, answer.error.param]).toEqual([400, 'AB01', param]);
      expect(typeof answer.error.message).toBe('string');
    });
    expect(calls).toEqual([]);
  });

  it('accepts the older hyperparameters alone and `auto` in them', async () => {
    const file = await upload();
    const older = { n_epochs: 'auto', batch_size: 'auto', learning_rate_multiplier: 'auto' };
    const answer = await server.first_.send(
      'POST',
      '/fine_tuning/jobs',
      AT_ONE,
      jobBody(file.id, { method: undefined, hyperparameters: older }),
    );
    expect(answer.status).toBe(200);
  });

  it('reads shape C: the account, the provider’s model, and the top level over provider_options', async () => {
    const file = await upload();
    const body = jobBody(file.id, {
      gateway_options: options,
      provider_options: { model: 'gpt-4.1-mini-2025-04-14' },
    });
    const answer = await server.first_.send('POST', '/fine_tuning/jobs', {}, body);
    expect(answer.status).toBe(200);
    expect(upstream.last.model).toBe('gpt-4.1-mini-2025-04-14');
    expect(upstream.last).not.toHaveProperty('gateway_options');
    expect(upstream.last).not.toHaveProperty('provider_options');
    const both = jobBody(file.id, { gateway_options: options, provider_options: { job_name: 'b' }, job_name: 'a' });
    const refused = await server.first_.send('POST', '/fine_tuning/jobs', {}, both);
    expect([refused.status, refused.error.code, refused.error.param]).toEqual([
      400,
      'unsupported_parameter',
      'job_name',
    ]);
    expect(refused.error.message).toContain('"a"');
    const unknown = await server.first_.send(
      'POST',
      '/fine_tuning/jobs',
      {},
      jobBody(file.id, { gateway_options: { 'x-gateway-virtual-key': 'nope' } }),
    );
    expect(unknown.status).toBe(400);
  });

  it('takes the account from a model of the form @slug/model', async () => {
    const file = await upload();
    const answer = await server.first_.send(
      'POST',
      '/fine_tuning/jobs',
      {},
      jobBody(file.id, { model: `@${ONE}/gpt-4o-mini-2024-07-18` }),
    );
    expect([answer.status, upstream.last.model]).toEqual([200, 'gpt-4o-mini-2024-07-18']);
  });

  it('leaves out what drop_params lists and refuses it otherwise', async () => {
    const file = await upload();
    const config = JSON.stringify({ provider: `@${ONE}`, drop_params: ['role_arn', 'seed'] });
    const body = jobBody(file.id, { role_arn: 'arn:x', seed: 3 });
    const dropped = await server.first_.send('POST', '/fine_tuning/jobs', { 'x-gateway-config': config }, body);
    expect(dropped.status).toBe(200);
    expect(upstream.last).not.toHaveProperty('seed');
    const refused = await server.first_.send('POST', '/fine_tuning/jobs', AT_ONE, body);
    expect([refused.status, refused.error.code, refused.error.param]).toEqual([
      400,
      'unsupported_parameter',
      'role_arn',
    ]);
  });

  it('says what would be sent on a dry run and sends nothing', async () => {
    const file = await upload();
    const calls = await asked(async () => {
      const answer = await server.first_.send(
        'POST',
        '/fine_tuning/jobs',
        { ...AT_ONE, 'x-gateway-dry-run': 'true' },
        jobBody(file.id),
      );
      expect(answer.body).toMatchObject({
        object: 'dry_run',
        operation: 'finetune_create',
        target: { provider: 'openai', slug: ONE, model: 'gpt-4o-mini-2024-07-18' },
        request: {
          method: 'POST',
          url: `${upstream.base}/fine_tuning/jobs`,
          body: { training_file: file.id, suffix: 'v1', method },
        },
      });
      expect(answer.text).not.toContain('test-key');
      const elsewhere = await server.first_.send('DELETE', `/files/${file.id}`, {
        ...AT_ONE,
        'x-gateway-dry-run': 'true',
      });
      expect([elsewhere.status, elsewhere.error.param]).toEqual([400, 'x-gateway-dry-run']);
    });
    expect(calls).toEqual([]);
  });
});

describe('creating a batch', () => {
  const base = { input_file_id: 'file-x', endpoint: '/v1/chat/completions', completion_window: '24h' };
  it('says what would be sent on a dry run and sends nothing', async () => {
    const file = await upload();
    const calls = await asked(async () => {
      const answer = await server.first_.send(
        'POST',
        '/batches',
        { ...AT_ONE, 'x-gateway-dry-run': 'true' },
        { ...base, input_file_id: file.id },
      );
      expect(answer.body).toMatchObject({
        object: 'dry_run',
        operation: 'batch_create',
        request: { method: 'POST', url: `${upstream.base}/batches`, body: { input_file_id: file.id } },
      });
    });
    expect(calls).toEqual([]);
  });

  it.each<[string, object, string]>([
    ['no input_file_id', { input_file_id: undefined }, 'input_file_id'],
    ['no endpoint', { endpoint: undefined }, 'endpoint'],
    ['another endpoint', { endpoint: '/v1/images/generations' }, 'endpoint'],
    ['no completion_window', { completion_window: undefined }, 'completion_window'],
    ['another completion_window', { completion_window: '48h' }, 'completion_window'],
    ['immediate for a file of the provider', { completion_window: 'immediate' }, 'completion_window'],
    [
      'gateway_options for a file of the provider',
      { gateway_options: { 'x-gateway-virtual-key': ONE } },
      'input_file_id',
    ],
    ['gateway_options that name nobody', { gateway_options: {} }, 'gateway_options.x-gateway-virtual-key'],
    ['metadata that is a text', { metadata: 'x' }, 'metadata'],
    ['a long metadata name', { metadata: { ['k'.repeat(65)]: 'v' } }, `metadata.${'k'.repeat(64)}`],
    ['unknown provider_options', { provider_options: { x: 'y' } }, 'provider_options.x'],
  ])('is refused with %s', async (_what, change, param) => {
    const calls = await asked(async () => {
      const answer = await server.first_.send('POST', '/batches', AT_ONE, { ...base, ...change });
      expect([answer.status, answer.error.code, answer.error.param]).toEqual([400, 'AB01', param]);
    });
    expect(calls).toEqual([]);
  });
});

describe('routes', () => {
  it.each(['/files', '/fine_tuning/jobs', '/batches'])(
    '%s of a provider without them is 501 without a call',
    async (path) => {
      const calls = await asked(async () => {
        const answer = await server.first_.send('GET', path, { 'x-gateway-provider': '@cohere-test' });
        expect([answer.status, answer.error.code, answer.error.type]).toEqual([
          501,
          'unsupported_operation',
          'invalid_request_error',
        ]);
      });
      expect(calls).toEqual([]);
    },
  );

  it.each([
    ['GET', '/files/a/b'],
    ['PUT', '/files/a'],
    ['PATCH', '/files'],
    ['POST', '/files/a/content'],
    ['GET', '/fine_tuning'],
    ['GET', '/fine_tuning/models'],
    ['POST', '/fine_tuning/jobs/a/retry'],
    ['GET', '/batches/a/lines'],
    ['DELETE', '/batches/a'],
  ])('%s %s is 404 and reaches no provider', async (verb, path) => {
    const calls = await asked(async () => {
      const answer = await server.first_.send(verb, path, AT_ONE);
      expect([answer.status, answer.error.code]).toEqual([404, 'AB08']);
    });
    expect(calls).toEqual([]);
  });

  it('decode an id once, slashes in it included, and refuse dot segments however they are written', async () => {
    const own = {
      'x-gateway-provider': 'openai',
      'x-gateway-custom-host': upstream.base,
      authorization: 'Bearer test-key',
    };
    for (const id of ['..%2fx', 's3%3A%2F%2Fb%2F..%2Fk', 's3%253A%252F%252Fb%252F..%252Fk', '%00', 'a%5cb']) {
      expect([id, (await server.first_.send('GET', `/files/${id}`, own)).status]).toEqual([id, 400]);
    }
    const calls = await asked(() => server.first_.send('GET', '/files/s3%3A%2F%2Fbucket%2Fa%20b', AT_ONE));
    expect(calls).toEqual([]);
  });

  it('need a credential, a scope and a provider', async () => {
    expect((await fetch(`${server.url}/v1/files`)).status).toBe(401);
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'none',
      workspace_id: server.first.workspace_id,
      scopes: ['logs.list'],
    });
    if (made.status === 200) {
      const answer = await fetch(`${server.url}/v1/files`, { headers: { 'x-gateway-api-key': String(made.body.key) } });
      expect(answer.status).toBe(403);
    }
    expect((await server.first_.send('GET', '/files')).status).toBe(400);
  });

  it('keep the credential out of what a provider’s error echoes, and its status in', async () => {
    const file = await upload();
    upstream.state.fail = {
      status: 429,
      body: { error: { message: 'Key test-key is over its limit', type: 'rate_limit', code: 'x' } },
      headers: { 'retry-after': '7' },
    };
    const answer = await server.first_.send('GET', `/files/${file.id}`, AT_ONE);
    expect([answer.status, answer.error.type, answer.headers.get('retry-after')]).toEqual([
      429,
      'rate_limit_error',
      '7',
    ]);
    expect(answer.text).not.toContain('test-key');
  });

  it('leave one record each, with the calls they made', async () => {
    const before = (await server.records()).length;
    const file = await upload();
    await server.first_.send('GET', '/files/file-nope', AT_ONE);
    await server.first_.send(
      'POST',
      '/fine_tuning/jobs',
      {},
      jobBody(file.id, { gateway_options: { 'x-gateway-virtual-key': ONE } }),
    );
    const records = (await server.records()).slice(0, -before || undefined);
    expect(
      records.map((one) => [
        one.operation,
        one.status,
        one.outcome,
        one.provider_slug,
        (one.attempts as object[]).length,
      ]),
    ).toEqual([
      ['finetune_create', 200, 'ok', ONE, 1],
      ['file', 404, 'refused', ONE, 0],
      ['files_upload', 200, 'ok', ONE, 1],
    ]);
    expect(records[0]).toMatchObject({ model_requested: 'gpt-4o-mini-2024-07-18', cost_micros: 0 });
    expect(Number(records[2]?.bytes_in)).toBeGreaterThan(ROWS.length);
    expect(Number(records[2]?.upstream_bytes_out)).toBeGreaterThan(ROWS.length);
  });
});

describe('what Sluice keeps and runs itself', () => {
  const OWN = { 'x-gateway-provider': 'gateway' };

  it('is reached by its ids whatever the headers name, and by the provider name gateway', async () => {
    const form = new FormData();
    form.set('purpose', 'fine-tune');
    form.set('file', new Blob([ROWS]), 'rows.jsonl');
    const calls = await asked(async () => {
      const kept = await server.first_.send('POST', '/files', OWN, form);
      expect(kept.status).toBe(200);
      const id = String(kept.body?.id);
      expect(id).toMatch(/^gw_file_/);
      expect((await server.first_.send('GET', `/files/${id}/content`, AT_ONE)).text).toBe(ROWS);
      expect((await server.second.send('GET', `/files/${id}`, AT_TWO)).status).toBe(404);
      const listed = await server.first_.send('GET', '/files', OWN);
      expect(((listed.body?.data ?? []) as { id: string }[]).map((one) => one.id)).toEqual([id]);
      expect((await server.first_.send('POST', '/fine_tuning/jobs/gw_ftjob_x/pause', AT_ONE)).status).toBe(404);
      expect((await server.first_.send('GET', '/batches/gw_batch_x', AT_ONE)).status).toBe(404);
    });
    expect(calls).toEqual([]);
    const records = await server.records();
    expect(records[0]).toMatchObject({ operation: 'batch', provider: null, cost_micros: 0 });
  });

  it('trains a kept file at the provider that a header or gateway_options name', async () => {
    const file = await toFile(Buffer.from(ROWS), 'rows.jsonl');
    const kept = await server.first_.client(ONE, OWN).files.create({ file, purpose: 'fine-tune' });
    const before = upstream.state.jobs.size;
    const job = await mine.fineTuning.jobs.create(jobBody(kept.id) as never);
    expect(job.id).toMatch(/^gw_ftjob_/);
    await expect.poll(() => upstream.state.jobs.size, { timeout: 10_000, interval: 20 }).toBe(before + 1);
    expect((await mine.fineTuning.jobs.cancel(job.id)).status).toBe('cancelled');
  });
});

describe('PUT /v2/batches/{id}', () => {
  const line = JSON.stringify({
    custom_id: '1',
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: 'echo', messages: [{ role: 'user', content: 'Hi' }] },
  });

  it('lets an organisation’s data service write a batch that Sluice keeps, and nobody else', async () => {
    const own = server.first_.client(ONE, { 'x-gateway-provider': 'gateway' });
    const file = await toFile(Buffer.from(line), 'lines.jsonl');
    const input = await own.files.create({ file, purpose: 'batch' });
    const made = await server.first_.send(
      'POST',
      '/batches',
      {},
      {
        input_file_id: input.id,
        endpoint: '/v1/chat/completions',
        completion_window: 'immediate',
        model: 'echo',
        gateway_options: { 'x-gateway-virtual-key': 'sandbox' },
      },
    );
    expect(made.status, made.text).toBe(200);
    const path = `/v2/batches/${String(made.body?.id)}`;
    const put = (body: unknown, key?: string) => server.admin('PUT', path, body, key);
    expect(await put({ internal_output_file_id: input.id })).toEqual({ status: 200, body: {} });
    const read = await server.first_.send('GET', `/batches/${String(made.body?.id)}`);
    expect(read.body).toMatchObject({ internal_output_file_id: input.id });
    expect((await put({ internal_output_file_id: null }, server.first_.key)).status).toBe(403);
    for (const [body, status, param] of [
      [{}, 400, null],
      [{ status: 'paused' }, 400, 'status'],
      [{ output_file_id: 'gw_file_nope' }, 404, 'output_file_id'],
      [{ model: 'x' }, 400, 'model'],
      [{ request_counts: { total: -1, completed: 0, failed: 0 } }, 400, 'request_counts.total'],
    ] as const) {
      const answer = await put(body);
      const { error } = answer.body as { error: { param: unknown } };
      expect([body, answer.status, error.param]).toEqual([body, status, param]);
    }
    expect((await server.admin('PUT', '/v2/batches/gw_batch_nope', { status: 'failed' })).status).toBe(404);
    expect((await server.admin('PUT', `/v1/batches/${String(made.body?.id)}`, { status: 'failed' })).status).toBe(404);
  });
});

describe('rules of the organisation', () => {
  it('saved-only mode refuses brought-along accounts and leaves Sluice’s own files open', async () => {
    const strict = await startObjectServer({ BLOCK_INLINE_CONFIG: 'true' });
    try {
      const inline = await strict.first_.send('GET', '/files', {
        'x-gateway-provider': 'openai',
        authorization: 'Bearer test-key',
      });
      expect([inline.status, inline.error.code]).toEqual([400, 'inline_provider_blocked']);
      expect((await strict.first_.send('GET', '/files', { 'x-gateway-provider': 'gateway' })).status).toBe(200);
      expect((await strict.first_.send('GET', '/files', { 'x-gateway-provider': '@sandbox' })).status).toBe(200);
      const chat = await strict.first_.send(
        'POST',
        '/chat/completions',
        { 'x-gateway-provider': 'gateway' },
        { model: 'x', messages: [] },
      );
      expect([chat.status, chat.error.code]).toEqual([400, 'inline_provider_blocked']);
    } finally {
      await strict.stop();
    }
  });

  it('rate limits of a key count these requests like every other', async () => {
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'limited',
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
      rate_limits: [{ type: 'requests', unit: 'rph', value: 2 }],
    });
    expect(made.status, JSON.stringify(made.body)).toBe(200);
    const statuses: number[] = [];
    for (const provider of ['gateway', '@sandbox', 'gateway']) {
      const headers = { 'x-gateway-api-key': String(made.body.key), 'x-gateway-provider': provider };
      const form = new FormData();
      form.set('purpose', 'batch');
      form.set('file', new Blob(['{}\n']), 'lines.jsonl');
      const answer = await fetch(`${server.url}/v1/files`, { method: 'POST', headers, body: form });
      statuses.push(answer.status);
      // A list takes nothing from the limit.
      await fetch(`${server.url}/v1/files`, { headers });
    }
    expect(statuses).toEqual([200, 200, 429]);
  });

  it('a request timeout ends a call that does not answer', async () => {
    const slow = await startUpstream(() => {});
    const answer = await server.first_.send('GET', '/files', {
      'x-gateway-provider': 'openai',
      'x-gateway-custom-host': `${slow.url}/v1`,
      authorization: 'Bearer test-key',
      'x-gateway-request-timeout': '100',
    });
    expect([answer.status, answer.error.type]).toEqual([408, 'timeout_error']);
    await slow.stop();
  });
});
