/** Every field that takes an address refuses the same ones when it is saved. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { CHECKS } from '../src/guardrails/catalog.ts';
import { URL_PARAMETERS } from '../src/guardrails/checks/support.ts';
import { startServer, type TestServer } from './support/server.ts';

const BAD = [
  'http://169.254.169.254/latest',
  'http://127.0.0.1/',
  'http://10.1.2.3/x',
  'http://[::1]/',
  'http://134744072/',
  'https://0x08080808/',
  'https://user:pw@example.com/',
  'https://example.com/a b',
  'https://example.com:99999/',
  'https://example.com\\@evil.example/',
  'https://example.com/#fragment',
  'https://metadata.google.internal/',
  'https://localhost/',
  'ftp://example.com/',
  '//example.com/',
];

let server: TestServer;
let account = '';

beforeAll(async () => {
  server = await startServer();
  account = await server.provider({ id: 'openai', host: 'https://h.example/v1' });
});
afterAll(() => server?.stop());

const integration = (id: string, configurations: object) =>
  ['POST', '/integrations', { name: 'n', ai_provider_id: id, key: 'k', configurations }] as const;
const oauth = { auth_type: 'oauthClientCredentials', oauth_client_id: 'i', oauth_client_secret: 's' };
const aws = { aws_auth_type: 'serviceRole', aws_region: 'eu-central-1' };
const policy = {
  conditions: [{ key: 'api_key', value: '*' }],
  group_by: [{ key: 'api_key' }],
  type: 'tokens',
  credit_limit: 5,
};

type Save = (url: string) => readonly [method: string, path: string, body: object];
const FIELDS: Record<string, Save> = {
  'custom_host of an integration': (url) => integration('openai', { custom_host: url }),
  huggingface_base_url: (url) => integration('huggingface', { huggingface_base_url: url }),
  azure_foundry_url: (url) => integration('azure-ai', { azure_auth_mode: 'default', azure_foundry_url: url }),
  aws_s3_endpoint: (url) => integration('bedrock', { ...aws, aws_s3_endpoint: url }),
  aws_sts_endpoint: (url) => integration('bedrock', { ...aws, aws_sts_endpoint: url }),
  oauth_token_endpoint: (url) => integration('openai', { ...oauth, oauth_token_endpoint: url }),
  'custom_host of a model': (url) => [
    'PUT',
    `/integrations/${account}-integration/models`,
    { models: [{ slug: 'm', enabled: true, configurations: { custom_host: url, key: 'k' } }] },
  ],
  'custom_host of a virtual key': (url) => [
    'POST',
    '/virtual-keys',
    { name: 'v', provider: 'openai', key: 'k', custom_host: url },
  ],
  'custom_host of a config': (url) => [
    'POST',
    '/configs',
    { name: 'c', config: { provider: 'openai', custom_host: url } },
  ],
  'alert_webhook_url of a policy': (url) => ['POST', '/policies/usage-limits', { ...policy, alert_webhook_url: url }],
  'webhook_url of a workspace': (url) => [
    'PUT',
    `/admin/workspaces/${server.first.workspace_id}`,
    { settings: { alerts: { webhook_url: url } } },
  ],
  ...Object.fromEntries(
    [...CHECKS.values()].flatMap(({ id }) =>
      URL_PARAMETERS.filter((name) => id === (name === 'logURL' ? 'default.log' : 'default.webhook')).flatMap(
        (name): [string, Save][] => [
          [
            `${name} of a guardrail`,
            (url) => ['POST', '/guardrails', { name: 'g', checks: [{ id, parameters: { [name]: url } }] }],
          ],
          [
            `${name} in a config`,
            (url) => ['POST', '/configs', { name: 'c', config: { input_guardrails: [{ [id]: { [name]: url } }] } }],
          ],
        ],
      ),
    ),
  ),
};

it.each(Object.keys(FIELDS))('%s takes no address that calls may not go to', async (name) => {
  const taken: string[] = [];
  for (const bad of BAD) {
    const [method, path, body] = FIELDS[name]?.(bad) ?? ['', '', {}];
    const answer = await server.admin(method, path, body, server.first.workspace_api_key);
    if (answer.status !== 400) taken.push(`${bad}: ${answer.status} ${JSON.stringify(answer.body)}`);
  }
  expect(taken).toEqual([]);
});

it('webhook_url of the organisation takes none either', async () => {
  for (const webhook_url of BAD) {
    const answer = await server.admin('PUT', '/admin/organisation/settings', { alerts: { webhook_url } });
    expect([webhook_url, answer.status]).toEqual([webhook_url, 400]);
  }
});
