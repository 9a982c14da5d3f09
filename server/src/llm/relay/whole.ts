/** What is wrong with an answer in one piece that began as a success. */
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import type { ProviderError } from '../../operations/dialects/provider-error.ts';
import type { Exchange } from '../exchange.ts';
import { filtered, isFiltered, memberOf } from './content.ts';
import { isFollowed } from './rules.ts';

/**
 * Why an answer in the caller's shape is one that the next attempt takes the place of, or null: it lacks what it should hold,
 * or its provider has filtered it. Where no attempt follows, it is the caller who judges it.
 */
export function unfit(x: Exchange, body: JsonObject): ProviderError | SluiceError | null {
  const member = memberOf(x.operation);
  if (member !== null && !Array.isArray(body[member])) {
    const error = new SluiceError('upstream_invalid', `The provider's answer has no "${member}".`);
    if (isFollowed(x, error.status, error.code)) return error;
  }
  return isFiltered(x.operation, body) && isFollowed(x, filtered.status, filtered.code) ? filtered : null;
}

/** An answer that is cut off, or is no JSON where it must be. */
export const noJson = (): SluiceError =>
  new SluiceError('upstream_invalid', 'The provider answered with something that is not JSON, or with a part of it.');
