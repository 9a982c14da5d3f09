import type { Principal } from '../../auth/principal.ts';
import { type LimitedEntity, limitedEntity, type Reservation } from '../../limits/admission.ts';
import { type Facts, requestFacts } from '../../limits/policies/conditions.ts';
import { addPolicies } from '../../limits/policies/rates.ts';
import type { Exchange } from '../exchange.ts';

/** Rate limits of the key, the workspace, the provider, its integration and the policies, in this order (api §15.5). */
export function admit(x: Exchange): void | Promise<void> {
  const { principal, snapshot } = x;
  if (x.dryRun || principal === null || snapshot === null) return;
  const entities: LimitedEntity[] = [];
  const owner = principal.rateLimits.length > 0 ? limitOwner(principal) : null;
  const own = owner === null ? null : limitedEntity(owner.kind, owner.id, owner.label, principal.rateLimits);
  if (own !== null) entities.push(own);
  if (snapshot.limited !== null) entities.push(snapshot.limited);
  const stored = x.target?.stored;
  if (stored) entities.push(...stored.limited);
  if (snapshot.ratePolicies.llm !== null) addPolicies(snapshot.ratePolicies.llm, factsOf(x), entities);
  if (entities.length === 0) return;
  return x.services.admission.admit(snapshot.workspaceId, entities).then((reservation) => keep(x, reservation));
}

/** Whom the limits that a caller brings along belong to: its key, or the subject of its token. */
export function limitOwner(principal: Principal): { kind: 'key' | 'token'; id: string; label: string } | null {
  if (principal.limitOwner !== undefined) return principal.limitOwner;
  const { keyId: id } = principal;
  return id === null ? null : { kind: 'key', id, label: principal.keyName ?? id };
}

function keep(x: Exchange, reservation: Reservation): void {
  x.quota = reservation.quota;
  x.limits = { rates_at: reservation.at };
  if (reservation.refusal !== null) throw reservation.refusal;
  x.reservation = reservation;
}

/** What policies see of a request before it is sent. */
export function factsOf(x: Exchange): Facts {
  const { principal, snapshot, target } = x;
  return requestFacts({
    workspaceId: snapshot?.workspaceId ?? '',
    organisationId: snapshot?.organisationId ?? '',
    keyId: principal?.keyId ?? null,
    provider: target?.provider.id ?? null,
    slug: target?.stored?.slug ?? null,
    config: x.plan?.configSlug ?? null,
    model: x.model,
    requestType: x.operation.requestType,
    metadata: x.metadata,
  });
}
