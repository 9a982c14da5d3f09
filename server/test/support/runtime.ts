import type { Opened } from '../../src/runtime/opened.ts';
import type { Runtime } from '../../src/runtime/runtime.ts';
import type { WorkspaceSnapshot } from '../../src/runtime/snapshot.ts';

/** A value that was never sealed. */
export function alreadyOpen<T>(value: T): Opened<T> {
  return { get: () => value, until: Number.POSITIVE_INFINITY };
}

/** A runtime of given snapshots, which never change. */
export function fixedRuntime(workspace: (organisationId: string, workspaceId: string) => WorkspaceSnapshot): Runtime {
  const compiled = { settings: 0, accounts: 0, configs: 0, guardrails: 0, ratePolicies: 0, usagePolicies: 0 };
  return { workspace, invalidate() {}, invalidateAll() {}, settle() {}, compiled };
}
