import { SluiceError } from '../kernel/errors.ts';

/** The one answer for a path object that is missing, foreign or in another workspace. */
export function notFound(): SluiceError {
  return new SluiceError('not_found', NO_SUCH);
}

const NO_SUCH = 'There is no such object, or your credential cannot see it.';

/** Whether an error says no more than `notFound`: the handler knows which path it is about. */
export const isNotFound = (error: unknown): error is SluiceError =>
  error instanceof SluiceError && error.kind === 'not_found' && error.message === NO_SUCH;
