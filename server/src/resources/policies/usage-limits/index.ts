/** Usage-limits policies: how much the requests they select may cost or count, for each value they are grouped by. */
import { z } from 'zod';
import type { Clock } from '../../../kernel/clock.ts';
import { uuidv7 } from '../../../kernel/id.ts';
import { BucketTransaction } from '../../../limits/ledger/bucket-transaction.ts';
import { ABOVE_LARGEST, isAboveLargest, nextReset, periodOf, shownAmount } from '../../../limits/ledger/limit-spec.ts';
import { usagePolicySpec } from '../../../limits/policies/usage.ts';
import type { TenantTx, Where } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { text, toIso, toIsoOrNull } from '../../body-fields.ts';
import { type Patch, refuse, requireWorkspace } from '../../common.ts';
import { defineResource, emptyAnswer, itemAction } from '../../define.ts';
import { queryBoolean, utcMidnight } from '../../fields.ts';
import { childList } from '../../kinds/child.ts';
import { checkSeesAll, seesAll } from '../../logs/sight.ts';
import { notFound } from '../../look-up.ts';
import type { Call } from '../../resource.ts';
import { shownUrl, storedUrl } from '../../secret-url.ts';
import { resourceSpec } from '../../spec.ts';
import { usageForecast } from '../../usage-forecast.ts';
import { checkConditions, checkGroups } from '../policy-fields.ts';
import { checkReach } from '../reach.ts';
import { simulateAction } from '../simulate.ts';
import { alerts } from './list-alerts.ts';
import {
  answer,
  type CreateBody,
  createBody,
  entity,
  entityId,
  filters,
  status,
  type UpdateBody,
  updateBody,
} from './schema.ts';

type PolicyRow = Row<'usage_policies'>;
type Bucket = Row<'usage_buckets'>;

/** Counters a policy answers within itself; more are paged (`/entities`). */
const MAX_USAGE = 1000;
/** What of a policy its counters go by; the name that they are shown with follows with their next request. */
const COUNTED = [
  'credit_limit',
  'alert_threshold',
  'periodic_reset',
  'periodic_reset_days',
  'next_usage_reset_at',
] as const;
/** Counters that follow a change of their policy in its own transaction. */
const MAX_ADOPTED = 1000;

const OBJECT = 'policy_usage_limits' as const;

function present(row: PolicyRow): z.input<typeof answer> {
  return {
    id: row.id,
    name: row.name,
    description: row.description,
    conditions: row.conditions,
    group_by: row.group_by,
    type: row.type,
    credit_limit: row.credit_limit,
    alert_threshold: row.alert_threshold,
    periodic_reset: row.periodic_reset,
    periodic_reset_days: row.periodic_reset_days,
    unpriced: row.unpriced,
    on_outage: row.on_outage,
    alert_emails: row.alert_emails ?? [],
    alert_webhook_url: row.alert_webhook_url === null ? null : shownUrl(row.alert_webhook_url),
    next_usage_reset_at: toIsoOrNull(row.next_usage_reset_at),
    last_reset_at: toIsoOrNull(row.last_reset_at),
    status: row.status,
    workspace_id: row.workspace_id,
    organisation_id: row.organisation_id,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    object: OBJECT,
  };
}

/** With the workspace, which the index of the counters begins with. */
const ofPolicy = ({ id, workspace_id }: Pick<PolicyRow, 'id' | 'workspace_id'>) =>
  ({ owner_kind: 'policy', owner_id: id, workspace_id }) as const;

async function presentDetail(row: PolicyRow, call: Call<unknown, { readonly include_usage?: boolean | undefined }>) {
  const { include_usage: wanted } = call.query;
  if (wanted !== true) return present(row);
  await checkSeesAll(call, row.workspace_id);
  const buckets = await call.tx.list('usage_buckets', {
    where: ofPolicy(row),
    orderBy: [['created_at', 'asc']],
    limit: MAX_USAGE,
  });
  const now = call.clock.now();
  const usage = buckets.map((bucket) => [
    bucket.value_key,
    {
      current_usage: shownAmount(bucket.type, bucket.used),
      status: bucket.status,
      is_threshold_alerts_sent: bucket.threshold_alerted,
      is_exhausted_alerts_sent: bucket.exhausted_alerted,
      ...usageForecast(bucket, now),
    },
  ]);
  return { ...present(row), value_key_usage_map: Object.fromEntries(usage) };
}

