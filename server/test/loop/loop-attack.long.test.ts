import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

/** Times that one attack is measured: the best counts, or a machine that is busy with something else would fail it. */
const TRIES = 4;
const CALLS = 400;
/** Milliseconds that a caller may wait longer: beside requests that are converted, and beside what is passed on or answered. */
const MORE = { converted: 15, other: 20 };
const OTHER = /^an answer|^events|passed$/;
const shows = process.env.SLUICE_SHOW_DELAYS !== undefined;

let attacker: ChildProcess;
let server: ChildProcess;
let url = '';
let key = '';
let other = '';
const agent = new Agent({ keepAlive: true });

const child = (name: string, ...args: string[]): ChildProcess =>
  fork(fileURLToPath(new URL(`../support/children/${name}.ts`, import.meta.url)), args);

async function told<T>(of: ChildProcess, order: string | object): Promise<T> {
  const answer = once(of, 'message');
  of.send(order);
  return (await answer)[0] as T;
}

beforeAll(async () => {
  attacker = child('loop-attacker');
  const [{ port }] = (await once(attacker, 'message')) as [{ port: number }];
  server = child('loop-server', JSON.stringify({ port }));
  [{ url, key, other }] = (await once(server, 'message')) as [{ url: string; key: string; other: string }];
}, 60_000);

afterAll(async () => {
  agent.destroy();
  for (const [one, order] of [
    [attacker, 'exit'],
    [server, 'stop'],
  ] as const) {
    if (!one?.connected) continue;
    const ended = once(one, 'exit');
    one.send(order);
    await ended;
  }
});

/**
 * Milliseconds of CPU that the server's main thread has had: what it does while a caller waits is what that caller waits for. Unlike
 * the time on a clock it does not grow with what else the machine does. Elsewhere than on Linux, the clock.
 */
function serverTime(): number {
  if (process.platform !== 'linux') return performance.now();
  return Number(readFileSync(`/proc/${server.pid}/schedstat`, 'latin1').split(' ')[0]) / 1e6;
}

/** What the server did until the sandbox had answered one small request of another organisation than the attacker's. */
function small(clock: () => number): Promise<number> {
  const start = clock();
  return new Promise((resolve, reject) => {
    const headers = { 'x-gateway-api-key': key, 'content-type': 'application/json' };
    const call = request(`${url}/v1/chat/completions`, { method: 'POST', agent, headers }, (response) => {
      response.resume();
      response.on('end', () => {
        if (response.statusCode === 200) resolve(clock() - start);
        else reject(new Error(`The victim got ${response.statusCode}`));
      });
    });
    call.on('error', reject);
    call.end('{"model":"@sandbox/echo","messages":[{"role":"user","content":"Hi"}]}');
  });
}

interface Waits {
  readonly p50: number;
  readonly p99: number;
}

async function waits(clock: () => number): Promise<Waits> {
  const all: number[] = [];
  for (let i = 0; i < CALLS; i++) all.push(await small(clock));
  all.sort((a, b) => a - b);
  const at = (part: number) => Math.round((all[Math.floor(CALLS * part)] ?? 0) * 10) / 10;
  return { p50: at(0.5), p99: at(0.99) };
}

/** What once held everybody up for seconds, and what is largest; `loop-attacker.ts` knows each. */
const ATTACKS = [
  'empty arrays',
  'long integers',
  'empty texts',
  'texts with escapes',
  'one text',
  'one text, passed',
  'one text of escapes',
  'an answer of 4.9 million keys',
  'an answer of 1.5 million keys',
  'an answer of 15 MB of text',
  'events of 800,000 keys',
];

describe('a caller waits as long as ever while another organisation sends', () => {
  it.each(ATTACKS)(
    '%s',
    async (what) => {
      const more = OTHER.test(what) ? MORE.other : MORE.converted;
      const bar = (alone: number) => Math.max(2 * alone, alone + more);
      const measured: { alone: Waits; beside: Waits }[] = [];
      const holds = () =>
        measured.some(({ alone, beside }) => beside.p50 <= bar(alone.p50) && beside.p99 <= bar(alone.p99));
      for (let i = 0; i < TRIES && !holds(); i++) {
        await waits(serverTime);
        const alone = await waits(serverTime);
        await told(attacker, { start: what, url, key: other });
        const beside = await waits(serverTime);
        const wall = shows ? await waits(() => performance.now()) : null;
        const { seen } = await told<{ seen: object }>(attacker, { stop: true });
        measured.push({ alone, beside });
        if (shows) process.stderr.write(`${what.padEnd(32)} ${JSON.stringify({ alone, beside, wall, seen })}\n`);
      }
      expect(holds(), JSON.stringify(measured)).toBe(true);
    },
    240_000,
  );
});
