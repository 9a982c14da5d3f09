import { expect, it } from 'vitest';
import type { LimitSpec } from './ledger/limit-spec.ts';
import { limitName } from './usage-limit-refused.ts';

it.each([
  ['metadata._user:alice', 'Budget "Team budget" for user alice'],
  ['metadata._user:', 'Budget "Team budget" for metadata._user: (no value)'],
  ['workspace_id:01a20115-4b54-788b-aef9-bc510add51c5', 'Budget "Team budget" for this workspace'],
])('a refusal by a policy names %s as people read it', (valueKey, name) => {
  const spec = { ownerKind: 'policy', label: 'Team budget', valueKey } as LimitSpec;
  const { limit, whom } = limitName(spec);
  expect(limit + whom).toBe(name);
});
