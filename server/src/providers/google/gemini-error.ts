/** Errors of Google's APIs. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asArray, asObject } from '../../operations/convert/fields.ts';
import { type ProviderError, readProviderError } from '../../operations/dialects/provider-error.ts';
import { integerOf, textOf } from '../training-calls.ts';

/** `"12.5s"` in whole seconds, never less than it says. */
function secondsIn(duration: string | null): number | undefined {
  const [, number] = /^(\d{1,9}(?:\.\d{1,9})?)s$/.exec(duration ?? '') ?? [];
  return number === undefined ? undefined : Math.ceil(Number(number));
}

/** Reads `{error: {code, message, status, details}}`, and the bodies of Claude on Vertex AI, which are Anthropic's. */
export function googleError(status: number, body: JsonObject | string): ProviderError {
  const error = isObject(body) ? asObject(body.error) : {};
  const details = asArray(error.details).filter(isObject);
  const typed = (name: string): JsonObject | undefined =>
    details.find((detail) => textOf(detail['@type'])?.endsWith(name) === true);
  // A wrong key is reported as a wrong argument.
  const wrongKey = details.some(({ reason }) => reason === 'API_KEY_INVALID');
  const code = integerOf(error.code);
  const named = status >= 400 ? status : code !== null && code >= 400 && code <= 599 ? code : 502;
  const found = readProviderError(wrongKey ? 401 : named, body);
  const retryAfter = secondsIn(textOf(typed('google.rpc.RetryInfo')?.retryDelay));
  const overloaded = named === 503 && /overloaded|high demand/i.test(found.message);
  return {
    ...found,
    ...(overloaded ? { type: 'overloaded_error', code: 'overloaded' } : null),
    ...(retryAfter === undefined ? null : { retryAfter }),
  };
}

/** The error in place of an event of a stream; null for an event. */
export function embeddedGoogleError(event: JsonObject): ProviderError | null {
  return isObject(event.error) ? googleError(200, event) : null;
}
