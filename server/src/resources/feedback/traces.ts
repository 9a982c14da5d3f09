/** Which request a feedback is about: the last one of its trace. */
import type { StoredLog, TenantContext } from '../../store/ports.ts';
import type { Call } from '../resource.ts';
import { Service, Work } from '../services.ts';

export interface Traces {
  /** The newest record of a trace within the tenant; null when there is none, or none that is found in reasonable time. */
  lastOfTrace(tenant: TenantContext, traceId: string): Promise<StoredLog | null>;
}

export const TRACES = new Service<Traces>('look-up of traces');

/** All look-ups of one call together, milliseconds: feedback must not wait long for what it can do without. A keeper that rests has to start first. */
const LOOK_UP_MS = 4_000;

/** The last records of traces, as far as they were found in time. A store that fails finds none: the feedback itself is kept. */
export function lookUp(
  { tenant, clock }: Pick<Call, 'tenant' | 'clock'>,
  traceIds: Iterable<string>,
): Work<ReadonlyMap<string, StoredLog>> {
  return new Work(async (services, signal) => {
    const found = new Map<string, StoredLog>();
    const traces = TRACES.find(services);
    if (traces === null) return found;
    const late = Promise.withResolvers<void>();
    let over = false;
    const cancel = clock.after(LOOK_UP_MS, () => {
      over = true;
      late.resolve();
    });
    const all = async () => {
      for (const traceId of new Set(traceIds)) {
        if (over || signal.aborted) return;
        const record = await traces.lastOfTrace(tenant, traceId).catch(() => null);
        if (record !== null && !over) found.set(traceId, record);
      }
    };
    await Promise.race([all(), late.promise]);
    cancel();
    return found;
  });
}
