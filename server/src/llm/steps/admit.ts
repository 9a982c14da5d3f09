import { rateLimitsOf } from '../../gateway/applied-limits.ts';
import { type PolicyFacts, requestFacts } from '../../limits/policies/conditions.ts';
import { addRateLimits } from '../../limits/policies/rates.ts';
import type { Left, LimitedEntity, Quota, Reservation } from '../../limits/rate-limits.ts';
import type { Uses } from '../exchange.ts';
import { modelUnder } from '../shaping.ts';
import type { LlmLimits } from '../state/limits.ts';

/**
 * Asks the rate limits of the key, the workspace, the provider, its integration and the policies, in this order. Of a
 * request that may go to several targets only what is the same for all: `admitTarget` asks for the rest.
 */
export function admit(x: Uses<'attempt' | 'limits' | 'request', 'admission'>): void | Promise<void> {
  const {
    request: { principal, snapshot },
  } = x;
  if (principal === null || snapshot === null) return;
  const entities = entitiesOf(x, x.limits.shared === null ? 'all' : 'request');
  x.limits.rateLimits = entities;
  if (x.request.dryRun || entities.length === 0) return;
  return x.services.admission.admit(snapshot.workspaceId, entities).then((reservation) => keep(x.limits, reservation));
}

/** `request`: without what only one target of several is limited by. */
function entitiesOf(x: Uses<'attempt' | 'request'>, scope: 'all' | 'request'): LimitedEntity[] {
  const {
    request: { principal, snapshot },
  } = x;
  if (principal === null || snapshot === null) return [];
  const stored = scope === 'all' ? (x.attempt.target?.stored ?? null) : null;
  return rateLimitsOf({ principal, snapshot, stored, facts: () => factsOf(x), scope }, snapshot.ratePolicies.llm);
}

function keep(limits: LlmLimits, reservation: Reservation): void {
  limits.quota = reservation.quota;
  if (limits.shared !== null) limits.shared.quota = reservation.quota;
  limits.facts = { rates_at: reservation.at };
  if (reservation.refusal !== null) throw reservation.refusal;
  limits.rateReservation = reservation;
}

/**
 * Asks the rate limits that only the target has. Those of its provider and integration count each target that is tried, those
 * of a policy the request once. Throws the refusal.
 */
export function admitTarget(x: Uses<'attempt' | 'limits' | 'request', 'admission'>): void | Promise<void> {
  const {
    request: { snapshot },
    limits: { targetLimits, shared },
  } = x;
  if (targetLimits === null || snapshot === null) return;
  const entities: LimitedEntity[] = [...(targetLimits.target.stored?.rateLimits ?? [])];
  if (snapshot.ratePolicies.llm !== null) {
    const own: LimitedEntity[] = [];
    addRateLimits(snapshot.ratePolicies.llm, factsOf(x), own, 'target');
    for (const entity of own) {
      // Tokens are booked for each target that used some; a request is one.
      const counts = entity.limits.some(({ type }) => type === 'requests');
      if (counts && shared?.counted.has(entity.id)) continue;
      entities.push(entity);
      if (counts) targetLimits.counts.push(entity.id);
    }
  }
  x.limits.targetRateLimits = entities;
  if (x.request.dryRun || entities.length === 0) return;
  return x.services.admission.admit(snapshot.workspaceId, entities).then((reservation) => {
    x.limits.quota = tighter(shared?.quota ?? null, reservation.quota);
    x.limits.facts ??= {};
    x.limits.facts.rates_at ??= reservation.at;
    if (reservation.refusal !== null) throw reservation.refusal;
    targetLimits.rateReservation = reservation;
  });
}

/** What is left of both together. */
function tighter(a: Quota | null, b: Quota): Quota {
  if (a === null) return b;
  const least = (one: Left | null, other: Left | null) =>
    one === null || (other !== null && other.remaining < one.remaining) ? other : one;
  return { requests: least(a.requests, b.requests), tokens: least(a.tokens, b.tokens) };
}

/** What policies see of a request before it is sent. */
export function factsOf(x: Uses<'attempt' | 'request'>): PolicyFacts {
  const {
    request: { principal, snapshot },
    attempt: { target },
  } = x;
  return requestFacts({
    workspaceId: snapshot?.workspaceId ?? '',
    organisationId: snapshot?.organisationId ?? '',
    keyId: principal?.keyId ?? null,
    provider: target?.provider.id ?? null,
    slug: target?.stored?.slug ?? null,
    config: x.request.plan?.config?.slug ?? null,
    model: modelUnder(target?.shaping ?? null, x.request.model),
    requestType: x.request.operation.requestType,
    metadata: x.request.metadata,
  });
}
