/** Workspaces: `/admin/workspaces`, and without `/admin` on `/v2`. */
import type { z } from 'zod';
import { categoryOf, isOpenToWorkspaces } from '../../../auth/security-settings.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../../kernel/id.ts';
import type { TenantTx, Where } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { usageLimitsOf } from '../../body-fields.ts';
import { actorId, type Patch, unknownReference } from '../../common.ts';
import { defineResource, emptyAnswer } from '../../define.ts';
import { workspaceDefaults } from '../../guardrails/rules.ts';
import { tellSharing } from '../../integrations/sharing.ts';
import type { Call } from '../../resource.ts';
import { followAlertSettings, storedAlerts } from '../../settings/alerts.ts';
import {
  checkUserKeySettings,
  checkWorkspaceSecurity,
  mergeSettings,
  settingsForNewWorkspace,
} from '../../settings/settings.ts';
import { resourceSpec } from '../../spec.ts';
import { followUpdate, usageOf } from '../../usage-counters.ts';
import { checkGivesIn } from '../give.ts';
import { checkRank, roleIn } from '../rank.ts';
import { mergeDefaults, userKeyConfig } from './defaults.ts';
import { memberActions } from './members.ts';
import { presentDetail, presentItem } from './present.ts';
import { checkRemovable, emptyWorkspace, stillUsed } from './remove.ts';
import {
  type CreateBody,
  createBody,
  getQuery,
  listQuery,
  removeBody,
  type UpdateBody,
  updateBody,
  workspaceDetail,
  workspaceItem,
  writeQuery,
} from './schema.ts';
import { setSource, setSources } from './sources.ts';

type Workspace = Row<'workspaces'>;
type ListQuery = z.output<typeof listQuery>;
type GetQuery = z.output<typeof getQuery>;

/** What of the organisation's workspaces the caller may see; members of the organisation those they have joined. */
async function visible({ principal, tx }: Call) {
  if (principal.workspaceId !== null) return { where: { id: { in: [principal.workspaceId] } } };
  if (principal.kind !== 'user' || principal.role !== 'member') return {};
  const where = { user_id: principal.userId ?? '', status: 'active' as const };
  const joined = await tx.list('workspace_members', { where });
  return { where: { id: { in: joined.map((member) => member.workspace_id) } } };
}

function listWhere(call: Call<unknown, ListQuery>): Where<'workspaces'> {
  const { principal } = call;
  const { query } = call;
  const wanted = query.status ?? ['active'];
  const seesAll = principal.workspaceId === null && (principal.kind !== 'user' || principal.role !== 'member');
  if (!seesAll && wanted.includes('archived')) {
    throw new SluiceError('forbidden', 'Archived workspaces are for owners, admins and organisation keys.', {
      param: 'status',
    });
  }
  const name = {
    ...(query.name ? { contains: query.name } : {}),
    ...(query.exact_name === undefined ? {} : { in: [query.exact_name] }),
  };
  return { status: { in: wanted }, ...(Object.keys(name).length === 0 ? {} : { name }) };
}

async function presentAll(rows: readonly Workspace[], call: Call<unknown, ListQuery>) {
  const { name_format } = call.query;
  const usage = await usageOf(call.tx, 'workspace', rows);
  return rows.map((row) => presentItem(row, name_format, usage));
}

function presentCall(call: Call, row: Workspace, format: GetQuery['name_format']) {
  return presentDetail(call.tx, row, format, call.principal.scopes.has('workspace_users.list'));
}

/** A slug that the caller chose and that is free. Throws 409 for a taken one. */
async function freeSlug(tx: TenantTx, slug: string): Promise<string> {
  if ((await tx.count('workspaces', { where: { slug, status: 'active' } })) === 0) return slug;
  throw new SluiceError('conflict', `slug is taken: the organisation has a workspace named ${slug}.`, {
    param: 'slug',
  });
}

async function create(call: Call<unknown, unknown, CreateBody>) {
  const { body, tx, clock, principal } = call;
  const now = clock.now();
  const id = uuidv7(clock);
  const row: Workspace = {
    id,
    organisation_id: call.tenant.organisationId,
    slug: body.slug === undefined ? slugify(body.name, 'ws-') : await freeSlug(tx, body.slug),
    name: body.name,
    icon: body.icon ?? null,
    description: body.description ?? null,
    is_default: false,
    status: 'active',
    defaults: await mergeDefaults(tx, { id, defaults: undefined }, body.defaults),
    ...settingsForNewWorkspace(await tx.organisation()),
    usage_limits: usageLimitsOf(body.usage_limits, now, 'usage_limits') ?? null,
    rate_limits: body.rate_limits ?? null,
    created_by: actorId(principal),
    creation_source: principal.kind === 'user' ? 'ui' : 'api',
    scim_source_id: null,
    last_reset_at: null,
    created_at: now,
    last_updated_at: now,
  };
  return { row, answer: null };
}

/** The first members: a signed-in creator as admin, the others as members. */
async function join(call: Call<unknown, unknown, CreateBody>, row: Workspace): Promise<void> {
  const { body, tx, clock, principal } = call;
  const creator = principal.kind === 'user' ? principal.userId : null;
  const joining = { tx, clock, workspaceId: row.id, source: 'manual', actorId: actorId(principal) } as const;
  if (creator !== null) await setSource({ ...joining, userId: creator, role: 'admin' });
  const joined: string[] = [];
  for (const [index, userId] of (body.users ?? []).entries()) {
    if (!(await tx.find('users', { id: userId, status: 'active' }))) throw unknownReference(`users[${index}]`, 'user');
    if (userId === creator) continue;
    await checkGivesIn(call, { workspace_id: row.id, role: 'member' }, `users[${index}]`);
    joined.push(userId);
  }
  await setSources({ ...joining, userIds: joined, role: 'member' });
}

