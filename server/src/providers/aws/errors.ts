import { SluiceError } from '../../kernel/errors.ts';
import { isObject } from '../../kernel/json.ts';
import { readProviderError } from '../../operations/dialects/provider-error.ts';
import type { AdapterAnswer } from '../training.ts';
import { providerFailure } from '../training-calls.ts';
import { child, parseXml, textOfChild } from './xml.ts';

/** The error of an AWS answer: its name without prefix and suffix, and its message. */
interface AwsError {
  readonly name: string;
  readonly message: string | null;
}

/** Names that mean: this credential does not work (providers §5.4). AWS sends 403 for most of them. */
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
      const root = parseXml(text);
      const error = root.name === 'Error' ? root : child(root, 'Error');
      if (error !== null) return { name: textOfChild(error, 'Code') ?? '', message: textOfChild(error, 'Message') };
    } catch {
      // Half an answer of a proxy: the status says enough.
    }
    return { name: '', message: null };
  }
  let body: unknown = null;
  try {
    body = JSON.parse(text);
  } catch {
    return { name: plainName(header ?? ''), message: text.trim().slice(0, 500) || null };
  }
  if (!isObject(body)) return { name: plainName(header ?? ''), message: null };
  const type = header ?? (typeof body.__type === 'string' ? body.__type : '');
  const message = body.message ?? body.Message;
  return { name: plainName(type), message: typeof message === 'string' ? message : null };
}

/** An AWS error under our names (providers §1.4, §5.4). */
export function awsError(status: number, text: string, header?: string): SluiceError & { readonly awsName?: string } {
  const { name, message } = readBody(text, header);
  const read = readProviderError(status, { message: message ?? `AWS answered with status ${status}.` });
  const code = name === '' ? read.code : snake(name);
  let made = { ...read, param: null, code: status < 500 && status !== 401 ? code : read.code };
  if (CREDENTIAL.has(name)) {
    made = { ...made, status: status === 403 ? 403 : 401, type: 'authentication_error', code: 'invalid_api_key' };
  } else if (name === 'ServiceQuotaExceededException') {
    made = { ...made, status: 429, type: 'rate_limit_error', code: 'insufficient_quota' };
  } else if (/^Throttl|^TooManyRequests|^SlowDown$/.test(name)) {
    made = { ...made, status: 429, type: 'rate_limit_error', code: 'rate_limit_exceeded' };
  } else if (status === 404) {
    made = { ...made, code: /model/i.test(message ?? '') && !/job/i.test(message ?? '') ? 'model_not_found' : null };
  } else if (status === 403 || status === 409 || status === 429) made = { ...made, code: read.code };
  return Object.assign(providerFailure(made), { awsName: name });
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
