/** Users of an organisation. They come in through invites. */
import { z } from 'zod';
import { SluiceError } from '../../../kernel/errors.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { actorId, only } from '../../common.ts';
import { defineResource, emptyAnswer, itemAction, type Resource } from '../../define.ts';
import { userEmail } from '../../fields.ts';
import { notFound } from '../../look-up.ts';
import { action, type Call } from '../../resource.ts';
import { withServices } from '../../services.ts';
import { resourceSpec } from '../../spec.ts';
import { checkGives, checkGivesIn } from '../give.ts';
import { cancelInvites } from '../invites/cancel.ts';
import { MAILS } from '../mails.ts';
import { personName } from '../person-name.ts';
import { plainTime, plainTimeField } from '../plain-time.ts';
import { checkRank, rankOf } from '../rank.ts';
import { readWorkspaceRoles, type WorkspaceRoleRow, workspaceRoles } from '../workspace-roles.ts';
import { endByHand, setByHand } from '../workspaces/sources.ts';
import { handOver, signInLink } from './owner-actions.ts';

type UserRow = Row<'users'>;

/** A user as it is answered. */
export const userAnswer = z.object({
  object: z.literal('user'),
  id: z.string(),
  first_name: z.string(),
  last_name: z.string(),
  role: z.enum(['owner', 'admin', 'member']),
  email: z.string(),
  created_at: plainTimeField,
  last_updated_at: plainTimeField,
  workspace_ids: z.array(z.string()).describe('Slugs; for owners and admins all workspaces of the organisation.'),
});

const updateBody = z.strictObject({
  email: userEmail
    .optional()
    .describe('Of the user who is signed in. It changes when the link is opened that Sluice mails to it.'),
  first_name: personName.optional(),
  last_name: personName.optional(),
  role: z.enum(['admin', 'member']).optional(),
  workspaces: workspaceRoles
    .optional()
    .describe('The workspaces that the user belongs to afterwards, with the role in each. Left out: unchanged.'),
});

/**
 * Slugs of the active workspaces of each user, oldest first; owners and admins belong to all. Two reads for a whole
 * page.
 */
async function workspaceSlugs(tx: TenantTx, users: readonly UserRow[]): Promise<Map<string, string[]>> {
  const members = users.filter((user) => user.role === 'member').map((user) => user.id);
  const joined =
    members.length === 0
      ? []
      : await tx.list('workspace_members', { where: { user_id: { in: members }, status: 'active' } });
  const ids =
    members.length === users.length ? { id: { in: [...new Set(joined.map((row) => row.workspace_id))] } } : {};
  const workspaces = await tx.list('workspaces', {
    where: { status: 'active', ...ids },
    orderBy: [['created_at', 'asc']],
  });
  const places = new Set(joined.map((row) => `${row.user_id} ${row.workspace_id}`));
  return new Map(
    users.map((user) => {
      const own = workspaces.filter(({ id }) => user.role !== 'member' || places.has(`${user.id} ${id}`));
      return [user.id, own.map((workspace) => workspace.slug)];
    }),
  );
}

/** Users as they are answered, with the workspaces of each. */
export async function presentUsers(rows: readonly UserRow[], { tx }: Call): Promise<z.input<typeof userAnswer>[]> {
  const slugs = await workspaceSlugs(tx, rows);
  return rows.map((row) => ({
    object: 'user',
    id: row.id,
    first_name: row.first_name,
    last_name: row.last_name,
    role: row.role,
    email: row.email,
    created_at: plainTime(row.created_at),
    last_updated_at: plainTime(row.last_updated_at),
    workspace_ids: slugs.get(row.id) ?? [],
  }));
}

/** Makes `wanted` the whole list: joins, changes roles, and leaves what it does not name. */
async function setWorkspaces(call: Call<unknown, unknown, unknown>, userId: string, wanted: WorkspaceRoleRow[]) {
  const { tx, clock } = call;
  const now = new Map(
    (await tx.list('workspace_members', { where: { user_id: userId, status: 'active' } })).map((row) => [
      row.workspace_id,
      row.role,
    ]),
  );
  const kept = new Set(wanted.map((row) => row.workspace_id));
  for (const workspaceId of now.keys()) {
    if (!kept.has(workspaceId)) await endByHand({ tx, clock, workspaceId, userId }, 'workspaces');
  }
  for (const [index, given] of wanted.entries()) {
    const { workspace_id: workspaceId, role } = given;
    if (now.get(workspaceId) === role) continue;
    const param = `workspaces[${index}].role`;
    await checkGivesIn(call, given, param);
    await setByHand({ tx, clock, workspaceId, userId, actorId: actorId(call.principal) }, role, param);
  }
}

