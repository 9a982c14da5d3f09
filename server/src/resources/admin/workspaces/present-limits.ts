/** The usage limits of a workspace: several, each with its own state. */
import type { Row } from '../../../store/schema.ts';
import { presentUsage, type UsageOf } from '../../usage-counters.ts';

export function presentLimits(row: Pick<Row<'workspaces'>, 'id' | 'usage_limits' | 'last_reset_at'>, usage: UsageOf) {
  return (
    row.usage_limits?.map((limit) =>
      presentUsage(limit, usage(row.id, limit), { exhausted: false, lastResetAt: row.last_reset_at }),
    ) ?? null
  );
}
