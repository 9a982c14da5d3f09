import { tenantOf } from '../../auth/tenant.ts';
import { usageLimitsOf } from '../../gateway/applied-limits.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { LimitCharge, UsageReservation } from '../../limits/ledger/ledger.ts';
import { type LimitSpec, MAX_UNITS } from '../../limits/ledger/limit-spec.ts';
import { orderingTimestamp } from '../../limits/ordering-timestamp.ts';
import type { PolicyFacts } from '../../limits/policies/conditions.ts';
import { addUsageLimits } from '../../limits/policies/usage.ts';
import { UsageRefused, unpricedRefused } from '../../limits/usage-limit-refused.ts';
import type { Price } from '../../pricing/price.ts';
import type { StoredProvider } from '../../runtime/snapshot.ts';
import { estimatedCost, estimateUse, expectUse, modelKey } from '../estimate.ts';
import type { Uses } from '../exchange.ts';
import { unpricedRate } from '../price-usage.ts';
import { passesJob } from '../relay/usage-extraction.ts';
import type { Estimate, LlmLimits } from '../state/limits.ts';
import type { LlmRequest } from '../state/request.ts';
import { factsOf } from './admit.ts';

/** What this file uses of an exchange. */
type Used = Uses<
  'attempt' | 'execution' | 'limits' | 'request',
  'ledger' | 'outputEstimator' | 'pricer' | 'storeClock' | 'unpriced'
>;

/** Usage limits of the key, the workspace, the provider, its integration and the policies, in this order. */
export function requestUsageLimits(
  request: LlmRequest,
  stored: StoredProvider | null,
  facts: () => PolicyFacts,
  scope?: 'request',
): LimitSpec[] {
  const { principal, snapshot } = request;
  if (principal === null || snapshot === null) return [];
  return usageLimitsOf({ principal, snapshot, stored, facts, scope: scope ?? 'all' });
}

/** Reserves an estimate under every usage limit before the call, or refuses the request. */
export function reserve(x: Used): void | Promise<void> {
  const {
    request: { principal, snapshot },
  } = x;
  if (principal === null || snapshot === null) return;
  const specs = limitSpecsOf(x);
  x.limits.usageLimits = specs;
  if (x.request.dryRun || specs.length === 0) return;
  if (passesJob(x.request) && specs.some(({ type }) => type !== 'requests')) {
    refuse(
      x.limits,
      new SluiceError(
        'invalid_request',
        'Under a usage limit, send batches and jobs to /v1/batches and /v1/fine_tuning/jobs, where Sluice counts their usage.',
      ),
    );
  }
  x.limits.facts ??= {};
  x.limits.facts.usage_at = orderingTimestamp(x.services.storeClock.now());
  try {
    const estimate = estimateUse(x);
    const prices: Price[] = [];
    const charges = specs.map((one) => chargeOf(x, one, estimate, prices));
    x.limits.facts.estimate = {
      cost: estimatedCost(estimate, prices[0] ?? estimate.price),
      tokens: estimate.input + estimate.output,
      bounded: estimate.bounded,
    };
    const held = x.services.ledger.reserve(tenantOf(principal), snapshot.workspaceId, charges);
    x.limits.reserved = { estimate, prices };
    if (held instanceof Promise) {
      return held.then(
        (hold) => {
          decidedNow(x);
          keep(x.limits, hold, specs);
        },
        (error: unknown) => {
          decidedNow(x);
          refuse(x.limits, error);
        },
      );
    }
    keep(x.limits, held, specs);
  } catch (error) {
    refuse(x.limits, error);
  }
}

/** Others are decided from memory while a request waits for the store: a simulation takes them in the order of decisions. */
function decidedNow(x: Uses<'limits', 'storeClock'>): void {
  if (x.limits.facts !== null) x.limits.facts.usage_at = orderingTimestamp(x.services.storeClock.now());
}

/** Of a request that may go to several targets only what is the same for all. */
function limitSpecsOf(x: Uses<'attempt' | 'limits' | 'request'>): LimitSpec[] {
  return x.limits.shared === null
    ? requestUsageLimits(x.request, x.attempt.target?.stored ?? null, () => factsOf(x))
    : requestUsageLimits(x.request, null, () => factsOf(x), 'request');
}

/**
 * Reserves an estimate under the usage limits that only the target has. More is reserved under those of the request, where
 * targets before it have used something. Throws the refusal.
 */
