/** Calls of the Bedrock control plane: signed, or with a Bedrock API key. */

import { awsUrl, encodeStrictly } from '../../kernel/aws-url.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { quoted } from '../../operations/convert/fields.ts';
import { awsAuth } from '../aws/credentials.ts';
import { awsFailure } from '../aws/errors.ts';
import { awsRegion } from '../aws/settings.ts';
import { sha256Hex, signed } from '../aws/sign.ts';
import type { AdapterContext, AdapterRequest } from '../training.ts';
import { invalidAnswer } from '../training-calls.ts';

/** Method, path and query of a call; `body` is JSON. */
export interface BedrockCall {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly query?: Readonly<Record<string, string | null>>;
  readonly body?: JsonObject;
}

const JSON_HEADERS = ['accept', 'application/json', 'content-type', 'application/json'];

/** The address of a call and the headers it has before it is authorised. */
export function bedrockTarget(
  call: BedrockCall,
  context: AdapterContext,
): { readonly url: URL; readonly headers: readonly string[] } {
  return {
    url: awsUrl(context.base, call.path, call.query),
    headers: call.body === undefined ? JSON_HEADERS.slice(0, 2) : JSON_HEADERS,
  };
}

/** Sends one call and reads its JSON object. A call without a body is signed and sent without one. */
export async function bedrockCall(context: AdapterContext, call: BedrockCall): Promise<JsonObject> {
  const region = awsRegion(context);
  const auth = await awsAuth(context, context.base);
  const body = call.body === undefined ? null : Buffer.from(JSON.stringify(call.body));
  const plain = { method: call.method, ...bedrockTarget(call, context), body };
  const request: AdapterRequest =
    'keys' in auth
      ? await signed(plain, auth.keys, { service: 'bedrock', region }, context.now())
      : { ...plain, headers: [...plain.headers, 'authorization', `Bearer ${auth.bearer.reveal()}`] };
  const answer = await context.call(request);
  if (answer.status >= 200 && answer.status < 300) {
    const text = await answer.text();
    if (text === '') return {};
    const value: unknown = parsed(text);
    if (isObject(value)) return value;
    throw invalidAnswer('a JSON object');
  }
  if (answer.status < 400) {
    answer.stream.destroy();
    throw new SluiceError(
      'upstream_invalid',
      `The provider answered with status ${answer.status}, which has no use here.`,
    );
  }
  throw await awsFailure(answer);
}

function parsed(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return null;
  }
}

/** The kind of a resource in an ARN. */
type Kind = 'model-customization-job' | 'model-invocation-job';

const NAMES: Readonly<Record<Kind, RegExp>> = {
  'model-customization-job': /^[a-zA-Z0-9](?:-*[a-zA-Z0-9+.])*-*$/,
  'model-invocation-job': /^[a-z0-9]{12}$/,
};

/**
 * What a caller names a job with, as one path segment of a call: an ARN, also percent-encoded, or a job's name or
 * twelve-character id. 404 for anything else, and for an ARN of another region, which cannot be there.
 */
export function identifierSegment(id: string, kind: Kind, context: AdapterContext): string {
  let given = id;
  if (/%3a/i.test(given)) {
    try {
      given = decodeURIComponent(given);
    } catch {
      given = '';
    }
  }
  const arn = /^arn:aws(?:-[a-z]+)*:bedrock:([a-z0-9-]+):\d{12}:([a-z-]+)\/[A-Za-z0-9.:/-]{1,200}$/.exec(given);
  const known =
    arn === null ? given.length <= 63 && NAMES[kind].test(given) : arn[2] === kind && arn[1] === awsRegion(context);
  if (!known) throw new SluiceError('not_found', `There is no job ${quoted(id)} in this account and region.`);
  return encodeStrictly(given);
}

/** Account id of an ARN; empty when it has none. */
export const accountOfArn = (arn: string): string => arn.split(':')[4] ?? '';

/** `foundation-model/x` of an ARN is `x`; a custom model keeps its whole ARN. */
export function modelOfArn(arn: string): string {
  const at = arn.indexOf(':foundation-model/');
  return at < 0 ? arn : arn.slice(at + ':foundation-model/'.length);
}

/** Whether a text is the role that Bedrock is to assume for a job. */
const isRoleArn = (text: string): boolean => /^arn:aws(?:-[a-z]+)*:iam::\d{12}:role\/.{1,512}$/.test(text);

/** The role of a job or batch: not that of the gateway, but the one Bedrock reads and writes the bucket with. */
export function requiredRole(role: string | null): string {
  if (role === null || role === '') {
    throw new SluiceError(
      'invalid_request',
      'Bedrock needs role_arn: the IAM role it assumes to read the input from S3 and to write the output there.',
      { param: 'role_arn' },
    );
  }
  if (isRoleArn(role)) return role;
  throw new SluiceError(
    'invalid_request',
    `role_arn ${quoted(role)} is no IAM role; it looks like arn:aws:iam::123456789012:role/name.`,
    { param: 'role_arn' },
  );
}

/** Metadata as tags of a job. */
export function tagsOf(metadata: Readonly<Record<string, string>>, reserved = 0): { key: string; value: string }[] {
  const entries = Object.entries(metadata);
  const refuse = (message: string): never => {
    throw new SluiceError('unsupported_parameter', message, { param: 'metadata' });
  };
  if (entries.length > 50 - reserved) refuse(`metadata becomes tags at Bedrock: at most ${50 - reserved} of them.`);
  const allowed = /^[a-zA-Z0-9\s._:/=+@-]*$/;
  return entries.map(([key, value]) => {
    if (key === '' || key.length > 128 || value.length > 256 || !allowed.test(key) || !allowed.test(value)) {
      refuse(
        `metadata ${quoted(key)} becomes a tag at Bedrock: names of 1 to 128, values of up to 256 letters, digits, spaces and . _ : / = + @ -`,
      );
    }
    return { key, value };
  });
}

/**
 * Under which the provider knows a create call again: the caller's idempotency key in the characters it takes (letters,
 * digits and inner hyphens), else an id of the context, which a job that is tried again repeats.
 */
export function requestToken(context: AdapterContext): string {
  const key = context.header('idempotency-key') ?? '';
  if (key === '') return context.uuid();
  return key.length <= 256 && /^[a-zA-Z0-9](?:-*[a-zA-Z0-9])*$/.test(key) ? key : sha256Hex(key);
}

/** What a signature looks like where it is shown and not sent. */
export const MASKED_AUTHORIZATION: readonly string[] = ['authorization', '***'];
