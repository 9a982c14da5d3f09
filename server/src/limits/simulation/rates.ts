/** A rate-limits policy over what was: the admission of the data plane itself, with its own counters and clock. */
import type { Clock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import type { Counters } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import type { PolicyPlace } from '../policies/conditions.ts';
import { addRateLimits, compileRatePolicies } from '../policies/rates.ts';
import { createAdmission, type LimitedEntity, type Reservation } from '../rate-limits.ts';
import type { Engine } from './replay.ts';

/** Counters that nobody else sees, by the clock they are given. */
export type CountersFor = (clock: Clock) => Counters;

export function ratesEngine(
  policy: Row<'rate_policies'>,
  place: PolicyPlace,
  countersFor: CountersFor,
): Engine<LimitedEntity, Reservation> {
  let now = 0;
  const clock: Clock = { now: () => now, monotonic: () => now, after: () => () => {} };
  const admission = createAdmission({ counters: countersFor(clock), share: null, clock, log: silentLog });
  const index = compileRatePolicies([{ ...policy, status: 'active' }], place).llm;
  return {
    match(event) {
      if (index === null) return null;
      const found: LimitedEntity[] = [];
      addRateLimits(index, event.facts, found);
      const [of] = found;
      return of === undefined ? null : { key: of.id, valueKey: of.policy?.valueKey ?? '', of };
    },

    async admit(event, entity) {
      now = Math.floor(event.at);
      const reservation = await admission.admit(place.workspaceId, [entity]);
      const { requests, tokens } = reservation.quota;
      const left = requests ?? tokens;
      return {
        admitted: reservation.refusal === null,
        used: left === null ? 0 : left.limit - left.remaining,
        held: reservation,
      };
    },

    settle(event, reservation) {
      now = Math.floor(event.endedAt);
      if (reservation.refusal !== null || event.refused?.limit === 'rate') return null;
      if (event.takenBack) reservation.release();
      else reservation.settle(event.used.tokens);
      return null;
    },
  };
}
