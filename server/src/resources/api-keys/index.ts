/** API keys (api §11): the credentials that this administration API and the gateway accept. */
import { z } from 'zod';
import { type KeyType, maskKey, mintKey } from '../../auth/keys.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import type { TenantTx, Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { defineResource, emptyAnswer } from '../define.ts';
import { queryBoolean, queryList, uuid } from '../fields.ts';
import type { Action, AnyAction, Call, ItemVerb } from '../resource.ts';
import { presentUsageLimit, toIso, toIsoOrNull } from '../shapes.ts';
import {
  checkDefaults,
  checkExpiry,
  checkOwner,
  checkRotation,
  checkScopes,
  checkUsage,
  type KeyRow,
  userKeySettings,
} from './rules.ts';
import { type CreateBody, createAnswer, createBody, keyAnswer, updateBody } from './schema.ts';

const PREFIXES = {
  'organisation-service': 'organisation_service_api_keys',
  'workspace-service': 'workspace_service_api_keys',
  'workspace-user': 'workspace_user_api_keys',
} as const;

const TYPES = Object.keys(PREFIXES) as KeyRow['type'][];
const MARKS: Record<KeyRow['type'], KeyType> = {
  'organisation-service': 'org',
  'workspace-service': 'wks',
  'workspace-user': 'usr',
};

/** Each type has scopes of its own, so a caller sees exactly the types it may do this to; members only their own keys. */
function visible(call: Call, verb: ItemVerb | 'list') {
  const { principal } = call;
  const types = TYPES.filter((type) => principal.scopes.has(`${PREFIXES[type]}.${verb}`));
  const own = principal.kind === 'user' && principal.role === 'member' && !types.includes('workspace-service');
  return { where: { type: { in: types }, ...(own ? { user_id: principal.userId } : {}) } };
}

type Patch = { -readonly [K in keyof KeyRow]?: KeyRow[K] };

const statuses = z.enum(['active', 'exhausted', 'expired']);
type Status = z.infer<typeof statuses>;

/** A key past its expiry counts as expired, whether or not the row says so yet. */
function whereStatus(status: Status, now: number): Where<'api_keys'>[] {
  if (status === 'expired') return [{ status: 'expired' as const }, { expires_at: { lte: now } }];
  return [
    { status, expires_at: null },
    { status, expires_at: { gt: now } },
  ];
}

function statusOf(row: KeyRow, now: number): KeyRow['status'] {
  return row.status !== 'archived' && row.expires_at !== null && row.expires_at <= now ? 'expired' : row.status;
}

/** Public ids of the current secrets, by key: the newest one that is not on its way out. */
async function publicIds(tx: TenantTx, keys: readonly KeyRow[]): Promise<Map<string, string>> {
  if (keys.length === 0) return new Map();
  const secrets = await tx.list('api_key_secrets', {
    where: { api_key_id: { in: keys.map((key) => key.id) } },
    orderBy: [['created_at', 'asc']],
  });
  const passing = secrets.filter((secret) => secret.expires_at !== null);
  const current = secrets.filter((secret) => secret.expires_at === null);
  return new Map([...passing, ...current].map((secret) => [secret.api_key_id, secret.id]));
}

function presentKey(row: KeyRow, publicId: string | undefined, now: number) {
  const status = statusOf(row, now);
  return {
    object: 'api-key',
    id: row.id,
    key: maskKey(publicId ?? ''),
    name: row.name,
    description: row.description,
    type: row.type,
    organisation_id: row.organisation_id,
    workspace_id: row.workspace_id,
    user_id: row.user_id,
    status,
    creation_mode: row.creation_mode,
    scopes: row.scopes,
    rate_limits: row.rate_limits ?? [],
    usage_limits: presentUsageLimit(row.usage_limits, {
      exhausted: row.status === 'exhausted',
      lastResetAt: row.last_reset_at,
    }),
    defaults: row.defaults === null ? null : { allow_config_override: true, ...row.defaults },
    alert_emails: row.alert_emails ?? [],
    expires_at: toIsoOrNull(row.expires_at),
    rotation_policy: row.rotation_policy,
    last_rotated_at: toIsoOrNull(row.last_rotated_at),
    last_reset_at: toIsoOrNull(row.last_reset_at),
    next_usage_reset_at: row.usage_limits?.next_usage_reset_at ?? null,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
  };
}

/** Type and sub-type of the path; there is no organisation-wide user key. */
const createParams = z
  .strictObject({ type: z.enum(['organisation', 'workspace']), sub: z.enum(['service', 'user']) })
  .refine(({ type, sub }) => type === 'workspace' || sub === 'service', {
    path: ['sub'],
    message: 'must be service: an organisation has no user keys',
  });

type CreateParams = z.infer<typeof createParams>;

