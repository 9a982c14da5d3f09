/** The clouds of governments and of China, and endpoints that are given by name and region. */

import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { azureAi } from '../../src/providers/azure-ai/azure-ai.ts';
import { azureOpenAi } from '../../src/providers/azure-openai/azure-openai.ts';
import type { CallContext, Provider } from '../../src/providers/provider.ts';
import type { AccessContext, AdapterRequest } from '../../src/providers/training.ts';
import { adapterContext } from '../support/adapter-context.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type StrictUpstream, startStrictUpstream } from '../support/strict-upstream.ts';
import { sendJson } from '../support/upstream.ts';
import { refusal } from '../training/support.ts';

const VARIABLES: Record<string, string> = {
  AZURE_FEDERATED_TOKEN_FILE: '/token',
  IDENTITY_ENDPOINT: 'https://identity.example/msi/token',
  IDENTITY_HEADER: 'platform-secret',
};

/** What a provider asks Entra, or the platform, for a token. */
async function asked(provider: Provider, settings: Record<string, unknown>) {
  const calls: AdapterRequest[] = [];
  const credentials = { key: null, settings };
  const base = provider.baseUrl(credentials) ?? '';
  const made = adapterContext({ base, key: null, settings, trustedHost: false });
  const access: AccessContext = {
    ...made,
    ambient: { variable: (name) => VARIABLES[name], file: () => Promise.resolve('assertion') },
    call(request) {
      calls.push(request);
      const text = JSON.stringify({ access_token: 'token', expires_in: 3600 });
      return Promise.resolve({ status: 200, headers: {}, text: () => Promise.resolve(text) } as never);
    },
  };
  const context = { credentials, model: 'm', header: () => undefined } as unknown as CallContext;
  const wire = {
    method: 'POST',
    origin: base,
    path: '/',
    headers: [],
    body: null,
    organisationId: 'o',
    storedCredential: true,
  };
  await provider.sign?.(context)?.(wire, access);
  await made.close();
  const [call] = calls;
  const url = new URL(call?.url.href ?? '');
  const form = new URLSearchParams(String(call?.body ?? ''));
  return { origin: url.origin, path: url.pathname, form, query: url.searchParams };
}

const ENTRA = {
  azure_auth_mode: 'entra',
  azure_entra_tenant_id: 'tenant',
  azure_entra_client_id: 'client',
  azure_entra_client_secret: 'secret',
};
const RESOURCE = { azure_resource_name: 'Mine' };

describe.each([
  ['public', 'azure.com', 'https://login.microsoftonline.com'],
  ['government', 'azure.us', 'https://login.microsoftonline.us'],
  ['china', 'azure.cn', 'https://login.partner.microsoftonline.cn'],
])('azure_cloud %s', (azure_cloud, suffix, authority) => {
  it('names the resource and signs in where that cloud is', async () => {
    const account = { ...RESOURCE, azure_cloud };
    expect(azureOpenAi.baseUrl({ key: null, settings: account })).toBe(`https://mine.openai.${suffix}/openai/v1`);
    const { origin, path, form } = await asked(azureOpenAi, { ...account, ...ENTRA });
    expect(origin + path).toBe(`${authority}/tenant/oauth2/v2.0/token`);
    expect(form.get('scope')).toBe(`https://cognitiveservices.${suffix}/.default`);
  });

  it('lends the identity of the server to it', async () => {
    const account = { ...RESOURCE, azure_cloud };
    const managed = await asked(azureOpenAi, { ...account, azure_auth_mode: 'managed' });
    expect(managed.query.get('resource')).toBe(`https://cognitiveservices.${suffix}`);
    const workload = { azure_auth_mode: 'workload', azure_workload_tenant_id: 't', azure_workload_client_id: 'c' };
    const { origin, form } = await asked(azureOpenAi, { ...account, ...workload });
    expect(origin).toBe(authority);
    expect(form.get('client_assertion')).toBe('assertion');
  });

  it('is told by the address of Foundry alone', async () => {
    const settings = { ...ENTRA, azure_foundry_url: `https://mine.services.ai.${suffix}/openai/v1` };
    const { origin, form } = await asked(azureAi, settings);
    expect([origin, form.get('scope')]).toEqual([authority, `https://ai.${suffix}/.default`]);
  });

  it('has the endpoints of models', async () => {
    const named = { azure_cloud, azure_endpoint_name: 'Llama-prod', azure_region: 'eastus2' };
    const base = (settings: Record<string, unknown>) => azureAi.baseUrl({ key: null, settings });
    expect(base(named)).toBe(`https://llama-prod.eastus2.models.ai.${suffix}`);
    const managed = { ...named, azure_deployment_type: 'managed' };
    expect(base(managed)).toBe(`https://llama-prod.eastus2.inference.ml.${suffix}/v1`);
    const { form } = await asked(azureAi, { ...managed, ...ENTRA });
    expect(form.get('scope')).toBe(`https://ml.${suffix}/.default`);
  });
});

