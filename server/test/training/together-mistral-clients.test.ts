import type OpenAI from 'openai';
import { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ANTHROPIC_KEY } from '../support/anthropic-upstream.ts';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';
import { type AnthropicBatches, startAnthropicBatches } from '../support/upstreams/anthropic-batches.ts';
import { type MistralUpstream, startMistral } from '../support/upstreams/mistral-ai.ts';
import { startTogether, type TogetherUpstream } from '../support/upstreams/together-ai.ts';

const ROWS = '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}\n'.repeat(12);
const LINE = `${JSON.stringify({ custom_id: '1', method: 'POST', url: '/v1/chat/completions', body: { model: 'm' } })}\n`;

let server: ObjectServer;
let together: TogetherUpstream;
let mistral: MistralUpstream;
let anthropic: AnthropicBatches;

beforeAll(async () => {
  server = await startObjectServer();
  together = await startTogether();
  mistral = await startMistral();
  anthropic = await startAnthropicBatches();
  await server.shared({ id: 'together-ai', host: together.url });
  await server.shared({ id: 'mistral-ai', host: mistral.url });
  await server.shared({ id: 'anthropic', host: `${anthropic.url}/v1`, key: ANTHROPIC_KEY });
});
afterAll(async () => {
  await server?.stop();
  for (const one of [together, mistral, anthropic]) await one?.stop();
});
afterEach(() => {
  for (const one of [together, mistral, anthropic]) expect(one.faults.splice(0)).toEqual([]);
});

const supervised = (batch_size: number) => ({
  type: 'supervised',
  supervised: { hyperparameters: { n_epochs: 3, learning_rate_multiplier: 0.5, batch_size } },
});

async function create(client: OpenAI, fields: Record<string, unknown>) {
  const file = await client.files.create({ file: await toFile(Buffer.from(ROWS), 'rows.jsonl'), purpose: 'fine-tune' });
  expect(file).toMatchObject({ object: 'file', bytes: ROWS.length, purpose: 'fine-tune', filename: 'rows.jsonl' });
  const content = await (await client.files.content(file.id)).text();
  expect(content === ROWS || content === '').toBe(true);
  const body = { model: 'base-model', training_file: file.id, suffix: 'v1', ...fields };
  return { file, job: await client.fineTuning.jobs.create(body as never) };
}

describe('the official client trains at Together', () => {
  const client = () => server.first_.client('together-ai-shared-one');

  it('from the upload at a signed address to events, checkpoints and the tuned model', async () => {
    const { file, job } = await create(client(), { method: supervised(8), seed: 7 });
    expect(together.contents.get(file.id)?.toString()).toBe(ROWS);
    expect(together.last).toEqual({
      model: 'base-model',
      training_file: file.id,
      suffix: 'v1',
      n_epochs: 3,
      batch_size: 8,
      learning_rate: 0.000005,
      random_seed: 7,
      training_method: { method: 'sft', train_on_inputs: 'auto' },
    });
    expect(job).toMatchObject({ object: 'fine_tuning.job', status: 'queued', seed: 7, training_file: file.id });
    together.events.set(job.id, [{ created_at: '2026-01-01T00:00:02Z', level: 'info', message: 'Job started' }]);
    together.checkpoints.set(job.id, [{ step: 10, created_at: '2026-01-01T00:00:03Z', path: 'user/model:10' }]);
    const events = await client().fineTuning.jobs.listEvents(job.id);
    expect(events.data).toMatchObject([{ id: `${job.id}:0`, level: 'info', message: 'Job started' }]);
    const checkpoints = await client().fineTuning.jobs.checkpoints.list(job.id);
    expect(checkpoints.data).toMatchObject([{ step_number: 10, fine_tuned_model_checkpoint: 'user/model:10' }]);
    Object.assign(together.jobs.get(job.id) ?? {}, { status: 'completed', token_count: 99 });
    expect(await client().fineTuning.jobs.retrieve(job.id)).toMatchObject({
      status: 'succeeded',
      fine_tuned_model: 'user/base-model-v1',
      trained_tokens: 99,
    });
    await expect(client().fineTuning.jobs.cancel(job.id)).rejects.toMatchObject({ status: 400 });
    await client().files.delete(file.id);
    await expect(client().files.retrieve(file.id)).rejects.toMatchObject({ status: 404 });
  });

  it('walks its jobs in pages of one', async () => {
    const made: string[] = [];
    for (let i = 0; i < 3; i++) made.unshift((await create(client(), { method: supervised(1) })).job.id);
    const seen: string[] = [];
    for await (const job of client().fineTuning.jobs.list({ limit: 1 })) seen.push(job.id);
    expect(seen.slice(0, 3)).toEqual(made);
    expect(new Set(seen).size).toBe(seen.length);
  });

  it('runs a batch whose answers come out as our lines', async () => {
    const file = await client().files.create({ file: await toFile(Buffer.from(LINE), 'in.jsonl'), purpose: 'batch' });
    const batch = await client().batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    expect(batch).toMatchObject({ object: 'batch', status: 'validating' });
    together.files.set('file-out', { id: 'file-out', purpose: 'batch-generated' });
    together.contents.set(
      'file-out',
      Buffer.from('{"custom_id":"1","response":{"status_code":200,"body":{"id":"c"}}}'),
    );
    Object.assign(together.batches.get(batch.id) ?? {}, { status: 'COMPLETED', output_file_id: 'file-out' });
    const output = await server.first_.send('GET', `/batches/${batch.id}/output`, {
      'x-gateway-provider': '@together-ai-shared-one',
    });
    expect(output.status).toBe(200);
    expect(JSON.parse(output.text)).toMatchObject({ custom_id: '1', response: { status_code: 200 }, error: null });
  });

  it('is told by name what cannot be expressed, before any call', async () => {
    const before = together.received.length;
    const body = { model: 'm', training_file: 'file-1', suffix: 'v1', method: supervised(1), metadata: { a: 'b' } };
    await expect(client().fineTuning.jobs.create(body as never)).rejects.toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      param: 'metadata',
    });
    expect(together.received.length).toBe(before);
  });

  it('keeps what another workspace made out of reach', async () => {
    const { file, job } = await create(client(), { method: supervised(1) });
    const other = server.second.client('together-ai-shared-two');
    const before = together.received.length;
    await expect(other.fineTuning.jobs.retrieve(job.id)).rejects.toMatchObject({ status: 404 });
    await expect(other.files.content(file.id)).rejects.toMatchObject({ status: 404 });
    expect(together.received.length).toBe(before);
  });
});

