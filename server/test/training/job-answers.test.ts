/** What a job of Sluice answers to the one who made it: all that is wrong with a request, and who paid how much for what. */
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';

const ROWS = JSON.stringify({
  messages: [
    { role: 'user', content: 'What is the capital of Norway?' },
    { role: 'assistant', content: 'Oslo is the capital of Norway.' },
  ],
});

let server: ObjectServer;
let kept: OpenAI;

beforeAll(async () => {
  server = await startObjectServer();
  const { apiKey, baseURL } = server.first_.client('sandbox');
  kept = new OpenAI({ apiKey, baseURL, defaultHeaders: { 'x-gateway-provider': 'gateway' }, maxRetries: 0 });
});
afterAll(() => server?.stop());

const refused = async (path: string, body: object) => {
  const answer = await server.call(path, body, { 'x-gateway-provider': '@sandbox' });
  expect(answer.status).toBe(400);
  return (await answer.json()) as {
    error: { message: string; param: string; code: string };
    errors?: { param: string; message: string }[];
  };
};

it('a job request says all that is wrong with it at once', async () => {
  const { error, errors = [] } = await refused('/fine_tuning/jobs', {
    model: 'echo',
    method: { type: 'supervised', supervised: { hyperparameters: { n_epochs: 0, batch_size: 'many' } } },
    seed: -1,
    gateway_options: { 'x-gateway-virtual-key': 'sandbox', 'x-gateway-object-store-bucket': 'B', authorization: 'x' },
    provider_options: { region: 'x', model: 5 },
    metadata: { a: 1, b: 2 },
  });
  const path = 'method.supervised.hyperparameters';
  expect(errors.map(({ param }) => param)).toEqual([
    'training_file',
    'suffix',
    `${path}.n_epochs`,
    `${path}.learning_rate_multiplier`,
    `${path}.batch_size`,
    'seed',
    'metadata.a',
    'metadata.b',
    'gateway_options.authorization',
    'provider_options.region',
    'provider_options.model',
  ]);
  expect(error).toMatchObject({ code: 'AB01', param: 'training_file' });
  expect(error.message).toMatch(/^training_file is required: a text\. \(10 more problems: suffix, /);
});

it('a job request in the shape of OpenAI learns in one answer what is missing', async () => {
  const { errors = [] } = await refused('/fine_tuning/jobs', { model: 'echo', training_file: 'file-1' });
  expect(errors.map(({ param }) => param)).toEqual(['suffix', 'method']);
  const example = /for example (\{.*\})\.$/.exec(errors[1]?.message ?? '')?.[1] ?? '';
  expect(JSON.parse(example)).toMatchObject({ supervised: { hyperparameters: { batch_size: 1 } } });
});

it('a batch request says all that is wrong with it at once', async () => {
  const { errors = [] } = await refused('/batches', { completion_window: '1h', metadata: { a: 1 } });
  expect(errors.map(({ param }) => param)).toEqual(['input_file_id', 'endpoint', 'completion_window', 'metadata.a']);
});

it('one problem has no list', async () => {
  expect(await refused('/batches', { input_file_id: 'f', endpoint: '/v1/embeddings' })).not.toHaveProperty('errors');
});

it('a job names its account and workspace, its events are in the order of time, and its end says what it has cost', async () => {
  const file = await kept.files.create({ file: await toFile(Buffer.from(ROWS), 'rows.jsonl'), purpose: 'fine-tune' });
  const made = (await (
    await server.call('/fine_tuning/jobs', {
      model: 'echo?train_ms=0',
      training_file: file.id,
      suffix: 'v1',
      method: {
        type: 'supervised',
        supervised: { hyperparameters: { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 1 } },
      },
      gateway_options: { 'x-gateway-virtual-key': 'sandbox' },
    })
  ).json()) as OpenAI.FineTuning.FineTuningJob;
  expect(made).toMatchObject({ provider_slug: 'sandbox', workspace_id: expect.any(String), cost: null });
  const done = await vi.waitFor(
    async () => {
      const job = await kept.fineTuning.jobs.retrieve(made.id);
      expect(job.status).toBe('succeeded');
      return job;
    },
    { timeout: 15_000, interval: 100 },
  );
  const tokens = done.trained_tokens ?? 0;
  const usd = Math.ceil(tokens * 0.15) / 1_000_000;
  expect(done).toMatchObject({
    provider_slug: 'sandbox',
    cost: { usd, basis: 'input_tokens', usd_per_million_tokens: 0.15 },
  });
  const { data } = await kept.fineTuning.jobs.listEvents(made.id, { limit: 100 });
  const times = data.map((event) => event.created_at).reverse();
  expect(times).toEqual([...times].sort((a, b) => a - b));
  expect(data[0]?.message).toBe(
    `The job succeeded; the model is ${done.fine_tuned_model}. It trained ${tokens} tokens for $${usd}`,
  );
  const order = data.map(({ message }) => message).reverse();
  expect(order.indexOf('The provider has started the job')).toBeLessThan(order.indexOf('Fine-tuning job started'));
});
