/** Which workspace a call works in, and what that does to its scopes. */
import type { Principal } from '../auth/principal.ts';
import { intersect, roleScopes } from '../auth/scopes.ts';
import { securityOf } from '../auth/security-settings.ts';
import { tenantOf } from '../auth/tenant.ts';
import { SluiceError } from '../kernel/errors.ts';
import { findWorkspace, workspaceMissing } from '../resources/common.ts';
import { isUuid } from '../resources/fields.ts';
import { notFound } from '../resources/look-up.ts';
import type { Action, RouteAuth } from '../resources/resource.ts';
import type { Tables, TenantTx } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';

export interface Reach {
  /** Null for the whole organisation. */
  readonly workspaceId: string | null;
  /** The caller's scopes there: a signed-in user has those of the role, as the security settings of the workspace leave them. */
  readonly scopes: ReadonlySet<string>;
}

/** Any one of the wanted scopes suffices; sign-in and operator routes have none. */
export function mayUse(held: ReadonlySet<string>, wanted: readonly string[], auth: RouteAuth): boolean {
  if (auth === 'login' || auth === 'operator' || auth === 'any_credential') return true;
  return wanted.some((scope) => held.has(scope));
}

/**
 * Resolves `workspace_id` and `organisation_id` of query and body. A caller bound to a workspace gets 403 for any other
 * name, existing or not; an organisation-wide one 404 `AB02` for a name that is not in its organisation.
 */
export async function resolveWorkspace(
  tables: Pick<Tables, 'read'>,
  principal: Principal,
  route: Pick<Action, 'tenant' | 'workspace'>,
  { params, query, body }: { readonly params: unknown; readonly query: unknown; readonly body: unknown },
): Promise<Reach> {
  const { tenant } = route;
  const organisation = agreed(query, body, 'organisation_id');
  if (organisation !== null && organisation.toLowerCase() !== principal.organisationId) {
    throw new SluiceError('forbidden', 'organisation_id is not the organisation of your credential.', {
      param: 'organisation_id',
    });
  }
  if (typeof route.workspace === 'object') {
    return inPath(tables, principal, fieldOf(params, route.workspace.param) ?? '');
  }
  const given = agreed(query, body, 'workspace_id');
  const { scopes } = principal;
  if (tenant === 'none') return { workspaceId: null, scopes };
  if (principal.workspaceId !== null) {
    if (given !== null && !(await isOwn(tables, principal, given)))
      throw otherWorkspace('the workspace of your credential');
    return { workspaceId: tenant === 'organisation' ? null : principal.workspaceId, scopes };
  }
  const past = route.workspace === 'past';
  const slug = past ? fieldOf(query, 'workspace_slug') : null;
  if (given !== null && slug !== null && given !== slug) {
    throw new SluiceError('validation', 'Send workspace_slug or workspace_id, not both.', { param: 'workspace_slug' });
  }
  const name = given ?? slug;
  const param = given === null && slug !== null ? 'workspace_slug' : 'workspace_id';
  const member = principal.kind === 'user' && principal.role === 'member';
  if (name === null) {
    if (member && route.workspace === 'joined') {
      const security = await tables.read(tenantOf(principal, null), async (tx) =>
        securityOf(await tx.organisation(), null),
      );
      return { workspaceId: null, scopes: roleScopes('member', 'member', security) };
    }
    if (tenant === 'workspace' || member) {
      const why = member
        ? 'as a member of the organisation you have rights in workspaces only'
        : 'your credential is not bound to a workspace';
      throw workspaceMissing(why);
    }
    return { workspaceId: null, scopes };
  }
  const found = await tables.read(
    tenantOf(principal, null),
    async (tx) => (await findWorkspace(tx, name)) ?? (past && !member ? findArchived(tx, name) : undefined),
  );
  const rights = found === undefined ? null : await rightsIn(tables, principal, found);
  if (found === undefined || rights === null) {
    if (member) throw otherWorkspace('a workspace that you belong to', param);
    throw new SluiceError(
      'unknown_reference',
      `${param} names no workspace of your organisation; GET /v1/admin/workspaces lists them.`,
      { param },
    );
  }
  if (member) return { workspaceId: found.id, scopes: rights };
  return tenant === 'organisation' ? { workspaceId: null, scopes } : { workspaceId: found.id, scopes: rights };
}

