import { createHash, createHmac, type Hash, type Hmac } from 'node:crypto';
import type { AdapterRequest } from '../training.ts';

/** Keys of an AWS identity; temporary ones carry a session token. */
export interface AwsKeys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

export interface AwsScope {
  readonly service: 'bedrock' | 's3' | 'sts';
  readonly region: string;
}

type Data = string | ArrayBuffer | ArrayBufferView;
const bytes = (data: Data): string | Uint8Array =>
  typeof data === 'string'
    ? data
    : ArrayBuffer.isView(data)
      ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
      : new Uint8Array(data);

/** SHA-256, or HMAC with a secret, under the interface the signer wants. */
class Sha256 {
  readonly #hash: Hash | Hmac;
  constructor(secret?: Data) {
    this.#hash = secret === undefined ? createHash('sha256') : createHmac('sha256', bytes(secret));
  }
  update(data: Data): void {
    this.#hash.update(bytes(data));
  }
  digest(): Promise<Uint8Array> {
    return Promise.resolve(this.#hash.digest());
  }
}

export const sha256Hex = (body: Buffer | string): string => createHash('sha256').update(body).digest('hex');

/**
 * The request with Signature V4. Its path must already be as it goes over the wire, each segment encoded once: S3 signs
 * it as it is, every other service encodes it once more, so that an ARN is one segment on both sides. All of its headers
 * are signed and the body is hashed: nothing goes out unsigned, which is why a body is a buffer and never a stream.
 */
export async function signed(
  request: Omit<AdapterRequest, 'body'> & { readonly body: Buffer | null },
  keys: AwsKeys,
  scope: AwsScope,
  now: number,
): Promise<AdapterRequest> {
  const { SignatureV4 } = await import('@smithy/signature-v4');
  const s3 = scope.service === 's3';
  const signer = new SignatureV4({
    credentials: keys,
    region: scope.region,
    service: scope.service,
    sha256: Sha256,
    uriEscapePath: !s3,
    applyChecksum: s3,
  });
  const { url } = request;
  const headers: Record<string, string> = { host: url.host };
  for (let i = 0; i < request.headers.length; i += 2) headers[request.headers[i] ?? ''] = request.headers[i + 1] ?? '';
  const made = await signer.sign(
    {
      method: request.method,
      protocol: url.protocol,
      hostname: url.hostname,
      path: url.pathname,
      query: Object.fromEntries(url.searchParams),
      headers,
      body: request.body ?? undefined,
    },
    { signingDate: new Date(now) },
  );
  // The socket's own layer writes `host` from the URL.
  const flat = Object.entries(made.headers).flatMap(([name, value]) => (name === 'host' ? [] : [name, value]));
  return { ...request, headers: flat };
}
