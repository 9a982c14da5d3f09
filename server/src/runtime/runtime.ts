/**
 * Rows → immutable snapshots, one per workspace, compiled when first needed and dropped when a change names them.
 * Requests only read a pointer. When the store is away the last good snapshot keeps serving.
 */
import { systemTenant } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import { loadWorkspace } from '../resources/openable.ts';
import type { Change, Tables } from '../store/ports.ts';
import type { Vault } from '../store/vault.ts';
import { compileWorkspace } from './compile.ts';
import type { WorkspaceSnapshot } from './snapshot.ts';

export interface Runtime {
  /** The current snapshot of a workspace; a promise only while it is being compiled. Unknown workspace: `unauthenticated`. */
  workspace(organisationId: string, workspaceId: string): WorkspaceSnapshot | Promise<WorkspaceSnapshot>;
  /** Drops what a change touches; the next request compiles it anew. */
  invalidate(change: Change): void;
  /** Drops everything, for example after changes may have been missed. */
  invalidateAll(): void;
}

interface Entry {
  readonly organisationId: string;
  current: WorkspaceSnapshot | null;
  /** Rises with every invalidation: a compile that began before it must not be kept. */
  epoch: number;
  stale: boolean;
  loading: Promise<WorkspaceSnapshot> | null;
}

export interface RuntimeOptions {
  readonly tables: Tables;
  readonly vault: Vault;
  readonly clock: Clock;
  readonly log: Log;
  readonly blockInlineConfig: boolean;
  /** Workspaces kept compiled. */
  readonly capacity?: number;
}

export function createRuntime(options: RuntimeOptions): Runtime {
  const { tables, vault, log } = options;
  const capacity = options.capacity ?? 10_000;
  const entries = new Map<string, Entry>();
  let generation = 0;

  async function load(entry: Entry, workspaceId: string): Promise<WorkspaceSnapshot> {
    for (;;) {
      const epoch = entry.epoch;
      try {
        const tenant = systemTenant(entry.organisationId, null);
        const rows = await tables.read(tenant, (tx) => loadWorkspace(tx, vault, workspaceId));
        if (rows === null)
          throw new SluiceError('unauthenticated', 'The workspace of this credential does not exist any more.');
        generation += 1;
        const snapshot = await compileWorkspace(rows, generation, {
          blockInlineConfig: options.blockInlineConfig,
          log,
        });
        entry.current = snapshot;
        if (entry.epoch === epoch) {
          entry.stale = false;
          return snapshot;
        }
      } catch (error) {
        if (entry.current !== null && !(error instanceof SluiceError && error.kind === 'unauthenticated')) {
          log.error('compiling a workspace failed; its last good snapshot keeps serving', {
            workspaceId,
            error: String(error),
          });
          return entry.current;
        }
        throw error;
      }
    }
  }

  return {
    workspace(organisationId, workspaceId) {
      let entry = entries.get(workspaceId);
      if (entry !== undefined && entry.organisationId === organisationId) {
        if (!entry.stale && entry.current !== null) return entry.current;
      } else {
        entry = { organisationId, current: null, epoch: 0, stale: true, loading: null };
        if (entries.size >= capacity) entries.delete(entries.keys().next().value ?? '');
        entries.set(workspaceId, entry);
      }
      const pinned = entry;
      pinned.loading ??= load(pinned, workspaceId).finally(() => {
        pinned.loading = null;
      });
      return pinned.loading;
    },
    invalidate(change) {
      const touch = (entry: Entry) => {
        entry.epoch += 1;
        entry.stale = true;
      };
      if (change.workspaceId !== null) {
        const entry = entries.get(change.workspaceId);
        if (entry) touch(entry);
        return;
      }
      for (const entry of entries.values()) if (entry.organisationId === change.organisationId) touch(entry);
    },
    invalidateAll() {
      for (const entry of entries.values()) {
        entry.epoch += 1;
        entry.stale = true;
      }
    },
  };
}
