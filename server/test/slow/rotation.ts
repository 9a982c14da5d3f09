/**
 * kill -9 during rotations of API keys: `npm run test:rotation -- [--kills 200] [--store sqlite|postgres] [--seed 1]`.
 *
 * A real server process makes and rotates a key every 20 ms, by hand and by its job, and is killed again and again, often
 * within milliseconds of a request. While it is down the store is looked at: every key has one or two secrets that are
 * valid, exactly one of them without an end. Then some transitions are made to end and some keys to fall due, the server
 * is started on the same data, and every key that an answer has shown must open, and none whose transition has ended.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { silentLog } from '../../src/kernel/log.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { killAll, readFirstRun, type ServerProcess, startReady, stopProcess } from '../support/process.ts';
import { watchdog } from '../support/watchdog.ts';

const EVERY_MS = 20;
const DAY_MS = 86_400_000;
/** Longer than any call takes here on a slow machine. */
const ANSWER_MS = 30_000;
/** Kills beyond those asked for, on a machine where too little happens between them. */
const MORE_KILLS = 50;

const { values: options } = parseArgs({
  options: {
    kills: { type: 'string', default: '200' },
    store: { type: 'string' },
    seed: { type: 'string' },
    verbose: { type: 'boolean' },
  },
});
const kills = Number(options.kills);
const seed = Number(options.seed ?? Math.floor(performance.timeOrigin) % 1_000_000);
const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** A small seeded generator: the moments of a failing run can be repeated. */
function random(from: number): () => number {
  let state = from >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** What answers have said about one key. */
interface Known {
  readonly id: string;
  /** The newest secret that an answer has shown. */
  current: string;
  /** Those before it, and whether their transition was made to end. */
  readonly before: { readonly key: string; ended: boolean }[];
  /** A rotation was asked for and not answered: it may have happened. */
  unanswered: boolean;
  /** Made to fall due; the job has rotated it, or will. */
  due: boolean;
}

process.on('exit', killAll);
const watch = watchdog('rotation', () => server?.err.slice(-2000) ?? '');
let server: ServerProcess | null = null;

function start(dataDir: string, databaseUrl: string | null): Promise<ServerProcess> {
  const env = {
    SLUICE_LOG_LEVEL: options.verbose ? 'info' : 'error',
    SLUICE_ADMIN_REQUESTS_PER_MINUTE: '1000000',
    ...(databaseUrl === null ? {} : { SLUICE_DATABASE_URL: databaseUrl }),
  };
  return startReady(dataDir, env, options.verbose ? ['stdout', 'stderr'] : ['stderr']);
}

async function run(
  name: 'sqlite' | 'postgres',
  databaseUrl: string | null,
  open: (dataDir: string) => Promise<Tables>,
): Promise<boolean> {
  const began = performance.now();
  const next = random(seed);
  const dataDir = mkdtempSync(join(tmpdir(), 'sluice-rotation-'));
  watch.phase(`${name}: start`);
  let running = await start(dataDir, databaseUrl);
  server = running;
  const first = await readFirstRun(dataDir);

  const keys: Known[] = [];
  const faults: string[] = [];
  const totals = { rotated: 0, unanswered: 0, applied: 0, automatic: 0, collected: 0, ended: 0, looked: 0, opened: 0 };
  const made = async (method: string, path: string, body: object) => {
    const answer = await fetch(`${running.url}/v1${path}`, {
      method,
      signal: AbortSignal.timeout(ANSWER_MS),
      headers: { 'x-gateway-api-key': first.admin_api_key, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const text = await answer.text();
    return { status: answer.status, body: JSON.parse(text) as { id: string; key: string }, text };
  };

  async function create(): Promise<Known> {
    const { workspace_id } = first;
    const rotation_policy = { rotation_period_days: 30 };
    const body = { name: 'rotated', scopes: ['configs.list'], workspace_id, rotation_policy };
    const answer = await made('POST', '/api-keys/workspace/service', body);
    if (answer.status !== 200) throw new Error(answer.text);
    const key = { id: answer.body.id, current: answer.body.key, before: [], unanswered: false, due: false };
    keys.push(key);
    return key;
  }

  /** Keys that no rotation stands in the way of, as far as answers told. */
  const free = (key: Known) => !key.unanswered && (key.due || key.before.every(({ ended }) => ended));
  const busy = new Set<Known>();

  async function rotate(key: Known): Promise<void> {
    busy.add(key);
    key.unanswered = true;
    try {
      const answer = await made('POST', `/api-keys/${key.id}/rotate`, {});
      key.unanswered = false;
      if (answer.status === 200) {
        key.before.push({ key: key.current, ended: false });
        key.current = answer.body.key;
        totals.rotated += 1;
        if (key.due) totals.collected += 1;
        key.due = false;
      } else if (answer.status >= 500) faults.push(`${answer.status} ${answer.text}`);
    } finally {
      busy.delete(key);
    }
  }

  /** The store while no server runs. */
  async function look(touched: readonly Known[], change: boolean): Promise<void> {
    const tables = await open(dataDir);
    try {
      const now = await tables.now();
      const ids = touched.map(({ id }) => id);
      const secrets = await tables.systemRead((tx) =>
        tx.list('api_key_secrets', { where: { api_key_id: { in: ids } } }),
      );
      const rows = await tables.systemRead((tx) => tx.list('api_keys', { where: { id: { in: ids } } }));
      const ended: string[] = [];
      const due: string[] = [];
      for (const key of touched) {
        totals.looked += 1;
        const valid = secrets.filter((one) => one.api_key_id === key.id && (one.expires_at ?? Infinity) > now);
        const current = valid.filter((one) => one.expires_at === null);
        if (valid.length < 1 || valid.length > 2 || current.length !== 1) {
          faults.push(`key ${key.id} has ${valid.length} valid secrets, ${current.length} of them without an end`);
        }
        const shown = current[0]?.id === key.current.slice(8, 20);
        const row = rows.find(({ id }) => id === key.id);
        if (key.unanswered) {
          totals.unanswered += 1;
          if (!shown) totals.applied += 1;
        }
        if (key.due && current[0]?.digest === '') totals.automatic += 1;
        // Only what an answer has shown may be the last one left: the others wait for their collector.
        if (!shown || row === undefined || !change) continue;
        key.unanswered = false;
        if (valid.length === 2 && next() < 0.5) {
          ended.push(...valid.filter((one) => one.expires_at !== null).map(({ id }) => id));
          totals.ended += 1;
          for (const one of key.before) one.ended = true;
        } else if (valid.length === 1 && next() < 0.3) {
          key.due = true;
          due.push(key.id);
        }
      }
      if (!change) return;
      await tables.systemWrite(async (tx) => {
        if (ended.length > 0) await tx.update('api_key_secrets', { id: { in: ended } }, { expires_at: now - 1 });
        if (due.length > 0) await tx.update('api_keys', { id: { in: due } }, { rotation_due_at: now - DAY_MS });
        // The lease of the killed leader would keep the next one waiting.
        await tx.update('leases', { name: 'key-rotation' }, { expires_at: 0 });
      });
    } finally {
      await tables.close();
    }
  }

  async function opens(key: string): Promise<boolean> {
    totals.opened += 1;
    const answer = await fetch(`${running.url}/v1/configs?page_size=1`, {
      headers: { 'x-gateway-api-key': key },
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    await answer.arrayBuffer();
    // Those that have ended are tried so often that the throttle of failed attempts answers; a key that opens never meets it.
    if (![200, 401, 429].includes(answer.status)) faults.push(`a key was answered with ${answer.status}`);
    return answer.status === 200;
  }

  async function verify(touched: readonly Known[]): Promise<void> {
    for (const key of touched) {
      watch.progress();
      if (!(await opens(key.current))) faults.push(`the shown secret ${key.current.slice(0, 20)} does not open`);
      for (const one of key.before.slice(-2)) {
        if ((await opens(one.key)) === one.ended) {
          faults.push(
            `the secret ${one.key.slice(0, 20)} ${one.ended ? 'opens after' : 'does not open before'} its end`,
          );
        }
      }
    }
  }

  const enough = () =>
    totals.rotated > kills && (kills < 10 || (totals.automatic + totals.collected > 0 && totals.ended > 0));
  let kill = 0;
  for (; (kill < kills || (kill < kills + MORE_KILLS && !enough())) && faults.length === 0; kill++) {
    watch.phase(`${name}: kill ${kill + 1}`);
    const touched = new Set<Known>();
    let going = true;
    const calls: Promise<void>[] = [];
    const fire = () => {
      const ready = keys.filter((key) => free(key) && !busy.has(key));
      const key = ready.length > 3 || next() < 0.4 ? ready[Math.floor(next() * ready.length)] : undefined;
      if (key) touched.add(key);
      const call = key ? rotate(key) : create().then((created) => touched.add(created));
      calls.push(
        call.then(
          () => {},
          (error: Error) => {
            if (error.name === 'TimeoutError') faults.push('a request was not answered');
          },
        ),
      );
    };
    const stopAt = performance.now() + 60 + next() * 300;
    while (going) {
      fire();
      if (performance.now() >= stopAt) {
        // Mostly among several that run, so that some are cut in the middle.
        for (let i = 0; i < 4; i++) fire();
        await sleep(next() * 12);
        going = false;
      } else await sleep(EVERY_MS);
    }
    await stopProcess(running, 'SIGKILL');
    await Promise.all(calls);
    for (const key of keys) if (key.due || key.unanswered) touched.add(key);
    const seen = [...touched];
    await look(seen, true);
    running = await start(dataDir, databaseUrl);
    server = running;
    await verify(seen);
    if (options.verbose) process.stdout.write(`kill ${kill + 1}: ${JSON.stringify(totals)}\n`);
  }

  watch.phase(`${name}: every key is looked at`);
  await verify(keys);
  await stopProcess(running, 'SIGTERM');
  await look(keys, false);
  rmSync(dataDir, { recursive: true, force: true });

  if (!enough()) faults.push('too little happened to prove anything');
  const seconds = Math.round((performance.now() - began) / 1000);
  const line = {
    id: 'rotation under kill -9: faults',
    value: faults.length,
    goal: 0,
    pass: faults.length === 0,
  };
  process.stdout.write(
    `${JSON.stringify({ ...line, store: name, kills: kill, keys: keys.length, ...totals, seconds, seed })}\n`,
  );
  for (const fault of faults.slice(0, 10)) process.stdout.write(`${fault}\n`);
  return faults.length === 0;
}

const results: boolean[] = [];
if (options.store !== 'postgres') {
  results.push(await run('sqlite', null, (dir) => openSqliteTables({ file: join(dir, 'control.db'), log: silentLog })));
}
if (options.store !== 'sqlite') {
  const { startPostgres } = await import('../support/postgres-server.ts');
  const postgres = await startPostgres();
  try {
    const url = await postgres.database();
    results.push(await run('postgres', url, () => openPostgresTables({ url, log: silentLog })));
  } finally {
    await postgres.stop();
  }
}
const failed = results.filter((pass) => !pass).length;
process.stdout.write(`rotation: ${results.length - failed} passed, ${failed} failed\n`);
process.exit(failed === 0 ? 0 : 1);
