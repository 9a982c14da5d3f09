/**
 * Usage limits under faults: `npm run test:budgets -- [--kills 100] [--redis-restarts 3] [--outages 3] [--seed 1]`.
 *
 * Two real server processes on one PostgreSQL and one Redis, 64 callers each, against the sandbox. In rounds, each with
 * limits of its own: a key limited in tokens, and policies grouped by metadata that limit requests, cost, and cost of
 * requests that set no maximum. Meanwhile nodes are killed with SIGKILL and started again, each by itself, while the other
 * one serves; Redis is killed, and the way to PostgreSQL is cut. The leases of a killed node are made to end as soon as its
 * next run has booked what was in its journal. When every limit is used up the next round begins.
 *
 * At the end the nodes are stopped, all leases are made to end, and the books are compared with what clients saw. Nothing is
 * used beyond a limit: not one request, for tokens and cost less than one, without a known maximum one for each node;
 * counters are what their entries say; nothing is reserved; every answer is counted, nothing that was not asked for; and
 * limits are used to at least 99 %.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { rebuilt } from '../../src/limits/ledger/bucket-transaction.ts';
import { sweepBuckets } from '../../src/limits/ledger/sweep.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { startPostgres } from '../support/postgres-server.ts';
import { killAll, readFirstRun, type ServerProcess, startReady, stopProcess } from '../support/process.ts';
import { TcpProxy } from '../support/proxy.ts';
import { startRedis } from '../support/redis.ts';
import { watchdog } from '../support/watchdog.ts';

const CALLERS = 64;
/** Each takes a few hundred requests. */
const LIMITS = { requests: 400, tokens: 20_000, cost: 4000, open: 5000 } as const;
/** So many refusals in a row on each node, and a limit counts as used up. */
const FULL = 8;
/** Nearly one token for each byte: what is reserved for such a request is not many times what it uses. */
const DENSE = '🜁🜂🜃🜄🜅🜆🜇🜈🜉🜊🜋🜌🜍🜎🜏';
/** What the sandbox charges, in hundredths of a micro-dollar for each token. */
const PRICE = { prompt: 15, completion: 60 } as const;
/** Keys are made before the faults begin; when they are used up, rounds go on without. */
const KEYS = 40;
const DRAIN_MS = 10_000;
const BETWEEN_KILLS_MS = 5_000;
/** Nodes give back by then what they hold and do not use. */
const IDLE_MS = 3_000;
/** A start takes a second or two, and is tried again while a store is away. */
const START_MS = 60_000;
/** Longer than any wait of a node for its stores, on a slow machine. */
const ANSWER_MS = 30_000;

