/** API keys: the credentials that this administration API and the gateway accept. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import type { Where } from '../../store/ports.ts';
import { cancelInvites } from '../admin/invites/cancel.ts';
import { toIsoOrNull, usageLimitOf } from '../body-fields.ts';
import { defineResource, emptyAnswer, itemAction } from '../define.ts';
import { queryBoolean, queryList, uuid } from '../fields.ts';
import type { Call } from '../resource.ts';
import { type ItemAction, type ItemVerb, resourceSpec } from '../spec.ts';
import { followPatch } from '../usage-counters.ts';
import { boundsChanged, checkTightens, mayLoosen } from './bounds.ts';
import { createKey } from './create.ts';
import { presentDetail, presentKeys, statusOf } from './present.ts';
import { checkMayGet, isRanked } from './rank.ts';
import { rotateKey } from './rotate.ts';
import { afterRotation, policyColumns } from './rotation.ts';
import {
  changedExpiry,
  checkDefaults,
  checkHolds,
  checkRotation,
  checkScopes,
  PREFIXES,
  userKeySettings,
} from './rules.ts';
import {
  keyAnswer,
  keyDetail,
  type RotateBody,
  rotateAnswer,
  rotateBody,
  type UpdateBody,
  updateBody,
} from './schema.ts';
import type { KeyRow } from './secrets.ts';

/** The scope without which a key leaves no open invites behind. */
const INVITES = 'organisation_users.create';

const TYPES = Object.keys(PREFIXES) as KeyRow['type'][];

/**
 * Each type has its own scopes, so a caller finds exactly the types it may do this to, or may read; members only their
 * own keys. What may be read and no more is refused by `checkVerb`.
 */
function visible(call: Call, verb: ItemVerb | 'list' | 'rotate') {
  const { principal } = call;
  const verbs = verb === 'list' ? [verb] : [verb, 'read'];
  const types = TYPES.filter((type) => verbs.some((one) => principal.scopes.has(`${PREFIXES[type]}.${one}`)));
  const own = principal.kind === 'user' && principal.role === 'member' && !types.includes('workspace-service');
  return { where: { type: { in: types }, ...(own ? { user_id: principal.userId } : {}) } };
}