const spec = resourceSpec({
  name: 'users',
  tag: 'Users',
  table: 'users',
  path: '/admin/users',
  param: 'userId',
  scopes: ['organisation_users'],
  tenant: 'organisation',
  object: 'user',
  archives: true,
  list: {
    query: z.object({
      role: z.enum(['owner', 'admin', 'member']).optional(),
      email: userEmail.optional().describe('The whole address.'),
    }),
    where: ({ query }) => ({
      ...(query.role === undefined ? {} : { role: query.role }),
      ...(query.email === undefined ? {} : { email: query.email }),
    }),
    defaultPageSize: 50,
    maxPageSize: 100,
    paging: 'camel',
    item: userAnswer,
    presentAll: presentUsers,
  },
  detail: userAnswer,
  present: async (row, call) => only(await presentUsers([row], call)),
  create: null,
  update: {
    own: { param: 'userId', fields: ['first_name', 'last_name', 'email'] },
    // A mail to an address that anybody may name is counted, before the transaction.
    ahead: async ({ body: { email }, params, principal: { userId }, service }) => {
      if (service(MAILS) === null || email === undefined || userId === null) return null;
      if (userId !== params.userId?.toLowerCase()) return null;
      return withServices({ mails: MAILS }, ({ mails }) => mails.admitUser(userId, email));
    },
    body: updateBody,
    response: emptyAnswer,
    run: async (call, row) => {
      const { body } = call;
      const own = await rankOf(call);
      const { first_name, last_name, email, ...others } = body;
      const names = {
        ...(first_name === undefined ? {} : { first_name }),
        ...(last_name === undefined ? {} : { last_name }),
      };
      // Names are for everybody who stands as high; an owner's role and workspaces are for nobody.
      if (row.role === 'owner' && Object.values(others).some((value) => value !== undefined)) {
        throw new SluiceError('forbidden', 'The role and workspaces of an owner cannot be changed.');
      }
      checkRank(own, row.role, null);
      if (body.role !== undefined && body.role !== row.role) await checkGives(call, body.role, 'role');
      if (body.workspaces !== undefined) {
        await setWorkspaces(call, row.id, await readWorkspaceRoles(call.tx, body.workspaces));
      }
      if (body.role === 'member' && row.role === 'admin') await cancelInvites(call, row.id);
      const { askForAddress } = await import('./address.ts');
      const asked = email === undefined || email === row.email ? null : await askForAddress(call, row, email);
      const { role } = body;
      if (Object.values(body).every((value) => value === undefined)) return { patch: {}, answer: {} };
      const patch = { ...names, ...(role === undefined ? {} : { role }), last_updated_at: asked ?? call.clock.now() };
      return { patch, answer: {} };
    },
  },
  remove: {
    check: async (call, row) => {
      checkRank(await rankOf(call), row.role, null);
      if (row.role !== 'owner') return;
      const message = 'The owner cannot be removed. Make an admin the owner first: POST /admin/users/{id}/ownership.';
      throw new SluiceError('validation', message);
    },
    clean: async (call, row) => (await import('./cut-off.ts')).cutOff(call, row.id),
  },
});

const resource = defineResource({ ...spec, actions: [itemAction(spec, signInLink), itemAction(spec, handOver)] });

/** The list under the paths of an organisation's members. */
const members = resource.actions
  .filter(({ id }) => id === 'users.list')
  .map(({ run, ahead: _none, component: _other, ...list }) =>
    action<{ organisationId: string }, unknown, unknown, unknown>({
      ...list,
      id: 'organisation-members.list',
      path: '/organisations/:organisationId/members',
      aliases: ['/v1/organisation/:organisationId/members', '/v2/organisation/:organisationId/members'],
      summary: 'List the members of an organisation',
      params: z.strictObject({ organisationId: z.string() }),
      run: async (call) => {
        if (call.params.organisationId.toLowerCase() !== call.tenant.organisationId) throw notFound();
        return run({ ...call, params: {} });
      },
    }),
  );

export const users: Resource = { actions: [...resource.actions, ...members] };
