import { SluiceError } from '../../kernel/errors.ts';
import { misuse } from './columns.ts';
import type { Engine, Verb } from './engine.ts';

const HIDDEN = new Set(['organisation_id', 'workspace_id']);

export function unavailable(cause: unknown): SluiceError {
  return new SluiceError('unavailable', 'The store cannot be reached right now. Try again in a moment.', {
    retryAfter: 1,
    cause,
    detail: cause instanceof Error ? cause.message : cause,
  });
}

/** The error a caller of the store sees. Text of the engine goes to `detail` only. */
export function storeError(engine: Pick<Engine, 'classify'>, error: unknown, table: string, verb: Verb): Error {
  if (error instanceof SluiceError) return error;
  const failure = engine.classify(error);
  const detail = error instanceof Error ? error.message : String(error);
  switch (failure.kind) {
    case 'unique': {
      const columns = failure.columns.filter((name) => !HIDDEN.has(name));
      const field = columns.at(-1) ?? null;
      const what = columns.length > 0 ? `this ${columns.join(' and ')}` : 'these values';
      return new SluiceError('conflict', `There is already an object with ${what}. Choose another one.`, {
        param: field === 'id' ? null : field,
        detail: `${table}: ${detail}`,
        cause: error,
      });
    }
    case 'foreign_key':
      return verb === 'remove'
        ? new SluiceError(
            'conflict',
            'Other objects still use this one: remove those first, then repeat the request.',
            {
              detail: `${table}: ${detail}`,
              cause: error,
            },
          )
        : new SluiceError(
            'unknown_reference',
            'An object that the request names does not exist, or was deleted meanwhile: check the ids in the body and try again.',
            {
              detail: `${table}: ${detail}`,
              cause: error,
            },
          );
    case 'unavailable':
      return unavailable(error);
    case 'other': {
      const wrapped = misuse(`${verb} ${table}: ${detail}`);
      wrapped.cause = error;
      return wrapped;
    }
  }
}
