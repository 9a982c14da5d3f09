/** Where simulations are asked for: a few at once, so that they never take a node away from its requests. */
import { SluiceError } from '../../kernel/errors.ts';
import type { StoredRecords } from '../../store/ports.ts';
import type { CountersFor } from './rates.ts';

export interface SimulationSource {
  readonly records: Pick<StoredRecords, 'walk' | 'isWhole'>;
  readonly countersFor: CountersFor;
}

export interface SimulationRunner {
  /** Throws `too_many_requests` while as many run as may, on the node or of the organisation. */
  run<T>(organisationId: string, work: (records: SimulationSource) => Promise<T>): Promise<T>;
}

const AT_ONCE = 4;
/** So that one organisation never keeps the others from theirs. */
const EACH = 2;
const AGAIN_S = 5;

export function createSimulationRunner(records: SimulationSource): SimulationRunner {
  const running: string[] = [];
  return {
    async run(organisationId, work) {
      const own = running.filter((one) => one === organisationId).length;
      if (running.length >= AT_ONCE || own >= EACH) {
        throw new SluiceError(
          'throttled',
          `${own >= EACH ? EACH : AT_ONCE} simulations run on this node already; try again in ${AGAIN_S} seconds.`,
          { retryAfter: AGAIN_S },
        );
      }
      running.push(organisationId);
      try {
        return await work(records);
      } finally {
        running.splice(running.indexOf(organisationId), 1);
      }
    },
  };
}
