/** How accounts of AWS sign the calls of models: roles, the server's own identity, and sessions that end. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { signRequest } from '../../src/providers/aws/sign-request.ts';
import { adapterContext } from '../support/adapter-context.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { signatureFault } from '../support/sigv4.ts';
import {
  AWS_KEYS,
  BEDROCK_REGION,
  type BedrockUpstream,
  ROLE,
  ROLE_KEYS,
  startBedrock,
} from '../support/upstreams/bedrock.ts';
import { type BedrockRuntime, converseAnswer, startBedrockRuntime } from '../support/upstreams/bedrock-runtime.ts';

const CHAT = { model: 'amazon.nova-pro-v1:0', messages: [{ role: 'user', content: 'hi' }] };
const OWN = { aws_access_key_id: AWS_KEYS.accessKeyId, aws_secret_access_key: AWS_KEYS.secretAccessKey };

let runtime: BedrockRuntime;
let sts: BedrockUpstream;
let server: TestServer;
let accounts = 0;

beforeAll(async () => {
  vi.stubEnv('AWS_ACCESS_KEY_ID', AWS_KEYS.accessKeyId);
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', AWS_KEYS.secretAccessKey);
  [runtime, sts] = await Promise.all([startBedrockRuntime(), startBedrock({ now: () => Date.now() })]);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.0/8', SLUICE_CLOUD_IDENTITY: 'true' });
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await server?.stop();
  await Promise.all([runtime?.stop(), sts?.stop()]);
});
beforeEach(() => {
  runtime.calls.length = 0;
  runtime.failure = null;
  runtime.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
  sts.roles.length = 0;
});
afterEach(() => expect([...runtime.faults.splice(0), ...sts.faults.splice(0)]).toEqual([]));

/** A stored account with a role session of its own. */
async function account(configurations: Record<string, unknown>): Promise<Record<string, string>> {
  accounts += 1;
  const slug = await server.provider({
    id: 'bedrock',
    host: runtime.url,
    key: null,
    slug: `aws-${accounts}`,
    configurations: { aws_region: BEDROCK_REGION, aws_sts_endpoint: sts.url, ...configurations },
  });
  return { 'x-gateway-provider': `@${slug}` };
}
const role = () => ({ aws_auth_type: 'assumedRole', aws_role_arn: ROLE, aws_external_id: `tenant-${accounts}` });
const call = (headers: Record<string, string>) => server.call('/chat/completions', CHAT, headers);
const tokenOf = (at: number) => runtime.calls.at(at)?.request.headers['x-amz-security-token'];

describe('accounts of AWS', () => {
  it('assume their role once for concurrent calls, with keys of their own, and sign with its session', async () => {
    const via = await account({ ...role(), ...OWN });
    const answers = await Promise.all(Array.from({ length: 20 }, () => call(via)));
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(sts.roles).toHaveLength(1);
    expect(sts.roles[0]).toMatchObject({ Action: 'AssumeRole', RoleArn: ROLE });
    expect(new Set(runtime.calls.map((_, i) => tokenOf(i)))).toEqual(new Set([ROLE_KEYS.sessionToken]));
    expect((await call(via)).status).toBe(200);
    expect(sts.roles).toHaveLength(1);
  });

  it('assume it with the identity of the server where they have no keys', async () => {
    const via = await account(role());
    expect((await call(via)).status).toBe(200);
    expect(sts.roles).toHaveLength(1);
    expect(tokenOf(0)).toBe(ROLE_KEYS.sessionToken);
  });

  it('take a new session where the provider says that the old one is over, once', async () => {
    const via = await account({ ...role(), ...OWN });
    const over = { status: 403, name: 'ExpiredTokenException', message: 'The security token is expired' };
    runtime.failure = () => (runtime.calls.length === 1 ? over : null);
    expect((await call(via)).status).toBe(200);
    expect(runtime.calls).toHaveLength(2);
    expect(sts.roles).toHaveLength(2);
    runtime.failure = over;
    expect((await call(via)).status).toBe(403);
    expect(runtime.calls).toHaveLength(4);
  });

  it('say why a role cannot be assumed, and call no model', async () => {
    const via = await account({ ...role(), ...OWN, aws_external_id: 'wrong-id' });
    const answer = await call(via);
    expect(answer.status).toBe(403);
    expect(await answer.text()).toContain('The caller & role do not match');
    expect(runtime.calls).toEqual([]);
  });

  it('use the identity of the server only where they are stored', async () => {
    const via = await account({ aws_auth_type: 'serviceRole' });
    expect((await call(via)).status).toBe(200);
    expect(sts.roles).toEqual([]);
    const inline = await call({
      'x-gateway-provider': 'bedrock',
      'x-gateway-custom-host': runtime.url,
      'x-gateway-aws-region': BEDROCK_REGION,
      'x-gateway-aws-auth-type': 'serviceRole',
    });
    expect(inline.status).toBe(400);
    expect(await inline.text()).toContain("the server's own identity");
    expect(runtime.calls).toHaveLength(1);
  });

  it('never show the session of a role, whatever the provider echoes', async () => {
    const via = await account({ ...role(), ...OWN });
    const { accessKeyId, sessionToken = '' } = ROLE_KEYS;
    runtime.failure = { status: 400, name: 'ValidationException', message: `bad ${accessKeyId} ${sessionToken}` };
    const text = await (await call(via)).text();
    expect(text).toContain('bad');
    expect(text).not.toContain(sessionToken);
    expect(text).not.toContain(accessKeyId);
  });

  it('exchange the token of a cluster for a session, at the public STS only', async () => {
    const context = adapterContext({
      base: runtime.url,
      key: null,
      settings: { aws_auth_type: 'serviceRole', aws_region: BEDROCK_REGION, aws_sts_endpoint: 'http://127.0.0.1:1' },
      redirect: { [`sts.${BEDROCK_REGION}.amazonaws.com`]: sts.url },
    });
    const variables: Record<string, string> = {
      AWS_WEB_IDENTITY_TOKEN_FILE: '/var/run/token',
      AWS_ROLE_ARN: ROLE,
    };
    const ambient = {
      variable: (name: string) => variables[name],
      file: (path: string) => Promise.resolve(`token of ${path}`),
    };
    const path = '/model/arn%3Aaws%3Abedrock%3Ax%2Fy/converse';
    const headers = ['content-type', 'application/json'];
    const body = [Buffer.from('{"a":'), Buffer.from('1}')];
    const wire = {
      method: 'POST',
      origin: runtime.url,
      path,
      headers,
      body,
      organisationId: 'o',
      storedCredential: true,
    };
    const secrets = await signRequest('bedrock')(wire, { ...context, ambient });
    await context.close();
    expect(sts.roles).toMatchObject([
      { Action: 'AssumeRoleWithWebIdentity', WebIdentityToken: 'token of /var/run/token' },
    ]);
    expect(secrets).toContain(ROLE_KEYS.sessionToken);
    const sent: Record<string, string> = { host: new URL(runtime.url).host };
    for (let i = 0; i < headers.length; i += 2) sent[headers[i] ?? ''] = headers[i + 1] ?? '';
    const signed = { method: 'POST', path, headers: sent, body: Buffer.concat(body) };
    expect(signatureFault(signed, { service: 'bedrock', region: BEDROCK_REGION, keys: [ROLE_KEYS] })).toBeNull();
  });
});
