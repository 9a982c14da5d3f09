/** Secrets of HashiCorp Vault in accounts, over a whole server: the fake checks every request against Vault's HTTP API. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type FakeVault, startVault, VAULT } from '../support/secret-managers/vault.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

const ANSWER = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-4o',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hello' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
};
const CHAT = { model: 'gpt-4o', messages: [{ role: 'user', content: 'hi' }] };

let upstream: FakeUpstream;
let vault: FakeVault;
let server: TestServer;
let dir: string;
/** Keys that the provider accepts; null: all. */
let accepted: Set<string> | null = null;
let made = 0;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'sluice-cluster-'));
  await writeFile(join(dir, 'token'), `${VAULT.jwt}\n`);
  [upstream, vault] = await Promise.all([startUpstream(() => undefined), startVault()]);
  server = await startServer({
    SLUICE_TRUSTED_HOSTS: '127.0.0.0/8',
    SLUICE_SECRETS_IDENTITY: '*',
    SLUICE_SECRETS_CLUSTER_TOKEN: join(dir, 'token'),
  });
});
afterAll(async () => {
  await Promise.all([server?.stop(), upstream?.stop(), vault?.stop()]);
  await rm(dir, { recursive: true, force: true });
});
beforeEach(() => {
  accepted = null;
  vault.instead = null;
  vault.received.length = 0;
  upstream.received.length = 0;
  upstream.answer = (request, response) => {
    const key = String(request.headers.authorization).slice('Bearer '.length);
    if (accepted === null || accepted.has(key)) sendJson(response, 200, ANSWER);
    else sendJson(response, 401, { error: { message: `Incorrect key ${key}`, type: 'invalid_request_error' } });
  };
});
afterEach(() => expect(vault.faults.splice(0)).toEqual([]));

const TOKEN = { vault_auth_type: 'token', vault_token: VAULT.token };

async function reference(more: Record<string, unknown> = {}, auth: Record<string, unknown> = TOKEN): Promise<string> {
  made += 1;
  const slug = `ref-${made}`;
  const answer = await server.admin('POST', '/secret-references', {
    name: slug,
    slug,
    manager_type: 'hashicorp_vault',
    auth_config: { vault_addr: vault.url, ...auth },
    secret_path: 'secret/data/openai',
    secret_key: 'api_key',
    ...more,
  });
  expect(answer).toMatchObject({ status: 200, body: { slug, object: 'secret-reference' } });
  return slug;
}

async function provider(mappings: readonly Record<string, unknown>[]): Promise<string> {
  made += 1;
  const slug = `mapped-${made}`;
  const integration = await server.admin('POST', '/integrations', {
    name: slug,
    slug: `${slug}-integration`,
    ai_provider_id: 'openai',
    workspace_id: server.first.workspace_id,
    create_default_provider: true,
    default_provider_slug: slug,
    configurations: { custom_host: `${upstream.url}/v1` },
    secret_mappings: mappings,
  });
  expect(integration).toMatchObject({ status: 200 });
  return slug;
}
const keyOf = (name: string) => provider([{ target_field: 'key', secret_reference_id: name }]);

async function chat(slug: string, headers: Record<string, string> = {}) {
  const answer = await server.call('/chat/completions', { ...CHAT, model: `@${slug}/gpt-4o` }, headers);
  return { status: answer.status, body: (await answer.json()) as { error?: { message: string } } & typeof ANSWER };
}
const keysSent = () => upstream.received.map(({ headers }) => headers.authorization);
const OBJECTS = (slug: string) => `/integrations/${slug}-integration/objects?unowned=true&kind=file`;
const reads = () => vault.received.filter(({ method }) => method === 'GET').length;