const { values: options } = parseArgs({
  options: {
    kills: { type: 'string', default: '100' },
    'redis-restarts': { type: 'string', default: '3' },
    outages: { type: 'string', default: '3' },
    seed: { type: 'string' },
    verbose: { type: 'boolean' },
  },
});
const seed = Number(options.seed ?? Math.floor(performance.timeOrigin) % 1_000_000);
const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** A small seeded generator for whoever draws numbers beside others: the moments of a failing run can be repeated. */
function drawing(lane: number): () => number {
  let state = (seed + Math.imul(lane, 7919)) >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

interface Node {
  readonly name: string;
  readonly dataDir: string;
  server: ServerProcess | null;
  serving: boolean;
  /** Requests that it answered, refusals too. */
  answered: number;
  agent: Agent;
  /** What is under way, with the moment it was sent. */
  readonly pending: Map<object, { readonly kind: Kind; readonly since: number }>;
  /** The last answers, oldest first. */
  readonly statuses: number[];
  /** Why the last start that failed did. */
  failure: string;
}

const nodes = [makeNode('the first node'), makeNode('the second node')] as const;
const [one] = nodes;
const tallies: Tally[] = [];
const faults: string[] = [];
process.on('exit', killAll);
const watch = watchdog('budgets', () =>
  [...nodes.map(stateOf), ...tallies.filter((one) => !isFull(one)).map(leftOf)].join('\n'),
);
watch.phase('stores');

const masterKey = randomBytes(32).toString('base64');
const postgres = await startPostgres();
const redis = await startRedis();
const databaseUrl = new URL(await postgres.database());
const proxy = await TcpProxy.start(Number(databaseUrl.port));
const direct = databaseUrl.href;
databaseUrl.port = String(proxy.port);

function makeNode(name: string): Node {
  return {
    name,
    dataDir: mkdtempSync(join(tmpdir(), 'sluice-budgets-')),
    server: null,
    serving: false,
    answered: 0,
    agent: new Agent({ keepAlive: true }),
    pending: new Map(),
    statuses: [],
    failure: '',
  };
}

function stateOf({ name, server, serving, answered, pending, statuses, failure }: Node): string {
  const now = performance.now();
  const oldest = Math.max(0, ...[...pending.values()].map(({ since }) => now - since));
  const child =
    server === null ? 'no process' : `process ${server.child.exitCode ?? server.child.signalCode ?? 'lives'}`;
  return `${name}: ${child}, ${serving ? 'serving' : 'not serving'}, ${answered} answered, ${pending.size} under way, the oldest for ${Math.round(oldest)} ms, last answers ${statuses.join(' ')} ${failure}\n${server?.err.slice(-2000) ?? ''}`;
}

const leftOf = ({ kind, value, answers, refused, unknown }: Tally) =>
  `${kind} ${value} is not used up: ${answers} answers, ${unknown} unknown, refused in a row ${refused.join(' and ')}`;

async function start(node: Node, roles = 'gateway,jobs'): Promise<void> {
  const until = performance.now() + START_MS;
  for (;;) {
    try {
      node.server = await startReady(node.dataDir, {
        SLUICE_ROLES: roles,
        SLUICE_MASTER_KEY: masterKey,
        SLUICE_ADMIN_REQUESTS_PER_MINUTE: '1000000',
        SLUICE_DATABASE_URL: databaseUrl.href,
        SLUICE_REDIS_URL: redis.url,
      });
      node.serving = true;
      return;
    } catch (error) {
      // A start during an outage fails; whoever runs it starts it again.
      node.failure = (error as Error).message;
      if (performance.now() > until) throw new Error(`${node.name} does not start: ${node.failure}`);
    }
    await sleep(200);
  }
}

async function end(node: Node, signal: NodeJS.Signals): Promise<void> {
  const { server } = node;
  if (server === null) return;
  await stopProcess(server, signal);
  node.serving = false;
  node.server = null;
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
  /** Answers that arrived whole, what they used in the unit of the limit, and the largest of them. */
  answers: number;
  served: number;
  largest: number;
  /** Requests whose end is not known: cut, or answered with a failure. */
  unknown: number;
  /** Refused in a row, by node. */
  readonly refused: [number, number];
}

interface Answered {
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

const outcomes = new Map<number, number>();
const isFull = ({ refused }: Tally) => refused.every((inARow) => inARow >= FULL);
const size = drawing(3);

function bodyOf(kind: Kind): string {
  // Without a maximum most answers are short; too few for the estimate to know have five times as many tokens.
  const words = size() < 0.97 ? 5 + Math.floor(size() * 5) : 40;
  return JSON.stringify({
    model: kind === 'open' ? '@sandbox/open' : '@sandbox/echo',
    messages: [{ role: 'user', content: kind === 'open' ? 'one '.repeat(words) : DENSE }],
    ...(kind === 'open' ? {} : { max_tokens: 8 }),
  });
}

function usedBy(kind: Kind, { usage: { prompt_tokens: input, completion_tokens: output } }: Answered): number {
  if (kind === 'requests') return 1;
  return kind === 'tokens' ? input + output : (input * PRICE.prompt + output * PRICE.completion) / 100;
}

function ask(index: number, tally: Tally): Promise<number> {
  const node = nodes[index] as Node;
  return new Promise((resolve) => {
    const pending = {};
    node.pending.set(pending, { kind: tally.kind, since: performance.now() });
    const late = setTimeout(() => {
      faults.push(`a request was not answered within ${ANSWER_MS} ms: ${tally.value} at ${stateOf(node)}`);
      sent.destroy(new Error('late'));
    }, ANSWER_MS);
    const end = (status: number) => {
      clearTimeout(late);
      node.pending.delete(pending);
      node.statuses.push(status);
      if (node.statuses.length > 20) node.statuses.shift();
      if (status === 200) watch.progress();
      outcomes.set(status, (outcomes.get(status) ?? 0) + 1);
      if (status > 0) node.answered += 1;
      if (status === 412) tally.refused[index === 0 ? 0 : 1] += 1;
      else if (status === 200) tally.refused.fill(0);
      resolve(status);
    };
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      'x-gateway-api-key': tally.caller,
      ...(tally.metadata === null ? {} : { 'x-gateway-metadata': tally.metadata }),
    };
    const options = { method: 'POST', headers, agent: node.agent };
    const sent = request(`${node.server?.url}/v1/chat/completions`, options, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (piece) => {
        text += piece;
      });
      answer.on('error', () => undefined);
      answer.on('close', () => {
        const status = answer.complete ? (answer.statusCode ?? 0) : 0;
        if (status === 200) {
          const used = usedBy(tally.kind, JSON.parse(text) as Answered);
          tally.answers += 1;
          tally.served += used;
          tally.largest = Math.max(tally.largest, used);
        } else if (status === 0 || status >= 500) tally.unknown += status === 503 ? 0 : 1;
        else if (status !== 412) faults.push(`${status} ${text}`);
        end(status);
      });
    });
    sent.on('error', (error: NodeJS.ErrnoException) => {
      // Nobody was there to ask.
      if (error.code !== 'ECONNREFUSED') tally.unknown += 1;
      end(-1);
    });
    sent.end(bodyOf(tally.kind));
  });
}

