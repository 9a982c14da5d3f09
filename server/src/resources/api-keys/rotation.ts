/** Rotation policies as they are stored. The rotating itself is in `rotate.ts`. */
import type { RotationPolicy, Row } from '../../store/schema.ts';
import { refuse } from '../common.ts';
import { utcMidnight } from '../fields.ts';
import { MIN_TRANSITION_MS } from './schema.ts';

/** What a caller gives. */
export interface RotationInput {
  readonly rotation_period?: 'weekly' | 'monthly' | null;
  readonly rotation_period_days?: number | null;
  readonly next_rotation_at?: string | null;
  readonly key_transition_period_ms?: number;
}

const DAY_MS = 86_400_000;
/** The shortest month. */
const MONTH_MS = 28 * DAY_MS;

/** Start of the cycle after `from`: Monday, the first of a month, or so many days on, always at 00:00 UTC. */
export function nextRotation(from: number, period: 'weekly' | 'monthly' | null, days: number | null): number {
  const midnight = utcMidnight(from);
  const date = new Date(midnight);
  if (period === 'weekly') return midnight + ((8 - date.getUTCDay()) % 7 || 7) * DAY_MS;
  if (period === 'monthly') return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
  return midnight + (days ?? 1) * DAY_MS;
}

type Cadence = Pick<RotationPolicy, 'rotation_period' | 'rotation_period_days'>;

/** The shortest cycle of a cadence, milliseconds; null for a single rotation. */
function cycleOf({ rotation_period, rotation_period_days }: Cadence): number | null {
  if (rotation_period === 'weekly') return 7 * DAY_MS;
  if (rotation_period === 'monthly') return MONTH_MS;
  return rotation_period_days === null ? null : rotation_period_days * DAY_MS;
}

/** Throws 400 for a transition that would not end before the next rotation. `param` is the path of the period. */
export function checkTransition(transitionMs: number, cadence: Cadence, param: string): void {
  if (transitionMs >= (cycleOf(cadence) ?? Infinity)) throw refuse(param, 'must be shorter than the rotation period');
}

/**
 * Checks a policy against the clock and completes it. `base` is the creation or the last rotation, milliseconds since
 * the epoch. Throws 400 naming the field.
 */
export function completeRotation(input: RotationInput, base: number, now: number): RotationPolicy {
  const period = input.rotation_period ?? null;
  const days = input.rotation_period_days ?? null;
  const transition = input.key_transition_period_ms ?? MIN_TRANSITION_MS;
  const cadence = { rotation_period: period, rotation_period_days: days };
  checkTransition(transition, cadence, 'rotation_policy.key_transition_period_ms');
  let next: number;
  if (input.next_rotation_at != null) {
    next = utcMidnight(Date.parse(input.next_rotation_at));
    if (next <= now) throw refuse('rotation_policy.next_rotation_at', 'must be a later day than today (UTC)');
  } else {
    next = nextRotation(base, period, days);
    if (next <= now) next = nextRotation(now, period, days);
  }
  return {
    ...cadence,
    next_rotation_at: new Date(next).toISOString(),
    key_transition_period_ms: transition,
    status: 'ACTIVE',
  };
}

/** The columns of a key that hold its policy. */
export function policyColumns(
  policy: RotationPolicy | null,
): Pick<Row<'api_keys'>, 'rotation_policy' | 'rotation_due_at'> {
  return {
    rotation_policy: policy,
    rotation_due_at: policy === null ? null : Date.parse(policy.next_rotation_at),
  };
}

/** The policy after a rotation at `now`: its next cycle. A single date that has come is over, and the policy with it. */
export function afterRotation(policy: RotationPolicy, now: number): RotationPolicy | null {
  const { rotation_period: period, rotation_period_days: days } = policy;
  if (period === null && days === null) return Date.parse(policy.next_rotation_at) > now ? policy : null;
  return { ...policy, next_rotation_at: new Date(nextRotation(now, period, days)).toISOString() };
}

/** Days of a cadence: how the enforced period of an organisation is stored. */
export function cadenceDays(policy: Cadence): number | null {
  if (policy.rotation_period === 'weekly') return 7;
  if (policy.rotation_period === 'monthly') return 30;
  return policy.rotation_period_days;
}

/**
 * The policy of an existing user key under a cadence that is enforced now: its own when it keeps the cadence, else the
 * enforced one, which never puts off a rotation that was planned earlier.
 */
export function enforcedPolicy(
  policy: RotationPolicy | null,
  enforcedDays: number,
  base: number,
  now: number,
): RotationPolicy {
  if (policy !== null && cadenceDays(policy) === enforcedDays) return policy;
  const enforced = completeRotation({ rotation_period_days: enforcedDays }, base, now);
  const planned = policy === null ? Infinity : Date.parse(policy.next_rotation_at);
  return planned < Date.parse(enforced.next_rotation_at)
    ? { ...enforced, next_rotation_at: new Date(planned).toISOString() }
    : enforced;
}
