/** One node of the ledger as `compose/` makes it: its own journal on disk, its own leases, books that others share. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { systemTenant } from '../../src/auth/tenant.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { rebuilt } from '../../src/limits/ledger/bucket-transaction.ts';
import { settlementSink } from '../../src/limits/ledger/journal.ts';
import { type ActualUse, createLedger, type Ledger, type LimitCharge } from '../../src/limits/ledger/ledger.ts';
import type { LimitSpec } from '../../src/limits/ledger/limit-spec.ts';
import { organisationRow, workspaceRow } from '../../src/store/conformance/rows.ts';
import { openJournal } from '../../src/store/disk/journal.ts';
import { startShipper } from '../../src/store/disk/shipper.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import type { Row } from '../../src/store/schema.ts';
import { migratedDatabase } from './postgres.ts';
import { temporaryTables } from './tables.ts';

/** `npm run test:ledger` runs what takes long in full. */
export const LONG = process.env.SLUICE_LONG_TESTS === '1';

export const ORGANISATION = 'org-1';
export const WORKSPACE = 'ws-1';
const tenant = systemTenant(ORGANISATION, WORKSPACE);

export const NOTHING: ActualUse = { cost: 0, carry: 0, tokens: 0, requests: 0, unpriced: 0 };

export function limitSpecWith(more: Partial<LimitSpec> = {}): LimitSpec {
  return {
    ownerKind: 'policy',
    ownerId: 'policy-1',
    bucketKey: 'all',
    valueKey: 'all',
    label: 'team budget',
    type: 'requests',
    limit: 1000,
    alert: null,
    period: null,
    resetsAt: null,
    unpriced: null,
    onOutage: 'refuse',
    at: 1,
    ...more,
  };
}

/** A store whose own clock is `clock`. */
export function timed(tables: Tables, clock: Clock): Tables {
  const now = async () => clock.now();
  return Object.assign(Object.create(tables) as Tables, {
    now,
    close: () => tables.close(),
    lastChange: () => tables.lastChange(),
    changesAfter: ((seq, limit) => tables.changesAfter(seq, limit)) satisfies Tables['changesAfter'],
    read: ((tenant, run) => tables.read(tenant, (tx) => run({ ...tx, now }))) satisfies Tables['read'],
    write: ((tenant, run, options) =>
      tables.write(tenant, (tx) => run({ ...tx, now }), options)) satisfies Tables['write'],
    systemRead: ((run) => tables.systemRead((tx) => run({ ...tx, now }))) satisfies Tables['systemRead'],
    systemWrite: ((run, options) =>
      tables.systemWrite((tx) => run({ ...tx, now }), options)) satisfies Tables['systemWrite'],
  });
}

/** An empty store with one workspace. */
export async function booksStore(engine: 'sqlite' | 'postgres', clock?: Clock): Promise<Tables> {
  const tables = await emptyStore(engine);
  return clock === undefined ? tables : timed(tables, clock);
}

async function emptyStore(engine: 'sqlite' | 'postgres'): Promise<Tables> {
  const tables =
    engine === 'sqlite'
      ? await temporaryTables()
      : await openPostgresTables({ url: await migratedDatabase(), log: silentLog });
  if (engine === 'postgres') await tables.migrate();
  await tables.systemWrite(async (tx) => {
    await tx.insert('organisations', organisationRow(ORGANISATION));
    await tx.insert('workspaces', workspaceRow(ORGANISATION, WORKSPACE));
  });
  return tables;
}

/** Makes the books of a store empty again: cheaper than another store. */
export async function emptyBooks(tables: Tables): Promise<void> {
  await tables.systemWrite(async (tx) => {
    for (const table of ['usage_alerts', 'ledger_entries', 'reservations', 'usage_buckets'] as const) {
      await tx.remove(table, {});
    }
  });
}

export interface LedgerNode {
  readonly ledger: Ledger;
  readonly dir: string;
  /** Reserves, and settles when told; throws what refuses. */
  reserve(demands: readonly LimitCharge[]): Promise<(used: ActualUse) => Promise<void>>;
  /** Everything settled before is in the books. */
  drain(): Promise<void>;
  close(): Promise<void>;
  /** As killed: nothing is given back, what is in the journal stays there. */
  kill(): Promise<void>;
}

export async function ledgerNode(
  tables: Tables,
  options: {
    readonly name?: string;
    readonly clock?: Clock;
    readonly dir?: string;
    readonly leaseMs?: number;
    readonly everyMs?: number;
    /** Longer than in the product where a slow machine is not what is tested. */
    readonly othersMs?: number;
  } = {},
): Promise<LedgerNode> {
  const clock = options.clock ?? systemClock;
  const dir = options.dir ?? mkdtempSync(path.join(tmpdir(), 'sluice-ledger-'));
  const journal = await openJournal({ dir, clock: systemClock, log: silentLog });
  const shipper = startShipper({
    dir,
    journal,
    sink: settlementSink({ tables, clock }),
    clock: systemClock,
    log: silentLog,
    everyMs: options.everyMs ?? 5,
  });
  const ledger = createLedger({
    tables,
    journal: async () => ({
      append: (line, done) => journal.append(line, done),
      get failing() {
        return journal.failing;
      },
      ship: () => shipper.drain(),
    }),
    clock,
    log: silentLog,
    node: options.name ?? 'node',
    // A clock that moves by hand does not end a pause by itself.
    ...(options.clock === undefined ? {} : { othersMs: 0 }),
    ...(options.othersMs === undefined ? {} : { othersMs: options.othersMs }),
    ...(options.leaseMs === undefined ? {} : { leaseMs: options.leaseMs }),
  });
  const end = async () => {
    await shipper.close();
    await journal.close();
  };
  return {
    ledger,
    dir,
    async reserve(demands) {
      const hold = await ledger.reserve(tenant, WORKSPACE, demands);
      return (used) => new Promise((resolve) => hold.settle(used, resolve));
    },
    drain: () => shipper.drain(),
    async close() {
      await shipper.drain();
      await ledger.close();
      await end();
      rmSync(dir, { recursive: true, force: true });
    },
    kill: end,
  };
}

export function buckets(tables: Tables): Promise<Row<'usage_buckets'>[]> {
  return tables.systemRead((tx) => tx.list('usage_buckets'));
}

/** What each bucket holds beside what its ledger entries say, and what its leases hold. */
export function audited(tables: Tables) {
  return tables.systemRead(async (tx) => {
    const out = [];
    for (const row of await tx.list('usage_buckets')) {
      const leases = await tx.list('reservations', { where: { bucket_id: row.id } });
      const { used, carry, reserved } = row;
      out.push({
        counters: { used, carry, reserved },
        entries: await rebuilt(tx, row),
        leased: leases.reduce((sum, lease) => sum + lease.amount, 0),
      });
    }
    return out;
  });
}
