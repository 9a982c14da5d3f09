/** Workspaces: `/admin/workspaces`, and without `/admin` on `/v2`. */
import { z } from 'zod';
import { categoryOf, isOpenToWorkspaces } from '../../../auth/security-settings.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../../kernel/id.ts';
import type { TenantTx, Where } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { actorId, type Patch, unknownReference } from '../../common.ts';
import { emptyAnswer, listOf, pageOf } from '../../define.ts';
import { missingGuardrails } from '../../guardrails/rules.ts';
import { tellSharing } from '../../integrations/sharing.ts';
import { NO_REFERENCES, type ReferencePorts } from '../../ports.ts';
import type { Action, AnyAction, Call } from '../../resource.ts';
import { storedAlerts } from '../../settings/alerts.ts';
import {
  checkUserKeySettings,
  checkWorkspaceSecurity,
  mergeSettings,
  settingsForNewWorkspace,
} from '../../settings/settings.ts';
import { usageLimitsOf } from '../../shapes.ts';
import { followUpdate, usageOf } from '../../usage.ts';
import { checkGivesIn } from '../give.ts';
import { checkRank, roleIn } from '../rank.ts';
import { mergeDefaults } from './defaults.ts';
import { members } from './members.ts';
import { joinWorkspace } from './membership.ts';
import { presentDetail, presentItem } from './present.ts';
import { removeWorkspace } from './remove.ts';
import {
  type CreateBody,
  createBody,
  getQuery,
  listQuery,
  type RemoveBody,
  removeBody,
  type UpdateBody,
  updateBody,
  workspaceDetail,
  workspaceItem,
  writeQuery,
} from './schema.ts';
import { openWorkspace } from './workspace.ts';

type Workspace = Row<'workspaces'>;
type ListQuery = z.output<typeof listQuery>;
type GetQuery = z.output<typeof getQuery>;

const all = { path: '/admin/workspaces', aliases: ['/v2/workspaces'], params: null } as const;

const one = {
  path: '/admin/workspaces/:workspaceId',
  aliases: ['/v2/workspaces/:workspaceId'],
  params: z.strictObject({ workspaceId: z.string() }),
  tenant: 'workspace',
  workspace: { param: 'workspaceId' },
} as const;

const shared = { tag: 'Workspaces', auth: 'key_or_login' } as const;

/** What of the organisation's workspaces the caller may see; members of the organisation those they have joined. */
async function visible({ principal, tx }: Call<unknown, unknown, unknown>): Promise<readonly string[] | null> {
  if (principal.workspaceId !== null) return [principal.workspaceId];
  if (principal.kind !== 'user' || principal.role !== 'member') return null;
  const where = { user_id: principal.userId ?? '', status: 'active' as const };
  return (await tx.list('workspace_members', { where })).map((member) => member.workspace_id);
}

const list: Action<unknown, ListQuery> = {
  ...shared,
  ...all,
  id: 'workspaces.list',
  method: 'GET',
  summary: 'List workspaces',
  description: 'A workspace key sees its own; a signed-in member those that were joined.',
  scopes: ['workspaces.list'],
  tenant: 'organisation',
  workspace: 'joined',
  query: listQuery,
  body: null,
  response: listOf(workspaceItem),
  writes: false,
  audit: null,
  run: async (call) => {
    const { query, tx } = call;
    const page = pageOf(query, 50);
    const ids = await visible(call);
    const wanted = query.status ?? ['active'];
    if (ids !== null && wanted.includes('archived')) {
      throw new SluiceError('forbidden', 'Archived workspaces are for owners, admins and organisation keys.', {
        param: 'status',
      });
    }
    const name = {
      ...(query.name ? { contains: query.name } : {}),
      ...(query.exact_name === undefined ? {} : { in: [query.exact_name] }),
    };
    const where: Where<'workspaces'> = {
      status: { in: wanted },
      ...(ids === null ? {} : { id: { in: ids } }),
      ...(Object.keys(name).length === 0 ? {} : { name }),
    };
    const total = await tx.count('workspaces', { where });
    const rows = await tx.list('workspaces', { where, orderBy: [['created_at', 'desc']], ...page });
    const usage = await usageOf(tx, 'workspace', rows);
    return { object: 'list', total, data: rows.map((row) => presentItem(row, query.name_format, usage)) };
  },
};

const get: Action<unknown, GetQuery> = {
  ...shared,
  ...one,
  id: 'workspaces.read',
  method: 'GET',
  summary: 'Get a workspace',
  description:
    'With its members, where the caller may list them. include_usage and usage_id are accepted; what a usage limit has counted is answered with the limit once usage limits are counted.',
  scopes: ['workspaces.read'],
  query: getQuery,
  body: null,
  response: workspaceDetail,
  writes: false,
  audit: null,
  run: async (call) => presentCall(call, await openWorkspace(call, { archived: true }), call.query.name_format),
};

function presentCall(
  call: Call<unknown, unknown, unknown>,
  row: Workspace,
  format: z.output<typeof getQuery>['name_format'],
) {
  return presentDetail(call.tx, row, format, call.principal.scopes.has('workspace_users.list'));
}

