import { describe, expect, it } from 'vitest';
import { tenantRows } from '../../../store/conformance/rows.ts';
import { usageLimitsOf } from '../../body-fields.ts';
import { presentLimits } from './present-limits.ts';

const monthly = { type: 'cost', credit_limit: 10, periodic_reset: 'monthly' } as const;

describe('usage limits of a workspace', () => {
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
