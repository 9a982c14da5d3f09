import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exportSPKI, generateKeyPair, importSPKI, jwtVerify, SignJWT } from 'jose';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from '../support/upstream.ts';
import { type EntraServer, startEntra } from '../support/upstreams/azure-openai.ts';

/** Where Entra is reached in this file: its name is fixed, so only the socket leads elsewhere. */
const redirected = vi.hoisted(() => ({ entra: '' }));
vi.mock('../../src/http/background-fetcher.ts', async (original) => {
  const real = await original<typeof import('../../src/http/background-fetcher.ts')>();
  return {
    ...real,
    createFetcher(options: Parameters<typeof real.createFetcher>[0]) {
      const fetcher = real.createFetcher(options);
      return {
        ...fetcher,
        send(request: Parameters<typeof fetcher.send>[0]) {
          const { url } = request;
          if (url.origin !== 'https://login.microsoftonline.com') return fetcher.send(request);
          return fetcher.send({ ...request, url: new URL(url.pathname + url.search, redirected.entra) });
        },
      };
    },
  };
});

const ANSWER = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-4o-2024-08-06',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hello' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
};
const CHAT = { model: 'd', messages: [{ role: 'user', content: 'hi' }] };
const TENANT = 'tenant-1';
const SECRET = 'entra-client-secret';

let upstream: FakeUpstream;
let entra: EntraServer;
/** `lent`: its operator lets stored accounts use the identity of the server. */
let servers: Record<'lent' | 'own', TestServer>;
let dir: string;
let accounts = 0;

beforeAll(async () => {
  const { privateKey, publicKey } = await generateKeyPair('RS256', { extractable: true });
  const known = await importSPKI(await exportSPKI(publicKey), 'RS256');
  dir = await mkdtemp(join(tmpdir(), 'sluice-identity-'));
  const assertion = await new SignJWT({})
    .setProtectedHeader({ alg: 'RS256' })
    .setIssuer('https://cluster.example')
    .setSubject('system:serviceaccount:ai:gateway')
    .setAudience('api://AzureADTokenExchange')
    .setIssuedAt()
    .setExpirationTime('1h')
    .sign(privateKey);
  await writeFile(join(dir, 'token'), `${assertion}\n`);
  [upstream, entra] = await Promise.all([
    startUpstream(() => undefined),
    startEntra(TENANT, {
      verify: (text) =>
        jwtVerify(text, known, { issuer: 'https://cluster.example', audience: 'api://AzureADTokenExchange' }),
    }),
  ]);
  redirected.entra = entra.url;
  vi.stubEnv('AZURE_FEDERATED_TOKEN_FILE', join(dir, 'token'));
  vi.stubEnv('IDENTITY_ENDPOINT', `${entra.url}/msi/token`);
  vi.stubEnv('IDENTITY_HEADER', 'platform-secret');
  const trusted = { SLUICE_TRUSTED_HOSTS: '127.0.0.0/8' };
  servers = {
    lent: await startServer({ ...trusted, SLUICE_CLOUD_IDENTITY: 'true' }),
    own: await startServer(trusted),
  };
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await Promise.all([servers?.lent.stop(), servers?.own.stop(), upstream?.stop(), entra?.stop()]);
  await rm(dir, { recursive: true, force: true });
});
beforeEach(() => {
  upstream.answer = (_request, response) => sendJson(response, 200, ANSWER);
  upstream.received.length = 0;
  entra.received.length = 0;
  entra.lifetime = 4_000_000_000;
});
afterEach(() => expect(entra.faults.splice(0)).toEqual([]));

