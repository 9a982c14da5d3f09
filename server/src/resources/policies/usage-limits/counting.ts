/** How requests are counted when a usage-limits policy is tried on them. */
import { nextReset, periodOf } from '../../../limits/ledger/limit-spec.ts';
import type { PolicyPlace } from '../../../limits/policies/conditions.ts';
import { usageEngine } from '../../../limits/simulation/usage.ts';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { toIso } from '../../body-fields.ts';
import type { SimulationInput } from '../simulate.ts';
import { historyReasons, MAX_DAYS, type Range, type Reason } from '../simulation.ts';

type PolicyRow = Row<'usage_policies'>;

const DAY = 86_400_000;
/** Counters that are looked at for resets by hand. */
const MAX_BUCKETS = 1000;
/** Requests may run for this long without a record. */
const RECENT_MS = 60_000;

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

export async function usageCounting(tx: TenantTx, { policy, active, range, now }: SimulationInput<'usage_policies'>) {
  const began = active === null ? range.from : Math.max(active.created_at, turnBefore(active, range.from) ?? 0);
  const countedFrom = Math.max(Math.min(began, range.from), range.to - MAX_DAYS * DAY);
  const sameTurns = active !== null && policy.next_usage_reset_at === active.next_usage_reset_at;
  const resetsAt = sameTurns ? turnAfter(active, countedFrom) : policy.next_usage_reset_at;
  const reasons = active === null ? [] : await reasonsOf(tx, active, range, countedFrom, now);
  if (countedFrom > began) {
    const message = `The window that start_time lies in began at ${toIso(began)}; ${MAX_DAYS} days are read at most.`;
    reasons.push({ code: 'window_began_earlier', message });
  }
  return { countedFrom, reasons, engine: (place: PolicyPlace) => usageEngine(policy, active, resetsAt, place) };
}
