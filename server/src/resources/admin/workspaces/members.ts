import { SluiceError } from '../../../kernel/errors.ts';
import type { Row } from '../../../store/schema.ts';
import { actorId, unknownReference } from '../../common.ts';
import { emptyAnswer, itemAction } from '../../define.ts';
import { isUuid } from '../../fields.ts';
import { childList } from '../../kinds/child.ts';
import { notFound } from '../../look-up.ts';
import type { AnyAction, Call } from '../../resource.ts';
import type { ItemCall, ResourceSpec } from '../../spec.ts';
import { checkGivesIn } from '../give.ts';
import { checkRank, roleIn } from '../rank.ts';
import { addBody, memberAnswer, membersQuery, roleBody } from './members-schema.ts';
import { findMember, type MemberRow } from './membership.ts';
import { presentMembers } from './present.ts';
import { endByHand, setByHand, setSource } from './sources.ts';

type Workspace = Row<'workspaces'>;
type Spec = ResourceSpec<'workspaces'>;

const users = { path: '/users', alsoAt: ['/members'] } as const;
const user = { path: '/users/:userId', alsoAt: ['/members/:userId'] } as const;

/** The member that the path names. */
async function memberInPath({ tx, params }: ItemCall, workspaceId: string): Promise<MemberRow> {
  const id = (params.userId ?? '').toLowerCase();
  const member = isUuid(id) ? await findMember(tx, workspaceId, id) : undefined;
  if (!member) throw notFound();
  return member;
}

const list = (spec: Spec) =>
  childList(spec, {
    ...users,
    name: 'users',
    id: 'workspace-users.list',
    summary: 'List the members of a workspace',
    scopes: ['workspace_users.list'],
    table: 'workspace_members',
    query: membersQuery,
    where: async (workspace, { query, tx }) => {
      const { role, email } = query;
      const here = { workspace_id: workspace.id, status: 'active' as const, ...(role === undefined ? {} : { role }) };
      if (email === undefined) return here;
      const named = await tx.list('users', { where: { email, status: 'active' } });
      return { ...here, user_id: { in: named.map((one) => one.id) } };
    },
    orderBy: [['created_at', 'desc']],
    paging: 'page',
    item: memberAnswer,
    present: (rows, { tx }, workspace) => presentMembers(tx, workspace, rows),
  });

const get = (spec: Spec) =>
  itemAction(spec, {
    ...user,
    name: 'users.read',
    id: 'workspace-users.read',
    method: 'GET',
    summary: 'Get a member of a workspace',
    verb: 'read',
    scopes: ['workspace_users.read'],
    response: memberAnswer,
    audit: null,
    run: async (call, workspace) => {
      const [shown] = await presentMembers(call.tx, workspace, [await memberInPath(call, workspace.id)]);
      if (!shown) throw notFound();
      return { answer: shown };
    },
  });

const add = (spec: Spec) =>
  itemAction(spec, {
    ...users,
    name: 'users.create',
    id: 'workspace-users.create',
    method: 'POST',
    summary: 'Add members to a workspace',
    description:
      'All or none. A member with the same role stays, also when a group or an invite no longer gives the membership; with another role the answer is 409. Use the update to change a role.',
    example: { body: { users: [{ id: 'f47ac10b-58cc-4372-a567-0e02b2c3d479', role: 'member' }] } },
    verb: 'update',
    scopes: ['workspace_users.create'],
    body: addBody,
    response: emptyAnswer,
    audit: { action: 'create', resource: 'workspaces' },
    run: async (call, workspace) => {
      const { body, tx, clock, principal } = call;
      for (const [index, { role }] of body.users.entries()) {
        await checkGivesIn(call, { workspace_id: workspace.id, role }, `users[${index}].role`);
      }
      const added: { id: string; role: string }[] = [];
      for (const [index, { id, role }] of body.users.entries()) {
        const param = `users[${index}].id`;
        if (!(await tx.find('users', { id, status: 'active' }))) throw unknownReference(param, 'user');
        const member = await findMember(tx, workspace.id, id);
        if (member && member.role !== role) {
          throw new SluiceError(
            'conflict',
            `${param} is a member already, as ${member.role}. Change the role with PUT on the member.`,
            { param },
          );
        }
        const actor = actorId(principal);
        const place = { tx, clock, workspaceId: workspace.id, userId: id, actorId: actor };
        await setSource({ ...place, source: 'manual', role });
        if (!member) added.push({ id, role });
      }
      call.audit(workspace.id, { before: null, after: { users: added } });
      return { answer: {} };
    },
  });

const update = (spec: Spec) =>
  itemAction(spec, {
    ...user,
    name: 'users.update',
    id: 'workspace-users.update',
    method: 'PUT',
    summary: 'Change the role of a member of a workspace',
    verb: 'update',
    scopes: ['workspace_users.update'],
    body: roleBody,
    response: emptyAnswer,
    audit: 'update',
    run: async (call, workspace) => {
      const { role } = call.body;
      await checkGivesIn(call, { workspace_id: workspace.id, role }, 'role');
      const member = await memberInPath(call, workspace.id);
      checkRank(await roleIn(call, workspace.id), member.role, null);
      const place = { tx: call.tx, clock: call.clock, workspaceId: workspace.id, userId: member.user_id };
      await setByHand(place, role, 'role');
      audit(call, workspace, member, { role });
      return { answer: {} };
    },
  });

const remove = (spec: Spec) =>
  itemAction(spec, {
    ...user,
    name: 'users.delete',
    id: 'workspace-users.delete',
    method: 'DELETE',
    summary: 'Remove a member from a workspace',
    description:
      'The user’s own API keys of this workspace are revoked with it. Answers 409 while a SCIM group gives the membership.',
    verb: 'delete',
    scopes: ['workspace_users.delete'],
    response: emptyAnswer,
    audit: 'delete',
    run: async (call, workspace) => {
      const member = await memberInPath(call, workspace.id);
      checkRank(await roleIn(call, workspace.id), member.role, null);
      const place = { tx: call.tx, clock: call.clock, workspaceId: workspace.id, userId: member.user_id };
      await endByHand(place, null);
      audit(call, workspace, member, null);
      return { answer: {} };
    },
  });

/** Membership is a part of the workspace: its row in the audit log names the workspace. */
function audit(call: Call, workspace: Workspace, member: MemberRow, change: { readonly role: string } | null): void {
  const before = { user_id: member.user_id, role: member.role };
  call.audit(workspace.id, { before, after: change && { ...before, ...change } });
}

export const memberActions = (spec: Spec): AnyAction[] => [list, add, get, update, remove].map((make) => make(spec));
