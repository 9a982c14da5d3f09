/** The readers of the clouds' secret managers, and of variables and files, over sockets: only hosts lead elsewhere. */
import { generateKeyPairSync } from 'node:crypto';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { readSecretFile, type SecretsConfig, secretVariable } from '../../src/config.ts';
import { createFetcher, type Fetcher } from '../../src/http/background-fetcher.ts';
import { createEgressGuard } from '../../src/http/egress-guard.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { createTokenCache } from '../../src/providers/token-cache.ts';
import type { SecretManagers } from '../../src/resources/secret-references/manager.ts';
import { crc32c } from '../../src/secrets/crc32c.ts';
import { openSecretManagers } from '../../src/secrets/open.ts';
import type { SecretManagerType } from '../../src/store/schema.ts';
import { AWS, AZURE, type FakeClouds, GOOGLE, PLATFORM, startClouds } from '../support/secret-managers/clouds.ts';

const KEYS = generateKeyPairSync('rsa', {
  modulusLength: 2048,
  privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  publicKeyEncoding: { type: 'spki', format: 'pem' },
});
const ACCOUNT = { type: 'service_account', client_email: GOOGLE.email, private_key: KEYS.privateKey };
const [ONE, OTHER] = ['0196aaaa-0000-7000-8000-000000000001', '0196aaaa-0000-7000-8000-000000000002'];
const SECRETS = {
  plain: 'sk-plain-value',
  'team/with_signs+=.@-': 'sk-named-oddly',
  binary: Buffer.from('sk-of-bytes'),
  damaged: 'sk-damaged',
  deleted: null,
};

/** That the platform has put beside the server. */
const files = new Map<string, string>();
let clouds: FakeClouds;
let fetcher: Fetcher;
let managers: SecretManagers;
let dir: string;
let config: SecretsConfig;

beforeAll(async () => {
  clouds = await startClouds(SECRETS, KEYS.publicKey);
  dir = await mkdtemp(join(tmpdir(), 'sluice-secrets-'));
  await mkdir(join(dir, ONE, 'team'), { recursive: true });
  await mkdir(join(dir, OTHER));
  await writeFile(join(dir, ONE, 'team', 'key'), 'sk-of-a-file\n');
  await writeFile(join(dir, OTHER, 'key'), 'sk-of-the-other');
  await writeFile(join(dir, ONE, 'long'), 'x'.repeat(65 * 1024));
  await symlink(join(dir, OTHER, 'key'), join(dir, ONE, 'led-out'));
  await symlink(join(dir, ONE, 'team', 'key'), join(dir, ONE, 'led-within'));
  const trustedHosts = ['127.0.0.0/8'];
  const egress = createEgressGuard({ trustedHosts, ownListeners: () => [], clock: systemClock, log: silentLog });
  const real = createFetcher({ egress, clock: systemClock });
  fetcher = {
    ...real,
    send: (request) => {
      const headers = [...request.headers, 'original-host', request.url.host];
      return real.send({ ...request, headers, url: new URL(request.url.pathname + request.url.search, clouds.url) });
    },
  };
  config = {
    identity: [ONE],
    variables: [
      { organisation: ONE, name: 'TEAM_', prefix: true },
      { organisation: '*', name: 'SHARED_KEY', prefix: false },
      { organisation: '*', name: 'SLUICE_', prefix: true },
    ],
    dir,
    clusterToken: join(dir, 'no-token'),
  };
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await Promise.all([clouds?.stop(), fetcher?.close()]);
  await rm(dir, { recursive: true, force: true });
});
beforeEach(() => {
  clouds.instead = null;
  clouds.received.length = 0;
  clouds.assumed.length = 0;
  const egress = createEgressGuard({
    trustedHosts: ['127.0.0.0/8'],
    ownListeners: () => [],
    clock: systemClock,
    log: silentLog,
  });
  managers = openSecretManagers({
    fetcher,
    egress,
    clock: systemClock,
    tokens: createTokenCache(() => systemClock.now()),
    server: {
      identity: (id) =>
        config.identity.includes(id)
          ? { variable: (name) => process.env[name], file: async (path) => files.get(path) ?? '' }
          : null,
      variable: (id, name) => secretVariable(config, id, name),
      file: (id, path) => readSecretFile(config, id, path),
      clusterToken: async () => '',
    },
  });
});
afterEach(() => expect(clouds.faults.splice(0)).toEqual([]));

async function read(manager: SecretManagerType, path: string, auth: Record<string, string> = {}, organisationId = ONE) {
  const content = await managers.read({ organisationId, slug: 'ref', manager, path, auth });
  return 'text' in content ? content.text.reveal() : content.object;
}
const failing = (...given: Parameters<typeof read>) => read(...given).then(String, (error: Error) => error.message);