/** The amounts that a body sets; what a row holds already stays, however large. */
function checkAmounts(type: PolicyRow['type'], body: Pick<UpdateBody, 'credit_limit' | 'alert_threshold'>): void {
  for (const field of ['credit_limit', 'alert_threshold'] as const) {
    if (isAboveLargest(type, body[field] ?? 0)) throw refuse(field, ABOVE_LARGEST);
  }
}

/** Rules between fields, over the row as it will be. */
function checkPolicy(row: PolicyRow): void {
  if (row.alert_threshold !== null && row.alert_threshold >= row.credit_limit) {
    throw refuse('alert_threshold', 'must be below credit_limit');
  }
  if (row.unpriced !== null && row.type !== 'cost') throw refuse('unpriced', 'belongs to policies of type cost');
  if (row.periodic_reset !== null && row.periodic_reset_days !== null) {
    throw refuse('periodic_reset_days', 'cannot be combined with periodic_reset: give one of the two');
  }
}

/** When a policy resets next: the midnight that was asked for, or the next one of its period. */
function resetOf(asked: string | null | undefined, period: string | null, now: number): number | null {
  if (asked == null) return nextReset(period, now, now);
  const at = utcMidnight(Date.parse(asked));
  if (at <= now) throw refuse('next_usage_reset_at', 'must lie in the future: resets happen at 00:00 UTC of the day');
  return at;
}

async function create(call: Call<unknown, unknown, CreateBody>) {
  const { body, tenant, clock } = call;
  const workspaceId = requireWorkspace(call);
  checkConditions('usage', body.conditions);
  checkGroups('usage', body.group_by);
  const alertUrl = await storedUrl(call, body.alert_webhook_url, null, 'alert_webhook_url');
  const now = clock.now();
  const row: PolicyRow = {
    id: uuidv7(clock),
    organisation_id: tenant.organisationId,
    workspace_id: workspaceId,
    name: body.name ?? null,
    description: body.description ?? null,
    conditions: body.conditions,
    group_by: body.group_by,
    type: body.type,
    credit_limit: body.credit_limit,
    alert_threshold: body.alert_threshold ?? null,
    periodic_reset: body.periodic_reset ?? null,
    periodic_reset_days: body.periodic_reset_days ?? null,
    next_usage_reset_at: null,
    last_reset_at: null,
    unpriced: body.unpriced ?? null,
    on_outage: body.on_outage ?? 'refuse',
    alert_emails: body.alert_emails ?? null,
    alert_webhook_url: alertUrl ?? null,
    status: 'active',
    created_at: now,
    last_updated_at: now,
  };
  checkAmounts(body.type, body);
  checkPolicy(row);
  await checkReach(call, 'usage_policies', row);
  const next = resetOf(body.next_usage_reset_at, periodOf(row), now);
  return { row: { ...row, next_usage_reset_at: next }, answer: { id: row.id, object: OBJECT } };
}