/** The workspace that a path names, among those the caller may see; the one 404 for every other name. */
async function inPath(tables: Pick<Tables, 'read'>, principal: Principal, name: string): Promise<Reach> {
  const { scopes } = principal;
  if (!/^[A-Za-z0-9_-]{1,255}$/.test(name)) throw notFound();
  if (principal.workspaceId !== null) {
    if (!(await isOwn(tables, principal, name))) throw notFound();
    return { workspaceId: principal.workspaceId, scopes };
  }
  const member = principal.kind === 'user' && principal.role === 'member';
  const found = await tables.read(tenantOf(principal, null), async (tx) => {
    const active = await findWorkspace(tx, name);
    return active ?? (member ? undefined : findArchived(tx, name));
  });
  const rights = found === undefined ? null : await rightsIn(tables, principal, found);
  if (found === undefined || rights === null) throw notFound();
  return { workspaceId: found.id, scopes: rights };
}

/** By UUID, or the last one that had this slug. */
async function findArchived(tx: TenantTx, name: string): Promise<Row<'workspaces'> | undefined> {
  const status = 'archived' as const;
  const byId = isUuid(name) ? await tx.find('workspaces', { id: name.toLowerCase(), status }) : undefined;
  if (byId) return byId;
  const where = { slug: name, status };
  const [last] = await tx.list('workspaces', { where, orderBy: [['last_updated_at', 'desc']], limit: 1 });
  return last;
}

function otherWorkspace(allowed: string, param = 'workspace_id'): SluiceError {
  return new SluiceError('forbidden', `${param} is not ${allowed}.`, { param });
}

/** The value that query and body give a field; 400 when they differ. */
function agreed(query: unknown, body: unknown, field: string): string | null {
  const [a, b] = [fieldOf(query, field), fieldOf(body, field)];
  if (a !== null && b !== null && a !== b) {
    throw new SluiceError('validation', `${field} differs between the query and the body; send it once.`, {
      param: field,
    });
  }
  return a ?? b;
}

function fieldOf(input: unknown, field: string): string | null {
  if (typeof input !== 'object' || input === null || !Object.hasOwn(input, field)) return null;
  const value = (input as Record<string, unknown>)[field];
  return typeof value === 'string' ? value : null;
}

/** One look-up of the caller's own workspace, whatever was named: the answer cannot tell what else exists. */
async function isOwn(tables: Pick<Tables, 'read'>, principal: Principal, name: string): Promise<boolean> {
  const id = principal.workspaceId ?? '';
  if (name.toLowerCase() === id) return true;
  const own = await tables.read(tenantOf(principal, null), (tx) => tx.find('workspaces', { id }));
  return own !== undefined && own.slug === name;
}

/** The scopes of an organisation-wide caller in a workspace; null for a signed-in member who has not joined it. */
async function rightsIn(
  tables: Pick<Tables, 'read'>,
  principal: Principal,
  workspace: Row<'workspaces'>,
): Promise<ReadonlySet<string> | null> {
  const { kind, role, userId } = principal;
  if (kind !== 'user' || role === null || role === 'owner') return principal.scopes;
  return tables.read(tenantOf(principal, null), async (tx) => {
    const security = securityOf(await tx.organisation(), workspace);
    if (role === 'admin') return intersect(principal.scopes, roleScopes(role, null, security));
    const where = { workspace_id: workspace.id, user_id: userId ?? '', status: 'active' } as const;
    const joined = await tx.find('workspace_members', where);
    return joined ? roleScopes(role, joined.role, security) : null;
  });
}
