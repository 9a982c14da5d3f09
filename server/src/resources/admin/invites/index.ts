/** Invites to an organisation: pending until they are accepted, cancelled or a week old. */
import { z } from 'zod';
import type { Principal } from '../../../auth/principal.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { uuidv7 } from '../../../kernel/id.ts';
import type { TenantTx, Where } from '../../../store/ports.ts';
import type { InvitedKey, Row } from '../../../store/schema.ts';
import { checkScopes } from '../../api-keys/rules.ts';
import { defaultMetadata, name, text } from '../../body-fields.ts';
import { actorId, only } from '../../common.ts';
import { defineResource, itemAction } from '../../define.ts';
import { organisationTenantFields, queryList, tenantFields, userEmail } from '../../fields.ts';
import type { Call } from '../../resource.ts';
import { applyMetadataSchema } from '../../settings/metadata.ts';
import { metadataSchemaOf } from '../../settings/settings.ts';
import { type ItemAction, resourceSpec } from '../../spec.ts';
import { checkGives, checkGivesIn } from '../give.ts';
import { plainTime, plainTimeField } from '../plain-time.ts';
import { checkRank, rankOf } from '../rank.ts';
import { readWorkspaceRoles, workspaceRoles } from '../workspace-roles.ts';
import { INVITE_TTL_MS, newLink } from './link.ts';

type InviteRow = Row<'invites'>;

const statuses = z.enum(['pending', 'cancelled', 'accepted', 'expired']);
type Status = z.infer<typeof statuses>;

const inviteAnswer = z.object({
  object: z.literal('invite'),
  id: z.string(),
  email: z.string(),
  role: z.enum(['admin', 'member']),
  created_at: plainTimeField,
  expires_at: plainTimeField,
  accepted_at: plainTimeField.nullable(),
  status: statuses,
  invited_by: z.string().describe('User, or the key that invited.'),
  workspaces: z.array(
    z.object({ workspace_id: z.string().describe('Slug.'), role: z.enum(['admin', 'manager', 'member']) }),
  ),
});

const createBody = z
  .strictObject({
    organisation_id: tenantFields.organisation_id,
    email: userEmail,
    role: z.enum(['admin', 'member']),
    workspaces: workspaceRoles,
    workspace_api_key_details: z
      .strictObject({
        name: name.optional(),
        scopes: z.array(z.string().max(128)).max(500).describe('None above the caller’s own.'),
        defaults: z.strictObject({ metadata: defaultMetadata.optional() }).optional(),
      })
      .optional()
      .describe('A user key in each of the workspaces, made on acceptance and shown to the new user once.'),
  })
  .refine((body) => body.workspace_api_key_details === undefined || body.workspaces.length > 0, {
    path: ['workspace_api_key_details'],
    message: 'needs a workspace that the key is for: name one in workspaces',
  });

type CreateBody = z.infer<typeof createBody>;

/** `expired` once its time has passed, whatever the row says. */
export function inviteStatus(row: Pick<InviteRow, 'status' | 'expires_at'>, now: number): Status {
  return row.status === 'pending' && row.expires_at <= now ? 'expired' : row.status;
}

function whereStatus(status: Status, now: number): Where<'invites'>[] {
  if (status === 'pending') return [{ status, expires_at: { gt: now } }];
  if (status === 'expired') return [{ status }, { status: 'pending', expires_at: { lte: now } }];
  return [{ status }];
}

async function presentAll(rows: readonly InviteRow[], { tx, clock }: Call): Promise<z.input<typeof inviteAnswer>[]> {
  const ids = [...new Set(rows.flatMap((row) => row.workspaces.map((workspace) => workspace.workspace_id)))];
  const workspaces = ids.length === 0 ? [] : await tx.list('workspaces', { where: { id: { in: ids } } });
  const slugs = new Map(workspaces.map((workspace) => [workspace.id, workspace.slug]));
  return rows.map((row) => ({
    object: 'invite',
    id: row.id,
    email: row.email,
    role: row.role,
    created_at: plainTime(row.created_at),
    expires_at: plainTime(row.expires_at),
    accepted_at: row.accepted_at === null ? null : plainTime(row.accepted_at),
    status: inviteStatus(row, clock.now()),
    invited_by: row.invited_by,
    workspaces: row.workspaces.map(({ workspace_id, role }) => ({
      workspace_id: slugs.get(workspace_id) ?? workspace_id,
      role,
    })),
  }));
}

/** The scopes must be a user key's (400), and the caller must be able to make such a key himself (403). */
function checkInvitedKey(principal: Principal, key: InvitedKey | null | undefined): void {
  if (key == null) return;
  const path = 'workspace_api_key_details';
  if (!principal.scopes.has('workspace_user_api_keys.create')) {
    throw new SluiceError(
      'forbidden',
      'An invite that brings a key needs the scope workspace_user_api_keys.create, which your credential does not have.',
      { param: path },
    );
  }
  checkScopes(principal, 'workspace-user', key.scopes, `${path}.scopes`);
}

/** Whoever accepts could not mend metadata that the organisation's schema refuses (400), so the invite is the place for it. */
async function checkInvitedMetadata(tx: TenantTx, key: InvitedKey | undefined): Promise<void> {
  if (key === undefined) return;
  const schema = metadataSchemaOf(await tx.organisation(), 'api_key');
  applyMetadataSchema(schema, key.defaults?.metadata, 'workspace_api_key_details.defaults.metadata');
}

