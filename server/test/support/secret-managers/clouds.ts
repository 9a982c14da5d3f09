/** The secret managers of AWS, Azure and Google with the token endpoints beside them, after their published definitions. */
import { createPublicKey, verify } from 'node:crypto';
import { crc32c } from '../../../src/secrets/crc32c.ts';
import { type AwsKeys, signatureFault } from '../sigv4.ts';
import type { Received } from '../upstream.ts';
import { members, must, type Reply, type StrictManager, startStrict } from './strict.ts';

export const AWS = {
  region: 'eu-central-1',
  keys: { accessKeyId: 'AKIDGATEWAY', secretAccessKey: 'aws-secret-of-the-gateway' },
  role: 'arn:aws:iam::123456789012:role/reads-secrets',
};
export const AZURE = {
  tenant: 'tenant-1',
  client: 'client-1',
  secret: 'entra-secret-1',
  vault: 'https://own-vault.vault.azure.net',
};
/** What the platform gives a server that runs on it. */
export const PLATFORM = {
  endpoint: 'http://127.0.0.9:42356/msi/token',
  header: 'header-of-the-platform',
  federated: 'token-that-the-cluster-gave',
  audience: '//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x',
  reader: 'https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/reader:generateAccessToken',
};
const ASSERTION = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer';
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const JWT = 'urn:ietf:params:oauth:token-type:jwt';
const CLOUD = 'https://www.googleapis.com/auth/cloud-platform';

export const GOOGLE = { project: 'projects/own-project', email: 'reader@own-project.iam.gserviceaccount.com' };

/** The host that a request was meant for: sockets lead here whatever it is. */
const hostOf = (request: Received): string => String(request.headers['original-host'] ?? '');
const asSent = (request: Received) => {
  const { 'original-host': host, ...headers } = request.headers;
  return { ...request, headers: { ...headers, host: String(host) } };
};

export interface FakeClouds extends StrictManager {
  /** What the role is assumed with. */
  readonly assumed: URLSearchParams[];
  readonly tokens: { azure: number; google: number };
}

