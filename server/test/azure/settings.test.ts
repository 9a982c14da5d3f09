import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import type { StrictUpstream } from '../support/strict-upstream.ts';
import { AZURE_KEY, AZURE_VERSION, startAzureInference } from '../support/upstreams/azure-inference.ts';

let upstream: StrictUpstream;
let server: TestServer;

const deployment = (azure_deployment_name: string, more: Record<string, unknown> = {}) => ({
  azure_api_version: 'v1',
  azure_deployment_name,
  azure_model_slug: 'gpt-4o',
  ...more,
});

beforeAll(async () => {
  upstream = await startAzureInference('v1');
  server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.0/8' });
  const configurations = {
    azure_auth_mode: 'default',
    azure_resource_name: 'r',
    azure_deployment_config: [
      deployment('chat-prod', { alias: 'best' }),
      deployment('chat-small', { is_default: true }),
    ],
  };
  const host = `${upstream.url}/openai/v1`;
  await server.provider({ id: 'azure-openai', slug: 'open', host, key: AZURE_KEY, configurations });
  await server.provider({ id: 'azure-openai', slug: 'chosen', host, key: AZURE_KEY, configurations });
  const chosen = await server.admin('PUT', '/integrations/chosen-integration/models', {
    allow_all_models: false,
    models: [{ slug: 'best', enabled: true, is_custom: true }],
  });
  expect(chosen).toMatchObject({ status: 200 });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});
beforeEach(() => {
  upstream.received.length = 0;
});
afterEach(() => expect(upstream.faults.splice(0)).toEqual([]));

const ask = (model: string | undefined, headers: Record<string, string>, config?: Record<string, unknown>) =>
  server.call(
    '/chat/completions',
    { ...(model === undefined ? {} : { model }), messages: [{ role: 'user', content: 'Hi' }] },
    { ...headers, ...(config === undefined ? {} : { 'x-gateway-config': JSON.stringify(config) }) },
  );
const OPEN = { 'x-gateway-provider': '@open' };
const CHOSEN = { 'x-gateway-provider': '@chosen' };

describe('which deployment answers', () => {
  it.each([
    ['by its alias', 'best', OPEN, undefined, 'chat-prod'],
    ['the default one for what matches none', 'something-else', OPEN, undefined, 'chat-small'],
    ['the default one where no model is named', undefined, OPEN, undefined, 'chat-small'],
    [
      'the one a header names',
      'best',
      { ...OPEN, 'x-gateway-azure-deployment-id': 'chat-small' },
      undefined,
      'chat-small',
    ],
    ['the one a config names', 'best', {}, { provider: '@open', deployment_id: 'chat-small' }, 'chat-small'],
    [
      'the one a config lists',
      'mine',
      {},
      { provider: '@open', deployments: [{ deployment_id: 'chat-prod', alias: 'mine', api_version: 'v1' }] },
      'chat-prod',
    ],
    ['of an override', 'x', {}, { provider: '@open', override_params: { model: 'best' } }, 'chat-prod'],
  ] as const)('%s', async (_how, model, headers, config, name) => {
    expect((await ask(model, { ...headers }, config)).status).toBe(200);
    expect(upstream.last.model).toBe(name);
  });

  it('is that of a virtual key, with its own names', async () => {
    const made = await server.admin('POST', '/virtual-keys', {
      name: 'azure',
      provider: 'azure-openai',
      key: AZURE_KEY,
      workspace_id: server.first.workspace_id,
      resourceName: 'r',
      deploymentConfig: [{ apiVersion: 'v1', deploymentName: 'chat-prod', alias: 'mine', is_default: true }],
      custom_host: `${upstream.url}/openai/v1`,
    });
    expect(made.status).toBe(200);
    expect((await ask('mine', { 'x-gateway-virtual-key': String(made.body.slug) })).status).toBe(200);
    expect(upstream.last.model).toBe('chat-prod');
  });

  it('is the caller’s own by headers, on the surface that the version names', async () => {
    const dry = await ask('m', {
      'x-gateway-provider': 'azure-openai',
      authorization: 'Bearer my-azure-key',
      'x-gateway-azure-resource-name': 'My-Res',
      'x-gateway-azure-deployment-id': 'dep',
      'x-gateway-azure-api-version': AZURE_VERSION,
      'x-gateway-dry-run': 'true',
    });
    expect(await dry.json()).toMatchObject({
      request: {
        url: `https://my-res.openai.azure.com/openai/deployments/dep/chat/completions?api-version=${AZURE_VERSION}`,
        headers: { 'api-key': '***' },
      },
    });
  });

  it.each([
    ['a header', { ...CHOSEN, 'x-gateway-azure-deployment-id': 'chat-small' }, undefined],
    ['a config', {}, { provider: '@chosen', deployment_id: 'chat-small' }],
    [
      'a list of a config',
      {},
      { provider: '@chosen', deployments: [{ deployment_id: 'chat-small', alias: 'best', api_version: 'v1' }] },
    ],
  ])('is none that is not enabled, whoever names it: %s', async (_who, headers, config) => {
    const answer = await ask('best', headers, config);
    expect(answer.status).toBe(400);
    expect(await answer.text()).toContain('chat-small');
    expect(upstream.received).toEqual([]);
    expect((await ask('best', CHOSEN)).status).toBe(200);
  });

  it('never moves a stored account to another resource', async () => {
    expect((await ask('best', { ...OPEN, 'x-gateway-azure-resource-name': 'evil' })).status).toBe(200);
    expect((await ask('best', {}, { provider: '@open', resource_name: 'evil' })).status).toBe(200);
    expect(upstream.received).toHaveLength(2);
  });
});

describe('where only saved objects are allowed', () => {
  let closed: TestServer;
  beforeAll(async () => {
    closed = await startServer({ BLOCK_INLINE_CONFIG: 'true' });
  });
  afterAll(() => closed?.stop());

  it.each(['azure-resource-name', 'azure-endpoint-name', 'azure-foundry-url'])(
    'the header %s is refused',
    async (name) => {
      const answer = await closed.call(
        '/chat/completions',
        { model: 'm', messages: [] },
        { 'x-gateway-provider': '@sandbox', [`x-gateway-${name}`]: 'other' },
      );
      expect(answer.status).toBe(400);
      expect(await answer.json()).toMatchObject({ error: { code: 'inline_provider_url_blocked' } });
    },
  );
});
