/** AWS Signature Version 4 of a whole request. */
import { createHash, createHmac, createSecretKey, type Hash, type Hmac, type KeyObject } from 'node:crypto';

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

/** Of plain bytes Node finds out that they are no key object by two exceptions, which cost more than the digest. */
const keyOf = (secret: Data): string | KeyObject => {
  const plain = bytes(secret);
  return typeof plain === 'string' ? plain : createSecretKey(plain);
};

/** SHA-256, or HMAC with a secret, under the interface the signer wants. */
class Sha256 {
  readonly #hash: Hash | Hmac;
  constructor(secret?: Data) {
    this.#hash = secret === undefined ? createHash('sha256') : createHmac('sha256', keyOf(secret));
  }
  update(data: Data): void {
    this.#hash.update(bytes(data));
  }
  digest(): Promise<Uint8Array> {
    return Promise.resolve(this.#hash.digest());
  }
}

/**
 * The headers to send, the signature among them. The path of the URL must already be as it goes over the wire, each segment
 * encoded once: S3 signs it as it is, every other service encodes it once more, so that an ARN is one segment on both
 * sides. All headers are signed and the body is hashed: nothing goes out unsigned, which is why a body is whole.
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
  const { method, url, headers, body } = request;
  const made = await signer.sign(
    {
      method,
      protocol: url.protocol,
      hostname: url.hostname,
      path: url.pathname,
      query: Object.fromEntries(url.searchParams),
      headers: { host: url.host, ...headers },
      body: body ?? undefined,
    },
    { signingDate: new Date(now) },
  );
  // The socket's own layer writes `host` from the URL.
  const { host: _, ...rest } = made.headers;
  return rest;
}
