/**
 * kill -9 under load: `npm run test:chaos -- --kills 100 [--store sqlite|postgres|both] [--seed 1]`.
 *
 * A real server process answers streams and small requests while configs are written; it is killed with SIGKILL at a
 * random moment and started again on the same data, many times. In the end every answer that completed has exactly one
 * record, no record is there twice, every acknowledged write is there, and the ledger has counted what the logs cost: of
 * requests that were cut off it may have more. Then the disk is filled (`full-disk.ts`).
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { killAll, readFirstRun, type ServerProcess, startReady, stopProcess } from '../support/process.ts';
import { keptRecords, usedOf } from '../support/stored-records.ts';
import { startUpstream } from '../support/upstream.ts';
import { until, watchdog } from '../support/watchdog.ts';
import { fullDisk } from './full-disk.ts';

const CALLERS = 12;
const WRITERS = 2;
/** Longer than anything takes here on a slow machine. */
const ANSWER_MS = 30_000;

const { values: options } = parseArgs({
  options: {
    kills: { type: 'string', default: '100' },
    store: { type: 'string', default: 'both' },
    seed: { type: 'string' },
  },
});
const kills = Number(options.kills);
const seed = Number(options.seed ?? Math.floor(performance.timeOrigin) % 1_000_000);

/** A small seeded generator: a failing run can be repeated. */
function random(start: number): () => number {
  let state = start >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

process.on('exit', killAll);
const watch = watchdog('chaos', () => server?.err.slice(-2000) ?? '');
let server: ServerProcess | null = null;

const CHUNK =
  'data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n';
const FINISH =
  'data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n';
const ANSWER = JSON.stringify({
  id: 'c',
  object: 'chat.completion',
  model: 'gpt-4',
  choices: [{ index: 0, message: { role: 'assistant', content: 'hello' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 },
});

const upstream = await startUpstream((request, response) => {
  if (!request.body.includes('"stream":true')) {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(ANSWER);
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  let sent = 0;
  const timer = setInterval(() => {
    if (sent++ < 5) {
      response.write(CHUNK);
      return;
    }
    clearInterval(timer);
    response.write(FINISH);
    response.end('data: [DONE]\n\n');
  }, 5);
  response.on('close', () => clearInterval(timer));
});

function start(dataDir: string, databaseUrl: string | null): Promise<ServerProcess> {
  const env = {
    SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}`,
    SLUICE_ADMIN_REQUESTS_PER_MINUTE: '1000000',
    ...(databaseUrl === null ? {} : { SLUICE_DATABASE_URL: databaseUrl }),
  };
  return startReady(dataDir, env, ['stderr']);
}

async function run(name: 'sqlite' | 'postgres', databaseUrl: string | null): Promise<boolean> {
  const began = performance.now();
  const next = random(seed);
  const dataDir = mkdtempSync(join(tmpdir(), 'sluice-chaos-'));
  const completed = new Set<string>();
  const acknowledged = new Set<string>();
  const late: string[] = [];
  let asked = 0;
  let called = 0;
  watch.phase(`${name}: start`);
  let running = await start(dataDir, databaseUrl);
  server = running;
  const first = await readFirstRun(dataDir);
  const headers = { 'x-gateway-api-key': first.workspace_api_key, 'content-type': 'application/json' };

  const policy = {
    name: 'All',
    type: 'cost',
    credit_limit: 1_000_000,
    conditions: [{ key: 'workspace_id', value: '*' }],
    group_by: [{ key: 'workspace_id' }],
    workspace_id: first.workspace_id,
  };
  const limited = await fetch(`${running.url}/v1/policies/usage-limits`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': first.admin_api_key, 'content-type': 'application/json' },
    body: JSON.stringify(policy),
  });
  if (limited.status !== 200) throw new Error(`no policy could be made: ${await limited.text()}`);
  const { id: limitId } = (await limited.json()) as { id: string };

  const call = async (id: string, stream: boolean) => {
    called++;
    const answer = await fetch(`${running.url}/v1/chat/completions`, {
      method: 'POST',
      signal: AbortSignal.timeout(ANSWER_MS),
      headers: {
        ...headers,
        'x-gateway-provider': 'openai',
        authorization: 'Bearer sk-x',
        'x-gateway-custom-host': `${upstream.url}/v1`,
        'x-gateway-trace-id': id,
      },
      body: JSON.stringify({
        model: 'gpt-4',
        ...(stream ? { stream: true } : {}),
        messages: [{ role: 'user', content: id }],
      }),
    });
    const text = await answer.text();
    const whole = stream ? text.endsWith('data: [DONE]\n\n') : text === ANSWER;
    if (answer.status === 200 && whole) completed.add(id);
  };
  const write = async (id: string) => {
    const answer = await fetch(`${running.url}/v1/configs`, {
      method: 'POST',
      signal: AbortSignal.timeout(ANSWER_MS),
      headers,
      body: JSON.stringify({ name: id, config: { retry: { attempts: 1 } } }),
    });
    if (answer.status === 200) acknowledged.add(((await answer.json()) as { slug: string }).slug);
  };

  for (let kill = 0; kill < kills; kill++) {
    watch.phase(`${name}: kill ${kill + 1}`);
    let going = true;
    const loop = async (work: (id: string) => Promise<void>) => {
      while (going) {
        const id = `k${kill}-${asked++}`;
        await work(id).catch((error: Error) => {
          if (error.name === 'TimeoutError') late.push(id);
        });
      }
    };
    const loops = [
      ...Array.from({ length: CALLERS }, (_, i) => loop((id) => call(id, i % 2 === 0))),
      ...Array.from({ length: WRITERS }, () => loop(write)),
    ];
    // Amid the work, however slow the machine.
    const before = [completed.size, acknowledged.size] as const;
    await until(
      ANSWER_MS,
      'an answer and a write',
      () => completed.size > before[0] && acknowledged.size > before[1],
      5,
    );
    // Wakes the keeper, which dies with its server.
    void fetch(`${running.url}/v1/logs`, { headers, signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, next() * 850));
    const killed = stopProcess(running, 'SIGKILL');
    going = false;
    await killed;
    await Promise.all(loops);
    upstream.received.length = 0;
    running = await start(dataDir, databaseUrl);
    server = running;
  }
  watch.phase(`${name}: all records are stored and compared`);

  const missingWrites: string[] = [];
  for (const slug of acknowledged) {
    const answer = await fetch(`${running.url}/v1/configs/${slug}`, {
      headers,
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    watch.progress();
    if (answer.status !== 200) missingWrites.push(slug);
  }
  await stopProcess(running, 'SIGTERM');

  const seen = new Map<string, number>();
  const places = new Set<string>();
  let doublePlaces = 0;
  let cost = 0;
  let dearest = 0;
  for (const record of await keptRecords({ dataDir, databaseUrl }, first.organisation_id, first.workspace_id)) {
    const trace = String(record.trace_id);
    seen.set(trace, (seen.get(trace) ?? 0) + 1);
    const place = `${record.node}/${record.seq}`;
    if (places.has(place)) doublePlaces += 1;
    places.add(place);
    cost += Number(record.cost_micros ?? 0);
    dearest = Math.max(dearest, Number(record.cost_micros ?? 0));
  }
  const counted = await usedOf({ dataDir, databaseUrl }, limitId);
  rmSync(dataDir, { recursive: true, force: true });

  const missing = [...completed].filter((id) => !seen.has(id));
  const doubled = [...seen].filter(([, count]) => count > 1).length + doublePlaces;
  // Prices of whole micro-dollars a token: nothing is rounded. A kill between the two journals leaves a cost without its record.
  const unbooked = Math.max(0, cost - counted);
  const surplus = Math.max(0, counted - cost - (called - completed.size) * dearest);
  const pass =
    unbooked === 0 &&
    surplus === 0 &&
    cost > 0 &&
    missing.length === 0 &&
    late.length === 0 &&
    doubled === 0 &&
    missingWrites.length === 0 &&
    completed.size > kills &&
    acknowledged.size > 0;
  const seconds = Math.round((performance.now() - began) / 1000);
  const line = (id: string, value: number, n: number) =>
    process.stdout.write(
      `${JSON.stringify({ id, value, goal: 0, pass: value === 0, n, seconds, seed, store: name, kills })}\n`,
    );
  line('acknowledged administration writes lost', missingWrites.length, acknowledged.size);
  line('completed answers without a record', missing.length, completed.size);
  line('records stored twice', doubled, seen.size);
  line('micro-dollars of the logs that the ledger lacks', unbooked, cost);
  line('micro-dollars of the ledger beyond logs and requests that were cut off', surplus, counted);
  line('requests that were not answered', late.length, asked);
  if (!pass)
    process.stdout.write(
      `missing: ${missing.slice(0, 10).join(' ')} writes: ${missingWrites.slice(0, 10).join(' ')}\n`,
    );
  return pass;
}

const results: boolean[] = [];
if (options.store !== 'postgres') {
  results.push(await run('sqlite', null));
}
if (options.store !== 'sqlite') {
  const { startPostgres } = await import('../support/postgres-server.ts');
  const postgres = await startPostgres();
  try {
    const url = await postgres.database();
    results.push(await run('postgres', url));
  } finally {
    await postgres.stop();
  }
}
await upstream.stop();
watch.phase('full disk', 300_000);
results.push(await fullDisk(Math.min(5, Math.ceil(kills / 3))));
const failed = results.filter((pass) => !pass).length;
process.stdout.write(`chaos: ${results.length - failed} passed, ${failed} failed\n`);
process.exit(failed === 0 ? 0 : 1);
