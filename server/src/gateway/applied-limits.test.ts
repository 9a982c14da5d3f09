import { expect, it } from 'vitest';
import { accountWith, callerWith, ORGANISATION, WORKSPACE, workspaceWith } from '../../test/support/caller.ts';
import { testExchange } from '../../test/support/exchange.ts';
import { limitSpecWith } from '../../test/support/ledger-node.ts';
import { ratePolicyRow, usagePolicyRow } from '../../test/support/policies.ts';
import type { Principal } from '../auth/principal.ts';
import { compileRatePolicies } from '../limits/policies/rates.ts';
import { compileUsagePolicies } from '../limits/policies/usage.ts';
import { limitedEntity } from '../limits/rate-limits.ts';
import { factsOf } from '../llm/steps/admit.ts';
import { rateLimitsOf, usageLimitsOf } from './applied-limits.ts';

const PLACE = { workspaceId: WORKSPACE, workspaceSlug: 'w', organisationId: ORGANISATION };
const ROWS = { organisation_id: ORGANISATION, workspace_id: WORKSPACE };
const RATE = [{ type: 'requests', unit: 'rpm', value: 5 }] as const;
const entity = (kind: 'workspace' | 'provider', id: string) => limitedEntity(kind, id, id, RATE);
const spec = (ownerKind: 'workspace' | 'provider', ownerId: string) => limitSpecWith({ ownerKind, ownerId });

const everywhere = [{ key: 'workspace_id', value: WORKSPACE }];
const snapshot = workspaceWith({
  rateLimits: entity('workspace', 'w'),
  usageLimits: [spec('workspace', 'w')],
  ratePolicies: compileRatePolicies([ratePolicyRow(ROWS, 'rate-1', everywhere)], PLACE),
  usagePolicies: compileUsagePolicies([usagePolicyRow(ROWS, 'usage-1', everywhere)], PLACE),
});
const provider = entity('provider', 'p');
const stored = accountWith({ rateLimits: provider === null ? [] : [provider], usageLimits: [spec('provider', 'p')] });

function callOf(principal: Principal) {
  const x = testExchange();
  x.request.principal = principal;
  x.request.snapshot = snapshot;
  return { principal, snapshot, stored, facts: () => factsOf(x), scope: 'all' } as const;
}

const limited = { rateLimits: RATE, usageLimits: { type: 'tokens', credit_limit: 10 } } as const;
const shown = (list: readonly { readonly kind: string; readonly id: string }[]) =>
  list.map(({ kind, id }) => `${kind}:${id.split(':')[0]}`);

it('limits refuse in this order: key, workspace, account, policies', () => {
  const call = callOf(callerWith(limited));
  const order = ['key:key-1', 'workspace:w', 'provider:p'];
  expect(shown(rateLimitsOf(call, snapshot.ratePolicies.llm))).toEqual([...order, 'policy:rate-1']);
  const usage = usageLimitsOf(call).map(({ ownerKind: kind, ownerId: id }) => ({ kind, id }));
  expect(shown(usage)).toEqual([...order, 'policy:usage-1']);
});

it('limits of a token’s claims are its subject’s and not a key’s', () => {
  const call = callOf(callerWith({ ...limited, limitOwner: { kind: 'token', id: 't', label: 'sub' } }));
  expect(shown(rateLimitsOf(call, null))[0]).toBe('token:t');
  expect(usageLimitsOf(call)[0]).toMatchObject({ ownerKind: 'token', ownerId: 't', label: 'sub' });
});

it('a caller without a key or own limits has the limits of the workspace only', () => {
  const call = { ...callOf(callerWith({ keyId: null, rateLimits: RATE })), stored: null };
  expect(shown(rateLimitsOf(call, null))).toEqual(['workspace:w']);
});

it('policies are looked at only where there are any', () => {
  const facts = () => {
    throw new Error('asked');
  };
  const call = { ...callOf(callerWith()), facts, snapshot: workspaceWith() };
  expect([rateLimitsOf(call, null), usageLimitsOf(call)]).toEqual([[...stored.rateLimits], [...stored.usageLimits]]);
});
