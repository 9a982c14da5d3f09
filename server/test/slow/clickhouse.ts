/**
 * `npm run test:clickhouse -- --python <venv>/bin/python`: the log store on ClickHouse's own engine, compared with a plain pass
 * over the same records, for `--questions` sets of questions; after `--kills` of the keeper each record is there once. It ends with
 * times over `--records`. README.md beside `clickhouse/engine.py` says how to install the engine.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import fc from 'fast-check';
import { remoteReading } from '../../src/keeper/clickhouse/remote-logs.ts';
import { ClickHouse } from '../../src/keeper/clickhouse/store.ts';
import { TABLE } from '../../src/keeper/clickhouse/table.ts';
import { openEngine } from '../../src/keeper/engine.ts';
import { KeeperExporter } from '../../src/keeper/exporter.ts';
import { LogQueries } from '../../src/keeper/queries.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { LOG_COLUMNS, rowOf } from '../../src/telemetry/log-columns.ts';
import { EXPORT_FIELD_IDS } from '../../src/telemetry/log-export.ts';
import type { LogGroupQuery, LogPlace, LogSelection } from '../../src/telemetry/log-query.ts';
import { hasEngine, startEngine } from '../support/clickhouse-engine.ts';
import { sendRecords } from '../support/clickhouse-rows.ts';
import { ENGINE } from '../support/compared-log-store.ts';
import { sameAnswer } from '../support/log-answers.ts';
import { recent, recordOfNow, startKeeper } from '../support/log-keeper.ts';
import { groupings, pages, records, selections } from '../support/log-questions.ts';
import { logRecord } from '../support/log-record.ts';
import { NaiveLogStore } from '../support/naive-log-store.ts';
import { watchdog } from '../support/watchdog.ts';

const { values } = parseArgs({
  options: {
    python: { type: 'string', default: 'python3' },
    questions: { type: 'string', default: '20' },
    kills: { type: 'string', default: '20' },
    records: { type: 'string', default: '100000' },
  },
});
if (!hasEngine(values.python)) {
  process.stdout.write(
    `skipped: ${values.python} has no chdb. server/test/slow/clickhouse/README.md says how to install it.\n`,
  );
  process.exit(0);
}
const DAY_MS = 86_400_000;
const watch = watchdog('clickhouse');
const print = (what: string, value: string | number) => process.stdout.write(`${what.padEnd(60)} ${value}\n`);
const dir = await mkdtemp(join(tmpdir(), 'sluice-clickhouse-'));
const engine = await openEngine({ memory: '256MB', threads: 2, temporary: dir });
const data = join(dir, 'engine');
let server = await startEngine(values.python, { directory: data });
const port = Number(server.address.host.split(':')[1]);
const store = new ClickHouse(server.address, { ...silentLog, warn: (line) => print('warned', line) });
const between = { engine, store, dir };

async function empty(): Promise<void> {
  await store.connect().run(`TRUNCATE TABLE ${TABLE}`);
}

const coverage = { completeTo: 5, incomplete: [] };
const queries = new LogQueries({
  ...remoteReading({ store, settle: async () => coverage, log: silentLog }),
  clock: systemClock,
});

let asked = 0;
await fc.assert(
  fc.asyncProperty(
    records(60),
    fc.array(fc.tuple(selections, pages, groupings), { minLength: 5, maxLength: 10 }),
    async (all, questions) => {
      await empty();
      await sendRecords(between, all);
      const naive = new NaiveLogStore(all.map(rowOf), coverage);
      for (const [selection, page, grouping] of questions) {
        await sameAnswer(queries, naive, (each) => each.page(selection, page), { selection, page });
        await sameAnswer(queries, naive, (each) => each.groups(selection, grouping), { selection, grouping });
        await sameAnswer(queries, naive, (each) => each.count(selection, 9), selection);
        const id = all[0]?.id ?? 'none';
        await sameAnswer(queries, naive, (each) => each.find(selection.scope, id), id);
        asked += 4;
      }
      watch.progress();
    },
  ),
  { numRuns: Number(values.questions), endOnFailure: true },
);
print('random questions with the answers of a plain pass', asked);

/** A server's keeper that is killed again and again, and a ClickHouse that comes and goes, while records are written. */
async function killed(): Promise<void> {
  await empty();
  const under = await startKeeper({ store: server.address, tickMs: 20, flushMs: 100 });
  const written: string[] = [];
  for (let round = 0; round < Number(values.kills); round++) {
    const some = Array.from({ length: 50 }, (_, i) => recordOfNow(round * 50 + i + 1));
    await under.write(...some);
    written.push(...some.map(({ id }) => String(id)));
    under.keeper.wake();
    if (round % 3 !== 2) await under.keeper.count(recent(), 1).catch(() => 0);
    await new Promise((resolve) => setTimeout(resolve, (round * 37) % 300));
    await under.kill();
    if (round % 5 === 4) {
      await server.stop();
      server = await startEngine(values.python, { directory: data, port });
    }
    watch.progress();
  }
  while ((await under.keeper.count(recent(), written.length).catch(() => 0)) < written.length) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const found = await store.connect().runAndReadAll(`SELECT "id" FROM ${TABLE}`);
  const ids = found.getRowObjectsJS().map(({ id }) => String(id));
  assert.deepEqual(ids.sort(), written.sort());
  print(`records after ${values.kills} kills of the keeper, each once`, ids.length);
  await under.close();
}