describe('a key that lies in Vault', () => {
  it('is read with the first request that needs it, once for all who wait, and not with the next ones', async () => {
    vault.put('secret/data/openai', { api_key: 'sk-from-vault-1' });
    const slug = await keyOf(await reference());
    expect(vault.received).toEqual([]);
    const answers = await Promise.all(Array.from({ length: 8 }, () => chat(slug)));
    expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
    expect(reads()).toBe(1);
    await chat(slug);
    expect(reads()).toBe(1);
    expect(new Set(keysSent())).toEqual(new Set(['Bearer sk-from-vault-1']));
  });

  it.each([
    ['version 1 of the engine', { secret_path: 'kv/openai' }, 'kv/openai'],
    ['version 2, as it is copied from the address', { secret_path: '/v1/secret/data/copied' }, 'secret/data/copied'],
    ['a name with a space', { secret_path: 'secret/data/team a/key' }, 'secret/data/team a/key'],
  ])('is read from %s', async (_title, more, path) => {
    vault.put(path, { api_key: `sk-${path.length}-of-that-path` });
    expect((await chat(await keyOf(await reference(more)))).status).toBe(200);
    expect(keysSent()).toEqual([`Bearer sk-${path.length}-of-that-path`]);
  });

  it('is that of the version which the path names', async () => {
    vault.put('secret/data/versions', { api_key: 'sk-version-one' });
    vault.put('secret/data/versions', { api_key: 'sk-version-two' });
    const [first, latest] = [
      await keyOf(await reference({ secret_path: 'secret/data/versions?version=1' })),
      await keyOf(await reference({ secret_path: 'secret/data/versions' })),
    ];
    await chat(first);
    await chat(latest);
    expect(keysSent()).toEqual(['Bearer sk-version-one', 'Bearer sk-version-two']);
  });

  it.each([
    ['AppRole', { vault_auth_type: 'approle', vault_role_id: VAULT.role_id, vault_secret_id: VAULT.secret_id }],
    [
      'AppRole at another mount',
      {
        vault_auth_type: 'approle',
        vault_role_id: VAULT.role_id,
        vault_secret_id: VAULT.secret_id,
        vault_auth_path: 'teams/approle',
      },
    ],
    ['the service account of the cluster', { vault_auth_type: 'kubernetes', vault_role: VAULT.role }],
    ['a JWT', { vault_auth_type: 'jwt', vault_role: VAULT.role, vault_jwt: VAULT.jwt }],
  ])(
    'is read after a sign-in by %s, whose token is used again and replaced once it is revoked',
    async (_title, auth) => {
      vault.put('secret/data/signed-in', { api_key: 'sk-signed-in', other: 'sk-other-member' });
      const before = vault.logins;
      const [one, other] = [
        await reference({ secret_path: 'secret/data/signed-in' }, auth),
        await reference({ secret_path: 'secret/data/signed-in', secret_key: 'other' }, auth),
      ];
      await chat(await keyOf(one));
      await chat(await keyOf(other));
      expect(vault.logins - before).toBe(1);
      for (const token of vault.tokens) if (token !== VAULT.token) vault.tokens.delete(token);
      expect((await server.admin('POST', `/secret-references/${one}/test`)).body).toMatchObject({ ok: true });
      expect(vault.logins - before).toBe(2);
    },
  );

  it('takes effect without a restart when it was rotated: a provider that refuses the old key gets the new one at once', async () => {
    vault.put('secret/data/rotated', { api_key: 'sk-before-rotation' });
    const slug = await keyOf(await reference({ secret_path: 'secret/data/rotated' }));
    expect((await chat(slug)).status).toBe(200);
    vault.put('secret/data/rotated', { api_key: 'sk-after-rotation' });
    accepted = new Set(['sk-after-rotation']);
    expect((await chat(slug)).status).toBe(200);
    expect(keysSent()).toEqual(
      ['sk-before-rotation', 'sk-before-rotation', 'sk-after-rotation'].map((key) => `Bearer ${key}`),
    );
    expect((await chat(slug)).status).toBe(200);
    expect(keysSent()).toHaveLength(4);
  });

  describe('of a file, a batch or a fine-tuning job', () => {
    const FILE = { id: 'file-1', object: 'file', created_at: 1, filename: 'a.jsonl', purpose: 'batch', bytes: 3 };
    const calls: readonly (readonly [string, 'GET' | 'POST', string, unknown, unknown])[] = [
      ['the list of files', 'GET', '/files', null, { object: 'list', data: [], has_more: false }],
      ['the list of batches', 'GET', '/batches', null, { object: 'list', data: [], has_more: false }],
      ['the list of fine-tuning jobs', 'GET', '/fine_tuning/jobs', null, { object: 'list', data: [], has_more: false }],
      [
        'a new fine-tuning job',
        'POST',
        '/fine_tuning/jobs',
        {
          model: 'gpt-4o',
          training_file: 'file-1',
          suffix: 'a',
          method: {
            type: 'supervised',
            supervised: { hyperparameters: { n_epochs: 1, learning_rate_multiplier: 1, batch_size: 1 } },
          },
        },
        { id: 'ftjob-1', object: 'fine_tuning.job', created_at: 1, model: 'gpt-4o', status: 'queued' },
      ],
    ];

    it.each(calls)('%s is asked for once more with the new key', async (title, method, path, body, answer) => {
      const place = `secret/data/objects-${made}`;
      vault.put(place, { api_key: 'sk-old-of-objects' });
      const slug = await keyOf(await reference({ secret_path: place }));
      upstream.answer = (request, response) => {
        const key = String(request.headers.authorization).slice('Bearer '.length);
        if (accepted !== null && !accepted.has(key)) sendJson(response, 401, { error: { message: `no ${key}` } });
        else sendJson(response, 200, request.headers['content-type']?.startsWith('multipart/') ? FILE : answer);
      };
      const send = () =>
        fetch(`${server.url}/v1${path}`, {
          method,
          headers: {
            'x-gateway-api-key': server.first.workspace_api_key,
            'x-gateway-provider': `@${slug}`,
            'content-type': 'application/json',
          },
          ...(body === null ? {} : { body: JSON.stringify(body) }),
        });
      if (title.startsWith('a new')) {
        const form = new FormData();
        form.set('purpose', 'fine-tune');
        form.set('file', new Blob(['{}']), 'a.jsonl');
        const headers = { 'x-gateway-api-key': server.first.workspace_api_key, 'x-gateway-provider': `@${slug}` };
        const uploaded = await fetch(`${server.url}/v1/files`, { method: 'POST', headers, body: form });
        expect(uploaded.status, await uploaded.text()).toBe(200);
      } else expect((await send()).status).toBe(200);
      vault.put(place, { api_key: 'sk-new-of-objects' });
      accepted = new Set(['sk-new-of-objects']);
      upstream.received.length = 0;
      const told = await send();
      expect(told.status, await told.text()).toBe(200);
      expect(keysSent()).toEqual(['Bearer sk-old-of-objects', 'Bearer sk-new-of-objects']);
      expect((await send()).status).toBe(200);
      expect(keysSent()).toHaveLength(3);
      // A key that is refused for good is sent once more at most, and its manager is left alone for a minute.
      accepted = new Set();
      const before = reads();
      const refused = await send();
      expect(refused.status).toBe(401);
      expect(await refused.text()).not.toContain('sk-new-of-objects');
      expect(keysSent()).toHaveLength(4);
      expect(reads()).toBe(before);
    });
  });

  it('a streamed upload that the provider refuses is not sent twice, and the next one has the new key', async () => {
    vault.put('secret/data/uploads', { api_key: 'sk-old-of-uploads' });
    const slug = await keyOf(await reference({ secret_path: 'secret/data/uploads' }));
    const file = { id: 'file-2', object: 'file', created_at: 1, filename: 'a.jsonl', purpose: 'batch', bytes: 3 };
    upstream.answer = (request, response) => {
      const refused = accepted !== null && !accepted.has(String(request.headers.authorization).slice(7));
      sendJson(response, refused ? 401 : 200, refused ? { error: { message: 'no' } } : file);
    };
    const upload = async () => {
      const form = new FormData();
      form.set('purpose', 'batch');
      form.set('file', new Blob(['{}']), 'a.jsonl');
      const headers = { 'x-gateway-api-key': server.first.workspace_api_key, 'x-gateway-provider': `@${slug}` };
      return (await fetch(`${server.url}/v1/files`, { method: 'POST', headers, body: form })).status;
    };
    expect(await upload()).toBe(200);
    vault.put('secret/data/uploads', { api_key: 'sk-new-of-uploads' });
    accepted = new Set(['sk-new-of-uploads']);
    expect(await upload()).toBe(401);
    expect(await upload()).toBe(200);
    expect(keysSent()).toEqual(['old', 'old', 'new'].map((key) => `Bearer sk-${key}-of-uploads`));
  });

  it('work without a request, such as a managed job, reads the new key and asks once more', async () => {
    vault.put('secret/data/background', { api_key: 'sk-old-of-work' });
    const slug = `shared-${made}`;
    const mapping = {
      target_field: 'key',
      secret_reference_id: await reference({ secret_path: 'secret/data/background' }),
    };
    const { workspace_id } = server.first;
    for (const [method, path, body] of [
      [
        'POST',
        '/integrations',
        {
          name: slug,
          slug: `${slug}-integration`,
          ai_provider_id: 'openai',
          configurations: { custom_host: `${upstream.url}/v1` },
          secret_mappings: [mapping],
        },
      ],
      [
        'PUT',
        `/integrations/${slug}-integration/workspaces`,
        { workspaces: [{ id: workspace_id, enabled: true, create_default_provider: false }] },
      ],
      ['POST', '/providers', { name: slug, slug, integration_id: `${slug}-integration`, workspace_id }],
    ] as const) {
      const told = await server.admin(method, path, body);
      expect(told.status, JSON.stringify(told.body)).toBe(200);
    }
    upstream.answer = (request, response) => {
      const refused = accepted !== null && !accepted.has(String(request.headers.authorization).slice(7));
      sendJson(response, refused ? 401 : 200, refused ? { error: { message: 'no' } } : { object: 'list', data: [] });
    };
    const list = () => server.admin('GET', OBJECTS(slug));
    const first = await list();
    expect(first.status, JSON.stringify(first.body)).toBe(200);
    vault.put('secret/data/background', { api_key: 'sk-new-of-work' });
    accepted = new Set(['sk-new-of-work']);
    expect((await list()).status).toBe(200);
    expect(keysSent()).toEqual(['old', 'old', 'new'].map((key) => `Bearer sk-${key}-of-work`));
  });

  it('that the provider refuses although it was not rotated is looked up once a minute, not with every request', async () => {
    vault.put('secret/data/refused', { api_key: 'sk-never-accepted' });
    const slug = await keyOf(await reference({ secret_path: 'secret/data/refused' }));
    accepted = new Set();
    for (let i = 0; i < 5; i++) expect((await chat(slug)).status).toBe(401);
    expect(reads()).toBe(2);
    expect(keysSent()).toHaveLength(5);
  });

  it('goes into other fields of the account, also one that is an object', async () => {
    vault.put('secret/data/headers', { api_key: 'sk-with-headers', headers: { 'x-team': 'blue' }, org: 'org-1' });
    const name = await reference({ secret_path: 'secret/data/headers' });
    const slug = await provider([
      { target_field: 'key', secret_reference_id: name },
      {
        target_field: 'configurations.custom_headers',
        secret_reference_id: name,
        secret_key: 'headers',
        value_format: 'json',
      },
      { target_field: 'configurations.openai_organization', secret_reference_id: name, secret_key: 'org' },
    ]);
    expect((await chat(slug)).status).toBe(200);
    expect(upstream.received[0]?.headers).toMatchObject({ 'x-team': 'blue', 'openai-organization': 'org-1' });
    expect(reads()).toBe(1);
  });

  it('goes into virtual keys, and a provider may have its own in place of its integration', async () => {
    vault.put('secret/data/virtual', { api_key: 'sk-of-virtual-key', own: 'sk-of-one-provider' });
    const name = await reference({ secret_path: 'secret/data/virtual' });
    const virtual = await server.admin('POST', '/virtual-keys', {
      name: 'v',
      slug: `virtual-${made}`,
      provider: 'openai',
      workspace_id: server.first.workspace_id,
      custom_host: `${upstream.url}/v1`,
      secret_mappings: [{ target_field: 'key', secret_reference_id: name }],
    });
    expect(virtual).toMatchObject({ status: 200 });
    expect((await chat(`virtual-${made}`)).status).toBe(200);
    const whole = await keyOf(name);
    const own = await server.admin('POST', '/providers', {
      name: 'own',
      slug: `own-${made}`,
      integration_id: `${whole}-integration`,
      workspace_id: server.first.workspace_id,
      secret_mappings: [{ target_field: 'key', secret_reference_id: name, secret_key: 'own' }],
    });
    expect(own).toMatchObject({ status: 200 });
    await chat(whole);
    await chat(`own-${made}`);
    expect(keysSent()).toEqual(
      ['of-virtual-key', 'of-virtual-key', 'of-one-provider'].map((key) => `Bearer sk-${key}`),
    );
  });
});

