import type { Secret } from '../kernel/secret.ts';

/**
 * What is known about the account a call is made with: the opened provider key and the non-secret settings of the
 * integration, virtual key, config target or request headers, in snake case without prefix (`openai_organization`).
 */
export interface Credentials {
  readonly key: Secret | null;
  readonly settings: Readonly<Record<string, unknown>>;
}
