/** The last request of a trace. */
import type { Clock } from '../kernel/clock.ts';
import type { Traces } from '../resources/feedback/traces.ts';
import { isUuid } from '../resources/fields.ts';
import type { StoredRecords } from '../store/ports.ts';

/** How far back a trace of a name of the caller's is looked for: the records have no index by trace alone. */
const BACK_MS = 24 * 3_600_000;

export function tracesOf(records: StoredRecords, clock: Clock): Traces {
  return {
    async lastOfTrace(tenant, traceId) {
      // A request that named no trace has its id for one. That is found at once, and most feedback is about such.
      const own = isUuid(traceId) ? await records.find(tenant, traceId.toLowerCase()) : null;
      if (own !== null) return own;
      const [last] = await records.ofTrace(tenant, traceId, clock.now() - BACK_MS, 1);
      return last ?? null;
    },
  };
}