/** What an update makes of a policy, and the columns it changes. Throws 400 for what is no policy. */
function changed(body: UpdateBody, row: PolicyRow, now: number): { patch: Patch<'usage_policies'>; next: PolicyRow } {
  const patch: Patch<'usage_policies'> = {};
  if (body.conditions !== undefined) {
    checkConditions('usage', body.conditions);
    patch.conditions = body.conditions;
  }
  if (body.name !== undefined) patch.name = body.name;
  if (body.description !== undefined) patch.description = body.description;
  if (body.credit_limit !== undefined) patch.credit_limit = body.credit_limit;
  if (body.alert_threshold !== undefined) patch.alert_threshold = body.alert_threshold;
  if (body.periodic_reset !== undefined) patch.periodic_reset = body.periodic_reset;
  if (body.periodic_reset_days !== undefined) patch.periodic_reset_days = body.periodic_reset_days;
  if (body.unpriced !== undefined) patch.unpriced = body.unpriced;
  if (body.on_outage !== undefined) patch.on_outage = body.on_outage ?? 'refuse';
  if (body.alert_emails !== undefined) patch.alert_emails = body.alert_emails;
  // The two exclude each other, so that the one that is named replaces the other.
  if (body.periodic_reset != null && body.periodic_reset_days === undefined) patch.periodic_reset_days = null;
  if (body.periodic_reset_days != null && body.periodic_reset === undefined) patch.periodic_reset = null;
  // Newer than what nodes know, however coarse the clock: limit specs are compared by it.
  let next: PolicyRow = { ...row, ...patch, last_updated_at: Math.max(now, row.last_updated_at + 1) };
  checkAmounts(row.type, body);
  checkPolicy(next);
  const period = periodOf(next);
  if (body.next_usage_reset_at !== undefined || period !== periodOf(row)) {
    patch.next_usage_reset_at = resetOf(body.next_usage_reset_at, period, now);
    next = { ...next, ...patch };
  }
  return { patch, next };
}

async function update(call: Call<unknown, unknown, UpdateBody>, row: PolicyRow) {
  const { body, tx, clock } = call;
  const now = clock.now();
  const { patch, next } = changed(body, row, now);
  const alertUrl = await storedUrl(call, body.alert_webhook_url, row.alert_webhook_url, 'alert_webhook_url');
  if (alertUrl !== undefined) patch.alert_webhook_url = alertUrl;
  const changes = Object.keys(patch).length > 0;
  if (patch.conditions !== undefined) await checkReach(call, 'usage_policies', next);
  if (COUNTED.some((column) => patch[column] !== undefined)) await adopt(tx, next, clock, now);
  if (body.reset_usage_for_value !== undefined) {
    const buckets = await tx.list('usage_buckets', {
      where: { ...ofPolicy(row), value_key: body.reset_usage_for_value },
    });
    // A refusal says whether the value has sent requests: it is for those who may read the counters.
    if (buckets.length === 0 && (await seesAll(call, row.workspace_id)))
      throw refuse(
        'reset_usage_for_value',
        'names no value key of this policy; GET /v1/policies/usage-limits/{id}/entities lists them',
      );
    for (const bucket of buckets) await resetBucket(call, bucket, now);
  }
  return { patch: changes ? { ...patch, last_updated_at: next.last_updated_at } : patch, answer: {} };
}

/**
 * Used-up counters follow at once, then the oldest others: a raised limit opens what was exhausted. The rest
 * follow when their next request comes: callers choose the values, and a change must not wait for all there ever were.
 */
async function adopt(tx: TenantTx, row: PolicyRow, clock: Clock, now: number): Promise<void> {
  const spec = usagePolicySpec(row);
  const of = async (status: Bucket['status'], limit: number) =>
    limit <= 0
      ? []
      : tx.list('usage_buckets', { where: { ...ofPolicy(row), status }, orderBy: [['created_at', 'asc']], limit });
  const exhausted = await of('exhausted', MAX_ADOPTED);
  const buckets = [...exhausted, ...(await of('active', MAX_ADOPTED - exhausted.length))];
  for (const bucket of buckets) {
    const transaction = BucketTransaction.of(bucket, clock);
    transaction.turn(now);
    transaction.adopt({ ...spec, bucketKey: bucket.bucket_key, valueKey: bucket.value_key }, now);
    await transaction.close(tx, now);
  }
}

async function resetBucket({ tx, clock }: Pick<Call, 'tx' | 'clock'>, bucket: Bucket, now: number): Promise<void> {
  const transaction = BucketTransaction.of(bucket, clock);
  transaction.turn(now);
  transaction.reset(now);
  await transaction.close(tx, now);
}

