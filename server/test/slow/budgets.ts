/**
 * Usage limits under faults: `npm run test:budgets -- [--kills 20] [--redis-restarts 3] [--outages 5] [--seed 1]`.
 *
 * Two real server processes on one PostgreSQL and one Redis, 64 callers each, against the sandbox. In rounds, each with
 * limits of its own: a key limited in tokens, and policies grouped by metadata that limit requests and cost; every request
 * has a known maximum. Meanwhile a node is killed with SIGKILL and started again, Redis is killed, or the way to PostgreSQL
 * is cut. At the end the nodes are stopped, leases are made to end, and the books are compared with what clients saw:
 * nothing beyond a limit (for tokens and cost: by less than one request), counters equal to what their entries say,
 * nothing reserved, every answer counted, nothing counted that was not asked for, and limits used to at least 99 %.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { FirstRun } from '../../src/first-run.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { rebuilt } from '../../src/limits/ledger/book.ts';
import { sweepBooks } from '../../src/limits/ledger/sweep.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { TcpProxy } from '../support/proxy.ts';
import { startRedis } from '../support/redis.ts';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const CALLERS = 64;
/** What one request of the callers may use at most: eight answer tokens and a short question, and its price. */
const MOST = { requests: 1, tokens: 60, cost: 200 } as const;
const LIMITS = { requests: 1500, tokens: 30_000, cost: 30_000 } as const;

const { values: options } = parseArgs({
  options: {
    kills: { type: 'string', default: '20' },
    'redis-restarts': { type: 'string', default: '3' },
    outages: { type: 'string', default: '5' },
    seed: { type: 'string' },
    verbose: { type: 'boolean' },
  },
});
const seed = Number(options.seed ?? Math.floor(performance.timeOrigin) % 1_000_000);
const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

let state = seed >>> 0;
/** A small seeded generator: the moments of a failing run can be repeated. */
function next(): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return state / 2 ** 32;
}

interface Node {
  readonly url: string;
  readonly dataDir: string;
  readonly port: number;
  child: ChildProcess | null;
  agent: Agent;
}

const running = new Set<ChildProcess>();
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => process.exit(1));
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

const masterKey = randomBytes(32).toString('base64');
const postgres = await startPostgres();
const redis = await startRedis();
const databaseUrl = new URL(await postgres.database());
const proxy = await TcpProxy.start(Number(databaseUrl.port));
const direct = databaseUrl.href;
databaseUrl.port = String(proxy.port);

function makeNode(): Node {
  const port = 20_000 + Math.floor(next() * 20_000);
  const dataDir = mkdtempSync(join(tmpdir(), 'sluice-budgets-'));
  return { url: `http://127.0.0.1:${port}`, dataDir, port, child: null, agent: new Agent({ keepAlive: true }) };
}

async function start(node: Node): Promise<void> {
  for (;;) {
    const child = spawn(process.execPath, ['server/bin/sluice.mjs', 'serve'], {
      cwd: ROOT,
      stdio: ['ignore', 'ignore', options.verbose ? 'inherit' : 'ignore'],
      env: {
        ...process.env,
        NODE_NO_WARNINGS: '1',
        SLUICE_DATA_DIR: node.dataDir,
        SLUICE_PORT: String(node.port),
        SLUICE_LOG_LEVEL: 'error',
        SLUICE_MASTER_KEY: masterKey,
        SLUICE_ADMIN_REQUESTS_PER_MINUTE: '1000000',
        SLUICE_DATABASE_URL: databaseUrl.href,
        SLUICE_REDIS_URL: redis.url,
      },
    });
    running.add(child);
    node.child = child;
    while (child.exitCode === null) {
      const ready = await fetch(`${node.url}/readyz`).then(
        (answer) => answer.ok,
        () => false,
      );
      if (ready) return;
      await sleep(50);
    }
    // A start during an outage fails; whoever runs it starts it again.
    running.delete(child);
    await sleep(200);
  }
}

async function end(node: Node, signal: NodeJS.Signals): Promise<void> {
  const { child } = node;
  if (child === null) return;
  const gone = new Promise((resolve) => child.once('exit', resolve));
  if (child.exitCode === null && child.signalCode === null) {
    child.kill(signal);
    await gone;
  }
  running.delete(child);
  node.child = null;
  node.agent.destroy();
  node.agent = new Agent({ keepAlive: true });
}

type Kind = keyof typeof LIMITS;
interface Tally {
  readonly kind: Kind;
  readonly caller: string;
  readonly metadata: string | null;
  /** How its bucket is found: by its value, or by its owner. */
  readonly value: string;
  readonly ownerId: string | null;
  /** Answers that arrived whole, and the tokens they named. */
  answers: number;
  tokens: number;
  /** Requests whose end is not known: cut, or answered with a failure. */
  unknown: number;
  refused: number;
}