describe('endpoints by name', () => {
  it.each([
    [{ azure_endpoint_name: 'evil.example/', azure_region: 'eastus2' }, 'azure_endpoint_name'],
    [{ azure_endpoint_name: 'e', azure_region: 'eastus2.evil.example' }, 'azure_region'],
    [{ azure_endpoint_name: 'e' }, 'azure_region'],
    [{ azure_endpoint_name: 'e', azure_region: 'eastus2', azure_deployment_type: 'other' }, 'azure_deployment_type'],
    [{ azure_endpoint_name: 'e', azure_region: 'eastus2', azure_cloud: 'moon' }, 'azure_cloud'],
  ])('%o is refused by name', (settings, param) => {
    expect(() => azureAi.baseUrl({ key: null, settings })).toThrow(
      expect.objectContaining({ kind: 'malformed_call', param }),
    );
  });

  it('never get the identity of the server: customers run them', async () => {
    const settings = {
      azure_endpoint_name: 'e',
      azure_region: 'eastus2',
      azure_deployment_type: 'managed',
      azure_auth_mode: 'managed',
    };
    expect(await refusal(() => asked(azureAi, settings))).toMatchObject({ status: 400, param: 'azure_auth_mode' });
  });
});

describe('through the gateway', () => {
  const KEY = 'key-of-endpoint';
  let endpoint: StrictUpstream;
  let server: TestServer;

  beforeAll(async () => {
    endpoint = await startStrictUpstream({
      routes: [
        {
          method: 'POST',
          path: /^\/v1\/chat\/completions$/,
          body: z.strictObject({
            model: z.literal('llama-3'),
            messages: z.array(z.strictObject({ role: z.literal('user'), content: z.string() })),
            max_tokens: z.number().optional(),
          }),
          answer: (body, response) =>
            sendJson(response, 200, {
              id: 'c',
              object: 'chat.completion',
              created: 1,
              model: body.model,
              choices: [{ index: 0, message: { role: 'assistant', content: 'hello' }, finish_reason: 'stop' }],
              usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
            }),
        },
      ],
      headers: { authorization: new RegExp(`^Bearer ${KEY}$`), 'azureml-model-deployment': /^blue$/ },
      optional: [],
      error: (status, message) => ({ error: { code: String(status), message } }),
    });
    server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.0/8' });
  });
  afterAll(async () => {
    await server?.stop();
    await endpoint?.stop();
  });
  afterEach(() => expect(endpoint.faults.splice(0)).toEqual([]));

  const client = (headers: Record<string, string>) =>
    new OpenAI({
      apiKey: KEY,
      baseURL: `${server.url}/v1`,
      maxRetries: 0,
      defaultHeaders: { 'x-gateway-api-key': server.first.workspace_api_key, ...headers },
    });
  const ask = (headers: Record<string, string>) =>
    client(headers).chat.completions.create({
      model: 'llama-3',
      messages: [{ role: 'user', content: 'Hi' }],
      max_completion_tokens: 9,
    });

  it('a managed endpoint gets its key as a token, the model by its own name and the deployment in a header', async () => {
    const config = {
      provider: 'azure-ai',
      api_key: KEY,
      custom_host: `${endpoint.url}/v1`,
      azure_endpoint_name: 'llama-prod',
      azure_region: 'eastus2',
      azure_deployment_type: 'managed',
      azure_deployment_name: 'blue',
    };
    const answer = await ask({ 'x-gateway-config': JSON.stringify(config) });
    expect(answer.choices[0]?.message.content).toBe('hello');
  });

  it('and so it does by headers', async () => {
    const answer = await ask({
      'x-gateway-provider': 'azure-ai',
      'x-gateway-custom-host': `${endpoint.url}/v1`,
      'x-gateway-azure-endpoint-name': 'llama-prod',
      'x-gateway-azure-region': 'eastus2',
      'x-gateway-azure-deployment-type': 'managed',
      'x-gateway-azure-deployment-name': 'blue',
    });
    expect(answer.choices[0]?.message.content).toBe('hello');
  });

  it.each(['eastus2', 'westeurope'])(
    'an endpoint of the caller lies in the region that a header names: %s',
    async (region) => {
      const answer = await server.call(
        '/chat/completions',
        { model: 'llama-3', messages: [{ role: 'user', content: 'Hi' }] },
        {
          authorization: `Bearer ${KEY}`,
          'x-gateway-provider': 'azure-ai',
          'x-gateway-azure-endpoint-name': 'llama-prod',
          'x-gateway-azure-region': region,
          'x-gateway-dry-run': 'true',
        },
      );
      expect(await answer.json()).toMatchObject({
        request: { url: expect.stringContaining(`https://llama-prod.${region}.models.ai.azure.com/`) },
      });
    },
  );

  it.each([
    'x-gateway-azure-region',
    'x-gateway-azure-cloud',
    'x-gateway-azure-deployment-type',
    'x-gateway-azure-endpoint-name',
  ])('a stored account is moved nowhere by %s', async (header) => {
    const slug = `stored-${header.slice(16)}`;
    await server.provider({
      id: 'azure-ai',
      slug,
      host: '',
      key: KEY,
      configurations: {
        custom_host: undefined,
        azure_foundry_url: 'https://mine.services.ai.azure.com/models',
        azure_auth_mode: 'default',
      },
    });
    const value =
      { region: 'westus', cloud: 'china', type: 'managed', name: 'evil' }[header.split('-').at(-1) ?? ''] ?? '';
    const headers = { 'x-gateway-provider': `@${slug}`, 'x-gateway-dry-run': 'true' };
    const plan = async (more: Record<string, string>) => {
      const answer = await server.call(
        '/chat/completions',
        { model: 'm', messages: [{ role: 'user', content: 'Hi' }] },
        { ...headers, ...more },
      );
      const { request } = (await answer.json()) as { request: { url: string } };
      return request.url;
    };
    const url = await plan({ [header]: value });
    expect(url).toMatch(/^https:\/\/mine\.services\.ai\.azure\.com\/models\//);
    expect(url).toBe(await plan({}));
  });
});

it('fields of on-your-data pass to Azure OpenAI as they are', async () => {
  const body = {
    model: 'd',
    messages: [{ role: 'user', content: 'Hi' }],
    data_sources: [{ type: 'azure_search', parameters: { endpoint: 'https://s.search.windows.net', index_name: 'i' } }],
  };
  const server = await startServer();
  const answer = await server.call('/chat/completions', body, {
    'x-gateway-provider': 'azure-openai',
    authorization: 'Bearer key',
    'x-gateway-azure-resource-name': 'mine',
    'x-gateway-dry-run': 'true',
  });
  expect(await answer.json()).toMatchObject({ request: { body: { data_sources: body.data_sources } } });
  await server.stop();
});
