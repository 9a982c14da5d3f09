/** A canary in every field that takes a secret, and none of them in any file, answer, record or line of the log. */
import { generateKeyPairSync } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ACTIONS } from '../../src/resources/catalog.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { allTextFields, soundsSecret } from '../support/fields.ts';
import { filesBelow } from '../support/files-below.ts';
import { CASES } from '../support/hosted-cases.ts';
import { postgresDatabase } from '../support/postgres.ts';
import { startServer, type TestServer } from '../support/server.ts';

type Save = (canary: string) => readonly [method: string, path: string, body: object];

const account = (id: string, given: (canary: string) => object): Save => {
  return (canary) => [
    'POST',
    '/integrations',
    { name: 'n', slug: `i-${canary.slice(-4)}`, ai_provider_id: id, ...given(canary) },
  ];
};
const settings = (id: string, make: (canary: string) => object, key: object = {}): Save =>
  account(id, (canary) => ({ ...key, configurations: make(canary) }));
const virtualKey = (given: (canary: string) => object): Save => {
  return (canary) => [
    'POST',
    '/virtual-keys',
    { name: 'v', slug: `v-${canary.slice(-4)}`, provider: 'openai', key: 'k', ...given(canary) },
  ];
};
const config = (made: (canary: string) => object): Save => {
  return (canary) => ['POST', '/configs', { name: 'c', config: made(canary) }];
};
const changed = (made: (canary: string) => object): Save => {
  return (canary) => ['PUT', `/configs/${ids.config}`, { config: made(canary) }];
};
const checkIn = (id: string, parameters: (canary: string) => object): Save[] => [
  (canary) => ['POST', '/guardrails', { name: 'g', checks: [{ id, parameters: parameters(canary) }] }],
  config((canary) => ({
    [id === 'default.log' ? 'output_guardrails' : 'input_guardrails']: [{ [id]: parameters(canary) }],
  })),
];
/** A check of a service with some of its credentials replaced. */
function hosted(id: string, made: (canary: string, given: Record<string, unknown>) => object): Save[] {
  const { parameters } = CASES.find((one) => one.id === id) ?? {};
  const given = (parameters?.credentials ?? {}) as Record<string, unknown>;
  return checkIn(id, (canary) => ({ ...parameters, credentials: { ...given, ...made(canary, given) } }));
}
const policy = {
  conditions: [{ key: 'api_key', value: '*' }],
  group_by: [{ key: 'api_key' }],
  type: 'tokens',
  credit_limit: 5,
};
const hook = (canary: string) => `https://hooks.example/${canary}?token=${canary}`;
const aws = { aws_auth_type: 'accessKey', aws_region: 'eu-central-1' };
const awsKeys = { awsAuthType: 'accessKey', awsRegion: 'eu-central-1', key: undefined, provider: 'bedrock' };
const vertex = { vertex_auth_type: 'serviceAccount', vertex_region: 'europe-west4', vertex_project_id: 'p' };
const file = (private_key: string) => ({ type: 'service_account', client_email: 'a@b.example', private_key });
const entra = { azure_auth_mode: 'entra', azure_entra_tenant_id: 't', azure_entra_client_id: 'c' };
const foundry = { azure_foundry_url: 'https://r.services.ai.azure.com/models' };
const oauth = {
  auth_type: 'oauthClientCredentials',
  oauth_token_endpoint: 'https://t.example/t',
  oauth_client_id: 'i',
};
const own = (extra: (canary: string) => object) => (canary: string) => ({ provider: 'bedrock', ...extra(canary) });
const configFields: Record<string, (canary: string) => object> = {
  api_key: (canary) => ({ provider: 'openai', api_key: canary }),
  aws_access_key_id: own((canary) => ({ aws_access_key_id: canary })),
  aws_secret_access_key: own((canary) => ({ aws_secret_access_key: canary })),
  aws_session_token: own((canary) => ({ aws_session_token: canary })),
  vertex_service_account_json: (canary) => ({ provider: 'vertex-ai', vertex_service_account_json: file(canary) }),
};
const ids = { config: '', integration: '', virtualKey: '', policy: '', workspace: '', otlp: '', webhook: '', s3: '' };
const BUCKET = { bucket: 'records', region: 'eu-central-1', access_key_id: 'a', secret_access_key: 's' };
const RECEIVER = { url: 'https://receiver.example/v1/traces' };

