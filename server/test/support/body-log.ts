/** A log of bodies that keeps none. */
import { BodyLog } from '../../src/gateway/body-log.ts';
import { systemClock } from '../../src/kernel/clock.ts';

export function silentBodyLog(): BodyLog {
  const journal = { append: () => false };
  return new BodyLog({ journal, clock: systemClock, rule: 'never', maxBytes: 1024, maskedHeaders: [] });
}