/** The same part of an export from ClickHouse and from files. */
async function exported(): Promise<void> {
  await empty();
  const some = Array.from({ length: 500 }, (_, i) => recordOfNow(i + 1, { metadata: { team: `team ${i % 7}` } }));
  const digests: string[] = [];
  for (const more of [{}, { store: server.address }]) {
    const under = await startKeeper(more);
    await under.write(...some);
    const exporter = new KeeperExporter(under.keeper, join(under.dir, 'logs'), systemClock);
    for (const format of ['jsonl', 'csv'] as const) {
      let behind: LogPlace | null = null;
      for (let part = 0; part < 3; part++) {
        const plan = {
          format,
          fields: EXPORT_FIELD_IDS,
          origin: 'http://o',
          bom: false,
          behind,
          skip: 0,
          limit: 200,
          bodies: null,
        };
        const written = await exporter.part({ ...recent(), where: [] }, plan);
        digests.push(`${format} ${part} ${written.rows} ${written.sha256}`);
        behind = written.next;
        await written.remove();
      }
    }
    await under.close();
  }
  assert.deepEqual(digests.slice(6), digests.slice(0, 6));
  print('parts of exports with the bytes of those from files', 6);
}

/** Milliseconds, the median of five. */
async function median(run: () => Promise<unknown>): Promise<string> {
  const times: number[] = [];
  for (let i = 0; i < 5; i++) {
    const from = performance.now();
    await run();
    times.push(performance.now() - from);
  }
  return `${times.sort((a, b) => a - b)[2]?.toFixed(0)} ms`;
}