const accessKey = {
  aws_auth_type: 'accessKey',
  aws_region: AWS.region,
  aws_access_key_id: AWS.keys.accessKeyId,
  aws_secret_access_key: AWS.keys.secretAccessKey,
};
const entra = {
  azure_auth_mode: 'entra',
  azure_entra_tenant_id: AZURE.tenant,
  azure_entra_client_id: AZURE.client,
  azure_entra_client_secret: AZURE.secret,
  azure_vault_url: AZURE.vault,
};
const serviceAccount = { gcp_auth_type: 'serviceAccount', gcp_service_account_json: JSON.stringify(ACCOUNT) };
const secretOf = (name: string) => `${GOOGLE.project}/secrets/${name}`;

describe('AWS Secrets Manager', () => {
  it('gives texts and bytes, by name and by ARN, whose region comes first', async () => {
    expect(await read('aws_sm', 'plain', accessKey)).toBe('sk-plain-value');
    expect(await read('aws_sm', 'team/with_signs+=.@-', accessKey)).toBe('sk-named-oddly');
    expect(await read('aws_sm', 'binary', accessKey)).toBe('sk-of-bytes');
    const arn = `arn:aws:secretsmanager:${AWS.region}:123456789012:secret:plain`;
    expect(await read('aws_sm', arn, { ...accessKey, aws_region: 'us-east-1' })).toBe('sk-plain-value');
  });

  it('is asked as an assumed role, with an external id that is of the organisation alone unless it names one', async () => {
    const role = { ...accessKey, aws_auth_type: 'assumedRole', aws_role_arn: AWS.role };
    expect(await read('aws_sm', 'plain', role)).toBe('sk-plain-value');
    expect(await read('aws_sm', 'plain', role, OTHER)).toBe('sk-plain-value');
    await read('aws_sm', 'plain', { ...role, aws_external_id: 'agreed' });
    await read('aws_sm', 'plain', role);
    expect(clouds.assumed.map((form) => [form.get('RoleArn'), form.get('ExternalId')])).toEqual([
      [AWS.role, `sluice:${ONE}`],
      [AWS.role, `sluice:${OTHER}`],
      [AWS.role, 'agreed'],
    ]);
  });

  it('is asked as the server for organisations that the operator names, and not for others', async () => {
    vi.stubEnv('AWS_ACCESS_KEY_ID', AWS.keys.accessKeyId);
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', AWS.keys.secretAccessKey);
    const service = { aws_auth_type: 'serviceRole', aws_region: AWS.region };
    expect(await read('aws_sm', 'plain', service)).toBe('sk-plain-value');
    clouds.received.length = 0;
    expect(await failing('aws_sm', 'plain', service, OTHER)).toMatch(/server's own identity/);
    const role = { aws_auth_type: 'assumedRole', aws_region: AWS.region, aws_role_arn: AWS.role };
    expect(await failing('aws_sm', 'plain', role, OTHER)).toMatch(/server's own identity/);
    expect(clouds.received).toEqual([]);
  });

  it.each([
    [
      'another region',
      'plain',
      { aws_region: 'us-east-1' },
      /ResourceNotFoundException.*in the region us-east-1.*set aws_region/,
    ],
    ['no such secret', 'nothing', {}, /answered 400 \(ResourceNotFoundException\).*no such secret/],
    ['one that is deleted', 'deleted', {}, /InvalidRequestException/],
    ['no right', 'denied', {}, /AccessDeniedException.*GetSecretValue/],
    ['an unknown access key', 'plain', { aws_access_key_id: 'AKIDUNKNOWN' }, /UnrecognizedClientException/],
  ])('tells %s with what to do, and nothing that AWS wrote', async (_title, path, more, said) => {
    const message = await failing('aws_sm', path, { ...accessKey, ...more });
    expect(message).toMatch(said);
    expect(message).toMatch(/^The secret reference ref cannot be read: AWS Secrets Manager /);
    expect(message).not.toMatch(/canary|AKID/);
  });

  it('says when it limits requests', async () => {
    clouds.instead = { status: 400, body: { __type: 'ThrottlingException', message: 'Rate exceeded' } };
    expect(await failing('aws_sm', 'plain', accessKey)).toMatch(/ThrottlingException.*limits requests/);
  });
});

describe('Azure Key Vault', () => {
  it('gives the latest version or the one that is named, after one sign-in', async () => {
    const before = clouds.tokens.azure;
    expect(await read('azure_kv', 'plain', entra)).toBe('sk-plain-value');
    expect(await read('azure_kv', `plain/${'a'.repeat(32)}`, entra)).toBe('sk-plain-value');
    expect(clouds.tokens.azure - before).toBe(1);
  });

  it.each([
    ['no such secret', 'nothing', {}, /answered 404 \(SecretNotFound\)/],
    ['no such version', `plain/${'b'.repeat(32)}`, {}, /SecretNotFound/],
    ['no right', 'denied', {}, /answered 403 \(Forbidden\).*Key Vault Secrets User/],
    ['a wrong client secret', 'plain', { azure_entra_client_secret: 'wrong' }, /could not be signed in to/],
    ['an address that is no vault', 'plain', { azure_vault_url: 'https://evil.example' }, /address of a key vault/],
  ])('tells %s with what to do, and nothing that Azure wrote', async (_title, path, more, said) => {
    const message = await failing('azure_kv', path, { ...entra, ...more });
    expect(message).toMatch(said);
    expect(message).not.toMatch(/canary|wrong/);
  });

  it.each([
    ['managed', { IDENTITY_ENDPOINT: PLATFORM.endpoint, IDENTITY_HEADER: PLATFORM.header }],
    [
      'default',
      {
        AZURE_FEDERATED_TOKEN_FILE: '/federated',
        AZURE_TENANT_ID: AZURE.tenant,
        AZURE_CLIENT_ID: AZURE.client,
      },
    ],
  ])('is asked with the identity of the server, mode %s, for organisations that may borrow it', async (mode, given) => {
    onTestFinished(() => void vi.unstubAllEnvs());
    for (const [name, value] of Object.entries(given)) vi.stubEnv(name, value);
    files.set('/federated', `${PLATFORM.federated}\n`);
    const auth = { azure_auth_mode: mode, azure_vault_url: AZURE.vault };
    const before = clouds.tokens.azure;
    expect(await read('azure_kv', 'plain', auth)).toBe('sk-plain-value');
    expect(await read('azure_kv', 'plain', auth)).toBe('sk-plain-value');
    expect(clouds.tokens.azure - before).toBe(1);
  });

  it('is not asked with the identity of the server for organisations that may not borrow it', async () => {
    for (const mode of ['managed', 'default']) {
      const auth = { azure_auth_mode: mode, azure_vault_url: AZURE.vault };
      expect(await failing('azure_kv', 'plain', auth, OTHER)).toMatch(/SLUICE_SECRETS_IDENTITY/);
    }
    expect(clouds.received).toEqual([]);
  });
});

describe('Google Secret Manager', () => {
  it('gives the latest version or the one that is named, after one sign-in', async () => {
    const before = clouds.tokens.google;
    expect(await read('gcp_sm', secretOf('plain'), serviceAccount)).toBe('sk-plain-value');
    expect(await read('gcp_sm', `${secretOf('plain')}/versions/2`, serviceAccount)).toBe('sk-plain-value');
    expect(clouds.tokens.google - before).toBe(1);
    const there = `${GOOGLE.project}/locations/europe-west3/secrets/plain`;
    expect(await read('gcp_sm', there, serviceAccount)).toBe('sk-plain-value');
    expect(clouds.received.at(-1)?.headers['original-host']).toBe('secretmanager.europe-west3.rep.googleapis.com');
  });

  it.each([
    ['no such secret', secretOf('nothing'), /answered 404 \(NOT_FOUND\)/],
    ['no such version', `${secretOf('plain')}/versions/9`, /NOT_FOUND/],
    ['no right', secretOf('denied'), /PERMISSION_DENIED.*Secret Accessor/],
    ['a version that is destroyed', secretOf('destroyed'), /disabled or destroyed/],
    ['a secret that was damaged on its way', secretOf('damaged'), /damaged/],
  ])('tells %s with what to do, and nothing that Google wrote', async (_title, path, said) => {
    const message = await failing('gcp_sm', path, serviceAccount);
    expect(message).toMatch(said);
    expect(message).not.toMatch(/canary|sk-/);
  });

  it.each([
    ['itself', undefined],
    ['as a service account', PLATFORM.reader],
  ])('is asked with the federated identity of the server, %s', async (_title, service_account_impersonation_url) => {
    onTestFinished(() => void vi.unstubAllEnvs());
    vi.stubEnv('GOOGLE_APPLICATION_CREDENTIALS', '/account');
    files.set('/token', JSON.stringify({ id_token: PLATFORM.federated }));
    files.set(
      '/account',
      JSON.stringify({
        type: 'external_account',
        audience: PLATFORM.audience,
        subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
        credential_source: { file: '/token', format: { type: 'json', subject_token_field_name: 'id_token' } },
        service_account_impersonation_url,
      }),
    );
    const before = clouds.tokens.google;
    const auth = { gcp_auth_type: 'workloadIdentity' };
    expect(await read('gcp_sm', secretOf('plain'), auth)).toBe('sk-plain-value');
    expect(await read('gcp_sm', secretOf('plain'), auth)).toBe('sk-plain-value');
    expect(clouds.tokens.google - before).toBe(1);
  });

  it('is not asked with the identity of the server for organisations that may not borrow it', async () => {
    const auth = { gcp_auth_type: 'workloadIdentity' };
    expect(await failing('gcp_sm', secretOf('plain'), auth, OTHER)).toMatch(/SLUICE_SECRETS_IDENTITY/);
    expect(clouds.received).toEqual([]);
  });
});

describe('variables and files of the server', () => {
  it('are read by organisations that the operator names, and by no other', async () => {
    vi.stubEnv('TEAM_OPENAI', 'sk-of-the-team');
    vi.stubEnv('SHARED_KEY', 'sk-shared');
    expect(await read('env', 'TEAM_OPENAI')).toBe('sk-of-the-team');
    expect(await read('env', 'SHARED_KEY', {}, OTHER)).toBe('sk-shared');
    expect(await failing('env', 'TEAM_OPENAI', {}, OTHER)).toMatch(/SLUICE_SECRETS_ENV/);
    expect(await failing('env', 'PATH')).toMatch(/SLUICE_SECRETS_ENV/);
    expect(await read('file', 'team/key')).toBe('sk-of-a-file\n');
    expect(await read('file', 'led-within')).toBe('sk-of-a-file\n');
    expect(await failing('file', 'team/key', {}, OTHER)).toMatch(/SLUICE_SECRETS_DIR/);
  });

  it('never lead to settings of Sluice itself, whatever is allowed', async () => {
    vi.stubEnv('SLUICE_MASTER_KEY', 'master');
    vi.stubEnv('SLUICE_SECRET_OPENAI', 'sk-meant-for-it');
    expect(await failing('env', 'SLUICE_MASTER_KEY')).toMatch(
      /the server has no environment variable SLUICE_MASTER_KEY.*SLUICE_SECRETS_ENV/,
    );
    expect(await read('env', 'SLUICE_SECRET_OPENAI')).toBe('sk-meant-for-it');
  });

  it.each(['led-out', '../key', `../${OTHER}/key`, 'team', 'nothing', '/etc/hostname', 'long'])(
    'no file is read at %s',
    async (path) => {
      const message = await failing('file', path);
      expect(message).toMatch(/cannot be read/);
      expect(message).not.toMatch(/sk-|xxx/);
    },
  );
});

it('checksums are those of the standard', () => {
  expect(crc32c(Buffer.from('123456789'))).toBe(0xe3069283);
});

it('one organisation has a share of the reads under way, and leaves others theirs', async () => {
  const wait: (() => void)[] = [];
  let open = 0;
  let most = 0;
  const slow: Fetcher = {
    ...fetcher,
    send: async (request) => {
      open += 1;
      most = Math.max(most, open);
      await new Promise<void>((resolve) => wait.push(resolve));
      return fetcher.send(request).finally(() => {
        open -= 1;
      });
    },
  };
  const egress = createEgressGuard({ trustedHosts: [], ownListeners: () => [], clock: systemClock, log: silentLog });
  const server = { identity: () => null, variable: () => null, file: async () => null, clusterToken: async () => '' };
  const tokens = createTokenCache(() => systemClock.now());
  const shared = openSecretManagers({ fetcher: slow, egress, clock: systemClock, tokens, server });
  const asked = (organisationId: string) =>
    shared.read({ organisationId, slug: 'ref', manager: 'aws_sm', path: 'plain', auth: accessKey });
  const many = Array.from({ length: 60 }, () => asked(ONE));
  await vi.waitFor(() => expect(wait).toHaveLength(16));
  const other = asked(OTHER);
  await vi.waitFor(() => expect(wait).toHaveLength(17));
  wait.pop()?.();
  expect(await other).toMatchObject({ text: expect.anything() });
  const reads = Promise.all(many);
  for (let done = false; !done; ) {
    for (const go of wait.splice(0)) go();
    done = await Promise.race([reads.then(() => true), new Promise<boolean>((next) => setImmediate(next, false))]);
  }
  expect(most).toBe(17);
});

it('every manager that is away says so, and the secret of the reference is in no message', async () => {
  clouds.instead = 'hang up';
  const auth = Object.fromEntries(Object.entries({ ...accessKey }).map(([name, value]) => [name, new Secret(value)]));
  const given = { organisationId: ONE, slug: 'ref', manager: 'aws_sm', path: 'plain', auth } as const;
  await expect(managers.read(given)).rejects.toMatchObject({ kind: 'out_of_service' });
  for (const message of [
    await failing('aws_sm', 'plain', accessKey),
    await failing('azure_kv', 'plain', entra),
    await failing('gcp_sm', secretOf('plain'), serviceAccount),
  ]) {
    expect(message).toMatch(/could not be (?:reached|asked)/);
    expect(message).not.toMatch(/AKID|entra-secret|PRIVATE KEY/);
  }
});
