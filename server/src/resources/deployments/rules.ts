/** Rules of deployments: settings and their workspaces, the default one, how they are found and shown. */
import { maskKey } from '../../auth/key-format.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { TenantTx, Where } from '../../store/ports.ts';
import type { DeploymentSettings, Row } from '../../store/schema.ts';
import { flagOf, toIso, toIsoOrNull } from '../body-fields.ts';
import { hasTags, readTagsFilter, refuse, refuseIssues } from '../common.ts';
import type { Issue } from '../issues.ts';
import type { Call } from '../resource.ts';
import type { Filters, Settings } from './schema.ts';

export type Deployment = Row<'deployments'>;

/** Active deployments of one organisation. */
const MAX_DEPLOYMENTS = 500;

const NO_SETTINGS: DeploymentSettings = {
  gateway_base_url: null,
  mcp_gateway_base_url: null,
  is_dataservice_hosted: 0,
  is_playground_proxy_allowed: 0,
  allow_all_workspaces: 1,
  workspaces_allowed: [],
  jwt_subs_allowed: [],
  jwt_sub_workspace_mapping: {},
};
const URLS = ['gateway_base_url', 'mcp_gateway_base_url'] as const;
const FLAGS = ['is_dataservice_hosted', 'is_playground_proxy_allowed', 'allow_all_workspaces'] as const;

/** Most entries that lists and mappings may come to by being added to. */
const MAX_ENTRIES = 1000;

/**
 * The settings as they are stored after a change. Lists and mappings are added to, or replaced with `override`. Throws
 * 400 with every address that no call may go to, and every workspace that the organisation does not have.
 */
export async function settingsAfter(
  call: Pick<Call, 'tx' | 'checkHost'>,
  given: Settings,
  override: boolean,
  stored = NO_SETTINGS,
): Promise<DeploymentSettings> {
  const issues: Issue[] = [];
  const out: DeploymentSettings = { ...stored };
  for (const name of URLS) {
    const url = given[name];
    const problem = url == null ? null : call.checkHost(url);
    if (problem !== null) issues.push({ path: name, message: problem });
    if (url !== undefined) out[name] = url === null ? null : url.replace(/\/{1,64}$/, '').replace(/\/v1$/, '');
  }
  for (const name of FLAGS) out[name] = given[name] ?? out[name];
  const idOf = await workspaceIds(call.tx, given);
  const resolve = (name: string, path: string): string => {
    const id = idOf(name);
    if (id === undefined) issues.push({ path, message: 'names no workspace of your organisation' });
    return id ?? '';
  };
  const listed = given.workspaces_allowed?.map((name, i) => resolve(name, `workspaces_allowed[${i}]`));
  const gone = new Set(
    given.remove_workspaces_allowed?.map((name, i) => resolve(name, `remove_workspaces_allowed[${i}]`)),
  );
  const kept = <T>(before: readonly T[], now: readonly T[] | undefined, without: ReadonlySet<T>): T[] =>
    [...new Set([...(override && now !== undefined ? [] : before), ...(now ?? [])])].filter((one) => !without.has(one));
  out.workspaces_allowed = kept(stored.workspaces_allowed, listed, gone);
  if (given.allow_all_workspaces === undefined && listed !== undefined && listed.length > 0)
    out.allow_all_workspaces = 0;
  const removed = new Set(given.remove_subs_allowed);
  out.jwt_subs_allowed = kept(stored.jwt_subs_allowed, given.jwt_subs_allowed, removed);
  const mapped = Object.entries(given.jwt_sub_workspace_mapping ?? {}).map(
    ([subject, name]) => [subject, resolve(name, `jwt_sub_workspace_mapping.${subject}`)] as const,
  );
  const before = override && given.jwt_sub_workspace_mapping !== undefined ? {} : stored.jwt_sub_workspace_mapping;
  out.jwt_sub_workspace_mapping = Object.fromEntries(
    [...new Map([...Object.entries(before), ...mapped])].filter(([subject]) => !removed.has(subject)),
  );
  for (const name of ['workspaces_allowed', 'jwt_subs_allowed', 'jwt_sub_workspace_mapping'] as const) {
    if (Object.keys(out[name]).length > MAX_ENTRIES) {
      issues.push({ path: name, message: `would have more than ${MAX_ENTRIES} entries with those that are stored` });
    }
  }
  if (issues.length > 0) throw refuseIssues('auth_settings', issues);
  return out;
}

/** Ids of the active workspaces that settings name by id or slug. */
async function workspaceIds(tx: TenantTx, given: Settings): Promise<(name: string) => string | undefined> {
  const names = [
    ...new Set([
      ...(given.workspaces_allowed ?? []),
      ...(given.remove_workspaces_allowed ?? []),
      ...Object.values(given.jwt_sub_workspace_mapping ?? {}),
    ]),
  ];
  const rows = await workspacesNamed(tx, names);
  const ids = new Map([...rows.map(({ id, slug }) => [slug, id] as const), ...rows.map(({ id }) => [id, id] as const)]);
  return (name) => ids.get(name) ?? ids.get(name.toLowerCase());
}

