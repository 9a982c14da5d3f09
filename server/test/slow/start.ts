/**
 * From the start of the process to the first `ready`, with many keys in the store, and what an idle server holds:
 * `npm run test:start -- [--keys 100000] [--rounds 5] [--store sqlite|postgres] [--warm 1500] [--cold 3000] [--idle 30] [--memory 130] [--speeds shown]`.
 *
 * Real server processes as `npm start` runs them, SQLite and a real PostgreSQL, to which the server connects as an account that owns the tables
 * and nothing more. Starts are judged by the processor time of all their threads (milliseconds), which other work of the
 * machine changes least: `--warm` for the best of the rounds, `--cold` for one whose sources were never compiled before.
 * With `--speeds shown`, for machines of unknown speed, that is shown and not judged. In any case the start with many
 * keys must take little more processor time than one with few, and a server that was idle for `--idle` seconds must hold
 * at most `--memory` megabytes. Also told: the time on the clock, the first request with a key, which is looked up among
 * all of them, and a page of the list.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { apiKeyRow, secretRow } from '../../src/store/conformance/rows.ts';
import { SCHEMA, type TableName } from '../../src/store/schema.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { killAll, readFirstRun, type ServerProcess, startBuilt, stopProcess } from '../support/process.ts';
import { watchdog } from '../support/watchdog.ts';

const { values } = parseArgs({
  options: {
    keys: { type: 'string', default: '100000' },
    rounds: { type: 'string', default: '5' },
    store: { type: 'string' },
    warm: { type: 'string', default: '1500' },
    cold: { type: 'string', default: '3000' },
    idle: { type: 'string', default: '30' },
    memory: { type: 'string', default: '130' },
    speeds: { type: 'string', default: 'judged' },
  },
});
/** Processor time of a start with many keys, times that of one with few: a table that is read at a start is far above. */
const MOST_GROWTH = 1.5;
process.on('exit', killAll);
const watch = watchdog('start');
const keys = Number(values.keys);
/** The flag of `npm start`. */
const FLAGS = { NODE_OPTIONS: '--max-semi-space-size=8' };
const stores = (['sqlite', 'postgres'] as const).filter((name) => values.store === undefined || values.store === name);

