/** Answers of files, batches and jobs, of the sandbox and of Sluice itself, against the schemas of the reference. */
import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ObjectServer, startObjectServer } from '../support/object-server.ts';

interface Described {
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses: Readonly<
    Record<string, { readonly content: Readonly<Record<string, { readonly schema?: object }>> }>
  >;
}
const REFERENCE = JSON.parse(readFileSync(new URL('../../../docs/openapi.json', import.meta.url), 'utf8')) as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
  readonly components: object;
};
const { components } = REFERENCE;
const ajv = new Ajv2020({ strict: false, allErrors: true });

function described(method: string, path: string): Described {
  const found = REFERENCE.paths[`/v1${path}`]?.[method.toLowerCase()];
  if (found === undefined) throw new Error(`${method} ${path} is not in the reference`);
  return found;
}

const ROW = '{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}';
const line = (id: string, model: string) =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model, messages: [{ role: 'user', content: 'Hi' }] },
  });
const HYPERPARAMETERS = { n_epochs: 2, learning_rate_multiplier: 1, batch_size: 1 };

let server: ObjectServer;
beforeAll(async () => {
  server = await startObjectServer();
});
afterAll(() => server?.stop());

describe.each(['gateway', '@sandbox'])('the reference describes what %s answers', (who) => {
  const headers = { 'x-gateway-provider': who };
  const own = who === 'gateway' ? { gateway_options: { 'x-gateway-virtual-key': 'sandbox' } } : {};

  /** Calls a route of the reference and checks body and answer against its schemas. */
  async function call(method: string, path: string, ids: Record<string, string> = {}, body?: object, query = '') {
    const { requestBody, responses } = described(method, path);
    const real = path.replace(/\{(\w+)\}/g, (_, name: string) => ids[name] ?? name);
    const answer = await server.first_.send(method, `${real}${query}`, headers, body);
    const schema = responses[answer.status === 200 ? '200' : 'default']?.content['application/json']?.schema;
    if (schema === undefined) throw new Error(`${method} ${path} has no schema`);
    const wanted = requestBody?.content['application/json']?.schema;
    // What the reference allows is taken, what it does not is refused.
    if (wanted !== undefined && answer.status !== 404)
      expect(ajv.validate({ ...wanted, components }, body)).toBe(answer.status === 200);
    const fits = ajv.validate({ ...schema, components }, answer.body);
    expect([fits, ajv.errors, answer.body]).toEqual([true, null, answer.body]);
    expect(answer.headers.get('x-request-id')).toBe(answer.headers.get('x-gateway-request-id'));
    return answer;
  }

  async function upload(purpose: string, text: string) {
    const form = new FormData();
    form.set('purpose', purpose);
    form.set('file', new Blob([text]), 'file.jsonl');
    return String((await call('POST', '/files', {}, form)).body?.id);
  }

  it('files', async () => {
    const file_id = await upload('fine-tune', ROW);
    await call('GET', '/files/{file_id}', { file_id });
    expect((await call('GET', '/files', {}, undefined, '?limit=1')).body?.data).toHaveLength(1);
    await call('DELETE', '/files/{file_id}', { file_id });
    expect((await call('GET', '/files/{file_id}', { file_id })).status).toBe(404);
    expect((await call('GET', '/files', {}, undefined, '?limit=0')).status).toBe(400);
    expect((await call('POST', '/files', {}, {})).status).toBe(400);
  });

  it('fine-tuning jobs', async () => {
    const training_file = await upload('fine-tune', ROW);
    const wanted = { model: 'echo?train_ms=50', training_file, suffix: 'v1', ...own };
    const method = { type: 'supervised', supervised: { hyperparameters: HYPERPARAMETERS } };
    const integrations = [{ type: 'tracker', tracker: { project: 'p', name: null, tags: ['t'] } }];
    const made = await call('POST', '/fine_tuning/jobs', {}, { ...wanted, method, integrations });
    const auto = { n_epochs: 'auto', learning_rate_multiplier: 'auto', batch_size: 'auto' };
    expect((await call('POST', '/fine_tuning/jobs', {}, { ...wanted, hyperparameters: auto })).status).toBe(200);
    expect((await call('POST', '/fine_tuning/jobs', {}, wanted)).error.param).toBe('method');
    const ids = { fine_tuning_job_id: String(made.body?.id) };
    const job = '/fine_tuning/jobs/{fine_tuning_job_id}';
    await expect
      .poll(async () => (await call('GET', job, ids)).body?.status, { timeout: 30_000, interval: 50 })
      .toBe('succeeded');
    expect((await call('GET', `${job}/events`, ids, undefined, '?limit=1000')).body?.data).not.toEqual([]);
    expect((await call('GET', `${job}/checkpoints`, ids)).body?.data).toHaveLength(2);
    expect((await call('GET', '/fine_tuning/jobs', {}, undefined, '?limit=2')).body?.data).toHaveLength(2);
    expect((await call('POST', `${job}/cancel`, ids)).status).toBe(400);
    expect((await call('POST', `${job}/pause`, ids)).status).toBe(who === 'gateway' ? 404 : 501);
  }, 60_000);

  it('batches', async () => {
    const model = who === 'gateway' ? 'error?status=418' : 'echo';
    const input_file_id = await upload('batch', `${line('a', model)}\n${line('b', model)}`);
    const window = who === 'gateway' ? 'immediate' : '24h';
    const body = { input_file_id, endpoint: '/v1/chat/completions', completion_window: window };
    const more = who === 'gateway' ? { ...own, model } : { metadata: { sandbox_batch_ms: '0' } };
    const made = await call('POST', '/batches', {}, { ...body, ...more });
    const ids = { batch_id: String(made.body?.id) };
    await expect
      .poll(async () => (await call('GET', '/batches/{batch_id}', ids)).body?.status, { timeout: 30_000, interval: 50 })
      .toBe('completed');
    expect((await call('GET', '/batches')).body?.data).toHaveLength(1);
    expect((await call('POST', '/batches/{batch_id}/cancel', ids)).status).toBe(400);
  }, 60_000);
});
