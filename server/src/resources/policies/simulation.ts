/** What trying a policy on stored requests takes and answers, for policies of either kind. */

import { z } from 'zod';
import { tenantOf } from '../../auth/tenant.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { nextTurn } from '../../kernel/turns.ts';
import type { PolicyPlace } from '../../limits/policies/conditions.ts';
import type { Engine, Replayed, Value } from '../../limits/simulation/replay.ts';
import type { SimulationRunner, SimulationSource } from '../../limits/simulation/simulation-runner.ts';
import type { StoredLog } from '../../store/ports.ts';
import type { LimitType, Row } from '../../store/schema.ts';
import { isoDate, toIso, toIsoOrNull, toMillis } from '../body-fields.ts';
import { refuse } from '../common.ts';
import { tenantFields, uuid } from '../fields.ts';
import { checkSeesAll } from '../logs/sight.ts';
import type { Call } from '../resource.ts';
import { Service } from '../services.ts';

export const SIMULATIONS = new Service<SimulationRunner>('store of request records');

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
export const MAX_DAYS = 92;
/** Records that one simulation reads at most. */
const MAX_RECORDS = 1_000_000;
/** Records that are asked for at once, and that are taken apart at once: a few milliseconds. */
const READ = 600;
const PAGE = 120;
const MAX_VALUES = 100;
const STEPS = [MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY];
const MAX_STEPS = 400;
const MICROS = 1_000_000;

export function simulationBody<P, C>(policy: z.ZodType<P>, changes: z.ZodType<C>) {
  return z.strictObject({
    ...tenantFields,
    policy: policy.optional().describe('A policy that does not exist, as it would be created.'),
    policy_id: uuid.optional().describe('A policy that exists, in place of `policy`.'),
    changes: changes.optional().describe('With `policy_id`: the same fields as for an update.'),
    start_time: isoDate.describe('Requests from this time on.'),
    end_time: isoDate.describe(`Requests before this time; at most ${MAX_DAYS} days after start_time.`),
  });
}

const reason = z.strictObject({
  code: z.enum([
    'policy_changed',
    'policy_younger',
    'window_began_earlier',
    'reset_by_hand',
    'requests_running',
    'too_many_records',
    'estimates_unknown',
    'usage_unknown',
    'unpriced',
    'not_recorded',
    'differs_from_history',
  ]),
  message: z.string(),
});

export type Reason = z.output<typeof reason>;

export const simulationAnswer = z.strictObject({
  object: z.literal('policy_simulation'),
  policy_id: z.string().nullable(),
  type: z.enum(['cost', 'tokens', 'requests']),
  start_time: z.string(),
  end_time: z.string(),
  counted_from: z.string().describe('The window that start_time lies in is counted from its beginning.'),
  complete: z.boolean().describe('False when there were more records than one simulation reads.'),
  exact: z.boolean().describe('Whether each request was decided just as it would have been.'),
  reasons: z.array(reason).describe('Why it is not exact.'),
  totals: z.strictObject({
    records_read: z.int(),
    requests_seen: z.int(),
    requests_matched: z.int(),
    requests_blocked: z.int(),
    requests_refused_by_other_limits: z.int(),
    cost_matched: z.number().describe('US dollars.'),
    cost_blocked: z.number().describe('US dollars.'),
    tokens_matched: z.int(),
    tokens_blocked: z.int(),
    unpriced_requests: z.int(),
    first_blocked_at: z.string().nullable(),
  }),
  history: z
    .strictObject({
      blocked: z.int().describe('Requests that the policy did refuse.'),
      blocked_in_both: z.int(),
      blocked_only_in_history: z.int(),
      blocked_only_in_simulation: z.int(),
    })
    .nullable()
    .describe('The verdict of the policy in policy_id.'),
  values_total: z.int(),
  values: z
    .array(
      z.strictObject({
        value_key: z.string(),
        requests: z.int(),
        blocked: z.int(),
        usage: z.number().describe('Of the requests that pass, in the unit of the limit.'),
        peak_usage: z.number().describe('The most that one window had used.'),
        first_blocked_at: z.string().nullable(),
      }),
    )
    .describe(`The ${MAX_VALUES} with the most blocked requests.`),
  interval_seconds: z.int(),
  series: z
    .array(z.strictObject({ start: z.string(), requests: z.int(), blocked: z.int() }))
    .describe('Intervals without requests are left out.'),
  blocked_sample: z.array(
    z.strictObject({ request_id: z.string(), trace_id: z.string(), time: z.string(), value_key: z.string() }),
  ),
});

