import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Lru } from './lru.ts';

describe('Lru', () => {
  it('can be emptied while its entries are walked', () => {
    const lru = new Lru<number, number>({ maxEntries: 5 });
    for (let i = 0; i < 5; i++) lru.set(i, i);
    for (const [key] of lru.entries()) if (key !== 3) lru.delete(key);
    expect(lru.entries()).toEqual([[3, 3]]);
  });

  it('forgets what was not used for longest', () => {
    const lru = new Lru<string, number>({ maxEntries: 2 });
    lru.set('a', 1);
    lru.set('b', 2);
    expect(lru.get('a')).toBe(1);
    lru.set('c', 3);
    expect(lru.get('b')).toBeUndefined();
    expect([...lru.entries()]).toEqual([
      ['a', 1],
      ['c', 3],
    ]);
    lru.peek('a');
    lru.set('d', 4);
    expect(lru.has('a')).toBe(false);
  });

  it('keeps the sum of weights under its bound and drops what is too heavy by itself', () => {
    const lru = new Lru<string, string>({ maxEntries: 10, maxWeight: 10, weigh: (value) => value.length });
    lru.set('a', 'xxxx');
    lru.set('b', 'xxxx');
    lru.set('c', 'xxxx');
    expect(lru.weight).toBe(8);
    expect(lru.has('a')).toBe(false);
    lru.set('b', 'x');
    expect(lru.weight).toBe(5);
    lru.set('c', 'x'.repeat(11));
    expect(lru.has('c')).toBe(false);
    expect(lru.weight).toBe(1);
    expect(lru.delete('b')).toBe(true);
    expect(lru.delete('b')).toBe(false);
    lru.set('z', 'z');
    lru.clear();
    expect([lru.size, lru.weight]).toEqual([0, 0]);
  });

  it('keeps its order whatever is used, replaced and deleted, like a list that is sorted by last use', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.constantFrom('get', 'set', 'delete', 'peek'), fc.nat(7)), { maxLength: 60 }),
        (steps) => {
          const lru = new Lru<number, number>({ maxEntries: 5, maxWeight: 14, weigh: (value) => value });
          let model: number[] = [];
          const sum = () => model.reduce((total, value) => total + value, 0);
          for (const [step, value] of steps) {
            const has = model.includes(value);
            if (step === 'peek') expect(lru.peek(value)).toBe(has ? value : undefined);
            else if (step === 'delete') expect(lru.delete(value)).toBe(has);
            else if (step === 'get') expect(lru.get(value)).toBe(has ? value : undefined);
            else lru.set(value, value);
            if (step !== 'peek') model = model.filter((one) => one !== value);
            if (step === 'set' || (step === 'get' && has)) model.push(value);
            while (model.length > 5 || sum() > 14) model.shift();
            expect([...lru.entries()].map(([key]) => key)).toEqual(model);
            expect([lru.size, lru.weight]).toEqual([model.length, sum()]);
          }
        },
      ),
    );
  });

  it('makes room at the same cost however much it holds', () => {
    const cost = (entries: number) => {
      const lru = new Lru<number, number>({ maxEntries: entries });
      let next = 0;
      while (next < entries) lru.set(next, next++);
      let least = Number.POSITIVE_INFINITY;
      for (let round = 0; round < 5; round++) {
        const before = process.cpuUsage();
        for (let i = 0; i < 10_000; i++) lru.set(next, next++);
        const { user, system } = process.cpuUsage(before);
        least = Math.min(least, user + system);
      }
      return least;
    };
    cost(1000);
    // What leaves is scattered over more memory; stepping over it would cost a hundred times as much.
    expect(cost(60_000) / cost(1000)).toBeLessThan(20);
  });
});