/** Refuses an address that is a user's or has an open invite (409); an expired invite gives its place up. */
async function claimAddress(tx: TenantTx, address: string, now: number): Promise<void> {
  if (await tx.find('users', { email: address, status: 'active' })) {
    throw new SluiceError(
      'conflict',
      'email is the address of a user of this organisation: add that user to a workspace instead.',
      { param: 'email' },
    );
  }
  const open = await tx.find('invites', { email: address, status: 'pending' });
  if (!open) return;
  if (inviteStatus(open, now) === 'pending') {
    throw new SluiceError('conflict', 'email has an open invite: send that one again, or cancel it first.', {
      param: 'email',
    });
  }
  await tx.update('invites', { id: open.id }, { status: 'expired', last_updated_at: now });
}

async function create(call: Call<unknown, unknown, CreateBody>) {
  const { body, principal, tenant, tx, clock } = call;
  const now = await tx.now();
  await checkGives(call, body.role, 'role');
  const details = body.workspace_api_key_details;
  checkInvitedKey(principal, details);
  await checkInvitedMetadata(tx, details);
  const workspaces = await readWorkspaceRoles(tx, body.workspaces);
  for (const [index, given] of workspaces.entries()) await checkGivesIn(call, given, `workspaces[${index}].role`);
  await claimAddress(tx, body.email, now);
  const link = newLink(call.publicUrl);
  const row: InviteRow = {
    id: uuidv7(clock),
    organisation_id: tenant.organisationId,
    email: body.email,
    role: body.role,
    workspaces,
    api_key_details: details === undefined ? null : { ...details, scopes: [...new Set(details.scopes)] },
    status: 'pending',
    token_digest: link.digest,
    expires_at: now + INVITE_TTL_MS,
    accepted_at: null,
    invited_by: actorId(principal),
    created_at: now,
    last_updated_at: now,
  };
  return { row, answer: { id: row.id, invite_link: link.url } };
}

/** The time of a change. Throws 409 unless the invite is pending: the other states are final. */
async function checkPending(tx: TenantTx, row: InviteRow): Promise<number> {
  const now = await tx.now();
  const status = inviteStatus(row, now);
  if (status === 'pending') return now;
  throw new SluiceError('conflict', `This invite is ${status}, and that is final. Invite the address anew.`);
}

const resend: ItemAction<'invites', never, unknown, unknown, { readonly inviteLink: string }> = {
  name: 'resend',
  method: 'POST',
  summary: 'Make a new link for an invite',
  description: 'Valid for seven more days. The previous link stops working at once.',
  verb: 'update',
  scopes: ['organisation_users.create'],
  response: z.object({ inviteLink: z.string() }),
  secretAnswer: true,
  audit: 'update',
  run: async (call, row) => {
    // The link hands role, workspaces and key out again.
    await checkGives(call, row.role, null);
    for (const given of row.workspaces) await checkGivesIn(call, given, null);
    checkInvitedKey(call.principal, row.api_key_details);
    const link = newLink(call.publicUrl);
    const now = await checkPending(call.tx, row);
    const patch = { token_digest: link.digest, expires_at: now + INVITE_TTL_MS, last_updated_at: now };
    return { patch, answer: { inviteLink: link.url } };
  },
};

const spec = resourceSpec({
  name: 'invites',
  tag: 'Users',
  table: 'invites',
  path: '/admin/users/invites',
  param: 'inviteId',
  scopes: ['organisation_users'],
  tenant: 'organisation',
  object: 'invite',
  archives: false,
  audits: 'whole',
  list: {
    query: z.object({
      role: z.enum(['admin', 'member']).optional(),
      email: userEmail.optional().describe('The whole address.'),
      status: queryList(statuses, 4).optional(),
      search: text(254, 1).optional().describe('Part of the address.'),
    }),
    where: ({ query }) => ({
      ...(query.role === undefined ? {} : { role: query.role }),
      ...(query.email === undefined && query.search === undefined
        ? {}
        : {
            email: {
              ...(query.email === undefined ? {} : { in: [query.email] }),
              ...(query.search === undefined ? {} : { contains: query.search.toLowerCase() }),
            },
          }),
    }),
    anyOf: ({ query, clock }) => query.status?.flatMap((status) => whereStatus(status, clock.now())),
    defaultPageSize: 50,
    maxPageSize: 100,
    paging: 'camel',
    item: inviteAnswer,
    presentAll,
  },
  detail: inviteAnswer,
  present: async (row, call) => only(await presentAll([row], call)),
  create: {
    summary: 'Invite somebody',
    description: 'Nothing is sent: hand the link over yourself. It works once, for seven days, and is shown only here.',
    example: { body: { email: 'ada@example.com', role: 'member', workspaces: [{ id: 'ws-default', role: 'member' }] } },
    query: z.strictObject(organisationTenantFields),
    body: createBody,
    response: z.object({ id: z.string(), invite_link: z.string() }),
    secretAnswer: true,
    run: create,
  },
  update: null,
  remove: {
    summary: 'Cancel an invite',
    description: 'Its link stops working at once. The invite stays in the list as `cancelled`.',
    check: async (call, row) => checkRank(await rankOf(call), row.role, null),
    patch: async ({ tx }, row) => ({ status: 'cancelled' as const, last_updated_at: await checkPending(tx, row) }),
  },
});

export const invites = defineResource({ ...spec, actions: [itemAction(spec, resend)] });
