import type OpenAI from 'openai';
import { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';
import { type S3Server, startS3Server } from '../support/s3-server.ts';
import {
  AWS_KEYS,
  BEDROCK_REGION,
  type BedrockUpstream,
  type Fields,
  ROLE,
  ROLE_KEYS,
  startBedrock,
} from '../support/upstreams/bedrock.ts';

const MODEL = 'amazon.nova-lite-v1:0:300k';
const BUCKET = 'training-bucket';
const HEADERS = { 'x-gateway-object-store-bucket': BUCKET };
const ROW = '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}\n';

let server: ObjectServer;
let upstream: BedrockUpstream;
let s3: S3Server;

beforeAll(async () => {
  server = await startObjectServer();
  upstream = await startBedrock({ now: Date.now });
  s3 = await startS3Server({ buckets: [BUCKET], keys: [AWS_KEYS, ROLE_KEYS], now: Date.now });
  await server.shared({
    id: 'bedrock',
    host: upstream.url,
    configurations: {
      aws_auth_type: 'assumedRole',
      aws_region: BEDROCK_REGION,
      aws_role_arn: ROLE,
      aws_external_id: 'ours',
      aws_access_key_id: AWS_KEYS.accessKeyId,
      aws_secret_access_key: AWS_KEYS.secretAccessKey,
      aws_s3_endpoint: s3.url,
      aws_sts_endpoint: upstream.url,
    },
  });
});
afterAll(async () => {
  await server?.stop();
  for (const one of [upstream, s3]) await one?.stop();
});
afterEach(() => {
  for (const one of [upstream, s3]) expect(one.faults.splice(0)).toEqual([]);
});

const client = (): OpenAI => server.first_.client('bedrock-shared-one', HEADERS);
const hyperparameters = { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 1 };
const asked = {
  model: MODEL,
  suffix: 'v1',
  role_arn: ROLE,
  method: { type: 'supervised', supervised: { hyperparameters } },
};
const jobOf = (id: string): Fields => {
  const found = upstream.jobs.find((job) => job.jobArn === decodeURIComponent(id));
  if (found === undefined) throw new Error(`no job ${id}`);
  return found;
};

async function create(more: Record<string, unknown> = {}) {
  const rows = Buffer.from(ROW.repeat(12));
  const headers = { headers: { 'x-gateway-provider-model': MODEL } };
  const file = await client().files.create({ file: await toFile(rows, 'rows.jsonl'), purpose: 'fine-tune' }, headers);
  const job = await client().fineTuning.jobs.create({ ...asked, training_file: file.id, ...more } as never);
  return { file, job };
}

describe('the official client trains on Bedrock', () => {
  it('with an assumed role, from the object in S3 to events and the tuned model', async () => {
    const { file, job } = await create({ metadata: { team: 'search' } });
    expect(decodeURIComponent(file.id)).toMatch(new RegExp(`^s3://${BUCKET}/[0-9a-f-]{36}\\.jsonl$`));
    expect(upstream.last).toMatchObject({
      baseModelIdentifier: MODEL,
      customModelName: 'v1',
      roleArn: ROLE,
      trainingDataConfig: { s3Uri: decodeURIComponent(file.id) },
      hyperParameters: { epochCount: '3' },
      jobTags: [{ key: 'team', value: 'search' }],
    });
    expect(job).toMatchObject({ object: 'fine_tuning.job', status: 'running', training_file: file.id, model: MODEL });
    expect(upstream.roles).toHaveLength(1);
    Object.assign(jobOf(job.id), {
      status: 'Completed',
      endTime: new Date().toISOString(),
      outputModelArn: 'arn:aws:bedrock:eu-central-1:123456789012:custom-model/tuned',
    });
    const done = await client().fineTuning.jobs.retrieve(job.id);
    expect(done).toMatchObject({
      status: 'succeeded',
      fine_tuned_model: 'arn:aws:bedrock:eu-central-1:123456789012:custom-model/tuned',
    });
    const events = await client().fineTuning.jobs.listEvents(job.id);
    expect(events.data.map(({ message }) => message)).toEqual([
      'The fine-tuning job succeeded.',
      'The fine-tuning job was created.',
    ]);
    expect((await client().fineTuning.jobs.checkpoints.list(job.id)).data).toEqual([]);
    await expect(client().fineTuning.jobs.cancel(job.id)).rejects.toMatchObject({ status: 400 });
    await client().files.delete(file.id);
    await expect(client().files.retrieve(file.id)).rejects.toMatchObject({ status: 404 });
  });

  it('rows are stored as the model wants them, and nothing that no model could use is stored', async () => {
    const upload = async (text: string, purpose: 'fine-tune' | 'batch', headers: Record<string, string>) =>
      client().files.create({ file: await toFile(Buffer.from(text), 'rows.jsonl'), purpose }, { headers });
    const model = { 'x-gateway-provider-model': MODEL };
    const stored = async (headers: Record<string, string>) =>
      JSON.parse(await (await client().files.content((await upload(ROW, 'fine-tune', headers)).id)).text());
    expect(await stored(model)).toEqual({
      schemaVersion: 'bedrock-conversation-2024',
      messages: [
        { role: 'user', content: [{ text: 'Hi' }] },
        { role: 'assistant', content: [{ text: 'Ho' }] },
      ],
    });
    expect(await stored({ ...model, 'x-gateway-model-type': 'text' })).toEqual({ prompt: 'Hi', completion: 'Ho' });
    const before = s3.keys(BUCKET);
    await expect(upload(ROW, 'fine-tune', {})).rejects.toMatchObject({
      status: 400,
      param: 'x-gateway-provider-model',
    });
    const bad = `${ROW}{"messages":[]}\n${ROW}not json at all, with a secret\n`;
    await expect(upload(bad, 'fine-tune', model)).rejects.toMatchObject({
      status: 400,
      code: 'invalid_dataset_row',
      param: 'file',
      message: expect.stringMatching(/line 2.*line 4/s),
    });
    const line = (custom_id: string, more: object) =>
      `${JSON.stringify({ custom_id, method: 'POST', url: '/v1/chat/completions', body: { messages: [{ role: 'user', content: 'Hi' }], ...more } })}\n`;
    await expect(
      upload(line('a', {}) + line('b', { seed: 1 }) + line('c', { n: 2 }), 'batch', model),
    ).rejects.toMatchObject({
      status: 400,
      code: 'invalid_dataset_row',
      param: 'file',
      message: expect.stringMatching(/line 2: .*seed.*line 3: .*"n"/s),
    });
    expect(s3.keys(BUCKET)).toEqual(before);
    expect(s3.openUploads(BUCKET)).toEqual([]);
  });

  it('walks its jobs in pages of one, and cancels one of them', async () => {
    const made: string[] = [];
    for (let i = 0; i < 3; i++) made.unshift((await create()).job.id);
    const seen: string[] = [];
    for await (const job of client().fineTuning.jobs.list({ limit: 1 })) seen.push(job.id);
    expect(seen.slice(0, 3)).toEqual(made);
    expect(new Set(seen).size).toBe(seen.length);
    expect(await client().fineTuning.jobs.cancel(made[0] ?? '')).toMatchObject({ status: 'cancelled' });
  });

  it('runs a batch of records whose outcomes come out as our lines', async () => {
    const body = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 5 };
    const line = JSON.stringify({ custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body });
    const file = await client().files.create(
      { file: await toFile(Buffer.from(line), 'in.jsonl'), purpose: 'batch' },
      { headers: { 'x-gateway-provider-model': MODEL } },
    );
    expect(JSON.parse(await (await client().files.content(file.id)).text())).toEqual({
      recordId: 'a',
      modelInput: { messages: [{ role: 'user', content: [{ text: 'Hi' }] }], inferenceConfig: { maxTokens: 5 } },
    });
    const batch = await client().batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      model: MODEL,
      role_arn: ROLE,
      metadata: { team: 'search' },
    } as never);
    expect(batch).toMatchObject({ object: 'batch', status: 'validating', input_file_id: file.id });
    const row = upstream.batches.find((one) => one.jobArn === decodeURIComponent(batch.id));
    Object.assign(row ?? {}, { status: 'Completed', endTime: new Date().toISOString() });
    const done = await client().batches.retrieve(batch.id);
    expect(done).toMatchObject({ status: 'completed', metadata: { team: 'search' }, endpoint: '/v1/chat/completions' });
    const key = decodeURIComponent(done.output_file_id ?? '').slice(`s3://${BUCKET}/`.length);
    const output = { message: { role: 'assistant', content: [{ text: 'Ho' }] } };
    await s3.put(BUCKET, key, JSON.stringify({ recordId: 'a', modelOutput: { output, stopReason: 'end_turn' } }));
    const lines = await server.first_.send('GET', `/batches/${encodeURIComponent(batch.id)}/output`, {
      'x-gateway-provider': '@bedrock-shared-one',
    });
    expect(JSON.parse(lines.text)).toMatchObject({
      custom_id: 'a',
      response: { status_code: 200, body: { choices: [{ message: { content: 'Ho' } }] } },
      error: null,
    });
    const listed: string[] = [];
    for await (const one of client().batches.list({ limit: 1 })) listed.push(one.id);
    expect(listed).toEqual([batch.id]);
  });

  it('shows what would be sent without sending it, and without any secret', async () => {
    const before = upstream.received.length;
    const answer = await server.first_.send(
      'POST',
      '/fine_tuning/jobs',
      { 'x-gateway-provider': '@bedrock-shared-one', 'x-gateway-dry-run': 'true', ...HEADERS },
      { ...asked, training_file: `s3://${BUCKET}/train.jsonl` },
    );
    expect(answer.status).toBe(200);
    expect(answer.text).toContain('model-customization-jobs');
    expect(answer.text).toContain('baseModelIdentifier');
    for (const keys of [AWS_KEYS, ROLE_KEYS]) expect(answer.text).not.toContain(keys.secretAccessKey);
    expect(upstream.received.slice(before).map(({ method, path }) => `${method} ${path}`)).toEqual([]);
  });

  it('is told by name what cannot be expressed, before any call', async () => {
    const before = upstream.received.length;
    const wrong = { ...hyperparameters, batch_size: 8 };
    const body = {
      ...asked,
      training_file: `s3://${BUCKET}/x.jsonl`,
      method: { type: 'supervised', supervised: { hyperparameters: wrong } },
    };
    await expect(client().fineTuning.jobs.create(body as never)).rejects.toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      param: 'method.supervised.hyperparameters.batch_size',
    });
    expect(upstream.received.length).toBe(before);
  });

  it('keeps what another workspace made out of reach', async () => {
    const { file, job } = await create();
    const other = server.second.client('bedrock-shared-two', HEADERS);
    const before = upstream.received.length;
    const objects = s3.requests.length;
    await expect(other.fineTuning.jobs.retrieve(job.id)).rejects.toMatchObject({ status: 404 });
    await expect(other.fineTuning.jobs.retrieve(decodeURIComponent(job.id))).rejects.toMatchObject({ status: 404 });
    await expect(other.fineTuning.jobs.retrieve(String(jobOf(job.id).jobName))).rejects.toMatchObject({ status: 404 });
    await expect(other.files.content(file.id)).rejects.toMatchObject({ status: 404 });
    await expect(other.files.content(decodeURIComponent(file.id))).rejects.toMatchObject({ status: 404 });
    expect([upstream.received.length, s3.requests.length]).toEqual([before, objects]);
  });

  it('answers 501 to what its models are not asked for here, and no call', async () => {
    const before = upstream.received.length;
    const speech = client().audio.speech.create({ model: 'tts', voice: 'alloy', input: 'Hi' });
    await expect(speech).rejects.toMatchObject({ status: 501, code: 'unsupported_operation' });
    expect(upstream.received.length).toBe(before);
  });

  it('works with a credential of the caller’s own in headers, which nothing repeats', async () => {
    const answer = await server.first_.send('GET', '/fine_tuning/jobs?limit=1', {
      'x-gateway-provider': 'bedrock',
      'x-gateway-custom-host': upstream.url,
      'x-gateway-aws-region': BEDROCK_REGION,
      'x-gateway-aws-access-key-id': AWS_KEYS.accessKeyId,
      'x-gateway-aws-secret-access-key': AWS_KEYS.secretAccessKey,
    });
    expect(answer.status).toBe(200);
    const ambient = await server.first_.send('GET', '/fine_tuning/jobs?limit=1', {
      'x-gateway-provider': 'bedrock',
      'x-gateway-custom-host': upstream.url,
      'x-gateway-aws-region': BEDROCK_REGION,
      'x-gateway-aws-auth-type': 'serviceRole',
    });
    expect(ambient).toMatchObject({ status: 400, error: { param: 'aws_auth_type' } });
  });
});

