/** Where the server's own cloud identity goes: what it signs in with would let whoever receives it act as the server. */

import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { s3Send } from '../../src/providers/aws/s3.ts';
import { azureOpenAi } from '../../src/providers/azure-openai/azure-openai.ts';
import { bedrock } from '../../src/providers/bedrock/bedrock.ts';
import { bedrockCall } from '../../src/providers/bedrock/calls.ts';
import { googleHeaders } from '../../src/providers/google/credentials.ts';
import type { CallContext, Provider } from '../../src/providers/provider.ts';
import type { AccessContext, AdapterContext, AmbientIdentity } from '../../src/providers/training.ts';
import { vertexAi } from '../../src/providers/vertex-ai/vertex-ai.ts';
import { adapterContext } from '../support/adapter-context.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';
import { refusal } from '../training/support.ts';

const REGION = { aws_region: 'eu-central-1' };
const ROLE = { aws_auth_type: 'assumedRole', aws_role_arn: 'arn:aws:iam::123456789012:role/r' };
const CHAT = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };

const VARIABLES: Record<string, string> = {
  AWS_ACCESS_KEY_ID: 'AKIASERVER',
  AWS_SECRET_ACCESS_KEY: 'server-secret',
  AZURE_FEDERATED_TOKEN_FILE: '/token',
  IDENTITY_ENDPOINT: 'https://identity.example/msi/token',
  IDENTITY_HEADER: 'platform-secret',
  GOOGLE_APPLICATION_CREDENTIALS: '/google',
};
const EXTERNAL = {
  type: 'external_account',
  audience: '//iam.googleapis.com/pool',
  subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
  credential_source: { file: '/token' },
};
const AMBIENT: AmbientIdentity = {
  variable: (name) => VARIABLES[name],
  file: (path) => Promise.resolve(path === '/google' ? JSON.stringify(EXTERNAL) : 'subject'),
};
const TENANT = { azure_workload_tenant_id: 't', azure_workload_client_id: 'c' };
const ENTRA = { azure_entra_tenant_id: 't', azure_entra_client_id: 'c' };

/** Every way of signing in that uses what the server is. */
const WAYS: readonly [name: string, provider: Provider, settings: Record<string, unknown>][] = [
  ['AWS serviceRole', bedrock, { ...REGION, aws_auth_type: 'serviceRole' }],
  ['AWS assumedRole', bedrock, { ...REGION, ...ROLE, aws_sts_endpoint: 'https://sts.eu-central-1.amazonaws.com' }],
  ['Azure managed', azureOpenAi, { azure_auth_mode: 'managed' }],
  ['Azure workload', azureOpenAi, { azure_auth_mode: 'workload', ...TENANT }],
  ['Azure entraFederated', azureOpenAi, { azure_auth_mode: 'entraFederated', ...ENTRA }],
  ['Google wif', vertexAi, { vertex_auth_type: 'wif' }],
];

const STS = `<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
  <SessionToken>t</SessionToken></Credentials></AssumeRoleResult></AssumeRoleResponse>`;

/** Signs one call to `base`; what was asked of token endpoints, and what the call got. */
async function signedFor(provider: Provider, settings: Record<string, unknown>, base: string, trusted = false) {
  const asked: string[] = [];
  const made = adapterContext({ base, key: null, settings, trustedHost: trusted });
  const access: AccessContext = {
    ...made,
    ambient: AMBIENT,
    call({ url }) {
      asked.push(url.host);
      const text = url.host.startsWith('sts.eu') ? STS : JSON.stringify({ access_token: 'lent', expires_in: 3600 });
      return Promise.resolve({
        status: 200,
        headers: {},
        text: () => Promise.resolve(text),
        json: () => Promise.resolve(JSON.parse(text)),
      } as never);
    },
  };
  const context = { credentials: access.credentials, model: 'm', header: () => undefined } as unknown as CallContext;
  const headers: string[] = ['accept', 'application/json'];
  const request = {
    method: 'POST',
    origin: new URL(base).origin,
    path: '/x',
    headers,
    body: null,
    organisationId: 'o',
    storedCredential: true,
  };
  try {
    await provider.sign?.(context)?.(request, access);
  } finally {
    await made.close();
  }
  return { asked, headers: headers.join('\n') };
}

