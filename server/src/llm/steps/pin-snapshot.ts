import type { WorkspaceSnapshot } from '../../runtime/snapshot.ts';
import type { Exchange } from '../exchange.ts';

/** The one look at the workspace: what comes later reads this snapshot, whatever changes meanwhile. */
export function pinSnapshot(x: Exchange): void | Promise<void> {
  const {
    request: { principal },
    services,
  } = x;
  // Without a workspace `resolve` refuses.
  if (principal?.workspaceId == null) return;
  const snapshot = services.runtime.workspace(principal.organisationId, principal.workspaceId);
  if (snapshot instanceof Promise) return snapshot.then((known) => pin(x, known));
  pin(x, snapshot);
}

function pin(x: Exchange, snapshot: WorkspaceSnapshot): void {
  x.request.snapshot = snapshot;
}
