/** A provider with settings that no other has: a row in the catalogue is all that the server needs for them. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { eachField } from '../../src/providers/account.ts';
import { ALL_FIELDS } from '../../src/providers/accounts.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

vi.mock('../../src/providers/catalog.ts', async (original) => {
  const catalog = await original<typeof import('../../src/providers/catalog.ts')>();
  const { compatible } = await import('../../src/providers/openai-compatible.ts');
  const { textSetting } = await import('../../src/providers/settings.ts');
  const nimbus = compatible({
    id: 'nimbus',
    title: 'Nimbus',
    baseUrl: null,
    settings: {
      nimbus_tenant: { required: true, virtualKey: 'nimbusTenant', config: {}, request: { pinned: true } },
      nimbus_tier: { virtualKey: 'nimbusTier', config: { name: 'tier_of_nimbus' }, request: {} },
      nimbus_pass: { secret: true, virtualKey: 'nimbusPass', config: {}, request: { own: true } },
      nimbus_url: { host: true, request: { redirects: true } },
    },
    headers(headers, { credentials }) {
      for (const name of ['nimbus_tenant', 'nimbus_tier', 'nimbus_pass', 'nimbus_url']) {
        const value = textSetting(credentials, name);
        if (value !== undefined) headers.push(name.replace('_', '-'), value);
      }
    },
  });
  const PROVIDERS = new Map([...catalog.PROVIDERS, [nimbus.id, nimbus]]);
  return { ...catalog, PROVIDERS, providerById: (id: string) => PROVIDERS.get(id) ?? catalog.providerById(id) };
});

let upstream: FakeUpstream;
let server: TestServer;
let got: Record<string, unknown> = {};

beforeAll(async () => {
  upstream = await startUpstream(({ headers }, response) => {
    got = Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('nimbus-')));
    sendJson(response, 200, { choices: [] });
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

async function sent(model: string, headers: Record<string, string> = {}): Promise<Record<string, unknown>> {
  got = {};
  const answer = await server.call(
    '/chat/completions',
    { model, messages: [{ role: 'user', content: 'Hi' }] },
    headers,
  );
  expect([answer.status, answer.status === 200 ? '' : await answer.text()]).toEqual([200, '']);
  return got;
}

describe('the settings of a new provider', () => {
  const held = { nimbus_tenant: 'mine', nimbus_pass: 'pass-1234567' };

  it('are fields of its integrations, checked, sealed and sent', async () => {
    const slug = await server.provider({ id: 'nimbus', host: upstream.url, configurations: held });
    expect(await sent(`@${slug}/m`)).toEqual({ 'nimbus-tenant': 'mine', 'nimbus-pass': 'pass-1234567' });
    const { body } = await server.admin('GET', `/integrations/${slug}-integration`);
    expect(body.configurations).toMatchObject({ nimbus_tenant: 'mine', masked_nimbus_pass: expect.any(String) });
    expect(JSON.stringify(body)).not.toContain('pass-1234567');
    for (const [configurations, told] of [
      [{ custom_host: upstream.url }, 'configurations.nimbus_tenant is required'],
      [{ ...held, nimbus_color: 'red' }, 'configurations.nimbus_color is not a setting of the provider'],
      [{ ...held, nimbus_pass: '*******0a1b2c3d' }, 'configurations.nimbus_pass is a masked value'],
    ] as const) {
      const answer = await server.admin('POST', '/integrations', {
        name: 'n',
        slug: 'refused',
        ai_provider_id: 'nimbus',
        key: 'k',
        configurations,
      });
      expect(answer.status).toBe(400);
      expect(JSON.stringify(answer.body)).toContain(told);
    }
  });

  it('are fields of its virtual keys, in their spelling', async () => {
    const fields = {
      name: 'Nimbus',
      slug: 'nimbus-key',
      provider: 'nimbus',
      key: 'sk-key',
      workspace_id: server.first.workspace_id,
      custom_host: upstream.url,
    };
    const refused = await server.admin('POST', '/virtual-keys', { ...fields, nimbusTier: 'gold' });
    expect(JSON.stringify(refused.body)).toContain('nimbusTenant is required');
    const given = { nimbusTenant: 'mine', nimbusTier: 'gold', nimbusPass: 'pass-1234567' };
    expect(await server.admin('POST', '/virtual-keys', { ...fields, ...given })).toMatchObject({ status: 200 });
    const { body } = await server.admin('GET', `/virtual-keys/nimbus-key?workspace_id=${server.first.workspace_id}`);
    expect(body.model_config).toMatchObject({ nimbusTenant: 'mine', nimbusTier: 'gold' });
    expect(await sent('@nimbus-key/m')).toEqual({
      'nimbus-tenant': 'mine',
      'nimbus-tier': 'gold',
      'nimbus-pass': 'pass-1234567',
    });
  });

  it('are request headers: of the own token all, beside a stored account what leaves it as it is', async () => {
    const own = {
      'x-gateway-provider': 'nimbus',
      'x-gateway-custom-host': upstream.url,
      authorization: 'Bearer sk-own',
    };
    const headers = {
      'x-gateway-nimbus-tenant': 'theirs',
      'x-gateway-nimbus-tier': 'gold',
      'x-gateway-nimbus-pass': 'p',
      'x-gateway-nimbus-url': upstream.url,
    };
    expect(await sent('m', { ...own, ...headers })).toEqual({
      'nimbus-tenant': 'theirs',
      'nimbus-tier': 'gold',
      'nimbus-pass': 'p',
      'nimbus-url': upstream.url,
    });
    const slug = await server.provider({ id: 'nimbus', host: upstream.url, slug: 'beside', configurations: held });
    expect(await sent(`@${slug}/m`, { ...headers, 'x-gateway-nimbus-tenant': 'mine' })).toEqual({
      'nimbus-tenant': 'mine',
      'nimbus-tier': 'gold',
      'nimbus-pass': 'pass-1234567',
    });
    const moved = await server.call('/chat/completions', { model: `@${slug}/m`, messages: [] }, headers);
    expect([moved.status, await moved.text()]).toEqual([400, expect.stringContaining('nimbus_tenant')]);
  });

  it('are keys of configs, sealed where they are secrets, in both spellings', async () => {
    const target = { provider: 'nimbus', api_key: 'sk-own', custom_host: upstream.url };
    const inline = { ...target, nimbus_tenant: 'theirs', tierOfNimbus: 'gold', nimbus_pass: 'pass-7654321' };
    const expected = { 'nimbus-tenant': 'theirs', 'nimbus-tier': 'gold', 'nimbus-pass': 'pass-7654321' };
    expect(await sent('m', { 'x-gateway-config': JSON.stringify(inline) })).toEqual(expected);
    const workspace_id = server.first.workspace_id;
    const made = await server.admin('POST', '/configs', { name: 'Nimbus', config: inline, workspace_id });
    expect(made).toMatchObject({ status: 200 });
    const slug = String(made.body.slug);
    const { body } = await server.admin('GET', `/configs/${slug}?workspace_id=${workspace_id}`);
    expect(JSON.stringify(body)).toContain('masked_nimbus_pass');
    expect(JSON.stringify(body)).not.toContain('pass-7654321');
    expect(await sent('m', { 'x-gateway-config': slug })).toEqual(expected);
  });
});

describe('a setting that several providers have', () => {
  it('is the same for all who look at it by its name alone', () => {
    const byName = new Map<string, string>();
    for (const [name, field] of ALL_FIELDS) {
      const { name: shown } = typeof field.virtualKey === 'object' ? field.virtualKey : { name: field.virtualKey };
      const traits = JSON.stringify([shown, field.request, field.secret ?? false, field.stored ?? true]);
      expect([name, byName.get(name) ?? traits]).toEqual([name, traits]);
      byName.set(name, traits);
    }
    expect(byName.size).toBeGreaterThan(40);
    expect(eachField({}).length).toBe(0);
  });
});
