/** Deployments, on both engines, with gateways that answer pings and gateways that lie. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgresDatabase } from '../../../test/support/postgres.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';

type Answer = Record<string, unknown>;

interface Gateway {
  readonly url: string;
  /** What `GET /v1/health` answers. */
  health: { status: number; body: string };
  /** What it does with a ping before it answers 200. */
  verify: (asked: { code: string; callback_url: string }) => Promise<unknown>;
  readonly asked: string[];
  readonly server: Server;
}

const WELL = { status: 200, body: '{"status":"success","version":"2.1.0"}' };

async function startGateway(): Promise<Gateway> {
  const gateway = { asked: [] as string[], health: WELL, verify: async () => {} } as unknown as Gateway & {
    url: string;
    server: Server;
  };
  gateway.server = createServer(async (request, response) => {
    gateway.asked.push(`${request.method} ${request.url}`);
    if (request.url === '/v1/health') {
      response.writeHead(gateway.health.status, { location: `${gateway.url}/elsewhere` }).end(gateway.health.body);
      return;
    }
    let body = '';
    for await (const part of request) body += String(part);
    await gateway.verify(JSON.parse(body) as { code: string; callback_url: string });
    response.end('{}');
  });
  await new Promise<void>((resolve) => gateway.server.listen(0, '127.0.0.1', resolve));
  gateway.url = `http://127.0.0.1:${(gateway.server.address() as AddressInfo).port}`;
  return gateway;
}

const callBack = (auth: string) => (asked: { code: string; callback_url: string }) =>
  fetch(asked.callback_url, {
    method: 'POST',
    headers: { authorization: auth, 'content-type': 'application/json' },
    body: JSON.stringify({ code: asked.code }),
  });