export type SimulationAnswer = z.output<typeof simulationAnswer>;

export interface Range {
  readonly from: number;
  readonly to: number;
}

/** Throws 400 for times that make no range, or one that is too long. What lies ahead has no records. */
export function rangeOf(body: { readonly start_time: string; readonly end_time: string }, now: number): Range {
  const from = toMillis(body.start_time);
  const end = toMillis(body.end_time);
  if (end <= from) throw refuse('end_time', 'must be after start_time');
  if (end - from > MAX_DAYS * DAY) throw refuse('end_time', `must be at most ${MAX_DAYS} days after start_time`);
  if (from >= now) throw refuse('start_time', 'must lie in the past');
  return { from, to: Math.min(end, now) };
}

/** What is simulated: a policy as it would be created, or one that exists, as it is or with changes. */
export type Subject<P, C> =
  | { readonly policy: P; readonly id?: undefined }
  | { readonly id: string; readonly changes: C | undefined };

/** Throws 400 unless one of `policy` and `policy_id` is given, and `changes` with the second only. */
export function subjectOf<P, C>(body: {
  readonly policy?: P | undefined;
  readonly policy_id?: string | undefined;
  readonly changes?: C | undefined;
}): Subject<P, C> {
  const { policy, policy_id: id, changes } = body;
  if (id === undefined) {
    if (policy === undefined) throw refuse('policy', 'or policy_id is required');
    if (changes !== undefined) throw refuse('changes', 'can be given with policy_id only');
    return { policy };
  }
  if (policy !== undefined) throw refuse('policy_id', 'cannot be combined with policy: give one of the two');
  return { id, changes };
}

/** Rules of a policy name its fields; here they stand one level deeper. */
export async function within<T>(field: string, run: () => T | Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof SluiceError) || error.param === null || error.param === 'workspace_id') throw error;
    throw error.reworded(`${field}.${error.message}`, { param: `${field}.${error.param}` });
  }
}

/** Where a policy holds. Throws 403 for a caller who may not see the requests of everybody there. */
export async function placeOf(call: Pick<Call, 'tx' | 'principal'>, workspaceId: string): Promise<PolicyPlace> {
  await checkSeesAll(call, workspaceId);
  const row = await call.tx.find('workspaces', { id: workspaceId });
  if (row === undefined) throw new SluiceError('internal', 'A policy belongs to no workspace.');
  return { workspaceId, workspaceSlug: row.slug, organisationId: row.organisation_id };
}

export interface Simulated<M, H> {
  readonly engine: Engine<M, H>;
  readonly kind: 'usage' | 'rate';
  readonly type: LimitType;
  readonly policyId: string | null;
  /** Whether the policy is the one in force, unchanged. */
  readonly asItIs: boolean;
  readonly place: PolicyPlace;
  readonly range: Range;
  readonly countedFrom: number;
  /** What is known before the first record is read. */
  readonly reasons: readonly Reason[];
}

