/**
 * What small requests wait beside those of another organisation that are as large as may be:
 * `npm run bench:neighbour -- [--bar 2] [--least 3] [--rounds 5] [--calls 400] [--attack <part>] [--profile] [--flags --trace-gc]`.
 *
 * Server, attacker with its provider, and neighbour are processes of their own. Rounds alone and beside an attack follow one
 * another. Fails when beside an attack the 99th percentile of the best round is above `bar` times that of the best round alone,
 * and above `least` milliseconds.
 * `--profile` also shows what held the event loop beside each attack: callbacks above 1 ms, by the function of ours that they began
 * with, what they did longest, and collections of garbage by kind. Sampling slows the server; figures are higher with it.
 * `--flags`: options of Node.js for the server, apart by commas.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { NeighbourOrder } from '../support/children/neighbour.ts';
import { watchdog } from '../support/watchdog.ts';
import { heldBy, type Sampled } from './held-by.ts';

const { values } = parseArgs({
  options: {
    bar: { type: 'string', default: '2' },
    least: { type: 'string', default: '3' },
    rounds: { type: 'string', default: '5' },
    calls: { type: 'string', default: '400' },
    rest: { type: 'string', default: '5' },
    attack: { type: 'string', default: '' },
    profile: { type: 'boolean', default: false },
    flags: { type: 'string', default: '' },
  },
});
const bar = Number(values.bar);
const least = Number(values.least);
const rounds = Number(values.rounds);
const calls = Number(values.calls);

const watch = watchdog('neighbour');
watch.phase('start');
const children: ChildProcess[] = [];
process.on('exit', () => {
  for (const one of children) one.kill('SIGKILL');
});

const child = (name: string, args: string[] = [], execArgv: string[] = []): ChildProcess => {
  const one = fork(fileURLToPath(new URL(`../support/children/${name}.ts`, import.meta.url)), args, { execArgv });
  children.push(one);
  return one;
};

async function told<T>(of: ChildProcess, order: string | object): Promise<T> {
  const answer = once(of, 'message');
  of.send(order);
  const [message] = await answer;
  watch.progress();
  return message as T;
}

const attacker = child('loop-attacker');
const [{ port, attacks }] = (await once(attacker, 'message')) as [{ port: number; attacks: string[] }];
const server = child(
  'loop-server',
  [JSON.stringify({ port })],
  ['--max-semi-space-size=8', ...values.flags.split(',').filter((flag) => flag !== '')],
);
const [{ url, key, other }] = (await once(server, 'message')) as [{ url: string; key: string; other: string }];
const neighbour = child('neighbour');
await once(neighbour, 'message');

interface Round {
  readonly p50: number;
  readonly p99: number;
  readonly most: number;
}

async function round(): Promise<Round> {
  const order: NeighbourOrder = { url, key, pid: server.pid ?? 0, calls, restMs: Number(values.rest) };
  const { all } = await told<{ all: number[] }>(neighbour, order);
  all.sort((a, b) => a - b);
  const at = (part: number) => all[Math.min(all.length - 1, Math.floor(all.length * part))] ?? 0;
  return { p50: at(0.5), p99: at(0.99), most: at(1) };
}

const best = (all: readonly Round[]): Round =>
  all.reduce((least, one) => (one.p99 < least.p99 ? one : least), all[0] as Round);
const shown = ({ p50, p99, most }: Round): string => [p50, p99, most].map((ms) => ms.toFixed(1).padStart(7)).join('');

let broken = 0;
await round();
process.stdout.write(
  `${'ms: p50, p99, most'.padEnd(34)}${'alone'.padStart(16)}${'beside'.padStart(21)}   p99 of rounds\n`,
);
for (const attack of attacks.filter((name) => name.includes(values.attack))) {
  watch.phase(attack);
  const alone: Round[] = [];
  const beside: Round[] = [];
  const seen: Record<string, number> = {};
  for (let i = 0; i < rounds; i++) {
    alone.push(await round());
    await told(attacker, { start: attack, url, key: other });
    if (values.profile) await told(server, 'profile');
    beside.push(await round());
    const sampled = values.profile ? await told<Sampled>(server, 'profiled') : null;
    const end = await told<{ seen: Record<string, number> }>(attacker, { stop: true });
    for (const [status, count] of Object.entries(end.seen)) seen[status] = (seen[status] ?? 0) + count;
    if (sampled !== null && i === rounds - 1) process.stdout.write(heldBy(sampled));
  }
  const holds = best(beside).p99 <= Math.max(least, bar * best(alone).p99);
  if (!holds) broken += 1;
  const each = beside.map(({ p99 }) => p99.toFixed(1)).join(' ');
  process.stdout.write(
    `${attack.padEnd(34)}${shown(best(alone))}${shown(best(beside))}   ${each} ${JSON.stringify(seen)}${holds ? '' : ' BROKEN'}\n`,
  );
}

for (const [one, order] of [
  [attacker, 'exit'],
  [neighbour, 'exit'],
  [server, 'stop'],
] as const) {
  const ended = once(one, 'exit');
  one.send(order);
  await ended;
}
process.exit(broken === 0 ? 0 : 1);
