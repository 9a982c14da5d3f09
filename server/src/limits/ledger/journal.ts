/**
 * The way of a settled request into the store: one journal line each, applied in batches, each batch once. The journal and
 * its shipper are those of log records (`store/disk/`); this is what stands where their log store does.
 */
import type { Clock } from '../../kernel/clock.ts';
import type { JournalPosition, SystemTx, Tables } from '../../store/ports.ts';
import type { Row, TableName } from '../../store/schema.ts';
import { BucketTransaction, byId, type Settled } from './bucket-transaction.ts';
import { bucketQueue, keyOf } from './held-reservation.ts';
import type { LimitSpec } from './limit-spec.ts';

/** The part of a journal that settling needs (`store/disk/journal.ts`). */
export interface SettlementJournal {
  append(line: string, done: () => void): void;
  /** True while it cannot be written: nothing more may be admitted under a budget. */
  readonly failing: boolean;
  /** Ships at once. Resolves when everything appended before is in the store. */
  ship(): Promise<void>;
}

export interface SettlementLine extends Settled {
  readonly workspaceId: string;
  readonly bucket: string;
}

/** What a request used that was admitted while the store was away: its bucket may never have been opened. */
export interface ServedLine extends Pick<Settled, 'used' | 'carry' | 'requests' | 'unpriced'> {
  readonly organisationId: string;
  readonly workspaceId: string;
  /** Lines on disk have this name. */
  readonly terms: LimitSpec;
  /** When it was admitted, milliseconds since the epoch by the store's clock. */
  readonly at: number;
}

type SettledList = [string, string, number, string, ...number[]];

/** Ids need no escapes, so this is JSON at a fifth of the price of `JSON.stringify`. */
export function lineOf(line: SettlementLine): string {
  const { workspaceId, bucket, window, lease, reserved, used, carry, requests, unpriced, giveBack } = line;
  return `{"settled":["${workspaceId}","${bucket}",${window},"${lease}",${reserved},${used},${carry},${requests},${unpriced},${giveBack ? 1 : 0}]}`;
}

export function servedLineOf(line: ServedLine): string {
  return JSON.stringify(line);
}

function parseLine(text: string): SettlementLine | ServedLine {
  // Lines of earlier versions are the list alone.
  const parsed = JSON.parse(text) as SettledList | { readonly settled: SettledList } | ServedLine;
  const list = Array.isArray(parsed) ? parsed : 'settled' in parsed ? parsed.settled : null;
  if (list === null) return parsed as ServedLine;
  const [workspaceId, bucket, window, lease, reserved, used, carry, requests, unpriced, giveBack] = list;
  const whole = (value: number | undefined) => (Number.isSafeInteger(value) ? (value as number) : 0);
  return {
    workspaceId,
    bucket,
    window,
    lease,
    reserved: Math.max(0, whole(reserved)),
    used: Math.max(0, whole(used)),
    carry: whole(carry),
    requests: whole(requests),
    unpriced: whole(unpriced),
    giveBack: giveBack === 1,
  };
}

/** Turns taken for one batch; what is beyond them is left to the store. */
const MAX_QUEUES = 100;

/** Where a shipper brings settled usage. */
export interface SettlementSink {
  insert(journal: string, lines: Buffer, position: JournalPosition): Promise<void>;
  position(journal: string): Promise<JournalPosition | null>;
}

export function settlementSink(options: { readonly tables: Tables; readonly clock: Clock }): SettlementSink {
  const { tables, clock } = options;
  return {
    async position(journal) {
      const row = await tables.systemRead((tx) => tx.find('ledger_positions', { journal }));
      return row === undefined ? null : { segment: row.segment, offset: row.position };
    },
    async insert(journal, bytes, position) {
      const lines = bytes.toString('utf8').split('\n').filter(Boolean).map(parseLine);
      // Without their queues the requests that are waiting for a grant and this would undo each other.
      const queue = [...new Set(lines.map(({ workspaceId }) => bucketQueue(workspaceId)))].slice(0, MAX_QUEUES);
      await tables.systemWrite(
        async (tx) => {
          const stored = await tx.find('ledger_positions', { journal });
          if (stored !== undefined && !isBehind(stored, position)) return;
          await apply(tx, lines, clock);
          const at = { segment: position.segment, position: position.offset };
          if (stored === undefined) await tx.insert('ledger_positions', { journal, ...at });
          else await tx.update('ledger_positions', { journal }, at);
        },
        { queue },
      );
    },
  };
}

