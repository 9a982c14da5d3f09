import { createPrivateKey, createVerify, generateKeyPairSync } from 'node:crypto';
import { Readable } from 'node:stream';
import { beforeEach, describe, expect, it } from 'vitest';
import type { JsonValue } from '../../kernel/json.ts';
import { Secret } from '../../kernel/secret.ts';
import { createTokenCache } from '../token-cache.ts';
import type { AdapterContext, AdapterRequest, AmbientIdentity } from '../training.ts';
import { googleToken, projectOf } from './credentials.ts';

const { privateKey, publicKey } = generateKeyPairSync('rsa', {
  modulusLength: 2048,
  privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  publicKeyEncoding: { type: 'spki', format: 'pem' },
});

const KEY_FILE = {
  type: 'service_account',
  project_id: 'project-of-key',
  private_key_id: 'key-1',
  private_key: privateKey,
  client_email: 'tuner@project-of-key.iam.gserviceaccount.com',
  token_uri: 'https://collector.example/token',
};

let now: number;
let calls: AdapterRequest[];
let answers: { readonly status: number; readonly body: JsonValue }[];

beforeEach(() => {
  now = 1_767_225_600_000;
  calls = [];
  answers = [];
});

function contextWith(
  settings: Record<string, unknown>,
  more: { readonly key?: string; readonly ambient?: AmbientIdentity } = {},
): AdapterContext {
  return {
    credentials: { key: more.key === undefined ? null : new Secret(more.key), settings },
    base: 'https://us-central1-aiplatform.googleapis.com/v1',
    customHost: false,
    call(request) {
      calls.push(request);
      const { status, body } = answers.shift() ?? { status: 500, body: {} };
      const text = JSON.stringify(body);
      return Promise.resolve({
        status,
        headers: {},
        text: () => Promise.resolve(text),
        json: () => Promise.resolve(body),
        stream: Readable.from([text]),
      });
    },
    header: () => undefined,
    dropParams: new Set(),
    now: () => now,
    uuid: () => 'uuid',
    tokens: createTokenCache(() => now),
    ...(more.ambient === undefined ? null : { ambient: more.ambient }),
  };
}

const formOf = (request: AdapterRequest | undefined): URLSearchParams => new URLSearchParams(String(request?.body));
const headersOf = (request: AdapterRequest | undefined): string[] => [...(request?.headers ?? [])];
const token = (value: string, seconds = 3600) => ({ status: 200, body: { access_token: value, expires_in: seconds } });

describe('a service account', () => {
  it('is exchanged with an assertion that its public key verifies, at the address of Google only', async () => {
    answers = [token('ya29.one')];
    const context = contextWith({ vertex_auth_type: 'serviceAccount', vertex_service_account_json: KEY_FILE });
    expect(await googleToken(context)).toBe('ya29.one');
    const [request] = calls;
    expect(request).toMatchObject({ method: 'POST', accountHeaders: false });
    expect(request?.url.href).toBe('https://oauth2.googleapis.com/token');
    const form = formOf(request);
    expect([...form.keys()]).toEqual(['grant_type', 'assertion']);
    expect(form.get('grant_type')).toBe('urn:ietf:params:oauth:grant-type:jwt-bearer');
    const [head = '', claims = '', signature = ''] = form.get('assertion')?.split('.') ?? [];
    const verified = createVerify('RSA-SHA256').update(`${head}.${claims}`).verify(publicKey, signature, 'base64url');
    expect(verified).toBe(true);
    expect(JSON.parse(Buffer.from(head, 'base64url').toString())).toEqual({ alg: 'RS256', typ: 'JWT', kid: 'key-1' });
    expect(JSON.parse(Buffer.from(claims, 'base64url').toString())).toEqual({
      iss: KEY_FILE.client_email,
      scope: 'https://www.googleapis.com/auth/cloud-platform',
      aud: 'https://oauth2.googleapis.com/token',
      iat: 1_767_225_600,
      exp: 1_767_229_200,
    });
  });

  it('is exchanged once for many calls, and again shortly before its token ends', async () => {
    answers = [token('one'), token('two')];
    // The way of signing in follows from the key file; headers give it as text.
    const context = contextWith({ vertex_service_account_json: JSON.stringify(KEY_FILE) });
    expect(await Promise.all([1, 2, 3].map(() => googleToken(context)))).toEqual(['one', 'one', 'one']);
    now += 54 * 60_000;
    expect(await googleToken(context)).toBe('one');
    now += 2 * 60_000;
    expect(await googleToken(context)).toBe('two');
    expect(calls).toHaveLength(2);
  });

  it('that Google refuses is a 401, one that it cannot judge now keeps its status', async () => {
    const context = contextWith({ vertex_service_account_json: KEY_FILE });
    answers = [{ status: 400, body: { error: 'invalid_grant', error_description: 'Invalid JWT Signature.' } }];
    await expect(googleToken(context)).rejects.toMatchObject({
      provider: { status: 401, type: 'authentication_error' },
    });
    answers = [{ status: 503, body: { error: 'backend_error' } }];
    await expect(googleToken(context)).rejects.toMatchObject({ provider: { status: 503 } });
  });

  it.each([
    ['no JSON', '{broken'],
    ['another kind of file', { ...KEY_FILE, type: 'authorized_user' }],
    ['no e-mail address', { ...KEY_FILE, client_email: 7 }],
    ['no key in PEM', { ...KEY_FILE, private_key: 'CANARY-KEY' }],
    [
      'a key of another form',
      { ...KEY_FILE, private_key: createPrivateKey(privateKey).export({ type: 'pkcs1', format: 'pem' }).toString() },
    ],
  ])('with %s is a 400 that names the setting and shows nothing of the key', async (_what, file) => {
    const context = contextWith({ vertex_auth_type: 'serviceAccount', vertex_service_account_json: file });
    const error = await googleToken(context).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ kind: 'invalid_request', param: 'vertex_service_account_json' });
    expect(String((error as Error).stack)).not.toMatch(/CANARY|BEGIN RSA/);
    expect(calls).toEqual([]);
  });

  it('names the project when no setting does', () => {
    const settings = { vertex_service_account_json: KEY_FILE };
    expect(projectOf({ key: null, settings })).toBe('project-of-key');
    expect(projectOf({ key: null, settings: { ...settings, vertex_project_id: 'mine' } })).toBe('mine');
  });
});

