/** What lies at provider accounts. */
import { Service } from '../services.ts';

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

export interface ProviderAccounts {
  /**
   * Objects of a kind that no workspace owns, at most `limit`, in the order of the provider's list from `after` on. Throws
   * what the provider answers, and `validation` where it lists no such objects.
   */
  unowned(account: ProviderAccount, kind: ListedKind, after: string | null, limit: number): Promise<Unowned>;
}

export const ACCOUNTS = new Service<ProviderAccounts>('way to ask providers');
