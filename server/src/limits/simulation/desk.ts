/** Where simulations are asked for: a few at once, so that they never take a node away from its requests. */
import { SluiceError } from '../../kernel/errors.ts';
import type { LogSink } from '../../store/ports.ts';
import type { CountersFor } from './rates.ts';

export interface Records {
  readonly logs: Pick<LogSink, 'walk'>;
  readonly countersFor: CountersFor;
}

export interface SimulationDesk {
  /** Throws `too_many_requests` while as many run as may. */
  run<T>(work: (records: Records) => Promise<T>): Promise<T>;
}

const AT_ONCE = 2;
const AGAIN_S = 5;

export function createSimulationDesk(records: Records): SimulationDesk {
  let running = 0;
  return {
    async run(work) {
      if (running >= AT_ONCE) {
        throw new SluiceError(
          'too_many_requests',
          `${AT_ONCE} simulations run on this node already; try again in ${AGAIN_S} seconds.`,
          { retryAfter: AGAIN_S },
        );
      }
      running += 1;
      try {
        return await work(records);
      } finally {
        running -= 1;
      }
    },
  };
}
