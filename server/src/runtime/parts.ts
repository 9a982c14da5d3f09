/**
 * The parts of a workspace's snapshot: what each is read from, and which topics of the change feed it depends on. A change
 * rebuilds the parts that name its topic; a topic that no part names costs nothing.
 */
import type { Log } from '../kernel/log.ts';
import { compileRatePolicies, type RatePolicies } from '../limits/policies/rates.ts';
import { compileUsagePolicies } from '../limits/policies/usage.ts';
import {
  loadAccounts,
  loadConfigs,
  loadGuardrails,
  loadRatePolicies,
  loadUsagePolicies,
  type WorkspacePlace,
} from '../resources/runtime-rows.ts';
import type { Change, TenantTx } from '../store/ports.ts';
import type { TableName } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import { compileAccounts, compileConfigs, compileGuardrails, compileSettings, type OpenedAccounts } from './compile.ts';
import type { WorkspaceAccounts, WorkspaceSettings, WorkspaceSnapshot } from './snapshot.ts';

/** Values of the parts, as they are kept between rebuilds. */
export interface Parts {
  readonly settings: WorkspaceSettings;
  readonly accounts: WorkspaceAccounts & {
    /** Of providers, their integrations, and virtual keys, usable or not. */
    readonly ids: ReadonlySet<string>;
  };
  readonly configs: WorkspaceSnapshot['configs'];
  readonly guardrails: WorkspaceSnapshot['guardrails'];
  readonly ratePolicies: RatePolicies;
  readonly usagePolicies: WorkspaceSnapshot['usagePolicies'];
}

export type PartName = keyof Parts;

/** What a part is made from. */
export interface PartSource {
  readonly tx: TenantTx;
  readonly vault: Vault;
  readonly place: WorkspacePlace;
  readonly opened: OpenedAccounts;
  readonly log: Log;
  /** Saved-only mode for the whole installation. */
  readonly blockInlineConfig: boolean;
}

/**
 * What a change means for a part that is up to date: `none`; `addition`: it can only add to what requests may do, so they
 * need not wait for it; `change`: it may take something away, or make a rule stricter.
 */
export type Effect = 'none' | 'addition' | 'change';

interface Part<P> {
  readonly topics: readonly TableName[];
  /** Default: every change of its topics is a `change`. */
  readonly effect?: (part: P, change: Change) => Effect;
  /** Reads within the transaction; the answer compiles after it. Objects of `former` that did not change are kept. */
  readonly read: (source: PartSource, former: P | null) => Promise<() => P | Promise<P>>;
}

export const PARTS: { readonly [N in PartName]: Part<Parts[N]> } = {
  settings: {
    topics: ['organisations', 'workspaces'],
    read: async ({ place, blockInlineConfig }) => {
      return () => compileSettings(place, blockInlineConfig);
    },
  },
  accounts: {
    topics: ['providers', 'integrations', 'virtual_keys', 'secret_references'],
    effect: ({ ids }, { topic, entityId }) => {
      if (ids.has(entityId)) return 'change';
      // An integration that no provider of the workspace uses.
      return topic === 'integrations' ? 'none' : 'addition';
    },
    read: async ({ tx, vault, place, opened }, former) => {
      const rows = await loadAccounts(tx, vault, place);
      return () => ({ ...compileAccounts(rows, opened, former), ids: rows.ids });
    },
  },
  configs: {
    topics: ['configs'],
    effect: (configs, { entityId }) => (configs.has(entityId) ? 'change' : 'addition'),
    read: async ({ tx, vault, place, log }, former) => {
      const rows = await loadConfigs(tx, vault, place);
      return () => compileConfigs(rows, log, former);
    },
  },
  guardrails: {
    topics: ['guardrails', 'guardrail_exclusions', 'organisations', 'workspaces'],
    read: async ({ tx, vault, place, log }, former) => {
      const rows = await loadGuardrails(tx, vault, place);
      return () => compileGuardrails(rows, log, former);
    },
  },
  ratePolicies: {
    topics: ['rate_policies'],
    read: async ({ tx, place }) => {
      const rows = await loadRatePolicies(tx, place);
      return () => compileRatePolicies(rows, idsOf(place));
    },
  },
  usagePolicies: {
    topics: ['usage_policies'],
    read: async ({ tx, place }) => {
      const rows = await loadUsagePolicies(tx, place);
      return () => compileUsagePolicies(rows, idsOf(place));
    },
  },
};

export const PART_NAMES = Object.keys(PARTS) as readonly PartName[];

/** The parts that depend on a topic, by topic. */
export const PARTS_OF: ReadonlyMap<string, readonly PartName[]> = new Map(
  [...new Set(PART_NAMES.flatMap((name) => PARTS[name].topics))].map((topic) => [
    topic,
    PART_NAMES.filter((name) => PARTS[name].topics.includes(topic)),
  ]),
);

const idsOf = ({ organisation, workspace }: WorkspacePlace) => ({
  workspaceId: workspace.id,
  // It never changes.
  workspaceSlug: workspace.slug,
  organisationId: organisation.id,
});
