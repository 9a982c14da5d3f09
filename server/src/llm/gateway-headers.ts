import type { UsageLimitState } from '../limits/ledger/ledger.ts';
import type { Left, Quota } from '../limits/rate-limits.ts';
import type { CacheHit } from './cache/cache-entry-writer.ts';
import type { Uses } from './exchange.ts';
import type { LlmOutcome } from './state/outcome.ts';

const MICROS = 1_000_000;

/**
 * Pushes Sluice's own response headers onto a flat list. `exhausted` says that every allowed try failed,
 * which the attempt count tells as -1.
 */
export function gatewayHeaders(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request' | 'execution', 'storeClock'>,
  into: string[],
  exhausted = false,
): void {
  into.push(
    'x-gateway-request-id',
    x.request.id,
    'x-gateway-trace-id',
    x.request.traceId,
    'x-gateway-cache-status',
    x.attempt.caching?.status ?? 'DISABLED',
  );
  if (x.attempt.caching?.hit != null) savings(x.attempt.caching.hit, into);
  if (x.limits.quota !== null) quotaHeaders(x.limits.quota, into);
  const own = x.limits.targetLimits?.usageReservation?.states;
  if (x.limits.usageReservation !== null)
    usageHeaders(
      x,
      own === undefined ? x.limits.usageReservation.states : [...x.limits.usageReservation.states, ...own],
      into,
    );
  else if (own !== undefined) usageHeaders(x, own, into);
  else if (x.limits.exhausted !== null) usageHeaders(x, [x.limits.exhausted], into);
  const target = x.attempt.target;
  if (target === null) {
    const path = x.execution?.path ?? 'config';
    into.push('x-gateway-retry-attempt-count', '0', 'x-gateway-last-used-option-index', path);
    return;
  }
  into.push(
    'x-gateway-provider',
    target.provider.id,
    'x-gateway-retry-attempt-count',
    exhausted ? '-1' : String(retriesOf(x)),
    'x-gateway-last-used-option-index',
    target.path,
  );
}

/** Header of an answer that is sent whole, trailer of one whose head goes out before its end. */
export const COST = 'x-gateway-cost';

/**
 * What the request has cost, for `x-gateway-cost`: US dollars as an exact decimal, `0.00001275`. Null where the price or the usage
 * is not known. Known once the request is settled.
 */
export function costText({ costMicros, costCarry, unpriced, uncounted }: LlmOutcome): string | null {
  if (costMicros === null) return unpriced || uncounted ? null : '0';
  if (costMicros === 0 && costCarry === 0) return '0';
  // A carry below zero was rounded up.
  const micros = costCarry < 0 ? costMicros - 1 : costMicros;
  const picos = costCarry < 0 ? costCarry + MICROS : costCarry;
  const whole = Math.floor(micros / MICROS);
  const fraction = picos === 0 ? six(micros % MICROS) : six(micros % MICROS) + six(picos);
  const end = fraction.replace(/0+$/, '');
  return end === '' ? String(whole) : `${whole}.${end}`;
}

const six = (part: number): string => String(part).padStart(6, '0');

/** What the answer cost when it was made, dollars, and how long it took, milliseconds: neither is spent again. */
function savings({ facts }: CacheHit, into: string[]): void {
  if (facts.costMicros !== null) into.push('x-gateway-cache-saved-cost', shown('cost', facts.costMicros));
  into.push('x-gateway-cache-saved-ms', String(facts.latencyMs));
}

/** Further calls of the target under way after its first. */
export function retriesOf({ attempt, outcome }: Uses<'attempt' | 'outcome'>): number {
  return Math.max(0, outcome.attemptCount - attempt.callsBefore - 1);
}

function quotaHeaders(quota: Quota, into: string[]): void {
  if (quota.requests !== null) left('x-gateway-limit-requests', quota.requests, into);
  if (quota.tokens !== null) left('x-gateway-limit-tokens', quota.tokens, into);
}

/** Limits on cost, tokens and requests used: of each type the one with the least left. Dollars with at most six decimals. */
function usageHeaders(x: Uses<never, 'storeClock'>, states: readonly UsageLimitState[], into: string[]): void {
  for (const type of ['cost', 'tokens', 'requests'] as const) {
    let least: UsageLimitState | null = null;
    for (const state of states) {
      if (state.spec.type === type && (least === null || state.left < least.left)) least = state;
    }
    if (least === null) continue;
    const name = `x-gateway-limit-usage-${type}`;
    const { spec, left: remaining, resetsAt } = least;
    into.push(
      `${name}-limit`,
      shown(type, spec.limit),
      `${name}-remaining`,
      shown(type, Math.min(remaining, spec.limit)),
    );
    if (resetsAt === null) continue;
    into.push(`${name}-reset`, String(Math.max(1, Math.ceil((resetsAt - x.services.storeClock.now()) / 1000))));
  }
}

function shown(type: UsageLimitState['spec']['type'], amount: number): string {
  if (type !== 'cost') return String(amount);
  const fraction = String(amount % MICROS)
    .padStart(6, '0')
    .replace(/0+$/, '');
  return `${Math.floor(amount / MICROS)}${fraction === '' ? '' : `.${fraction}`}`;
}

function left(name: string, { limit, remaining, reset }: Left, into: string[]): void {
  into.push(`${name}-limit`, String(limit), `${name}-remaining`, String(remaining), `${name}-reset`, String(reset));
}
