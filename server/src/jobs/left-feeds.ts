/**
 * What nodes that are away have left for log destinations, as far as it is in the files that all nodes read. One node at a time sends
 * in the place of each; what it has settled is in the store, so that the next one, or the node itself, begins there.
 */
import { systemTenant } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { pendingErasures } from '../resources/logs/erasures/pending.ts';
import type { StoredHandOver } from '../store/log-tables.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Vault } from '../store/vault.ts';
import { LOG_COLUMNS, recordOfRow } from '../telemetry/log-columns.ts';
import type { DestinationPlan, LeftRecords, PastPage } from '../telemetry/log-destination.ts';
import type { LogFilter, LogPlace, LogStore } from '../telemetry/log-query.ts';
import type { LogRecord } from '../telemetry/record.ts';
import { nodeOfRun } from '../telemetry/recorder.ts';

interface StoredParts {
  readonly tables: Tables;
  readonly vault: Pick<Vault, 'open'>;
  readonly records: Pick<LogStore, 'page'>;
  readonly days: { readonly logs: number };
  readonly clock: Clock;
}

interface PastRange {
  /** Milliseconds since the epoch: from the first, before the second. */
  readonly from: number;
  readonly to: number;
  readonly behind: PastPage['next'];
  readonly more?: readonly LogFilter[];
}

type FeedRow = Row<'log_destination_feeds'>;

/** What is claimed of one node. */
interface Claim {
  readonly node: string;
  readonly row: FeedRow;
  readonly handed: StoredHandOver;
  /** When it was last heard of. */
  readonly seenAt: number;
}

const DAY_MS = 86_400_000;
const PAST_ROWS = 500;
const MOST_RANGE_MS = 399 * DAY_MS;
const COLUMNS = LOG_COLUMNS.map(({ name }) => name);
/** A node that has said nothing for so long does not come back at once: a restart takes less. */
const AWAY_MS = 2 * 60_000;
/** The node that sends in its place says so again with each batch. */
const TAKEN_MS = 2 * 60_000;
/** Clocks differ, and a request is recorded a moment after its end. */
const SLACK_MS = 60_000;
/** The same for what others are sure to have seen. */
const SEEN_MS = 1_000;
/** Requests that took longer than this are looked for on their own, so that a short range has all others. */
const LONG_MS = 10 * 60_000;
const LONGEST_MS = DAY_MS;
/** Without a request that is to be sent; then what was looked at is noted. */
const MOST_PAGES = 20;
const NOTHING = { delivered: 0, failed: 0, lost: 0, waiting: 0, lag_ms: 0 } as const;

/** Records of a time that a destination wants, oldest first, of all nodes whose files are read here. */
export async function storedPage(
  { tables, vault, records: stored, days, clock }: StoredParts,
  { organisationId, workspaceId, where }: Pick<DestinationPlan, 'organisationId' | 'workspaceId' | 'where'>,
  { from: asked, to, behind, more = [] }: PastRange,
): Promise<PastPage & { readonly whole: boolean }> {
  const keptSince = days.logs === 0 ? 0 : clock.now() - days.logs * DAY_MS;
  const from = Math.max(asked, to - MOST_RANGE_MS, keptSince);
  if (from >= to) return { records: [], next: null, whole: true };
  const workspaceIds = workspaceId === null ? null : [workspaceId];
  const erased = await tables.read(systemTenant(organisationId), (tx) => pendingErasures(tx, vault));
  const page = await stored.page(
    { scope: { organisationId, workspaceIds, userId: null, keptSince, erased }, from, to, where: [...where, ...more] },
    { columns: COLUMNS, order: 'oldest', limit: PAST_ROWS, behind },
  );
  const records = page.rows.map((one) => recordOfRow(one) as unknown as LogRecord);
  return { records, next: page.next, whole: page.incomplete.every(({ node }) => node !== undefined) };
}

export class LeftFeeds {
  readonly #parts: StoredParts & { readonly nodeId: string; readonly shared: boolean };

  constructor(parts: StoredParts & { readonly nodeId: string; readonly shared: boolean }) {
    this.#parts = parts;
  }

  /** Claims what one node has left, or continues with it. Null: there is nothing. Rejects while files cannot be read. */
  async next(plan: DestinationPlan): Promise<LeftRecords | null> {
    const { tables, nodeId, shared } = this.#parts;
    if (!shared) return null;
    const claim = await tables.systemWrite((tx) => claimIn(tx, plan, nodeId));
    return claim === null ? null : this.#recordsOf(plan, claim);
  }

  /** Notes what was settled. Where the node is back, or another one was faster, nothing is noted. */
  async settled(id: string, { node, next }: Pick<LeftRecords, 'node' | 'next'>): Promise<void> {
    const { tables, nodeId } = this.#parts;
    await tables.systemWrite(async (tx) => {
      const place = { destination_id: id, node };
      const row = await tx.find('log_destination_feeds', place);
      if (row === undefined || row.taken_by !== nodeId || row.handed === null) return;
      const handed = next === null ? { ...row.handed, done: true } : { ...row.handed, ...next };
      const until = (await tx.now()) + TAKEN_MS;
      const over = next === null ? { waiting: 0, lag_ms: 0, error: null, backfilling: false } : {};
      await tx.update('log_destination_feeds', { ...place, taken_by: nodeId }, { handed, taken_until: until, ...over });
    });
  }

