/** How a request was decided, as anybody with the right can read it afterwards. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from './support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from './support/upstream.ts';

let upstream: FakeUpstream;
let server: TestServer;

beforeAll(async () => {
  upstream = await startUpstream((request, response) => {
    const { model } = JSON.parse(request.body.toString()) as { model: string };
    if (model === 'down') return sendJson(response, 503, '{"error":{"message":"no"}}');
    return sendJson(
      response,
      200,
      JSON.stringify({
        id: 'c1',
        object: 'chat.completion',
        created: 1,
        model,
        choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
        usage: { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 },
      }),
    );
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const account = { provider: '@openai-test' };
async function ask(config: object | string | null, more: object = {}) {
  const answer = await server.call(
    '/chat/completions',
    { model: 'gpt-4o', messages: [{ role: 'user', content: 'Hi' }], ...more },
    config === null ? {} : { 'x-gateway-config': typeof config === 'string' ? config : JSON.stringify(config) },
  );
  await answer.text();
  const [record] = await server.records();
  return record?.id as string;
}
const decision = async (id: string, key?: string) => server.admin('GET', `/logs/${id}/decision`, undefined, key);

describe('GET /logs/{id}/decision', () => {
  it('tells the targets that were tried and why, what was changed, and what it cost', async () => {
    const saved = await server.admin('POST', '/configs', {
      name: 'explained',
      workspace_id: server.first.workspace_id,
      config: {
        // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
        strategy: { mode: 'conditional', conditions: [{ query: { 'params.user': 'a' }, then: 'both' }], default: 'b' },
        targets: [
          { name: 'b', ...account },
          {
            name: 'both',
            strategy: { mode: 'fallback' },
            targets: [
              { ...account, override_params: { model: 'down' } },
              { ...account, default_params: { temperature: 0.5 }, drop_params: ['user'] },
            ],
          },
        ],
      },
    });
    expect(saved.status).toBe(200);
    const id = await ask(saved.body.slug as string, { user: 'a' });
    const { status, body } = await decision(id);
    expect(status).toBe(200);
    expect(body).toMatchObject({
      object: 'decision',
      request_id: id,
      operation: 'chat',
      config: { slug: saved.body.slug, version_id: saved.body.version_id },
      route: [
        { path: 'config', mode: 'conditional', chosen: 'config.targets[1]', why: /^conditions.0. matched$/ },
        { path: 'config.targets[1]', mode: 'fallback', chosen: 'config.targets[1].targets[1]', why: /status 503/ },
      ].map((one) => ({ ...one, why: expect.stringMatching(one.why) })),
      target: { path: 'config.targets[1].targets[1]', provider: 'openai', provider_slug: 'openai-test' },
      attempts: [
        { target: 'config.targets[1].targets[0]', status: 503 },
        { target: 'config.targets[1].targets[1]', status: 200 },
      ],
      fields_changed: ['user', 'temperature'],
      converted_to: null,
      cache: { status: 'DISABLED' },
      price: { source: expect.stringContaining('gpt-4o'), rates: { input: 2.5, output: 10 } },
      cost_micros: 750,
      outcome: { status: 200, outcome: 'ok' },
    });
  });

  it('tells a refusal, and that there was no config', async () => {
    const id = await ask(null);
    expect((await decision(id)).body).toMatchObject({
      config: null,
      target: null,
      attempts: [],
      outcome: { status: 400, outcome: 'refused', error_message: expect.stringContaining('No provider is named') },
    });
  });

  it('is there as soon as the answer is', async () => {
    const answer = await server.call('/chat/completions', { model: '@openai-test/gpt-4o', messages: [] });
    await answer.text();
    const ids = (await server.records()).map(({ id }) => id as string);
    expect((await decision(ids[0] ?? '')).status).toBe(200);
  });

  it('tells nothing to whoever may not see it, and nothing about what is not there', async () => {
    const id = await ask({ ...account });
    const other = await server.admin('POST', '/admin/workspaces', { name: 'Other' });
    const key = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'other',
      workspace_id: other.body.id,
      scopes: ['logs.view'],
    });
    const foreign = await decision(id, key.body.key as string);
    const unknown = await decision('00000000-0000-7000-8000-000000000000', key.body.key as string);
    expect([foreign.status, unknown.status, (await decision('nope')).status]).toEqual([404, 404, 404]);
    expect({ ...foreign.body, request_id: null }).toEqual({ ...unknown.body, request_id: null });
    const blind = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'blind',
      workspace_id: server.first.workspace_id,
      scopes: ['configs.read'],
    });
    expect((await decision(id, blind.body.key as string)).status).toBe(403);
  });
});