async function workspacesNamed(tx: TenantTx, names: readonly string[]): Promise<Row<'workspaces'>[]> {
  if (names.length === 0) return [];
  const status = 'active' as const;
  const bySlug = await tx.list('workspaces', { where: { slug: { in: names }, status } });
  const lower = names.map((name) => name.toLowerCase());
  return [...bySlug, ...(await tx.list('workspaces', { where: { id: { in: lower }, status } }))];
}

/** Throws 403 when the organisation has as many active deployments as it may. Answers how many there are. */
export async function countActive(tx: TenantTx): Promise<number> {
  const active = await tx.count('deployments', { where: { status: 'active' } });
  if (active < MAX_DEPLOYMENTS) return active;
  throw new SluiceError(
    'forbidden',
    `An organisation has at most ${MAX_DEPLOYMENTS} active deployments: delete one that is out of use.`,
  );
}

/** An organisation has one default: the one that had been it, is it no longer. */
export async function takeDefault(call: Pick<Call, 'tx' | 'clock'>, id: string | null): Promise<void> {
  const where = { is_default: true, status: 'active' } as const;
  for (const other of await call.tx.list('deployments', { where })) {
    if (other.id === id) continue;
    const patch = { is_default: false, last_updated_at: call.clock.now() };
    await call.tx.update('deployments', { id: other.id }, patch);
    call.tx.changed({ workspaceId: null, topic: 'deployments', entityId: other.id });
  }
}

/** Throws 400 where the only active deployment would be no default any more. */
export async function checkOthers(tx: TenantTx, row: Deployment): Promise<void> {
  if (!row.is_default || (await tx.count('deployments', { where: { status: 'active' } })) > 1) return;
  throw refuse('is_default', 'must stay 1: this is the only active deployment of the organisation');
}

/** Conditions of a list. Filters on tags and workspaces look at the newest deployments only. */
export async function listWhere(call: Call<unknown, Filters>): Promise<Where<'deployments'>> {
  const { status, type, workspace_slug: slugs, tags } = call.query;
  const where: Where<'deployments'> = { status, ...(type === undefined ? {} : { type }) };
  const wanted = tags === undefined || tags === '' ? null : readTagsFilter(tags);
  if (wanted === null && slugs === undefined) return where;
  const newest = { where, orderBy: [['created_at', 'desc']] as const, limit: 2 * MAX_DEPLOYMENTS };
  const rows = await call.tx.list('deployments', newest);
  const places = await workspacesNamed(call.tx, slugs ?? []);
  const serves = ({ auth_settings: own }: Deployment) =>
    slugs === undefined ||
    (places.length > 0 && own.allow_all_workspaces === 1) ||
    places.some(({ id }) => own.workspaces_allowed.includes(id));
  const found = rows.filter((row) => serves(row) && (wanted === null || hasTags(row.tags, wanted)));
  return { ...where, id: { in: found.map(({ id }) => id) } };
}

export function presentItem(row: Deployment) {
  return {
    id: row.id,
    organisation_id: row.organisation_id,
    name: row.name,
    slug: row.slug,
    type: row.type,
    status: row.status,
    is_default: flagOf(row.is_default),
    connection_status: row.connection_status,
    source_type: row.source_type,
    tags: row.tags,
    created_by: row.created_by,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    last_synced_at: toIsoOrNull(row.last_synced_at),
    last_resynced_at: toIsoOrNull(row.last_resynced_at),
    object: 'deployment' as const,
  };
}

export async function presentDetail(
  row: Deployment,
  call: Call<unknown, { readonly include_credentials?: boolean | undefined }>,
) {
  const { auth_settings: own } = row;
  const places = await workspacesNamed(call.tx, [
    ...new Set([...own.workspaces_allowed, ...Object.values(own.jwt_sub_workspace_mapping)]),
  ]);
  const slugs = new Map(places.map(({ id, slug }) => [id, slug]));
  const workspaces = own.workspaces_allowed.flatMap((id) => {
    const slug = slugs.get(id);
    return slug === undefined ? [] : [{ id, slug }];
  });
  const masked = maskKey(row.client_auth_id);
  return {
    ...presentItem(row),
    auth_settings: {
      ...own,
      workspaces_allowed: workspaces.map(({ slug }) => slug),
      jwt_sub_workspace_mapping: Object.fromEntries(
        Object.entries(own.jwt_sub_workspace_mapping).flatMap(([subject, id]) => {
          const slug = slugs.get(id);
          return slug === undefined ? [] : [[subject, slug]];
        }),
      ),
      private_link_endpoint: null,
      use_private_link_proxy: 0 as const,
      disable_gateway: 0 as const,
    },
    deployment_config: row.deployment_config,
    workspaces,
    ...(call.query.include_credentials === true ? { credentials: { username: row.slug, password: masked } } : {}),
    client_auth: masked,
  };
}
