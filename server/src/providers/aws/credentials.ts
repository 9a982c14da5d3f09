import { SluiceError } from '../../kernel/errors.ts';
import type { Secret } from '../../kernel/secret.ts';
import { child, parseXml, textOfChild, type XmlElement } from '../../kernel/xml.ts';
import { ambientFor, type CloudHosts } from '../ambient.ts';
import type { Credentials } from '../provider.ts';
import { textSetting } from '../settings.ts';
import type { AccessContext } from '../training.ts';
import { awsFailure } from './errors.ts';
import { AWS_HOSTS, awsRegion, domainOf, endpointOf } from './settings.ts';
import { type AwsKeys, sha256Hex, signed } from './sign.ts';

/** How calls of an account are authorised: by signature, or with a bearer key that only Bedrock itself knows. */
export type AwsAuth = { readonly keys: AwsKeys } | { readonly bearer: Secret };

const AWS: CloudHosts = {
  hosts: AWS_HOSTS,
  title: 'AWS',
  param: 'aws_auth_type',
  instead: 'use aws_auth_type accessKey, or a role with an access key of the account,',
};
const HOUR_MS = 3_600_000;

function missing(message: string, param: string | null = null): SluiceError {
  return new SluiceError('invalid_request', message, { param });
}

/** Keys in the account's own settings, or null when it has none. */
function ownKeys(context: AccessContext): AwsKeys | null {
  const accessKeyId = textSetting(context.credentials, 'aws_access_key_id');
  const secretAccessKey = textSetting(context.credentials, 'aws_secret_access_key');
  const sessionToken = textSetting(context.credentials, 'aws_session_token');
  if (accessKeyId === undefined && secretAccessKey === undefined) return null;
  if (accessKeyId === undefined || secretAccessKey === undefined) {
    throw missing('An AWS access key has two halves; set both aws_access_key_id and aws_secret_access_key.');
  }
  return { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? null : { sessionToken }) };
}

/** The kind of an account; without `aws_auth_type` what is there decides. */
export function awsAuthType(credentials: Credentials): string {
  const given = textSetting(credentials, 'aws_auth_type');
  if (given !== undefined) return given;
  if (textSetting(credentials, 'aws_role_arn') !== undefined) return 'assumedRole';
  return textSetting(credentials, 'aws_access_key_id') === undefined ? 'apiKey' : 'accessKey';
}

/**
 * The account's authorisation: `accessKey` has keys, `assumedRole` exchanges its own keys or else the server's for
 * those of a role, `serviceRole` uses the server's, `apiKey` a Bedrock key. What comes of the server's identity may only
 * go to AWS and to hosts that the operator trusts: `to` is the address of the call.
 */
export async function awsAuth(context: AccessContext, to: string): Promise<AwsAuth> {
  const { key } = context.credentials;
  const type = awsAuthType(context.credentials);
  switch (type) {
    case 'accessKey': {
      const keys = ownKeys(context);
      if (keys === null)
        throw missing('The AWS account has no access key; set aws_access_key_id and aws_secret_access_key.');
      return { keys };
    }
    case 'assumedRole':
      return { keys: await assumedRole(context, to) };
    case 'serviceRole':
      return { keys: await serverKeys(context, to) };
    case 'apiKey':
      if (key === null) {
        throw missing('The AWS account has no credential; set an access key, a role, or a Bedrock API key as its key.');
      }
      return { bearer: key };
    default:
      throw missing(
        `aws_auth_type ${JSON.stringify(type.slice(0, 60))} is not known; use accessKey, assumedRole, serviceRole or apiKey.`,
        'aws_auth_type',
      );
  }
}

/** Keys for S3, which knows signatures only. */
export async function awsKeys(context: AccessContext, to: string): Promise<AwsKeys> {
  const auth = await awsAuth(context, to);
  if ('keys' in auth) return auth.keys;
  throw new SluiceError(
    'invalid_request',
    'A Bedrock API key does not open S3, where files lie; use an account with aws_auth_type accessKey, assumedRole or serviceRole.',
    { param: 'aws_auth_type' },
  );
}

/** Cache key of an exchange. The secrets are part of it: knowing an access key id must not give another's session. */
const exchangeKey = (kind: string, parts: readonly (string | undefined)[]): string =>
  `aws:${kind}:${sha256Hex(JSON.stringify(parts.map((part) => part ?? null)))}`;

