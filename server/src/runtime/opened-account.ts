import { SluiceError } from '../kernel/errors.ts';
import type { OpenedAccount } from '../resources/runtime-rows.ts';
import type { ModelSettings, OpenedModel, StoredProvider } from './snapshot.ts';

/** What was sealed of a stored provider or virtual key. */
export interface OpenedStored {
  readonly account: OpenedAccount;
  /** Key and headers of the model that is called; null without any. */
  readonly model: OpenedModel | null;
}

/**
 * The credential of a stored provider, and that of one of its models. A promise while one is opened for the first time.
 * Throws `out_of_service` when one does not open.
 */
export function openAccount(
  stored: StoredProvider,
  secrets: ModelSettings['secrets'],
): OpenedStored | Promise<OpenedStored> {
  const account = stored.account.get();
  const model = secrets === null ? null : secrets.get();
  if (!(account instanceof Promise) && !(model instanceof Promise)) return { account, model };
  return Promise.all([account, model]).then(
    ([opened, ofModel]) => ({ account: opened, model: ofModel }),
    (error: unknown) => {
      // Of a secret that its manager does not give: the message says what to do.
      if (error instanceof SluiceError && error.kind === 'out_of_service') throw error;
      throw new SluiceError(
        'out_of_service',
        `The stored credential of ${stored.slug} cannot be opened; its encryption key is missing.`,
      );
    },
  );
}
