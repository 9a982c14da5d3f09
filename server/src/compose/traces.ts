/** The last request of each trace. */
import type { Clock } from '../kernel/clock.ts';
import type { Traces } from '../resources/feedback/traces.ts';
import { isUuid } from '../resources/fields.ts';
import type { StoredLog, StoredRecords } from '../store/ports.ts';

/** How far back traces of names of the caller's are looked for: the records have no index by trace alone. */
const BACK_MS = 24 * 3_600_000;

const NONE: ReadonlyMap<string, StoredLog> = new Map();

/** The keeper is asked three times at most, however many traces there are. */
export function tracesOf(records: Pick<StoredRecords, 'findAll' | 'lastOfTraces'>, clock: Clock): Traces {
  return {
    async lastOfTraces(tenant, traceIds) {
      // A request that named no trace has its id for one. That is found at once, and most feedback is about such.
      const ids = traceIds.filter(isUuid).map((id) => id.toLowerCase());
      const byId = ids.length === 0 ? NONE : await records.findAll(tenant, ids);
      const named = traceIds.filter((id) => !byId.has(id.toLowerCase()));
      const byTrace = named.length === 0 ? NONE : await records.lastOfTraces(tenant, named, clock.now() - BACK_MS);
      const found = new Map<string, StoredLog>();
      for (const id of traceIds) {
        const record = byId.get(id.toLowerCase()) ?? byTrace.get(id);
        if (record !== undefined) found.set(id, record);
      }
      return found;
    },
  };
}
