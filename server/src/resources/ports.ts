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