const spec = resourceSpec({
  name: 'policies.usage-limits',
  tag: 'Policies',
  table: 'usage_policies',
  param: 'id',
  archives: true,
  path: '/policies/usage-limits',
  scopes: ['policies'],
  tenant: 'workspace_optional',
  object: OBJECT,
  noun: 'usage-limits policy',
  list: {
    query: filters,
    where: ({ query }) => {
      const { search, status: state, type: kind } = query;
      return {
        status: state,
        ...(kind === undefined ? {} : { type: kind }),
        ...(search === undefined || search === '' ? {} : { name: { contains: search } }),
      } satisfies Where<'usage_policies'>;
    },
    defaultPageSize: 50,
    maxPageSize: 100,
    item: answer,
    present: presentDetail,
  },
  get: {
    query: z.object({ status: status.default('active'), include_usage: queryBoolean.optional() }),
    where: ({ query }) => ({ status: query.status }),
  },
  detail: answer,
  present: presentDetail,
  create: { body: createBody, response: z.object({ id: z.string(), object: z.literal(OBJECT) }), run: create },
  update: { body: updateBody, response: emptyAnswer, run: update },
  remove: {},
});

const entityStatus = z.enum(['active', 'exhausted']);
const entityQuery = z.object({
  status: entityStatus.optional(),
  search: text(512).optional().describe('Part of the value key.'),
});

const entities = childList(spec, {
  name: 'entities',
  summary: 'List the counters of a usage-limits policy',
  description: 'One for each value that was seen: `value_key` is like `metadata._user:alice`.',
  table: 'usage_buckets',
  query: entityQuery,
  where: async (policy, call) => {
    await checkSeesAll(call, policy.workspace_id);
    const { status: state, search } = call.query;
    return {
      ...ofPolicy(policy),
      ...(state === undefined ? {} : { status: state }),
      ...(search === undefined || search === '' ? {} : { value_key: { contains: search } }),
    };
  },
  orderBy: [['created_at', 'asc']],
  paging: 'page',
  item: entity,
  present: (rows, { clock }) => {
    const now = clock.now();
    return rows.map((row) => ({
      id: row.id,
      value_key: row.value_key,
      current_usage: shownAmount(row.type, row.used),
      status: row.status,
      last_reset_at: toIsoOrNull(row.last_reset_at),
      ...usageForecast(row, now),
    }));
  },
});

const resetEntity = itemAction(spec, {
  name: 'reset',
  path: '/entities/:entityId/reset',
  method: 'PUT',
  summary: 'Reset a counter of a usage-limits policy',
  description: 'Usage begins at 0, the counter is active, and its alerts may be raised again.',
  verb: 'update',
  response: emptyAnswer,
  audit: 'update',
  run: async (call, policy) => {
    const id = entityId(call.params.entityId ?? '');
    const bucket = id === null ? undefined : await call.tx.find('usage_buckets', { ...ofPolicy(policy), id });
    if (bucket === undefined) throw notFound();
    const shown = (used: number) => ({ id: bucket.id, value_key: bucket.value_key, used });
    call.audit(policy.id, { before: shown(bucket.used), after: shown(0) });
    await resetBucket(call, bucket, call.clock.now());
    return { answer: {} };
  },
});

export const usageLimits = defineResource({
  ...spec,
  actions: [
    entities,
    resetEntity,
    childList(spec, alerts),
    simulateAction({
      kind: 'usage',
      table: 'usage_policies',
      name: 'usage-limits',
      bodies: { policy: createBody.omit({ workspace_id: true, organisation_id: true }), changes: updateBody },
      created: create,
      changed: (changes: UpdateBody, row, from) => {
        if (changes.reset_usage_for_value !== undefined) throw refuse('reset_usage_for_value', 'cannot be simulated');
        return changed(changes, row, from).next;
      },
      counting: async (...asked) => (await import('./counting.ts')).usageCounting(...asked),
    }),
  ],
});
