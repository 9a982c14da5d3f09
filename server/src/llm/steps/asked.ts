/** Which limits a request was asked under, for its record. */
import type { Uses } from '../exchange.ts';
import { countsRates, countsUse } from '../target.ts';
import { entitiesOf, factsOf } from './admit.ts';
import { budgetsOf } from './reserve.ts';

/** Those of its target included, where it has several. `rate_limit policy:<id>`, in the order in which they are asked. */
export function limitsAsked(x: Uses<'attempt' | 'request'>): string[] {
  const {
    request: { plan, principal, snapshot },
  } = x;
  if (plan === null || principal === null || snapshot === null) return [];
  const purpose = plan.route?.purpose ?? null;
  const out: string[] = [];
  // Beyond what all requests of the plan are asked for, targets of several have limits of their own.
  const counted = purpose !== null && purpose !== 'reads' && countsRates(snapshot, x.attempt.target);
  if (counted || plan.features.limits) {
    for (const { kind, id, policy } of entitiesOf(x, 'all')) out.push(`rate_limit ${kind}:${policy?.id ?? id}`);
  }
  if (plan.features.budgets || (purpose === 'uses' && countsUse(snapshot, x.attempt.target))) {
    for (const { ownerKind, ownerId } of budgetsOf(x.request, x.attempt.target?.stored ?? null, () => factsOf(x)))
      out.push(`usage_limit ${ownerKind}:${ownerId}`);
  }
  return out;
}