async function account(
  settings: Record<string, unknown>,
  { server = servers.lent, id = 'azure-openai' }: { server?: TestServer; id?: string } = {},
): Promise<string> {
  accounts += 1;
  return server.provider({
    id,
    slug: `azure-${accounts}`,
    host: `${upstream.url}/openai/v1`,
    key: null,
    configurations:
      id === 'azure-ai'
        ? { custom_host: undefined, azure_foundry_url: `${upstream.url}/openai/v1`, ...settings }
        : {
            azure_resource_name: 'r',
            azure_deployment_config: [
              { azure_api_version: 'v1', azure_deployment_name: 'd', azure_model_slug: 'gpt-4o' },
            ],
            ...settings,
          },
  });
}
const call = (slug: string, headers: Record<string, string> = {}, server = servers.lent) =>
  server.call('/chat/completions', CHAT, { 'x-gateway-provider': `@${slug}`, ...headers });
const last = (): Received => {
  const entry = upstream.received.at(-1);
  if (entry === undefined) throw new Error('the provider was not called');
  return entry;
};
const form = () => Object.fromEntries(new URLSearchParams(entra.received.at(-1)?.body.toString()));
const messageOf = async (answer: Response): Promise<string> => {
  const body = (await answer.json()) as { message?: string; error?: { message: string } };
  return body.error?.message ?? body.message ?? '';
};

let clients = 0;
/** Another client for each test: tokens are kept by client. */
const client = () => `client-${++clients}`;
const KINDS = {
  entra: () => ({
    azure_auth_mode: 'entra',
    azure_entra_tenant_id: TENANT,
    azure_entra_client_id: client(),
    azure_entra_client_secret: SECRET,
  }),
  managed: () => ({ azure_auth_mode: 'managed', azure_managed_client_id: client() }),
  workload: () => ({
    azure_auth_mode: 'workload',
    azure_workload_tenant_id: TENANT,
    azure_workload_client_id: client(),
  }),
  entraFederated: () => ({
    azure_auth_mode: 'entraFederated',
    azure_entra_tenant_id: TENANT,
    azure_entra_client_id: client(),
  }),
} as const;
const NAMES = Object.keys(KINDS) as (keyof typeof KINDS)[];

describe.each(NAMES)('azure_auth_mode %s', (kind) => {
  it('calls Azure with one token for fifty concurrent callers', async () => {
    const slug = await account(KINDS[kind]());
    const answers = await Promise.all(Array.from({ length: 50 }, () => call(slug)));
    expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(200));
    expect(entra.received).toHaveLength(1);
    const token = entra.tokens.at(-1);
    expect(new Set(upstream.received.map(({ headers }) => headers.authorization))).toEqual(
      new Set([`Bearer ${token}`]),
    );
    expect(upstream.received.some(({ headers }) => headers['api-key'] !== undefined)).toBe(false);
  });

  it('replaces a token that Azure refuses, once', async () => {
    const slug = await account(KINDS[kind]());
    upstream.answer = (_request, response) =>
      upstream.received.length === 1
        ? sendJson(response, 401, { error: { code: '401', message: 'token expired' } })
        : sendJson(response, 200, ANSWER);
    expect((await call(slug)).status).toBe(200);
    expect(entra.received).toHaveLength(2);
    expect(upstream.received).toHaveLength(2);
  });

  it('asks for a token of Foundry for an account of Foundry', async () => {
    const slug = await account(KINDS[kind](), { id: 'azure-ai' });
    expect((await call(slug)).status).toBe(200);
    const asked = entra.received.at(-1);
    expect(asked?.path + String(asked?.body)).toContain(encodeURIComponent('https://ai.azure.com'));
    expect(last().path).toBe('/openai/v1/chat/completions');
  });

  it('is shown masked by a dry run, which calls nothing', async () => {
    const slug = await account(KINDS[kind]());
    const answer = await call(slug, { 'x-gateway-dry-run': 'true' });
    expect(await answer.json()).toMatchObject({ request: { headers: { authorization: '***' } } });
    expect([...entra.received, ...upstream.received]).toEqual([]);
  });
});