/** Refuses with 403 to do to a key what the caller may only do to keys of other types. */
function checkVerb({ principal }: Pick<Call, 'principal'>, row: KeyRow, verb: ItemVerb | 'rotate'): void {
  const scope = `${PREFIXES[row.type]}.${verb}`;
  if (principal.scopes.has(scope)) return;
  throw new SluiceError('forbidden', `This needs the scope ${scope}, which your credential does not have.`);
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

/** The patch of an update; what it hands out again must be the caller's to give. */
async function updatePatch(call: Call<unknown, unknown, UpdateBody>, row: KeyRow): Promise<Patch> {
  const { body, principal, tx, clock } = call;
  const now = clock.now();
  const settings =
    row.type === 'workspace-user' && row.workspace_id !== null ? await userKeySettings(tx, row.workspace_id) : null;
  const patch: Patch = { version: row.version + 1 };
  if (body.name !== undefined) patch.name = body.name;
  if (body.description !== undefined) patch.description = body.description;
  if (body.scopes !== undefined) {
    patch.scopes = checkScopes(principal, row.type, body.scopes);
    // The holder of the key's secret would do with its role what their own role forbids.
    const more = patch.scopes.filter((scope) => !row.scopes.includes(scope));
    if (more.some(isRanked)) await checkMayGet(call, { ...row, scopes: more });
  }
  if (body.rate_limits !== undefined) patch.rate_limits = body.rate_limits;
  if (body.alert_emails !== undefined) patch.alert_emails = body.alert_emails;
  if (body.defaults !== undefined) {
    patch.defaults = await checkDefaults(tx, row.workspace_id, row.defaults, body.defaults);
  }
  const wasExpired = statusOf(row, now) === 'expired';
  let revives = false;
  if (body.expires_at !== undefined) {
    const next = changedExpiry(body.expires_at, settings, row.created_at, now);
    patch.expires_at = next;
    if (row.status === 'expired') patch.status = 'active';
    // Only a shorter life hands nothing out again.
    revives = wasExpired || next === null || (row.expires_at !== null && next >= row.expires_at);
  }
  if (body.usage_limits !== undefined) {
    const next = body.usage_limits && usageLimitOf(body.usage_limits, now, 'usage_limits');
    patch.usage_limits = next;
    const raised = (next?.credit_limit ?? Infinity) > (row.usage_limits?.credit_limit ?? Infinity);
    if (row.status === 'exhausted' && (raised || next === null)) patch.status = 'active';
  }
  if (body.reset_usage === true) {
    patch.last_reset_at = now;
    if (row.status === 'exhausted') patch.status = 'active';
  }
  checkTightens(principal, row, patch, body.reset_usage === true);
  patch.bounded_by = boundsChanged(principal, { ...row, ...patch }, body);
  const own = { ...row, label: row.name ?? row.id };
  await followPatch(call, 'key', own, patch, body.reset_usage === true);
  revives ||= patch.status === 'active';
  if (revives) {
    const param = body.expires_at === undefined ? null : 'expires_at';
    const revived = { ...row, scopes: patch.scopes ?? row.scopes };
    checkHolds(principal, revived, 'prolong or bring back', param);
    await checkMayGet(call, revived);
  }
  const policy = row.rotation_policy;
  if (body.rotation_policy !== undefined) {
    const base = row.last_rotated_at ?? row.created_at;
    Object.assign(patch, policyColumns(checkRotation(body.rotation_policy, policy, settings, base, now)));
  } else if (wasExpired && revives && policy !== null && Date.parse(policy.next_rotation_at) <= now) {
    // A key that comes back is not to lose its secret in the same hour to a rotation that fell due while it was away.
    Object.assign(patch, policyColumns(afterRotation(policy, now)));
  }
  return patch;
}

const rotate: ItemAction<'api_keys', never, unknown, RotateBody, z.input<typeof rotateAnswer>> = {
  name: 'rotate',
  method: 'POST',
  summary: 'Rotate an API key',
  description:
    'Returns a new key and keeps the previous one valid until `key_transition_expires_at`. While that runs, 409. After an automatic rotation (`uncollected_key`), hands out the new key instead, once. Id, limits and usage stay.',
  example: { body: { key_transition_period_ms: 3_600_000 } },
  verb: 'update',
  scopes: Object.values(PREFIXES).map((prefix) => `${prefix}.rotate`),
  visible: (call) => visible(call, 'rotate'),
  body: rotateBody,
  response: rotateAnswer,
  secretAnswer: true,
  audit: 'rotate',
  run: async (call, row) => {
    checkVerb(call, row, 'rotate');
    checkHolds(call.principal, row, 'rotate');
    await checkMayGet(call, row);
    const { key, transitionExpiresAt, facts } = await rotateKey(call.tx, row, call.body.key_transition_period_ms);
    call.audit(row.id, { before: null, after: facts });
    const answer = { id: row.id, key, key_transition_expires_at: toIsoOrNull(transitionExpiresAt) };
    return { answer: { ...answer, object: 'api-key' as const } };
  },
};

const spec = resourceSpec({
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
    where: ({ query }) => (query.ids === undefined ? {} : { id: { in: query.ids } }),
    anyOf: ({ query, clock }) => query.status?.flatMap((status) => whereStatus(status, clock.now())),
    defaultPageSize: 50,
    // A caller that asks for ids wants all of them.
    pageSize: ({ ids }) => (ids === undefined ? 50 : 100),
    maxPageSize: 100,
    item: keyAnswer,
    presentAll: presentKeys,
  },
  get: { query: z.object({ include_usage: queryBoolean.optional() }) },
  detail: keyDetail,
  present: presentDetail,
  create: null,
  update: {
    body: updateBody,
    response: emptyAnswer,
    run: async (call, row) => {
      checkVerb(call, row, 'update');
      const patch = await updatePatch(call, row);
      if (patch.scopes !== undefined && !patch.scopes.includes(INVITES)) await cancelInvites(call, row.id);
      return { patch, answer: {} };
    },
  },
  remove: {
    check: async (call, row) => checkVerb(call, row, 'delete'),
    // Its row stays as archived; nothing is due any more.
    clean: async (call, row) => {
      const { tx } = call;
      await cancelInvites(call, row.id);
      // What an administrator revokes bounds its owner no more; what the owner revokes does.
      const bounded_by = mayLoosen(call.principal, row.type) ? null : row.bounded_by;
      await tx.update('api_keys', { id: row.id }, { rotation_due_at: null, version: row.version + 1, bounded_by });
    },
  },
});

export const apiKeys = defineResource({ ...spec, actions: [createKey, itemAction(spec, rotate)] });
