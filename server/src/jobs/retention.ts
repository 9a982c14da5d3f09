/** What the store forgets, in small steps, one node for all: changes that every node has read, counters nobody needs. */

import type { Log } from '../kernel/log.ts';
import { bucketQueue } from '../limits/ledger/held-reservation.ts';
import { forgetAudit } from '../resources/audit-logs/retention.ts';
import type { Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Macs } from '../store/vault.ts';

/** Rows of one transaction: others write between two of them. */
const PAGE = 500;
/** Twice as long as a node may be away before it takes everything anew (`runtime/watch.ts`). */
const KEEP_CHANGES_MS = 24 * 3_600_000;
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const HOUR_DAYS = 400;
const KEEP_COUNTERS_MS = 7 * DAY_MS;

export interface RetentionOptions {
  readonly tables: Tables;
  readonly signal?: AbortSignal;
}

export interface OldOptions {
  readonly tables: Tables;
  /** Proves audit rows before they go, and signs where the log begins after. */
  readonly macs: Macs;
  readonly log: Log;
  /** Days that each is kept; 0: for ever. */
  readonly logDays: number;
  readonly auditDays: number;
  readonly signal?: AbortSignal;
}

/** Removes feedback, sums of hours and audit rows that are older than the settings keep them. Each node removes its own log files. */
export async function forgetOld(options: OldOptions): Promise<void> {
  const { tables, log, logDays, auditDays, signal } = options;
  const now = await tables.now();
  if (logDays > 0) {
    await forgetHours(tables, now - Math.max(logDays, HOUR_DAYS) * DAY_MS, signal);
    await forgetFeedback(tables, now - logDays * DAY_MS, signal);
  }
  if (auditDays === 0) return;
  for (let after = ''; signal?.aborted !== true; ) {
    const page = await tables.systemRead((tx) =>
      tx.list('organisations', { where: { id: { gt: after } }, orderBy: [['id', 'asc']], limit: PAGE }),
    );
    for (const { id } of page) {
      const { finding } = await forgetAudit(tables, options.macs, id, now - auditDays * DAY_MS, signal);
      if (finding === null) continue;
      log.error('an audit log is not what was written, and its old rows stay: run `sluice audit verify`', {
        organisation_id: id,
        finding: finding.kind,
      });
    }
    if (page.length < PAGE) return;
    after = page.at(-1)?.id ?? after;
  }
}

/** Sums of hours stay longer than records: they name no caller, and a year is compared with the one before. */
async function forgetHours(tables: Tables, before: number, signal: AbortSignal | undefined): Promise<void> {
  const hour = Math.floor(before / HOUR_MS);
  for (let removed = PAGE; removed === PAGE && signal?.aborted !== true; ) {
    removed = await tables.systemWrite(async (tx) => {
      const oldest = await tx.list('log_hours', {
        where: { hour: { lt: hour } },
        orderBy: [['hour', 'asc']],
        limit: PAGE,
      });
      for (const { organisation_id, workspace_id, hour, source } of oldest) {
        await tx.remove('log_hours', { organisation_id, workspace_id, hour, source });
      }
      return oldest.length;
    });
  }
}

/** Feedback is kept as long as the records of requests. */
async function forgetFeedback(tables: Tables, before: number, signal: AbortSignal | undefined): Promise<void> {
  for (let removed = PAGE; removed === PAGE && signal?.aborted !== true; ) {
    removed = await tables.systemWrite(async (tx) => {
      const oldest = await tx.list('feedback', {
        where: { created_at: { lt: before } },
        orderBy: [['created_at', 'asc']],
        limit: PAGE,
      });
      return oldest.length === 0 ? 0 : tx.remove('feedback', { id: { in: oldest.map(({ id }) => id) } });
    });
  }
}

export async function forget(options: RetentionOptions): Promise<void> {
  await forgetChanges(options);
  await forgetUnused(options);
  await forgetArchived(options);
}

