import { describe, expect, it } from 'vitest';
import type { LimitSpec } from './limit-spec.ts';
import { exceeded } from './usage-refusal-text.ts';

const NOW = Date.UTC(2026, 10, 22);
const RESET = Date.UTC(2026, 11, 1);
const spec = (more: Partial<LimitSpec> = {}): LimitSpec => ({
  ownerKind: 'policy',
  ownerId: 'p1',
  bucketKey: 'metadata._user:alice',
  valueKey: 'metadata._user:alice',
  label: 'Team budget',
  type: 'tokens',
  limit: 60,
  alert: null,
  period: 'monthly',
  resetsAt: null,
  unpriced: null,
  onOutage: 'refuse',
  at: NOW,
  ...more,
});
const said = (given: LimitSpec, used: number, limit: number, resets_at: number | null = RESET): string =>
  exceeded(given, { used, credit_limit: limit, resets_at, value_key: given.valueKey }, NOW, used).message;

describe('a request that a usage limit refuses reads', () => {
  it('which budget is used up for whom, how much of it, and when it begins anew', () => {
    expect(said(spec(), 63, 60)).toBe(
      'Budget "Team budget" is used up for user alice: 63 of 60 tokens. It resets on 1 December 2026, 00:00 UTC.',
    );
    expect(said(spec({ type: 'cost' }), 3_500_000, 1_000_000, null)).toBe(
      'Budget "Team budget" is used up for user alice: $3.5 of $1. It does not reset by itself: an administrator of the workspace can raise it, in the console or with PUT /v1/policies/usage-limits/p1.',
    );
  });

  it.each([
    ['metadata._user:', 'metadata._user: (no value)'],
    ['api_key:key-1', 'API key key-1'],
    ['workspace_id:01a20115-4b54-788b-aef9-bc510add51c5', 'this workspace'],
    ['metadata.team:search', 'metadata.team:search'],
    [
      'api_key:01a20115-4b54-788b-aef9-bc510add51c5-metadata._user:alice',
      'api_key:01a20115-4b54-788b-aef9-bc510add51c5-metadata._user:alice',
    ],
  ])('%s as "%s"', (valueKey, whom) => {
    expect(said(spec({ valueKey }), 60, 60)).toContain(`is used up for ${whom}: 60 of 60 tokens.`);
  });

  it('whose limit it is where that is no policy', () => {
    expect(said(spec({ ownerKind: 'key', label: 'ci', type: 'requests' }), 5, 5)).toBe(
      'The usage limit of API key ci is used up: 5 of 5 requests. It resets on 1 December 2026, 00:00 UTC.',
    );
  });

  it('who can raise a limit that does not reset, and where', () => {
    const raised = (ownerKind: LimitSpec['ownerKind']) =>
      said(spec({ ownerKind, ownerId: 'o1', resetsAt: null }), 60, 60, null).split('itself: ')[1];
    expect(raised('workspace')).toBe(
      'an administrator of the organisation can raise it, in the console or with PUT /v1/admin/workspaces/o1.',
    );
    expect(raised('key')).toContain('PUT /v1/api-keys/o1.');
  });

  it('that requests under way hold the rest, and to try again after them', () => {
    expect(said(spec(), 20, 60)).toContain(
      'has no room left for user alice: 20 of 60 tokens are used, and requests that still run have reserved the other 40. Try again when they have ended.',
    );
  });
});
