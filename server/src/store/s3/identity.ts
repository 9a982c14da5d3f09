/** The AWS identity of the machine: the keys that its platform lends to what runs there. */
import { text as readAll } from 'node:stream/consumers';
import type { Clock } from '../../kernel/clock.ts';
import type { Send, SendRequest } from '../../kernel/s3-client.ts';
import type { AwsKeys } from '../../kernel/sigv4.ts';
import { child, parseXml, textOfChild } from '../../kernel/xml.ts';

export interface IdentityOptions {
  readonly region: string;
  /** `amazonaws.com`, or that of the China regions. */
  readonly domain: string;
  readonly clock: Clock;
  readonly send: Send;
  /** An environment variable of the platform; undefined where it is not set. */
  readonly variable: (name: string) => string | undefined;
  /** The text of a file that such a variable names. */
  readonly file: (path: string) => Promise<string>;
}

interface Lent {
  readonly keys: AwsKeys;
  /** Milliseconds since the epoch. */
  readonly until: number;
}

/** Keys are renewed this long before they end: a long upload continues under those it began with. */
const EARLY_MS = 5 * 60_000;
/** The addresses of a platform answer at once or are not there. */
const NEAR_MS = 2_000;
const CONTAINERS = 'http://169.254.170.2';
const INSTANCE = 'http://169.254.169.254';

/**
 * Asks in the order of AWS: a token file with a role (clusters), the service of the container, the service of the
 * instance. Keys are kept until shortly before they end. The function rejects with an error that says what to set.
 */
export function machineIdentity(options: IdentityOptions): () => Promise<AwsKeys> {
  const { clock } = options;
  let kept: Lent | null = null;
  let asking: Promise<Lent> | null = null;
  return async () => {
    if (kept !== null && clock.now() < kept.until - EARLY_MS) return kept.keys;
    asking ??= ask(options).finally(() => {
      asking = null;
    });
    kept = await asking;
    return kept.keys;
  };
}

async function ask(options: IdentityOptions): Promise<Lent> {
  const { variable } = options;
  const token = variable('AWS_WEB_IDENTITY_TOKEN_FILE');
  const role = variable('AWS_ROLE_ARN');
  if (token && role) return webIdentity(options, token, role);
  const relative = variable('AWS_CONTAINER_CREDENTIALS_RELATIVE_URI');
  const container = relative ? CONTAINERS + relative : variable('AWS_CONTAINER_CREDENTIALS_FULL_URI');
  if (container) return fromContainer(options, container);
  if (variable('AWS_EC2_METADATA_DISABLED')?.toLowerCase() !== 'true') return fromInstance(options);
  throw new Error('there are no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY');
}

async function answered(options: IdentityOptions, request: SendRequest): Promise<string> {
  const { status, body } = await options.send(request);
  const text = await readAll(body);
  // What it says may quote a token.
  if (status !== 200) throw new Error(`${request.url.host} answered ${status} when asked for AWS credentials`);
  return text;
}

async function webIdentity(options: IdentityOptions, file: string, role: string): Promise<Lent> {
  const { region, domain, variable } = options;
  const url = new URL(variable('AWS_ENDPOINT_URL_STS') || `https://sts.${region}.${domain}/`);
  const form = new URLSearchParams({
    Action: 'AssumeRoleWithWebIdentity',
    Version: '2011-06-15',
    RoleArn: role,
    RoleSessionName: variable('AWS_ROLE_SESSION_NAME') || 'sluice',
    WebIdentityToken: (await options.file(file)).trim(),
  });
  const headers = { accept: 'application/xml', 'content-type': 'application/x-www-form-urlencoded; charset=utf-8' };
  const text = await answered(options, { method: 'POST', url, headers, body: Buffer.from(form.toString()) });
  const result = child(parseXml(text), 'AssumeRoleWithWebIdentityResult');
  const found = result === null ? null : child(result, 'Credentials');
  const field = (name: string) => (found === null ? null : textOfChild(found, name));
  return lent(field('AccessKeyId'), field('SecretAccessKey'), field('SessionToken'), field('Expiration'));
}

async function fromContainer(options: IdentityOptions, address: string): Promise<Lent> {
  const file = options.variable('AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE');
  const token = file ? (await options.file(file)).trim() : options.variable('AWS_CONTAINER_AUTHORIZATION_TOKEN');
  const headers: Record<string, string> = token ? { authorization: token } : {};
  return ofJson(await answered(options, near('GET', new URL(address), headers)));
}

/** Version 2 of the service only: a token comes first. */
async function fromInstance(options: IdentityOptions): Promise<Lent> {
  const base = options.variable('AWS_EC2_METADATA_SERVICE_ENDPOINT') || INSTANCE;
  const at = (path: string) => new URL(`/latest/${path}`, base);
  const ttl = { 'x-aws-ec2-metadata-token-ttl-seconds': '21600' };
  const token = { 'x-aws-ec2-metadata-token': await answered(options, near('PUT', at('api/token'), ttl)) };
  const roles = 'meta-data/iam/security-credentials/';
  const [role = ''] = (await answered(options, near('GET', at(roles), token))).split('\n');
  return ofJson(await answered(options, near('GET', at(roles + encodeURIComponent(role.trim())), token)));
}

function near(method: SendRequest['method'], url: URL, headers: Readonly<Record<string, string>>): SendRequest {
  return { method, url, headers, body: null, timeoutMs: NEAR_MS };
}

function ofJson(text: string): Lent {
  const found = JSON.parse(text) as Record<string, string | undefined>;
  return lent(found.AccessKeyId, found.SecretAccessKey, found.Token, found.Expiration);
}

function lent(...[id, secret, token, ends]: readonly (string | null | undefined)[]): Lent {
  if (!id || !secret || !token) throw new Error('the answer to the question for AWS credentials holds none');
  const until = Date.parse(ends ?? '');
  if (Number.isNaN(until)) throw new Error('the AWS credentials of this machine have no end');
  return { keys: { accessKeyId: id, secretAccessKey: secret, sessionToken: token }, until };
}