describe('when Vault gives no secret', () => {
  it.each([
    ['a path without a secret', { secret_path: 'secret/data/nothing' }, TOKEN, /answered 404.* No such secret.*data\//],
    ['a version that does not exist', { secret_path: 'secret/data/there?version=9' }, TOKEN, /answered 404/],
    [
      'a token that was revoked',
      {},
      { vault_auth_type: 'token', vault_token: 'hvs.revoked' },
      /answered 403.*may read this path/,
    ],
    ['a path that its policy forbids', { secret_path: 'secret/data/forbidden' }, TOKEN, /answered 403/],
    [
      'a wrong secret id',
      {},
      { vault_auth_type: 'approle', vault_role_id: VAULT.role_id, vault_secret_id: 'wrong' },
      /answered 400.*Check the role/,
    ],
    [
      'an auth method that is not there',
      {},
      { vault_auth_type: 'jwt', vault_role: 'gateway', vault_jwt: 'x', vault_auth_path: 'nowhere' },
      /answered 404.*vault_auth_path/,
    ],
    [
      'a member that the secret does not have',
      { secret_path: 'secret/data/there', secret_key: 'missing' },
      TOKEN,
      /key "missing".*correct secret_key/,
    ],
    ['no member named', { secret_path: 'secret/data/there', secret_key: null }, TOKEN, /say with secret_key/],
  ])(
    '%s is told with the reference, the manager and what to do: 503, and nothing reaches the provider',
    async (_title, more, auth, said) => {
      vault.put('secret/data/there', { api_key: 'sk-there-canary' });
      const name = await reference(more, auth);
      const { status, body } = await chat(await keyOf(name));
      expect(status).toBe(503);
      expect(body.error?.message).toMatch(said);
      expect(body.error?.message).toContain(name);
      expect(upstream.received).toEqual([]);
      const tested = await server.admin('POST', `/secret-references/${name}/test`);
      if (!('secret_key' in more))
        expect(tested.body).toMatchObject({ ok: false, problem: expect.stringMatching(said) });
      expect(JSON.stringify([body, tested.body])).not.toContain('canary');
    },
  );

  it('a deleted version is told as such', async () => {
    vault.secrets.set('secret/data/deleted', [{ data: null }]);
    const { status, body } = await chat(await keyOf(await reference({ secret_path: 'secret/data/deleted' })));
    expect([status, body.error?.message]).toEqual([503, expect.stringMatching(/answered 404.*deleted/)]);
  });

  it.each([
    ['hangs up', 'hang up' as const, /could not be reached/],
    ['is sealed', { status: 503, body: { errors: ['Vault is sealed'] } }, /answered 503.*unseal/],
    [
      'limits requests',
      { status: 429, body: { errors: ['rate limited'] }, headers: { 'retry-after': '7' } },
      /answered 429/,
    ],
    ['answers with a page', { status: 200, body: '<html>' }, /gave no secret/],
  ])(
    'a Vault that %s breaks its own accounts only, and is not asked again with every request',
    async (_title, instead, said) => {
      vault.put('secret/data/openai', { api_key: 'sk-from-vault-1' });
      const [broken, fallback] = [
        await keyOf(await reference()),
        await server.provider({ id: 'openai', host: `${upstream.url}/v1`, slug: `plain-${made}` }),
      ];
      vault.instead = instead;
      for (let i = 0; i < 3; i++) {
        const { status, body } = await chat(broken);
        expect([status, body.error?.message]).toEqual([503, expect.stringMatching(said)]);
      }
      expect(reads()).toBe(1);
      const config = JSON.stringify({
        strategy: { mode: 'fallback' },
        targets: [{ provider: `@${broken}` }, { provider: `@${fallback}` }],
      });
      const answer = await server.call('/chat/completions', CHAT, { 'x-gateway-config': config });
      expect(answer.status).toBe(200);
    },
  );
});
