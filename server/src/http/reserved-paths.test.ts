/** Paths of the administration that are no route, an integration that is deleted while in use, and credential tests. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Answer } from '../../test/support/admin.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { sendJson, startUpstream } from '../../test/support/upstream.ts';
import { RESERVED_AREAS } from '../admin/route.ts';
import { ACTIONS } from '../resources/catalog.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());

/** Calls with the organisation's key. */
const admin = (...call: Parameters<TestServer['admin']>) =>
  server.admin(...call) as Promise<Pick<Answer, 'status' | 'body'>>;
const get = async (path: string, key: string, method = 'GET') => {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: { 'x-gateway-api-key': key, 'content-type': 'application/json' },
    ...(method === 'GET' ? {} : { body: '{}' }),
  });
  return { status: answer.status, body: JSON.parse(await answer.text()) };
};
const keys = () => [server.first.workspace_api_key, server.first.admin_api_key, 'slc_wks_nothing'];

describe('a path of the administration that is no route', () => {
  const areas = new Set([...RESERVED_AREAS, ...ACTIONS.map(({ path }) => path.split('/')[1] ?? '')]);

  it.each([...areas])('/v1/%s/… is 404 with any kind of key, and goes to no provider', async (area) => {
    for (const key of keys()) {
      for (const method of ['GET', 'POST']) {
        const { status, body } = await get(`/v1/${area}/no-such/path/at/all`, key, method);
        expect([status, body.error.code], `${method} ${area}`).toEqual([404, 'AB08']);
      }
    }
  });

  it.each(['/v1/analytics', '/v1/usage', '/v1/spend', '/v1/analytics/graphs/other'])('%s', async (path) => {
    for (const key of keys()) {
      const { status, body } = await get(path, key);
      expect([status, body.error.code]).toEqual([404, 'AB08']);
    }
  });

  it.each(['anthropic', 'mistral-ai', 'groq'])(
    'graders and permissions of checkpoints, which %s does not have, are refused by name and sent nowhere',
    async (provider) => {
      const upstream = await startUpstream((_request, response) => sendJson(response, 200, {}));
      const here = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
      try {
        const slug = await here.provider({ id: provider, host: `${upstream.url}/v1` });
        for (const [method, path] of [
          ['POST', 'alpha/graders/run'],
          ['POST', 'alpha/graders/validate'],
          ['GET', 'checkpoints/c/permissions'],
          ['DELETE', 'checkpoints/c/permissions/p'],
        ] as const) {
          const answer = await fetch(`${here.url}/v1/fine_tuning/${path}`, {
            method,
            headers: {
              'x-gateway-api-key': here.first.workspace_api_key,
              'x-gateway-provider': `@${slug}`,
              'content-type': 'application/json',
            },
            ...(method === 'POST' ? { body: '{}' } : {}),
          });
          const text = await answer.text();
          expect([answer.status, text], path).toEqual([
            501,
            expect.stringContaining(`Provider ${provider} has no graders`),
          ]);
        }
        expect(upstream.received).toEqual([]);
      } finally {
        await here.stop();
        await upstream.stop();
      }
    },
  );

  it('a path that a provider could have is passed on', async () => {
    const { status, body } = await get('/v1/some_new_thing', server.first.workspace_api_key);
    expect([status, JSON.stringify(body)]).toEqual([400, expect.stringContaining('No provider is named')]);
  });
});

describe('GET /v1/utils/test-auth', () => {
  it('is 200 {} for every valid key, whatever its scopes, and 401 for any other', async () => {
    const bare = await admin('POST', '/api-keys/workspace/service', {
      name: 'bare',
      workspace_id: server.first.workspace_id,
      scopes: [],
    });
    for (const key of [server.first.workspace_api_key, server.first.admin_api_key, String(bare.body.key)]) {
      expect(await get('/v1/utils/test-auth', key)).toEqual({ status: 200, body: {} });
    }
    expect((await get('/v1/utils/test-auth', 'slc_wks_nothing')).status).toBe(401);
  });
});

describe('the members of an organisation', () => {
  it.each(['/v1/organisations', '/v2/organisations', '/v1/organisation', '/v2/organisation'])(
    '%s/{id}/members lists its users, and 404 for any other organisation',
    async (path) => {
      const users = await get('/v1/admin/users', server.first.admin_api_key);
      const own = await get(`${path}/${server.first.organisation_id}/members?page_size=10`, server.first.admin_api_key);
      expect(own).toEqual(users);
      expect(own.body.total).toBeGreaterThan(0);
      const other = await get(`${path}/00000000-0000-7000-8000-000000000000/members`, server.first.admin_api_key);
      expect([other.status, other.body.error.code]).toEqual([404, 'AB08']);
      const lacking = await get(`${path}/${server.first.organisation_id}/members`, server.first.workspace_api_key);
      expect(lacking.status).toBe(403);
    },
  );
});

describe('deleting an integration that providers use', () => {
  const make = (slug: string) =>
    admin('POST', '/integrations', {
      name: slug,
      slug,
      ai_provider_id: 'sandbox',
      workspace_id: server.first.workspace_id,
    });
  const ask = (provider: string) =>
    server.call('/chat/completions', { model: `@${provider}/echo`, messages: [{ role: 'user', content: 'Hi' }] });

  it('is 409 and names them; forced, their requests and their status say what happened', async () => {
    expect((await make('shop')).body).toMatchObject({ slug: 'shop', provider_slug: 'shop' });
    expect((await ask('shop')).status).toBe(200);
    const refusal = await admin('DELETE', '/integrations/shop');
    expect([refusal.status, refusal.body.error.code]).toEqual([409, 'AB07']);
    expect(refusal.body.error.message).toContain(`@shop in ${server.first.workspace_slug}`);
    expect((await ask('shop')).status).toBe(200);

    expect((await admin('DELETE', '/integrations/shop?force=true')).status).toBe(200);
    const listed = await admin('GET', `/providers?workspace_id=${server.first.workspace_id}`);
    const statuses = new Map(listed.body.data.map((one: { slug: string; status: string }) => [one.slug, one.status]));
    expect([statuses.get('shop'), statuses.get('sandbox')]).toEqual(['integration_archived', 'active']);
    const failed = await ask('shop');
    expect(failed.status).toBe(400);
    expect(await failed.text()).toContain('its integration shop was deleted. Add the integration again');

    // The slug of the provider is still taken: the answer says which one is made.
    const again = await make('shop');
    expect(again.body.provider_slug).toMatch(/^shop-[0-9a-f]{6}$/);
    expect((await ask(again.body.provider_slug)).status).toBe(200);
  });

  it('goes through once the providers are gone, and an integration without any needs no force', async () => {
    const { body } = await make('till');
    expect((await admin('DELETE', `/providers/${body.provider_slug}`)).status).toBe(200);
    expect((await admin('DELETE', '/integrations/till')).status).toBe(200);
    const shared = await admin('POST', '/integrations', {
      name: 'Shared',
      slug: 'shared',
      ai_provider_id: 'sandbox',
    });
    expect(shared.body.provider_slug).toBeNull();
    expect((await admin('DELETE', '/integrations/shared')).status).toBe(200);
  });
});
