/**
 * Members of a workspace. Owners and admins of the organisation work in every workspace without being members;
 * they are listed where they were added.
 */
import { z } from 'zod';
import { SluiceError } from '../../../kernel/errors.ts';
import type { Where } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { actorId, unknownReference } from '../../common.ts';
import { emptyAnswer, listOf, notFound, pageOf } from '../../define.ts';
import { isUuid } from '../../fields.ts';
import type { Action, AnyAction, Call } from '../../resource.ts';
import { checkGivesIn } from '../give.ts';
import { checkRank, roleIn } from '../rank.ts';
import {
  type AddBody,
  addBody,
  memberAnswer,
  memberQuery,
  membersQuery,
  type RoleBody,
  roleBody,
} from './members-schema.ts';
import { changeRole, findMember, joinWorkspace, leaveWorkspace, type MemberRow } from './membership.ts';
import { presentMembers } from './present.ts';
import { BASES, openWorkspace } from './workspace.ts';

type Params = { workspaceId: string; userId: string };
type ListQuery = z.output<typeof membersQuery>;

const users = {
  path: '/admin/workspaces/:workspaceId/users',
  aliases: [
    ...BASES.map((base) => `${base}/:workspaceId/members`),
    '/v2/workspaces/:workspaceId/users',
    '/v2/workspaces/:workspaceId/members',
  ],
  params: z.strictObject({ workspaceId: z.string() }),
} as const;

const user = {
  path: `${users.path}/:userId`,
  aliases: users.aliases.map((alias) => `${alias}/:userId`),
  params: z.strictObject({ workspaceId: z.string(), userId: z.string() }),
} as const;

const shared = {
  tag: 'Workspaces',
  auth: 'key_or_login',
  tenant: 'workspace',
  workspace: { param: 'workspaceId' },
} as const;

/** The member that the path names. */
async function memberInPath(call: Call<Params, unknown, unknown>, workspaceId: string): Promise<MemberRow> {
  const id = call.params.userId.toLowerCase();
  const member = isUuid(id) ? await findMember(call.tx, workspaceId, id) : undefined;
  if (!member) throw notFound();
  return member;
}

const list: Action<unknown, ListQuery> = {
  ...shared,
  ...users,
  id: 'workspace-users.list',
  method: 'GET',
  summary: 'List the members of a workspace',
  scopes: ['workspace_users.list'],
  query: membersQuery,
  body: null,
  response: listOf(memberAnswer),
  writes: false,
  audit: null,
  run: async (call) => {
    const workspace = await openWorkspace(call);
    const { query, tx } = call;
    const page = pageOf(query, 50);
    const where: { -readonly [K in keyof Where<'workspace_members'>]: Where<'workspace_members'>[K] } = {
      workspace_id: workspace.id,
      status: 'active',
    };
    if (query.role !== undefined) where.role = query.role;
    if (query.email !== undefined) {
      const named = await tx.list('users', { where: { email: query.email, status: 'active' } });
      where.user_id = { in: named.map((one) => one.id) };
    }
    const total = await tx.count('workspace_members', { where });
    const rows = await tx.list('workspace_members', { where, orderBy: [['created_at', 'desc']], ...page });
    return { object: 'list', total, data: await presentMembers(tx, workspace, rows) };
  },
};

const get: Action<Params> = {
  ...shared,
  ...user,
  id: 'workspace-users.read',
  method: 'GET',
  summary: 'Get a member of a workspace',
  scopes: ['workspace_users.read'],
  query: memberQuery,
  body: null,
  response: memberAnswer,
  writes: false,
  audit: null,
  run: async (call) => {
    const workspace = await openWorkspace(call);
    const [shown] = await presentMembers(call.tx, workspace, [await memberInPath(call, workspace.id)]);
    if (!shown) throw notFound();
    return shown;
  },
};

const add: Action<unknown, unknown, AddBody> = {
  ...shared,
  ...users,
  id: 'workspace-users.create',
  method: 'POST',
  summary: 'Add members to a workspace',
  description:
    'All or none. Adding an existing member with the same role changes nothing; with another role it returns 409. Use the update to change a role.',
  example: { body: { users: [{ id: 'f47ac10b-58cc-4372-a567-0e02b2c3d479', role: 'member' }] } },
  scopes: ['workspace_users.create'],
  query: memberQuery,
  body: addBody,
  response: emptyAnswer,
  writes: true,
  audit: { action: 'create', resource: 'workspaces' },
  run: async (call) => {
    const workspace = await openWorkspace(call);
    const { body, tx, clock, principal } = call;
    for (const [index, { role }] of body.users.entries()) {
      await checkGivesIn(call, { workspace_id: workspace.id, role }, `users[${index}].role`);
    }
    const added: { id: string; role: string }[] = [];
    for (const [index, { id, role }] of body.users.entries()) {
      const param = `users[${index}].id`;
      if (!(await tx.find('users', { id, status: 'active' }))) throw unknownReference(param, 'user');
      const member = await findMember(tx, workspace.id, id);
      if (member?.role === role) continue;
      if (member) {
        throw new SluiceError(
          'conflict',
          `${param} is a member already, as ${member.role}. Change the role with PUT on the member.`,
          { param },
        );
      }
      const actor = actorId(principal);
      await joinWorkspace({ tx, clock, workspaceId: workspace.id, userId: id, role, actorId: actor });
      added.push({ id, role });
    }
    call.audited(workspace.id, { before: null, after: { users: added } });
    return {};
  },
};

const update: Action<Params, unknown, RoleBody> = {
  ...shared,
  ...user,
  id: 'workspace-users.update',
  method: 'PUT',
  summary: 'Change the role of a member of a workspace',
  scopes: ['workspace_users.update'],
  query: memberQuery,
  body: roleBody,
  response: emptyAnswer,
  writes: true,
  audit: { action: 'update', resource: 'workspaces' },
  run: async (call) => {
    const workspace = await openWorkspace(call);
    const { role } = call.body;
    await checkGivesIn(call, { workspace_id: workspace.id, role }, 'role');
    const member = await memberInPath(call, workspace.id);
    checkRank(await roleIn(call, workspace.id), member.role, null);
    const place = { tx: call.tx, clock: call.clock, workspaceId: workspace.id, userId: member.user_id };
    if (member.role !== role) await changeRole(place, role);
    audit(call, workspace, member, { role });
    return {};
  },
};

const remove: Action<Params> = {
  ...shared,
  ...user,
  id: 'workspace-users.delete',
  method: 'DELETE',
  summary: 'Remove a member from a workspace',
  description: 'The user’s own API keys of this workspace are revoked with it.',
  scopes: ['workspace_users.delete'],
  query: memberQuery,
  body: null,
  response: emptyAnswer,
  writes: true,
  audit: { action: 'delete', resource: 'workspaces' },
  run: async (call) => {
    const workspace = await openWorkspace(call);
    const member = await memberInPath(call, workspace.id);
    checkRank(await roleIn(call, workspace.id), member.role, null);
    await leaveWorkspace({ tx: call.tx, clock: call.clock, workspaceId: workspace.id, userId: member.user_id });
    audit(call, workspace, member, null);
    return {};
  },
};

/** Membership is a part of the workspace: its row in the audit log names the workspace. */
function audit(
  call: Call<Params, unknown, unknown>,
  workspace: Row<'workspaces'>,
  member: MemberRow,
  change: { readonly role: string } | null,
): void {
  const before = { user_id: member.user_id, role: member.role };
  call.audited(workspace.id, { before, after: change && { ...before, ...change } });
}

export const members: readonly AnyAction[] = [list, add, get, update, remove];
