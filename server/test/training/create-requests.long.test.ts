/** What a request may say that creates a job or a batch, or changes a batch. */
import { toFile } from 'openai';
import { describe, expect, it } from 'vitest';
import {
  AT_ONE,
  asked,
  hyperparameters,
  jobBody,
  method,
  ONE,
  server,
  upload,
  upstream,
  useSharedAccounts,
} from '../support/shared-account.ts';

useSharedAccounts();

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
