import {
  type AccountRows,
  type ConfigRow,
  type GuardrailRows,
  loadAccounts,
  loadConfigs,
  loadGuardrails,
  loadPlace,
  loadRatePolicies,
  loadUsagePolicies,
  type WorkspacePlace,
} from '../../src/resources/runtime-rows.ts';
import type { TenantTx } from '../../src/store/ports.ts';
import type { Row } from '../../src/store/schema.ts';
import type { Vault } from '../../src/store/vault.ts';

/** The rows of all parts of a workspace's snapshot. */
export interface WorkspaceRows extends WorkspacePlace, AccountRows, GuardrailRows {
  readonly configs: readonly ConfigRow[];
  readonly ratePolicies: readonly Row<'rate_policies'>[];
  readonly usagePolicies: readonly Row<'usage_policies'>[];
}

/** What the first snapshot of a workspace is made from; null when there is no active one with this id. */
export async function loadWorkspace(tx: TenantTx, vault: Vault, workspaceId: string): Promise<WorkspaceRows | null> {
  const place = await loadPlace(tx, workspaceId);
  if (place === null) return null;
  return {
    ...place,
    ...(await loadAccounts(tx, vault, place)),
    configs: await loadConfigs(tx, vault, place),
    ...(await loadGuardrails(tx, vault, place)),
    ratePolicies: await loadRatePolicies(tx, place),
    usagePolicies: await loadUsagePolicies(tx, place),
  };
}
