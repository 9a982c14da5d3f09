/** What fails an answer, or counts as its failure. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { type ProviderError, UNNAMED } from '../../operations/dialects/provider-error.ts';
import type { Operation } from '../../operations/operation.ts';

/** What made a whole answer fail that came with a status of success, as Responses do; null for any other. */
export function failureIn({ wire }: Operation, body: JsonObject): ProviderError | null {
  if (!wire.hasFailed(body)) return null;
  const told = { response: body };
  return named(wire.errorIn(told), told) ?? UNNAMED;
}

/** With the provider's own name for it, where the table of errors has none. */
export function named(error: ProviderError | null, body: JsonObject): ProviderError | null {
  if (error === null || error.code !== null) return error;
  const inner = isObject(body.response) ? body.response.error : body.error;
  const { code, type } = isObject(inner) ? inner : { code: body.code, type: null };
  const own = typeof code === 'string' && code !== '' ? code : type;
  return typeof own === 'string' && own !== '' ? { ...error, code: own } : error;
}

/**
 * Whether providers say errors of this operation inside an answer with a status of success: those that must hold what was
 * answered. A member `error` of anything else belongs to the object, as that of a video or a run that failed.
 */
export function saysErrors({ wire }: Operation): boolean {
  return wire.member !== null;
}
