/** The list of files in the control store, and their bytes in the blob store, of all nodes. */
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Clock } from '../kernel/clock.ts';
import { writeStream } from '../store/disk/files.ts';
import type { Blobs, SystemTx, Tables, TenantContext } from '../store/ports.ts';
import type { LogCatalog, SharedLogFiles } from './catalog.ts';
import { type KnownNode, knownNode } from './known-node.ts';
import { commitFiles, fileOf, positionsIn, rowOf } from './stored-catalog.ts';

/** A file that is in the list no more stays for nodes that are about to read it. */
const REPLACED_MS = 10 * 60_000;
/** A file that was to come into the list, and did not. */
const PREPARED_MS = 60 * 60_000;
/** A transaction may be written later than its time says. */
const OVERLAP_MS = 60_000;
/** Changes from before are read as a whole list: rows of files that went are gone by then. */
const NEWS_MS = REPLACED_MS / 2;
/** No question reaches further back than to what a node that is no more has not given to the others. */
const NODE_MS = 401 * 86_400_000;
const SOME = 500;

export interface SharedCatalogOptions {
  readonly tables: Tables;
  readonly blobs: Blobs;
  readonly node: string;
  /** The same on all nodes. */
  readonly clock: Clock;
  /** In whose name the bytes are stored. */
  readonly tenant: TenantContext;
  /** Rejects when the disk has no room for another file. */
  readonly hasSpace: () => Promise<void>;
  /** Whether this node may replace files of the list: one of all nodes at a time. */
  readonly lead: () => Promise<boolean>;
}

type SharedNode = SharedLogFiles & KnownNode;

/** Files of all nodes. */
export function sharedCatalog(options: SharedCatalogOptions): LogCatalog & { readonly shared: SharedNode } {
  const { tables, blobs, node, clock, tenant, hasSpace, lead } = options;
  const put = async (id: string, path: string) => void (await blobs.put(tenant, blobOf(id), createReadStream(path)));
  return {
    load: () =>
      tables.systemRead(async (tx) => {
        const files = await tx.list('log_files', { where: { remove_at: 0 } });
        return { files: files.map(fileOf), positions: await positionsIn(tx) };
      }),
    commit: (change) => {
      const now = clock.now();
      const remove = (tx: SystemTx, id: string) =>
        tx.update('log_files', { id, remove_at: 0 }, { remove_at: now + REPLACED_MS, changed_at: now });
      return tables.systemWrite((tx) => commitFiles(tx, change, now, remove), { queue: 'log files' });
    },
    shared: {
      async news(since) {
        const at = clock.now();
        const partial = since !== null && at - since < NEWS_MS;
        return tables.systemRead(async (tx) => {
          const nodes = await tx.list('log_nodes', {});
          const where = partial ? { changed_at: { gte: since - OVERLAP_MS } } : { remove_at: 0 };
          const rows = await tx.list('log_files', { where });
          return {
            partial,
            at,
            files: rows.filter(({ remove_at }) => remove_at === 0).map(fileOf),
            gone: rows.filter(({ remove_at }) => remove_at > 0).map(({ id }) => id),
            nodes: nodes.map(({ node, complete_to, seen_at }) => {
              return { node, completeTo: complete_to, seenAt: seen_at };
            }),
          };
        });
      },
      async upload(id, path) {
        await put(id, path);
        const stored = { place: 'store', changed_at: clock.now() } as const;
        await tables.systemWrite((tx) => tx.update('log_files', { id, place: 'disk' }, stored));
      },
      async prepare(file, path) {
        const now = clock.now();
        await tables.systemWrite((tx) => tx.insert('log_files', rowOf(file, now, now + PREPARED_MS)));
        await put(file.id, path);
      },
      async download(id, path) {
        const body = await blobs.get(tenant, blobOf(id));
        if (body === null) return false;
        const handle = await open(path, 'w', 0o600);
        try {
          await writeStream(handle, body, hasSpace);
        } finally {
          body.destroy();
          await handle.close();
        }
        return true;
      },
      lead,
      ...knownNode(tables, node, clock),
    },
  };
}

/** Removes files that have been in the list no more for their time, and their rows. Resolves when none is left. */
export async function removeReplaced(
  { tables, blobs, clock, tenant }: Pick<SharedCatalogOptions, 'tables' | 'blobs' | 'clock' | 'tenant'>,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const due = await tables.systemRead((tx) =>
      tx.list('log_files', {
        where: { remove_at: { gt: 0, lte: clock.now() } },
        orderBy: [['remove_at', 'asc']],
        limit: SOME,
      }),
    );
    for (const { id, remove_at } of due) {
      signal.throwIfAborted();
      await blobs.delete(tenant, blobOf(id));
      await tables.systemWrite((tx) => tx.remove('log_files', { id, remove_at }));
    }
    if (due.length < SOME) break;
  }
  const gone = clock.now() - NODE_MS;
  await tables.systemWrite((tx) => tx.remove('log_nodes', { seen_at: { lt: gone } }));
}

const blobOf = (id: string) => `${id}.parquet`;
