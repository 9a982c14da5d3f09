/** Keys that people paste where a name belongs, and saved credentials that a request would send to another vendor. */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const SECRETS = [
  'sk-proj-0a1b2c3d4e5f6g7h8i9jklmnopqr',
  'gsk_0A1b2C3d4E5f6G7h8I9jKlMnOpQr',
  '0123456789abcdef0123456789abcdef',
  'Bearer 0a1b2c3d4e5f6g7h8i9j',
];

let server: TestServer;
let upstream: FakeUpstream;

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => sendJson(response, 200, { id: 'c', choices: [] }));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const chat = (model = 'gpt-4o') => ({ model, messages: [{ role: 'user', content: 'Hello' }] });

describe('a key that was pasted where a name belongs', () => {
  const places: readonly (readonly [string, (secret: string) => Record<string, string>])[] = [
    ['x-gateway-config', (secret) => ({ 'x-gateway-config': secret })],
    ['a cut config', (secret) => ({ 'x-gateway-config': `{"api_key":"${secret}` })],
    ['a key of a config', (secret) => ({ 'x-gateway-config': JSON.stringify({ [secret]: 1 }) })],
    ['the provider of a config', (secret) => ({ 'x-gateway-config': JSON.stringify({ provider: secret, retry: {} }) })],
    ['the virtual key of a config', (secret) => ({ 'x-gateway-config': JSON.stringify({ virtual_key: secret }) })],
    [
      'a guardrail of a config',
      (secret) => ({ 'x-gateway-config': JSON.stringify({ provider: '@sandbox', input_guardrails: [secret] }) }),
    ],
    [
      'a check of a config',
      (secret) => ({
        'x-gateway-config': JSON.stringify({ provider: '@sandbox', input_guardrails: [{ [secret]: {} }] }),
      }),
    ],
    ['x-gateway-provider', (secret) => ({ 'x-gateway-provider': secret })],
    ['x-gateway-provider with @', (secret) => ({ 'x-gateway-provider': `@${secret}` })],
    ['x-gateway-virtual-key', (secret) => ({ 'x-gateway-virtual-key': secret })],
    ['x-gateway-custom-host', (secret) => ({ 'x-gateway-custom-host': secret })],
    ['a key of x-gateway-metadata', (secret) => ({ 'x-gateway-metadata': JSON.stringify({ [secret]: 1 }) })],
    ['x-gateway-request-timeout', (secret) => ({ 'x-gateway-request-timeout': secret })],
    ['x-gateway-retry-count', (secret) => ({ 'x-gateway-retry-count': secret })],
    ['x-gateway-dry-run', (secret) => ({ 'x-gateway-dry-run': secret })],
  ];

  it.each(places)('in %s is neither answered nor recorded', async (_place, headers) => {
    for (const secret of SECRETS) {
      // A model with a slug has other errors: about what the header says against it.
      for (const model of ['gpt-4o', '@sandbox/echo']) {
        const answer = await server.call('/chat/completions', chat(model), headers(secret));
        expect(await answer.text()).not.toContain(secret.slice(0, 20));
        if (model === 'gpt-4o') expect(answer.status).toBe(400);
      }
    }
    const records = JSON.stringify(await server.records());
    for (const secret of SECRETS) expect(records).not.toContain(secret.slice(0, 20));
  });

  it('a name is quoted as before', async () => {
    const answer = await server.call('/chat/completions', chat(), { 'x-gateway-provider': '@no-such-1' });
    expect(await answer.text()).toContain('no-such-1');
  });
});

describe('a credential in a saved config', () => {
  const save = (config: object) =>
    server.admin('POST', '/configs', { name: 'c', config }, server.first.workspace_api_key);

  it.each([
    [{ api_key: 'sk-saved', retry: { attempts: 1 } }, 'config.api_key'],
    [{ aws_secret_access_key: 'saved', cache: { mode: 'simple' } }, 'config.aws_secret_access_key'],
    [
      { strategy: { mode: 'single' }, targets: [{ api_key: 'sk-saved', retry: { attempts: 1 } }] },
      'config.targets[0].api_key',
    ],
    [
      { api_key: 'sk-saved', strategy: { mode: 'fallback' }, targets: [{ provider: 'openai', api_key: 'sk-2' }] },
      'config.api_key',
    ],
  ])('%j is refused: it names no provider that gets it', async (config, param) => {
    const answer = await save(config);
    expect(answer).toMatchObject({ status: 400, body: { error: { param } } });
    expect(JSON.stringify(answer.body)).toContain('provider');
  });

  it('goes to no host that the request names', async () => {
    const saved = await save({ provider: 'openai', api_key: 'sk-saved' });
    const nested = await save({
      strategy: { mode: 'fallback' },
      targets: [{ provider: 'openai', api_key: 'sk-saved' }],
    });
    for (const { body } of [saved, nested]) {
      const headers = { 'x-gateway-config': String(body.slug), 'x-gateway-custom-host': `${upstream.url}/v1` };
      const answer = await server.call('/chat/completions', chat(), headers);
      expect(answer.status).toBe(400);
      expect(await answer.text()).toContain('custom_host');
    }
    expect(upstream.received).toHaveLength(0);
  });

  it('of an older version goes to no provider that the request names', async () => {
    const saved = await save({ provider: 'openai', api_key: 'sk-saved-before', custom_host: `${upstream.url}/v1` });
    const version = String(saved.body.version_id);
    // Never waits in SQLite: a transaction of the server ends on this thread.
    const db = new DatabaseSync(join(server.dataDir, 'control.db'), { timeout: 0 });
    const changed = db.prepare(`UPDATE config_versions SET config = json_remove(config, '$.provider') WHERE id = ?`);
    const { changes } = await vi.waitFor(() => changed.run(version), { timeout: 10_000, interval: 20 });
    expect(changes).toBe(1);
    db.close();
    const headers = { 'x-gateway-config': String(saved.body.slug), 'x-gateway-provider': 'openai' };
    const answer = await server.call('/chat/completions', chat(), headers);
    expect(answer.status).toBe(400);
    expect(await answer.text()).toContain('names no provider');
    expect(upstream.received).toHaveLength(0);
  });
});