const faults: string[] = [];
const outcomes = new Map<number, number>();

function ask(node: Node, tally: Tally): Promise<number> {
  const body = JSON.stringify({
    model: '@sandbox/echo',
    messages: [{ role: 'user', content: 'one two three four five' }],
    max_tokens: 8,
  });
  return new Promise((resolve) => {
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      'x-gateway-api-key': tally.caller,
      ...(tally.metadata === null ? {} : { 'x-gateway-metadata': tally.metadata }),
    };
    const sent = request(
      `${node.url}/v1/chat/completions`,
      { method: 'POST', headers, agent: node.agent },
      (answer) => {
        let text = '';
        answer.setEncoding('utf8');
        answer.on('data', (piece) => {
          text += piece;
        });
        answer.on('error', () => undefined);
        answer.on('close', () => {
          const status = answer.complete ? (answer.statusCode ?? 0) : 0;
          outcomes.set(status, (outcomes.get(status) ?? 0) + 1);
          if (status === 200) {
            tally.answers += 1;
            tally.tokens += (JSON.parse(text) as { usage: { total_tokens: number } }).usage.total_tokens;
          } else if (status === 412) tally.refused += 1;
          else if (status === 0 || status >= 500) tally.unknown += status === 503 ? 0 : 1;
          else faults.push(`${status} ${text}`);
          resolve(status);
        });
      },
    );
    sent.on('error', (error: NodeJS.ErrnoException) => {
      // Nobody was there to ask.
      if (error.code !== 'ECONNREFUSED') tally.unknown += 1;
      outcomes.set(-1, (outcomes.get(-1) ?? 0) + 1);
      resolve(-1);
    });
    sent.end(body);
  });
}

const nodes = [makeNode(), makeNode()] as const;
const [one] = nodes;
await start(one);
for (let i = 0; i < 100 && !existsSync(join(one.dataDir, 'first-run.json')); i++) await sleep(50);
const first = JSON.parse(readFileSync(join(one.dataDir, 'first-run.json'), 'utf8')) as FirstRun;
await start(nodes[1]);

async function made(path: string, body: object): Promise<{ id: string; key: string }> {
  for (let tries = 0; ; tries++) {
    const answer = await fetch(`${(nodes[tries % 2] as Node).url}/v1${path}`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': first.admin_api_key, 'content-type': 'application/json' },
      body: JSON.stringify({ workspace_id: first.workspace_id, ...body }),
    }).catch(() => null);
    if (answer?.status === 200) return (await answer.json()) as { id: string; key: string };
    if (tries > 100) throw new Error(`${path}: ${answer?.status} ${await answer?.text()}`);
    await sleep(100);
  }
}

const serviceKey = (more: object) =>
  made('/api-keys/workspace/service', { name: 'caller', scopes: ['completions.write'], ...more });
const free = await serviceKey({});
for (const type of ['requests', 'cost'] as const) {
  await made('/policies/usage-limits', {
    name: `${type} of a user`,
    conditions: [{ key: 'metadata.kind', value: type }],
    group_by: [{ key: 'metadata._user' }],
    type,
    credit_limit: type === 'cost' ? LIMITS.cost / 1_000_000 : LIMITS.requests,
  });
}

const tallies: Tally[] = [];
const nothing = { answers: 0, tokens: 0, unknown: 0, refused: 0 };
async function round(n: number): Promise<readonly Tally[]> {
  const limited = await serviceKey({ usage_limits: { type: 'tokens', credit_limit: LIMITS.tokens } });
  const of = (kind: 'requests' | 'cost'): Tally => {
    const metadata = JSON.stringify({ kind, _user: `${kind}-${n}` });
    const value = `metadata._user:${kind}-${n}`;
    return { kind, caller: free.key, metadata, value, ownerId: null, ...nothing };
  };
  const key: Tally = {
    kind: 'tokens',
    caller: limited.key,
    metadata: null,
    value: 'tokens',
    ownerId: limited.id,
    ...nothing,
  };
  const mine = [key, of('requests'), of('cost')];
  tallies.push(...mine);
  return mine;
}

/** All callers of both nodes, until none has been let through for a while and `over` says so. */
async function load(mine: readonly Tally[], over: () => boolean, callers = CALLERS): Promise<void> {
  const loops = nodes.flatMap((node) =>
    Array.from({ length: callers }, async (_, i) => {
      const tally = mine[i % mine.length] as Tally;
      let quiet = 0;
      while (!(over() && quiet >= 3)) {
        const status = node.child === null ? -2 : await ask(node, tally);
        if (status === 200) quiet = 0;
        else {
          quiet += status === 412 ? 1 : 0;
          await sleep(status === 412 ? 30 : 60);
        }
      }
    }),
  );
  await Promise.all(loops);
}

