/** What reads secrets out of their managers. Nothing here keeps a value. */
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import type { Secret } from '../../kernel/secret.ts';
import type { SecretManagerType } from '../../store/schema.ts';
import { Service } from '../services.ts';

/** Where a secret lies, and how its manager is signed in to. */
export interface SecretPlace {
  readonly organisationId: string;
  /** Of the reference, for messages. */
  readonly slug: string;
  readonly manager: SecretManagerType;
  readonly path: string;
  /** Fields of `auth_config`, secret ones among them. */
  readonly auth: Readonly<Record<string, Secret | string>>;
}

/** What a manager gave: a text, or an object where its secrets are objects. */
export type SecretContent = { readonly text: Secret } | { readonly object: JsonObject };

export interface SecretManagers {
  /**
   * Reads a secret now. Rejects with `out_of_service`: the message names the reference, its manager and what to do, and holds
   * nothing that the manager wrote. `retryAfter` where the manager asked for it; `detail` is for the log.
   */
  read(place: SecretPlace): Promise<SecretContent>;
}

export const SECRET_MANAGERS = new Service<SecretManagers>('way to secret managers');

/** Where nothing reads secrets. */
export const NO_MANAGERS: SecretManagers = {
  read: async () => {
    throw new SluiceError('out_of_service', 'This node reads no secrets.');
  },
};