export function reserveTarget(x: Used): void | Promise<void> {
  const {
    limits: { targetLimits },
    request: { principal, snapshot },
  } = x;
  if (targetLimits === null || principal === null || snapshot === null) return;
  const specs: LimitSpec[] = [...(targetLimits.target.stored?.usageLimits ?? [])];
  if (snapshot.usagePolicies !== null) {
    const own: LimitSpec[] = [];
    addUsageLimits(snapshot.usagePolicies, factsOf(x), own, 'target');
    for (const one of own) {
      // Cost and tokens are booked for each target that used some; a request is one.
      const id = `${one.ownerId} ${one.bucketKey}`;
      if (one.type === 'requests' && x.limits.shared?.counted.has(id)) continue;
      specs.push(one);
      if (one.type === 'requests') targetLimits.counts.push(id);
    }
  }
  x.limits.targetUsageLimits = specs;
  if (x.request.dryRun || (specs.length === 0 && x.limits.usageReservation === null)) return;
  const estimate = estimateUse(x);
  const prices: Price[] = [];
  const charges = specs.map((one) => chargeOf(x, one, estimate, prices));
  // Whether they serve this model at all is asked again for each target.
  if (x.limits.usageReservation !== null)
    for (const { spec: one } of x.limits.usageReservation.states) chargeOf(x, one, estimate, prices);
  x.limits.reserved = { estimate, prices };
  x.limits.facts ??= {};
  x.limits.facts.usage_at ??= orderingTimestamp(x.services.storeClock.now());
  expectUse(x, estimate);
  if (charges.length === 0) return;
  const taken = (error: unknown): never => {
    if (error instanceof UsageRefused) x.limits.exhausted = error.state;
    throw error;
  };
  try {
    const held = x.services.ledger.reserve(tenantOf(principal), snapshot.workspaceId, charges);
    if (held instanceof Promise)
      return held.then((hold) => {
        targetLimits.usageReservation = hold;
      }, taken);
    targetLimits.usageReservation = held;
  } catch (error) {
    taken(error);
  }
}

/**
 * The same once more, for a further call of a request that runs: null where no limit asks for it, false where one has no room
 * for all of it, since nobody needs that call. A request is counted once. Throws, or rejects with, the refusal.
 */
export function reserveAnother(x: Used): UsageReservation | null | false | Promise<UsageReservation> {
  const {
    request: { principal, snapshot },
    limits: { usageReservation: held, targetLimits },
  } = x;
  if (principal === null || snapshot === null) return null;
  const states = [...(held?.states ?? []), ...(targetLimits?.usageReservation?.states ?? [])];
  const asked = states.filter(({ spec }) => spec.type !== 'requests');
  if (asked.length === 0) return null;
  const estimate = estimateUse(x);
  const prices: Price[] = [];
  const charges = asked.map(({ spec }) => chargeOf(x, spec, estimate, prices));
  if (charges.some(({ amount }, i) => amount > (asked[i]?.free ?? 0))) return false;
  return x.services.ledger.reserve(tenantOf(principal), snapshot.workspaceId, charges);
}

function keep(limits: LlmLimits, hold: UsageReservation, specs: readonly LimitSpec[]): void {
  limits.usageReservation = hold;
  const { seen } = hold;
  if (seen === null || limits.facts === null) return;
  const committed: Record<string, number> = {};
  for (const [i, { ownerKind, ownerId }] of specs.entries()) {
    const before = seen[i];
    if (ownerKind === 'policy' && before !== undefined) committed[ownerId] = before;
  }
  limits.facts.committed = committed;
}

function refuse(limits: LlmLimits, error: unknown): never {
  limits.release();
  if (error instanceof UsageRefused) limits.exhausted = error.state;
  throw error;
}

/** What one limit is asked for. `prices` gains the price its cost was computed by. */
function chargeOf(
  x: Uses<'attempt' | 'limits' | 'request' | 'execution', 'unpriced'>,
  spec: LimitSpec,
  estimate: Estimate,
  prices: Price[],
): LimitCharge {
  const { input, output, bounded, free } = estimate;
  if (spec.type === 'requests') return { spec, amount: 1, bounded: true };
  if (spec.type === 'tokens') return { spec, amount: input + output, bounded };
  if (free) return { spec, amount: 0, bounded: true };
  const rule = spec.unpriced ?? x.services.unpriced;
  if (estimate.price === null && rule === 'deny') {
    // Another target may have a model with a price: this is asked for each.
    if (x.execution !== null && x.limits.targetLimits === null) return { spec, amount: 0, bounded: true };
    throw unpricedRefused(spec, modelKey(x).replace(' ', '/'));
  }
  const price = estimate.price ?? unpricedRate(x, spec);
  if (price !== null && !prices.includes(price)) prices.push(price);
  const cost = Math.min(MAX_UNITS, estimatedCost(estimate, price));
  return { spec, amount: cost, bounded: bounded && price !== null };
}
