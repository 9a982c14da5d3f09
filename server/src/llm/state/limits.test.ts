import { expect, it } from 'vitest';
import type { LimitSpec } from '../../limits/ledger/limit-spec.ts';
import type { LimitedEntity } from '../../limits/rate-limits.ts';
import { appliedLimits, LlmLimits } from './limits.ts';

it('a decision names limits by kind and id: a policy by the id of its row, whatever it counts for', () => {
  const limits = new LlmLimits();
  const policy: LimitedEntity = {
    kind: 'policy',
    id: 'p1:alice',
    label: 'p',
    limits: [],
    policy: { id: 'p1', valueKey: 'alice' },
  };
  limits.rateLimits = [{ kind: 'key', id: 'k1', label: 'k', policy: null, limits: [] }];
  limits.targetRateLimits = [policy];
  limits.usageLimits = [{ ownerKind: 'workspace', ownerId: 'w1' } as LimitSpec];
  expect(appliedLimits(limits)).toEqual(['rate_limit key:k1', 'rate_limit policy:p1', 'usage_limit workspace:w1']);
});
