/**
 * From the start of the process to the first `ready`, with many keys in the store:
 * `npm run test:start -- [--keys 100000] [--rounds 5] [--store sqlite|postgres] [--limit 2000]`.
 *
 * Real server processes, SQLite and a real PostgreSQL, to which the server connects as an account that owns the tables
 * and nothing more. Fails when the fastest start takes longer than the limit (milliseconds): other work of the machine
 * only adds. Also told: the first request with a key, which is looked up among all of them, and a page of the list.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { parseArgs } from 'node:util';
import pg from 'pg';
import { apiKeyRow, secretRow } from '../../src/store/conformance/rows.ts';
import { SCHEMA, type TableName } from '../../src/store/schema.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { killAll, readFirstRun, startProcess } from '../support/process.ts';

const { values } = parseArgs({
  options: {
    keys: { type: 'string', default: '100000' },
    rounds: { type: 'string', default: '5' },
    store: { type: 'string' },
    limit: { type: 'string', default: '2000' },
  },
});
const keys = Number(values.keys);
const limit = Number(values.limit);
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
    const stop = async ({ child, ended }: Awaited<ReturnType<typeof startProcess>>) => {
      child.kill('SIGINT');
      await ended;
    };
    await stop(await startProcess(dir, env));
    const first = await readFirstRun(dir);
    const { organisation_id: organisation } = first;
    await execute(fill('api_keys', apiKeyRow(organisation, ''), { id: "'many-' || i" }));
    await execute(
      fill('api_key_secrets', secretRow(organisation, '', ''), { id: "'MANY' || i", api_key_id: "'many-' || i" }),
    );
    if (server !== null) await execute('ANALYZE');

    const starts: number[] = [];
    const lookUps: number[] = [];
    const pages: number[] = [];
    for (let i = 0; i < Number(values.rounds); i++) {
      const { ms, value: running } = await timed(async () => {
        const process = await startProcess(dir, env);
        const ready = await fetch(`${process.url}/readyz`);
        if (ready.status !== 200) throw new Error(`/readyz answered ${ready.status}`);
        return process;
      });
      starts.push(ms);
      lookUps.push((await timed(() => get(`${running.url}/v1/models`, first.workspace_api_key))).ms);
      const page = await timed(() => get(`${running.url}/v1/api-keys?page_size=20`, first.admin_api_key));
      pages.push(page.ms);
      if ((page.value.total ?? 0) < keys) throw new Error(`only ${page.value.total} keys are listed`);
      const health = await get(`${running.url}/v1/operator/health`, first.operator_api_key);
      const expected = store === 'sqlite' ? 'none' : 'enforced';
      if (health.store?.row_security !== expected) throw new Error(`row security is ${health.store?.row_security}`);
      await stop(running);
    }
    const best = Math.min(...starts);
    const ok = best < limit;
    failed ||= !ok;
    process.stdout.write(
      `${ok ? 'ok  ' : 'FAIL'} ${store}, ${keys} keys: ready after ${round(best)} ms at best (${starts.map(round).join(', ')}; limit ${limit}), first request with a key ${round(Math.min(...lookUps))} ms, list of keys ${round(Math.min(...pages))} ms\n`,
    );
  } finally {
    killAll();
    await server?.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}
process.exitCode = failed ? 1 : 0;
