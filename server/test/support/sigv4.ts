import { createHash, createHmac } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** Long-lived or temporary keys a fake accepts. */
export interface AwsKeys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
}

export interface SignedRequest {
  readonly method: string;
  /** Path and query as they came over the wire. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** The whole body; null when it is checked elsewhere by its `x-amz-content-sha256` (streams). */
  readonly body: Buffer | null;
}

const AUTHORIZATION =
  /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([a-z0-9-]+)\/([a-z0-9-]+)\/aws4_request, ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$/;

const hex = (data: Buffer | string): string => createHash('sha256').update(data).digest('hex');
const hmac = (key: Buffer, data: string): Buffer => createHmac('sha256', key).update(data).digest();
const encoded = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

/** Headers that belong to a signature whenever they are sent. */
const mustSign = (name: string): boolean =>
  name === 'host' || name === 'content-type' || name === 'content-md5' || name.startsWith('x-amz-');

/**
 * Checks Signature V4 of a request, written after the specification: another implementation than the product's. Null when it holds, else what is
 * wrong with it.
 */
export function signatureFault(
  request: SignedRequest,
  expected: {
    readonly service: string;
    readonly region: string;
    readonly keys: readonly AwsKeys[];
    now?: () => number;
  },
): string | null {
  const found = AUTHORIZATION.exec(request.headers.authorization ?? '');
  if (found === null) return `no signature: ${request.headers.authorization?.slice(0, 40) ?? 'no authorization'}`;
  const [, id = '', day, region = '', service = '', list = ''] = found;
  if (region !== expected.region || service !== expected.service)
    return `signed for ${service} in ${region} instead of ${expected.service} in ${expected.region}`;
  const keys = expected.keys.find((one) => one.accessKeyId === id);
  if (keys === undefined) return `unknown access key ${id}`;
  const date = String(request.headers['x-amz-date'] ?? '');
  if (!/^\d{8}T\d{6}Z$/.test(date) || date.slice(0, 8) !== day) return `x-amz-date ${date} does not fit the scope`;
  if (expected.now !== undefined) {
    const iso = date.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, '$1-$2-$3T$4:$5:$6Z');
    if (Math.abs(Date.parse(iso) - expected.now()) > 5 * 60_000) return `clock skew: ${date}`;
  }
  if (request.headers['x-amz-security-token'] !== keys.sessionToken) return 'wrong session token';
  const signed = list.split(';');
  const unsigned = Object.keys(request.headers).filter((name) => mustSign(name) && !signed.includes(name));
  if (unsigned.length > 0) return `unsigned headers ${unsigned.join(', ')}`;
  const payload = request.headers['x-amz-content-sha256'];
  if (expected.service === 's3' && payload === undefined) return 'x-amz-content-sha256 is missing';
  if (request.body !== null && typeof payload === 'string' && /^[0-9a-f]{64}$/.test(payload)) {
    if (createHash('sha256').update(request.body).digest('hex') !== payload) return 'the body does not fit its hash';
  }
  const lines: string[] = [];
  for (const name of signed) {
    const value = request.headers[name];
    if (value === undefined) return `signed header ${name} was not sent`;
    lines.push(`${name}:${String(value).trim().replace(/ +/g, ' ')}\n`);
  }
  const [path = '', query = ''] = request.path.split('?');
  const canonical = [
    request.method,
    service === 's3' ? path : path.split('/').map(encoded).join('/'),
    query
      .split('&')
      .filter((pair) => pair !== '')
      .map((pair) => (pair.includes('=') ? pair : `${pair}=`))
      .map((pair) => pair.split('=').map((part) => encoded(decodeURIComponent(part.replaceAll('+', ' ')))))
      .sort(([one = ''], [other = '']) => (one < other ? -1 : 1))
      .map((pair) => pair.join('='))
      .join('&'),
    lines.join(''),
    list,
    typeof payload === 'string' ? payload : hex(request.body ?? ''),
  ].join('\n');
  const scope = `${day}/${region}/${service}/aws4_request`;
  const key = [day ?? '', region, service, 'aws4_request'].reduce(hmac, Buffer.from(`AWS4${keys.secretAccessKey}`));
  const wanted = hmac(key, ['AWS4-HMAC-SHA256', date, scope, hex(canonical)].join('\n')).toString('hex');
  return wanted === found[6] ? null : `the signature does not fit; canonical request:\n${canonical}`;
}
