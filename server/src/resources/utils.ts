/** Who calls: whether a credential is good, and whose it is. */
import { z } from 'zod';
import { presentUsers, userAnswer } from './admin/users/index.ts';
import { toIso } from './body-fields.ts';
import { emptyAnswer, type Resource } from './define.ts';
import { action, type Call } from './resource.ts';

const testAuth = action({
  id: 'utils.test-auth',
  method: 'GET',
  path: '/utils/test-auth',
  summary: 'Test a credential',
  description: 'Answers `{}` to every API key and sign-in that is valid, whatever its scopes, and 401 to any other.',
  tag: 'Utilities',
  auth: 'any_credential',
  scopes: [],
  tenant: 'none',
  params: null,
  query: z.strictObject({}),
  body: null,
  response: emptyAnswer,
  writes: false,
  audit: null,
  run: async () => ({}),
});

/** Any other is found by `GET /v1/workspaces`. */
const MOST_WORKSPACES = 1_000;

const limits = z.record(z.string(), z.unknown());

const answer = z.object({
  object: z.literal('session'),
  user: userAnswer.nullable().describe('Null where the token names no user of the organisation.'),
  organisation: z.object({ id: z.string(), name: z.string(), slug: z.string() }),
  workspaces: z.array(
    z.object({
      id: z.string(),
      slug: z.string(),
      name: z.string(),
      role: z.enum(['admin', 'manager', 'member']).nullable(),
    }),
  ),
  scopes: z.array(z.string()).describe('Outside workspaces; in each, those of the role there.'),
  rate_limits: z.array(limits).describe('Those that the credential brings itself.'),
  usage_limits: z
    .union([limits, z.array(limits)])
    .nullable()
    .describe('A list where a token brings several.'),
  expires_at: z.string().nullable(),
});

const self = action({
  id: 'auth.self',
  method: 'GET',
  path: '/auth/self',
  summary: 'Read who is signed in',
  description: 'For a sign-in only: an API key alone is 401.',
  tag: 'Sign-in',
  auth: 'login',
  scopes: [],
  tenant: 'none',
  params: null,
  query: z.strictObject({}),
  body: null,
  response: answer,
  writes: false,
  audit: null,
  run: async (call) => {
    const { tx, principal } = call;
    const organisation = await tx.organisation();
    const user = principal.userId === null ? undefined : await tx.find('users', { id: principal.userId });
    const [shown = null] = user === undefined ? [] : await presentUsers([user], call);
    return {
      object: 'session' as const,
      user: shown,
      organisation: { id: organisation.id, name: organisation.name, slug: organisation.slug },
      workspaces: await workspacesOf(call),
      scopes: [...principal.scopes].sort(),
      rate_limits: principal.rateLimits.map((limit) => ({ ...limit })),
      usage_limits: principal.usageLimits,
      expires_at: principal.expiresAt === null ? null : toIso(principal.expiresAt),
    };
  },
});

/** Where the caller may work: owners and admins in all, members where they have joined, a token in its own. */
async function workspacesOf({ tx, principal }: Call): Promise<z.input<typeof answer>['workspaces']> {
  const { role, userId, workspaceId } = principal;
  const everywhere = role === 'owner' || role === 'admin';
  const joined =
    everywhere || userId === null
      ? []
      : await tx.list('workspace_members', { where: { user_id: userId, status: 'active' } });
  const roles = new Map(joined.map((place) => [place.workspace_id, place.role]));
  const ids = workspaceId === null ? [...roles.keys()] : [workspaceId];
  if (!everywhere && ids.length === 0) return [];
  const rows = await tx.list('workspaces', {
    where: { status: 'active', ...(everywhere && workspaceId === null ? {} : { id: { in: ids } }) },
    orderBy: [
      ['is_default', 'desc'],
      ['name', 'asc'],
    ],
    limit: MOST_WORKSPACES,
  });
  return rows.map(({ id, slug, name }) => ({ id, slug, name, role: everywhere ? 'admin' : (roles.get(id) ?? null) }));
}

export const utils: Resource = { actions: [testAuth, self] };
