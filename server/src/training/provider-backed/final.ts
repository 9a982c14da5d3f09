import { SluiceError } from '../../kernel/errors.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import type { PageRequest } from '../../operations/training.ts';
import { isMissing } from '../errors.ts';
import { unknownAfter } from '../paging.ts';

/**
 * Cancels, with one answer for what has ended already (400 `AB01`): providers refuse it in many ways, and some accept it
 * without doing anything.
 */
export async function finalState<T extends { readonly status: S }, S extends string>(
  what: string,
  cancel: () => Promise<T>,
  status: () => Promise<S>,
  final: ReadonlySet<S>,
): Promise<T> {
  const ended = (state: string) =>
    new SluiceError('validation', `The ${what} has ended (${state}) and cannot be cancelled.`);
  let answer: T;
  try {
    answer = await cancel();
  } catch (error) {
    if (!(error instanceof SluiceError) || error.kind !== 'provider_error') throw error;
    // Not what a refusal for the state looks like: the credential, the quota, the object, the provider.
    const said = errorStatus(error);
    if ([401, 403, 404, 429].includes(said) || said >= 500) throw error;
    const state = await status().catch(() => null);
    throw state !== null && final.has(state) ? ended(state) : error;
  }
  if (final.has(answer.status) && answer.status !== 'cancelled') throw ended(answer.status);
  return answer;
}

/** A page of a provider's list; a cursor it does not know is the caller's mistake. */
export async function cursorFault<T>(page: PageRequest, list: () => Promise<T>): Promise<T> {
  try {
    return await list();
  } catch (error) {
    const named = error instanceof SluiceError && error.kind === 'provider_error' && error.param === 'after';
    throw page.after !== null && (named || isMissing(error)) ? unknownAfter() : error;
  }
}
