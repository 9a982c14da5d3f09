/** Sluice's own files and batches with the official client, through the whole server and its scheduler. */
import OpenAI, { toFile } from 'openai';
import type { Batch } from 'openai/resources/batches';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';

const OWN = { 'x-gateway-provider': 'gateway' };
const FINAL = ['completed', 'failed', 'expired', 'cancelled', 'file_upload_failed', 'batch_start_failed'];

let server: ObjectServer;
let mine: OpenAI;
let theirs: OpenAI;

beforeAll(async () => {
  server = await startObjectServer();
  mine = server.first_.client('', OWN);
  theirs = server.second.client('', OWN);
});
afterAll(() => server?.stop());

const lineOf = (id: string, content: string, url = '/v1/chat/completions') =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url,
    body: url.endsWith('embeddings') ? { input: content } : { messages: [{ role: 'user', content }] },
  });

async function upload(lines: readonly string[], client = mine) {
  const file = await toFile(Buffer.from(lines.join('\n')), 'requests.jsonl');
  return client.files.create({ file, purpose: 'batch' });
}

const create = (input_file_id: string, more: object = {}, client = mine) =>
  client.batches.create({
    input_file_id,
    endpoint: '/v1/chat/completions',
    completion_window: 'immediate',
    model: 'echo',
    gateway_options: { 'x-gateway-virtual-key': 'sandbox' },
    ...more,
  } as never);

/** The scheduler works by itself; only its own work is waited for. */
const ended = (id: string, client = mine): Promise<Batch> =>
  vi.waitFor(
    async () => {
      const batch = await client.batches.retrieve(id);
      if (!FINAL.includes(batch.status)) throw new Error(`the batch is ${batch.status}`);
      return batch;
    },
    { timeout: 20_000, interval: 20 },
  );

const recordsOf = async (id: string) => (await server.records()).filter((record) => record.trace_id === id);

describe('a batch that Sluice runs', () => {
  it('is created, run, listed and read to its last line; each request has one record and its price', async () => {
    const file = await upload([lineOf('one', 'Hello'), lineOf('two', 'World')]);
    expect(file.id).toMatch(/^gw_file_/);
    const made = await create(file.id, { metadata: { team: 'search' } });
    expect(made).toMatchObject({ status: 'validating', input_file_id: file.id, metadata: { team: 'search' } });
    const done = await ended(made.id);
    expect(done).toMatchObject({ status: 'completed', request_counts: { total: 2, completed: 2, failed: 0 } });
    expect(done.error_file_id).toBeNull();
    const output = await (await mine.files.content(done.output_file_id ?? '')).text();
    const lines = output
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(lines.map((line) => [line.custom_id, line.response.body.choices[0].message.content])).toEqual([
      ['one', 'Hello'],
      ['two', 'World'],
    ]);
    expect((await server.first_.send('GET', `/batches/${made.id}/output`)).text).toBe(output);
    expect(await mine.files.retrieve(done.output_file_id ?? '')).toMatchObject({ purpose: 'batch_output' });
    const listed: string[] = [];
    for await (const batch of mine.batches.list({ limit: 1 })) listed.push(batch.id);
    expect(listed).toContain(made.id);
    const records = await recordsOf(made.id);
    expect(records.map((record) => (record.metadata as Record<string, string>)._batch_line).sort()).toEqual(['1', '2']);
    expect(records.map((record) => record.id).sort()).toEqual(lines.map((line) => line.response.request_id).sort());
    for (const record of records) {
      expect(record).toMatchObject({ status: 200, outcome: 'ok', provider_slug: 'sandbox', operation: 'chat' });
      expect(Number(record.cost_micros)).toBeGreaterThan(0);
    }
  });

  it('embeddings, a config and the model by @slug work as in a single request', async () => {
    const config = await server.admin('POST', '/configs', {
      name: 'batch config',
      workspace_id: server.first.workspace_id,
      config: { provider: '@sandbox', retry: { attempts: 1 } },
    });
    expect(config.status).toBe(200);
    const file = await upload([lineOf('a', 'Hello', '/v1/embeddings')]);
    const options = { endpoint: '/v1/embeddings', gateway_options: { 'x-gateway-config': String(config.body.slug) } };
    const first = await ended((await create(file.id, options)).id);
    expect(first.status).toBe('completed');
    const [record] = await recordsOf(first.id);
    expect(record).toMatchObject({ operation: 'embeddings', config_slug: config.body.slug });
    const second = await create(file.id, { ...options, gateway_options: undefined, model: '@sandbox/echo' });
    expect(await ended(second.id)).toMatchObject({ status: 'completed', model: 'echo' });
  });

  it('with 24h the provider runs it, and its output is kept here', async () => {
    const file = await upload([lineOf('one', 'Hello'), lineOf('two', 'World')]);
    const made = await create(file.id, { completion_window: '24h', model: 'echo?batch_ms=0' });
    const done = await ended(made.id);
    expect(done).toMatchObject({ status: 'completed', request_counts: { completed: 2 } });
    expect(done.output_file_id).toMatch(/^gw_file_/);
    // Its lines are no requests here: one record, written after its end, says what all of them used.
    await vi.waitFor(
      async () =>
        expect(await recordsOf(made.id)).toMatchObject([
          { operation: 'batch_create', usage: { input: 16, output: 2 } },
        ]),
      { timeout: 15_000 },
    );
    const details = await server.first_.send('GET', `/batches/${made.id}?include_provider_details=true`);
    expect(details.body).toMatchObject({ provider_details: { run_by: 'provider', batch: { object: 'batch' } } });
  });

  it('keeps to the rate limit of its key and ends when it is cancelled', async () => {
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'limited',
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
      rate_limits: [{ type: 'requests', unit: 'rpd', value: 4 }],
    });
    const limited = new OpenAI({
      apiKey: String(made.body.key),
      baseURL: `${server.url}/v1`,
      maxRetries: 0,
      defaultHeaders: OWN,
    });
    const file = await upload(Array.from({ length: 6 }, (_, i) => lineOf(`l${i}`, `Line ${i}`)));
    // Creating the batch is the key's first request of the day; three lines may follow.
    const batch = await create(file.id, {}, limited);
    await vi.waitFor(
      async () =>
        expect((await mine.batches.retrieve(batch.id)).request_counts).toEqual({ total: 6, completed: 3, failed: 0 }),
      { timeout: 20_000, interval: 20 },
    );
    // A refused line is recorded when its turn comes, maybe after the third answer. Once one is refused, others may wait untried.
    const refused = async () => (await recordsOf(batch.id)).filter((record) => record.status === 429).length;
    await vi.waitFor(async () => expect(await refused()).toBeGreaterThan(0), { timeout: 20_000, interval: 20 });
    expect((await mine.batches.cancel(batch.id)).status).toBe('cancelling');
    const done = await ended(batch.id);
    expect(await refused()).toBeLessThanOrEqual(3);
    expect(done).toMatchObject({ status: 'cancelled', request_counts: { total: 6, completed: 3, failed: 3 } });
    const errors = await (await mine.files.content(done.error_file_id ?? '')).text();
    expect(
      errors
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).error.code),
    ).toEqual(Array(3).fill('batch_cancelled'));
  });

  it('faults of the file are told by line; nothing is found by another workspace', async () => {
    const file = await upload([lineOf('same', 'a'), lineOf('same', 'b')]);
    const made = await create(file.id);
    const done = await ended(made.id);
    expect(done.errors?.data).toMatchObject([{ line: 2, code: 'duplicate_custom_id', param: 'custom_id' }]);
    for (const call of [
      () => theirs.batches.retrieve(made.id),
      () => theirs.batches.cancel(made.id),
      () => theirs.files.retrieve(file.id),
      () => create(file.id, {}, theirs),
    ]) {
      await expect(call()).rejects.toMatchObject({ status: 404 });
    }
    expect((await server.second.send('GET', `/batches/${made.id}/output`)).status).toBe(404);
    expect((await theirs.batches.list()).data).toEqual([]);
    const open = await create((await upload([lineOf('x', 'y')])).id);
    await ended(open.id);
    await expect(mine.batches.cancel(open.id)).rejects.toMatchObject({ status: 400, code: 'AB01' });
  });
});

