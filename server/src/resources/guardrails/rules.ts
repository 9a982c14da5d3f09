/** Who may see and change which guardrail: those of the organisation and those of a workspace have scopes of their own. */
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { workspaceOf } from '../common.ts';
import { isUuid } from '../fields.ts';
import type { GuardrailName, ReferencePorts } from '../ports.ts';
import type { FindReferences, Reference } from '../references.ts';
import type { Call, ItemVerb } from '../resource.ts';
import { part } from '../settings/settings.ts';

type AnyCall = Call<never, never, never> | Call;
export type Guardrail = Row<'guardrails'>;
export type Verb = ItemVerb | 'list' | 'create';
export type Level = 'organisation' | 'workspace';

export const PREFIXES = ['guardrails', 'organisation_guardrails'] as const;
/** Older descriptions write `guard_<id>` in paths. */
export const PATH_PREFIX = 'guard_';

const scopeOf = (level: Level, verb: Verb) => `${level === 'organisation' ? 'organisation_' : ''}guardrails.${verb}`;

export const levelOf = (row: Pick<Guardrail, 'workspace_id'>): Level =>
  row.workspace_id === null ? 'organisation' : 'workspace';

export function holds(call: AnyCall, level: Level, verb: Verb): boolean {
  return call.principal.scopes.has(scopeOf(level, verb));
}

/** 403 unless the caller holds the scope for this level: the route admits the scope of either level. */
export function requireLevel(call: AnyCall, level: Level, verb: Verb): void {
  if (holds(call, level, verb)) return;
  throw new SluiceError(
    'forbidden',
    `This needs the scope ${scopeOf(level, verb)}, which your credential does not have.`,
  );
}

/** In a workspace its own guardrails and nothing else; without one all of the organisation. */
export async function visible(call: Call, verb: Verb) {
  const workspaceId = await workspaceOf(call);
  if (workspaceId !== null) return { where: { workspace_id: workspaceId } };
  if (verb !== 'list') return {};
  const [organisation, workspace] = [holds(call, 'organisation', verb), holds(call, 'workspace', verb)];
  if (organisation && workspace) return {};
  return { where: organisation ? { workspace_id: null } : { workspace_id: { not: null } } };
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
  if (names.length === 0) return [];
  const levels = workspaceId === null ? [null] : [workspaceId, null];
  const ids = names.filter(isUuid).map((one) => one.toLowerCase());
  const named = [{ slug: { in: names } }, { id: { in: ids } }];
  const anyOf = levels.flatMap((workspace_id) => named.map((one) => ({ ...one, workspace_id })));
  return tx.list('guardrails', { where: { status: 'active', target: 'llm' }, anyOf });
}

/** Names of `names` that a workspace cannot attach. */
export const missingGuardrails: ReferencePorts['missingGuardrails'] = async (tx, workspaceId, names) => {
  const found = await attachable(tx, workspaceId, names);
  return names.filter((name) => !found.some((one) => isNameOf(name, one)));
};

/** Guardrails that may stand for the whole organisation (`DefaultGuardrails`). */
export async function organisationGuardrails(
  tx: TenantTx,
  names: readonly string[],
): Promise<readonly GuardrailName[]> {
  return (await attachable(tx, null, names)).map(({ id, slug }) => ({ id, slug }));
}

const DIRECTIONS = ['input_guardrails', 'output_guardrails'] as const;

const names = (list: unknown, to: { readonly id: string; readonly slug: string }): boolean =>
  Array.isArray(list) && list.some((name) => isNameOf(name, to));

/** Defaults of the organisation and of workspaces that name a guardrail. */
export const defaultReferences: FindReferences = async (tx, to) => {
  if (to.table !== 'guardrails') return [];
  const found: Reference[] = [];
  const organisation = await tx.organisation();
  const defaults = part(organisation.settings, 'defaults');
  if (DIRECTIONS.some((key) => names(defaults[key], to))) {
    found.push({ kind: 'default of the organisation', id: organisation.id, name: organisation.name });
  }
  const where = { status: 'active', ...(to.workspaceId === null ? {} : { id: to.workspaceId }) } as const;
  for (const workspace of await tx.list('workspaces', { where })) {
    if (!DIRECTIONS.some((key) => names(workspace.defaults?.[key], to))) continue;
    found.push({ kind: 'default of the workspace', id: workspace.id, name: workspace.slug });
  }
  return found;
};
