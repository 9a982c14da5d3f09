import { describe, expect, it } from 'vitest';
import { tenantRows } from '../../../store/conformance/rows.ts';
import { usageLimitsOf } from '../../shapes.ts';
import { presentLimits, replaceLimits, resetLimits } from './limits.ts';

const exhausted = { status: 'exhausted' } as const;
const monthly = { type: 'cost', credit_limit: 10, periodic_reset: 'monthly' } as const;

describe('usage limits of a workspace', () => {
  it('a limit that was exhausted and is raised becomes active', () => {
    expect(replaceLimits([{ ...monthly, ...exhausted }], [{ ...monthly, credit_limit: 11 }])).toEqual([
      { ...monthly, credit_limit: 11 },
    ]);
  });

  it('so does one that is gone without another of its kind, and one that is no longer a number', () => {
    const { credit_limit: _gone, ...unlimited } = monthly;
    expect(replaceLimits([{ ...monthly, ...exhausted }], null)).toBeNull();
    expect(replaceLimits([{ ...monthly, ...exhausted }], [])).toEqual([]);
    expect(replaceLimits([{ ...monthly, ...exhausted }], [unlimited])).toEqual([unlimited]);
  });

  it('the same limit, a lower one and a changed threshold stay exhausted', () => {
    for (const next of [monthly, { ...monthly, credit_limit: 9 }, { ...monthly, alert_threshold: 3 }]) {
      expect(replaceLimits([{ ...monthly, ...exhausted }], [next])).toEqual([{ ...next, ...exhausted }]);
    }
  });

  it('each limit is judged by its own kind and period', () => {
    const tokens = { ...monthly, type: 'tokens' as const };
    const weekly = { ...monthly, periodic_reset: 'weekly' as const };
    const before = [{ ...monthly, ...exhausted }, tokens];
    expect(replaceLimits(before, [tokens, monthly, weekly])).toEqual([tokens, { ...monthly, ...exhausted }, weekly]);
    expect(replaceLimits(null, [monthly])).toEqual([monthly]);
  });

  it('a reset makes every limit active', () => {
    expect(resetLimits([{ ...monthly, ...exhausted }, monthly])).toEqual([monthly, monthly]);
    expect(resetLimits(null)).toBeNull();
  });

  it('are answered with their kind, state and last reset', () => {
    const row = { id: 'w', usage_limits: [{ credit_limit: 5 }, monthly], last_reset_at: 0 };
    const bucket = {
      ...tenantRows('o', 'w').usage_buckets,
      used: 5_500_000,
      status: 'exhausted' as const,
      last_reset_at: 86_400_000,
    };
    const shown = presentLimits(row, (_, limit) => (limit === monthly ? undefined : bucket));
    expect(shown).toEqual([
      {
        credit_limit: 5,
        type: 'cost',
        current_usage: 5.5,
        status: 'exhausted',
        last_reset_at: '1970-01-02T00:00:00.000Z',
      },
      {
        ...monthly,
        current_usage: 0,
        status: 'active',
        last_reset_at: '1970-01-01T00:00:00.000Z',
      },
    ]);
    expect(presentLimits({ id: 'w', usage_limits: null, last_reset_at: null }, () => undefined)).toBeNull();
  });

  it('a reset date is kept as its UTC midnight, and one in the past is refused by its path', () => {
    const now = Date.UTC(2026, 4, 6, 10);
    const [kept] = usageLimitsOf(
      [{ ...monthly, next_usage_reset_at: '2026-05-20T15:00:00+02:00' }],
      now,
      'usage_limits',
    );
    expect(kept?.next_usage_reset_at).toBe('2026-05-20T00:00:00.000Z');
    for (const passed of ['2026-05-05T09:00:00Z', '2026-05-06T23:00:00Z']) {
      expect(() => usageLimitsOf([monthly, { ...monthly, next_usage_reset_at: passed }], now, 'usage_limits')).toThrow(
        'usage_limits[1].next_usage_reset_at',
      );
    }
  });
});