/** A log destination that is made, and one that is changed. */
function destination(
  kind: 'otlp' | 'webhook' | 's3',
  name: string,
  made: (canary: string) => object,
): [string, Save[]][] {
  return [
    [
      `log_destinations.create: ${kind}.${name}`,
      [(canary) => ['POST', '/log-destinations', { name: 'd', kind, [kind]: made(canary) }]],
    ],
    [
      `log_destinations.update: ${kind}.${name}`,
      [(canary) => ['PUT', `/log-destinations/${ids[kind]}`, { [kind]: made(canary) }]],
    ],
  ];
}

/** A request that was sent elsewhere, with its key in every place where programs put one. */
const sent = (canary: string) => ({
  request: {
    url: `https://u:${canary}@provider.example/v1/chat/completions?key=${canary}#${canary}`,
    headers: { authorization: `Bearer ${canary}`, 'x-api-key': canary },
    body: { model: 'gpt-4o', messages: [{ role: 'user', content: canary }], api_key: canary },
  },
  response: {
    status: 401,
    headers: { 'set-cookie': canary },
    body: { error: { code: 'invalid_api_key', message: `Wrong key: ${canary}` } },
  },
});

/** Secret references by their slugs, and for each of their secrets what holds it. */
const REFERENCES: Readonly<Record<string, object>> = {
  'sr-vault': {
    manager_type: 'hashicorp_vault',
    auth_config: { vault_auth_type: 'token', vault_addr: 'https://vault.example', vault_token: 't' },
    secret_path: 'secret/data/s',
  },
  'sr-aws': {
    manager_type: 'aws_sm',
    auth_config: {
      aws_auth_type: 'accessKey',
      aws_region: 'eu-central-1',
      aws_access_key_id: 'a',
      aws_secret_access_key: 's',
    },
    secret_path: 's',
  },
  'sr-azure': {
    manager_type: 'azure_kv',
    auth_config: { ...entra, azure_entra_client_secret: 's', azure_vault_url: 'https://own.vault.azure.net' },
    secret_path: 's',
  },
  'sr-google': {
    manager_type: 'gcp_sm',
    auth_config: { gcp_auth_type: 'serviceAccount', gcp_service_account_json: '{}' },
    secret_path: 'projects/p/secrets/s',
  },
};
const AUTH_SECRETS: Readonly<Record<string, readonly [slug: string, auth: (canary: string) => object]>> = {
  vault_token: ['sr-vault', (vault_token) => ({ vault_auth_type: 'token', vault_token })],
  vault_secret_id: [
    'sr-vault',
    (vault_secret_id) => ({ vault_auth_type: 'approle', vault_role_id: 'r', vault_secret_id }),
  ],
  vault_jwt: ['sr-vault', (vault_jwt) => ({ vault_auth_type: 'jwt', vault_role: 'r', vault_jwt })],
  aws_access_key_id: ['sr-aws', (aws_access_key_id) => ({ aws_access_key_id, aws_secret_access_key: 's' })],
  aws_secret_access_key: ['sr-aws', (aws_secret_access_key) => ({ aws_secret_access_key })],
  azure_entra_client_secret: ['sr-azure', (azure_entra_client_secret) => ({ azure_entra_client_secret })],
  gcp_service_account_json: ['sr-google', (canary) => ({ gcp_service_account_json: JSON.stringify(file(canary)) })],
};

const SSO = '/admin/organisation/sso-clients';
const REGISTRATION = { issuer: 'https://idp.example', client_id: 'c', client_secret: 's' };
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
/** A member that no standard knows: the others make a key that works, or none. */
const keySet = (canary: string, key = rsa.privateKey) => ({
  keys: [{ ...key.export({ format: 'jwk' }), own: canary }],
});
const REGISTERED: Readonly<Record<string, (canary: string) => object>> = {
  client_secret: (client_secret) => ({ client_secret }),
  'jwks.keys[].*': (canary) => ({ jwks: keySet(canary) }),
  'provider_jwks.keys[].*': (canary) => ({ provider_jwks: keySet(canary, rsa.publicKey) }),
};

