/** Every field that takes an address refuses the same ones when it is saved. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { allTextFields, soundsLikeAddress } from '../support/fields.ts';
import { CASES } from '../support/hosted-cases.ts';
import { startServer, type TestServer } from '../support/server.ts';

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
  const mine = server.first.workspace_api_key;
  const config = { name: 'saved', config: { provider: 'openai', retry: { attempts: 1 } } };
  made.config = String((await server.admin('POST', '/configs', config, mine)).body.slug);
  for (const [field, reference] of Object.entries({
    vault_addr: {
      manager_type: 'hashicorp_vault',
      auth_config: { vault_auth_type: 'token', vault_token: 't', vault_addr: 'https://vault.example' },
      secret_path: 'secret/data/s',
    },
    azure_vault_url: {
      manager_type: 'azure_kv',
      auth_config: { azure_auth_mode: 'default', azure_vault_url: 'https://own.vault.azure.net' },
      secret_path: 's',
    },
  })) {
    await server.admin('POST', '/secret-references', { name: field, slug: `of-${field}`, ...reference });
  }
  made.deployment = String((await server.admin('POST', '/deployments', { name: 'saved' })).body.id);
  await server.admin('POST', SSO, { ...registration('https://h.example'), slug: 'registered' });
  for (const kind of ['otlp', 'webhook', 's3'] as const) {
    const target = kind === 's3' ? bucket : { url: 'https://h.example/v1' };
    const body = { name: kind, kind, organisation_id: server.first.organisation_id, [kind]: target };
    made[kind] = String((await server.admin('POST', '/log-destinations', body)).body.id);
  }
  made.policy = String((await server.admin('POST', '/policies/usage-limits', policy, mine)).body.id);
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

const check = (id: string, set: (url: string) => Record<string, unknown>): Save[] => [
  (url) => ['POST', '/guardrails', { name: 'g', checks: [{ id, parameters: set(url) }] }],
  (url) => [
    'POST',
    '/configs',
    { name: 'c', config: { [id === 'default.log' ? 'output_guardrails' : 'input_guardrails']: [{ [id]: set(url) }] } },
  ],
];
const config: Save = (url) => ['POST', '/configs', { name: 'c', config: { provider: 'openai', custom_host: url } }];
const organisation = (body: (url: string) => object): Save => {
  return (url) => ['PUT', '/admin/organisation/settings', body(url)];
};
const key = { name: 'v', key: 'k' };
const model = (url: string) => ({ slug: 'm', enabled: true, configurations: { custom_host: url, key: 'k' } });
const destination = (kind: 'otlp' | 'webhook' | 's3', field: string, more: object): [string, Save[]][] => [
  [
    `log_destinations.create: ${kind}.${field}`,
    [
      (url) => {
        const { organisation_id } = server.first;
        return ['POST', '/log-destinations', { name: 'd', kind, organisation_id, [kind]: { ...more, [field]: url } }];
      },
    ],
  ],
  [
    `log_destinations.update: ${kind}.${field}`,
    [(url) => ['PUT', `/log-destinations/${made[kind]}`, { [kind]: { ...more, [field]: url } }]],
  ],
];
const SSO = '/admin/organisation/sso-clients';
/** The secret is asked for anew whenever the issuer changes. */
const registration = (issuer: string) => ({ name: 'n', issuer, client_id: 'c', client_secret: 's' });
const bucket = { bucket: 'records', region: 'eu-central-1', access_key_id: 'a', secret_access_key: 's' };
/** What each field is saved by: under the names that the schemas have for it. */
const FIELDS: Record<string, readonly Save[]> = {
  'account: custom_host': [(url) => integration('openai', { custom_host: url })],
  'account: huggingface_base_url': [(url) => integration('huggingface', { huggingface_base_url: url })],
  'account: azure_foundry_url': [
    (url) => integration('azure-ai', { azure_auth_mode: 'default', azure_foundry_url: url }),
  ],
  'account: aws_s3_endpoint': [(url) => integration('bedrock', { ...aws, aws_s3_endpoint: url })],
  'account: aws_sts_endpoint': [(url) => integration('bedrock', { ...aws, aws_sts_endpoint: url })],
  'account: oauth_token_endpoint': [(url) => integration('openai', { ...oauth, oauth_token_endpoint: url })],
  'integrations.models.update: models[].configurations.custom_host': [
    (url) => ['PUT', `/integrations/${account}-integration/models`, { models: [model(url)] }],
  ],
  'virtual_keys.create: custom_host': [
    (url) => ['POST', '/virtual-keys', { ...key, provider: 'openai', custom_host: url }],
  ],
  'virtual_keys.create: huggingfaceBaseUrl': [
    (url) => ['POST', '/virtual-keys', { ...key, provider: 'huggingface', huggingfaceBaseUrl: url }],
  ],
  'virtual_keys.create: azureFoundryUrl': [
    (url) => ['POST', '/virtual-keys', { ...key, provider: 'azure-ai', azureFoundryUrl: url }],
  ],
  'config: custom_host': [config],
  'configs.create: config.custom_host': [
    config,
    (url) => {
      const targets = [{ provider: 'openai', custom_host: url }, { provider: '@openai-test' }];
      return ['POST', '/configs', { name: 'c', config: { strategy: { mode: 'fallback' }, targets } }];
    },
  ],
  'configs.update: config.custom_host': [
    (url) => ['PUT', `/configs/${made.config}`, { config: { provider: 'openai', custom_host: url } }],
  ],
  'policies.usage-limits.create: alert_webhook_url': [
    (url) => ['POST', '/policies/usage-limits', { ...policy, alert_webhook_url: url }],
  ],
  'policies.usage-limits.update: alert_webhook_url': [
    (url) => ['PUT', `/policies/usage-limits/${made.policy}`, { alert_webhook_url: url }],
  ],
  'organisation.settings.update: ai_gateway_url': [organisation((url) => ({ ai_gateway_url: url }))],
  'organisation.settings.update: mcp_gateway_url': [organisation((url) => ({ mcp_gateway_url: url }))],
  'organisation.settings.update: auth_settings.jwt.jwks_url': [
    organisation((url) => ({ auth_settings: { jwt: { jwks_url: url } } })),
  ],
  'sso_clients.create: issuer': [(url) => ['POST', SSO, registration(url)]],
  'sso_clients.update: issuer': [(url) => ['PUT', `${SSO}/registered`, registration(url)]],
  'organisation.settings.update: alerts.webhook_url': [organisation((url) => ({ alerts: { webhook_url: url } }))],
  'workspaces.update: settings.alerts.webhook_url': [
    (url) => ['PUT', `/admin/workspaces/${server.first.workspace_id}`, { settings: { alerts: { webhook_url: url } } }],
  ],
  ...Object.fromEntries(
    ['gateway_base_url', 'mcp_gateway_base_url'].flatMap((field): [string, Save[]][] => [
      [
        `deployments.create: auth_settings.${field}`,
        [(url) => ['POST', '/deployments', { name: 'd', auth_settings: { [field]: url } }]],
      ],
      [
        `deployments.update: auth_settings.${field}`,
        [(url) => ['PUT', `/deployments/${made.deployment}`, { auth_settings: { [field]: url } }]],
      ],
    ]),
  ),
  ...Object.fromEntries(
    (['vault_addr', 'azure_vault_url'] as const).flatMap((field): [string, Save[]][] => {
      const [manager_type, auth, path] =
        field === 'vault_addr'
          ? ['hashicorp_vault', { vault_auth_type: 'token', vault_token: 't' }, 'secret/data/s']
          : ['azure_kv', { azure_auth_mode: 'default' }, 's'];
      const reference = { name: 'r', manager_type, secret_path: path };
      return [
        [
          `secret_references.create: auth_config.${field}`,
          [(url) => ['POST', '/secret-references', { ...reference, auth_config: { ...auth, [field]: url } }]],
        ],
        [
          `secret_references.update: auth_config.${field}`,
          [(url) => ['PUT', `/secret-references/of-${field}`, { auth_config: { ...auth, [field]: url } }]],
        ],
      ];
    }),
  ),
  ...Object.fromEntries([
    ...destination('otlp', 'url', {}),
    ...destination('webhook', 'url', {}),
    ...destination('s3', 'endpoint', bucket),
  ]),
  'check default.webhook: webhookURL': check('default.webhook', (url) => ({ webhookURL: url })),
  'check default.log: logURL': check('default.log', (url) => ({ logURL: url })),
  'check default.jwt: jwksUri': check('default.jwt', (url) => ({ headerKey: 'x-token', jwksUri: url })),
  'check default.jwt: introspectEndpoint': check('default.jwt', (url) => ({
    headerKey: 'x-token',
    introspectEndpoint: url,
  })),
  'check presidio.analyze: analyzerURL': check('presidio.analyze', (url) => ({ analyzerURL: url })),
  'check presidio.analyze: anonymizerURL': check('presidio.analyze', (url) => ({
    analyzerURL: 'https://h.example',
    anonymizerURL: url,
  })),
  ...Object.fromEntries(
    CASES.map(({ id, parameters }) => [
      `check ${id}: credentials.endpoint`,
      check(id, (url) => ({
        ...parameters,
        credentials: { ...(parameters.credentials as object | undefined), endpoint: url },
      })),
    ]),
  ),
};
/**
 * A trial keeps nothing and calls nothing, and a record of a request tells where it was sent. The issuer of an
 * organisation's tokens is a name that they must have: their keys come from `jwks_url`.
 */