/** Secrets by name: a text, or null for one that was deleted. */
export async function startClouds(
  secrets: Readonly<Record<string, string | Buffer | null>>,
  publicKey: string,
): Promise<FakeClouds> {
  const assumed: URLSearchParams[] = [];
  const tokens = { azure: 0, google: 0 };
  const session: AwsKeys = {
    accessKeyId: 'ASIDSESSION',
    secretAccessKey: 'session-secret',
    sessionToken: 'session-token',
  };

  function aws(request: Received, host: string): Reply {
    const service = host.startsWith('sts.') ? 'sts' : 'secretsmanager';
    const region = host.split('.')[1] ?? '';
    must(request.method === 'POST' && request.path === '/', `${request.method} ${request.path}`);
    const keys = service === 'sts' ? [AWS.keys] : [AWS.keys, session];
    const fault = signatureFault(asSent(request), { service, region, keys, now: Date.now });
    if (fault?.startsWith('unknown access key')) {
      return { status: 400, body: { __type: 'UnrecognizedClientException', message: `no ${fault}` } };
    }
    must(fault === null, String(fault));
    if (service === 'sts') {
      const form = new URLSearchParams(request.body.toString('utf8'));
      assumed.push(form);
      must(form.get('Action') === 'AssumeRole' && form.get('Version') === '2011-06-15', 'AssumeRole');
      const result = `<Credentials><AccessKeyId>${session.accessKeyId}</AccessKeyId><SecretAccessKey>${session.secretAccessKey}</SecretAccessKey><SessionToken>${session.sessionToken}</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>`;
      return {
        status: 200,
        body: `<AssumeRoleResponse><AssumeRoleResult>${result}</AssumeRoleResult></AssumeRoleResponse>`,
      };
    }
    must(request.headers['content-type'] === 'application/x-amz-json-1.1', 'content-type');
    must(request.headers['x-amz-target'] === 'secretsmanager.GetSecretValue', 'x-amz-target');
    const { SecretId: id, VersionStage: stage } = members(request, 'SecretId', 'VersionStage');
    must(stage === 'AWSCURRENT', 'VersionStage');
    const name = String(id).split(':secret:').at(-1) ?? '';
    if (name === 'denied')
      return { status: 400, body: { __type: 'AccessDeniedException', Message: 'canary of arn:aws:iam' } };
    const value = region === AWS.region ? secrets[name] : undefined;
    if (value === null) {
      return { status: 400, body: { __type: 'InvalidRequestException', Message: 'marked for deletion' } };
    }
    if (value === undefined)
      return { status: 400, body: { __type: 'ResourceNotFoundException', Message: "can't find" } };
    const content = Buffer.isBuffer(value) ? { SecretBinary: value.toString('base64') } : { SecretString: value };
    return { status: 200, body: { ARN: id, Name: name, VersionId: 'v', VersionStages: ['AWSCURRENT'], ...content } };
  }

  function azure(request: Received, url: URL, host: string): Reply {
    if (host === 'login.microsoftonline.com') {
      must(request.method === 'POST' && url.pathname === `/${AZURE.tenant}/oauth2/v2.0/token`, url.pathname);
      const form = new URLSearchParams(request.body.toString('utf8'));
      must(form.get('scope') === 'https://vault.azure.net/.default', `scope ${form.get('scope')}`);
      must(form.get('grant_type') === 'client_credentials' && form.get('client_id') === AZURE.client, 'grant');
      if (form.get('client_assertion') !== null) {
        must(form.get('client_assertion_type') === ASSERTION && !form.has('client_secret'), 'assertion type');
        must(form.get('client_assertion') === PLATFORM.federated, 'the token of the cluster');
      } else if (form.get('client_secret') !== AZURE.secret) {
        return { status: 401, body: { error: 'invalid_client', error_description: 'AADSTS7000215: canary' } };
      }
      tokens.azure += 1;
      return { status: 200, body: { token_type: 'Bearer', expires_in: 3599, access_token: 'azure-token' } };
    }
    must(request.method === 'GET' && url.search === '?api-version=7.4', `${request.method} ${url.search}`);
    if (request.headers.authorization !== 'Bearer azure-token')
      return { status: 401, body: { error: { code: 'Unauthorized' } } };
    const [, kind, name = '', version] = url.pathname.split('/');
    must(kind === 'secrets', url.pathname);
    if (name === 'denied') return { status: 403, body: { error: { code: 'Forbidden', message: 'canary' } } };
    const value = version === undefined || version === 'a'.repeat(32) ? secrets[name] : undefined;
    if (typeof value !== 'string')
      return { status: 404, body: { error: { code: 'SecretNotFound', message: 'canary' } } };
    return { status: 200, body: { value, id: `${AZURE.vault}/secrets/${name}/v`, attributes: { enabled: true } } };
  }

  function google(request: Received, url: URL, host: string): Reply {
    if (host === 'sts.googleapis.com') {
      must(request.method === 'POST' && url.pathname === '/v1/token', url.pathname);
      must(request.headers.authorization === undefined, 'no authorization');
      const form = new URLSearchParams(request.body.toString('utf8'));
      must(form.get('grant_type') === EXCHANGE && form.get('subject_token_type') === JWT, 'exchange');
      must(form.get('audience') === PLATFORM.audience && form.get('scope') === CLOUD, 'audience and scope');
      must(form.get('subject_token') === PLATFORM.federated, 'the token of the cluster');
      tokens.google += 1;
      return { status: 200, body: { access_token: 'federated-token', expires_in: 3599, token_type: 'Bearer' } };
    }
    if (host === 'iamcredentials.googleapis.com') {
      must(request.method === 'POST' && url.href.endsWith(new URL(PLATFORM.reader).pathname), url.pathname);
      must(request.headers.authorization === 'Bearer federated-token', 'authorization');
      const { scope, lifetime } = members(request, 'scope', 'lifetime');
      must(JSON.stringify(scope) === JSON.stringify([CLOUD]) && lifetime === '3600s', 'scope and lifetime');
      const expireTime = new Date(Date.now() + 3_600_000).toISOString();
      return { status: 200, body: { accessToken: 'google-token', expireTime } };
    }
    if (host === 'oauth2.googleapis.com') {
      must(request.method === 'POST' && url.pathname === '/token', url.pathname);
      const form = new URLSearchParams(request.body.toString('utf8'));
      must(form.get('grant_type') === 'urn:ietf:params:oauth:grant-type:jwt-bearer', 'grant_type');
      const [head = '', claims = '', signature = ''] = (form.get('assertion') ?? '').split('.');
      const said = JSON.parse(Buffer.from(claims, 'base64url').toString()) as Record<string, unknown>;
      must(said.aud === 'https://oauth2.googleapis.com/token' && said.iss === GOOGLE.email, 'claims');
      const signed = Buffer.from(`${head}.${claims}`);
      const held = verify('RSA-SHA256', signed, createPublicKey(publicKey), Buffer.from(signature, 'base64url'));
      if (!held) return { status: 400, body: { error: 'invalid_grant', error_description: 'Invalid JWT Signature.' } };
      tokens.google += 1;
      return { status: 200, body: { access_token: 'google-token', expires_in: 3599, token_type: 'Bearer' } };
    }
    must(request.method === 'GET', request.method);
    must(['Bearer google-token', 'Bearer federated-token'].includes(String(request.headers.authorization)), 'token');
    const [, name = '', version] =
      /^\/v1\/projects\/own-project(?:\/locations\/[^/]+)?\/secrets\/([^/]+)\/versions\/([^/]+):access$/.exec(
        url.pathname,
      ) ?? [];
    must(version !== undefined, url.pathname);
    if (name === 'denied') return { status: 403, body: { error: { status: 'PERMISSION_DENIED', message: 'canary' } } };
    if (name === 'destroyed')
      return { status: 400, body: { error: { status: 'FAILED_PRECONDITION', message: 'canary' } } };
    const value = version === 'latest' || version === '2' ? secrets[name] : undefined;
    if (typeof value !== 'string') return { status: 404, body: { error: { status: 'NOT_FOUND', message: 'canary' } } };
    const data = Buffer.from(value);
    const sum = name === 'damaged' ? 1 : crc32c(data);
    return { status: 200, body: { name, payload: { data: data.toString('base64'), dataCrc32c: String(sum) } } };
  }

  const made = await startStrict((request, url) => {
    const host = hostOf(request);
    if (host.endsWith('.amazonaws.com')) return aws(request, host);
    if (host.endsWith('googleapis.com')) return google(request, url, host);
    if (host === new URL(PLATFORM.endpoint).host) {
      must(request.method === 'GET' && url.pathname === '/msi/token', url.pathname);
      must(request.headers['x-identity-header'] === PLATFORM.header, 'x-identity-header');
      must(url.searchParams.get('resource') === 'https://vault.azure.net', 'resource');
      must(url.searchParams.get('api-version') === '2019-08-01', 'api-version');
      tokens.azure += 1;
      const ends = Math.floor(Date.now() / 1_000) + 3_599;
      return { status: 200, body: { token_type: 'Bearer', expires_on: String(ends), access_token: 'azure-token' } };
    }
    must(host === 'login.microsoftonline.com' || host === new URL(AZURE.vault).host, `host ${host}`);
    return azure(request, url, host);
  });
  return Object.defineProperties(made, { assumed: { value: assumed }, tokens: { value: tokens } }) as FakeClouds;
}
