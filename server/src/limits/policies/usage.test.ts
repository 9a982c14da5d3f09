import { expect, it } from 'vitest';
import type { Row } from '../../store/schema.ts';
import type { LimitSpec } from '../ledger/limit-spec.ts';
import type { PolicyFacts } from './conditions.ts';
import { addUsageLimits, compileUsagePolicies } from './usage.ts';

it('whatever a caller writes, its counter has a key of its own that every store takes', () => {
  const row = {
    id: 'p',
    name: null,
    type: 'tokens',
    credit_limit: 1,
    alert_threshold: null,
    periodic_reset: null,
    periodic_reset_days: null,
    conditions: [{ key: 'metadata.a', value: '*' }],
    group_by: [{ key: 'metadata.a' }],
  } as unknown as Row<'usage_policies'>;
  const index = compileUsagePolicies([row], { workspaceId: 'w', workspaceSlug: 'w', organisationId: 'o' });
  const texts = ['a', 'a\u0000', 'a\ud800', 'a\ud801', 'a\ufffd', `${'x'.repeat(500)}😀`, 'x'.repeat(501)];
  const specs: LimitSpec[] = [];
  for (const a of texts) {
    if (index !== null) addUsageLimits(index, { metadata: { a } } as unknown as PolicyFacts, specs);
  }
  expect(new Set(specs.map(({ bucketKey }) => bucketKey)).size).toBe(texts.length);
  for (const { bucketKey, valueKey } of specs) {
    expect([bucketKey, valueKey].every((text) => text.isWellFormed() && !text.includes('\u0000'))).toBe(true);
    expect(valueKey.startsWith('metadata.a:')).toBe(true);
  }
});
