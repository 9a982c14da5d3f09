import type { LimitedEntity } from '../../limits/admission.ts';
import type { Exchange } from '../exchange.ts';

/** Rate limits of the key, the workspace and the provider, in this order (api §15.5). */
export async function admit(x: Exchange): Promise<void> {
  const { principal, snapshot } = x;
  if (x.dryRun || principal === null || snapshot === null) return;
  const entities: LimitedEntity[] = [];
  if (principal.rateLimits.length > 0 && principal.keyId !== null) {
    entities.push({
      kind: 'key',
      id: principal.keyId,
      label: principal.keyName ?? principal.keyId,
      limits: principal.rateLimits,
    });
  }
  if (snapshot.rateLimits.length > 0) {
    entities.push({
      kind: 'workspace',
      id: snapshot.workspaceId,
      label: snapshot.workspaceSlug,
      limits: snapshot.rateLimits,
    });
  }
  const stored = x.target?.stored;
  if (stored && stored.rateLimits.length > 0) {
    entities.push({ kind: 'provider', id: stored.entityId, label: stored.slug, limits: stored.rateLimits });
  }
  x.reservation = await x.services.admission.admit(snapshot.workspaceId, entities);
}
