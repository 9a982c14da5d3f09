/** How long the largest and the heaviest bodies hold the event loop, for every operation of the table that takes a body. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LoopServer, startLoopServer } from '../support/loop.ts';
import { sampled } from '../support/sampled.ts';
import { casesOf, TAKING_BODIES } from './operation-cases.ts';

/** Milliseconds of CPU for which one turn of the event loop may last. */
const BAR = 20;

let loop: LoopServer;
beforeAll(async () => {
  loop = await startLoopServer();
}, 60_000);
afterAll(async () => loop?.stop());

describe('the event loop is not held for longer than 20 ms by', () => {
  it.each(sampled(TAKING_BODIES.flatMap(casesOf), ({ title }) => title))(
    '$title',
    async (one) => {
      expect(await loop.measured({ ...one, body: one.body() }, BAR)).toBeLessThan(BAR);
    },
    120_000,
  );
});
