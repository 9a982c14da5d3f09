import type { TenantTx } from '../store/ports.ts';

/** Existence of objects that other resources own; handed in so that a resource does not know the tables of another. */
export interface ReferencePorts {
  /** Which of these guardrails (slugs or ids) are not active or not visible to the workspace. */
  readonly missingGuardrails: (
    tx: TenantTx,
    workspaceId: string,
    names: readonly string[],
  ) => Promise<readonly string[]>;
  /** Which of these secret references (slugs or ids) do not exist or are not visible to the workspace; null: the organisation. */
  readonly missingSecretReferences: (
    tx: TenantTx,
    workspaceId: string | null,
    names: readonly string[],
  ) => Promise<readonly string[]>;
}

/** While neither guardrails nor secret references can be created, none exist. */
export const NO_REFERENCES: ReferencePorts = {
  missingGuardrails: async (_tx, _workspaceId, names) => names,
  missingSecretReferences: async (_tx, _workspaceId, names) => names,
};

/** How a guardrail is named in answers. */
export interface GuardrailName {
  readonly id: string;
  readonly slug: string;
}

/** Guardrails that may stand for a whole organisation. */
export interface DefaultGuardrails {
  /**
   * Those of `names` (ids or slugs) that may be a default of the organisation: active, its own and not a workspace's,
   * with the target `llm`. Names of anything else are left out.
   */
  readonly organisationGuardrails: (tx: TenantTx, names: readonly string[]) => Promise<readonly GuardrailName[]>;
}

/** An account at a provider, by a stored provider of a workspace that uses it. */
export interface ProviderAccount {
  readonly organisationId: string;
  readonly workspaceId: string;
  /** Of the stored provider. */
  readonly slug: string;
  /** As the ledger of owners names it: the id of the integration. */
  readonly account: string;
}

/** Kinds of objects that providers list. */
export const LISTED_KINDS = ['file', 'job', 'batch'] as const;
export type ListedKind = (typeof LISTED_KINDS)[number];

export interface Unowned {
  readonly data: readonly { readonly id: string; readonly created_at: number }[];
  /** Where the next page begins; null at the end. */
  readonly after: string | null;
}

/** What lies at provider accounts. */
export interface ProviderAccounts {
  /**
   * Objects of a kind that no workspace owns, at most `limit`, in the order of the provider's list from `after` on. Throws
   * what the provider answers, and `validation` where it lists no such objects.
   */
  unowned(account: ProviderAccount, kind: ListedKind, after: string | null, limit: number): Promise<Unowned>;
}

/** Mails to people, sent beside requests. */
export interface Mails {
  /** Counts a mail to `email` that a signed-in user asks for. Throws `too_many_requests`. */
  admitUser(userId: string, email: string): Promise<void>;
  /** Queues a mail to one address; plain text. A failure is logged. */
  post(letter: { readonly to: string; readonly subject: string; readonly text: string }): void;
}

/** A gateway that is to be checked, and the address that it is to call back. */
export interface PingedGateway {
  readonly organisationId: string;
  /** Without `/v1`. */
  readonly baseUrl: string;
  readonly callbackUrl: string;
  readonly code: string;
}

/** What a gateway made of a ping: an error is a sentence for the caller, null for none. */
export interface PingedAnswer {
  readonly version: string | null;
  readonly outboundError: string | null;
  /** Of the request for a call-back; whether that came is for the caller to see. */
  readonly inboundError: string | null;
}

/** Calls to gateways that deployments register. */
export interface Gateways {
  /** Asks for health, then for a call-back with the code, both within 10 seconds. Rejects for no fault of the gateway. */
  ping(gateway: PingedGateway, signal: AbortSignal): Promise<PingedAnswer>;
}
