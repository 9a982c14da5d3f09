/** New keys: those that somebody asks for, and what every new key has in common. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { TenantTx } from '../../store/ports.ts';
import { usageLimitOf } from '../body-fields.ts';
import { actorId, only, workspaceMissing } from '../common.ts';
import { action, type Call } from '../resource.ts';
import { boundsNew, checkMayAdd, liftBounds, mayLoosen } from './bounds.ts';
import { policyColumns } from './rotation.ts';
import {
  checkDefaults,
  checkOwner,
  checkRotation,
  checkScopes,
  newExpiry,
  PREFIXES,
  userKeySettings,
} from './rules.ts';
import { type CreateBody, createAnswer, createBody } from './schema.ts';
import { type KeyRow, mintSecret } from './secrets.ts';

/** Type and sub-type of the path; there is no organisation-wide user key. */
const createParams = z
  .strictObject({ type: z.enum(['organisation', 'workspace']), subType: z.enum(['service', 'user']) })
  .refine(({ type, subType }) => type === 'workspace' || subType === 'service', {
    path: ['subType'],
    message: 'must be service: an organisation has no user keys',
  });

type CreateParams = z.infer<typeof createParams>;

/** Stores new keys with their first secrets; the answer has the whole keys, which can be shown this once only. */
export async function insertKeys(tx: TenantTx, rows: readonly KeyRow[]): Promise<{ id: string; key: string }[]> {
  const made = rows.map((row) => ({ row, secret: mintSecret(row, row.created_at) }));
  await tx.insertAll('api_keys', rows);
  await tx.insertAll(
    'api_key_secrets',
    made.map(({ secret }) => secret.row),
  );
  for (const { workspace_id: workspaceId, id } of rows) tx.changed({ workspaceId, topic: 'api_keys', entityId: id });
  return made.map(({ row, secret }) => ({ id: row.id, key: secret.key }));
}

/** How many keys each of these users has in a workspace, for `user_api_key_count`. */
export async function countUserKeys(
  tx: TenantTx,
  workspaceId: string,
  userIds: readonly string[],
): Promise<Map<string, number>> {
  const where = { workspace_id: workspaceId, user_id: { in: [...userIds] }, type: 'workspace-user' } as const;
  const groups = await tx.totals('api_keys', { where: { ...where, status: { not: 'archived' } }, by: ['user_id'] });
  return new Map(groups.map(({ by, count }) => [String(by.user_id), count]));
}

/** The row of a key as the caller asks for it. */
async function keyRow(call: Call<CreateParams, unknown, CreateBody>): Promise<KeyRow> {
  const { params, body, principal, tenant, tx, clock } = call;
  const now = clock.now();
  const type: KeyRow['type'] = params.type === 'organisation' ? 'organisation-service' : `workspace-${params.subType}`;
  const { workspaceId } = tenant;
  if (params.type === 'workspace' && workspaceId === null) {
    throw workspaceMissing('your credential is not bound to a workspace');
  }
  if (params.type === 'organisation' && workspaceId !== null) {
    throw new SluiceError(
      'validation',
      'workspace_id cannot be given for an organisation key: leave it out, or make a key of a workspace.',
      {
        param: 'workspace_id',
      },
    );
  }
  if (params.subType === 'service' && body.user_id !== undefined) {
    throw new SluiceError(
      'validation',
      'user_id cannot be given for a service key: leave it out, or make a key of the type user.',
      { param: 'user_id' },
    );
  }
  const scopes = checkScopes(principal, type, body.scopes);
  if (body.rotation_policy != null && !principal.scopes.has(`${PREFIXES[type]}.update`)) {
    throw new SluiceError('forbidden', `Setting a rotation policy needs the scope ${PREFIXES[type]}.update.`, {
      param: 'rotation_policy',
    });
  }
  const isUser = type === 'workspace-user' && workspaceId !== null;
  const userId = isUser ? await checkOwner(call, workspaceId, body.user_id) : null;
  const settings = isUser ? await userKeySettings(tx, workspaceId) : null;
  if (settings?.maxKeys != null && userId !== null && workspaceId !== null) {
    const count = (await countUserKeys(tx, workspaceId, [userId])).get(userId) ?? 0;
    if (count >= settings.maxKeys) {
      throw new SluiceError(
        'conflict',
        `This user already has ${count} ${count === 1 ? 'key' : 'keys'} here, the most that is allowed. Delete one first.`,
      );
    }
  }
  if (userId !== null && workspaceId !== null) await checkMayAdd(tx, principal, workspaceId, userId);
  const given = body.defaults;
  if (settings?.config != null && given?.config_id !== undefined && !mayLoosen(principal, type)) {
    throw new SluiceError(
      'forbidden',
      `The workspace gives user keys the config ${settings.config}: choosing another needs the scope workspace_service_api_keys.create.`,
      { param: 'defaults.config_id' },
    );
  }
  const pinned = settings?.config && given?.config_id === undefined ? { config_id: settings.config } : undefined;
  return {
    id: uuidv7(clock),
    organisation_id: tenant.organisationId,
    workspace_id: workspaceId,
    user_id: userId,
    type,
    name: body.name,
    description: body.description ?? null,
    status: 'active',
    scopes,
    rate_limits: body.rate_limits ?? null,
    usage_limits: body.usage_limits ? usageLimitOf(body.usage_limits, now, 'usage_limits') : null,
    defaults: await checkDefaults(tx, workspaceId, null, pinned ? { ...given, ...pinned } : given),
    alert_emails: body.alert_emails ?? null,
    expires_at: newExpiry(body.expires_at, settings, now),
    ...policyColumns(checkRotation(body.rotation_policy, null, settings, now, now)),
    creation_mode: principal.kind === 'user' ? 'ui' : 'api',
    created_by: actorId(principal),
    bounded_by: boundsNew(principal, userId, body),
    last_rotated_at: null,
    last_reset_at: null,
    version: 1,
    created_at: now,
    last_updated_at: now,
  };
}

export const createKey = action({
  id: 'api-keys.create',
  method: 'POST',
  path: '/api-keys/:type/:subType',
  summary: 'Create an API key',
  description: 'The answer is the only place where the whole key is ever shown.',
  tag: 'API keys',
  auth: 'key_or_login',
  scopes: ['{type}_{subType}_api_keys.create'],
  tenant: 'workspace_optional',
  params: createParams,
  query: null,
  body: createBody,
  response: createAnswer,
  writes: true,
  secretAnswer: true,
  audit: { action: 'create', resource: 'api-keys' },
  example: { body: { name: 'Development', scopes: ['completions.write'] } },
  run: async (call) => {
    const row = await keyRow(call);
    const { key } = only(await insertKeys(call.tx, [row]));
    await liftBounds(call.tx, call.principal, row);
    call.audit(row.id, { before: null, after: row, table: 'api_keys' });
    return { id: row.id, key, object: 'api-key' as const };
  },
});
