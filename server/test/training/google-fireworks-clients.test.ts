import type OpenAI from 'openai';
import { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';
import { FIREWORKS_ACCOUNT, type FireworksUpstream, startFireworks } from '../support/upstreams/fireworks.ts';
import { startVertex, VERTEX_NUMBER, type VertexUpstream } from '../support/upstreams/vertex-ai.ts';
import { valueAt } from './support.ts';

const ROWS = '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}\n'.repeat(12);

let server: ObjectServer;
let vertex: VertexUpstream;
let fireworks: FireworksUpstream;

beforeAll(async () => {
  server = await startObjectServer();
  vertex = await startVertex();
  fireworks = await startFireworks();
  vertex.storage.buckets.set('bucket', new Map());
  await server.shared({
    id: 'vertex-ai',
    host: `${vertex.url}/v1`,
    configurations: { vertex_auth_type: 'basic', vertex_region: 'us-central1', vertex_project_id: 'test-project' },
  });
  await server.shared({
    id: 'fireworks-ai',
    host: `${fireworks.url}/inference/v1`,
    configurations: { fireworks_account_id: 'acme' },
  });
});
afterAll(async () => {
  await server?.stop();
  for (const one of [vertex, fireworks]) await one?.stop();
});
afterEach(() => {
  for (const one of [vertex, fireworks]) expect(one.faults.splice(0)).toEqual([]);
});

const method = (type: 'supervised' | 'dpo', batch_size: number) => ({
  type,
  [type]: { hyperparameters: { n_epochs: 3, learning_rate_multiplier: 1, batch_size } },
});

async function create(client: OpenAI, fields: Record<string, unknown>) {
  const file = await client.files.create({ file: await toFile(Buffer.from(ROWS), 'rows.jsonl'), purpose: 'fine-tune' });
  expect(file).toMatchObject({ object: 'file', bytes: ROWS.length, purpose: 'fine-tune', status: 'processed' });
  expect(await (await client.files.content(file.id)).text()).toBe(ROWS);
  const body = { training_file: file.id, suffix: 'v1', ...fields };
  return { file, job: await client.fineTuning.jobs.create(body as never) };
}

describe('the official client trains on Vertex AI', () => {
  const client = () =>
    server.first_.client('vertex-ai-shared-one', { 'x-gateway-cloud-storage-bucket-name': 'bucket' });
  const fields = { model: 'gemini-2.5-flash', method: method('supervised', 1) };

  it('from the object in the bucket to events, checkpoints and the tuned model', async () => {
    const { file, job } = await create(client(), { ...fields, metadata: { team: 'search' } });
    expect(vertex.last).toEqual({
      baseModel: 'gemini-2.5-flash',
      tunedModelDisplayName: 'v1',
      supervisedTuningSpec: {
        trainingDatasetUri: decodeURIComponent(file.id),
        hyperParameters: { epochCount: '3', learningRateMultiplier: 1 },
      },
      labels: { team: 'search' },
    });
    expect(job).toMatchObject({ object: 'fine_tuning.job', status: 'queued', training_file: file.id });
    Object.assign(vertex.jobs.get(job.id) ?? {}, {
      state: 'JOB_STATE_SUCCEEDED',
      startTime: '2026-01-01T00:01:00Z',
      endTime: '2026-01-01T00:02:00Z',
      tunedModel: {
        endpoint: `${VERTEX_NUMBER}/endpoints/6`,
        checkpoints: [{ checkpointId: '1', epoch: '1', step: '10', endpoint: `${VERTEX_NUMBER}/endpoints/7` }],
      },
    });
    expect(await client().fineTuning.jobs.retrieve(job.id)).toMatchObject({
      status: 'succeeded',
      fine_tuned_model: `${VERTEX_NUMBER}/endpoints/6`,
    });
    const events = await client().fineTuning.jobs.listEvents(job.id);
    expect(events.data.map(({ id }) => id)).toEqual([`${job.id}:succeeded`, `${job.id}:started`, `${job.id}:created`]);
    const checkpoints = await client().fineTuning.jobs.checkpoints.list(job.id);
    expect(checkpoints.data).toMatchObject([{ step_number: 10, fine_tuning_job_id: job.id }]);
    await expect(client().fineTuning.jobs.cancel(job.id)).rejects.toMatchObject({ status: 400 });
    expect((await client().files.list()).data.map(({ id }) => id)).toContain(file.id);
    await client().files.delete(file.id);
    await expect(client().files.retrieve(file.id)).rejects.toMatchObject({ status: 404 });
  });

  it('walks its jobs in pages of one', async () => {
    const made: string[] = [];
    for (let i = 0; i < 3; i++) made.unshift((await create(client(), fields)).job.id);
    const seen: string[] = [];
    for await (const job of client().fineTuning.jobs.list({ limit: 1 })) seen.push(job.id);
    expect(seen.slice(0, 3)).toEqual(made);
    expect(new Set(seen).size).toBe(seen.length);
  });

  it('runs a batch of rows whose answers come out as our lines', async () => {
    const row = JSON.stringify({ custom_id: 'a', request: { contents: [{ role: 'user', parts: [{ text: 'Hi' }] }] } });
    const file = await client().files.create({ file: await toFile(Buffer.from(row), 'in.jsonl'), purpose: 'batch' });
    const asked = { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' } as const;
    const batch = await client().batches.create({ ...asked, model: 'gemini-2.5-flash' } as never);
    expect(batch).toMatchObject({ object: 'batch', status: 'validating', input_file_id: file.id });
    Object.assign(vertex.batches.get(batch.id) ?? {}, {
      state: 'JOB_STATE_SUCCEEDED',
      outputInfo: { gcsOutputDirectory: 'gs://bucket/prediction-1' },
    });
    const answer = { custom_id: 'a', status: '', response: { candidates: [{ content: { parts: [{ text: 'Ho' }] } }] } };
    vertex.storage.buckets.get('bucket')?.set('prediction-1/predictions.jsonl', {
      content: Buffer.from(JSON.stringify(answer)),
      contentType: 'application/jsonl',
      metadata: {},
      timeCreated: '2026-01-01T00:00:00Z',
    });
    const output = await server.first_.send('GET', `/batches/${batch.id}/output`, {
      'x-gateway-provider': '@vertex-ai-shared-one',
    });
    expect(JSON.parse(output.text)).toMatchObject({
      custom_id: 'a',
      response: { status_code: 200, body: { choices: [{ message: { content: 'Ho' } }] } },
      error: null,
    });
  });

  it('is told by name what cannot be expressed, before any call', async () => {
    const before = vertex.received.length;
    const body = { model: 'm', training_file: 'gs://bucket/x.jsonl', suffix: 'v1', method: method('supervised', 8) };
    await expect(client().fineTuning.jobs.create(body as never)).rejects.toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      param: 'method.supervised.hyperparameters.batch_size',
    });
    expect(vertex.received.length).toBe(before);
  });

  it('keeps what another workspace made out of reach', async () => {
    const { file, job } = await create(client(), fields);
    const other = server.second.client('vertex-ai-shared-two', { 'x-gateway-cloud-storage-bucket-name': 'bucket' });
    const before = vertex.received.length;
    await expect(other.fineTuning.jobs.retrieve(job.id)).rejects.toMatchObject({ status: 404 });
    await expect(other.files.content(file.id)).rejects.toMatchObject({ status: 404 });
    expect(vertex.received.length).toBe(before);
  });

  it('answers 501 to what its models are not asked for here, and no call', async () => {
    const before = vertex.received.length;
    const speech = client().audio.speech.create({ model: 'tts', voice: 'alloy', input: 'Hi' });
    await expect(speech).rejects.toMatchObject({ status: 501, code: 'unsupported_operation' });
    expect(vertex.received.length).toBe(before);
  });
});

