/**
 * Small requests from a process of their own, one after another with a rest between them, and how long the server kept each: for
 * `slow/neighbour.ts`.
 */
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { setTimeout as rest } from 'node:timers/promises';

const SMALL = '{"model":"@sandbox/echo","messages":[{"role":"user","content":"Hi"}]}';
const agent = new Agent({ keepAlive: true });

export interface NeighbourOrder {
  readonly url: string;
  readonly key: string;
  readonly pid: number;
  readonly calls: number;
  /** Milliseconds between two of them, at most; each rest is another part of it, so that they keep no step with anything. */
  readonly restMs: number;
}

/** Milliseconds: of CPU that the main thread of a process has had, and for which it waited for a processor. */
function scheduled(pid: number | 'self'): { ran: number; waited: number } {
  if (process.platform !== 'linux') return { ran: performance.now(), waited: 0 };
  const [ran, waited] = readFileSync(`/proc/${pid}/schedstat`, 'latin1').split(' ');
  return { ran: Number(ran) / 1e6, waited: Number(waited) / 1e6 };
}

/**
 * Milliseconds for which the server kept one request: what its main thread did until the answer was here, or the time that passed
 * in which neither it nor this process waited for a processor. Both are too long at times, so the shorter one counts.
 */
function call({ url, key, pid }: NeighbourOrder): Promise<number> {
  const own = scheduled('self');
  const before = scheduled(pid);
  const start = performance.now();
  return new Promise((resolve, reject) => {
    const headers = { 'x-gateway-api-key': key, 'content-type': 'application/json' };
    const sent = request(`${url}/v1/chat/completions`, { method: 'POST', agent, headers }, (response) => {
      response.resume();
      response.on('end', () => {
        const passed = performance.now() - start;
        const after = scheduled(pid);
        const waited = after.waited - before.waited + scheduled('self').waited - own.waited;
        if (response.statusCode === 200) resolve(Math.min(after.ran - before.ran, passed - waited));
        else reject(new Error(`the neighbour got ${response.statusCode}`));
      });
    });
    sent.on('error', reject);
    sent.end(SMALL);
  });
}

process.on('message', (order: NeighbourOrder | 'exit') => {
  if (order === 'exit') process.exit(0);
  void (async () => {
    const all: number[] = [];
    for (let i = 0; i < order.calls; i++) {
      all.push(await call(order));
      await rest((order.restMs * ((i * 7) % 11)) / 10);
    }
    process.send?.({ all });
  })();
});
process.send?.('ready');