watch.phase('keys and policies');
await start(one, 'gateway,admin');
const first = await readFirstRun(one.dataDir);

async function made(path: string, body: object): Promise<{ id: string; key: string }> {
  const answer = await fetch(`${one.server?.url}/v1${path}`, {
    signal: AbortSignal.timeout(ANSWER_MS),
    method: 'POST',
    headers: { 'x-gateway-api-key': first.admin_api_key, 'content-type': 'application/json' },
    body: JSON.stringify({ workspace_id: first.workspace_id, ...body }),
  });
  if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as { id: string; key: string };
}

const serviceKey = (more: object) =>
  made('/api-keys/workspace/service', { name: 'caller', scopes: ['completions.write'], ...more });
const free = await serviceKey({});
const keys: { id: string; key: string }[] = [];
for (let i = 0; i < KEYS; i++) {
  keys.push(await serviceKey({ usage_limits: { type: 'tokens', credit_limit: LIMITS.tokens } }));
}
const GROUPED = ['requests', 'cost', 'open'] as const;
for (const kind of GROUPED) {
  await made('/policies/usage-limits', {
    name: `${kind} of a user`,
    conditions: [{ key: 'metadata.kind', value: kind }],
    group_by: [{ key: 'metadata._user' }],
    type: kind === 'requests' ? kind : 'cost',
    credit_limit: kind === 'requests' ? LIMITS.requests : LIMITS[kind] / 1_000_000,
  });
}
watch.phase('both nodes start');
await end(one, 'SIGTERM');
await Promise.all(nodes.map((node) => start(node)));

const fresh = () => ({ answers: 0, served: 0, largest: 0, unknown: 0, refused: [0, 0] as [number, number] });
function round(n: number): readonly Tally[] {
  const mine: Tally[] = GROUPED.map((kind) => {
    const metadata = JSON.stringify({ kind, _user: `${kind}-${n}` });
    const value = `metadata._user:${kind}-${n}`;
    return { kind, caller: free.key, metadata, value, ownerId: null, ...fresh() };
  });
  const key = keys[n];
  if (key !== undefined) {
    mine.push({ kind: 'tokens', caller: key.key, metadata: null, value: 'tokens', ownerId: key.id, ...fresh() });
  }
  tallies.push(...mine);
  return mine;
}