function isBehind(stored: { segment: string; position: number }, to: JournalPosition): boolean {
  return stored.segment < to.segment || (stored.segment === to.segment && stored.position < to.offset);
}

async function apply(tx: SystemTx, lines: readonly (SettlementLine | ServedLine)[], clock: Clock): Promise<void> {
  if (lines.length === 0) return;
  const now = await tx.now();
  const byBucket = new Map<string, (SettlementLine | ServedLine)[]>();
  const opened = new Map<string, string | null>();
  for (const line of lines) {
    const id = 'bucket' in line ? line.bucket : await bucketOf(tx, line, clock, opened);
    // A limit that was removed does not count any more.
    if (id === null) continue;
    const list = byBucket.get(id);
    if (list === undefined) byBucket.set(id, [line]);
    else list.push(line);
  }
  const rows = await byId(tx, 'usage_buckets', [...byBucket.keys()]);
  const leaseIds = lines.map((line) => ('lease' in line ? line.lease : '')).filter(Boolean);
  const leases = await byId(tx, 'reservations', [...new Set(leaseIds)]);
  // Always in the same order: two nodes that change the same buckets wait for each other instead of undoing each other.
  for (const id of [...byBucket.keys()].sort()) {
    const row = rows.get(id);
    if (row === undefined) continue;
    const transaction = BucketTransaction.of(row, clock, leases);
    transaction.turn(now);
    for (const line of byBucket.get(id) ?? []) {
      await transaction.settle(tx, 'bucket' in line ? line : settledOf(line, transaction.row));
    }
    if (transaction.full) await transaction.compact(tx);
    await transaction.close(tx, now);
  }
}

/** The bucket of a line that does not know it, opened as of when its request was admitted; null when its owner is gone. */
async function bucketOf(
  tx: SystemTx,
  { organisationId, workspaceId, terms: spec, at }: ServedLine,
  clock: Clock,
  opened: Map<string, string | null>,
): Promise<string | null> {
  const key = keyOf(workspaceId, spec);
  const known = opened.get(key);
  if (known !== undefined) return known;
  const owner = OWNERS[spec.ownerKind];
  const there =
    (await tx.find('workspaces', { id: workspaceId, organisation_id: organisationId })) !== undefined &&
    (owner === null || (await tx.find(owner, { id: spec.ownerId, organisation_id: organisationId })) !== undefined);
  let id: string | null = null;
  if (there) {
    const transaction = await BucketTransaction.open(tx, { organisationId, workspaceId }, spec, clock, at);
    await transaction.close(tx, await tx.now());
    id = transaction.id;
  }
  opened.set(key, id);
  return id;
}

const OWNERS = {
  key: 'api_keys',
  workspace: 'workspaces',
  provider: 'providers',
  'virtual-key': 'virtual_keys',
  integration: 'integrations',
  policy: 'usage_policies',
  token: null,
} as const satisfies Readonly<Record<LimitSpec['ownerKind'], TableName | null>>;

/** In the window that was open when it was admitted: this one, or one before. */
function settledOf({ at, used, carry, requests, unpriced }: ServedLine, bucket: Row<'usage_buckets'>): Settled {
  const window = at < (bucket.last_reset_at ?? 0) ? bucket.window_no - 1 : bucket.window_no;
  return { window, lease: '', reserved: 0, used, carry, requests, unpriced, giveBack: false };
}
