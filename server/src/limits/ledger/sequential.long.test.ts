import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  booksStore,
  buckets,
  emptyBooks,
  LONG,
  ledgerNode,
  limitSpecWith,
  NOTHING,
} from '../../../test/support/ledger-node.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Tables } from '../../store/ports.ts';

/** As `compose/spools.ts` has it: settled usage waits this long before the store has it, unless a request asks. */
const SETTLE_MS = 20;
/** Many times that, as the machine may be busy with other tests. */
const OTHERS_MS = 250;

/** Estimates that are up to twenty times the truth, and limits of a few requests up to some dozens. */
const course = fc
  .record({
    truths: fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 12 }),
    factor: fc.integer({ min: 1, max: 20 }),
    requests: fc.integer({ min: 1, max: 30 }),
    bounded: fc.boolean(),
    nodes: fc.array(fc.nat(1), { minLength: 3, maxLength: 12 }),
  })
  .map(({ truths, factor, requests, ...rest }) => {
    const truth = (n: number) => truths[n % truths.length] ?? 1;
    let limit = 0;
    for (let n = 0; n < requests; n++) limit += truth(n);
    return { ...rest, truth, estimate: (n: number) => truth(n) * factor, limit, requests };
  });
type Course = typeof course extends fc.Arbitrary<infer T> ? T : never;

/** Sends one request after another, each as the one before it has ended, until one is refused. What was used by then. */
async function sendAll(tables: Tables, { truth, estimate, limit, bounded }: Course, nodeOf: (n: number) => number) {
  const nodes = [0, 1].map((n) => ledgerNode(tables, { name: String(n), everyMs: SETTLE_MS, othersMs: OTHERS_MS }));
  const spec = limitSpecWith({ type: 'cost', limit });
  let used = 0;
  let n = 0;
  try {
    for (; n < 1000; n++) {
      const node = await (nodes[nodeOf(n)] as (typeof nodes)[number]);
      const settle = await node.reserve([{ spec, amount: estimate(n), bounded }]);
      await settle({ ...NOTHING, cost: truth(n), requests: 1 });
      used += truth(n);
    }
  } catch (error) {
    if (!(error instanceof SluiceError) || error.kind !== 'usage_limit_exceeded') throw error;
    return { used, admitted: n, message: error.message };
  } finally {
    for (const node of nodes) await (await node).close();
    expect((await buckets(tables))[0]).toMatchObject({ used, reserved: 0 });
  }
  throw new Error('nothing was refused');
}

it('who sends one request after another gets exactly what the limit allows, however high the estimates', async () => {
  const tables = await booksStore('sqlite');
  await fc.assert(
    fc.asyncProperty(course, async (one) => {
      try {
        const { used, admitted, message } = await sendAll(tables, one, () => 0);
        expect([used, admitted]).toEqual([one.limit, one.requests]);
        expect(message).toContain('is used up');
      } finally {
        await emptyBooks(tables);
      }
    }),
    { numRuns: LONG ? 200 : 10 },
  );
  await tables.close();
}, 600_000);

it('on two nodes in turn he gets all of it but a hundredth at most', async () => {
  const tables = await booksStore('sqlite');
  await fc.assert(
    fc.asyncProperty(course, async (one) => {
      try {
        const { used } = await sendAll(tables, one, (n) => one.nodes[n % one.nodes.length] ?? 0);
        expect(used).toBeGreaterThanOrEqual(0.99 * one.limit);
        expect(used).toBeLessThanOrEqual(one.limit);
      } finally {
        await emptyBooks(tables);
      }
    }),
    { numRuns: LONG ? 200 : 10 },
  );
  await tables.close();
}, 600_000);