/** The row and the secret row of a new key; `key` is shown once. */
async function buildKey(call: Call<CreateParams, unknown, CreateBody>) {
  const { params, body, principal, tenant, tx, clock } = call;
  const now = clock.now();
  const type: KeyRow['type'] = params.type === 'organisation' ? 'organisation-service' : `workspace-${params.sub}`;
  const { workspaceId } = tenant;
  if (params.type === 'workspace' && workspaceId === null) {
    throw new SluiceError('validation', 'workspace_id is required: your credential is not bound to a workspace.', {
      param: 'workspace_id',
    });
  }
  if (params.type === 'organisation' && workspaceId !== null) {
    throw new SluiceError('validation', 'workspace_id cannot be given for an organisation key.', {
      param: 'workspace_id',
    });
  }
  if (params.sub === 'service' && body.user_id !== undefined) {
    throw new SluiceError('validation', 'user_id cannot be given for a service key.', { param: 'user_id' });
  }
  const scopes = checkScopes(principal, type, body.scopes);
  const isUser = type === 'workspace-user' && workspaceId !== null;
  const userId = isUser ? await checkOwner(call, workspaceId, body.user_id) : null;
  const settings = isUser ? await userKeySettings(tx, workspaceId) : null;
  if (settings?.maxKeys != null && userId !== null) {
    const count = await tx.count('api_keys', { where: { user_id: userId, status: { not: 'archived' } } });
    if (count >= settings.maxKeys) {
      throw new SluiceError('conflict', `This user already has ${count} keys here, the most that is allowed.`);
    }
  }
  const given = body.defaults;
  const pinned = settings?.config && given?.config_id === undefined ? { config_id: settings.config } : undefined;
  const minted = mintKey(MARKS[type]);
  const row: KeyRow = {
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
    usage_limits: checkUsage(body.usage_limits, now),
    defaults: await checkDefaults(tx, null, pinned ? { ...given, ...pinned } : given),
    alert_emails: body.alert_emails ?? null,
    expires_at: checkExpiry(body.expires_at, settings, now, now),
    rotation_policy: checkRotation(body.rotation_policy, settings, now, now) as KeyRow['rotation_policy'],
    rotation_due_at: null,
    creation_mode: principal.kind === 'user' ? 'ui' : 'api',
    created_by: principal.userId ?? principal.keyId,
    last_rotated_at: null,
    last_reset_at: null,
    version: 1,
    created_at: now,
    last_updated_at: now,
  };
  const secret: Row<'api_key_secrets'> = {
    id: minted.publicId,
    organisation_id: tenant.organisationId,
    api_key_id: row.id,
    digest: minted.digest,
    expires_at: null,
    created_at: now,
  };
  return { row, secret, key: minted.key };
}

const create: Action<CreateParams, unknown, CreateBody> = {
  id: 'api-keys.create',
  method: 'POST',
  path: '/api-keys/:type/:sub',
  summary: 'Create an API key',
  description: 'The answer is the only place where the whole key is ever shown.',
  tag: 'API keys',
  auth: 'key_or_login',
  scopes: ['{type}_{sub}_api_keys.create'],
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
    const { row, secret, key } = await buildKey(call);
    await call.tx.insert('api_keys', row);
    await call.tx.insert('api_key_secrets', secret);
    call.audited(row.id);
    call.tx.changed({ workspaceId: row.workspace_id, topic: 'api_keys', entityId: row.id });
    return { id: row.id, key, object: 'api-key' };
  },
};

export const apiKeys: readonly AnyAction[] = [
  ...defineResource({
    name: 'api-keys',
    tag: 'API keys',
    table: 'api_keys',
    path: '/api-keys',
    param: 'id',
    scopes: Object.values(PREFIXES),
    tenant: 'workspace_optional',
    object: 'api-key',
    archives: true,
    visible,
    list: {
      query: z.object({ ids: queryList(uuid, 100).optional(), status: queryList(statuses, 3).optional() }),
      where: ({ query }) => (query.ids === undefined ? {} : { id: { in: query.ids as string[] } }),
      anyOf: ({ query, clock }) =>
        (query.status as Status[] | undefined)?.flatMap((status) => whereStatus(status, clock.now())),
      defaultPageSize: 50,
      maxPageSize: 100,
      item: keyAnswer,
      presentAll: async (rows, { tx, clock }) => {
        const ids = await publicIds(tx, rows);
        return rows.map((row) => presentKey(row, ids.get(row.id), clock.now()));
      },
    },
    get: { query: z.object({ include_usage: queryBoolean.optional() }) },
    detail: keyAnswer,
    present: async (row, { tx, clock }) => presentKey(row, (await publicIds(tx, [row])).get(row.id), clock.now()),
    create: null,
    update: {
      body: updateBody,
      response: emptyAnswer,
      run: async (call, row) => {
        const { body, principal, tx, clock } = call;
        const now = clock.now();
        // Prolonging or reviving a key hands out its scopes again.
        if (body.scopes === undefined && body.expires_at !== undefined) checkScopes(principal, row.type, row.scopes);
        const settings =
          row.type === 'workspace-user' && row.workspace_id !== null
            ? await userKeySettings(tx, row.workspace_id)
            : null;
        const patch: Patch = { version: row.version + 1 };
        if (body.name !== undefined) patch.name = body.name;
        if (body.description !== undefined) patch.description = body.description;
        if (body.scopes !== undefined) patch.scopes = checkScopes(principal, row.type, body.scopes);
        if (body.rate_limits !== undefined) patch.rate_limits = body.rate_limits;
        if (body.alert_emails !== undefined) patch.alert_emails = body.alert_emails;
        if (body.defaults !== undefined) patch.defaults = await checkDefaults(tx, row.defaults, body.defaults);
        if (body.expires_at !== undefined) {
          patch.expires_at = checkExpiry(body.expires_at, settings, row.created_at, now);
          if (row.status === 'expired') patch.status = 'active';
        }
        if (body.rotation_policy !== undefined) {
          const base = row.last_rotated_at ?? row.created_at;
          patch.rotation_policy = checkRotation(body.rotation_policy, settings, base, now) as KeyRow['rotation_policy'];
        }
        if (body.usage_limits !== undefined) {
          const next = checkUsage(body.usage_limits, now);
          patch.usage_limits = next;
          const raised = (next?.credit_limit ?? Infinity) > (row.usage_limits?.credit_limit ?? Infinity);
          if (row.status === 'exhausted' && (raised || next === null)) patch.status = 'active';
        }
        if (body.reset_usage === true) {
          patch.last_reset_at = now;
          if (row.status === 'exhausted') patch.status = 'active';
        }
        return { patch, answer: {} };
      },
    },
    remove: {},
  }),
  create,
];
