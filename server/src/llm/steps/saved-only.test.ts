/**
 * Saved-only mode end to end: who it holds for, what it refuses with which code, what it lets pass, and what
 * follows from a change of it.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../../test/support/server.ts';

interface Organisation {
  readonly organisation_id: string;
  readonly workspace_id: string;
  readonly admin_api_key: string;
  readonly workspace_api_key: string;
}

const ECHO = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };
const PLAIN = { ...ECHO, model: 'echo' };
const INLINE = '{"retry":{"attempts":1}}';

/** Code, header, value: in the order of the contract. */
const BLOCKED = [
  ['inline_config_blocked', 'x-gateway-config', INLINE],
  ['inline_config_blocked', 'x-gateway-config', '  {"provider":"openai"}'],
  ['inline_config_blocked', 'x-gateway-config', '{not json'],
  ['inline_provider_blocked', 'x-gateway-provider', 'openai'],
  ['inline_provider_blocked', 'x-gateway-provider', 'sandbox'],
  ['inline_custom_host_blocked', 'x-gateway-custom-host', 'https://example.com/v1'],
  ['inline_provider_url_blocked', 'x-gateway-huggingface-base-url', 'https://example.com'],
  ['inline_provider_url_blocked', 'x-gateway-azure-foundry-url', 'https://example.com'],
  ['inline_provider_url_blocked', 'x-gateway-databricks-workspace', 'mine'],
  ['inline_provider_url_blocked', 'x-gateway-azure-resource-name', 'mine'],
  ['inline_provider_url_blocked', 'x-gateway-azure-endpoint-name', 'mine'],
  ['inline_provider_url_blocked', 'x-gateway-snowflake-account', 'mine'],
  ['inline_forward_headers_blocked', 'x-gateway-forward-headers', 'x-a'],
] as const;