async function assumedRole(context: AccessContext, to: string): Promise<AwsKeys> {
  const role = textSetting(context.credentials, 'aws_role_arn');
  if (role === undefined) throw missing('The AWS account names no role; set aws_role_arn.', 'aws_role_arn');
  const externalId = textSetting(context.credentials, 'aws_external_id');
  const region = awsRegion(context);
  const endpoint = endpointOf('sts', context);
  const source = ownKeys(context) ?? (await serverKeys(context, to, endpoint));
  const key = exchangeKey('role', [
    endpoint,
    region,
    source.accessKeyId,
    source.secretAccessKey,
    source.sessionToken,
    role,
    externalId,
  ]);
  return context.tokens.get(key, async () => {
    const form = new URLSearchParams({
      Action: 'AssumeRole',
      Version: '2011-06-15',
      RoleArn: role,
      RoleSessionName: 'sluice',
      DurationSeconds: '3600',
    });
    if (externalId !== undefined) form.set('ExternalId', externalId);
    const request = await signed(stsRequest(endpoint, form), source, { service: 'sts', region }, context.now());
    return sessionOf(context, await answered(context, request), 'AssumeRoleResult');
  });
}

function stsRequest(endpoint: string, form: URLSearchParams) {
  return {
    method: 'POST' as const,
    url: new URL(`${endpoint}/`),
    headers: ['accept', 'application/xml', 'content-type', 'application/x-www-form-urlencoded; charset=utf-8'],
    body: Buffer.from(form.toString()),
    accountHeaders: false,
    shared: true,
  };
}

async function answered(context: AccessContext, request: Parameters<AccessContext['call']>[0]): Promise<XmlElement> {
  const answer = await context.call(request);
  if (answer.status !== 200) throw await awsFailure(answer);
  return parseXml(await answer.text(256 * 1024));
}

/** The temporary keys inside an STS answer. */
function sessionOf(
  context: AccessContext,
  root: XmlElement,
  result: string,
): { readonly value: AwsKeys; readonly expiresAt: number } {
  const found = child(root, result);
  const credentials = found === null ? null : child(found, 'Credentials');
  const accessKeyId = credentials === null ? null : textOfChild(credentials, 'AccessKeyId');
  const secretAccessKey = credentials === null ? null : textOfChild(credentials, 'SecretAccessKey');
  const sessionToken = credentials === null ? null : textOfChild(credentials, 'SessionToken');
  if (credentials === null || !accessKeyId || !secretAccessKey || !sessionToken) {
    throw new SluiceError('upstream_invalid', 'The answer of AWS STS holds no credentials.');
  }
  const expires = Date.parse(textOfChild(credentials, 'Expiration') ?? '');
  return {
    value: { accessKeyId, secretAccessKey, sessionToken },
    expiresAt: Number.isNaN(expires) ? context.now() + HOUR_MS : expires,
  };
}

/**
 * Keys of the server's own identity: from its environment, or from the identity token that a cluster puts into a file.
 * Instance and container metadata services are not asked: their addresses are closed for every call of this server, so
 * that no account can read them.
 */
async function serverKeys(context: AccessContext, ...to: readonly string[]): Promise<AwsKeys> {
  for (const url of to) ambientFor(context, url, AWS);
  const { ambient } = context;
  if (ambient === undefined) {
    throw missing(
      "The AWS account needs the server's own identity, which this request may not use; store an account with aws_auth_type accessKey, or let the operator allow it for stored accounts.",
      'aws_auth_type',
    );
  }
  const accessKeyId = ambient.variable('AWS_ACCESS_KEY_ID');
  const secretAccessKey = ambient.variable('AWS_SECRET_ACCESS_KEY');
  const sessionToken = ambient.variable('AWS_SESSION_TOKEN');
  if (accessKeyId && secretAccessKey) {
    return { accessKeyId, secretAccessKey, ...(sessionToken ? { sessionToken } : null) };
  }
  const file = ambient.variable('AWS_WEB_IDENTITY_TOKEN_FILE');
  const role = ambient.variable('AWS_ROLE_ARN');
  if (!file || !role) {
    throw missing(
      'The server has no AWS identity. Its operator can set AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN.',
      'aws_auth_type',
    );
  }
  const region = awsRegion(context);
  // Never an endpoint that the account names: the receiver of this token is the server.
  const endpoint = `https://sts.${region}.${domainOf(region)}`;
  return context.tokens.get(exchangeKey('web-identity', [endpoint, file, role]), async () => {
    const form = new URLSearchParams({
      Action: 'AssumeRoleWithWebIdentity',
      Version: '2011-06-15',
      RoleArn: role,
      RoleSessionName: ambient.variable('AWS_ROLE_SESSION_NAME') || 'sluice',
      DurationSeconds: '3600',
      WebIdentityToken: (await ambient.file(file)).trim(),
    });
    const root = await answered(context, stsRequest(endpoint, form));
    return sessionOf(context, root, 'AssumeRoleWithWebIdentityResult');
  });
}