describe('the identity of the server', () => {
  it.each(NAMES.filter((kind) => kind !== 'entra'))(
    'is not used for %s where the operator does not lend it',
    async (kind) => {
      const slug = await account(KINDS[kind](), { server: servers.own });
      const answer = await call(slug, {}, servers.own);
      expect(answer.status).toBe(503);
      expect(await messageOf(answer)).toContain('let the operator');
      expect([...entra.received, ...upstream.received]).toEqual([]);
    },
  );

  it.each(NAMES.filter((kind) => kind !== 'entra'))(
    'is never lent to a caller with settings of its own: %s',
    async (kind) => {
      const headers = Object.fromEntries(
        Object.entries(KINDS[kind]()).map(([name, value]) => [`x-gateway-${name.replaceAll('_', '-')}`, value]),
      );
      const answer = await servers.lent.call('/chat/completions', CHAT, {
        'x-gateway-provider': 'azure-openai',
        'x-gateway-custom-host': `${upstream.url}/openai/v1`,
        ...headers,
      });
      expect(answer.status).toBe(503);
      expect([...entra.received, ...upstream.received]).toEqual([]);
    },
  );

  it('is not to be had by headers beside a stored account either', async () => {
    const slug = await account(KINDS.entra());
    await call(slug, { 'x-gateway-azure-auth-mode': 'managed', 'x-gateway-azure-managed-client-id': 'other' });
    expect(form()).toMatchObject({ grant_type: 'client_credentials', client_secret: SECRET });
  });
});

describe('an app registration', () => {
  it('may be the caller’s own, by headers', async () => {
    const answer = await servers.own.call('/chat/completions', CHAT, {
      'x-gateway-provider': 'azure-openai',
      'x-gateway-custom-host': `${upstream.url}/openai/v1`,
      'x-gateway-azure-auth-mode': 'entra',
      'x-gateway-azure-entra-tenant-id': TENANT,
      'x-gateway-azure-entra-client-id': client(),
      'x-gateway-azure-entra-client-secret': 'callers-own-secret',
      'x-gateway-azure-entra-scope': 'https://ai.azure.com/.default',
    });
    expect(answer.status).toBe(200);
    expect(form()).toMatchObject({ client_secret: 'callers-own-secret', scope: 'https://ai.azure.com/.default' });
  });

  it('a token of the caller’s own is passed as it is', async () => {
    const answer = await servers.own.call('/chat/completions', CHAT, {
      'x-gateway-provider': 'azure-openai',
      'x-gateway-custom-host': `${upstream.url}/openai/v1`,
      'x-gateway-azure-ad-token': 'my-entra-token',
    });
    expect(answer.status).toBe(200);
    expect(last().headers.authorization).toBe('Bearer my-entra-token');
    expect(entra.received).toEqual([]);
  });

  it('is 401 in the dialect of the caller when Entra refuses it, and the secret is not told', async () => {
    const slug = await account(KINDS.entra());
    entra.refuse = { status: 401, error: 'invalid_client', description: `AADSTS7000215: ${SECRET} is wrong` };
    const answer = await call(slug);
    expect(answer.status).toBe(401);
    const text = await answer.text();
    expect(JSON.parse(text).error).toMatchObject({ code: 'invalid_api_key', type: 'authentication_error' });
    expect(text).toContain('AADSTS7000215');
    expect(text).not.toContain(SECRET);
    expect(upstream.received).toEqual([]);
  });

  it('is 502 when Entra is down, which another target answers for', async () => {
    const slug = await account(KINDS.entra());
    const spare = await account(KINDS.entra());
    entra.refuse = { status: 503, error: 'temporarily_unavailable', description: '' };
    const down = await call(slug);
    expect(down.status).toBe(502);
    entra.refuse = { status: 503, error: 'temporarily_unavailable', description: '' };
    const answer = await servers.lent.call('/chat/completions', CHAT, {
      'x-gateway-config': JSON.stringify({
        strategy: { mode: 'fallback' },
        targets: [{ provider: `@${slug}` }, { provider: `@${spare}` }],
      }),
    });
    expect(answer.status).toBe(200);
    expect(upstream.received).toHaveLength(1);
  });
});
