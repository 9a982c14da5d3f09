/** Programs that a user has let in, as the user sees and ends them: families of OAuth tokens, of which no token is shown. */
import { z } from 'zod';
import type { Principal } from '../../auth/principal.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Row } from '../../store/schema.ts';
import { toIso } from '../body-fields.ts';
import { emptyAnswer, type Resource } from '../define.ts';
import { notFound } from '../look-up.ts';
import { action } from '../resource.ts';

const approval = z
  .object({
    object: z.literal('oauth-approval'),
    id: z.string(),
    client_id: z.string(),
    client_name: z.string().nullable().describe('As the program called itself when it was let in.'),
    workspace_id: z.string(),
    scopes: z.array(z.string()),
    resource: z.string().describe('Address of the MCP server or agent.'),
    created_at: z.string(),
    expires_at: z.string().describe('The organisation’s `max_session_ttl` may end it earlier.'),
  })
  .meta({ title: 'OAuthApproval' });

/** A user sees 500 at most, the newest. */
const MOST = 500;

const present = (row: Row<'oauth_families'>): z.input<typeof approval> => ({
  object: 'oauth-approval',
  id: row.id,
  client_id: row.client_id,
  client_name: row.client_name,
  workspace_id: row.workspace_id,
  scopes: row.scope.split(' '),
  resource: row.resource,
  created_at: toIso(row.created_at),
  expires_at: toIso(row.expires_at),
});

/** A token of an organisation may name a user, and is not the user. */
function userOf({ kind, userId }: Principal): string {
  if (kind === 'user' && userId !== null) return userId;
  throw new SluiceError('forbidden', 'Approvals are those of a user who is signed in.');
}

const list = action({
  id: 'oauth-approvals.list',
  method: 'GET',
  path: '/oauth/approvals',
  summary: 'List the programs that you have let in',
  description: 'For a sign-in: the approvals of the user who is signed in, newest first.',
  tag: 'OAuth',
  auth: 'login',
  scopes: [],
  tenant: 'none',
  params: null,
  query: z.strictObject({}),
  body: null,
  response: z.object({ object: z.literal('list'), total: z.int(), data: z.array(approval) }),
  writes: false,
  audit: null,
  run: async ({ tx, principal, clock }) => {
    const rows = await tx.list('oauth_families', {
      where: { user_id: userOf(principal), expires_at: { gt: clock.now() } },
      orderBy: [
        ['created_at', 'desc'],
        ['id', 'desc'],
      ],
      limit: MOST,
    });
    return { object: 'list' as const, total: rows.length, data: rows.map(present) };
  },
});

const end = action({
  id: 'oauth-approvals.delete',
  method: 'DELETE',
  path: '/oauth/approvals/:approvalId',
  summary: 'End the access of a program that you have let in',
  description: 'All tokens of the approval end on every node within a second.',
  tag: 'OAuth',
  auth: 'login',
  scopes: [],
  tenant: 'none',
  params: z.strictObject({ approvalId: z.uuid() }),
  query: z.strictObject({}),
  body: null,
  response: emptyAnswer,
  writes: true,
  audit: { action: 'delete', resource: 'oauth-clients' },
  run: async (call) => {
    const { tx, principal, params } = call;
    const mine = { id: params.approvalId.toLowerCase(), user_id: userOf(principal) };
    const row = await tx.find('oauth_families', mine);
    if (row === undefined) throw notFound();
    await tx.remove('oauth_families', mine);
    tx.changed({ workspaceId: row.workspace_id, topic: 'oauth_families', entityId: row.id });
    call.audit(row.client_id, { before: present(row), after: null }, row.workspace_id);
    return {};
  },
});

export const approvals: Resource = { actions: [list, end] };
