/** What a workspace gives to its requests and user keys: checking, storing, showing. */
import type { TenantTx } from '../../../store/ports.ts';
import type { Row, WorkspaceDefaults } from '../../../store/schema.ts';
import { findNamed, refuse } from '../../common.ts';
import { missingGuardrails } from '../../guardrails/rules.ts';
import type { Reference, ReferredTo } from '../../references.ts';
import { applyMetadataSchema } from '../../settings/metadata.ts';
import { metadataSchemaOf } from '../../settings/settings.ts';
import type { CreateBody } from './schema.ts';

type Stored = Row<'workspaces'>['defaults'];

/**
 * The defaults to store: what was given over what stands; an omitted field stays, null clears it. New metadata satisfies
 * the organisation's schema of workspaces, guardrails are active, and the config is one of this workspace. Throws 400.
 *
 * @param workspace without `defaults` while it is being made: its metadata is then checked even when none was given
 */
export async function mergeDefaults(
  tx: TenantTx,
  workspace: { readonly id: string; readonly defaults: Stored | undefined },
  given: CreateBody['defaults'],
): Promise<Stored> {
  const isNew = workspace.defaults === undefined;
  if (given === undefined && workspace.defaults !== undefined) return workspace.defaults;
  const out: WorkspaceDefaults = given === null ? {} : { ...workspace.defaults };
  const put = <K extends keyof WorkspaceDefaults>(key: K, value: WorkspaceDefaults[K] | null) => {
    if (value === null) delete out[key];
    else if (value !== undefined) out[key] = value;
  };
  put('metadata', given?.metadata);
  put('input_guardrails', given?.input_guardrails);
  put('output_guardrails', given?.output_guardrails);
  put('user_api_key_config', given?.user_api_key_config);
  if (isNew || given === null || given?.metadata !== undefined) {
    const schema = metadataSchemaOf(await tx.organisation(), 'workspace');
    const metadata = applyMetadataSchema(schema, out.metadata);
    if (metadata === undefined) delete out.metadata;
    else out.metadata = metadata;
  }
  for (const field of ['input_guardrails', 'output_guardrails'] as const) {
    const names = given?.[field] ?? [];
    const missing = new Set(await missingGuardrails(tx, workspace.id, names));
    const wrong = names.findIndex((name) => missing.has(name));
    if (wrong >= 0) {
      throw refuse(
        `defaults.${field}[${wrong}]`,
        'names no active guardrail of this workspace or its organisation with the target llm; GET /v1/guardrails lists them',
      );
    }
  }
  if (given?.user_api_key_config != null) {
    const where = { workspace_id: workspace.id, status: 'active' } as const;
    const config = await findNamed(tx, 'configs', given.user_api_key_config, where);
    if (!config)
      throw refuse('defaults.user_api_key_config', 'names no config of this workspace; GET /v1/configs lists them');
    out.user_api_key_config = config.slug;
  }
  return Object.keys(out).length === 0 ? null : out;
}

/** As they are answered; the config is the slug, or null. */
export function presentDefaults(defaults: Stored) {
  return defaults === null ? null : { ...defaults, user_api_key_config: defaults.user_api_key_config ?? null };
}

/** A config that a workspace gives to its user keys is in use, so its removal is refused. */
export async function userKeyConfig(tx: TenantTx, to: ReferredTo): Promise<Reference[]> {
  if (to.workspaceId === null) return [];
  const workspace = await tx.find('workspaces', { id: to.workspaceId, status: 'active' });
  const config = workspace?.defaults?.user_api_key_config;
  if (!workspace || (config !== to.slug && config !== to.id)) return [];
  return [{ kind: 'workspace default for user API keys', id: workspace.id, name: workspace.slug }];
}
