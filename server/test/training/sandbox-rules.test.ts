/** What the sandbox shows offline of the rules that providers have: files that cannot be used, buckets, names in a cloud. */
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';

const ROW = JSON.stringify({
  messages: [
    { role: 'user', content: 'What is the capital of Norway?' },
    { role: 'assistant', content: 'Oslo is the capital of Norway.' },
  ],
});
const PAIR = JSON.stringify({
  input: { messages: [{ role: 'user', content: 'Hello' }] },
  preferred_output: [{ role: 'assistant', content: 'Hi there' }],
  non_preferred_output: [{ role: 'assistant', content: 'What?' }],
});
const HYPERPARAMETERS = { n_epochs: 3, learning_rate_multiplier: 1, batch_size: 1 };
const METRICS = [
  'step',
  'train_loss',
  'train_mean_token_accuracy',
  'valid_loss',
  'valid_mean_token_accuracy',
  'full_valid_loss',
  'full_valid_mean_token_accuracy',
];

let server: ObjectServer;
let client: OpenAI;
let kept: OpenAI;

beforeAll(async () => {
  server = await startObjectServer();
  client = server.first_.client('sandbox');
  kept = new OpenAI({
    apiKey: client.apiKey,
    baseURL: client.baseURL,
    defaultHeaders: { 'x-gateway-provider': 'gateway' },
    maxRetries: 0,
  });
});
afterAll(() => server?.stop());

const upload = async (text: string, to = client, options: OpenAI.RequestOptions = {}) =>
  (await to.files.create({ file: await toFile(Buffer.from(text), 'rows.jsonl'), purpose: 'fine-tune' }, options)).id;
const request = (training_file: string, type: 'supervised' | 'dpo' = 'supervised', more: object = {}) => ({
  model: 'echo?train_ms=0',
  training_file,
  suffix: 'v1',
  method: { type, [type]: { hyperparameters: HYPERPARAMETERS } },
  ...more,
});
const post = async (body: object, headers: Record<string, string> = {}) => {
  const answer = await server.call('/fine_tuning/jobs', body, { 'x-gateway-provider': '@sandbox', ...headers });
  return { status: answer.status, body: (await answer.json()) as { id: string; estimate: { trained_tokens: number } } };
};

describe('on the sandbox', () => {
  it.each([
    ['no JSON', 'nonsense', 'line 2: the line is not valid JSON'],
    ['no object', '[1, 2]', 'line 2: the line is not a JSON object'],
  ])('a training file with a row that is %s has the status error and says why', async (_title, row, why) => {
    const file = await client.files.retrieve(await upload(`${ROW}\n${row}`));
    expect(file).toMatchObject({ status: 'error', status_details: `The file cannot be used: ${why}.` });
    const good = await client.files.retrieve(await upload(ROW));
    expect(good).toMatchObject({ status: 'processed', status_details: null });
    const listed = await client.files.list();
    expect(listed.data.find(({ id }) => id === file.id)?.status).toBe('error');
  });

  it('with a validation file every checkpoint has all seven metrics', async () => {
    const file = await upload(ROW);
    const { body } = await post(request(file, 'supervised', { validation_file: file }));
    const { data } = await client.fineTuning.jobs.checkpoints.list(body.id);
    expect(data).toHaveLength(3);
    for (const { metrics } of data) {
      expect(Object.keys(metrics)).toEqual(METRICS);
      for (const value of Object.values(metrics)) expect(value).toEqual(expect.any(Number));
    }
  });

  it('a job takes the names and places of a cloud, and answers them', async () => {
    const cloud = { job_name: 'mine', role_arn: 'arn:aws:iam::1:role/x', output_file: 's3://my-bucket/out' };
    const file = await upload(ROW);
    const shapes = [cloud, { provider_options: cloud, gateway_options: { 'x-gateway-virtual-key': 'sandbox' } }];
    for (const more of shapes) {
      const { status, body } = await post(request(file, 'supervised', more));
      expect([status, body]).toEqual([200, expect.objectContaining(cloud)]);
      expect(await client.fineTuning.jobs.retrieve(body.id)).toMatchObject(cloud);
    }
  });

  it.each(['x-gateway-object-store-bucket', 'x-gateway-cloud-storage-bucket-name'])(
    'a name in %s that cannot be a bucket is refused, as a header and in gateway_options',
    async (name) => {
      const file = await upload(ROW);
      for (const bucket of ['Bad_Bucket!', 'ab', '10.0.0.1', 'a'.repeat(64)]) {
        const options = { 'x-gateway-virtual-key': 'sandbox', [name]: bucket };
        expect(await post(request(file, 'supervised', { gateway_options: options }))).toMatchObject({
          status: 400,
          body: { error: { param: `gateway_options.${name}`, message: expect.stringContaining('3 to 63 lower-case') } },
        });
        expect(await post(request(file), { [name]: bucket })).toMatchObject({
          status: 400,
          body: { error: { param: name } },
        });
        await expect(upload(ROW, client, { headers: { [name]: bucket } })).rejects.toMatchObject({ status: 400 });
      }
      const options = { 'x-gateway-virtual-key': 'sandbox', [name]: 'my-bucket.data-1' };
      expect((await post(request(file, 'supervised', { gateway_options: options }))).status).toBe(200);
    },
  );

  it.each([
    ['supervised', ROW],
    ['dpo', PAIR],
  ] as const)('a %s job trains as many tokens as its dry run has estimated', async (type, row) => {
    const text = [row, row, row].join('\n');
    const body = {
      ...request(await upload(text, kept), type),
      gateway_options: { 'x-gateway-virtual-key': 'sandbox' },
    };
    const plan = await post(body, { 'x-gateway-dry-run': 'true' });
    const trained = await client.fineTuning.jobs.retrieve((await post(request(await upload(text), type))).body.id);
    expect(trained.trained_tokens).toBeGreaterThan(0);
    expect(trained.trained_tokens).toBe(plan.body.estimate.trained_tokens);
  });
});