const ELSEWHERE = [
  'https://collector.example/v1',
  'https://amazonaws.com.collector.example',
  'https://ec2-1-2-3-4.eu-central-1.compute.amazonaws.com',
  'https://balancer.eu-central-1.elb.amazonaws.com',
  'https://abc.execute-api.eu-central-1.amazonaws.com',
  'https://vpce-1.vpce-svc-1.eu-central-1.vpce.amazonaws.com',
  'https://abc.lambda-url.eu-central-1.on.aws',
  'https://machine.westeurope.cloudapp.azure.com/openai/v1',
  'https://mine.westeurope.inference.ml.azure.com/v1',
  'https://azure.com.collector.example/openai/v1',
  'https://collector-aiplatform.example/v1',
  'https://mine.storage.googleapis.com',
  'https://aiplatform.googleapis.com.collector.example/v1',
];

describe.each(WAYS)('%s', (_name, provider, settings) => {
  it.each(ELSEWHERE)('is refused for %s before anything is asked', async (base) => {
    const signing = signedFor(provider, settings, base);
    expect(await refusal(() => signing)).toMatchObject({
      status: 400,
      message: expect.stringContaining('let the operator'),
    });
  });

  it('goes where the operator trusts the host', async () => {
    const { headers } = await signedFor(provider, settings, 'https://gateway.example/v1', true);
    expect(headers).toContain('authorization');
  });
});

describe('hosts of a cloud', () => {
  const [aws, , azure, , , google] = WAYS;
  it.each([
    [aws, 'https://bedrock.eu-central-1.amazonaws.com'],
    [aws, 'https://bedrock-runtime.us-gov-west-1.amazonaws.com'],
    [aws, 'https://bedrock-runtime-fips.us-east-1.amazonaws.com'],
    [aws, 'https://bedrock-runtime.cn-north-1.amazonaws.com.cn'],
    [aws, 'https://vpce-1-abc.bedrock-runtime.eu-central-1.vpce.amazonaws.com'],
    [aws, 'https://bedrock-runtime.eu-central-1.api.aws'],
    [azure, 'https://r.openai.azure.com/openai/v1'],
    [azure, 'https://r.openai.azure.us/openai/v1'],
    [azure, 'https://r.openai.azure.cn/openai/v1'],
    [azure, 'https://r.services.ai.azure.com/models'],
    [azure, 'https://r.cognitiveservices.azure.com/openai/v1'],
    [google, 'https://aiplatform.googleapis.com/v1'],
    [google, 'https://europe-west4-aiplatform.googleapis.com/v1'],
    [google, 'https://aiplatform.eu.rep.googleapis.com/v1'],
    [google, 'https://aiplatform-mine.p.googleapis.com/v1'],
  ])('%# are served', async (way, base) => {
    const [, provider, settings] = way ?? ['', bedrock, {}];
    expect((await signedFor(provider, settings, base)).headers).toContain('authorization');
  });

  it('do not include an STS of the account: a role is asked for with the identity of the server at AWS only', async () => {
    const settings = { ...REGION, ...ROLE, aws_sts_endpoint: 'https://sts.collector.example' };
    expect(
      await refusal(() => signedFor(bedrock, settings, 'https://bedrock.eu-central-1.amazonaws.com')),
    ).toMatchObject({
      status: 400,
      param: 'aws_auth_type',
    });
    const own = { ...settings, aws_access_key_id: 'AKIAOWN', aws_secret_access_key: 'own-secret' };
    await expect(signedFor(bedrock, own, 'https://bedrock.eu-central-1.amazonaws.com')).rejects.not.toMatchObject({
      param: 'aws_auth_type',
    });
  });
});

describe('files and jobs', () => {
  const SERVER = { ...REGION, aws_auth_type: 'serviceRole' };
  const place = { bucket: 'b', key: 'k' };
  it.each<[string, Record<string, unknown>, (context: AdapterContext) => Promise<unknown>]>([
    ['jobs', SERVER, (context) => bedrockCall(context, { method: 'GET', path: '/model-customization-jobs' })],
    [
      'files',
      { ...SERVER, aws_s3_endpoint: 'https://s3.collector.example' },
      (context) => s3Send(context, { method: 'GET', place }),
    ],
    ['objects of Google', { vertex_auth_type: 'wif' }, (context) => googleHeaders(context)],
  ])('are refused like calls of models: %s', async (_what, settings, send) => {
    const context = adapterContext({ base: 'https://collector.example', key: null, settings, trustedHost: false });
    expect(await refusal(() => send({ ...context, ambient: AMBIENT }))).toMatchObject({
      status: 400,
      message: expect.stringContaining("The server's own identity is sent to"),
    });
    expect(context.calls).toEqual([]);
    await context.close();
  });
});

