/** kill -9 of the keeper while it packs bodies: each body that was in the journal is read afterwards, once and whole. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ErasuresUnderTest, type Place, startErasures, type Written } from '../../test/support/log-erasures.ts';
import { systemClock } from '../kernel/clock.ts';

const ROUNDS = 8;
const REQUESTS = 15;
const PLACES: readonly Place[] = ['before chunk', 'after chunk'];

let under: ErasuresUnderTest;
beforeAll(async () => {
  under = await startErasures('sqlite');
}, 60_000);
afterAll(() => under.close());

const wait = (ms: number) => new Promise<void>((resolve) => systemClock.after(ms, resolve));

/** Packs everything, however often the keeper dies on the way. */
async function packed(): Promise<void> {
  await expect
    .poll(
      async () =>
        under.keeper.flush().then(
          () => 'packed',
          () => 'died',
        ),
      { timeout: 30_000, interval: 20 },
    )
    .toBe('packed');
}

it('loses no body and keeps none twice, wherever the keeper is killed', async () => {
  const written: (Written & { readonly text: string })[] = [];
  let killed = 0;
  const note = (before: number) => {
    killed += Number(under.keeper.restarts > before);
  };
  for (let round = 0; round < ROUNDS; round++) {
    const before = under.keeper.restarts;
    for (let n = 0; n < REQUESTS; n++) {
      const text = JSON.stringify({ round, n, text: `body ${round}.${n} `.repeat(1 + ((round * n) % 50)) });
      written.push({ ...(await under.write(text)), text });
      if (n === 7) under.keeper.wake();
    }
    const place = PLACES[round % 3];
    if (place !== undefined) under.killAt(place);
    const flushed = under.keeper.flush().catch(() => undefined);
    if (place === undefined) {
      // Anywhere between reading the journal and the end of the pack.
      await wait((round * 7) % 40);
      if (under.keeper.pid !== null) process.kill(under.keeper.pid, 'SIGKILL');
    }
    await flushed;
    await packed();
    note(before);
  }
  expect(killed).toBeGreaterThanOrEqual(ROUNDS - 2);
  expect(under.deaths).toEqual([]);
  const { admin } = under;
  for (const { id, text } of written) {
    const { body } = await admin.call('GET', `/v1/logs/${id}`);
    expect([id, body.bodies?.reason, JSON.stringify(body.request?.body)]).toEqual([id, null, text]);
  }
  const chunks = await under.tables.systemRead((tx) => tx.list('body_chunks', {}));
  expect(chunks.reduce((sum, { records }) => sum + records, 0)).toBe(written.length);
}, 120_000);
