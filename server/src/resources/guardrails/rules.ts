/** Who may see which guardrail, and who may attach it. */
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { workspaceOf } from '../common.ts';
import { isUuid } from '../fields.ts';
import { Levels, type LevelVerb } from '../kinds/levels.ts';
import type { Reference, ReferredTo } from '../references.ts';
import type { Call } from '../resource.ts';
import { part } from '../settings/section.ts';

export type Guardrail = Row<'guardrails'>;

export const LEVELS = new Levels({ workspace: 'guardrails', organisation: 'organisation_guardrails' });

/** In a workspace its own guardrails and nothing else; without one all of the organisation. */
export async function visible(call: Call, verb: LevelVerb) {
  const workspaceId = await workspaceOf(call);
  if (workspaceId !== null) {
    // Other verbs ask for the level of the guardrail that they find.
    if (verb === 'list') LEVELS.require(call, 'workspace', verb);
    return { where: { workspace_id: workspaceId } };
  }
  return verb === 'list' ? { where: LEVELS.held(call, verb) } : {};
}

/** Whether `name`, as a caller wrote it, is the id or the slug of a guardrail. */
export function isNameOf(name: unknown, guardrail: { readonly id: string; readonly slug: string }): boolean {
  return typeof name === 'string' && (name === guardrail.slug || name.toLowerCase() === guardrail.id);
}

/** Active guardrails for calls of models among `names` that a workspace may attach: its own and the organisation's. */
async function attachable(
  tx: TenantTx,
  workspaceId: string | null,
  names: readonly string[],
): Promise<readonly Guardrail[]> {
  const levels = workspaceId === null ? [null] : [workspaceId, null];
  const found: Guardrail[] = [];
  for (let from = 0; from < names.length; from += NAMES_AT_ONCE) {
    const some = names.slice(from, from + NAMES_AT_ONCE);
    const ids = some.filter(isUuid).map((one) => one.toLowerCase());
    const named = [{ slug: { in: some } }, { id: { in: ids } }];
    const anyOf = levels.flatMap((workspace_id) => named.map((one) => ({ ...one, workspace_id })));
    found.push(...(await tx.list('guardrails', { where: { status: 'active', target: 'llm' }, anyOf })));
  }
  return found;
}

/** A statement takes a bounded number of values, and each name is up to four of them. */
const NAMES_AT_ONCE = 1_000;

/** Names of `names` that a workspace cannot attach. */
export async function missingGuardrails(
  tx: TenantTx,
  workspaceId: string,
  names: readonly string[],
): Promise<readonly string[]> {
  const found = await attachable(tx, workspaceId, names);
  const slugs = new Set(found.map(({ slug }) => slug));
  const ids = new Set(found.map(({ id }) => id));
  return names.filter((name) => !slugs.has(name) && !ids.has(name.toLowerCase()));
}

/** How a guardrail is named in answers. */
export interface GuardrailName {
  readonly id: string;
  readonly slug: string;
}

/**
 * Those of `names` (ids or slugs) that may be a default of the organisation: active, its own and not a workspace's, with the
 * target `llm`. Names of anything else are left out.
 */
export async function organisationGuardrails(
  tx: TenantTx,
  names: readonly string[],
): Promise<readonly GuardrailName[]> {
  return (await attachable(tx, null, names)).map(({ id, slug }) => ({ id, slug }));
}

const DIRECTIONS = ['input_guardrails', 'output_guardrails'] as const;

const names = (list: unknown, to: { readonly id: string; readonly slug: string }): boolean =>
  Array.isArray(list) && list.some((name) => isNameOf(name, to));

/** The default of the organisation that names a guardrail. */
export async function organisationDefault(tx: TenantTx, to: ReferredTo): Promise<Reference[]> {
  const organisation = await tx.organisation();
  const defaults = part(organisation.settings, 'defaults');
  if (!DIRECTIONS.some((key) => names(defaults[key], to))) return [];
  return [{ kind: 'default of the organisation', id: organisation.id, name: organisation.name }];
}

/** Defaults of workspaces that name a guardrail. */
export async function workspaceDefaults(tx: TenantTx, to: ReferredTo): Promise<Reference[]> {
  const where = { status: 'active', ...(to.workspaceId === null ? {} : { id: to.workspaceId }) } as const;
  return (await tx.list('workspaces', { where }))
    .filter((workspace) => DIRECTIONS.some((key) => names(workspace.defaults?.[key], to)))
    .map((workspace) => ({ kind: 'default of the workspace', id: workspace.id, name: workspace.slug }));
}