describe('a gateway that lends its identity to stored accounts', () => {
  let server: TestServer;
  let upstream: FakeUpstream;
  let other: FakeUpstream;
  let accounts = 0;

  beforeAll(async () => {
    for (const [name, value] of Object.entries(VARIABLES)) vi.stubEnv(name, value);
    [upstream, other] = await Promise.all([startUpstream(() => undefined), startUpstream(() => undefined)]);
    // The second server is reachable, so that only the rule under test keeps calls away from it.
    const trusted = `127.0.0.1:${upstream.port},127.0.0.1:${other.port}`;
    server = await startServer({ SLUICE_TRUSTED_HOSTS: trusted, SLUICE_CLOUD_IDENTITY: 'true' });
  });
  afterAll(async () => {
    vi.unstubAllEnvs();
    await server?.stop();
    await Promise.all([upstream?.stop(), other?.stop()]);
  });
  beforeEach(() => {
    upstream.received.length = 0;
    other.received.length = 0;
  });

  const stored = (id: string, host: string, configurations: Record<string, unknown>, key: string | null = null) => {
    accounts += 1;
    return server.provider({ id, slug: `lent-${accounts}`, host, key, configurations });
  };
  const call = (slug: string, headers: Record<string, string> = {}) =>
    server.call('/chat/completions', CHAT, { 'x-gateway-provider': `@${slug}`, ...headers });

  it.each([
    ['bedrock', { ...REGION, aws_auth_type: 'serviceRole' }],
    ['bedrock', { ...REGION, ...ROLE }],
    ['vertex-ai', { vertex_auth_type: 'wif', vertex_region: 'us-central1', vertex_project_id: 'project' }],
  ])('refuses an account of %s with a host of its own: %o', async (id, configurations) => {
    const sts = { ...configurations, ...('aws_role_arn' in configurations ? { aws_sts_endpoint: other.url } : null) };
    const slug = await stored(id, 'https://collector.example', sts);
    const answer = await call(slug);
    expect(answer.status).toBe(400);
    expect(await answer.text()).toContain("The server's own identity is sent to");
    expect(other.received).toEqual([]);
  });

  it.each(['x-gateway-custom-host', 'config'])('takes no other host for a stored account by %s', async (where) => {
    const slug = await stored('bedrock', upstream.url, { ...REGION, aws_auth_type: 'serviceRole' });
    const host = 'https://collector.example';
    const config = JSON.stringify({ provider: `@${slug}`, custom_host: host });
    const answer = await call(slug, where === 'config' ? { 'x-gateway-config': config } : { [where]: host });
    expect(answer.status).toBe(400);
    expect(upstream.received).toEqual([]);
  });

  it.each([301, 302, 303, 307, 308])('follows no redirect with a signed call (%i)', async (status) => {
    const slug = await stored('bedrock', upstream.url, { ...REGION, aws_auth_type: 'serviceRole' });
    upstream.answer = (_request, response) =>
      void response.writeHead(status, { location: `${other.url}/elsewhere` }).end();
    const answer = await call(slug);
    expect(answer.status).toBe(502);
    expect(answer.headers.get('location')).toBeNull();
    expect(upstream.received).toHaveLength(1);
    expect(other.received).toEqual([]);
  });

  it('follows no redirect of a token endpoint', async () => {
    upstream.answer = (_request, response) => void response.writeHead(307, { location: `${other.url}/token` }).end();
    const slug = await stored('openai', other.url, {
      auth_type: 'oauthClientCredentials',
      oauth_token_endpoint: `${upstream.url}/token`,
      oauth_client_id: 'id',
      oauth_client_secret: 'client-secret',
    });
    other.answer = (_request, response) => sendJson(response, 200, {});
    expect((await call(slug)).status).toBe(401);
    expect(upstream.received).toHaveLength(1);
    expect(other.received).toEqual([]);
  });
});