/** All callers of both nodes, each at one of the limits that are not used up, until all are or it is told to stop. */
async function load(mine: readonly Tally[], stop = () => false): Promise<void> {
  const loops = nodes.flatMap((node, index) =>
    Array.from({ length: CALLERS }, async (_, i) => {
      let [at, refusals] = [i, 0];
      for (;;) {
        const left = mine.filter((tally) => !isFull(tally));
        const tally = left[at % left.length];
        if (tally === undefined || stop()) return;
        const status = node.serving ? await ask(index, tally) : -2;
        refusals = status === 412 ? refusals + 1 : 0;
        if (status === 412) at += 1;
        if (status !== 200) await sleep(status === 412 ? Math.min(200, 20 * refusals) : 60);
      }
    }),
  );
  await Promise.all(loops);
}

const tables = await openPostgresTables({ url: direct, log: silentLog });
const goal = {
  kills: Number(options.kills),
  redis: Number(options['redis-restarts']),
  outages: Number(options.outages),
};
const happened = { kills: 0, redis: 0, outages: 0 };
let planned = 0;

/** Lines of the journal of this node that are not in the books: none when all these files are gone. */
function unshipped({ dataDir }: Node): string[] {
  const dir = join(dataDir, 'spool', 'ledger');
  const names = existsSync(dir) ? readdirSync(dir) : [];
  return names.map((name) => join(dir, name)).filter((path) => path.endsWith('.journal') && statSync(path).size > 0);
}

/** Ends the leases of a run that is dead, once the next one has booked what was left; else they end by themselves. */
async function endLeases(leases: readonly string[], files: readonly string[]): Promise<void> {
  const until = performance.now() + DRAIN_MS;
  while (files.some((path) => existsSync(path))) {
    if (performance.now() > until) return;
    await sleep(20);
  }
  drained += 1;
  await tables.systemWrite((tx) => tx.update('reservations', { id: { in: [...leases] } }, { expires_at: 0 }));
  while (await sweepBuckets({ tables, clock: systemClock }));
}
let drained = 0;

async function kills(node: Node, draw: () => number): Promise<void> {
  const nodeId = readFileSync(join(node.dataDir, 'node-id'), 'utf8').trim();
  while (planned < goal.kills) {
    planned += 1;
    // Amid its work.
    const enough = node.answered + 50 + draw() * 350;
    const until = performance.now() + BETWEEN_KILLS_MS;
    while (node.answered < enough && performance.now() < until) await sleep(5);
    await end(node, 'SIGKILL');
    const files = unshipped(node);
    const rows = await tables.systemRead((tx) => tx.list('reservations'));
    const leases = rows.filter((row) => row.node.startsWith(nodeId)).map(({ id }) => id);
    await sleep(draw() * 200);
    await start(node);
    await endLeases(leases, files);
    happened.kills += 1;
    watch.progress();
    if (options.verbose)
      process.stdout.write(`${Math.round(performance.now() - began)} ms: ${JSON.stringify(happened)}\n`);
  }
}

const AWAY = {
  async redis(ms: number) {
    await redis.kill();
    await sleep(ms);
    await redis.start();
    happened.redis += 1;
    watch.progress();
  },
  async outages(ms: number) {
    await proxy.down();
    await sleep(ms);
    await proxy.up();
    happened.outages += 1;
    watch.progress();
  },
};

/** Spread over the time that the kills take. */
async function away(name: keyof typeof AWAY, draw: () => number): Promise<void> {
  for (let i = 0; i < goal[name]; i++) {
    const after = ((i + draw()) / goal[name]) * goal.kills * 0.95;
    while (happened.kills < Math.floor(after)) await sleep(50);
    await sleep(draw() * 500);
    await AWAY[name](200 + draw() * 1500);
  }
}