const NOT_CALLED = /^(?:policies\.usage-limits\.simulate|logs\.insert): |: auth_settings\.jwt\.issuer$/;

const made = { config: '', policy: '', deployment: '', otlp: '', webhook: '', s3: '' };
const ADDRESSES = [
  ...new Set(
    allTextFields()
      .filter(({ name, host }) => host === true || soundsLikeAddress(name))
      .map(({ owner, path }) => `${owner.replace(/^account .*/, 'account')}: ${path}`),
  ),
].filter((field) => !NOT_CALLED.test(field));

it.each(ADDRESSES)('%s takes no address that calls may not go to', async (field) => {
  const saves = FIELDS[field] ?? [];
  expect(saves, 'a field that is new: say how it is saved').not.toEqual([]);
  const taken: string[] = [];
  for (const save of saves) {
    const tried = async (url: string) => {
      const [method, path, body] = save(url);
      const { admin_api_key: all, workspace_api_key: mine } = server.first;
      const answer = await server.admin(
        method,
        path,
        body,
        /^\/(admin\/organisation|deployments|secret-references|log-destinations)/.test(path) ? all : mine,
      );
      return { status: answer.status, text: `${path} ${url}: ${JSON.stringify(answer.body)}` };
    };
    for (const bad of BAD) {
      const { status, text } = await tried(bad);
      if (status !== 400) taken.push(text);
    }
    const good = field.endsWith('azure_vault_url') ? 'https://own.vault.azure.net' : 'https://h.example/v1';
    const { status, text } = await tried(good);
    if (status !== 200) taken.push(`refused: ${text}`);
  }
  expect(taken).toEqual([]);
});
