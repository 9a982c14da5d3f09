/** Removes kept bodies whose days are over: whole chunks, each of one workspace and begun on one day. */
import { systemTenant } from '../auth/tenant.ts';
import { bodySettings } from '../resources/settings/settings.ts';
import type { Blobs, Tables, Where } from '../store/ports.ts';
import { chunkBlob } from '../telemetry/bodies/chunk.ts';

export interface BodyRetentionOptions {
  readonly tables: Tables;
  readonly blobs: Blobs;
  /** Days that bodies are kept, unless the organisation or workspace says fewer. */
  readonly days: number;
  readonly signal?: AbortSignal;
}

/** Chunks of one round. */
const PAGE = 200;
const ORGANISATIONS = 500;
const WORKSPACES = 1_000;
const DAY_MS = 86_400_000;

/** Those of the installation's days, then those of organisations and workspaces that say fewer. */
export async function forgetBodies({ tables, blobs, days, signal }: BodyRetentionOptions): Promise<void> {
  const today = Math.floor((await tables.now()) / DAY_MS);
  const over = (kept: number) => ({ day: { lt: today - kept } });
  await remove(over(days));
  for (let after = ''; signal?.aborted !== true; ) {
    const page = await tables.systemRead((tx) =>
      tx.list('organisations', { where: { id: { gt: after } }, orderBy: [['id', 'asc']], limit: ORGANISATIONS }),
    );
    for (const organisation of page) {
      const workspaces = await tables.systemRead((tx) =>
        tx.list('workspaces', {
          where: { organisation_id: organisation.id },
          orderBy: [['id', 'asc']],
          limit: WORKSPACES,
        }),
      );
      for (const workspace of workspaces) {
        const { days: own } = bodySettings(organisation, workspace);
        if (own === null || own >= days) continue;
        await remove({ organisation_id: organisation.id, workspace_id: workspace.id, ...over(own) });
      }
    }
    if (page.length < ORGANISATIONS) return;
    after = page.at(-1)?.id ?? after;
  }

  async function remove(where: Where<'body_chunks'>): Promise<void> {
    while (signal?.aborted !== true) {
      const chunks = await tables.systemRead((tx) =>
        tx.list('body_chunks', { where, orderBy: [['day', 'asc']], limit: PAGE }),
      );
      // The blob first: a row without one is found again, a blob without a row never is.
      for (const { id, organisation_id } of chunks) await blobs.delete(systemTenant(organisation_id), chunkBlob(id));
      const ids = chunks.map(({ id }) => id);
      if (ids.length > 0) await tables.systemWrite((tx) => tx.remove('body_chunks', { id: { in: ids } }));
      if (chunks.length < PAGE) return;
    }
  }
}
