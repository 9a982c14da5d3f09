import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { s3ErrorIn } from '../../kernel/s3.ts';
import { parseXml } from '../../kernel/xml.ts';
import { type ProviderError, readProviderError } from '../../operations/dialects/provider-error.ts';
import type { AdapterAnswer } from '../training.ts';
import { providerFailure } from '../training-calls.ts';

/** The error of an AWS answer: its name without prefix and suffix, and its message. */
interface AwsError {
  readonly name: string;
  readonly message: string | null;
}

/** Names that mean: this credential does not work. AWS sends 403 for most of them. */
const CREDENTIAL = new Set([
  'UnrecognizedClientException',
  'InvalidSignatureException',
  'IncompleteSignature',
  'IncompleteSignatureException',
  'ExpiredTokenException',
  'ExpiredToken',
  'MissingAuthenticationTokenException',
  'MissingAuthenticationToken',
  'InvalidClientTokenId',
  'InvalidAccessKeyId',
  'InvalidToken',
  'SignatureDoesNotMatch',
  'RequestTimeTooSkewed',
  'AuthorizationHeaderMalformed',
]);

const snake = (name: string): string => name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toLowerCase();

/** `a.b#Name:http://…` and `Name:http://…` are `Name`. */
const plainName = (text: string): string => (text.split(':')[0] ?? '').split('#').at(-1)?.slice(0, 100) ?? '';

function readBody(text: string, header: string | undefined): AwsError {
  if (text.trimStart().startsWith('<')) {
    try {
      const error = s3ErrorIn(parseXml(text));
      if (error !== null) return { name: error.code, message: error.message };
    } catch {
      // Half an answer of a proxy: the status says enough.
    }
    return { name: '', message: null };
  }
  let body: unknown = null;
  try {
    body = parseJson(text);
  } catch {
    return { name: plainName(header ?? ''), message: text.trim().slice(0, 500) || null };
  }
  if (!isObject(body)) return { name: plainName(header ?? ''), message: null };
  const type = header ?? (typeof body.__type === 'string' ? body.__type : '');
  const message = body.message ?? body.Message;
  return { name: plainName(type), message: typeof message === 'string' ? message : null };
}

/** An AWS error under our names, and its own. `header` is that of `x-amzn-errortype`. */
function read(status: number, text: string, header?: string): { readonly error: ProviderError; readonly name: string } {
  const { name, message } = readBody(text, header);
  const found = readProviderError(status, { message: message ?? `AWS answered with status ${status}.` });
  const code = name === '' ? found.code : snake(name);
  const error = { ...found, param: null, code: status < 500 && status !== 401 ? (found.code ?? code) : found.code };
  if (CREDENTIAL.has(name)) {
    return {
      name,
      error: { ...error, status: status === 403 ? 403 : 401, type: 'authentication_error', code: 'invalid_api_key' },
    };
  }
  if (name === 'ServiceQuotaExceededException') {
    return { name, error: { ...error, status: 429, type: 'rate_limit_error', code: 'insufficient_quota' } };
  }
  if (/^Throttl|^TooManyRequests|^SlowDown$/.test(name)) {
    return { name, error: { ...error, status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded' } };
  }
  if (status === 404) {
    const model = /model/i.test(message ?? '') && !/job/i.test(message ?? '');
    return { name, error: { ...error, code: model ? 'model_not_found' : null } };
  }
  return { name, error: status === 403 || status === 409 || status === 429 ? { ...error, code: found.code } : error };
}

/** An AWS error of a call of ours. */
export function awsError(status: number, text: string, header?: string): SluiceError & { readonly awsName?: string } {
  const { error, name } = read(status, text, header);
  return Object.assign(providerFailure(error), { awsName: name });
}

/** `Provider.error` of providers that answer with AWS errors. */
export function readAwsError(
  status: number,
  body: JsonObject | string,
  header?: (name: string) => string | undefined,
): ProviderError {
  return read(status, typeof body === 'string' ? body : JSON.stringify(body), header?.('x-amzn-errortype')).error;
}

/** Statuses of what ends a stream, which comes without one. */
const STREAM_STATUS: Readonly<Record<string, number>> = {
  internalServerException: 500,
  modelStreamErrorException: 424,
  modelTimeoutException: 408,
  serviceUnavailableException: 503,
  throttlingException: 429,
  validationException: 400,
  accessDeniedException: 403,
  expiredTokenException: 403,
};

/** An exception inside a stream. `text` is its JSON body; a name that is not known is an upstream fault. */
export function awsStreamError(name: string, text: string): SluiceError {
  const status = Object.hasOwn(STREAM_STATUS, name) ? (STREAM_STATUS[name] ?? 502) : 502;
  return awsError(status, text, name.charAt(0).toUpperCase() + name.slice(1));
}

export async function awsFailure(answer: AdapterAnswer): Promise<ReturnType<typeof awsError>> {
  let text = '';
  try {
    text = await answer.text(256 * 1024);
  } catch {
    // Too long or cut: the status says enough.
  }
  return awsError(answer.status, text, answer.headers['x-amzn-errortype']);
}

/** Name of an AWS error (`NoSuchUpload`), or null for any other. */
export function awsErrorName(error: unknown): string | null {
  return error instanceof SluiceError && 'awsName' in error && typeof error.awsName === 'string' ? error.awsName : null;
}