async function timed(): Promise<void> {
  await empty();
  const count = Number(values.records);
  const end = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  const start = end - 30 * DAY_MS;
  let sending = 0;
  for (let at = 0; at < count; at += 50_000) {
    const some = Array.from({ length: Math.min(50_000, count - at) }, (_, i) =>
      madeRecord(at + i, start + Math.floor(((at + i) / count) * 30 * DAY_MS)),
    );
    const from = performance.now();
    await sendRecords(between, some);
    sending += performance.now() - from;
    watch.progress();
  }
  print('records to ClickHouse', `${Math.round(count / (sending / 1_000))} records/s`);
  const size = await store
    .connect()
    .runAndReadAll(`SELECT sum("bytes_on_disk") AS "bytes" FROM system.parts WHERE "active" AND "table" = '${TABLE}'`);
  print('bytes a record', (Number(size.getRowObjectsJS()[0]?.bytes) / count).toFixed(0));
  const scope = { organisationId: 'org-a', workspaceIds: null, userId: null, keptSince: 0, erased: [] };
  const all: LogSelection = { scope, from: start, to: end, where: [] };
  const bounds = Array.from({ length: 31 }, (_, day) => start + day * DAY_MS);
  const graph = (...measures: LogGroupQuery['measures']) => queries.groups(all, { by: [{ bounds }], measures });
  const columns = LOG_COLUMNS.map(({ name }) => name);
  const page = (where: LogSelection['where']) =>
    queries.page({ ...all, where }, { columns, order: 'newest', limit: 100, behind: null });
  print('requests by day', await median(() => graph({ as: 'n', of: 'count' })));
  print('cost by day', await median(() => graph({ as: 'c', of: 'sum', column: 'cost_micros' })));
  const quantiles = [0.5, 0.9, 0.99].map((q) => ({ as: `p${q}`, of: 'quantile', column: 'latency_us', q }) as const);
  print('latency p50, p90, p99 by day, exact', await median(() => graph(...quantiles)));
  print('distinct users by day', await median(() => graph({ as: 'u', of: 'distinct', column: 'end_user' })));
  const byKey: LogGroupQuery = { by: [{ column: 'api_key_id' }], measures: quantiles, limit: 50 };
  print('50 of 2,000 keys with their quantiles', await median(() => queries.groups(all, byKey)));
  print('page of 100 with all columns, newest', await median(() => page([])));
  print('page, by status', await median(() => page([{ column: 'status', in: ['500'] }])));
  print('page, by a key of the metadata', await median(() => page([{ metadata: 'team', in: ['team-3'] }])));
  print('page, no match', await median(() => page([{ column: 'model', in: ['none'] }])));
  const [half] = (await page([{ column: 'api_key_id', in: ['key-7'] }])).rows;
  print('one record by id', await median(() => queries.find(scope, String(half?.id))));
  print('by a trace, without a time', await median(() => page([{ column: 'trace_id', in: [String(half?.trace_id)] }])));
  const many = Array.from({ length: 10_000 }, (_, i) => `trace-${i}`);
  print('by 10,000 traces', await median(() => page([{ column: 'trace_id', in: many }])));
}

function madeRecord(i: number, time: number) {
  const failed = i % 50 === 0;
  const hex = time.toString(16).padStart(12, '0');
  const id = `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-${i.toString(16).padStart(12, '0')}`;
  return logRecord(i + 2, {
    id,
    time,
    workspace_id: `ws-${i % 50}`,
    api_key_id: `key-${(i * 31) % 2000}`,
    trace_id: id,
    model_requested: `model-${(i * 17) % 60}`,
    status: failed ? 500 : 200,
    outcome: failed ? 'failed' : 'ok',
    cost_micros: i % 5000,
    latency_ms: (i * 37) % 20_000,
    metadata: { _user: `user-${(i * 13) % 20_000}`, team: `team-${i % 40}` },
  });
}

/** The suites of the routes, whose store compares each answer with the engine's. */
async function routes(): Promise<void> {
  const suites = [
    'server/src/resources/analytics',
    'server/src/resources/logs/list',
    'server/src/resources/logs/reach',
  ];
  const run = spawn('npx', ['vitest', 'run', ...suites, '--maxWorkers=1', '--no-file-parallelism'], {
    env: { ...process.env, [ENGINE]: JSON.stringify(server.address) },
    stdio: 'inherit',
  });
  const [code] = (await once(run, 'exit')) as [number | null];
  assert.equal(code, 0, 'the suites of analytics and logs fail on the engine');
  print('the suites of analytics and logs, each answer compared', 'passed');
}

await killed();
await exported();
await timed();
await routes();
await store.close();
await server.stop();
engine.closeSync();
await rm(dir, { recursive: true });
process.exit(0);
