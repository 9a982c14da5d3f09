import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';

/** 400 `unsupported_parameter`: the field would change the answer and has no equivalent at the target. */
export function refuse(param: string, why: string): never {
  throw new SluiceError(
    'unsupported_parameter',
    `"${param}" cannot be used with this provider: ${why} Remove it, or add it to drop_params of the config.`,
    { param },
  );
}

/** 400 for a body that breaks its own definition. */
export function invalid(param: string, message: string): never {
  throw new SluiceError('invalid_request', message, { param });
}

/** 502 for an upstream answer that cannot be read. */
export function invalidAnswer(message: string): SluiceError {
  return new SluiceError('upstream_invalid', message, { reason: 'model_error' });
}

/**
 * Members of answers and events, as far as they carry content: absent and null are nothing, and what is of another type than
 * its definition says is a 502. To pass over it would show a part of an answer as all of it.
 */
export function givenText(holder: JsonObject, name: string): string | null {
  const value = holder[name] ?? null;
  return value === null || typeof value === 'string' ? value : wrongType(name);
}

export function givenNumber(holder: JsonObject, name: string): number | null {
  const value = holder[name] ?? null;
  return value === null || typeof value === 'number' ? value : wrongType(name);
}

export function givenObject(holder: JsonObject, name: string): JsonObject | null {
  const value = holder[name] ?? null;
  return value === null || isObject(value) ? value : wrongType(name);
}

/** A list of objects, empty when there is none. */
export function givenObjects(holder: JsonObject, name: string): JsonObject[] {
  const value = holder[name] ?? [];
  return Array.isArray(value) && value.every(isObject) ? value : wrongType(name);
}

function wrongType(name: string): never {
  throw invalidAnswer(`The provider sent "${name}" as something that it cannot be.`);
}

/** What an answer cannot do without. */
export function needed<T>(value: T | null, name: string): T {
  if (value === null) throw invalidAnswer(`The provider left out "${name}".`);
  return value;
}

const isEmpty = (value: JsonValue): boolean =>
  Array.isArray(value) ? value.length === 0 : isObject(value) && Object.keys(value).length === 0;

/** Values that ask for what happens anyway, by chat field. Null and absent are always neutral. */
const NEUTRAL: Readonly<Record<string, (value: JsonValue) => boolean>> = {
  n: (value) => value === 1,
  best_of: (value) => value === 1,
  echo: (value) => value === false,
  logprobs: (value) => value === false,
  top_logprobs: (value) => value === 0,
  frequency_penalty: (value) => value === 0,
  presence_penalty: (value) => value === 0,
  logit_bias: isEmpty,
  stop: isEmpty,
  tools: isEmpty,
  functions: isEmpty,
  mcp_servers: isEmpty,
  modalities: (value) => Array.isArray(value) && value.every((one) => one === 'text'),
  response_format: (value) => isObject(value) && value.type === 'text',
  tool_choice: (value) => value === 'auto',
  parallel_tool_calls: (value) => value === true,
  verbosity: (value) => value === 'medium',
  speed: (value) => value === 'standard',
  truncation: (value) => value === 'disabled',
  background: (value) => value === false,
};

/** Whether `value` of chat field `name` changes nothing, so that the field may be left out. */
export function isNeutral(name: string, value: JsonValue | undefined): boolean {
  if (value === undefined || value === null) return true;
  // Names come from the caller's body: `constructor` and its like must not be found.
  return Object.hasOwn(NEUTRAL, name) && NEUTRAL[name]?.(value) === true;
}

/** A copy of `body` without `names`; `body` itself when it has none of them. */
export function without(body: JsonObject, names: readonly string[]): JsonObject {
  if (!names.some((name) => Object.hasOwn(body, name))) return body;
  const out = { ...body };
  for (const name of names) delete out[name];
  return out;
}

export const asString = (value: JsonValue | undefined): string | null => (typeof value === 'string' ? value : null);
/** Any value of a body, quoted for a message: `String` throws for an object that is no ordinary one. */
export const quoted = (value: JsonValue | undefined): string => {
  const text = JSON.stringify(typeof value === 'string' ? value.slice(0, 100) : (value ?? null));
  return text.length > 102 ? `${text.slice(0, 101)}…` : text;
};
export const asArray = (value: JsonValue | undefined): JsonValue[] => (Array.isArray(value) ? value : []);
export const asObject = (value: JsonValue | undefined): JsonObject => (isObject(value) ? value : {});

/**
 * A call id that fits `pattern`. Ids that fit pass through; others become a hash, so that the same id maps to the same
 * value in the next turn, which is another request.
 */
export function fitCallId(id: string, pattern: RegExp, length: number): string {
  if (pattern.test(id)) return id;
  return createHash('sha256').update(id).digest('hex').slice(0, length);
}

/** `data:<media type>;base64,<data>` taken apart; null when `url` is not of this form. */
export function parseDataUri(url: string): { readonly mediaType: string; readonly data: string } | null {
  if (!url.startsWith('data:')) return null;
  const comma = url.indexOf(',');
  if (comma < 0) return null;
  const head = url.slice(5, comma);
  if (!head.endsWith(';base64')) return null;
  const mediaType = (head.split(';')[0] ?? '').toLowerCase();
  const data = url.slice(comma + 1);
  return { mediaType, data: /\s/.test(data) ? data.replace(/\s+/g, '') : data };
}
