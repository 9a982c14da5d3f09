/**
 * `npm run bench`: CPU µs per request, p50/p99 and resident memory of Sluice beside a bare proxy, the Portkey gateway
 * and nginx, and of Sluice under saved configs, from interleaved rounds. CPU per request is the stable figure; trust
 * ratios more than absolutes.
 *
 *   npm run bench                     all, 6 rounds (about 7 minutes)
 *   npm run bench -- --rounds 2       shorter
 *   npm run bench -- --only base,sluice --scenarios 1k
 *   npm run bench -- --only base,config,fallback,conditional,loadbalance,cache-hit,cache-miss,semantic-off
 *   npm run bench -- --only base,sluice --against ../before   the same rows of another checkout beside these
 *   npm run bench -- --only base,sluice,logs   what it costs to keep bodies of requests
 *   npm run bench -- --soak 1000000   memory of Sluice over many requests
 */
import { execFileSync, fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { watchdog } from '../server/test/support/watchdog.ts';
import type { Job, Result } from './load.ts';
import {
  CONFIG_NAMES,
  type Contender,
  canPin,
  HERE,
  portOf,
  start,
  startBase,
  startConfigs,
  startNginx,
  startPortkey,
  startSluice,
  stopChild,
} from './proxies.ts';

interface Scenario {
  readonly name: string;
  readonly connections: number;
  readonly requests: number;
  /** Requests before anything is measured: until then the compiler, not the proxy, is what costs. */
  readonly warmUp: number;
  /** Times the base at most, by the name of a row. */
  readonly goals: Readonly<Record<string, number>>;
  body(model: string): string;
}

const text = (bytes: number) =>
  'Please explain what a sluice is, "in plain words".\n'.repeat(Math.ceil(bytes / 50)).slice(0, bytes);
const chat = (model: string, bytes: number, stream: boolean) =>
  JSON.stringify({
    model,
    ...(stream ? { stream: true } : {}),
    temperature: 0.2,
    messages: [
      { role: 'system', content: 'You are a helpful assistant.' },
      { role: 'user', content: text(bytes) },
    ],
  });

/** A long conversation: `turns` messages of a kilobyte of prose each. */
const conversation = (model: string, turns: number) =>
  JSON.stringify({
    model,
    temperature: 0.2,
    messages: Array.from({ length: turns }, (_, i) => ({
      role: i % 2 === 0 ? 'user' : 'assistant',
      content: PROSE.repeat(5).slice(i % 50, 980 + (i % 50)),
    })),
  });
const PROSE = `A sluice is a water channel that is controlled at its head by a gate. Gates have led water to mills, fields
and canals since antiquity; the gate decides how much may pass, when, and for whom. "Who keeps the gate?" was asked in
every valley.\n`;

const SCENARIOS: readonly Scenario[] = [
  {
    name: '1k',
    connections: 64,
    requests: 8000,
    warmUp: 32_000,
    goals: { sluice: 2, config: 2, 'semantic-off': 2 },
    body: (model) => chat(model, 850, false),
  },
  {
    name: '100k',
    connections: 16,
    requests: 1500,
    warmUp: 6000,
    goals: { sluice: 1 },
    body: (model) => conversation(model, 100),
  },
  {
    name: 'stream',
    connections: 64,
    requests: 512,
    warmUp: 2560,
    goals: { sluice: 1.3 },
    body: (model) => chat(model, 850, true),
  },
];

function option(name: string): string | undefined {
  const at = process.argv.indexOf(`--${name}`);
  return at === -1 ? undefined : process.argv[at + 1];
}

const only = option('only')?.split(',');
const NAMES = ['base', 'sluice', 'logs', ...CONFIG_NAMES, 'portkey', 'nginx'];
for (const name of only ?? []) if (!NAMES.includes(name)) throw new Error(`no row ${name}: ${NAMES.join(', ')}`);

const TICK_US = 1_000_000 / Number(execFileSync('getconf', ['CLK_TCK']).toString());

/** User and system time of all threads of a process so far, microseconds. */
function cpu(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * TICK_US;
}

function rss(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1024;
}

const median = (values: readonly number[]) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

const watch = watchdog('bench');
/** The longest job of the load on a slow machine. */
const JOB_MS = 300_000;

const loader = fork(fileURLToPath(new URL('./load.ts', import.meta.url)), { stdio: 'inherit' });
if (canPin) execFileSync('taskset', ['-acp', '1', String(loader.pid)], { stdio: 'ignore' });
const load = (job: Job) =>
  new Promise<Result>((resolve) => {
    loader.once('message', (result) => {
      watch.progress();
      resolve(result as Result);
    });
    loader.send(job);
  });
const job = (proxy: Contender, scenario: Scenario, requests: number): Job => ({
  port: proxy.port,
  path: proxy.path,
  headers: proxy.headers,
  ...bodyOf(proxy, scenario),
  connections: scenario.connections,
  requests,
});

/** Words of the small body that take a number. */
const PLACE = 'Please exp';
let numbered = 0;

/** The same body for all requests, or one that each writes its own number into. */
function bodyOf(proxy: Contender, scenario: Scenario): Pick<Job, 'body' | 'count'> {
  const body = scenario.body(proxy.model);
  if (proxy.distinct !== true) return { body };
  numbered += 1_000_000;
  return { body, count: { at: body.indexOf(PLACE), digits: PLACE.length, from: numbered } };
}

watch.phase('start');
const upstreamProcess = start(1, [process.execPath, 'bench/upstream.ts']);
const upstream = await portOf(upstreamProcess);
const wanted = (name: string) => only === undefined || only.includes(name);
const proxies: Contender[] = [];
if (wanted('base')) proxies.push(await startBase(upstream));
const against = option('against');
for (const from of against === undefined ? [HERE] : [{ root: resolve(against), suffix: ' before' }, HERE]) {
  for (const name of ['sluice', 'logs'] as const) {
    if (wanted(name)) proxies.push(await startSluice(upstream, from, name));
  }
  proxies.push(...(await startConfigs(upstream, wanted, from)));
}
for (const [name, open] of [
  ['portkey', startPortkey],
  ['nginx', startNginx],
] as const) {
  if (!wanted(name)) continue;
  const proxy = await open(upstream);
  if (proxy === null) console.log(`${name}: not available here, left out`);
  else proxies.push(proxy);
}

const soak = option('soak');
try {
  if (soak === undefined) await compare();
  else await memory(Number(soak));
} finally {
  for (const proxy of proxies) await proxy.stop();
  await stopChild(upstreamProcess);
  loader.kill();
}

async function compare(): Promise<void> {
  const rounds = Number(option('rounds') ?? 6);
  const scenarios = SCENARIOS.filter((scenario) => option('scenarios')?.split(',').includes(scenario.name) ?? true);
  console.log(
    `${cpus()[0]?.model ?? 'cpu'}, Node.js ${process.versions.node}, ${rounds} interleaved rounds, medians${canPin ? ', proxy on a core of its own' : ''}\n`,
  );
  for (const scenario of scenarios) {
    const samples = new Map<
      Contender,
      { us: number[]; p50: number[]; p99: number[]; first: number[]; rps: number[]; failures: number }
    >();
    const warm = new Set<number>();
    watch.phase(scenario.name, JOB_MS);
    for (const proxy of proxies) {
      if (proxy.small === true && scenario.name !== '1k') continue;
      samples.set(proxy, { us: [], p50: [], p99: [], first: [], rps: [], failures: 0 });
      // A second row of a process finds most of the code compiled.
      await load(job(proxy, scenario, warm.has(proxy.pid) ? scenario.warmUp / 4 : scenario.warmUp));
      warm.add(proxy.pid);
    }
    if (samples.size === 0) continue;
    for (let round = 0; round < rounds; round++) {
      for (const [proxy, sample] of samples) {
        const before = cpu(proxy.pid);
        const result = await load(job(proxy, scenario, scenario.requests));
        // What follows a request (journal to store) belongs to it.
        await new Promise((resolve) => setTimeout(resolve, 600));
        sample.us.push((cpu(proxy.pid) - before) / result.requests);
        sample.p50.push(result.p50);
        sample.p99.push(result.p99);
        sample.first.push(result.first50);
        sample.rps.push(result.requests / result.seconds);
        sample.failures += result.failures;
      }
    }
    const direct = await load({
      port: upstream,
      path: '/v1/chat/completions',
      headers: {},
      body: scenario.body('gpt-4o-mini'),
      connections: scenario.connections,
      requests: scenario.requests,
    });
    const base = [...samples].find(([proxy]) => proxy.name === 'base')?.[1];
    const sluice = [...samples].find(([proxy]) => proxy.name === 'sluice')?.[1];
    console.log(`${scenario.name}: ${scenario.requests} requests, ${scenario.connections} at a time`);
    console.log(
      `${'proxy'.padEnd(20)}${'CPU µs'.padStart(9)}${'to base'.padStart(9)}${'goal'.padStart(9)}${'req/s'.padStart(9)}${'p50 ms'.padStart(9)}${'p99 ms'.padStart(9)}${'first ms'.padStart(10)}${'RSS MB'.padStart(9)}${'failed'.padStart(8)}`,
    );
    console.log(
      `${'(direct)'.padEnd(20)}${''.padStart(36)}${direct.p50.toFixed(1).padStart(9)}${direct.p99.toFixed(1).padStart(9)}${direct.first50.toFixed(1).padStart(10)}`,
    );
    for (const [proxy, sample] of samples) {
      const us = median(sample.us);
      const goal = base ? scenario.goals[proxy.name] : undefined;
      console.log(
        `${proxy.name.padEnd(20)}${us.toFixed(0).padStart(9)}${(base ? (us / median(base.us)).toFixed(2) : '-').padStart(9)}${(goal?.toFixed(2) ?? '').padStart(9)}${median(sample.rps).toFixed(0).padStart(9)}${median(sample.p50).toFixed(1).padStart(9)}${median(sample.p99).toFixed(1).padStart(9)}${median(sample.first).toFixed(1).padStart(10)}${rss(proxy.pid).toFixed(0).padStart(9)}${String(sample.failures).padStart(8)}`,
      );
    }
    if (sluice) {
      for (const [proxy, sample] of samples) {
        if (sample === sluice || proxy.small === true) continue;
        if (sample.failures > 0) {
          console.log(`  sluice against ${proxy.name}: not comparable, ${sample.failures} of its requests failed`);
          continue;
        }
        const ratio = median(sample.us.map((us, round) => us / (sluice.us[round] ?? us)));
        console.log(`  sluice against ${proxy.name}: ${(1 / ratio).toFixed(2)} × its CPU (${ratio.toFixed(2)} × less)`);
      }
    }
    console.log('');
  }
}

/** Resident memory of every proxy in steps over many small requests: flat is what it should be. */
async function memory(requests: number): Promise<void> {
  const scenario = SCENARIOS[0];
  if (scenario === undefined) return;
  const steps = 10;
  for (const proxy of proxies) {
    const points: string[] = [];
    watch.phase(`memory of ${proxy.name}`, JOB_MS);
    for (let step = 0; step < steps; step++) {
      await load(job(proxy, scenario, Math.ceil(requests / steps)));
      points.push(rss(proxy.pid).toFixed(0));
    }
    console.log(`${proxy.name}: RSS MB after each tenth of ${requests} requests: ${points.join(' ')}`);
  }
}