describe('a fine-tuning job that Sluice runs on the sandbox', () => {
  it('goes from a file of its own, with a validation file, to a model that answers', async () => {
    const rows = (name: string) =>
      Array.from({ length: 12 }, (_, i) =>
        JSON.stringify({
          messages: [
            { role: 'user', content: `${name} question ${i}` },
            { role: 'assistant', content: `Answer ${i}` },
          ],
        }),
      ).join('\n');
    const [training, validation] = await Promise.all(
      ['training', 'validation'].map(async (name) =>
        mine.files.create({ file: await toFile(Buffer.from(rows(name)), `${name}.jsonl`), purpose: 'fine-tune' }),
      ),
    );
    const hyperparameters = { n_epochs: 2, learning_rate_multiplier: 1, batch_size: 4 };
    const made = await mine.fineTuning.jobs.create({
      model: 'echo?train_ms=0',
      training_file: training?.id,
      validation_file: validation?.id,
      suffix: 'mine',
      method: { type: 'supervised', supervised: { hyperparameters } },
      gateway_options: { 'x-gateway-virtual-key': 'sandbox' },
    } as never);
    const job = await vi.waitFor(
      async () => {
        const now = await mine.fineTuning.jobs.retrieve(made.id);
        if (!['succeeded', 'failed', 'cancelled'].includes(now.status)) throw new Error(`the job is ${now.status}`);
        return now;
      },
      { timeout: 20_000, interval: 20 },
    );
    expect(job).toMatchObject({ status: 'succeeded', training_file: training?.id, validation_file: validation?.id });
    const answer = await server.call('/chat/completions', {
      model: `@sandbox/${job.fine_tuned_model}`,
      messages: [{ role: 'user', content: 'Hello' }],
    });
    expect(await answer.json()).toMatchObject({ choices: [{ message: { content: 'Hello' } }] });
    expect(await (await mine.files.content(job.result_files[0] ?? '')).text()).toMatch(/valid_loss/);
    const checkpoints = await mine.fineTuning.jobs.checkpoints.list(made.id);
    expect(checkpoints.data.length).toBe(2);
  });
});