/** Removes what the change feed told a day ago. The newest change stays: nodes begin behind it. */
async function forgetChanges({ tables, signal }: RetentionOptions): Promise<void> {
  const newest = await tables.lastChange();
  while (signal?.aborted !== true) {
    const removed = await tables.systemWrite(async (tx) => {
      const before = (await tx.now()) - KEEP_CHANGES_MS;
      const oldest = await tx.list('changes', {
        where: { seq: { lt: newest } },
        orderBy: [['seq', 'asc']],
        limit: PAGE,
      });
      const fresh = oldest.findIndex((row) => row.at >= before);
      const last = oldest.at(fresh < 0 ? -1 : fresh - 1);
      if (last === undefined || fresh === 0) return 0;
      return tx.remove('changes', { seq: { lte: last.seq } });
    });
    if (removed < PAGE) return;
  }
}

type Bucket = Row<'usage_buckets'>;

const isIdle = ({ reserved, last_updated_at }: Bucket, now: number) =>
  reserved === 0 && last_updated_at < now - KEEP_COUNTERS_MS;

/**
 * Removes counters of policies without a period that never counted anything: the next request of their value makes the
 * same again. One that counted is what its limit goes by for ever, and stays.
 */
async function forgetUnused(options: RetentionOptions): Promise<void> {
  const { tables } = options;
  await inPages(
    options,
    (now, after) =>
      tables.systemRead((tx) =>
        tx.list('usage_buckets', {
          where: { period: null, used: 0, last_updated_at: { gt: after, lt: now - KEEP_COUNTERS_MS } },
          orderBy: [['last_updated_at', 'asc']],
          limit: PAGE,
        }),
      ),
    (row, now) => row.owner_kind === 'policy' && row.used === 0 && row.period === null && isIdle(row, now),
    (row) => row.last_updated_at,
  );
}

/** Removes the counters of policies that were archived a week ago: no request asks for them any more. */
async function forgetArchived(options: RetentionOptions): Promise<void> {
  const { tables, signal } = options;
  for (let after = ''; signal?.aborted !== true; ) {
    const policies = await tables.systemRead((tx) =>
      tx.list('usage_policies', {
        where: { status: 'archived', id: { gt: after } },
        orderBy: [['id', 'asc']],
        limit: PAGE,
      }),
    );
    for (const { id, organisation_id, workspace_id, last_updated_at } of policies) {
      const owner = { organisation_id, owner_kind: 'policy', owner_id: id, workspace_id } as const;
      if (last_updated_at >= (await tables.now()) - KEEP_COUNTERS_MS) continue;
      await inPages(
        options,
        (_now, created) =>
          tables.systemRead((tx) =>
            tx.list('usage_buckets', {
              where: { ...owner, created_at: { gt: created } },
              orderBy: [['created_at', 'asc']],
              limit: PAGE,
            }),
          ),
        isIdle,
        (row) => row.created_at,
      );
    }
    if (policies.length < PAGE) return;
    after = policies.at(-1)?.id ?? after;
  }
}

/** Removes what `read` finds behind a place in its order and `may` lets go of, a page after the other. */
async function inPages(
  { tables, signal }: RetentionOptions,
  read: (now: number, after: number) => Promise<Bucket[]>,
  may: (row: Bucket, now: number) => boolean,
  placeOf: (row: Bucket) => number,
): Promise<void> {
  for (let after = -1; signal?.aborted !== true; ) {
    const rows = await read(await tables.now(), after);
    for (const [workspaceId, group] of Map.groupBy(rows, (row) => row.workspace_id)) {
      const ids = group.map(({ id }) => id);
      await tables.systemWrite(
        async (tx) => {
          const now = await tx.now();
          const found = await tx.list('usage_buckets', { where: { id: { in: ids } } });
          const gone = found.filter((row) => may(row, now)).map(({ id }) => id);
          if (gone.length > 0) await tx.remove('usage_buckets', { id: { in: gone } });
        },
        { queue: bucketQueue(workspaceId) },
      );
    }
    const last = rows.at(-1);
    if (last === undefined || rows.length < PAGE) return;
    after = placeOf(last);
  }
}
