/** `/scim/tokens`: the credentials of directories that keep an organisation's users and groups by SCIM. */
import { z } from 'zod';
import { mintKey } from '../../../auth/key-format.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { uuidv7 } from '../../../kernel/id.ts';
import type { Row } from '../../../store/schema.ts';
import { checkGives } from '../../admin/give.ts';
import { isoDate, name, toIso, toIsoOrNull, toMillis } from '../../body-fields.ts';
import { actorId, refuse } from '../../common.ts';
import type { Resource } from '../../define.ts';
import { tenantFields } from '../../fields.ts';
import { notFound } from '../../look-up.ts';
import { action, type Call } from '../../resource.ts';

/** Tokens of one organisation that have not expired. */
const MAX_TOKENS = 10;

/** All of them: what a directory does with a token. */
const NEEDED = [
  'organisation_users.create',
  'organisation_users.update',
  'organisation_users.delete',
  'workspaces.update',
] as const;
const [FIRST] = NEEDED;

const { organisation_id } = tenantFields;

const item = z.object({
  object: z.literal('scim-token'),
  id: z.string(),
  name: z.string(),
  expires_at: z.string().nullable().describe('Null: until it is deleted.'),
  created_by: z.string().describe('The user or key that made it.'),
  created_at: z.string(),
});

const present = (row: Row<'scim_tokens'>): z.input<typeof item> => ({
  object: 'scim-token',
  id: row.id,
  name: row.name,
  expires_at: toIsoOrNull(row.expires_at),
  created_by: row.created_by,
  created_at: toIso(row.created_at),
});

/** Throws 403 unless the caller could do all that the token will. */
function checkScopes({ principal }: Pick<Call, 'principal'>): void {
  const missing = NEEDED.find((scope) => !principal.scopes.has(scope));
  if (missing === undefined) return;
  throw new SluiceError('forbidden', `This needs the scope ${missing}, which your credential does not have.`);
}

const shared = {
  path: '/scim/tokens',
  tag: 'SCIM',
  auth: 'key_or_login',
  scopes: [FIRST],
  tenant: 'organisation',
  query: z.strictObject({ organisation_id }),
} as const;
const needs = `Needs ${NEEDED.slice(0, -1).join(', ')} and ${NEEDED.at(-1) ?? ''}.`;

const create = action({
  ...shared,
  id: 'scim_tokens.create',
  method: 'POST',
  summary: 'Make a SCIM token',
  description: `The token is shown once. It opens SCIM of this organisation, and nothing else. ${needs} A key also needs every scope that an admin has, because a directory makes admins.`,
  example: { body: { name: 'Entra ID' } },
  params: null,
  body: z.strictObject({
    name,
    expires_at: isoDate
      .nullable()
      .optional()
      .describe('None when absent: a directory stops at a token that has expired.'),
  }),
  response: item.extend({
    token: z.string().describe('Shown once.'),
    base_url: z.string().describe('What the directory is given as the address of SCIM.'),
  }),
  writes: true,
  secretAnswer: true,
  audit: { action: 'create', resource: 'scim-tokens' },
  run: async (call) => {
    checkScopes(call);
    await checkGives(call, 'admin', null);
    const { body, tx, clock, tenant, publicUrl } = call;
    const now = clock.now();
    const expires = body.expires_at == null ? null : toMillis(body.expires_at);
    if (expires !== null && expires <= now) throw refuse('expires_at', 'must be in the future');
    await tx.remove('scim_tokens', { expires_at: { lte: now } });
    if ((await tx.count('scim_tokens')) >= MAX_TOKENS) {
      throw new SluiceError('conflict', `An organisation has at most ${MAX_TOKENS} SCIM tokens. Delete one first.`);
    }
    const minted = mintKey('scm');
    const row: Row<'scim_tokens'> = {
      id: uuidv7(clock),
      organisation_id: tenant.organisationId,
      name: body.name,
      public_id: minted.publicId,
      digest: minted.digest,
      expires_at: expires,
      created_by: actorId(call.principal),
      created_at: now,
    };
    await tx.insert('scim_tokens', row);
    call.audit(row.id, { before: null, after: present(row) });
    return { ...present(row), token: minted.key, base_url: `${publicUrl}/v1/scim/${tenant.organisationId}` };
  },
});

const list = action({
  ...shared,
  id: 'scim_tokens.list',
  method: 'GET',
  summary: 'List SCIM tokens',
  description: `Without their secrets. ${needs}`,
  params: null,
  body: null,
  response: z.object({ object: z.literal('list'), data: z.array(item), total: z.number() }),
  writes: false,
  audit: null,
  run: async (call) => {
    checkScopes(call);
    const rows = await call.tx.list('scim_tokens', { orderBy: [['created_at', 'asc']], limit: 10 * MAX_TOKENS });
    return { object: 'list' as const, data: rows.map(present), total: rows.length };
  },
});

const remove = action({
  ...shared,
  id: 'scim_tokens.delete',
  method: 'DELETE',
  path: '/scim/tokens/:id',
  summary: 'Delete a SCIM token',
  description: `It opens nothing from then on. ${needs}`,
  params: z.strictObject({ id: z.string() }),
  body: null,
  response: z.object({}),
  writes: true,
  audit: { action: 'delete', resource: 'scim-tokens' },
  run: async (call) => {
    checkScopes(call);
    const id = call.params.id.toLowerCase();
    const row = await call.tx.find('scim_tokens', { id });
    if (row === undefined) throw notFound();
    await call.tx.remove('scim_tokens', { id });
    call.audit(id, { before: present(row), after: null });
    return {};
  },
});

export const scimTokens: Resource = { actions: [create, list, remove] };
