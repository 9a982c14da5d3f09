/** The last request of a trace, among the records that are stored and those on their way. */
import type { Clock } from '../kernel/clock.ts';
import type { Traces } from '../resources/feedback/traces.ts';
import { isUuid } from '../resources/fields.ts';
import type { Shipper } from '../store/disk/shipper.ts';
import type { LogSink } from '../store/ports.ts';

/** How far back a trace of a name of the caller's is looked for: the records have no index by trace alone. */
const BACK_MS = 24 * 3_600_000;

export function tracesOf(logs: Pick<LogSink, 'find' | 'list'>, shipper: Pick<Shipper, 'drain'>, clock: Clock): Traces {
  return {
    async lastOfTrace(tenant, traceId) {
      const look = async () => {
        // A request that named no trace has its id for one. That is found at once, and most feedback is about such.
        const own = isUuid(traceId) ? await logs.find(tenant, traceId.toLowerCase()) : null;
        if (own !== null) return own;
        const { rows } = await logs.list(tenant, { traceId, from: clock.now() - BACK_MS, limit: 1 });
        return rows[0] ?? null;
      };
      const found = await look();
      if (found !== null) return found;
      await shipper.drain();
      return look();
    },
  };
}
