/**
 * A part of `npm run test:logs`: a node that writes records and keeps them is killed with SIGKILL, its keeper is killed, its disk
 * is filled and its control store is away, each at random, many times. In the end what was acknowledged is what the keeper
 * answers: each record once, none is missing between two others of a run, and files, list and hourly sums agree.
 */
import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { LogKeeper } from '../../src/keeper/keeper-launcher.ts';
import { storedCatalog } from '../../src/keeper/stored-catalog.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import type { LogPlace } from '../../src/telemetry/log-query.ts';
import type { LogNodeSays, LogNodeSettings } from '../support/children/log-node.ts';
import { NO_BODIES, recent } from '../support/log-keeper.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { TcpProxy } from '../support/proxy.ts';
import { until, type Watchdog } from '../support/watchdog.ts';
import { Filler, mounted } from './full-disk.ts';

const NODE = fileURLToPath(new URL('../support/children/log-node.ts', import.meta.url));
const FAULTS = ['node', 'node', 'keeper', 'keeper', 'disk full', 'store away'] as const;
/** Longer than anything takes here on a slow machine. */
const LIMIT_MS = 120_000;
const FEW = 60;
const PAGE = 10_000;

export interface KillsOptions {
  readonly store: 'sqlite' | 'postgres';
  readonly rounds: number;
  /** From 0 before 1, the same for each seed. */
  readonly next: () => number;
  readonly watch: Watchdog;
}

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** The control store of the nodes, and what takes it away for a time. */
async function storeOf(store: KillsOptions['store'], dir: string) {
  if (store === 'sqlite') {
    const file = join(dir, 'control.db');
    return {
      databaseUrl: null,
      open: () => openSqliteTables({ file, log: silentLog }),
      async away(ms: number) {
        const holder = new DatabaseSync(file, { timeout: LIMIT_MS });
        holder.exec('BEGIN IMMEDIATE');
        await sleep(ms);
        holder.exec('ROLLBACK');
        holder.close();
      },
      close: async () => undefined,
    };
  }
  const server = await startPostgres();
  const direct = new URL(await server.database());
  const proxy = await TcpProxy.start(Number(direct.port));
  const through = new URL(direct);
  through.port = String(proxy.port);
  return {
    databaseUrl: through.href,
    open: () => openPostgresTables({ url: direct.href, log: silentLog }),
    async away(ms: number) {
      await proxy.down();
      await sleep(ms);
      await proxy.up();
    },
    async close() {
      await proxy.close();
      await server.stop();
    },
  };
}

