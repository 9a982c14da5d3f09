/** Header names that are treated specially (security 6), as data: a name missing from a second copy would be a way in. Lower case. */

export const OWN_PREFIX = 'x-gateway-';

/** What callers prove themselves with, to us or to others. */
export const CREDENTIAL_HEADERS = [
  'authorization',
  'proxy-authorization',
  'proxy-authenticate',
  'www-authenticate',
  'authentication-info',
  'proxy-authentication-info',
  'x-api-key',
  'api-key',
  'apikey',
  'x-apikey',
  'x-auth-token',
  'x-auth-key',
  'x-access-token',
  'x-goog-api-key',
  'x-goog-iam-authorization-token',
  'x-goog-iap-jwt-assertion',
  'x-amzn-oidc-accesstoken',
  'x-amzn-oidc-data',
  'cf-access-client-id',
  'cf-access-client-secret',
  'cf-access-jwt-assertion',
  'x-serverless-authorization',
  'ocp-apim-subscription-key',
  'x-amz-security-token',
  'x-amz-date',
  'x-amz-content-sha256',
  'x-ms-client-principal',
  'x-functions-key',
  'x-vault-token',
  'private-token',
  'job-token',
  'dpop',
  'x-csrf-token',
  'x-xsrf-token',
  'x-user-claims',
  'x-user-jwt',
] as const;

export const SIGN_IN_HEADERS = ['cookie', 'cookie2', 'set-cookie', 'set-cookie2'] as const;

/** Headers that say where a request came from or what it was before: no outside party may set them. */
export const ROUTING_HEADERS = [
  'forwarded',
  'x-real-ip',
  'true-client-ip',
  'cf-connecting-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-rewrite-url',
  'x-http-method-override',
  'x-http-method',
  'x-method-override',
  'x-middleware-subrequest',
] as const;

export const ROUTING_PREFIXES = ['x-forwarded-', 'x-envoy-', 'x-original-'] as const;

export const FRAMING_HEADERS = [
  'connection',
  'keep-alive',
  'te',
  'trailer',
  'trailers',
  'transfer-encoding',
  'upgrade',
  'proxy-connection',
  'host',
  'content-length',
  'content-encoding',
  'expect',
  'max-forwards',
  'http2-settings',
] as const;

/**
 * Headers that open instance-metadata services of clouds. They may not be sent to an upstream: neither a request or
 * config that forwards headers, nor saved custom headers.
 */
export const METADATA_HEADERS = [
  'metadata',
  'metadata-flavor',
  'x-google-metadata-request',
  'x-aws-ec2-metadata-token',
  'x-aws-ec2-metadata-token-ttl-seconds',
  'x-identity-header',
  'secret',
] as const;

/** Letters, digits and inner hyphens, at most 64; compare in lower case. */
export function validHeaderName(name: string): boolean {
  return /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?$/.test(name);
}

/** Printable ASCII with inner spaces and tabs, at most 8 KB. */
export function validHeaderValue(value: string): boolean {
  if (value.length > 8192) return false;
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i);
    const space = c === 0x20 || c === 0x09;
    if (space ? i === 0 || i === value.length - 1 : c < 0x21 || c > 0x7e) return false;
  }
  return true;
}

const credentials: ReadonlySet<string> = new Set(CREDENTIAL_HEADERS);

/** Whether a name, in lower case, is one of `CREDENTIAL_HEADERS` or of the tokens that Azure passes to applications. */
export function isCredentialHeader(name: string): boolean {
  return credentials.has(name) || (name.startsWith('x-ms-') && name.includes('token'));
}

const HEADER_NAME = /^[a-zA-Z0-9!#$%&'*+.^_`|~-]{1,256}$/;
/** Framing belongs to the egress layer, `x-gateway-*` to us; sessions and metadata services to nobody. */
const RESERVED: ReadonlySet<string> = new Set([
  ...METADATA_HEADERS,
  ...SIGN_IN_HEADERS,
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** What is wrong with a header that is saved to be sent with calls, as a phrase behind its name; null when it may be sent. */
export function savedHeaderProblem(name: string, value: string): string | null {
  if (!HEADER_NAME.test(name)) return 'is not a valid header name';
  const lower = name.toLowerCase();
  if (RESERVED.has(lower) || lower.startsWith(OWN_PREFIX)) return 'is a header that cannot be set';
  if (!validHeaderValue(value)) return 'must be at most 8192 printable ASCII characters without space at either end';
  return null;
}
