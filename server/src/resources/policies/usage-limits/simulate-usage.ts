/** What a usage-limits policy would have blocked: `POST /policies/usage-limits/simulate`. */
import { nextReset, periodOf } from '../../../limits/ledger/limit-spec.ts';
import { usageEngine } from '../../../limits/simulation/usage.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { toIso } from '../../body-fields.ts';
import { refuse, requireWorkspace, unknownReference } from '../../common.ts';
import { type AnyAction, action, type Call } from '../../resource.ts';
import { afterCommit } from '../../services.ts';
import {
  historyReasons,
  MAX_DAYS,
  placeOf,
  type Range,
  type Reason,
  rangeOf,
  SIMULATIONS,
  simulate,
  simulationAnswer,
  simulationBody,
  subjectOf,
  within,
} from '../simulation.ts';
import { type CreateBody, createBody, type UpdateBody, updateBody } from './schema.ts';

type PolicyRow = Row<'usage_policies'>;

const DAY = 86_400_000;
/** Counters that are looked at for resets by hand. */
const MAX_BUCKETS = 1000;
/** Requests may run for this long without a record. */
const RECENT_MS = 60_000;

const body = simulationBody(createBody.omit({ workspace_id: true, organisation_id: true }), updateBody);

/** The turn of the policy at or before `at`, as far as its row and its period say; null: none. */
function turnBefore(row: PolicyRow, at: number): number | null {
  const { last_reset_at: last, next_usage_reset_at: next } = row;
  if (last === null || last <= at) return last;
  const period = periodOf(row);
  if (period === 'monthly') {
    const date = new Date(at);
    return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1);
  }
  if (period === null || next === null) return null;
  const length = period === 'weekly' ? 7 * DAY : Number(period.slice('days:'.length)) * DAY;
  return next - Math.ceil((next - at) / length) * length;
}

/** The first turn after `at`. */
function turnAfter(row: PolicyRow, at: number): number | null {
  const { last_reset_at: last, next_usage_reset_at: next } = row;
  const period = periodOf(row);
  if (last === null || last <= at) return next;
  if (period === null) return last;
  const before = turnBefore(row, at);
  return before === null ? last : nextReset(period, before, at);
}

async function reasonsOf(
  tx: TenantTx,
  row: PolicyRow,
  range: Range,
  countedFrom: number,
  now: number,
): Promise<Reason[]> {
  const reasons = historyReasons(row, range, countedFrom);
  const own = { owner_kind: 'policy', owner_id: row.id, workspace_id: row.workspace_id } as const;
  const reset = await tx.list('usage_buckets', {
    where: { ...own, last_reset_at: { gte: countedFrom, lt: range.to } },
    orderBy: [['created_at', 'asc']],
    limit: MAX_BUCKETS,
  });
  const byHand = reset.filter(({ last_reset_at: at }) => at !== null && at % DAY !== 0).length;
  if (byHand > 0) {
    reasons.push({ code: 'reset_by_hand', message: `${byHand} counters were reset by hand in the meantime.` });
  }
  if (range.to > now - RECENT_MS && (await tx.count('usage_buckets', { where: { ...own, reserved: { gt: 0 } } })) > 0) {
    reasons.push({ code: 'requests_running', message: 'Requests that still run have no record yet.' });
  }
  return reasons;
}

/** `create` and `changed` make the row of a new policy, and of one that an update changes. */
export function simulateUsage(
  create: (call: Call<unknown, unknown, CreateBody>) => Promise<{ row: PolicyRow }>,
  changed: (body: UpdateBody, row: PolicyRow, now: number) => { next: PolicyRow },
): AnyAction {
  return action({
    id: 'policies.usage-limits.simulate',
    method: 'POST',
    path: '/policies/usage-limits/simulate',
    summary: 'Try a usage-limits policy on stored requests',
    description:
      'Shows the requests that the policy would have blocked: a new policy as if made at start_time, or an existing one as it is or with changes. Nothing is written.',
    tag: 'Policies',
    auth: 'key_or_login',
    scopes: ['policies.read'],
    tenant: 'workspace_optional',
    params: null,
    query: null,
    body,
    response: simulationAnswer,
    writes: false,
    readOnly: true,
    audit: null,
    run: async (call) => {
      const { tx, clock } = call;
      const subject = subjectOf(call.body);
      const now = clock.now();
      const range = rangeOf(call.body, now);
      const past = { ...clock, now: () => range.from };
      const asItIs = subject.id !== undefined && subject.changes === undefined;
      const rowsOf = async (): Promise<{ policy: PolicyRow; active: PolicyRow | null }> => {
        if (subject.id === undefined) {
          requireWorkspace(call);
          const { policy: body } = subject;
          return { policy: (await within('policy', () => create({ ...call, body, clock: past }))).row, active: null };
        }
        const { id, changes } = subject;
        const active = await tx.find('usage_policies', { id });
        if (active === undefined) throw unknownReference('policy_id', 'usage-limits policy');
        if (changes === undefined) return { policy: active, active };
        if (changes.reset_usage_for_value !== undefined) {
          throw refuse('changes.reset_usage_for_value', 'cannot be simulated');
        }
        return { policy: await within('changes', () => changed(changes, active, range.from).next), active };
      };
      const { policy, active } = await rowsOf();
      const place = await placeOf(call, policy.workspace_id);
      const began = active === null ? range.from : Math.max(active.created_at, turnBefore(active, range.from) ?? 0);
      const countedFrom = Math.max(Math.min(began, range.from), range.to - MAX_DAYS * DAY);
      const sameTurns = active !== null && policy.next_usage_reset_at === active.next_usage_reset_at;
      const resetsAt = sameTurns ? turnAfter(active, countedFrom) : policy.next_usage_reset_at;
      const reasons = active === null ? [] : await reasonsOf(tx, active, range, countedFrom, now);
      if (countedFrom > began) {
        const message = `The window that start_time lies in began at ${toIso(began)}; ${MAX_DAYS} days are read at most.`;
        reasons.push({ code: 'window_began_earlier', message });
      }
      return afterCommit({ simulations: SIMULATIONS }, ({ signal, simulations }) =>
        simulations.run(call.principal.organisationId, (records) =>
          simulate(call, records, signal, {
            engine: usageEngine(policy, active, resetsAt, place),
            kind: 'usage',
            type: policy.type,
            policyId: active?.id ?? null,
            asItIs,
            place,
            range,
            countedFrom,
            reasons,
          }),
        ),
      );
    },
  });
}
