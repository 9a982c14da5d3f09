/** Rotation policies as they are stored (api §11.4). The rotating itself is a job's work. */
import { SluiceError } from '../../kernel/errors.ts';
import { utcMidnight } from '../fields.ts';
import { MIN_TRANSITION_MS } from './schema.ts';

/** What a caller gives. */
export interface RotationInput {
  readonly rotation_period?: 'weekly' | 'monthly' | null;
  readonly rotation_period_days?: number | null;
  readonly next_rotation_at?: string | null;
  readonly key_transition_period_ms?: number;
}

/** What is stored and answered; `next_rotation_at` in ISO 8601 UTC. */
export interface RotationPolicy {
  readonly rotation_period: 'weekly' | 'monthly' | null;
  readonly rotation_period_days: number | null;
  readonly next_rotation_at: string;
  readonly key_transition_period_ms: number;
  readonly status: 'ACTIVE';
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

/**
 * Checks a policy against the clock and completes it. `base` is the creation or the last rotation, milliseconds since
 * the epoch. Throws 400 naming the field.
 */
export function completeRotation(input: RotationInput, base: number, now: number): RotationPolicy {
  const period = input.rotation_period ?? null;
  const days = input.rotation_period_days ?? null;
  const transition = input.key_transition_period_ms ?? MIN_TRANSITION_MS;
  const cycle =
    period === 'weekly' ? 7 * DAY_MS : period === 'monthly' ? MONTH_MS : days === null ? null : days * DAY_MS;
  if (cycle !== null && transition >= cycle) {
    throw refuse('key_transition_period_ms', 'must be shorter than the rotation period');
  }
  let next: number;
  if (input.next_rotation_at != null) {
    next = utcMidnight(Date.parse(input.next_rotation_at));
    if (next <= now) throw refuse('next_rotation_at', 'must be a later day than today (UTC)');
  } else {
    next = nextRotation(base, period, days);
    if (next <= now) next = nextRotation(now, period, days);
  }
  return {
    rotation_period: period,
    rotation_period_days: days,
    next_rotation_at: new Date(next).toISOString(),
    key_transition_period_ms: transition,
    status: 'ACTIVE',
  };
}

/** Days of a cadence: how the enforced period of an organisation is stored. */
export function cadenceDays(policy: Pick<RotationPolicy, 'rotation_period' | 'rotation_period_days'>): number | null {
  if (policy.rotation_period === 'weekly') return 7;
  if (policy.rotation_period === 'monthly') return 30;
  return policy.rotation_period_days;
}

function refuse(field: string, problem: string): SluiceError {
  const param = `rotation_policy.${field}`;
  return new SluiceError('validation', `${param} ${problem}.`, { param });
}
