import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RotationPolicy } from '../../store/schema.ts';
import { afterRotation, completeRotation, enforcedPolicy, nextRotation } from './rotation.ts';

const at = (text: string) => Date.parse(text);
const next = (from: string, period: 'weekly' | 'monthly' | null, days: number | null) =>
  new Date(nextRotation(at(from), period, days)).toISOString();

describe('the next rotation of a key', () => {
  it('weekly: the next Monday at 00:00 UTC, never today', () => {
    expect(next('2026-05-06T10:00:00Z', 'weekly', null)).toBe('2026-05-11T00:00:00.000Z');
    expect(next('2026-05-10T23:59:59Z', 'weekly', null)).toBe('2026-05-11T00:00:00.000Z');
    expect(next('2026-05-11T00:00:00Z', 'weekly', null)).toBe('2026-05-18T00:00:00.000Z');
  });

  it('monthly: the first of the next month at 00:00 UTC', () => {
    expect(next('2026-01-31T10:00:00Z', 'monthly', null)).toBe('2026-02-01T00:00:00.000Z');
    expect(next('2026-12-01T00:00:00Z', 'monthly', null)).toBe('2027-01-01T00:00:00.000Z');
  });

  it('in days: so many days on, at 00:00 UTC', () => {
    expect(next('2026-05-06T10:00:00Z', null, 10)).toBe('2026-05-16T00:00:00.000Z');
    expect(next('2028-02-28T23:00:00Z', null, 2)).toBe('2028-03-01T00:00:00.000Z');
  });

  it('a given date wins for one cycle, at its UTC midnight; a day that has begun is refused', () => {
    const now = at('2026-05-06T10:00:00Z');
    const policy = completeRotation(
      { rotation_period: 'weekly', next_rotation_at: '2026-05-20T15:00:00+02:00' },
      now,
      now,
    );
    expect(policy).toEqual({
      rotation_period: 'weekly',
      rotation_period_days: null,
      next_rotation_at: '2026-05-20T00:00:00.000Z',
      key_transition_period_ms: 1_800_000,
      status: 'ACTIVE',
    });
    expect(() => completeRotation({ next_rotation_at: '2026-05-06T23:00:00Z' }, now, now)).toThrow(/later day/);
  });

  it('a cadence that began long ago goes on from today', () => {
    const policy = completeRotation(
      { rotation_period_days: 3 },
      at('2020-01-01T00:00:00Z'),
      at('2026-05-06T10:00:00Z'),
    );
    expect(policy.next_rotation_at).toBe('2026-05-09T00:00:00.000Z');
  });
});

describe('a policy after its rotation', () => {
  const at = (text: string) => Date.parse(text);
  const policy = (cadence: object, next: string) =>
    ({
      rotation_period: null,
      rotation_period_days: null,
      ...cadence,
      next_rotation_at: next,
      key_transition_period_ms: 1_800_000,
      status: 'ACTIVE',
    }) as RotationPolicy;

  it('goes on with its cadence, whatever day was named for the last one', () => {
    const weekly = policy({ rotation_period: 'weekly' }, '2026-06-30T00:00:00.000Z');
    expect(afterRotation(weekly, at('2026-05-06T10:00:00Z'))).toEqual({
      ...weekly,
      next_rotation_at: '2026-05-11T00:00:00.000Z',
    });
  });

  it('is over when it named a single day that has come', () => {
    const once = policy({}, '2026-05-06T00:00:00.000Z');
    expect(afterRotation(once, at('2026-05-06T00:00:00Z'))).toBeNull();
    expect(afterRotation(once, at('2026-05-05T23:59:59Z'))).toEqual(once);
  });

  it('never falls due in the past or more than one cycle ahead', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: at('2100-01-01T00:00:00Z') }),
        fc.oneof(
          fc.record({ rotation_period: fc.constantFrom('weekly', 'monthly') }),
          fc.record({ rotation_period_days: fc.integer({ min: 1, max: 365 }) }),
        ),
        (now, cadence) => {
          const next = at(afterRotation(policy(cadence, '2020-01-01T00:00:00.000Z'), now)?.next_rotation_at ?? '');
          const days =
            'rotation_period' in cadence
              ? cadence.rotation_period === 'weekly'
                ? 7
                : 31
              : cadence.rotation_period_days;
          expect(next % 86_400_000).toBe(0);
          expect(next).toBeGreaterThan(now);
          expect(next - now).toBeLessThanOrEqual(days * 86_400_000);
        },
      ),
    );
  });

  it('under an enforced cadence keeps its own when it is the same, and an earlier day else', () => {
    const now = at('2026-05-06T10:00:00Z');
    const same = policy({ rotation_period: 'weekly' }, '2026-05-11T00:00:00.000Z');
    expect(enforcedPolicy(same, 7, now, now)).toBe(same);
    const next = (given: RotationPolicy | null) => enforcedPolicy(given, 10, now, now).next_rotation_at;
    expect(next(null)).toBe('2026-05-16T00:00:00.000Z');
    expect(next(same)).toBe('2026-05-11T00:00:00.000Z');
    expect(next(policy({ rotation_period_days: 90 }, '2026-08-01T00:00:00.000Z'))).toBe('2026-05-16T00:00:00.000Z');
  });
});
