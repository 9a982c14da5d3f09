/** The usage limits of a workspace: several, each with a state of its own (api §11.5, §16.2). */
import type { Row, UsageLimit } from '../../../store/schema.ts';
import { presentUsage, type UsageOf } from '../../usage.ts';

/**
 * New limits over the stored ones. A limit that is exhausted stays so under the same kind and period, unless it was
 * raised or is gone.
 */
export function replaceLimits(before: readonly UsageLimit[] | null, next: UsageLimit[] | null): UsageLimit[] | null {
  const exhausted = (before ?? []).filter((limit) => limit.status === 'exhausted');
  if (next === null || exhausted.length === 0) return next;
  return next.map((limit) => {
    const old = exhausted.find((one) => kindOf(one) === kindOf(limit));
    const raised = (limit.credit_limit ?? Infinity) > (old?.credit_limit ?? 0);
    return old === undefined || raised ? limit : { ...limit, status: 'exhausted' };
  });
}

function kindOf({ type, periodic_reset, periodic_reset_days }: UsageLimit): string {
  return `${type ?? 'cost'} ${periodic_reset ?? '-'} ${periodic_reset_days ?? '-'}`;
}

/** Every limit begins anew. */
export function resetLimits(limits: readonly UsageLimit[] | null): UsageLimit[] | null {
  return limits?.map(({ status: _status, ...limit }) => limit) ?? null;
}

export function presentLimits(row: Pick<Row<'workspaces'>, 'id' | 'usage_limits' | 'last_reset_at'>, usage: UsageOf) {
  return (
    row.usage_limits?.map((limit) =>
      presentUsage(limit, usage(row.id, limit), {
        exhausted: limit.status === 'exhausted',
        lastResetAt: row.last_reset_at,
      }),
    ) ?? null
  );
}