  async #recordsOf(plan: DestinationPlan, { node, row, handed, seenAt }: Claim): Promise<LeftRecords> {
    const since = sinceOf(row, plan.startAt);
    const runs = row.mark?.runs ?? {};
    const isLeft = (record: LogRecord): boolean => {
      const end = record.time + record.latency_ms;
      if (end < since) return false;
      const of = nodeOfRun(record.node);
      // A record of a deed names no node: it may be of any that was there then.
      if (of === null) return end < seenAt + SLACK_MS;
      return of === node && record.seq > (runs[record.node] ?? 0);
    };
    let behind: LogPlace | null =
      handed.time === null || handed.id === null ? null : { time: handed.time, id: handed.id };
    for (let pages = 0; pages < MOST_PAGES; pages++) {
      const page = await this.#page(plan, since, behind);
      const records = page.records.filter(isLeft);
      if (records.length > 0 || page.next === null) return { node, records, next: page.next };
      behind = page.next;
    }
    return { node, records: [], next: behind };
  }

  /** First long requests that began before the time, then all that began since about then. */
  async #page(plan: DestinationPlan, since: number, behind: LogPlace | null): Promise<PastPage> {
    const begin = since - LONG_MS;
    const read = async (range: PastRange) => {
      const page = await storedPage(this.#parts, plan, range);
      if (page.whole) return page;
      throw new SluiceError('unavailable', 'Log files cannot be read right now.');
    };
    if (behind === null || behind.time < begin) {
      const more = [{ column: 'latency_us', min: LONG_MS * 1_000 }];
      const long = await read({ from: Math.max(plan.startAt, since - LONGEST_MS), to: begin, behind, more });
      if (long.next !== null || long.records.length > 0) {
        return { records: long.records, next: long.next ?? { time: begin, id: '' } };
      }
    }
    const from = Math.max(plan.startAt, begin);
    const to = this.#parts.clock.now() + DAY_MS;
    return read({ from, to, behind: behind !== null && behind.time < from ? null : behind });
  }
}

/** Requests that ended before it were settled by their own node. */
function sinceOf(
  { mark, backfilling, waiting, last_updated_at: noted, lag_ms: lag }: FeedRow,
  startAt: number,
): number {
  if (mark !== null) return mark.since - SLACK_MS;
  // It had not sent what was stored before, or was of a version that noted no more than this.
  return backfilling ? startAt : noted - (waiting > 0 ? lag : 0) - SLACK_MS;
}

/** The node whose rest this one sends from now on. */
async function claimIn(tx: SystemTx, plan: DestinationPlan, nodeId: string): Promise<Claim | null> {
  const { id: destination_id, organisationId: organisation_id, startAt } = plan;
  // It was deleted meanwhile.
  if ((await tx.find('log_destinations', { id: destination_id })) === undefined) return null;
  const now = await tx.now();
  const rows = await tx.list('log_destination_feeds', { where: { destination_id } });
  const nodes = new Map((await tx.list('log_nodes', {})).map((one) => [one.node, one]));
  const claim = { taken_by: nodeId, taken_until: now + TAKEN_MS };
  const begin = (node: string): StoredHandOver => {
    return { time: null, id: null, before: (nodes.get(node)?.complete_to ?? now) - SEEN_MS, done: false };
  };
  for (const row of rows) {
    const { node, taken_by, taken_until } = row;
    const seenAt = Math.max(row.last_updated_at, nodes.get(node)?.seen_at ?? 0);
    if (node === nodeId || seenAt > now - AWAY_MS) continue;
    if (taken_by !== null && (row.handed?.done === true || (taken_by !== nodeId && (taken_until ?? 0) > now))) continue;
    // It was here since others sent in its place: they begin anew.
    const handed = taken_by === null ? begin(node) : (row.handed ?? begin(node));
    const same = { destination_id, node, taken_by, taken_until };
    if ((await tx.update('log_destination_feeds', same, { ...claim, handed })) === 1)
      return { node, row, handed, seenAt };
  }
  // Nodes that were gone before they could say anything of it.
  for (const { node, seen_at } of nodes.values()) {
    if (node === nodeId || seen_at > now - AWAY_MS || seen_at < startAt || rows.some((row) => row.node === node))
      continue;
    const handed = begin(node);
    const row = {
      ...{ organisation_id, destination_id, node, ...NOTHING, backfilling: true, delivered_at: null, error: null },
      ...{ last_updated_at: seen_at, mark: null, handed, ...claim },
    };
    await tx.insert('log_destination_feeds', row);
    return { node, row, handed, seenAt: seen_at };
  }
  return null;
}
