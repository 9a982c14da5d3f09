import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FakeUpstream, startUpstream } from './support/upstream.ts';

const keys = (count: number): string => Array.from({ length: count }, (_, i) => `"${i.toString(36)}":1`).join(',');

let upstream: FakeUpstream;
let child: ChildProcess;
let url = '';
let key = '';
const agent = new Agent({ keepAlive: true });

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => {
    response.end();
  });
  child = fork(
    fileURLToPath(new URL('./support/children/loop-server.ts', import.meta.url)),
    [JSON.stringify({ port: upstream.port })],
    { execArgv: ['--max-semi-space-size=8'] },
  );
  const [{ url: at, key: own }] = (await once(child, 'message')) as [{ url: string; key: string }];
  url = at;
  key = own;
}, 60_000);

afterAll(async () => {
  agent.destroy();
  if (child?.connected) {
    const ended = once(child, 'exit');
    child.send('stop');
    await ended;
  }
  await upstream?.stop();
});

/** Milliseconds until the sandbox has answered one small request. */
function small(): Promise<number> {
  const start = performance.now();
  return new Promise((resolve, reject) => {
    const headers = { 'x-gateway-api-key': key, 'content-type': 'application/json' };
    const call = request(`${url}/v1/chat/completions`, { method: 'POST', agent, headers }, (response) => {
      response.resume();
      response.on('end', () => resolve(performance.now() - start));
    });
    call.on('error', reject);
    call.end('{"model":"@sandbox/echo","messages":[{"role":"user","content":"Hi"}]}');
  });
}

async function waits(count: number): Promise<{ p50: number; p99: number }> {
  const all: number[] = [];
  for (let i = 0; i < count; i++) all.push(await small());
  all.sort((a, b) => a - b);
  return { p50: all[Math.floor(count / 2)] ?? 0, p99: all[Math.floor(count * 0.99)] ?? 0 };
}

async function attack(body: string): Promise<void> {
  const answer = await fetch(`${url}/v1/messages`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': key, 'x-gateway-provider': '@openai', 'content-type': 'application/json' },
    body,
  });
  await answer.text().catch(() => '');
  upstream.received.length = 0;
}

const SMALL = '{"model":"m","messages":[],"max_tokens":9}';
const answering = (type: string, part: string): void => {
  upstream.answer = (_request, response) => {
    response.writeHead(200, { 'content-type': type });
    response.end(part);
  };
};

/**
 * What once held everybody up, for so many seconds. Bodies of requests are measured in `loop-delay.test.ts`: here the sender would
 * hold itself up.
 */
const ATTACKS: readonly { what: string; seconds: number; body: string; type: string; answer: string }[] = [
  { what: 'an answer of 4.9 million keys', seconds: 11.7, count: 4_900_000, type: 'application/json' },
  { what: 'an answer of 1.5 million keys', seconds: 2.7, count: 1_500_000, type: 'application/json' },
  { what: 'events of 800,000 keys', seconds: 2, count: 800_000, type: 'text/event-stream' },
].map(({ count, ...attack }) => {
  const object = `{${keys(count)}}`;
  const streamed = attack.type === 'text/event-stream';
  const body = streamed ? `${SMALL.slice(0, -1)},"stream":true}` : SMALL;
  return { ...attack, body, answer: streamed ? `data: ${object}\n\n`.repeat(4) : object };
});

describe('other callers wait as long as ever while one sends', () => {
  it.each(ATTACKS)(
    '$what, which once took $seconds s',
    async ({ what, body, type, answer }) => {
      answering(type, answer);
      await waits(100);
      const alone = await waits(200);
      let running = true;
      const attacking = (async () => {
        while (running) await attack(body);
      })();
      const beside = await waits(200);
      running = false;
      await attacking;
      if (process.env.SLUICE_SHOW_DELAYS !== undefined)
        process.stderr.write(`${what.padEnd(32)} ${JSON.stringify({ alone, beside })}\n`);
      // One turn may last 20 ms, and this test and what it attacks share a machine.
      expect(beside.p99).toBeLessThan(Math.max(2 * alone.p99, alone.p99 + 150));
    },
    120_000,
  );
});