const began = performance.now();
let over = false;
const disturbed = Promise.all([
  ...nodes.map((node, i) => kills(node, drawing(i))),
  away('redis', drawing(4)),
  away('outages', drawing(5)),
]).then(() => {
  over = true;
});
for (let n = 0; !over; n++) {
  watch.phase(`round ${n + 1}, after ${JSON.stringify(happened)}`);
  await load(round(n), () => over);
}
watch.phase('the last of what disturbs');
await disturbed;

/** Stops all nodes with what they still have to book, and makes the leases of killed ones end. */
async function settle(): Promise<void> {
  await Promise.all(nodes.map((node) => end(node, 'SIGTERM')));
  await tables.systemWrite((tx) => tx.update('reservations', {}, { expires_at: 0 }));
  while (await sweepBuckets({ tables, clock: systemClock }));
}

watch.phase('nodes stop, leases end');
await settle();
// What killed nodes had in their leases is free now: the rest of every limit must be there to be used.
watch.phase('both nodes start again');
await Promise.all(nodes.map((node) => start(node)));
for (let tries = 0; tries < 2; tries++) {
  watch.phase(`what is left of the limits is used, ${tries + 1} of 2`);
  for (const { refused } of tallies) refused.fill(0);
  await load(tallies);
  await sleep(IDLE_MS);
}
watch.phase('nodes stop, books are compared');
await settle();

const totals = { overspend: 0, drift: 0, reserved: 0, lost: 0, invented: 0, under: 0, answers: 0, buckets: 0 };
const rows = await tables.systemRead((tx) => tx.list('usage_buckets'));
for (const tally of tallies) {
  const { kind, served, largest } = tally;
  const row = rows.find(({ owner_id, value_key }) =>
    tally.ownerId === null ? value_key === tally.value : owner_id === tally.ownerId,
  );
  if (row === undefined) {
    faults.push(`${tally.value} has no bucket`);
    continue;
  }
  totals.buckets += 1;
  totals.answers += tally.answers;
  const limit = row.credit_limit;
  const used = row.used + row.carry / 1_000_000;
  // Less than one request beyond it; without a known maximum, less than one of each node.
  const beyond = kind === 'requests' ? 0 : largest * (kind === 'open' ? nodes.length : 1);
  const overspend = Math.max(0, used - limit - beyond);
  const entries = await tables.systemRead((tx) => rebuilt(tx, row));
  const drift = Math.abs(entries.used - row.used) + Math.abs(entries.reserved - row.reserved);
  const lost = Math.max(0, served - used - 1e-6);
  const invented = Math.max(0, used - served - tally.unknown * largest - 1e-6);
  const under = Math.max(0, (limit - used) / limit);
  totals.overspend += overspend;
  totals.reserved += row.reserved;
  totals.drift += drift;
  totals.lost += lost;
  totals.invented += invented;
  totals.under = Math.max(totals.under, under);
  if (overspend + row.reserved + drift + lost + invented > 0 || under > 0.01) {
    const { reserved } = row;
    const found = JSON.stringify({ used, limit, reserved, overspend, drift, lost, invented, under });
    faults.push(`${kind} ${row.value_key}: ${found} ${JSON.stringify(tally)}`);
  }
}
await tables.close();
for (const node of nodes) rmSync(node.dataDir, { recursive: true, force: true });
await proxy.close();
await redis.close();
await postgres.stop();

const seconds = Math.round((performance.now() - began) / 1000);
const line = { id: 'usage limits under faults: faults', value: faults.length, goal: 0 };
const statuses = Object.fromEntries(outcomes);
process.stdout.write(
  `${JSON.stringify({ ...line, pass: faults.length === 0, ...happened, drained, ...totals, statuses, seconds, seed })}\n`,
);
for (const fault of faults.slice(0, 10)) process.stdout.write(`${fault}\n`);
process.stdout.write(`budgets: ${faults.length === 0 ? '1 passed, 0 failed' : '0 passed, 1 failed'}\n`);
process.exit(faults.length === 0 ? 0 : 1);