describe('the official client trains at Fireworks', () => {
  const client = () => server.first_.client('fireworks-ai-shared-one');
  const fields = { model: 'llama-v3p1-8b-instruct', method: method('supervised', 8) };

  it('from the dataset to events and the tuned model, supervised and with preferences', async () => {
    const { file, job } = await create(client(), fields);
    expect(fireworks.last).toEqual({
      dataset: `${FIREWORKS_ACCOUNT}/datasets/${file.id}`,
      displayName: 'v1',
      baseModel: 'accounts/fireworks/models/llama-v3p1-8b-instruct',
      outputModel: `${FIREWORKS_ACCOUNT}/models/v1`,
      epochs: 3,
      batchSizeSamples: 8,
    });
    const { job: preferred } = await create(client(), { ...fields, method: method('dpo', 8) });
    expect(preferred.id).toMatch(/^dpo:/);
    Object.assign(fireworks.supervised.get(job.id) ?? {}, {
      state: 'JOB_STATE_COMPLETED',
      completedTime: '2026-01-01T02:00:00Z',
    });
    expect(await client().fineTuning.jobs.retrieve(job.id)).toMatchObject({
      status: 'succeeded',
      fine_tuned_model: `${FIREWORKS_ACCOUNT}/models/v1`,
    });
    const events = await client().fineTuning.jobs.listEvents(job.id);
    expect(events.data.map(({ id }) => id)).toEqual([`${job.id}:succeeded`, `${job.id}:created`]);
    expect((await client().fineTuning.jobs.checkpoints.list(job.id)).data).toEqual([]);
    const seen: string[] = [];
    for await (const one of client().fineTuning.jobs.list({ limit: 1 })) seen.push(one.id);
    expect(seen).toEqual([preferred.id, job.id]);
    expect(await client().fineTuning.jobs.cancel(preferred.id)).toMatchObject({ status: 'cancelled' });
    await client().files.delete(file.id);
    await expect(client().files.retrieve(file.id)).rejects.toMatchObject({ status: 404 });
  });

  it('runs a batch on datasets, and is told that it cannot be cancelled', async () => {
    const line = JSON.stringify({ custom_id: 'a', body: { messages: [{ role: 'user', content: 'Hi' }] } });
    const file = await client().files.create({ file: await toFile(Buffer.from(line), 'in.jsonl'), purpose: 'batch' });
    expect(file.purpose).toBe('batch');
    const asked = { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' } as const;
    const batch = await client().batches.create({ ...asked, model: 'llama-v3p1-8b-instruct' } as never);
    await expect(client().batches.cancel(batch.id)).rejects.toMatchObject({
      status: 501,
      code: 'unsupported_operation',
    });
    Object.assign(fireworks.batches.get(batch.id) ?? {}, {
      state: 'JOB_STATE_COMPLETED',
      outputDatasetId: `${FIREWORKS_ACCOUNT}/datasets/results`,
    });
    fireworks.datasets.set('results', { name: `${FIREWORKS_ACCOUNT}/datasets/results` });
    const answer = { custom_id: 'a', response: { id: 'c1', object: 'chat.completion', choices: [] } };
    fireworks.contents.set('results', new Map([['results.jsonl', Buffer.from(JSON.stringify(answer))]]));
    const output = await server.first_.send('GET', `/batches/${batch.id}/output`, {
      'x-gateway-provider': '@fireworks-ai-shared-one',
    });
    expect(JSON.parse(output.text)).toMatchObject({ custom_id: 'a', response: { status_code: 200 }, error: null });
  });

  it('keeps what another workspace made out of reach', async () => {
    const { file, job } = await create(client(), fields);
    const other = server.second.client('fireworks-ai-shared-two');
    const before = fireworks.received.length;
    await expect(other.fineTuning.jobs.retrieve(job.id)).rejects.toMatchObject({ status: 404 });
    await expect(other.files.content(file.id)).rejects.toMatchObject({ status: 404 });
    expect(fireworks.received.length).toBe(before);
  });
});

describe('the official client has Sluice run the whole job', () => {
  const gateway = () => server.first_.client('unused', { 'x-gateway-provider': 'gateway' });

  async function managed(slug: string, fields: Record<string, unknown>, started: () => boolean) {
    const client = gateway();
    const data = await toFile(Buffer.from(ROWS), 'rows.jsonl');
    const file = await client.files.create({ file: data, purpose: 'fine-tune' });
    const body = {
      training_file: file.id,
      suffix: 'managed',
      method: method('supervised', 1),
      gateway_options: { 'x-gateway-virtual-key': slug, 'x-gateway-cloud-storage-bucket-name': 'bucket' },
      ...fields,
    };
    const job = await client.fineTuning.jobs.create(body as never);
    expect(job).toMatchObject({ status: 'validating_files', training_file: file.id });
    await expect.poll(started, { timeout: 20_000, interval: 50 }).toBe(true);
    return job;
  }

  it('on Vertex AI: rows are converted, stored in the bucket and tuned', async () => {
    const has = (): boolean => [...vertex.jobs.values()].some((job) => job.tunedModelDisplayName === 'managed');
    await managed('vertex-ai-shared-one', { model: 'gemini-2.5-flash' }, has);
    const job = [...vertex.jobs.values()].find((one) => one.tunedModelDisplayName === 'managed');
    const uri = String(valueAt(job, 'supervisedTuningSpec.trainingDatasetUri'));
    const object = vertex.storage.buckets.get('bucket')?.get(uri.slice('gs://bucket/'.length));
    const [first = ''] = String(object?.content).split('\n');
    expect(JSON.parse(first)).toEqual({
      contents: [
        { role: 'user', parts: [{ text: 'Hi' }] },
        { role: 'model', parts: [{ text: 'Ho' }] },
      ],
    });
  });

  it('at Fireworks: rows go into a dataset and are tuned', async () => {
    const has = (): boolean => [...fireworks.supervised.values()].some((job) => job.displayName === 'managed');
    await managed('fireworks-ai-shared-one', { model: 'llama-v3p1-8b-instruct' }, has);
    const job = [...fireworks.supervised.values()].find((one) => one.displayName === 'managed');
    const content = fireworks.contents.get(String(job?.dataset).split('/').at(-1) ?? '');
    expect([...(content?.values() ?? [])].map(String)).toEqual([ROWS]);
  });
});