const SAVES: Record<string, readonly Save[]> = {
  ...Object.fromEntries(
    Object.entries(REGISTERED).flatMap(([field, made]): [string, Save[]][] => [
      [
        `sso_clients.create: ${field}`,
        [(canary) => ['POST', SSO, { ...REGISTRATION, name: `n ${canary.slice(-4)}`, ...made(canary) }]],
      ],
      [`sso_clients.update: ${field}`, [(canary) => ['PUT', `${SSO}/registered`, made(canary)]]],
    ]),
  ),
  ...Object.fromEntries(
    Object.entries(AUTH_SECRETS).flatMap(([field, [slug, auth]]): [string, Save[]][] => {
      const reference = REFERENCES[slug] as { auth_config: object };
      const whole = (canary: string) => {
        const { vault_token: _token, ...plain } = reference.auth_config as Record<string, unknown>;
        return { ...plain, ...auth(canary) };
      };
      return [
        [
          `secret_references.create: auth_config.${field}`,
          [(canary) => ['POST', '/secret-references', { name: 'r', ...reference, auth_config: whole(canary) }]],
        ],
        [
          `secret_references.update: auth_config.${field}`,
          [(canary) => ['PUT', `/secret-references/${slug}`, { auth_config: auth(canary) }]],
        ],
      ];
    }),
  ),
  ...Object.fromEntries(
    ['request', 'response'].flatMap((part): [string, Save[]][] => [
      [`logs.insert: ${part}.headers.*`, [(canary) => ['POST', '/logs', sent(canary)]]],
      [`logs.insert: [].${part}.headers.*`, [(canary) => ['POST', '/logs', [sent(canary), sent(canary)]]]],
    ]),
  ),
  ...Object.fromEntries([
    ...destination('otlp', 'headers.*', (canary) => ({ ...RECEIVER, headers: { 'x-own': canary } })),
    ...destination('webhook', 'headers.*', (canary) => ({ url: hook(canary), headers: { 'x-own': canary } })),
    ...['access_key_id', 'secret_access_key', 'session_token'].flatMap((name) =>
      destination('s3', name, (canary) => ({ ...BUCKET, [name]: canary })),
    ),
  ]),
  'account: custom_headers': [settings('openai', (canary) => ({ custom_headers: { 'x-own': canary } }), { key: 'k' })],
  'account: oauth_client_secret': [settings('openai', (canary) => ({ ...oauth, oauth_client_secret: canary }))],
  'account: azure_entra_client_secret': [
    settings('azure-ai', (canary) => ({ ...entra, ...foundry, azure_entra_client_secret: canary })),
  ],
  'account: aws_access_key_id': [
    settings('bedrock', (canary) => ({ ...aws, aws_access_key_id: canary, aws_secret_access_key: 's' })),
  ],
  'account: aws_secret_access_key': [
    settings('bedrock', (canary) => ({ ...aws, aws_access_key_id: 'a', aws_secret_access_key: canary })),
  ],
  'account: aws_session_token': [
    settings('bedrock', (canary) => ({
      ...aws,
      aws_access_key_id: 'a',
      aws_secret_access_key: 's',
      aws_session_token: canary,
    })),
  ],
  'account: vertex_service_account_json': [
    settings('vertex-ai', (canary) => ({ ...vertex, vertex_service_account_json: file(canary) })),
  ],
  'integrations.create: key': [account('openai', (key) => ({ key }))],
  'integrations.update: key': [(key) => ['PUT', `/integrations/${ids.integration}`, { key }]],
  ...Object.fromEntries(
    [
      ['key', (canary: string) => ({ key: canary })] as const,
      ['custom_headers.*', (canary: string) => ({ custom_headers: { 'x-own': canary } })] as const,
    ].map(([name, made]): [string, Save[]] => [
      `integrations.models.update: models[].configurations.${name}`,
      [
        (canary) => [
          'PUT',
          `/integrations/${ids.integration}/models`,
          { models: [{ slug: `m-${canary.slice(-4)}`, enabled: true, configurations: made(canary) }] },
        ],
      ],
    ]),
  ),
  'virtual_keys.create: key': [virtualKey((key) => ({ key }))],
  'virtual_keys.update: key': [(key) => ['PUT', `/virtual-keys/${ids.virtualKey}`, { key }]],
  'virtual_keys.create: custom_headers': [virtualKey((canary) => ({ custom_headers: { 'x-own': canary } }))],
  'virtual_keys.create: awsAccessKeyId': [
    virtualKey((canary) => ({ ...awsKeys, awsAccessKeyId: canary, awsSecretAccessKey: 's' })),
  ],
  'virtual_keys.create: awsSecretAccessKey': [
    virtualKey((canary) => ({ ...awsKeys, awsAccessKeyId: 'a', awsSecretAccessKey: canary })),
  ],
  'virtual_keys.create: vertexServiceAccountJson': [
    virtualKey((canary) => ({
      provider: 'vertex-ai',
      key: undefined,
      vertexAuthType: 'serviceAccount',
      vertexRegion: 'europe-west4',
      vertexProjectId: 'p',
      vertexServiceAccountJson: file(canary),
    })),
  ],
  'virtual_keys.create: azureEntraClientSecret': [
    virtualKey((canary) => ({
      provider: 'azure-ai',
      key: undefined,
      azureAuthMode: 'entra',
      azureEntraTenantId: 't',
      azureEntraClientId: 'c',
      azureFoundryUrl: foundry.azure_foundry_url,
      azureEntraClientSecret: canary,
    })),
  ],
  ...Object.fromEntries(
    Object.entries(configFields).flatMap(([name, made]): [string, Save[]][] => [
      [`config: ${name}`, [config(made)]],
      [`configs.create: config.${name}`, [config(made)]],
      [`configs.update: config.${name}`, [changed(made)]],
    ]),
  ),
  'check default.webhook: webhookURL': checkIn('default.webhook', (canary) => ({ webhookURL: hook(canary) })),
  'check default.log: logURL': checkIn('default.log', (canary) => ({ logURL: hook(canary) })),
  'check default.webhook: headers.*': checkIn('default.webhook', (canary) => ({
    webhookURL: 'https://hooks.example/x',
    headers: { 'x-own': canary },
  })),
  'check default.log: headers.*': checkIn('default.log', (canary) => ({
    logURL: 'https://hooks.example/x',
    headers: { 'x-own': canary },
  })),
  'check presidio.analyze: headers.*': checkIn('presidio.analyze', (canary) => ({
    analyzerURL: 'https://p.example',
    headers: { 'x-own': canary },
  })),
  ...Object.fromEntries(
    CASES.flatMap(({ id, parameters }) => {
      const given = (parameters.credentials ?? {}) as Record<string, unknown>;
      return Object.keys(given).flatMap((name): [string, Save[]][] => {
        if (typeof given[name] !== 'string' || !soundsSecret(name)) return [];
        const save = (canary: string) => ({ ...parameters, credentials: { ...given, [name]: canary } });
        return [[`check ${id}: credentials.${name}`, checkIn(id, save)]];
      });
    }),
  ),
  'check bedrock.guard: credentials.sessionToken': hosted('bedrock.guard', (sessionToken) => ({ sessionToken })),
  'check google.modelArmor: credentials.serviceAccount': hosted('google.modelArmor', (canary, given) => ({
    serviceAccount: { ...(given.serviceAccount as object), private_key_id: canary },
  })),
  'policies.usage-limits.create: alert_webhook_url': [
    (canary) => ['POST', '/policies/usage-limits', { ...policy, name: 'p', alert_webhook_url: hook(canary) }],
  ],
  'policies.usage-limits.update: alert_webhook_url': [
    (canary) => ['PUT', `/policies/usage-limits/${ids.policy}`, { alert_webhook_url: hook(canary) }],
  ],
  'organisation.settings.update: alerts.webhook_url': [
    (canary) => ['PUT', '/admin/organisation/settings', { alerts: { webhook_url: hook(canary) } }],
  ],
  'workspaces.update: settings.alerts.webhook_url': [
    (canary) => ['PUT', `/admin/workspaces/${ids.workspace}`, { settings: { alerts: { webhook_url: hook(canary) } } }],
  ],
};

