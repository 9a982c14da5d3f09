import { expect, it } from 'vitest';
import { ownAdmission, WORKSPACE } from '../../test/support/caller.ts';
import { limitedEntity } from '../limits/rate-limits.ts';
import { LimitState } from './limit-state.ts';

it('a refused request gives back what rate limits had counted, and its answer tells what is left then', async () => {
  const admission = ownAdmission();
  const entity = limitedEntity('key', 'k', 'nightly', [{ type: 'requests', unit: 'rpm', value: 2 }]);
  if (entity === null) throw new Error('no limit');
  const limits = new LimitState();
  limits.rateReservation = await admission.admit(WORKSPACE, [entity]);
  expect(limits.rateReservation.quota.requests?.remaining).toBe(1);
  limits.release();
  expect(limits.quota?.requests?.remaining).toBe(2);
  const next = await admission.admit(WORKSPACE, [entity]);
  expect(next.quota.requests?.remaining).toBe(1);
});