describe('other ways of signing in', () => {
  it('send the provider key itself as the token', async () => {
    expect(await googleToken(contextWith({ vertex_auth_type: 'basic' }, { key: 'ya29.key' }))).toBe('ya29.key');
    await expect(googleToken(contextWith({}))).rejects.toMatchObject({ kind: 'malformed_call' });
    await expect(googleToken(contextWith({ vertex_auth_type: 'other' }))).rejects.toMatchObject({
      kind: 'malformed_call',
    });
    expect(calls).toEqual([]);
  });

  const IMPERSONATION =
    'https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/tuner@p.iam.gserviceaccount.com:generateAccessToken';
  const ACCOUNT = {
    type: 'external_account',
    audience: '//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/k8s',
    subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
    token_url: 'https://collector.example/token',
    credential_source: { file: '/var/run/token' },
  };

  const lend = (account: unknown, subject = 'subject-token\n'): AmbientIdentity => ({
    variable: (name) => (name === 'GOOGLE_APPLICATION_CREDENTIALS' ? '/etc/google.json' : undefined),
    file: (path) => Promise.resolve(path === '/etc/google.json' ? JSON.stringify(account) : subject),
  });

  it('exchange the token of the workload, at the address of Google only', async () => {
    answers = [token('federated')];
    const context = contextWith({ vertex_auth_type: 'wif' }, { ambient: lend(ACCOUNT) });
    expect(await googleToken(context)).toBe('federated');
    expect(await googleToken(context)).toBe('federated');
    expect(calls).toHaveLength(1);
    expect(calls[0]?.url.href).toBe('https://sts.googleapis.com/v1/token');
    expect(Object.fromEntries(formOf(calls[0]))).toEqual({
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      audience: ACCOUNT.audience,
      scope: 'https://www.googleapis.com/auth/cloud-platform',
      requested_token_type: 'urn:ietf:params:oauth:token-type:access_token',
      subject_token: 'subject-token',
      subject_token_type: ACCOUNT.subject_token_type,
    });
  });

  it('act as a service account when the workload may', async () => {
    answers = [
      token('federated'),
      { status: 200, body: { accessToken: 'acting', expireTime: '2026-01-01T01:00:00Z' } },
    ];
    const format = { type: 'json', subject_token_field_name: 'id_token' };
    const account = {
      ...ACCOUNT,
      credential_source: { file: '/var/run/token', format },
      service_account_impersonation_url: IMPERSONATION,
    };
    const ambient = lend(account, JSON.stringify({ id_token: 'subject' }));
    expect(await googleToken(contextWith({ vertex_auth_type: 'wif' }, { ambient }))).toBe('acting');
    expect(formOf(calls[0]).get('subject_token')).toBe('subject');
    expect(calls[1]?.url.href).toBe(IMPERSONATION);
    expect(headersOf(calls[1])).toContain('Bearer federated');
  });

  it.each([
    ['the operator lends nothing', undefined],
    ['the file describes something else', lend(KEY_FILE)],
    ['the token comes from elsewhere', lend({ ...ACCOUNT, credential_source: { url: 'http://169.254.169.254/' } })],
    ['the token is empty', lend(ACCOUNT, '\n')],
    [
      'it would act as somebody at another address',
      lend({ ...ACCOUNT, service_account_impersonation_url: 'https://collector.example/x:generateAccessToken' }),
    ],
  ])('are refused without a call when %s', async (_why, ambient) => {
    const context = contextWith({ vertex_auth_type: 'wif' }, ambient === undefined ? {} : { ambient });
    await expect(googleToken(context)).rejects.toMatchObject({ kind: 'malformed_call', param: 'vertex_auth_type' });
    expect(calls).toEqual([]);
  });
});