/** They sound secret and are names of headers, keys of objects, references, rights or ways to sign in. */
const NO_SECRET =
  /secret_references\.(?:create|update): (?:secret_path|secret_key|auth_config\.(?:aws_(?:region|role_arn|external_id|auth_type)|azure_(?:entra_(?:tenant|client)_id|managed_client_id|vault_url)|vault_(?:addr|namespace|role|role_id|auth_path)))$|\.?auth_settings\.|secret_mappings|virtual_key(?:_id)?$|[aA]uth_?(?:mode|type|Mode|Type)$|forward_headers|scopes|\.key$|metadata_schemas|user_api_key_config|workspace_api_key_details|jsonKeys|requiredMetadataKeys|requestParametersCheck|check default\.jwt|oauth_(?:token_endpoint|client_id|scope)$|credentials\.(?:endpoint|region|projectId|domain)$|guardrails\.invoke|policies\.usage-limits\.simulate|filters\.(?:virtual_keys|api_key_ids)$|^logs\.erase: api_key_id$/;
const WEBHOOK = /(?:webhook_url|webhookURL|logURL)$/;
const FIELDS = [
  ...new Set(
    allTextFields()
      .filter(({ path, secret }) => secret === true || soundsSecret(path) || WEBHOOK.test(path))
      .map(({ owner, path, secret }) => ({ id: `${owner.replace(/^account .*/, 'account')}: ${path}`, secret }))
      .filter(
        ({ id, secret }) =>
          secret === true || !NO_SECRET.test(id) || WEBHOOK.test(id) || /\.configurations\.key$/.test(id),
      )
      .map(({ id }) => id)
      .filter((id) => !id.startsWith('policies.usage-limits.simulate')),
  ),
];