describe('the official client trains at Mistral', () => {
  const client = () => server.first_.client('mistral-ai-shared-one');

  it('from the upload to events and the tuned model', async () => {
    const { file, job } = await create(client(), { method: supervised(1) });
    expect(mistral.last).toMatchObject({
      training_files: [{ file_id: file.id, weight: 1 }],
      hyperparameters: { epochs: 3, learning_rate: 0.00005 },
      auto_start: true,
    });
    expect(job).toMatchObject({ status: 'queued', hyperparameters: { n_epochs: 3, learning_rate_multiplier: 0.5 } });
    Object.assign(mistral.jobs.get(job.id) ?? {}, {
      status: 'SUCCESS',
      fine_tuned_model: 'ft:base-model:v1',
      trained_tokens: 5,
      events: [{ name: 'status-updated', data: { status: 'SUCCESS' }, created_at: 2 }],
    });
    expect(await client().fineTuning.jobs.retrieve(job.id)).toMatchObject({ fine_tuned_model: 'ft:base-model:v1' });
    const events = await client().fineTuning.jobs.listEvents(job.id);
    expect(events.data.map(({ message }) => message)).toEqual(['status-updated: SUCCESS']);
    const seen: string[] = [];
    for await (const one of client().fineTuning.jobs.list({ limit: 1 })) seen.push(one.id);
    expect(seen).toEqual([job.id]);
  });

  it('runs a batch of one model', async () => {
    const file = await client().files.create({ file: await toFile(Buffer.from(LINE), 'in.jsonl'), purpose: 'batch' });
    const body = { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' } as const;
    await expect(client().batches.create(body)).rejects.toMatchObject({ status: 400, param: 'model' });
    const batch = await client().batches.create({ ...body, model: 'm-1', metadata: { a: 'b' } } as never);
    expect(batch).toMatchObject({ status: 'validating', metadata: { a: 'b' }, request_counts: { total: 3 } });
    expect((await client().batches.list()).data.map(({ id }) => id)).toEqual([batch.id]);
    expect((await client().batches.cancel(batch.id)).status).toBe('cancelling');
  });
});

describe('the official client at Anthropic', () => {
  const client = () => server.first_.client('anthropic-shared-one');

  it('gets 501 for jobs and files, without a call, and is told how batches are made', async () => {
    const body = { model: 'm', training_file: 'file-1', suffix: 'v1', method: supervised(1) };
    await expect(client().fineTuning.jobs.create(body as never)).rejects.toMatchObject({
      status: 501,
      code: 'unsupported_operation',
    });
    const file = await toFile(Buffer.from(ROWS), 'rows.jsonl');
    await expect(client().files.create({ file, purpose: 'fine-tune' })).rejects.toMatchObject({ status: 501 });
    await expect(
      client().batches.create({
        input_file_id: 'file-1',
        endpoint: '/v1/chat/completions',
        completion_window: '24h',
      }),
    ).rejects.toMatchObject({ status: 400, param: 'input_file_id' });
    expect(anthropic.received).toEqual([]);
  });
});