/** True when all held. Without the right to mount a file system no disk is filled, which it says. */
export async function kills({ store, rounds, next, watch }: KillsOptions): Promise<boolean> {
  const began = performance.now();
  watch.phase(`${store}: start`, LIMIT_MS);
  const disk = mkdtempSync(join(tmpdir(), 'sluice-log-kills-'));
  const cannotFill = mounted(disk);
  if (cannotFill !== null) process.stdout.write(`logs: no disk is filled, ${cannotFill}\n`);
  const control = mkdtempSync(join(tmpdir(), 'sluice-log-kills-control-'));
  const from = await storeOf(store, control);
  const tables = await from.open();
  await tables.migrate();
  // The store has a disk for itself: what is full is the disk of journals and files.
  const settings = { dir: disk, databaseUrl: from.databaseUrl, control };

  const acknowledged = new Map<string, number>();
  let gaps = 0;
  let running: { readonly child: ChildProcess; says: LogNodeSays | null } | null = null;
  const start = (node: string) => {
    const child = fork(NODE, [JSON.stringify({ ...settings, node } satisfies LogNodeSettings)], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const made: NonNullable<typeof running> = { child, says: null };
    child.on('message', (says: LogNodeSays) => {
      made.says = says;
      acknowledged.set(says.node, says.upTo);
      gaps = Math.max(gaps, says.gaps);
    });
    running = made;
    return made;
  };
  const progress = async (of: { says: LogNodeSays | null }, few = FEW) => {
    const before = of.says?.upTo ?? 0;
    await until(LIMIT_MS, `${few} more records`, () => (of.says?.upTo ?? 0) >= before + few, 5);
  };
  const killKeeper = async (of: { says: LogNodeSays | null }) => {
    await until(LIMIT_MS, 'a keeper', () => of.says?.keeper != null, 5);
    try {
      process.kill(of.says?.keeper ?? 0, 'SIGKILL');
    } catch {
      // It had ended by itself meanwhile.
    }
  };
  const killNode = async (child: ChildProcess) => {
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  };

  const counts = new Map<string, number>();
  let node = start('run-0');
  for (let round = 0; round < rounds; round++) {
    const fault = FAULTS[Math.floor(next() * FAULTS.length)] ?? 'node';
    counts.set(fault, (counts.get(fault) ?? 0) + 1);
    watch.phase(`${store}: round ${round + 1}, ${fault}`, LIMIT_MS);
    await progress(node);
    // The moment is the point of it: within a start, a read, a flush, a commit or a merge.
    await sleep(next() * 800);
    if (fault === 'node') {
      await killNode(node.child);
      node = start(`run-${round + 1}`);
    } else if (fault === 'keeper') await killKeeper(node);
    else if (fault === 'store away') {
      const back = from.away(200 + next() * 600);
      if (next() < 0.5) await killKeeper(node);
      await back;
    } else if (cannotFill === null) {
      const filler = new Filler(disk);
      await sleep(200 + next() * 600);
      if (next() < 0.5) await killKeeper(node);
      await sleep(100);
      filler.free();
    }
  }
  await progress(node);
  await killNode(node.child);

  watch.phase(`${store}: what is kept`, LIMIT_MS);
  const keeper = new LogKeeper({
    node: 'node',
    dir: join(disk, 'logs'),
    spool: join(disk, 'spool'),
    workers: 1,
    memoryMb: 256,
    threads: 2,
    catalog: storedCatalog(tables, 'node', systemClock),
    bodies: NO_BODIES,
    forgetFeedback: async () => 0,
    clock: systemClock,
    log: silentLog,
  });
  await keeper.flush();
  const kept = new Map<string, Map<number, number>>();
  let records = 0;
  for (let behind: LogPlace | null = null; ; ) {
    const page = await keeper.page(recent(), { columns: ['node', 'seq'], order: 'newest', limit: PAGE, behind });
    for (const row of page.rows) {
      const of = kept.get(String(row.node)) ?? new Map<number, number>();
      kept.set(String(row.node), of.set(Number(row.seq), (of.get(Number(row.seq)) ?? 0) + 1));
      records++;
    }
    watch.progress();
    behind = page.next;
    if (behind === null) break;
  }
  const files = await tables.systemRead((tx) => tx.list('log_files', {}));
  const hours = await tables.systemRead((tx) => tx.list('log_hours', {}));
  const onDisk = readdirSync(join(disk, 'logs')).filter((name) => name.endsWith('.parquet'));
  await keeper.close();
  await tables.close();
  await from.close();
  if (cannotFill === null) execFileSync('umount', ['--lazy', disk]);
  for (const dir of [disk, control]) rmSync(dir, { recursive: true, force: true });

  const sum = (numbers: readonly number[]) => numbers.reduce((one, other) => one + other, 0);
  let missed = 0;
  const line = (id: string, value: number, n: number) => {
    if (value !== 0) missed++;
    const told = { id, value, goal: 0, pass: value === 0, n, store, rounds };
    process.stdout.write(`${JSON.stringify(told)}\n`);
  };
  const lost = [...acknowledged].map(([name, upTo]) => {
    const of = kept.get(name);
    return Array.from({ length: upTo }, (_, i) => of?.has(i + 1)).filter((has) => has !== true).length;
  });
  line('acknowledged records that are not kept', sum(lost), sum([...acknowledged.values()]));
  line(
    'records that are kept twice',
    sum([...kept.values()].map((of) => [...of.values()].filter((n) => n > 1).length)),
    records,
  );
  line(
    'records missing between others of their run',
    sum([...kept.values()].map((of) => Math.max(...of.keys()) - of.size)),
    kept.size,
  );
  line('records that a keeper said are missing', gaps, records);
  line('records that the list of files has not', records - sum(files.map((file) => file.records)), files.length);
  line('records that the hourly sums have not', records - sum(hours.map(({ requests }) => requests)), hours.length);
  const listed = files.map(({ id }) => `${id}.parquet`).sort();
  line(
    'files that are not in the list, or the other way round',
    JSON.stringify(listed) === JSON.stringify(onDisk.sort()) ? 0 : 1,
    listed.length,
  );
  const seconds = Math.round((performance.now() - began) / 1_000);
  process.stdout.write(`${JSON.stringify({ store, rounds, ...Object.fromEntries(counts), records, seconds })}\n`);
  return missed === 0;
}
