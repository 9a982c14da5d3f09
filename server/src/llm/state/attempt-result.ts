import type { SluiceError } from '../../kernel/errors.ts';
import type { ProviderError } from '../../operations/dialects/provider-error.ts';

/** How one target, or one attempt at it, can end. */
export type AttemptResult =
  /** `outcome.ending` holds what is left to send. */
  | { readonly kind: 'done' }
  /** The provider refused; nothing was sent to the client yet. */
  | {
      readonly kind: 'answered';
      readonly status: number;
      readonly headers: readonly string[];
      readonly body: string;
      readonly error: ProviderError;
    }
  /** Transport failure, timeout, a gone client, or a guardrail of the answer that denies. */
  | { readonly kind: 'failed'; readonly error: SluiceError };

/** A result that is no answer. */
export type FailedResult = Exclude<AttemptResult, { kind: 'done' }>;

export const DONE: AttemptResult = { kind: 'done' };