/** A slug that the caller chose and that is free. Throws 409 for a taken one. */
async function freeSlug(tx: TenantTx, slug: string): Promise<string> {
  if ((await tx.count('workspaces', { where: { slug, status: 'active' } })) === 0) return slug;
  throw new SluiceError('conflict', `slug is taken: the organisation has a workspace named ${slug}.`, {
    param: 'slug',
  });
}

function createAction(ports: ReferencePorts): Action<unknown, unknown, CreateBody> {
  return {
    ...shared,
    ...all,
    id: 'workspaces.create',
    method: 'POST',
    summary: 'Create a workspace',
    description: 'A signed-in creator becomes its admin, and the users that are named become members.',
    example: {
      body: { name: '🚀 Search', description: 'Everything around search', defaults: { metadata: { team: 'search' } } },
    },
    scopes: ['workspaces.create'],
    tenant: 'organisation',
    workspace: 'joined',
    query: writeQuery,
    body: createBody,
    response: workspaceDetail,
    writes: true,
    audit: { action: 'create', resource: 'workspaces' },
    run: async (call) => {
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
        defaults: await mergeDefaults(ports, tx, { id, defaults: undefined }, body.defaults),
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
      await tx.insert('workspaces', row);
      await join(call, row);
      call.audited(id, { before: null, after: row }, id);
      tx.changed({ workspaceId: id, topic: 'workspaces', entityId: id });
      await tellSharing(tx, id);
      return presentCall(call, row, undefined);
    },
  };
}

/** The first members: a signed-in creator as admin, the others as members. */
async function join(call: Call<unknown, unknown, CreateBody>, row: Workspace): Promise<void> {
  const { body, tx, clock, principal } = call;
  const creator = principal.kind === 'user' ? principal.userId : null;
  const joining = { tx, clock, workspaceId: row.id, actorId: actorId(principal) };
  if (creator !== null) await joinWorkspace({ ...joining, userId: creator, role: 'admin' });
  for (const [index, userId] of (body.users ?? []).entries()) {
    if (!(await tx.find('users', { id: userId, status: 'active' }))) throw unknownReference(`users[${index}]`, 'user');
    if (userId === creator) continue;
    await checkGivesIn(call, { workspace_id: row.id, role: 'member' }, `users[${index}]`);
    await joinWorkspace({ ...joining, userId, role: 'member' });
  }
}

function updateAction(ports: ReferencePorts): Action<unknown, unknown, UpdateBody> {
  return {
    ...shared,
    ...one,
    id: 'workspaces.update',
    method: 'PUT',
    summary: 'Update a workspace',
    description:
      'Fields that are left out keep their values, and null clears one. Raising an exhausted usage limit makes it active again. Security settings are for admins of the workspace, in the categories that the organisation has opened.',
    scopes: ['workspaces.update'],
    query: writeQuery,
    body: updateBody,
    response: emptyAnswer,
    writes: true,
    audit: { action: 'update', resource: 'workspaces' },
    run: async (call) => {
      const row = await openWorkspace(call);
      const patch = await changesOf(ports, call, row);
      if (Object.keys(patch).length > 0) {
        patch.last_updated_at = call.clock.now();
        await call.tx.update('workspaces', { id: row.id }, patch);
        call.tx.changed({ workspaceId: row.id, topic: 'workspaces', entityId: row.id });
      }
      call.audited(row.id, { before: row, after: { ...row, ...patch } });
      return {};
    },
  };
}

async function changesOf(
  ports: ReferencePorts,
  call: Call<unknown, unknown, UpdateBody>,
  row: Workspace,
): Promise<Patch<'workspaces'>> {
  const { body, tx, clock } = call;
  const patch: Patch<'workspaces'> = {};
  if (body.security_settings !== undefined) {
    // Whoever a restriction is meant for must not lift it.
    checkRank(await roleIn(call, row.id), 'admin', 'security_settings');
    patch.security_settings = await mergeSecurity(tx, row, body.security_settings);
  }
  if (body.name !== undefined) patch.name = body.name;
  if (body.description !== undefined) patch.description = body.description;
  if (body.icon !== undefined) patch.icon = body.icon;
  if (body.defaults !== undefined) patch.defaults = await mergeDefaults(ports, tx, row, body.defaults);
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

const remove: Action<unknown, unknown, RemoveBody> = {
  ...shared,
  ...one,
  id: 'workspaces.delete',
  method: 'DELETE',
  summary: 'Delete a workspace',
  description:
    'Archives it; its API keys stop at once. With force_delete its configs, providers, virtual keys, integrations, members and files go too. Refused for the default workspace, and while prompts or partials of it are shared.',
  scopes: ['workspaces.delete'],
  query: writeQuery,
  body: removeBody,
  response: emptyAnswer,
  writes: true,
  audit: { action: 'delete', resource: 'workspaces' },
  run: async (call) => {
    const row = await openWorkspace(call);
    await removeWorkspace(call, row);
    call.audited(row.id, { before: row, after: null });
    return {};
  },
};

function workspacesResource(ports: ReferencePorts): AnyAction[] {
  return [list, createAction(ports), get, updateAction(ports), remove, ...members];
}

export const workspaces: readonly AnyAction[] = workspacesResource({ ...NO_REFERENCES, missingGuardrails });
