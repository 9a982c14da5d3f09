import type { Runtime } from '../runtime/runtime.ts';
import type { WorkspaceSnapshot } from '../runtime/snapshot.ts';
import type { ContextHead } from './request-context.ts';

/** The one look at the workspace: what comes later reads this snapshot, whatever changes meanwhile. */
export function pinSnapshot(runtime: Runtime, request: ContextHead): void | Promise<void> {
  const { principal } = request;
  // Without a workspace the request is refused.
  if (principal?.workspaceId == null) return;
  const snapshot = runtime.workspace(principal.organisationId, principal.workspaceId);
  if (snapshot instanceof Promise) return snapshot.then((known) => pin(request, known));
  pin(request, snapshot);
}

function pin(request: ContextHead, snapshot: WorkspaceSnapshot): void {
  request.snapshot = snapshot;
}