async function update(call: Call<unknown, unknown, UpdateBody>, row: Workspace) {
  const patch = await changesOf(call, row);
  if (Object.keys(patch).length > 0) return { patch, answer: {} };
  // Nothing to announce.
  call.audit(row.id, { before: row, after: row });
  return { answer: {} };
}

async function changesOf(call: Call<unknown, unknown, UpdateBody>, row: Workspace): Promise<Patch<'workspaces'>> {
  const { body, tx, clock } = call;
  const patch: Patch<'workspaces'> = {};
  if (body.security_settings !== undefined) {
    // A user whom a restriction is meant for must not lift it.
    checkRank(await roleIn(call, row.id), 'admin', 'security_settings');
    patch.security_settings = await mergeSecurity(tx, row, body.security_settings);
  }
  if (body.name !== undefined) patch.name = body.name;
  if (body.description !== undefined) patch.description = body.description;
  if (body.icon !== undefined) patch.icon = body.icon;
  if (body.defaults !== undefined) patch.defaults = await mergeDefaults(tx, row, body.defaults);
  if (body.rate_limits !== undefined) patch.rate_limits = body.rate_limits;
  if (body.usage_limits !== undefined) {
    patch.usage_limits = usageLimitsOf(body.usage_limits, clock.now(), 'usage_limits');
  }
  if (body.settings !== undefined) {
    const alerts = await storedAlerts(call, body.settings?.alerts, row.settings, 'settings.alerts');
    const settings = body.settings === null ? {} : mergeSettings(row.settings, { ...body.settings, ...alerts });
    const { settings: general } = await tx.organisation();
    checkUserKeySettings(body.settings, { ...general, ...settings }, 'settings.');
    patch.settings = settings;
    await followAlertSettings(tx, row.id, settings, clock.now());
  }
  if (body.reset_usage === true) {
    patch.last_reset_at = clock.now();
  }
  if (body.usage_limits !== undefined || body.reset_usage === true) {
    const limits = patch.usage_limits === undefined ? row.usage_limits : patch.usage_limits;
    const owner = { kind: 'workspace', id: row.id, label: row.slug, at: clock.now(), usage_limits: limits } as const;
    await followUpdate(tx, clock, owner, body.reset_usage === true);
  }
  return patch;
}

/** Null clears what the organisation has opened; what is closed is not the workspace's to touch. */
async function mergeSecurity(
  tx: TenantTx,
  row: Workspace,
  given: UpdateBody['security_settings'],
): Promise<Record<string, unknown>> {
  const organisation = await tx.organisation();
  checkWorkspaceSecurity(organisation, given);
  if (given !== null) return mergeSettings(row.security_settings, given);
  const closed = Object.entries(row.security_settings).filter(
    ([key]) => !isOpenToWorkspaces(organisation, categoryOf(key)),
  );
  return Object.fromEntries(closed);
}

const spec = resourceSpec({
  name: 'workspaces',
  tag: 'Workspaces',
  table: 'workspaces',
  path: '/admin/workspaces',
  aliases: ['/v2/workspaces'],
  param: 'workspaceId',
  scopes: ['workspaces'],
  tenant: 'organisation',
  isWorkspace: true,
  object: 'workspace',
  archives: true,
  audits: 'whole',
  visible,
  list: {
    description: 'A workspace key sees its own; a signed-in member those that were joined.',
    query: listQuery,
    where: listWhere,
    defaultPageSize: 50,
    maxPageSize: 100,
    item: workspaceItem,
    presentAll,
  },
  get: {
    description:
      'With its members, where the caller may list them. include_usage and usage_id are accepted; what a usage limit has counted is answered with the limit once usage limits are counted.',
    query: getQuery,
    archivedToo: true,
  },
  detail: workspaceDetail,
  present: (row, call) => presentCall(call, row, call.query.name_format),
  create: {
    description: 'A signed-in creator becomes its admin, and the users that are named become members.',
    example: {
      body: { name: '🚀 Search', description: 'Everything around search', defaults: { metadata: { team: 'search' } } },
    },
    query: writeQuery,
    body: createBody,
    response: workspaceDetail,
    run: create,
    after: async (call, row) => {
      await join(call, row);
      await tellSharing(call.tx, row.id);
      return presentCall(call, row, undefined);
    },
  },
  update: {
    description:
      'Fields that are left out keep their values, and null clears one. Raising an exhausted usage limit makes it active again. Security settings are for admins of the workspace, in the categories that the organisation has opened.',
    body: updateBody,
    response: emptyAnswer,
    run: update,
  },
  remove: {
    description:
      'Archives it; its API keys stop at once. With force_delete its configs, providers, virtual keys, integrations, members and files go too. Refused for the default workspace, and while prompts or partials of it are shared.',
    body: removeBody,
    check: async (call, row) => checkRemovable(call.body, row),
    referred: stillUsed,
    clean: (call, row) => emptyWorkspace(call, row, call.body.force_delete === true),
  },
});

export const workspaces = defineResource({
  ...spec,
  actions: memberActions(spec),
  refers: [
    { to: 'configs', find: userKeyConfig },
    { to: 'guardrails', find: workspaceDefaults },
  ],
});