describe('the official client has Sluice run the whole job on Bedrock', () => {
  it('rows are converted, stored in the bucket and tuned', async () => {
    const gateway = server.first_.client('unused', { 'x-gateway-provider': 'gateway' });
    const rows = await toFile(Buffer.from(ROW.repeat(12)), 'rows.jsonl');
    const file = await gateway.files.create({ file: rows, purpose: 'fine-tune' });
    const job = await gateway.fineTuning.jobs.create({
      ...asked,
      suffix: 'managed',
      training_file: file.id,
      gateway_options: { 'x-gateway-virtual-key': 'bedrock-shared-one', ...HEADERS },
    } as never);
    expect(job).toMatchObject({ status: 'validating_files', training_file: file.id });
    const found = () => upstream.jobs.find((one) => one.outputModelName === 'managed');
    await expect.poll(found, { timeout: 20_000, interval: 50 }).toBeDefined();
    const uri = String((found()?.trainingDataConfig as Fields | undefined)?.s3Uri);
    const content = await s3.read(BUCKET, uri.slice(`s3://${BUCKET}/`.length));
    expect(JSON.parse(String(content).split('\n')[0] ?? '')).toEqual({
      schemaVersion: 'bedrock-conversation-2024',
      messages: [
        { role: 'user', content: [{ text: 'Hi' }] },
        { role: 'assistant', content: [{ text: 'Ho' }] },
      ],
    });
    expect(s3.openUploads(BUCKET)).toEqual([]);
  });

  it('the lines of a batch are converted, stored in the bucket and run there', async () => {
    const gateway = server.first_.client('unused', { 'x-gateway-provider': 'gateway' });
    const body = { model: MODEL, messages: [{ role: 'user', content: 'Hi' }] };
    const line = JSON.stringify({ custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body });
    const file = await gateway.files.create({ file: await toFile(Buffer.from(line), 'in.jsonl'), purpose: 'batch' });
    const before = upstream.batches.length;
    const batch = await gateway.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      model: MODEL,
      role_arn: ROLE,
      gateway_options: { 'x-gateway-virtual-key': 'bedrock-shared-one', ...HEADERS },
    } as never);
    expect(batch).toMatchObject({ object: 'batch', status: 'validating' });
    await expect.poll(() => upstream.batches.length, { timeout: 20_000, interval: 50 }).toBe(before + 1);
    const row = upstream.batches[before] as Fields & { inputDataConfig: { s3InputDataConfig: { s3Uri: string } } };
    const key = row.inputDataConfig.s3InputDataConfig.s3Uri.slice(`s3://${BUCKET}/`.length);
    expect(JSON.parse(String(await s3.read(BUCKET, key)))).toEqual({
      recordId: 'a',
      modelInput: { messages: [{ role: 'user', content: [{ text: 'Hi' }] }] },
    });
    // The workspace's own, and nobody else's to name.
    expect(await client().files.retrieve(encodeURIComponent(`s3://${BUCKET}/${key}`))).toMatchObject({
      object: 'file',
    });
    const other = server.second.client('bedrock-shared-two', HEADERS);
    const stolen = {
      input_file_id: `s3%3a%2f%2f${BUCKET}%2f${key}`,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      model: MODEL,
      role_arn: ROLE,
    };
    await expect(other.batches.create(stolen as never)).rejects.toMatchObject({ param: 'input_file_id' });
    expect(upstream.batches.length).toBe(before + 1);
  });
});
