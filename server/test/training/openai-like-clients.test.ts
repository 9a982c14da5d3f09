import type OpenAI from 'openai';
import { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';
import { DATED_VERSION, startAzureOpenAi } from '../support/upstreams/azure-openai.ts';
import { startGroq } from '../support/upstreams/groq.ts';
import type { OpenAiObjects } from '../support/upstreams/openai.ts';

const ROWS = '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}\n'.repeat(12);
const LINE = JSON.stringify({ custom_id: '1', method: 'POST', url: '/v1/chat/completions', body: { model: 'm' } });
const hyperparameters = { n_epochs: 3, learning_rate_multiplier: 0.5, batch_size: 8 };

let server: ObjectServer;
const upstreams: OpenAiObjects[] = [];

beforeAll(async () => {
  server = await startObjectServer();
});
afterAll(async () => {
  await server?.stop();
  for (const one of upstreams) await one.stop();
});
afterEach(() => {
  for (const one of upstreams) expect(one.faults.splice(0)).toEqual([]);
});

/** Stores an account at the started server and gives the official client of its workspace. */
async function clientOf(
  upstream: OpenAiObjects,
  id: string,
  slug: string,
  configurations: Record<string, unknown> = {},
): Promise<OpenAI> {
  upstreams.push(upstream);
  const made = await server.admin('POST', '/integrations', {
    name: slug,
    slug,
    ai_provider_id: id,
    key: 'test-key',
    configurations: { custom_host: upstream.base, ...configurations },
  });
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  const provider = await server.admin('POST', '/providers', {
    name: slug,
    slug,
    integration_id: slug,
    workspace_id: server.first.workspace_id,
  });
  expect(provider.status, JSON.stringify(provider.body)).toBe(200);
  return server.first_.client(slug);
}

const azure = (version: string) => ({
  azure_resource_name: 'my-resource',
  azure_auth_mode: 'default',
  azure_deployment_config: [
    { azure_api_version: version, azure_deployment_name: 'd', azure_model_slug: 'gpt-4.1', is_default: true },
  ],
});

describe.each([
  ['v1', 'v1'],
  ['dated', DATED_VERSION],
] as const)('the official client trains on Azure, %s surface', (surface, version) => {
  let upstream: OpenAiObjects;
  let client: OpenAI;
  beforeAll(async () => {
    upstream = await startAzureOpenAi(surface);
    client = await clientOf(upstream, 'azure-openai', `azure-${surface}`, azure(version));
  });

  it('from the upload to the tuned model', async () => {
    const file = await client.files.create({
      file: await toFile(Buffer.from(ROWS), 'rows.jsonl'),
      purpose: 'fine-tune',
    });
    expect(file).toMatchObject({ object: 'file', bytes: ROWS.length, purpose: 'fine-tune' });
    const body = {
      model: 'gpt-4.1-2025-04-14',
      training_file: file.id,
      suffix: 'v1',
      method: { type: 'dpo', dpo: { hyperparameters } },
      integrations: [{ type: 'tracker', tracker: { project: 'p' } }],
    };
    const job = await client.fineTuning.jobs.create(body as never);
    expect(job).toMatchObject({ object: 'fine_tuning.job', status: 'validating_files', training_file: file.id });
    expect(job.integrations).toEqual([{ type: 'tracker', tracker: { project: 'p' } }]);
    expect(upstream.last).toMatchObject({ method: { type: 'dpo' }, integrations: [{ type: 'wandb' }] });
    expect((await client.fineTuning.jobs.list()).data.map((one) => one.id)).toEqual([job.id]);
    Object.assign(upstream.state.jobs.get(job.id) ?? {}, {
      status: 'succeeded',
      finished_at: 1_767_229_200,
      trained_tokens: 1234,
      fine_tuned_model: 'gpt-4.1.ft-1',
    });
    expect(await client.fineTuning.jobs.retrieve(job.id)).toMatchObject({
      status: 'succeeded',
      fine_tuned_model: 'gpt-4.1.ft-1',
      trained_tokens: 1234,
    });
    await client.files.delete(file.id);
    await expect(client.files.retrieve(file.id)).rejects.toMatchObject({ status: 404 });
  });

  it('and runs a batch', async () => {
    const file = await client.files.create({ file: await toFile(Buffer.from(LINE), 'in.jsonl'), purpose: 'batch' });
    const batch = await client.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    expect(batch).toMatchObject({ object: 'batch', status: 'validating', endpoint: '/v1/chat/completions' });
    upstream.state.contents.set('file-out', Buffer.from('{"custom_id":"1"}'));
    Object.assign(upstream.state.batches.get(batch.id) ?? {}, { status: 'completed', output_file_id: 'file-out' });
    expect((await client.batches.retrieve(batch.id)).output_file_id).toBe('file-out');
    const provider = { 'x-gateway-provider': `@azure-${surface}` };
    const output = await server.first_.send('GET', `/batches/${batch.id}/output`, provider);
    expect([output.status, output.text]).toEqual([200, '{"custom_id":"1"}\n']);
  });

  it('refuses vision files by name, and answers 501 to what the provider does not serve', async () => {
    const before = upstream.received.length;
    const image = await toFile(Buffer.from('png'), 'a.png');
    await expect(client.files.create({ file: image, purpose: 'vision' })).rejects.toMatchObject({
      status: 400,
      param: 'purpose',
    });
    await expect(client.moderations.create({ model: 'd', input: 'Hi' })).rejects.toMatchObject({ status: 501 });
    expect(upstream.received.length).toBe(before);
  });
});

describe('accounts at Azure', () => {
  it.each(['evil.example/', 'a.b', 'a@b', '-a'])('cannot be stored for the resource %j', async (name) => {
    const made = await server.admin('POST', '/integrations', {
      name: 'bad',
      slug: 'bad',
      ai_provider_id: 'azure-openai',
      key: 'test-key',
      configurations: { ...azure('v1'), azure_resource_name: name },
    });
    expect(made.status).toBe(400);
    expect(JSON.stringify(made.body)).toContain('azure_resource_name');
  });

  it('that sign in as the server are told what to do instead', async () => {
    const upstream = await startAzureOpenAi('v1');
    upstreams.push(upstream);
    const { azure_auth_mode: _mode, ...settings } = azure('v1');
    const made = await server.admin('POST', '/integrations', {
      name: 'managed',
      slug: 'azure-managed',
      ai_provider_id: 'azure-openai',
      configurations: { custom_host: upstream.base, azure_auth_mode: 'managed', ...settings },
    });
    expect(made.status, JSON.stringify(made.body)).toBe(200);
    await server.admin('POST', '/providers', {
      name: 'azure-managed',
      slug: 'azure-managed',
      integration_id: 'azure-managed',
      workspace_id: server.first.workspace_id,
    });
    const form = new FormData();
    form.set('purpose', 'fine-tune');
    form.set('file', new Blob([ROWS]), 'rows.jsonl');
    const answer = await server.first_.send('POST', '/files', { 'x-gateway-provider': '@azure-managed' }, form);
    expect(answer.status).toBe(503);
    expect(answer.text).toContain('azure_auth_mode entra');
    expect(upstream.received).toEqual([]);
  });
});

describe('the official client at Groq', () => {
  it('keeps files and runs batches, and does not train', async () => {
    const upstream = await startGroq();
    const client = await clientOf(upstream, 'groq', 'groq-batches');
    const file = await client.files.create({ file: await toFile(Buffer.from(LINE), 'in.jsonl'), purpose: 'batch' });
    const batch = await client.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    expect((await client.batches.list()).data.map((one) => one.id)).toEqual([batch.id]);
    expect((await client.batches.cancel(batch.id)).status).toBe('cancelling');
    const before = upstream.received.length;
    const body = {
      model: 'm',
      training_file: file.id,
      suffix: 's',
      method: { type: 'supervised', supervised: { hyperparameters } },
    };
    await expect(client.fineTuning.jobs.create(body as never)).rejects.toMatchObject({
      status: 501,
      code: 'unsupported_operation',
    });
    expect(upstream.received.length).toBe(before);
  });
});
