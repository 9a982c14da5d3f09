/** Which request a feedback is about: the last one of its trace. */
import type { StoredLog, TenantContext } from '../../store/ports.ts';
import type { Call } from '../resource.ts';
import { Service, Work } from '../services.ts';

export interface Traces {
  /** The newest record of each trace within the tenant; a trace without one, or none that is found in reasonable time, is left out. */
  lastOfTraces(tenant: TenantContext, traceIds: readonly string[]): Promise<ReadonlyMap<string, StoredLog>>;
}

export const TRACES = new Service<Traces>('look-up of traces');

/** Milliseconds: feedback must not wait long for what it can do without. A keeper that rests has to start first. */
const LOOK_UP_MS = 4_000;

/** The last records of traces, if they are found in time. A store that fails finds none: the feedback itself is kept. */
export function lookUp(
  { tenant, clock }: Pick<Call, 'tenant' | 'clock'>,
  traceIds: Iterable<string>,
): Work<ReadonlyMap<string, StoredLog>> {
  return new Work(async (services) => {
    const none: ReadonlyMap<string, StoredLog> = new Map();
    const traces = TRACES.find(services);
    if (traces === null) return none;
    const late = Promise.withResolvers<typeof none>();
    const cancel = clock.after(LOOK_UP_MS, () => late.resolve(none));
    const found = traces.lastOfTraces(tenant, [...new Set(traceIds)]).catch(() => none);
    try {
      return await Promise.race([found, late.promise]);
    } finally {
      cancel();
    }
  });
}