it('every field that takes a secret has a canary', () => {
  expect(FIELDS.length).toBeGreaterThan(40);
  expect(FIELDS.filter((field) => SAVES[field] === undefined)).toEqual([]);
});

describe.each(['SQLite', 'PostgreSQL'])('on %s', (engine) => {
  const lines: string[] = [];
  const canaries = new Map<string, string>();
  const answers: string[] = [];
  let server: TestServer;
  let database = '';
  /** It is no secret: where this is found, a canary would be. */
  const CONTROL = 'pear-in-plain-sight';

  beforeAll(async () => {
    if (engine === 'PostgreSQL') database = await postgresDatabase();
    const env: Record<string, string> = database === '' ? {} : { SLUICE_DATABASE_URL: database };
    const log = createLogger({ level: 'debug', format: 'json', write: (line) => lines.push(line) });
    server = await startServer(env, { writeAccess: (text) => lines.push(text) }, log);
    await server.provider({ id: 'openai', host: 'https://h.example/v1' });
    const { workspace_api_key: mine, workspace_id } = server.first;
    const made = (
      await server.admin(
        'POST',
        '/configs',
        { name: 'c', config: { provider: 'openai', retry: { attempts: 1 } } },
        mine,
      )
    ).body;
    const key = await server.admin(
      'POST',
      '/virtual-keys',
      { name: 'v', slug: 'vk', provider: 'openai', key: 'k' },
      mine,
    );
    expect(key.status).toBe(200);
    for (const [slug, reference] of Object.entries(REFERENCES)) {
      const answer = await server.admin('POST', '/secret-references', { name: slug, slug, ...reference });
      expect(answer.status, JSON.stringify(answer.body)).toBe(200);
    }
    const client = await server.admin('POST', SSO, { ...REGISTRATION, name: CONTROL, slug: 'registered' });
    expect(client.status, JSON.stringify(client.body)).toBe(200);
    const limit = await server.admin('POST', '/policies/usage-limits', { ...policy, name: CONTROL }, mine);
    Object.assign(ids, { config: made.slug, integration: 'openai-test-integration', virtualKey: 'vk' });
    for (const [kind, target] of Object.entries({ otlp: RECEIVER, webhook: RECEIVER, s3: BUCKET })) {
      const stored = await server.admin('POST', '/log-destinations', { name: CONTROL, kind, [kind]: target }, mine);
      expect(stored.status, JSON.stringify(stored.body)).toBe(200);
      Object.assign(ids, { [kind]: stored.body.id });
    }
    Object.assign(ids, { policy: limit.body.id, workspace: workspace_id });
  });
  afterAll(() => server?.stop());

  /** Names of the fields whose canary a text holds. */
  const found = (text: string) => [...canaries].filter(([canary]) => text.includes(canary)).map(([, field]) => field);

  it('each is taken, and no answer of a save or of a refused one repeats it', async () => {
    const refused: string[] = [];
    let n = 1000;
    for (const [field, saves] of Object.entries(SAVES)) {
      for (const save of saves) {
        const canary = `plum${engine.toLowerCase()}${++n}`;
        canaries.set(canary, field);
        const [method, path, body] = save(canary);
        const { admin_api_key: all, workspace_api_key: mine } = server.first;
        const key = /^\/(admin|secret-references)/.test(path) ? all : mine;
        const answer = await server.admin(method, path, body, key);
        if (answer.status !== 200) refused.push(`${field}: ${JSON.stringify(answer.body)}`);
        answers.push(JSON.stringify(answer.body));
        answers.push(JSON.stringify(await server.admin(method, path, { ...body, unknown_field: 1 }, key)));
      }
    }
    expect(refused).toEqual([]);
    expect(found(answers.join())).toEqual([]);
  });

  it('no read of the administration shows one, to the key of the organisation, of a workspace or of the operator', async () => {
    const keys = [server.first.admin_api_key, server.first.workspace_api_key, server.first.operator_api_key];
    const shown: string[] = [];
    let read = 0;
    let plain = 0;
    const get = async (path: string) => {
      for (const key of keys) {
        const { status, body } = await server.admin('GET', path, undefined, key);
        if (status === 200) read++;
        if (JSON.stringify(body).includes(CONTROL)) plain++;
        for (const field of found(JSON.stringify(body))) shown.push(`${path}: ${field}`);
        if (status === 200 && key === keys[0]) return body;
      }
      return {};
    };
    for (const { method, path, answers } of ACTIONS) {
      // Events have no end. They show what the list of requests shows.
      if (method !== 'GET' || path.includes(':') || answers?.as === 'events') continue;
      const window =
        path === '/audit-logs' ? '?start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z&page_size=100' : '';
      const list = (await get(path + window)) as { data?: { id?: string; slug?: string }[] };
      for (const item of list.data ?? []) {
        for (const name of new Set([item.id, item.slug])) {
          if (name === undefined) continue;
          for (const one of ACTIONS) {
            const within = one.path.replace(/:\w+/, name);
            if (one.method === 'GET' && one.path.startsWith(`${path}/:`) && !within.includes(':')) await get(within);
          }
        }
      }
    }
    expect(read).toBeGreaterThan(100);
    expect(plain).toBeGreaterThan(1);
    expect(shown).toEqual([]);
  });

  it('a request by each config, planned or made, leaves none in its answer or its record', async () => {
    const list = await server.admin('GET', '/configs?page_size=100', undefined, server.first.workspace_api_key);
    const texts: string[] = [];
    for (const { slug } of (list.body.data as { slug: string }[]).slice(0, 60)) {
      const body = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hello' }] };
      for (const more of [{ 'x-gateway-dry-run': 'true' }, {}] as Record<string, string>[]) {
        const answer = await server.call('/chat/completions', body, { 'x-gateway-config': slug, ...more });
        texts.push(JSON.stringify([...answer.headers]), await answer.text());
      }
    }
    texts.push(JSON.stringify(await server.records()));
    expect(found(texts.join())).toEqual([]);
  }, 120_000);

  it('no file of the server, table of the store or line of its logs holds one', async () => {
    const kept: string[] = [];
    let plain = false;
    for (const { path, bytes } of await filesBelow(server.dataDir)) {
      const content = bytes.toString('latin1');
      plain ||= content.includes(CONTROL);
      for (const field of found(content)) kept.push(`${path}: ${field}`);
    }
    if (database !== '') {
      const client = new pg.Client({ connectionString: database });
      await client.connect();
      await client.query("SET sluice.organisation = '*'");
      const { rows } = await client.query(
        "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
      );
      expect(rows.length).toBeGreaterThan(20);
      let seen = 0;
      for (const { schemaname, tablename } of rows as { schemaname: string; tablename: string }[]) {
        const content = await client.query(`SELECT t::text AS row FROM "${schemaname}"."${tablename}" t`);
        seen += content.rows.length;
        plain ||= JSON.stringify(content.rows).includes(CONTROL);
        for (const field of found(JSON.stringify(content.rows))) kept.push(`${tablename}: ${field}`);
      }
      expect(seen).toBeGreaterThan(100);
      await client.end();
    }
    for (const field of found(lines.join())) kept.push(`log: ${field}`);
    expect(plain).toBe(true);
    expect(kept).toEqual([]);
  });
});