/** Adds `keys` rows like `row`, with the expressions of `own` over the number `i`. */
function fill(table: TableName, row: object, own: Readonly<Record<string, string>>): string {
  const given = row as Record<string, unknown>;
  const names = Object.keys(SCHEMA[table].columns);
  const expressions = names.map((name) => {
    const value = given[name];
    if (own[name] !== undefined) return own[name];
    if (value === null || typeof value === 'number') return String(value);
    return `'${typeof value === 'string' ? value : JSON.stringify(value)}'`;
  });
  const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${keys})`;
  return `INSERT INTO ${table} (${names.join(', ')}) ${numbers} SELECT ${expressions.join(', ')} FROM n`;
}

async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; value: T }> {
  const start = performance.now();
  const value = await work();
  return { ms: performance.now() - start, value };
}

async function get(url: string, key: string): Promise<{ total?: number; store?: { row_security?: string } }> {
  const answer = await fetch(url, { headers: { 'x-gateway-api-key': key } });
  if (answer.status !== 200) throw new Error(`${url} answered ${answer.status}: ${await answer.text()}`);
  return (await answer.json()) as { total?: number; store?: { row_security?: string } };
}

/** User and system time of all threads of a process so far, in milliseconds; null where the kernel does not tell. */
function cpuOf({ child }: ServerProcess): number | null {
  if (process.platform !== 'linux') return null;
  const stat = readFileSync(`/proc/${child.pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  // A hundred ticks a second.
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** Megabytes that a process holds in memory; null where the kernel does not tell. */
function memoryOf({ child }: ServerProcess): number | null {
  if (process.platform !== 'linux') return null;
  const [, kilobytes] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8')) ?? [];
  return Math.round(Number(kilobytes) / 1024);
}

const round = (ms: number) => Math.round(ms);
let failed = false;

for (const store of stores) {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-start-'));
  const server = store === 'postgres' ? await startPostgres() : null;
  try {
    const env: Record<string, string> = {};
    let execute: (sql: string) => Promise<unknown>;
    if (server === null) {
      execute = async (sql) => {
        const database = new DatabaseSync(join(dir, 'control.db'), { timeout: 5_000 });
        database.exec(sql);
        database.close();
      };
    } else {
      const url = new URL(await server.database());
      const admin = url.href;
      execute = async (sql) => {
        const client = new pg.Client(admin);
        await client.connect();
        await client.query(sql).finally(() => client.end());
      };
      await execute("CREATE ROLE sluice_app LOGIN PASSWORD 'secret'; GRANT ALL ON SCHEMA public TO sluice_app");
      url.username = 'sluice_app';
      url.password = 'secret';
      env.SLUICE_DATABASE_URL = url.href;
    }
    const stop = (server: ServerProcess) => stopProcess(server, 'SIGINT');
    const ready = async (more: Record<string, string> = {}) => {
      watch.progress();
      const server = await startBuilt(dir, { ...env, ...FLAGS, ...more });
      const answer = await fetch(`${server.url}/readyz`);
      if (answer.status !== 200) throw new Error(`/readyz answered ${answer.status}`);
      return server;
    };
    watch.phase(`${store}: starts with few keys`);
    await stop(await ready());
    const first = await readFirstRun(dir);
    const few: (number | null)[] = [];
    for (let i = 0; i < Number(values.rounds); i++) {
      const running = await ready();
      few.push(cpuOf(running));
      await stop(running);
    }
    watch.phase(`${store}: ${keys} keys are made`);
    const { organisation_id: organisation } = first;
    await execute(fill('api_keys', apiKeyRow(organisation, ''), { id: "'many-' || i" }));
    await execute(
      fill('api_key_secrets', secretRow(organisation, '', ''), { id: "'MANY' || i", api_key_id: "'many-' || i" }),
    );
    if (server !== null) await execute('ANALYZE');

    watch.phase(`${store}: starts with many keys`);
    const many: (number | null)[] = [];
    const starts: number[] = [];
    const lookUps: number[] = [];
    const pages: number[] = [];
    const uncompiled = await timed(() => ready({ NODE_COMPILE_CACHE: join(dir, 'compiled') }));
    const cold = cpuOf(uncompiled.value);
    await stop(uncompiled.value);
    for (let i = 0; i < Number(values.rounds); i++) {
      const { ms, value: running } = await timed(() => ready());
      starts.push(ms);
      many.push(cpuOf(running));
      lookUps.push((await timed(() => get(`${running.url}/v1/models`, first.workspace_api_key))).ms);
      const page = await timed(() => get(`${running.url}/v1/api-keys?page_size=20`, first.admin_api_key));
      pages.push(page.ms);
      if ((page.value.total ?? 0) < keys) throw new Error(`only ${page.value.total} keys are listed`);
      const health = await get(`${running.url}/v1/operator/health`, first.operator_api_key);
      const expected = store === 'sqlite' ? 'none' : 'enforced';
      if (health.store?.row_security !== expected) throw new Error(`row security is ${health.store?.row_security}`);
      await stop(running);
    }
    watch.phase(`${store}: idle`);
    const idle = await ready();
    await sleep(Number(values.idle) * 1000);
    const memory = memoryOf(idle);
    await stop(idle);
    const [least, most] = [few, many].map((all) => Math.min(...all.map(Number))) as [number, number];
    const growth = most / Math.max(1, least);
    const fast = values.speeds === 'shown' || (most <= Number(values.warm) && (cold ?? 0) <= Number(values.cold));
    const ok = fast && (few.includes(null) || growth <= MOST_GROWTH) && (memory ?? 0) <= Number(values.memory);
    failed ||= !ok;
    process.stdout.write(
      `${ok ? 'ok  ' : 'FAIL'} ${store}, ${keys} keys: a warm start takes ${most} ms of processor time (limit ${values.warm}) and ${round(Math.min(...starts))} ms at best (${starts.map(round).join(', ')}), a cold one ${cold} ms (limit ${values.cold}) and ${round(uncompiled.ms)} ms; ${growth.toFixed(2)} times the processor time with few keys (limit ${MOST_GROWTH}); ${memory} MB when idle (limit ${values.memory}); first request with a key ${round(Math.min(...lookUps))} ms, list of keys ${round(Math.min(...pages))} ms\n`,
    );
  } finally {
    killAll();
    await server?.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}
process.exit(failed ? 1 : 0);
