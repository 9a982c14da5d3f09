/** Which limits a call counts under: those of its caller, of its workspace, of an account it uses, and of policies. */
import type { Principal } from '../auth/principal.ts';
import { type LimitSpec, limitSpecs } from '../limits/ledger/limit-spec.ts';
import type { PolicyFacts, PolicyScope } from '../limits/policies/conditions.ts';
import { addRateLimits } from '../limits/policies/rates.ts';
import { addUsageLimits } from '../limits/policies/usage.ts';
import { type LimitedEntity, limitedEntity } from '../limits/rate-limits.ts';
import type { StoredProvider, WorkspaceSnapshot } from '../runtime/snapshot.ts';

type RatePolicyIndex = Parameters<typeof addRateLimits>[0];

/** What of a call says which limits are its own. */
export interface LimitedCall {
  readonly principal: Principal;
  readonly snapshot: WorkspaceSnapshot;
  /** The account it uses, which has limits, too; null without one. */
  readonly stored: Pick<StoredProvider, 'rateLimits' | 'usageLimits'> | null;
  /** What policies see of it; asked only where there are policies. */
  readonly facts: () => PolicyFacts;
  /** `request`: without what only one of several targets is limited by. */
  readonly scope: PolicyScope;
}

/** Rate limits of the key, the workspace, the account and the policies, in this order. */
export function rateLimitsOf(call: LimitedCall, policies: RatePolicyIndex | null): LimitedEntity[] {
  const { principal, snapshot, stored, facts, scope } = call;
  const entities: LimitedEntity[] = [];
  const owner = principal.rateLimits.length > 0 ? limitOwner(principal) : null;
  const own = owner === null ? null : limitedEntity(owner.kind, owner.id, owner.label, principal.rateLimits);
  if (own !== null) entities.push(own);
  if (snapshot.rateLimits !== null) entities.push(snapshot.rateLimits);
  if (stored !== null) entities.push(...stored.rateLimits);
  if (policies !== null) addRateLimits(policies, facts(), entities, scope);
  return entities;
}

/** Usage limits of the key or token, the workspace, the account and the policies, in this order. */
export function usageLimitsOf({ principal, snapshot, stored, facts, scope }: LimitedCall): LimitSpec[] {
  const specs: LimitSpec[] = [];
  if (principal.usageLimits !== null) specs.push(...callerTerms(principal));
  specs.push(...snapshot.usageLimits);
  if (stored !== null) specs.push(...stored.usageLimits);
  if (snapshot.usagePolicies !== null) addUsageLimits(snapshot.usagePolicies, facts(), specs, scope);
  return specs;
}

/** Whom the limits that a caller brings along belong to: its key, or the subject of its token. */
function limitOwner(principal: Principal): { kind: 'key' | 'token'; id: string; label: string } | null {
  if (principal.limitOwner !== undefined) return principal.limitOwner;
  const { keyId: id } = principal;
  return id === null ? null : { kind: 'key', id, label: principal.keyName ?? id };
}

const known = new WeakMap<Principal, readonly LimitSpec[]>();

/** The limits of a key, or of a token's claims, are the same for all its requests. */
function callerTerms(principal: Principal): readonly LimitSpec[] {
  let specs = known.get(principal);
  if (specs === undefined) {
    const owner = limitOwner(principal);
    specs = owner === null ? [] : limitSpecs({ ...owner, at: principal.changedAt ?? 0 }, principal.usageLimits);
    known.set(principal, specs);
  }
  return specs;
}
