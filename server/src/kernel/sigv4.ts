/** AWS Signature Version 4 of a whole request. */
import { createHash } from 'node:crypto';
import { digestInTurns, isLongDigest } from './digest.ts';

/** Keys of an AWS identity; temporary ones carry a session token. */
export interface AwsKeys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

export interface AwsScope {
  readonly service: 'bedrock' | 's3' | 'secretsmanager' | 'sts';
  readonly region: string;
}

/**
 * The headers to send, the signature among them. The path of the URL must already be as it goes over the wire, each segment
 * encoded once: S3 signs it as it is, every other service encodes it once more, so that an ARN is one segment on both
 * sides. All headers but `range` are signed and the body is hashed: nothing goes out unsigned, which is why a body is whole.
 * Names of headers are in lower case.
 */
export async function awsSigned(
  request: {
    readonly method: string;
    readonly url: URL;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: Buffer | null;
  },
  keys: AwsKeys,
  scope: AwsScope,
  now: number,
): Promise<Record<string, string>> {
  const { RequestSigner } = (await import('aws4')).default;
  const { method, url, headers, body } = request;
  const stamp = new Date(now).toISOString().replace(/[:-]|\.\d{3}/g, '');
  const all: Record<string, string> = { ...headers, 'x-amz-date': stamp };
  if (keys.sessionToken !== undefined) all['x-amz-security-token'] = keys.sessionToken;
  // Every service takes the digest from the header: of a long body it is made in turns, which the signer would not.
  if (isLongDigest(body?.length ?? 0)) all['x-amz-content-sha256'] ??= await longSha256(body ?? EMPTY);
  else if (scope.service === 's3') all['x-amz-content-sha256'] ??= sha256(body ?? '');
  const signer = new RequestSigner(
    {
      ...scope,
      method,
      host: url.host,
      path: url.pathname + url.search,
      headers: { host: url.host, ...all },
      body: body ?? '',
      // It would add its own type and length.
      doNotModifyHeaders: true,
    },
    keys,
  );
  // The signer takes the time from the header only when it may change headers.
  Object.assign(signer, { datetime: stamp });
  // The socket's own layer writes `host` from the URL.
  return { ...all, authorization: signer.authHeader() };
}

const EMPTY = Buffer.alloc(0);
const longSha256 = async (body: Buffer): Promise<string> =>
  (await digestInTurns(createHash('sha256'), [body])).toString('hex');
const sha256 = (body: Buffer | string): string => createHash('sha256').update(body).digest('hex');
