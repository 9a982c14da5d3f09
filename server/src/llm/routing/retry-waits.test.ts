/** How long is waited between the tries of a target where the provider does not say: by chance, within bounds, and for nobody. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { eventually } from '../../../test/support/budgets.ts';
import { chat, fails, fallback, type RoutingServer, startRouting, target } from '../../../test/support/routing.ts';
import { type Clock, systemClock } from '../../kernel/clock.ts';

/** Of any second; no other timer of the server has such a part. */
let share = 0;
const SHARE = 0.123456;
const waits: number[] = [];
/** Whether waits are over at once. */
let over = true;
const isWait = (ms: number) => ms > 0 && [1, 2, 4, 8, 16].some((seconds) => ms === share * 1000 * seconds);
const hints = new Set([25_000, 60_000]);
const clock: Clock = {
  ...systemClock,
  after(ms, fn) {
    if (!isWait(ms) && !hints.has(ms)) return systemClock.after(ms, fn);
    waits.push(ms);
    return over ? systemClock.after(0, fn) : () => {};
  },
};

let routing: RoutingServer;
beforeAll(async () => {
  routing = await startRouting({}, { clock, random: () => share });
});
afterAll(() => routing?.stop());
beforeEach(() => {
  routing.reset();
  waits.length = 0;
  over = true;
  share = SHARE;
});

const retrying = (attempts: number, more: object = {}) => ({ ...target('a'), retry: { attempts, ...more } });
const HINTED = { use_retry_after_headers: true };

describe('the wait before another try', () => {
  it('is drawn below 1, 2, 4, 8 and 16 seconds, and after the last try there is none', async () => {
    routing.of('a').answer = fails(503);
    expect(await routing.ask(retrying(5))).toMatchObject({ status: 503, retries: '-1' });
    expect(waits).toEqual([1, 2, 4, 8, 16].map((seconds) => SHARE * 1000 * seconds));
    expect(routing.counts()).toEqual([6, 0, 0]);
  });

  it('is as the provider asks only after 429, and only where the config says so', async () => {
    routing.of('a').answer = fails(503, { 'retry-after': '25' });
    await routing.ask(retrying(1, HINTED));
    routing.of('a').answer = fails(429, { 'retry-after': '25' });
    await routing.ask(retrying(1));
    await routing.ask(retrying(1, HINTED));
    expect(waits).toEqual([SHARE * 1000, SHARE * 1000, 25_000]);
  });

  it.each([
    ['60', 2],
    ['61', 1],
  ])('of %s seconds: %i calls', async (seconds, calls) => {
    routing.of('a').answer = fails(429, { 'retry-after': seconds });
    expect(await routing.ask(retrying(3, HINTED))).toMatchObject({ status: 429 });
    expect(routing.counts()).toEqual([calls, 0, 0]);
  });

  it('is counted for all targets together: after a minute of waits nothing is tried again', async () => {
    for (const name of ['a', 'b']) routing.of(name).answer = fails(429, { 'retry-after': '25' });
    const config = { ...fallback([target('a'), target('b')]), retry: { attempts: 5, ...HINTED } };
    expect(await routing.ask(config)).toMatchObject({ status: 429, path: 'config.targets[1]' });
    // 50 seconds for the first, and no more of them for the second.
    expect(routing.counts()).toEqual([3, 1, 0]);
    expect(waits).toEqual([25_000, 25_000]);
  });

  it('ends when the caller leaves: nothing is called for nobody', async () => {
    over = false;
    routing.of('a').answer = fails(503);
    const leaves = new AbortController();
    const config = JSON.stringify({ ...fallback([target('a'), target('b')]), retry: { attempts: 5 } });
    const answer = fetch(`${routing.server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'x-gateway-api-key': routing.server.first.workspace_api_key,
        'content-type': 'application/json',
        'x-gateway-config': config,
      },
      body: JSON.stringify(chat()),
      signal: leaves.signal,
    }).catch(() => null);
    await eventually(
      () => waits.length,
      (n) => n === 1,
    );
    leaves.abort();
    expect(await answer).toBeNull();
    const [record] = await eventually(
      () => routing.server.records(),
      ([one]) => one?.outcome === 'aborted',
    );
    expect(record).toMatchObject({ outcome: 'aborted', attempts: [{ target: 'config.targets[0]', status: 503 }] });
    expect(routing.counts()).toEqual([1, 0, 0]);
  });
});
