/** Tokens that an organisation signs, on a whole server: where keys are taken, tokens are. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../src/kernel/clock.ts';
import { startServer, type TestServer } from './support/server.ts';
import { issuer } from './support/tokens.ts';
import { type FakeUpstream, startUpstream } from './support/upstream.ts';

const SETTINGS = '/admin/organisation/settings';
const key = issuer('first');
const other = issuer('other');
let server: TestServer;
let upstream: FakeUpstream;
let claims: Readonly<Record<string, unknown>>;

type Json = Record<string, unknown>;
const inline = { jwks: { keys: [key.jwk] } };
const save = (jwt: unknown) => server.admin('PUT', SETTINGS, { auth_settings: { jwt } });

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ keys: [key.jwk] }));
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  const { organisation_id, workspace_id } = server.first;
  claims = {
    exp: Math.floor(Date.now() / 1_000) + 600,
    gateway_oid: organisation_id,
    gateway_workspace: workspace_id,
    scope: 'completions.write configs.list configs.create configs.delete',
    sub: 'service-a',
  };
  expect(await save(inline)).toMatchObject({ status: 200 });
}, 60_000);
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const CHAT = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };
const raw = (token: string) => ({ 'x-gateway-api-key': token });
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

async function send(path: string, headers: Record<string, string>, body?: unknown, method = body ? 'POST' : 'GET') {
  const form = body instanceof FormData;
  const answer = await fetch(`${server.url}/v1${path}`, {
    method,
    headers: { ...headers, ...(body === undefined || form ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: form ? body : JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, text, body: (text.startsWith('{') ? JSON.parse(text) : {}) as Json };
}

async function until<T>(ask: () => Promise<T>, done: (found: T) => boolean): Promise<T> {
  for (let i = 0; ; i++) {
    const found = await ask();
    if (done(found) || i > 200) return found;
    await new Promise((resolve) => systemClock.after(20, () => resolve(undefined)));
  }
}

const auditRows = async (): Promise<Json[]> => {
  const range = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z&page_size=100';
  return (await server.admin('GET', `/audit-logs?${range}`)).body.records as Json[];
};

describe('a token that the organisation has signed', () => {
  it('is taken where a workspace key is: raw or as bearer, for requests and for administration', async () => {
    const token = key.token(claims);
    for (const headers of [raw(token), bearer(token)]) {
      expect(await send('/chat/completions', headers, CHAT)).toMatchObject({ status: 200 });
      expect(await send('/configs', headers)).toMatchObject({ status: 200 });
      expect(await send('/models', headers)).toMatchObject({ status: 200 });
      expect(await send('/files', { ...headers, 'x-gateway-provider': '@sandbox' })).toMatchObject({ status: 200 });
      expect(await send('/utils/test-auth', headers)).toMatchObject({ status: 200 });
      for (const path of [SETTINGS, '/admin/users', '/audit-logs', '/secret-references'])
        expect(await send(path, headers)).toMatchObject({ status: 403 });
      expect(await send('/configs?workspace_id=other', headers)).toMatchObject({ status: 403 });
    }
  });

  it('reads who it is: the user that it speaks for, its workspace, its scopes and limits', async () => {
    const limits = [{ type: 'tokens', credit_limit: 5_000 }, { credit_limit: 7 }];
    const { status, body } = await send('/auth/self', raw(key.token({ ...claims, usage_limits: limits })));
    expect([status, body]).toMatchObject([
      200,
      {
        object: 'session',
        user: null,
        organisation: { id: server.first.organisation_id },
        workspaces: [{ id: server.first.workspace_id }],
        scopes: ['completions.write', 'configs.create', 'configs.delete', 'configs.list'],
        usage_limits: limits,
        expires_at: new Date(Number(claims.exp) * 1_000).toISOString(),
      },
    ]);
    expect(await send('/auth/self', raw(server.first.workspace_api_key))).toMatchObject({ status: 401 });
    const named = await send('/auth/self', bearer(key.token({ ...claims, uid: server.first.user_id })));
    expect((named.body.user as Json).id).toBe(server.first.user_id);
  });

  it('makes batches that run in its name', async () => {
    const headers = { ...raw(key.token(claims)), 'x-gateway-provider': 'gateway' };
    const form = new FormData();
    form.set('purpose', 'batch');
    const body = { messages: [{ role: 'user', content: 'Hi' }] };
    const line = JSON.stringify({ custom_id: 'one', method: 'POST', url: '/v1/chat/completions', body });
    form.set('file', new Blob([line]), 'lines.jsonl');
    const file = await send('/files', headers, form);
    const make = () =>
      send('/batches', headers, {
        input_file_id: file.body.id,
        endpoint: '/v1/chat/completions',
        completion_window: 'immediate',
        model: 'echo',
        gateway_options: { 'x-gateway-virtual-key': 'sandbox' },
      });
    const ended = async (made: { text: string; body: Json }) =>
      until(
        () => send(`/batches/${String(made.body.id)}`, headers),
        (batch) => ['completed', 'failed'].includes(String(batch.body.status)),
      );
    const batch = await ended(await make());
    expect(batch.body, batch.text).toMatchObject({ status: 'completed', request_counts: { completed: 1, failed: 0 } });
  });

  it('is the end user of its requests, and reaches no provider', async () => {
    const slug = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
    const token = key.token({ ...claims, sub: 'service-b' });
    await send('/chat/completions', { ...raw(token), ...bearer(token) }, { ...CHAT, model: `@${slug}/gpt-4o` });
    expect(JSON.stringify(upstream.received)).not.toContain(token.split('.')[2]);
    const found = await until(
      () => server.records(20),
      (records) => records.some(({ metadata }) => (metadata as Json | null)?._user === 'service-b'),
    );
    expect(found.find(({ metadata }) => (metadata as Json | null)?._user === 'service-b')).toMatchObject({
      api_key_id: null,
    });
  });

  it('is counted as its subject by the limit of the administration and in idempotency, and written down', async () => {
    const made = async (sub: string) => {
      const headers = { ...raw(key.token({ ...claims, sub })), 'idempotency-key': 'the-same' };
      return send('/configs', headers, { name: `Of ${sub}`, config: { retry: { attempts: 1 } } });
    };
    const [one, again, two] = [await made('a'), await made('a'), await made('b')];
    expect([one.status, again.body.id, two.status], one.text).toEqual([200, one.body.id, 200]);
    expect(two.body.id).not.toBe(one.body.id);
    const row = (await auditRows()).find(({ resource_id }) => resource_id === one.body.id);
    expect(row).toMatchObject({ user_type: 'api_key' });
    expect(row?.user_id).toMatch(/^[0-9a-f-]{36}$/);
  });

  it('is refused at each entry alike, and the organisation reads why in its audit log', async () => {
    const forged = other.token({ ...claims, sub: 'attacker', secret: 'canary-4711' }, { kid: 'first' });
    for (const headers of [raw(forged), bearer(forged)]) {
      for (const answer of [
        await send('/chat/completions', headers, CHAT),
        await send('/configs', headers),
        await send('/models', headers),
        await send('/files', { ...headers, 'x-gateway-provider': '@sandbox' }),
        await send('/operator/organisations', headers),
      ]) {
        expect(answer).toMatchObject({ status: 401, text: expect.stringContaining('no key of the organisation') });
      }
    }
    const rows = await until(auditRows, (all) => all.some(({ resource_type }) => resource_type === 'auth.jwt_refused'));
    const refused = rows.filter(({ resource_type }) => resource_type === 'auth.jwt_refused');
    expect(refused).toHaveLength(1);
    expect(refused[0]).toMatchObject({ response_status_code: 401, client_ip: '127.0.0.1', user_id: null });
    const range = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z';
    expect((await server.admin('GET', `/audit-logs?${range}&resource_type=auth.jwt_refused`)).body.total).toBe(1);
    expect(JSON.parse(String(refused[0]?.after))).toMatchObject({ reason: 'signature', kid: 'first' });
    expect(JSON.stringify(rows)).not.toMatch(/canary-4711|attacker/);
  });
});

describe('the keys of an organisation', () => {
  it('are shown as they were given, and never with a private part', async () => {
    const { body } = await server.admin('GET', SETTINGS);
    expect((body.auth_settings as Json).jwt).toEqual({
      jwks_url: null,
      jwks: { keys: [key.jwk] },
      issuer: null,
      audience: null,
      default_scopes: null,
      default_workspace: null,
    });
    const secret = key.privateKey.export({ format: 'jwk' });
    expect(await save({ jwks: { keys: [{ ...secret, kid: 'x' }] } })).toMatchObject({ status: 400 });
    const rows = JSON.stringify(await auditRows());
    for (const member of ['d', 'p', 'q', 'dp', 'dq', 'qi'] as const) expect(rows).not.toContain(secret[member]);
  });

  const named = { issuer: 'https://issuer.example', audience: 'sluice' };
  it.each<[string, () => unknown, string]>([
    ['both forms', () => ({ ...inline, jwks_url: 'https://issuer.example/jwks' }), 'auth_settings.jwt'],
    ['an empty set', () => ({ jwks: { keys: [] } }), 'auth_settings.jwt.jwks.keys'],
    ['a key twice', () => ({ jwks: { keys: [key.jwk, key.jwk] } }), 'auth_settings.jwt.jwks.keys[1]'],
    ['a key without kid', () => ({ jwks: { keys: [{ ...key.jwk, kid: '' }] } }), 'auth_settings.jwt.jwks.keys[0]'],
    ['a key of 1024 bits', () => ({ jwks: { keys: [issuer('s', 1_024).jwk] } }), 'auth_settings.jwt.jwks.keys[0]'],
    [
      'a symmetric key',
      () => ({ jwks: { keys: [{ kty: 'oct', k: 'AAAA', kid: 'x' }] } }),
      'auth_settings.jwt.jwks.keys[0]',
    ],
    ['a key of a curve', () => ({ jwks: { keys: [{ kty: 'EC', kid: 'x' }] } }), 'auth_settings.jwt.jwks.keys[0]'],
    ['a key for RS512', () => ({ jwks: { keys: [{ ...key.jwk, alg: 'RS512' }] } }), 'auth_settings.jwt.jwks.keys[0]'],
    ['21 keys', () => ({ jwks: { keys: Array.from({ length: 21 }, () => key.jwk) } }), 'auth_settings.jwt.jwks.keys'],
    ['an address by http', () => ({ jwks_url: 'http://issuer.example/jwks' }), 'auth_settings.jwt.jwks_url'],
    ['a private address', () => ({ jwks_url: 'https://169.254.169.254/' }), 'auth_settings.jwt.jwks_url'],
    ['no keys', () => ({ jwks: null }), 'auth_settings.jwt'],
    ['default scopes alone', () => ({ ...inline, default_scopes: ['logs.view'] }), 'auth_settings.jwt.default_scopes'],
    [
      'a default workspace alone',
      () => ({ ...inline, default_workspace: server.first.workspace_id }),
      'auth_settings.jwt.default_workspace',
    ],
    ['an unknown workspace', () => ({ ...named, default_workspace: 'nowhere' }), 'auth_settings.jwt.default_workspace'],
    [
      'a scope of organisations',
      () => ({ ...named, default_scopes: ['audit_logs.list'] }),
      'auth_settings.jwt.default_scopes[0]',
    ],
  ])('are refused where they cannot be used: %s', async (_what, jwt, param) => {
    const { status, body } = await save(jwt());
    expect({ status, param: (body.error as Json | undefined)?.param }, JSON.stringify(body)).toEqual({
      status: 400,
      param,
    });
  });

  it('are set only with every scope that they sign for', async () => {
    const scopes = ['organisation_settings.update', 'organisation_settings.read'];
    const made = await server.admin('POST', '/api-keys/organisation/service', { name: 'Settings', scopes });
    const settings = String(made.body.key);
    const put = (jwt: unknown) => server.admin('PUT', SETTINGS, { auth_settings: { jwt } }, settings);
    expect(await put({ jwks: { keys: [other.jwk] } })).toMatchObject({ status: 403 });
    expect(await put(null)).toMatchObject({ status: 200 });
    expect(await send('/models', raw(key.token(claims)))).toMatchObject({ status: 403 });
    expect(await save(inline)).toMatchObject({ status: 200 });
    expect(await send('/models', raw(key.token(claims)))).toMatchObject({ status: 200 });
  });

  it('are read from their address, which replaces the set, and are withdrawn with the next save', async () => {
    expect(await save({ jwks_url: `${upstream.url}/jwks` })).toMatchObject({ status: 200 });
    const before = upstream.received.length;
    for (const jti of ['1', '2'])
      expect(await send('/models', raw(key.token({ ...claims, jti })))).toMatchObject({ status: 200 });
    expect(upstream.received.length - before).toBe(1);
    expect(await save({ jwks: { keys: [other.jwk] } })).toMatchObject({ status: 200 });
    expect(await send('/models', raw(key.token({ ...claims, jti: '1' })))).toMatchObject({ status: 401 });
    expect(await send('/models', raw(other.token(claims)))).toMatchObject({ status: 200 });
  });
});