const counts = {
  kills: Number(options.kills),
  redis: Number(options['redis-restarts']),
  outages: Number(options.outages),
};
const happened = { kills: 0, redis: 0, outages: 0 };

async function kill(): Promise<void> {
  const node = nodes[next() < 0.5 ? 0 : 1] as Node;
  await end(node, 'SIGKILL');
  await sleep(next() * 200);
  await start(node);
  happened.kills += 1;
}

const FAULTS = {
  kills: kill,
  async redis() {
    await redis.kill();
    await sleep(200 + next() * 500);
    await redis.start();
    happened.redis += 1;
  },
  async outages() {
    await proxy.down();
    await sleep(200 + next() * 1500);
    await proxy.up();
    happened.outages += 1;
  },
};

const began = performance.now();
for (let n = 0; counts.kills + counts.redis + counts.outages > 0; n++) {
  const mine = await round(n);
  let over = false;
  const loaded = load(mine, () => over);
  // A few faults a round, while the limits fill up.
  for (let i = 0; i < 3; i++) {
    const left = (Object.keys(counts) as (keyof typeof counts)[]).flatMap((one) =>
      Array<typeof one>(counts[one]).fill(one),
    );
    const name = left[Math.floor(next() * left.length)];
    if (name === undefined) break;
    counts[name] -= 1;
    await sleep(50 + next() * 700);
    await FAULTS[name]();
  }
  over = true;
  await loaded;
  if (options.verbose) process.stdout.write(`round ${n}: ${JSON.stringify({ ...happened, faults: faults.length })}\n`);
}

/** Stops all nodes with what they still have to book, and makes the leases of killed ones end. */
async function settle(tables: Tables): Promise<void> {
  for (const node of nodes) await end(node, 'SIGTERM');
  await tables.systemWrite((tx) => tx.update('reservations', {}, { expires_at: 0 }));
  while (await sweepBooks({ tables, clock: systemClock }));
}

const tables = await openPostgresTables({ url: direct, log: silentLog });
await settle(tables);
// What killed nodes had in their leases is free now: the rest of every limit must be there to be used.
for (const node of nodes) await start(node);
for (const tally of tallies) await load([tally], () => true, 2);
await settle(tables);

const totals = { overspend: 0, drift: 0, reserved: 0, lost: 0, invented: 0, under: 0, answers: 0, buckets: 0 };
const rows = await tables.systemRead((tx) => tx.list('usage_buckets'));
for (const tally of tallies) {
  const row = rows.find(({ owner_id, value_key }) =>
    tally.ownerId === null ? value_key === tally.value : owner_id === tally.ownerId,
  );
  if (row === undefined) {
    faults.push(`${tally.value} has no bucket`);
    continue;
  }
  totals.buckets += 1;
  totals.answers += tally.answers;
  const { kind } = tally;
  const limit = row.credit_limit;
  const allowed = kind === 'requests' ? limit : limit + MOST[kind] - 1;
  totals.overspend += Math.max(0, row.used - allowed);
  totals.reserved += row.reserved;
  const entries = await tables.systemRead((tx) => rebuilt(tx, row));
  totals.drift += Math.abs(entries.used - row.used) + Math.abs(entries.reserved - row.reserved);
  totals.under = Math.max(totals.under, (limit - row.used) / limit);
  const served = kind === 'requests' ? tally.answers : kind === 'tokens' ? tally.tokens : 0;
  totals.lost += Math.max(0, served - row.used);
  totals.invented += Math.max(0, kind === 'cost' ? 0 : row.used - served - tally.unknown * MOST[kind]);
  if (row.used > allowed || served > row.used || (limit - row.used) / limit > 0.01) {
    faults.push(`${kind} ${row.value_key}: used ${row.used} of ${limit}, ${JSON.stringify(tally)}`);
  }
}
if (totals.drift + totals.reserved + totals.invented > 0) faults.push(JSON.stringify(totals));
await tables.close();
for (const node of nodes) rmSync(node.dataDir, { recursive: true, force: true });
await proxy.close();
await redis.close();
await postgres.stop();

const seconds = Math.round((performance.now() - began) / 1000);
const line = { id: 'B-01, B-02, B-03, F-11 usage limits under faults: faults', value: faults.length, goal: 0 };
const statuses = Object.fromEntries(outcomes);
process.stdout.write(
  `${JSON.stringify({ ...line, pass: faults.length === 0, ...happened, ...totals, statuses, seconds, seed })}\n`,
);
for (const fault of faults.slice(0, 10)) process.stdout.write(`${fault}\n`);
process.stdout.write(`budgets: ${faults.length === 0 ? '1 passed, 0 failed' : '0 passed, 1 failed'}\n`);
process.exit(faults.length === 0 ? 0 : 1);
