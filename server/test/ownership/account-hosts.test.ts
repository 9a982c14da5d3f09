/** Where the secrets of an integration and of its models go, as the servers behind them see it. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

let server: TestServer;
let account: FakeUpstream;
let other: FakeUpstream;

const startOne = () => startUpstream((_request, response) => sendJson(response, 200, { id: 'c', choices: [] }));

beforeAll(async () => {
  [account, other] = await Promise.all([startOne(), startOne()]);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${account.port},127.0.0.1:${other.port}` });
  await server.provider({
    id: 'openai',
    slug: 'mine',
    host: `${account.url}/v1`,
    key: 'sk-account',
    configurations: { custom_headers: { 'x-account': 'account-secret' } },
  });
  const configurations = {
    custom_host: `${other.url}/v1`,
    key: 'sk-model',
    custom_headers: { 'x-model': 'model-secret' },
  };
  const models = [
    { slug: 'with-key', enabled: true, is_custom: true, configurations },
    { slug: 'without', enabled: true, is_custom: true },
  ];
  const saved = await server.admin('PUT', '/integrations/mine-integration/models', { models });
  expect(saved.status).toBe(200);
});
afterAll(async () => {
  await server?.stop();
  await Promise.all([account?.stop(), other?.stop()]);
});

const ask = (model: string, headers: Record<string, string> = {}) =>
  server.call(
    '/chat/completions',
    { model, messages: [{ role: 'user', content: 'Hello' }] },
    { 'x-gateway-provider': '@mine', ...headers },
  );

it('a model with a key is called at its host with its key and headers, and with nothing of the integration', async () => {
  expect((await ask('with-key')).status).toBe(200);
  const headers = other.received.at(-1)?.headers ?? {};
  expect(headers).toMatchObject({ authorization: 'Bearer sk-model', 'x-model': 'model-secret' });
  expect(JSON.stringify(headers)).not.toContain('account');
  expect(account.received).toHaveLength(0);
});

it('its key does not go where the integration goes, though a request asks for it', async () => {
  const answer = await ask('with-key', { 'x-gateway-custom-host': `${account.url}/v1` });
  expect(answer.status).toBe(400);
  expect(account.received).toHaveLength(0);
});

it('the other models are called at the host of the integration with its key and headers', async () => {
  expect((await ask('without')).status).toBe(200);
  const headers = account.received.at(-1)?.headers ?? {};
  expect(headers).toMatchObject({ authorization: 'Bearer sk-account', 'x-account': 'account-secret' });
  expect(JSON.stringify(headers)).not.toContain('model');
});

it('the audit row of a change of hosts shows the old and the new host, without path and query', async () => {
  await server.provider({ id: 'openai', slug: 'moves', host: 'https://old.example/v1/path-secret' });
  const of = '/integrations/moves-integration';
  const changed = [
    await server.admin('PUT', of, { key: 'k', configurations: { custom_host: 'https://new.example/v1/path-secret' } }),
    await server.admin('PUT', of, { key: 'k', configurations: { custom_host: 'https://new.example/?q=path-secret' } }),
    await server.admin('PUT', `${of}/models`, {
      models: [
        { slug: 'm', enabled: true, configurations: { custom_host: 'https://model.example/path-secret', key: 'k' } },
      ],
    }),
    await server.admin('PUT', `${of}/models`, {
      models: [{ slug: 'm', enabled: true, configurations: { custom_host: 'https://model-2.example', key: 'k' } }],
    }),
  ];
  expect(changed.map(({ status }) => status)).toEqual([200, 400, 200, 200]);
  const { body } = await server.admin(
    'GET',
    '/audit-logs?start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z',
  );
  const rows = (body.records as { method: string; uri: string; before: string; after: string; request_body: string }[])
    .filter(({ method, uri }) => method === 'PUT' && uri.includes(of))
    .reverse();
  expect(rows).toHaveLength(4);
  expect(JSON.stringify(rows)).not.toContain('path-secret');
  expect(rows[0]?.before).toMatch(/"custom_host":"https:\/\/old\.example\/\*{7}/);
  expect(rows[0]?.after).toMatch(/"custom_host":"https:\/\/new\.example\/\*{7}/);
  expect(rows[1]?.request_body).toMatch(/"custom_host":"https:\/\/new\.example\/\*{7}/);
  expect(rows[3]?.before).toMatch(/"custom_host":"https:\/\/model\.example\/\*{7}/);
  expect(rows[3]?.after).toContain('"custom_host":"https://model-2.example"');
});