export async function simulate<M, H>(
  { principal }: Pick<Call, 'principal'>,
  { records }: SimulationSource,
  signal: AbortSignal,
  simulated: Simulated<M, H>,
): Promise<SimulationAnswer> {
  const { engine, kind, type, policyId, range, countedFrom, place } = simulated;
  const { from, to } = range;
  const stepMs = STEPS.find((step) => (to - from) / step <= MAX_STEPS) ?? DAY;
  const tenant = tenantOf(principal, place.workspaceId);
  let read: StoredLog[] = [];
  const { replay } = await import('../../limits/simulation/replay.ts');
  const found = await replay(engine, {
    kind,
    type,
    policyId,
    from,
    to,
    stepMs,
    signal,
    page: async (after: StoredLog | null) => {
      if (read.length > 0) await nextTurn();
      else read = await records.walk(tenant, { from: countedFrom, to, after, limit: READ });
      return read.splice(0, PAGE);
    },
    maxRecords: MAX_RECORDS,
  });
  const reasons = [...simulated.reasons, ...reasonsOf(simulated, found)];
  if (!(await records.isWhole(tenant, countedFrom, to))) {
    reasons.push({ code: 'not_recorded', message: 'Some records of this time cannot be read on this node.' });
  }
  const amount = (value: number) => (type === 'cost' ? value / MICROS : value);
  return {
    object: 'policy_simulation',
    policy_id: policyId,
    type,
    start_time: toIso(from),
    end_time: toIso(found.until),
    counted_from: toIso(countedFrom),
    complete: found.complete,
    exact: reasons.length === 0,
    reasons,
    totals: {
      records_read: found.records,
      requests_seen: found.seen,
      requests_matched: found.matched,
      requests_blocked: found.blocked,
      requests_refused_by_other_limits: found.refusedOtherwise,
      cost_matched: found.cost / MICROS,
      cost_blocked: found.costBlocked / MICROS,
      tokens_matched: found.tokens,
      tokens_blocked: found.tokensBlocked,
      unpriced_requests: found.unpriced,
      first_blocked_at: timeOf(found.firstBlockedAt),
    },
    history:
      policyId === null
        ? null
        : {
            blocked: found.blockedThen,
            blocked_in_both: found.blockedBoth,
            blocked_only_in_history: found.blockedThen - found.blockedBoth,
            blocked_only_in_simulation: found.blockedOnlyNow,
          },
    values_total: found.values.size,
    values: mostBlocked(found.values.values()).map((value) => ({
      value_key: value.valueKey,
      requests: value.requests,
      blocked: value.blocked,
      usage: amount(value.used),
      peak_usage: amount(value.peak),
      first_blocked_at: timeOf(value.firstBlockedAt),
    })),
    interval_seconds: stepMs / 1000,
    series: [...found.steps.values()]
      .sort((a, b) => a.start - b.start)
      .map(({ start, requests, blocked }) => ({ start: toIso(start), requests, blocked })),
    blocked_sample: found.samples.map((sample) => ({
      request_id: sample.id,
      trace_id: sample.traceId,
      time: toIso(Math.floor(sample.at)),
      value_key: sample.valueKey,
    })),
  };
}

const timeOf = (at: number | null) => toIsoOrNull(at === null ? null : Math.floor(at));

/** Without sorting all of them, of which there may be very many. */
function mostBlocked(values: Iterable<Value>): Value[] {
  const order = (a: Value, b: Value) =>
    b.blocked - a.blocked || b.requests - a.requests || (a.valueKey < b.valueKey ? -1 : 1);
  let best: Value[] = [];
  for (const value of values) {
    if (value.requests === 0) continue;
    best.push(value);
    if (best.length >= 10 * MAX_VALUES) best = best.sort(order).slice(0, MAX_VALUES);
  }
  return best.sort(order).slice(0, MAX_VALUES);
}

function reasonsOf(
  { kind, type, asItIs }: Pick<Simulated<unknown, unknown>, 'kind' | 'type' | 'asItIs'>,
  found: Replayed,
): Reason[] {
  const reasons: Reason[] = [];
  const add = (code: Reason['code'], message: string) => reasons.push({ code, message });
  if (!found.complete) {
    add('too_many_records', `A simulation reads ${MAX_RECORDS} records: what came later was not looked at.`);
  }
  if (found.unestimated > 0) {
    add(
      'estimates_unknown',
      `${found.unestimated} of the requests met no limit, so Sluice does not know what they would have reserved.`,
    );
  }
  if (found.released > 0) {
    add('usage_unknown', `${found.released} requests that pass here were refused then: their usage is not known.`);
  }
  if (kind === 'usage' && type === 'cost' && found.unpriced > 0) {
    add('unpriced', `${found.unpriced} requests have no known price and are counted as 0 dollars.`);
  }
  if (asItIs && (found.blockedOnlyNow > 0 || found.blockedThen > found.blockedBoth)) {
    const off = found.blockedOnlyNow + found.blockedThen - found.blockedBoth;
    add('differs_from_history', `${off} requests were decided otherwise then.`);
  }
  return reasons;
}

/** What makes the history of a policy that is in force another one than its row says now. */
export function historyReasons(
  row: Pick<Row<'usage_policies'>, 'created_at' | 'last_updated_at'>,
  { from }: Range,
  countedFrom: number,
): Reason[] {
  const reasons: Reason[] = [];
  if (from < row.created_at) {
    reasons.push({ code: 'policy_younger', message: `The policy was made at ${toIso(row.created_at)}.` });
  }
  if (row.last_updated_at > Math.max(countedFrom, row.created_at)) {
    reasons.push({ code: 'policy_changed', message: `The policy was changed at ${toIso(row.last_updated_at)}.` });
  }
  return reasons;
}
