/** Users of an organisation (interface §2.8, §4.7). */
import { z } from 'zod';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { notFound } from '../../define.ts';
import { isUuid, tenantFields } from '../../fields.ts';
import type { Action, AnyAction } from '../../resource.ts';

const time = z.string().regex(/^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$/);

const userAnswer = z.object({
  object: z.literal('user'),
  id: z.string(),
  first_name: z.string(),
  last_name: z.string(),
  role: z.enum(['owner', 'admin', 'member']),
  email: z.string(),
  created_at: time.describe('UTC, YYYY-MM-DD HH:MM:SS.'),
  last_updated_at: time.describe('UTC, YYYY-MM-DD HH:MM:SS.'),
  workspace_ids: z.array(z.string()).describe('Slugs; for owners and admins all workspaces of the organisation.'),
});

/** `YYYY-MM-DD HH:MM:SS` in UTC, the date format of users and invites. */
function plainTime(time: number): string {
  return new Date(time).toISOString().slice(0, 19).replace('T', ' ');
}

/** Slugs of the active workspaces a user belongs to, oldest first; owners and admins belong to all. */
async function workspaceSlugs(tx: TenantTx, user: Row<'users'>): Promise<string[]> {
  const orderBy = [['created_at', 'asc']] as const;
  if (user.role !== 'member') {
    const all = await tx.list('workspaces', { where: { status: 'active' }, orderBy });
    return all.map((workspace) => workspace.slug);
  }
  const joined = await tx.list('workspace_members', { where: { user_id: user.id, status: 'active' } });
  if (joined.length === 0) return [];
  const where = { id: { in: joined.map((member) => member.workspace_id) }, status: 'active' as const };
  return (await tx.list('workspaces', { where, orderBy })).map((workspace) => workspace.slug);
}

const get: Action<{ userId: string }> = {
  id: 'users.read',
  method: 'GET',
  path: '/admin/users/:userId',
  summary: 'Get a user',
  tag: 'Users',
  auth: 'key_or_login',
  scopes: ['organisation_users.read'],
  tenant: 'organisation',
  params: z.strictObject({ userId: z.string() }),
  query: z.strictObject(tenantFields),
  body: null,
  response: userAnswer,
  writes: false,
  audit: null,
  run: async ({ params, tx }) => {
    const id = params.userId.toLowerCase();
    const user = isUuid(id) ? await tx.find('users', { id, status: 'active' }) : undefined;
    if (!user) throw notFound();
    return {
      object: 'user',
      id: user.id,
      first_name: user.first_name,
      last_name: user.last_name,
      role: user.role,
      email: user.email,
      created_at: plainTime(user.created_at),
      last_updated_at: plainTime(user.last_updated_at),
      workspace_ids: await workspaceSlugs(tx, user),
    };
  },
};

export const users: readonly AnyAction[] = [get];
