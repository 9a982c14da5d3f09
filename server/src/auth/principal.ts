import type { KeyDefaults, RateLimit, UsageLimit } from '../store/schema.ts';

export type PrincipalKind =
  | 'organisation-service'
  | 'workspace-service'
  | 'workspace-user'
  | 'operator'
  | 'user'
  /** A user, by an access token that the OAuth server gave a client: it opens MCP servers and agents only. */
  | 'oauth'
  /** A registered gateway, with its `client_auth`. */
  | 'deployment'
  /** A token that an organisation has signed: what a workspace-service key is, for one subject and some time. */
  | 'token'
  /** A directory, with a SCIM token. */
  | 'scim';

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
  /** Of a token there may be several. */
  readonly usageLimits: UsageLimit | readonly UsageLimit[] | null;
  /** Whose the two limits above are where they are not the key's: claims of a token. */
  readonly limitOwner?: LimitOwnerOfToken;
  /** When the key's row was last changed, milliseconds since the epoch: which usage limit is the newer one. */
  readonly changedAt?: number;
  /** Of a token: under which settings of its organisation it was verified (`auth/jwt-settings.ts`). */
  readonly tokenVersion?: string;
  /** Milliseconds since the epoch, or null. Checked again on every use. */
  readonly expiresAt: number | null;
}

/**
 * One text for each credential, user or subject, for what counts or keeps apart who calls: no two tenants have the same, but for
 * operators.
 */
export function callerId({ kind, keyId, userId, limitOwner }: Principal): string {
  return limitOwner?.id ?? keyId ?? userId ?? kind;
}
