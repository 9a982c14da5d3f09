import type { KeyDefaults, RateLimit, UsageLimit } from '../store/schema.ts';

export type PrincipalKind =
  | 'organisation-service'
  | 'workspace-service'
  | 'workspace-user'
  | 'operator'
  | 'user'
  /** A registered gateway, with its `client_auth`. */
  | 'deployment';

/** Whom the counters of a token's limits belong to, over all tokens of the same subject (`resources/claim-limits.ts`). */
export interface LimitOwnerOfToken {
  readonly kind: 'token';
  /** UUID form of a digest. */
  readonly id: string;
  /** For refusals: the subject. */
  readonly label: string;
}

/**
 * Who calls, after authentication. Steps and handlers get this and never the headers. Immutable and shared between
 * requests of the same credential.
 */
export interface Principal {
  readonly kind: PrincipalKind;
  /** Id of the API key or of the deployment; null for a signed-in user. */
  readonly keyId: string | null;
  readonly keyName: string | null;
  /** Empty for the operator. */
  readonly organisationId: string;
  /** Set when the credential is bound to one workspace. */
  readonly workspaceId: string | null;
  readonly userId: string | null;
  /** Organisation role of a signed-in user or of the owner of a user key. */
  readonly role: 'owner' | 'admin' | 'member' | null;
  readonly scopes: ReadonlySet<string>;
  readonly defaults: KeyDefaults;
  readonly rateLimits: readonly RateLimit[];
  readonly usageLimits: UsageLimit | null;
  /** Whose the two limits above are where they are not the key's: claims of a token. */
  readonly limitOwner?: LimitOwnerOfToken;
  /** When the key's row was last changed, milliseconds since the epoch: which usage limit is the newer one. */
  readonly changedAt?: number;
  /** Milliseconds since the epoch, or null. Checked again on every use. */
  readonly expiresAt: number | null;
}
