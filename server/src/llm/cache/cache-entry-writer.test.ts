import { describe, expect, it } from 'vitest';
import { BodyBudget } from '../../http/body-budget.ts';
import { CacheEntryWriter } from './cache-entry-writer.ts';

const MIB = 1024 * 1024;
const HEAD = ['Content-Type', 'application/json'];
const key = { place: 'p', secret: Buffer.alloc(32) };

function caching(budget = new BodyBudget(64 * MIB)) {
  return { budget, one: new CacheEntryWriter(key, 60_000, 'MISS', budget, 'org') };
}

describe('an answer that is kept on its way', () => {
  it('is whole when one try began and ended it, and what it held is given back', () => {
    const { budget, one } = caching();
    one.begin(1, 200, HEAD);
    one.take(Buffer.alloc(MIB, 'a'));
    one.take(Buffer.from('b'));
    expect(budget.held).toBe(MIB + 1);
    expect(one.whole(1)).toMatchObject({ contentType: 'application/json', body: { length: MIB + 1 } });
    one.drop();
    one.drop();
    expect(budget.held).toBe(0);
    expect(one.whole(1)).toBeNull();
  });

  it.each<[string, (one: CacheEntryWriter) => void]>([
    ['that another try ended', () => {}],
    ['of which another try began anew', (one) => one.begin(2, 200, HEAD)],
    ['that is no success', (one) => one.begin(2, 500, HEAD)],
    ['that is larger than 4 MiB', (one) => one.take(Buffer.alloc(4 * MIB))],
  ])('is none %s', (_what, happens) => {
    const { budget, one } = caching();
    one.begin(1, 200, HEAD);
    one.take(Buffer.alloc(100_000));
    happens(one);
    expect(one.whole(2)).toBeNull();
    one.take(Buffer.alloc(100_000));
    one.drop();
    expect(budget.held).toBe(0);
  });

  it('is none where bodies hold too much already, or where nobody knows what it is', () => {
    const { budget, one } = caching(new BodyBudget(2 * MIB));
    one.begin(1, 200, HEAD);
    one.take(Buffer.alloc(2 * MIB));
    expect([one.whole(1), budget.held]).toEqual([null, 0]);
    const unknown = caching().one;
    unknown.begin(1, 200, ['x-other', 'a']);
    unknown.take(Buffer.from('a'));
    expect(unknown.whole(1)).toBeNull();
  });

  it('of exactly 4 MiB is one', () => {
    const { one } = caching();
    one.begin(1, 200, HEAD);
    one.take(Buffer.alloc(4 * MIB));
    expect(one.whole(1)?.body.length).toBe(4 * MIB);
  });
});
