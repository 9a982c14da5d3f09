/** The official OpenAI client on an account that one workspace alone can use, with objects that were there before Sluice. */
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startWorld, type World } from './account.ts';

let world: World;
let client: OpenAI;

beforeAll(async () => {
  world = await startWorld();
  client = new OpenAI({
    apiKey: world.keys.a,
    adminAPIKey: world.keys.a,
    baseURL: `${world.server.url}/v1`,
    defaultHeaders: {
      'x-gateway-provider': `@${world.alone}`,
      // Jobs and batches are also read in the background.
      'x-gateway-forward-headers': 'x-test-call',
      'x-test-call': 'client',
    },
    maxRetries: 0,
  });
}, 60_000);

afterAll(() => world?.stop());

/** The method and path that the provider received last. */
const last = () => {
  const { method, path } = sent() ?? { method: '', path: '' };
  return `${method} ${path}`;
};
const sent = () => world.upstream.received.findLast((one) => one.headers['x-test-call'] === 'client');
const ids = async (page: PromiseLike<{ data: { id: string }[] }>) => (await page).data.map(({ id }) => id);

it('files: lists, reads, downloads, uploads with an expiry, deletes', async () => {
  expect(await ids(client.files.list())).toEqual(['file-old']);
  expect(await client.files.retrieve('file-old')).toMatchObject({ id: 'file-old', filename: 'old.jsonl' });
  expect(await (await client.files.content('file-old')).text()).toBe('old');
  const file = await toFile(Buffer.from('{}\n'), 'rows.jsonl');
  const expires_after = { anchor: 'created_at', seconds: 3600 } as const;
  expect(await client.files.create({ file, purpose: 'batch', expires_after })).toMatchObject({ object: 'file' });
  expect(sent()?.body.toString()).toContain('name="expires_after[seconds]"\r\n\r\n3600');
  expect(await client.files.delete('file-old')).toEqual({ id: 'file-old', object: 'file', deleted: true });
});

it('batches: lists, reads, creates of a file from before', async () => {
  expect(await ids(client.batches.list())).toEqual(['batch_old']);
  expect(await client.batches.retrieve('batch_old')).toMatchObject({ id: 'batch_old' });
  const body = { input_file_id: 'file-old', endpoint: '/v1/chat/completions', completion_window: '24h' } as const;
  expect(await client.batches.create(body)).toMatchObject({ object: 'batch' });
});

it('fine-tuning: jobs are listed, read and made of a file from before; graders run; checkpoints are shared', async () => {
  const { jobs, alpha, checkpoints } = client.fineTuning;
  expect(await ids(jobs.list())).toEqual(['ftjob-old']);
  expect(await jobs.retrieve('ftjob-old')).toMatchObject({ id: 'ftjob-old' });
  expect(await ids(jobs.listEvents('ftjob-old'))).toEqual([]);
  expect(await ids(jobs.checkpoints.list('ftjob-old'))).toEqual([]);
  const hyperparameters = { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 };
  const method = { type: 'supervised', supervised: { hyperparameters } } as const;
  const made = { model: 'gpt-4o-mini', training_file: 'file-old', suffix: 'v1', method };
  expect(await jobs.create(made)).toMatchObject({ object: 'fine_tuning.job' });

  const grader = { type: 'string_check', name: 'g', input: 'a', reference: 'a', operation: 'eq' } as const;
  await alpha.graders.run({ grader, model_sample: 'a' });
  expect(last()).toBe('POST /v1/fine_tuning/alpha/graders/run');
  await alpha.graders.validate({ grader });
  expect(last()).toBe('POST /v1/fine_tuning/alpha/graders/validate');

  const checkpoint = 'ft:gpt-4o-mini:org::1:ckpt-step-1';
  const permissions = `/v1/fine_tuning/checkpoints/${checkpoint}/permissions`;
  await checkpoints.permissions.list(checkpoint);
  expect(decodeURIComponent(last())).toBe(`GET ${permissions}`);
  await checkpoints.permissions.create(checkpoint, { project_ids: ['p'] });
  expect(decodeURIComponent(last())).toBe(`POST ${permissions}`);
  await checkpoints.permissions.delete('cp_1', { fine_tuned_model_checkpoint: checkpoint });
  expect(decodeURIComponent(last())).toBe(`DELETE ${permissions}/cp_1`);
});

it('videos, failed ones too: lists, reads, creates, remixes, downloads, deletes', async () => {
  await client.videos.list();
  expect(last()).toBe('GET /v1/videos');
  const failed = await client.videos.retrieve('video_failed');
  expect(failed).toMatchObject({ id: 'video_failed', error: { code: 'moderation_blocked', message: 'No.' } });
  await client.videos.create({ prompt: 'a cat' });
  expect(last()).toBe('POST /v1/videos');
  await client.videos.remix('video_old', { prompt: 'a dog' });
  expect(last()).toBe('POST /v1/videos/video_old/remix');
  await client.videos.downloadContent('video_old');
  expect(last()).toBe('GET /v1/videos/video_old/content');
  await client.videos.delete('video_old');
  expect(last()).toBe('DELETE /v1/videos/video_old');
});

it('evals and their runs, failed ones too', async () => {
  const { evals } = client;
  await evals.list();
  const config = { type: 'custom', item_schema: {} } as const;
  await evals.create({ data_source_config: config, testing_criteria: [] });
  expect(last()).toBe('POST /v1/evals');
  expect(await evals.retrieve('eval_old')).toMatchObject({ id: 'eval_old' });
  await evals.update('eval_old', { name: 'new' });
  expect(last()).toBe('POST /v1/evals/eval_old');
  expect(await evals.runs.retrieve('run_failed', { eval_id: 'eval_old' })).toMatchObject({
    error: { code: 'moderation_blocked' },
  });
  await evals.runs.list('eval_old');
  await evals.runs.outputItems.list('run_1', { eval_id: 'eval_old' });
  expect(last()).toBe('GET /v1/evals/eval_old/runs/run_1/output_items');
  await evals.runs.cancel('run_1', { eval_id: 'eval_old' });
  await evals.delete('eval_old');
  expect(last()).toBe('DELETE /v1/evals/eval_old');
});

it('stored responses, conversations, vector stores, containers, uploads, models', async () => {
  expect(await client.responses.retrieve('resp_old')).toMatchObject({ id: 'resp_old' });
  await client.responses.inputItems.list('resp_old');
  expect(last()).toBe('GET /v1/responses/resp_old/input_items');
  await client.responses.cancel('resp_old');
  expect(last()).toBe('POST /v1/responses/resp_old/cancel');
  await client.responses.delete('resp_old');
  expect(last()).toBe('DELETE /v1/responses/resp_old');
  await client.conversations.items.list('conv_old');
  expect(last()).toBe('GET /v1/conversations/conv_old/items');
  await client.vectorStores.files.list('vs_old');
  expect(last()).toBe('GET /v1/vector_stores/vs_old/files');
  await client.containers.retrieve('cntr_old');
  expect(last()).toBe('GET /v1/containers/cntr_old');
  await client.uploads.cancel('upload_old');
  expect(last()).toBe('POST /v1/uploads/upload_old/cancel');
  await client.models.delete('ft:old');
  expect(decodeURIComponent(last())).toBe('DELETE /v1/models/ft:old');
});
