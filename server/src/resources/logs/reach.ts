/**
 * Whose stored requests a caller reads: the one place that turns principal, workspace and security settings into the scope of
 * a question. What it answers is part of every question, and nothing that a caller filters by can widen it.
 */
import type { Principal } from '../../auth/principal.ts';
import { roleScopes, roleSight, type Sight, WHOLE_SIGHT } from '../../auth/scopes.ts';
import { securityOf } from '../../auth/security-settings.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { ErasedLogs, LogFilter, LogScope, LogStore } from '../../telemetry/log-query.ts';
import type { Call } from '../resource.ts';
import { Service } from '../services.ts';

/** The records, and which of them may be shown. */
export interface KeptLogs {
  readonly store: LogStore;
  /** 0: all that are kept. */
  readonly days: number;
  /** What is being erased of the organisation of a transaction. */
  readonly erased: (tx: Pick<TenantTx, 'tenant' | 'list'>) => Promise<readonly ErasedLogs[]>;
}

export const KEPT_LOGS = new Service<KeptLogs>('log store: requests are not kept where it can read them');

export interface Reach {
  readonly scope: LogScope;
  readonly sight: Sight;
}

/** Who reads; a job reads in the name of whoever has begun its work. */
export type Reader = Pick<Call, 'tenant' | 'tx' | 'clock' | 'service'> & {
  readonly principal: Pick<Principal, 'role' | 'userId'>;
};
type Workspace = Row<'workspaces'>;

/** What is read of an organisation when no workspace is named: its default workspace, or all of it. */
export type Unnamed = 'default workspace' | 'whole organisation';

/** More workspaces than an organisation has. */
const MOST_WORKSPACES = 100_000;
const DAY_MS = 86_400_000;

/**
 * The records that a caller may read. People are restricted by the role that they have now, in each workspace; service keys
 * act for nobody and are restricted by their scopes alone.
 *
 * @param right the scope that shows these records: a setting that takes it from a role closes the records, also to keys
 * @throws `forbidden` where a setting keeps the records from the caller
 */
export async function reachOf(
  call: Reader,
  right: 'logs.view' | 'analytics.view',
  unnamed: Unnamed = 'whole organisation',
): Promise<Reach> {
  const { principal, tenant, tx } = call;
  const logs = call.service(KEPT_LOGS);
  const days = logs?.days ?? 0;
  const erased = (await logs?.erased(tx)) ?? [];
  const scopeOf = (workspaceIds: readonly string[] | null, sight: Sight): Reach => ({
    scope: {
      organisationId: tenant.organisationId,
      workspaceIds,
      userId: sight.ownOnly === null ? null : principal.userId,
      keptSince: days === 0 ? 0 : call.clock.now() - days * DAY_MS,
      erased,
    },
    sight,
  });
  if (tenant.workspaceId === null && unnamed === 'whole organisation') {
    if (principal.role === null || principal.role === 'owner') return scopeOf(null, WHOLE_SIGHT);
    return ofAdmin(call, right, scopeOf);
  }
  const workspace =
    tenant.workspaceId === null ? await defaultWorkspace(tx) : await tx.find('workspaces', { id: tenant.workspaceId });
  if (workspace === undefined) {
    throw new SluiceError('validation', 'workspace_slug is required: the organisation has no default workspace.', {
      param: 'workspace_slug',
    });
  }
  const { may, sight } = await rightsIn(call, right, workspace);
  if (!may) throw new SluiceError('forbidden', `The security settings keep this from your role: it needs ${right}.`);
  return scopeOf([workspace.id], sight);
}

/** In the order of the index that `is_default` is in: in another one, all workspaces would be sorted for one. */
async function defaultWorkspace(tx: Reader['tx']): Promise<Workspace | undefined> {
  const orderBy = [
    ['is_default', 'desc'],
    ['name', 'asc'],
    ['id', 'asc'],
  ] as const;
  const [first] = await tx.list('workspaces', { where: { is_default: true, status: 'active' }, orderBy, limit: 1 });
  return first;
}

/** Of the whole organisation an admin reads the workspaces whose settings keep nothing from its admins. */
async function ofAdmin(
  call: Reader,
  right: string,
  scopeOf: (workspaceIds: readonly string[] | null, sight: Sight) => Reach,
): Promise<Reach> {
  const { principal, tx } = call;
  const role = principal.role ?? 'member';
  const organisation = await tx.organisation();
  const general = securityOf(organisation, null);
  const sight = roleSight(role, null, general);
  const workspaces = await tx.list('workspaces', { orderBy: [['id', 'asc']], limit: MOST_WORKSPACES });
  const open = workspaces.filter((workspace) => {
    const settings = securityOf(organisation, workspace);
    const there = roleSight(role, null, settings);
    const hides = there.noMetadata !== null && sight.noMetadata === null;
    return !hides && roleScopes(role, null, settings).has(right);
  });
  const all = open.length === workspaces.length;
  return scopeOf(all ? null : open.map(({ id }) => id), sight);
}

async function rightsIn(
  { principal, tx }: Reader,
  right: string,
  workspace: Workspace,
): Promise<{ readonly may: boolean; readonly sight: Sight }> {
  const { role, userId } = principal;
  if (role === null || userId === null) return { may: true, sight: WHOLE_SIGHT };
  const joined = await tx.find('workspace_members', { workspace_id: workspace.id, user_id: userId, status: 'active' });
  const settings = securityOf(await tx.organisation(), workspace);
  return {
    may: roleScopes(role, joined?.role ?? null, settings).has(right),
    sight: roleSight(role, joined?.role ?? 'member', settings),
  };
}

/** Refuses with 403 what names metadata, to those from whom a setting hides it. */
export function checkMetadataSeen({ noMetadata }: Sight, param: string | null): void {
  if (noMetadata === null) return;
  throw new SluiceError(
    'forbidden',
    `This reads the metadata of requests, which the security setting ${noMetadata} keeps from you. Ask an administrator.`,
    { param },
  );
}

/** Whether these conditions ask for metadata, the reserved keys with columns too. */
export function namesMetadata(where: readonly LogFilter[]): boolean {
  return where.some((filter) =>
    'anyOf' in filter ? filter.anyOf.some(namesMetadata) : 'metadata' in filter || METADATA.has(filter.column),
  );
}

/** Columns that hold values of metadata. */
const METADATA: ReadonlySet<string> = new Set([
  'end_user',
  'meta_organisation',
  'meta_prompt',
  'meta_environment',
  'metadata',
]);