describe('saved-only mode', () => {
  let server: TestServer;
  let other: Organisation;
  let config: string;

  const send = (key: string, headers: Record<string, string> = {}, body: unknown = ECHO, url = server.url) =>
    fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': key, 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  const call = (headers: Record<string, string> = {}, body: unknown = ECHO) =>
    send(other.workspace_api_key, headers, body);
  const settings = async (body: object, key = other.admin_api_key) => {
    const answer = await server.admin('PUT', '/admin/organisation/settings', body, key);
    expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  };
  const block = (block_inline_config: boolean) => settings({ data_plane_security_settings: { block_inline_config } });
  /** The code of a refusal, or the status of an answer. */
  const outcome = async (answer: Promise<Response>) => {
    const { status, body } = await answer.then(async (one) => ({ status: one.status, body: await one.text() }));
    return /"code":"(inline_\w+)"/.exec(body)?.[1] ?? status;
  };

  beforeAll(async () => {
    server = await startServer();
    const made = await server.admin(
      'POST',
      '/operator/organisations',
      { name: 'Later', owner: { email: 'o@later.example', first_name: 'O', last_name: 'L' } },
      server.first.operator_api_key,
    );
    other = made.body as unknown as Organisation;
    const saved = await server.admin(
      'POST',
      '/configs',
      { name: 'saved', config: { provider: '@sandbox', retry: { attempts: 1 } }, workspace_id: other.workspace_id },
      other.admin_api_key,
    );
    expect(saved.status, JSON.stringify(saved.body)).toBe(200);
    config = String(saved.body.slug);
  });
  afterAll(() => server?.stop());

  it('is off in the organisation of the first run and on in later ones', async () => {
    const of = async (key: string) =>
      (await server.admin('GET', '/admin/organisation/settings', undefined, key)).body.data_plane_security_settings;
    expect(await of(server.first.admin_api_key)).toEqual({ block_inline_config: false });
    expect(await of(other.admin_api_key)).toEqual({ block_inline_config: true });
    const inline = { 'x-gateway-provider': 'sandbox', authorization: 'Bearer x' };
    expect(await outcome(send(server.first.workspace_api_key, inline, PLAIN))).toBe(200);
    expect(await outcome(call(inline, PLAIN))).toBe('inline_provider_blocked');
  });

  it.each(BLOCKED)('%s for %s: %s', async (code, field, value) => {
    const answer = await call({ [field]: value, authorization: 'Bearer sk-x' });
    expect(answer.status).toBe(400);
    const body = (await answer.json()) as { message: string };
    expect(body).toEqual({ status: 'failure', error: { code, message: body.message, field }, message: body.message });
    expect(body.message.length).toBeGreaterThan(20);
  });

  it('names the first violation in the order of the contract', async () => {
    const order = [3, 5, 9, 12].map((index) => BLOCKED[index] ?? BLOCKED[0]);
    const all = [BLOCKED[0], ...order];
    for (let from = 0; from < all.length; from++) {
      // Sent in the opposite order: what counts is the contract's.
      const headers = Object.fromEntries(
        all
          .slice(from)
          .reverse()
          .map(([, field, value]) => [field, value]),
      );
      expect(await outcome(call(headers))).toBe(all[from]?.[0]);
    }
  });

  it('is the first check of a request: before its body is looked at, after its credential', async () => {
    expect(await outcome(call({ 'x-gateway-config': INLINE }, '{broken'))).toBe('inline_config_blocked');
    expect(await outcome(call({ 'x-gateway-config': INLINE, 'content-type': 'text/plain' }))).toBe(
      'inline_config_blocked',
    );
    expect(await outcome(call({ 'x-gateway-provider': 'openai', 'x-gateway-metadata': '[' }))).toBe(
      'inline_provider_blocked',
    );
    // Another last character than the key's own, so that its checksum is wrong.
    const nobody = other.workspace_api_key.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
    expect(await outcome(send(nobody, { 'x-gateway-config': INLINE }))).toBe(401);
    expect(await outcome(send(other.admin_api_key, { 'x-gateway-config': INLINE }))).toBe(403);
  });

  it.each([
    ['a config by slug', () => ({ 'x-gateway-config': config }), PLAIN],
    ['a provider by @slug', () => ({ 'x-gateway-provider': '@sandbox' }), PLAIN],
    ['a model @slug/model', () => ({}), ECHO],
    ['a virtual key', () => ({ 'x-gateway-virtual-key': 'sandbox' }), PLAIN],
    [
      'Authorization beside a saved provider',
      () => ({ 'x-gateway-provider': '@sandbox', authorization: 'Bearer x' }),
      PLAIN,
    ],
    ['metadata and trace ids', () => ({ 'x-gateway-metadata': '{"a":"b"}', 'x-gateway-trace-id': 't' }), ECHO],
    ['provider parameters that move nothing', () => ({ 'x-gateway-openai-organization': 'org-1' }), ECHO],
  ])('still allows %s', async (_title, headers, body) => {
    const answer = await call(headers(), body);
    expect(answer.status, await answer.text()).toBe(200);
  });

  it('holds on every route of the data plane', async () => {
    for (const [method, path] of [
      ['GET', '/models'],
      ['POST', '/embeddings'],
      ['POST', '/messages'],
      ['POST', '/responses'],
      ['GET', '/files'],
      ['POST', '/files'],
      ['GET', '/batches'],
      ['GET', '/fine_tuning/jobs'],
    ] as const) {
      const answer = await fetch(`${server.url}/v1${path}`, {
        method,
        headers: {
          'x-gateway-api-key': other.workspace_api_key,
          'x-gateway-custom-host': 'https://example.com',
          ...(method === 'POST' ? { 'content-type': 'application/json' } : {}),
        },
        ...(method === 'POST' ? { body: '{}' } : {}),
      });
      expect([path, answer.status, ((await answer.json()) as { error: { code: string } }).error.code]).toEqual([
        path,
        400,
        'inline_custom_host_blocked',
      ]);
    }
    // What Sluice keeps itself is no provider of the caller's.
    const own = await fetch(`${server.url}/v1/files`, {
      headers: { 'x-gateway-api-key': other.workspace_api_key, 'x-gateway-provider': 'gateway' },
    });
    expect(own.status, await own.text()).toBe(200);
  });

  it('follows the organisation’s setting from the next request on', async () => {
    const inline = () => outcome(call({ 'x-gateway-config': '{"provider":"@sandbox"}' }, PLAIN));
    expect(await inline()).toBe('inline_config_blocked');
    for (let round = 0; round < 3; round++) {
      await block(false);
      expect(await inline()).toBe(200);
      await block(true);
      expect(await inline()).toBe('inline_config_blocked');
    }
  });

  it('a workspace may be stricter while its category is open, and never laxer', async () => {
    const inline = () => outcome(call({ 'x-gateway-config': '{"provider":"@sandbox"}' }, PLAIN));
    const workspace = async (security_settings: unknown) => {
      const path = `/admin/workspaces/${other.workspace_id}`;
      return (await server.admin('PUT', path, { security_settings }, other.admin_api_key)).status;
    };
    const set = (block_inline_config: boolean | null) =>
      workspace({ data_plane_security_settings: { block_inline_config } });
    await block(false);
    expect(await set(true)).toBe(400);
    expect(await inline()).toBe(200);
    await settings({ workspace_overrides: { data_plane_security_settings: true } });
    expect(await inline()).toBe(200);
    expect(await set(true)).toBe(200);
    expect(await inline()).toBe('inline_config_blocked');
    // The category closes: the organisation alone decides.
    await settings({ workspace_overrides: { data_plane_security_settings: false } });
    expect(await inline()).toBe(200);
    // It opens again, and the organisation's value is copied over the old one.
    await settings({ workspace_overrides: { data_plane_security_settings: true } });
    expect(await inline()).toBe(200);
    expect(await set(true)).toBe(200);
    expect(await set(null)).toBe(200);
    expect(await inline()).toBe(200);
    await block(true);
    expect(await set(false)).toBe(200);
    expect(await inline()).toBe('inline_config_blocked');
    await settings({ workspace_overrides: null });
    expect(await inline()).toBe('inline_config_blocked');
  });

  it('new workspaces start with the organisation’s value', async () => {
    const create = async (name: string) => {
      const made = await server.admin('POST', '/admin/workspaces', { name }, other.admin_api_key);
      expect(made.status, JSON.stringify(made.body)).toBe(200);
      const path = `/admin/workspaces/${made.body.id}`;
      return (await server.admin('GET', path, undefined, other.admin_api_key)).body.security_settings;
    };
    expect(await create('While on')).toMatchObject({ data_plane_security_settings: { block_inline_config: true } });
    await block(false);
    expect(await create('While off')).toMatchObject({ data_plane_security_settings: { block_inline_config: false } });
    await block(true);
  });
});

describe('BLOCK_INLINE_CONFIG=true', () => {
  it('forces it for an organisation that has it off', async () => {
    const server = await startServer({ BLOCK_INLINE_CONFIG: 'true' });
    try {
      const off = { data_plane_security_settings: { block_inline_config: false } };
      expect((await server.admin('PUT', '/admin/organisation/settings', off)).status).toBe(200);
      const answer = await server.call('/chat/completions', ECHO, { 'x-gateway-forward-headers': 'x-a' });
      expect([answer.status, await answer.json()]).toMatchObject([
        400,
        { error: { code: 'inline_forward_headers_blocked' } },
      ]);
    } finally {
      await server.stop();
    }
  });
});
