import type { Principal } from '../../auth/principal.ts';
import { tenantOf } from '../../auth/tenant.ts';
import type { Demand, Hold } from '../../limits/ledger/ledger.ts';
import { limitTerms, type Terms } from '../../limits/ledger/terms.ts';
import { addBudgets } from '../../limits/policies/usage.ts';
import { stamp } from '../../limits/stamp.ts';
import { estimateUse } from '../estimate.ts';
import type { Exchange } from '../exchange.ts';
import { factsOf, limitOwner } from './admit.ts';

const NO_TERMS = new WeakMap<Principal, Terms | null>();

/** The limit of a key, or of a token's claims, is the same for all its requests. */
function keyTerms(principal: Principal): Terms | null {
  let terms = NO_TERMS.get(principal);
  if (terms === undefined) {
    const owner = limitOwner(principal);
    terms = owner === null ? null : limitTerms({ ...owner, at: principal.changedAt ?? 0 }, principal.usageLimits);
    NO_TERMS.set(principal, terms);
  }
  return terms;
}

/**
 * Usage limits of the key, the workspace, the provider, its integration and the policies, in this order (api §15.5): an
 * estimate is reserved under all of them before the call, or the request is refused.
 */
export function reserve(x: Exchange): void | Promise<void> {
  const { principal, snapshot } = x;
  if (x.dryRun || principal === null || snapshot === null) return;
  const terms: Terms[] = [];
  const own = principal.usageLimits === null ? null : keyTerms(principal);
  if (own !== null) terms.push(own);
  terms.push(...snapshot.budgets);
  if (x.target?.stored) terms.push(...x.target.stored.budgets);
  if (snapshot.usagePolicies !== null) addBudgets(snapshot.usagePolicies, factsOf(x), terms);
  if (terms.length === 0) return;
  const use = estimateUse(x);
  const demands = terms.map((one): Demand => {
    if (one.type === 'requests') return { terms: one, amount: 1, bounded: true };
    return { terms: one, amount: one.type === 'cost' ? use.cost : use.tokens, bounded: use.bounded };
  });
  x.limits ??= {};
  x.limits.usage_at = stamp(x.services.storeClock.now());
  x.limits.estimate = use;
  const held = x.services.ledger.reserve(tenantOf(principal), snapshot.workspaceId, demands);
  if (held instanceof Promise) return held.then((hold) => keep(x, hold));
  keep(x, held);
}

function keep(x: Exchange, hold: Hold): void {
  x.held = hold;
}