describe.each(['SQLite', 'PostgreSQL'])('on %s', (engine) => {
  let server: TestServer;
  let gateway: Gateway;
  const admin = async (method: string, path: string, body?: unknown, key?: string) => {
    const answer = await server.admin(method, path, body, key);
    return { status: answer.status, body: answer.body, error: answer.body.error as Answer | undefined };
  };
  const create = async (body: object) => {
    const answer = await admin('POST', '/deployments', body);
    expect(answer.status, JSON.stringify(answer.body)).toBe(200);
    return answer.body as { id: string; client_auth: string; credentials: Answer; object: string };
  };
  const read = async (id: string, query = '') => (await admin('GET', `/deployments/${id}${query}`)).body;
  const settingsOf = async (id: string) => (await read(id)).auth_settings as Answer;
  const listed = async (query: string) => {
    const { status, body } = await admin('GET', `/deployments${query}`);
    expect(status, JSON.stringify(body)).toBe(200);
    return (body.data as { slug: string }[]).map(({ slug }) => slug).sort();
  };
  const asSelf = (headers: Record<string, string>, path = '/v1/deployments/self') =>
    fetch(`${server.url}${path}`, { headers });

  beforeAll(async () => {
    gateway = await startGateway();
    server = await startServer({
      SLUICE_TRUSTED_HOSTS: '127.0.0.1',
      ...(engine === 'PostgreSQL' ? { SLUICE_DATABASE_URL: await postgresDatabase() } : {}),
    });
    for (const name of ['alpha', 'beta']) {
      expect((await admin('POST', '/admin/workspaces', { name, slug: name })).status).toBe(200);
    }
  });
  afterAll(async () => {
    await server?.stop();
    gateway?.server.closeAllConnections();
    gateway?.server.close();
  });

  it('the first one is the default, and its client_auth is shown once and masked from then on', async () => {
    const made = await create({ name: 'First one', tags: { team: 'a', zone: 'eu' }, type: 'non_production' });
    expect(made.client_auth).toMatch(/^slc_dep_/);
    expect(made).toMatchObject({ object: 'deployment', credentials: { password: made.client_auth } });
    const detail = await read(made.id);
    expect(detail).toMatchObject({
      name: 'First one',
      slug: expect.stringMatching(/^first-one-[0-9a-f]{6}$/),
      type: 'non_production',
      status: 'active',
      is_default: 1,
      connection_status: 'unknown',
      source_type: 'api',
      tags: { team: 'a', zone: 'eu' },
      client_auth: expect.stringMatching(/^\w{2}\*{7}\w{2}$/),
      auth_settings: { allow_all_workspaces: 1, workspaces_allowed: [], disable_gateway: 0 },
      object: 'deployment',
    });
    expect(detail).not.toHaveProperty('credentials');
    const shown = await read(made.id, '?include_credentials=true');
    expect(shown.credentials).toEqual({ username: detail.slug, password: detail.client_auth });
    expect(JSON.stringify([shown, await admin('GET', '/deployments')])).not.toContain(made.client_auth.slice(21, 64));
    const window = '?start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z';
    const log = JSON.stringify((await admin('GET', `/audit-logs${window}`)).body);
    expect(log).toContain('"resource_type":"deployments"');
    expect(log).not.toContain(made.client_auth.slice(21, 64));
  });

  it('reads itself with its client_auth, bare, as Bearer or as the password of Basic, and nothing else', async () => {
    const other = await create({ name: 'other' });
    const made = await create({ name: 'self reader', slug: 'reader' });
    const basic = `Basic ${Buffer.from(`reader:${made.client_auth}`).toString('base64')}`;
    for (const authorization of [made.client_auth, `Bearer ${made.client_auth}`, basic]) {
      const answer = await asSelf({ authorization });
      expect(answer.status).toBe(200);
      expect(await answer.json()).toMatchObject({ id: made.id, slug: 'reader' });
    }
    const authorization = made.client_auth;
    expect((await asSelf({ authorization }, `/v1/deployments/${other.id}`)).status).toBe(404);
    expect((await asSelf({ authorization }, '/v1/deployments')).status).toBe(403);
    expect((await asSelf({ authorization }, '/v1/configs')).status).toBe(403);
    expect((await admin('GET', '/deployments/self')).error).toMatchObject({ param: 'id' });
    const inference = await server.call(
      '/chat/completions',
      { model: '@sandbox/echo', messages: [] },
      {
        'x-gateway-api-key': made.client_auth,
      },
    );
    expect(inference.status).toBe(403);
    expect((await admin('GET', '/deployments', undefined, server.first.workspace_api_key)).status).toBe(403);
  });

  it('a rotated client_auth ends at once, and so does that of a deleted deployment', async () => {
    const made = await create({ name: 'rotated' });
    const { body } = await admin('PUT', `/deployments/${made.id}`, { rotate_auth: true });
    const fresh = String(body.client_auth);
    expect(Object.keys(body)).toEqual(['client_auth']);
    expect((await asSelf({ authorization: made.client_auth })).status).toBe(401);
    expect((await asSelf({ authorization: fresh })).status).toBe(200);
    expect((await admin('DELETE', `/deployments/${made.id}`)).body).toEqual({});
    expect((await asSelf({ authorization: fresh })).status).toBe(401);
    expect((await admin('GET', `/deployments/${made.id}`)).status).toBe(404);
    expect(await listed('?status=archived')).toHaveLength(1);
  });

  it('an organisation has one default; the only active deployment stays it, and a default can be deleted', async () => {
    const made = await create({ name: 'new default', is_default: 1 });
    const { body } = await admin('GET', '/deployments');
    const all = body.data as { id: string; is_default: number }[];
    expect(all.filter(({ is_default }) => is_default === 1).map(({ id }) => id)).toEqual([made.id]);
    for (const { id } of all) expect((await admin('DELETE', `/deployments/${id}`)).status).toBe(200);
    const only = await create({ name: 'only', slug: 'only' });
    const refused = await admin('PUT', `/deployments/${only.id}`, { is_default: 0 });
    expect([refused.status, refused.error?.param]).toEqual([400, 'is_default']);
    await create({ name: 'second', slug: 'second', is_default: 0 });
    expect((await admin('PUT', `/deployments/${only.id}`, { is_default: 0 })).status).toBe(200);
    expect((await read(only.id)).is_default).toBe(0);
    expect((await admin('POST', '/deployments', { name: 'x', slug: 'only' })).status).toBe(409);
  });

  it('lists by type, part of a name, all tags and any of several workspaces', async () => {
    const at = (...workspaces_allowed: string[]) => ({ auth_settings: { workspaces_allowed } });
    await create({ name: 'Needle A', slug: 'l-a', tags: { team: 'x', zone: 'eu' }, ...at('alpha') });
    await create({ name: 'Needle B', slug: 'l-b', tags: { team: 'x' }, type: 'non_production', ...at('beta') });
    await create({ name: 'Needle C', slug: 'l-c', tags: { zone: 'eu' } });
    expect(await listed('?search=Needle')).toEqual(['l-a', 'l-b', 'l-c']);
    expect(await listed('?search=l-a')).toEqual(['l-a']);
    expect(await listed('?search=Needle&type=non_production')).toEqual(['l-b']);
    expect(await listed(`?tags=${encodeURIComponent('{"team":"x","zone":"eu"}')}`)).toEqual(['l-a']);
    expect(await listed('?tags[team]=x')).toEqual(['l-a', 'l-b']);
    expect(await listed('?search=Needle&workspace_slug=alpha')).toEqual(['l-a', 'l-c']);
    expect(await listed('?search=Needle&workspace_slug=alpha&workspace_slug=beta')).toEqual(['l-a', 'l-b', 'l-c']);
    expect(await listed('?workspace_slug=none')).toEqual([]);
    expect((await admin('GET', '/deployments?tags=no')).error).toMatchObject({ param: 'tags' });
    expect((await admin('GET', '/deployments?type=production&type=production')).status).toBe(400);
  });

  it('adds to its lists, replaces them with override_existing, and removes what is named', async () => {
    const { id } = await create({
      name: 'merged',
      auth_settings: {
        gateway_base_url: 'https://gateway.example/v1/',
        mcp_gateway_base_url: 'https://mcp.example/',
        workspaces_allowed: ['alpha'],
        jwt_subs_allowed: ['ada'],
        jwt_sub_workspace_mapping: { ada: 'alpha' },
      },
    });
    const put = (auth_settings: object, more: object = {}) =>
      admin('PUT', `/deployments/${id}`, { auth_settings, ...more });
    expect(await read(id)).toMatchObject({
      workspaces: [{ slug: 'alpha' }],
      auth_settings: {
        gateway_base_url: 'https://gateway.example',
        mcp_gateway_base_url: 'https://mcp.example',
        allow_all_workspaces: 0,
      },
    });
    expect((await put({ workspaces_allowed: ['beta'], jwt_sub_workspace_mapping: { bob: 'beta' } })).status).toBe(200);
    expect(await settingsOf(id)).toMatchObject({
      workspaces_allowed: ['alpha', 'beta'],
      jwt_sub_workspace_mapping: { ada: 'alpha', bob: 'beta' },
    });
    await put({ remove_workspaces_allowed: ['alpha'], remove_subs_allowed: ['ada'] });
    expect(await settingsOf(id)).toMatchObject({
      workspaces_allowed: ['beta'],
      jwt_subs_allowed: [],
      jwt_sub_workspace_mapping: { bob: 'beta' },
    });
    await put({ workspaces_allowed: ['alpha'] }, { override_existing: true, tags: { a: 'b' } });
    expect((await settingsOf(id)).workspaces_allowed).toEqual(['alpha']);
    await put({ allow_all_workspaces: 1 });
    expect(await read(id)).toMatchObject({ tags: { a: 'b' }, auth_settings: { allow_all_workspaces: 1 } });
    await admin('PUT', `/deployments/${id}`, { tags: null, deployment_config: { any: [1] } });
    expect(await read(id)).toMatchObject({ tags: null, deployment_config: { any: [1] } });
  });

  it('a refused body names every workspace that does not exist and every address that no call may go to', async () => {
    const { status, body } = await admin('POST', '/deployments', {
      name: 'bad',
      auth_settings: {
        gateway_base_url: 'http://169.254.169.254',
        workspaces_allowed: ['alpha', 'none'],
        jwt_sub_workspace_mapping: { ada: 'nowhere' },
      },
    });
    expect(status).toBe(400);
    expect((body.errors as { param: string }[]).map(({ param }) => param)).toEqual([
      'auth_settings.gateway_base_url',
      'auth_settings.workspaces_allowed[1]',
      'auth_settings.jwt_sub_workspace_mapping.ada',
    ]);
    for (const slug of ['self', '', 'x'.repeat(51), 'a b']) {
      expect((await admin('POST', '/deployments', { name: 'bad', slug })).error?.param).toBe('slug');
    }
    const large = { name: 'bad', deployment_config: { text: 'x'.repeat(70_000) } };
    expect((await admin('POST', '/deployments', large)).error?.param).toBe('deployment_config');
  });

  describe('a ping', () => {
    let made: { id: string; client_auth: string };
    const ping = async () => (await admin('GET', `/deployments/${made.id}/ping`)).body as unknown;
    const status = async () => (await read(made.id)).connection_status;
    beforeAll(async () => {
      made = await create({ name: 'pinged', auth_settings: { gateway_base_url: gateway.url } });
    });

    it('of a gateway that calls back is a success both ways, and is kept', async () => {
      gateway.verify = callBack(made.client_auth);
      const { last_updated_at } = await read(made.id);
      expect(await ping()).toEqual({
        outbound: { success: true, version: '2.1.0', error: null },
        inbound: { success: true, error: null },
        object: 'deployment-ping',
      });
      expect(gateway.asked).toEqual(['GET /v1/health', 'POST /v1/verify-ping']);
      expect(await read(made.id)).toMatchObject({
        connection_status: 'healthy',
        last_synced_at: expect.any(String),
        last_updated_at,
      });
    });

    it.each<[string, (asked: { code: string; callback_url: string }) => Promise<unknown>]>([
      ['says that it called back and did not', async () => {}],
      ['calls back with another code', (asked) => callBack(made.client_auth)({ ...asked, code: 'guessed' })],
      ['calls back with a credential that is not its own', (asked) => callBack(server.first.admin_api_key)(asked)],
    ])('of a gateway that %s fails inbound', async (_title, verify) => {
      gateway.verify = verify;
      expect(await ping()).toMatchObject({
        outbound: { success: true },
        inbound: { success: false, error: expect.stringContaining('did not call back') },
      });
      expect(await status()).toBe('unhealthy');
    });

    it.each([
      ['is degraded', { status: 200, body: '{"status":"degraded","version":"1"}' }],
      ['tells no version', { status: 200, body: '{"status":"success"}' }],
      ['answers no JSON', { status: 200, body: '<html>' }],
      ['answers too much', { status: 200, body: `{"status":"success","version":"1","x":"${'x'.repeat(20_000)}"}` }],
      ['sends the caller elsewhere', { status: 302, body: WELL.body }],
    ])('of a gateway that %s fails outbound and asks for no call-back', async (_title, health) => {
      gateway.health = health;
      gateway.asked.length = 0;
      expect(await ping()).toMatchObject({
        outbound: { success: false, version: null, error: expect.any(String) },
        inbound: { success: false, error: expect.stringContaining('did not ask') },
      });
      expect(gateway.asked).toEqual(['GET /v1/health']);
      gateway.health = WELL;
    });

    it('of a gateway that is away says so, and without a gateway_base_url it is 400', async () => {
      await admin('PUT', `/deployments/${made.id}`, { auth_settings: { gateway_base_url: 'http://127.0.0.1:9' } });
      expect(await status()).toBe('unknown');
      expect(await ping()).toMatchObject({ outbound: { error: expect.stringContaining('could not be reached') } });
      await admin('PUT', `/deployments/${made.id}`, { auth_settings: { gateway_base_url: null } });
      const refused = await admin('GET', `/deployments/${made.id}/ping`);
      expect([refused.status, refused.error?.param]).toEqual([400, 'auth_settings.gateway_base_url']);
    });

    it('is answered by the deployment only', async () => {
      const answer = await admin('POST', `/deployments/${made.id}/verify-ping`, { code: 'x' });
      expect(answer.status).toBe(403);
    });
  });
});
