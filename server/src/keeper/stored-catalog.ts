/** The list of files in the control store. */
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Clock } from '../kernel/clock.ts';
import { writeStream } from '../store/disk/files.ts';
import type { Blobs, SystemTx, Tables, TenantContext } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { LogCatalog, LogCatalogChange, LogFile, LogHour, LogPosition, SharedLogFiles } from './catalog.ts';

/** Of the columns that files are written with today. */
const VERSION = 1;
/** A file that is in the list no more stays for nodes that are about to read it. */
const REPLACED_MS = 10 * 60_000;
/** A file that was to come into the list, and did not. */
const PREPARED_MS = 60 * 60_000;
/** A transaction may be written later than its time says. */
const OVERLAP_MS = 60_000;
/** Changes from before are read as a whole list: rows of files that went are gone by then. */
const NEWS_MS = REPLACED_MS / 2;
const SOME = 500;

/** Files on the disk of one node, which only that node reads. */
export function storedCatalog(tables: Tables, node: string, clock: Clock): LogCatalog {
  return {
    load: () =>
      tables.systemRead(async (tx) => {
        const files = await tx.list('log_files', { where: { node, place: 'disk', remove_at: 0 } });
        return { files: files.map(fileOf), positions: await positionsIn(tx) };
      }),
    commit: (change) => {
      const remove = (tx: SystemTx, id: string) => tx.remove('log_files', { id, node });
      return tables.systemWrite((tx) => commit(tx, change, clock.now(), remove), { queue: 'log files' });
    },
  };
}

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

/** Files of all nodes. */
export function sharedCatalog(options: SharedCatalogOptions): LogCatalog & { readonly shared: SharedLogFiles } {
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
      return tables.systemWrite((tx) => commit(tx, change, now, remove), { queue: 'log files' });
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
      async fetch(id, path) {
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
      async announce(completeTo) {
        const seen = { seen_at: clock.now() };
        const patch = completeTo === null ? seen : { ...seen, complete_to: completeTo };
        await tables.systemWrite(async (tx) => {
          if ((await tx.update('log_nodes', { node }, patch)) > 0) return;
          await tx.insert('log_nodes', { node, complete_to: completeTo ?? seen.seen_at, ...seen });
        });
      },
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
    if (due.length < SOME) return;
  }
}

const blobOf = (id: string) => `${id}.parquet`;

function fileOf(row: Row<'log_files'>): LogFile {
  const { id, node, day, level, min_time, max_time, records, bytes, status, place } = row;
  const damaged = status === 'damaged';
  return { id, node, day, level, minTime: min_time, maxTime: max_time, records, bytes, damaged, place };
}

function rowOf(file: LogFile, now: number, removeAt: number): Row<'log_files'> {
  const { id, node, day, level, minTime, maxTime, records, bytes, damaged, place } = file;
  return {
    id,
    node,
    day,
    level,
    min_time: minTime,
    max_time: maxTime,
    records,
    bytes,
    version: VERSION,
    status: damaged ? 'damaged' : 'live',
    created_at: now,
    place,
    remove_at: removeAt,
    changed_at: now,
  };
}

async function positionsIn(tx: SystemTx): Promise<LogPosition[]> {
  const positions = await tx.list('log_positions', {});
  return positions.map(({ journal, segment, position }) => ({ journal, segment, offset: position }));
}

type Remove = (tx: SystemTx, id: string) => Promise<number>;

async function commit(tx: SystemTx, change: LogCatalogChange, now: number, remove: Remove): Promise<void> {
  for (const { from, to } of change.moved) await move(tx, from, to);
  for (const file of change.add) {
    if (file.place === 'disk') await tx.insert('log_files', rowOf(file, now, 0));
    else if ((await tx.update('log_files', { id: file.id }, rowOf(file, now, 0))) !== 1) {
      throw new Error(`log file ${file.id} took too long: its bytes are removed`);
    }
  }
  for (const id of change.damaged) await tx.update('log_files', { id }, { status: 'damaged', changed_at: now });
  for (const id of change.remove) {
    if ((await remove(tx, id)) !== 1) throw new Error(`log file ${id} is not in the list any more`);
  }
  for (const hour of change.hours) await add(tx, hour);
}

async function move(tx: SystemTx, from: LogPosition | null, to: LogPosition): Promise<void> {
  const { journal, segment, offset } = to;
  const stored = await tx.find('log_positions', { journal });
  if (stored?.segment !== from?.segment || stored?.position !== from?.offset) {
    throw new Error(`journal ${journal} has been read further by somebody else`);
  }
  if (stored === undefined) await tx.insert('log_positions', { journal, segment, position: offset });
  else await tx.update('log_positions', { journal }, { segment, position: offset });
}

async function add(tx: SystemTx, sums: LogHour): Promise<void> {
  const { organisation_id, workspace_id, hour, source } = sums;
  const key = { organisation_id, workspace_id, hour, source };
  const stored = await tx.find('log_hours', key);
  if (stored === undefined) return tx.insert('log_hours', { ...sums });
  await tx.update('log_hours', key, {
    requests: stored.requests + sums.requests,
    errors: stored.errors + sums.errors,
    refused: stored.refused + sums.refused,
    unpriced: stored.unpriced + sums.unpriced,
    cost_micros: stored.cost_micros + sums.cost_micros,
    saved_micros: stored.saved_micros + sums.saved_micros,
    tokens_in: stored.tokens_in + sums.tokens_in,
    tokens_out: stored.tokens_out + sums.tokens_out,
    latency_sum_us: stored.latency_sum_us + sums.latency_sum_us,
  });
}
