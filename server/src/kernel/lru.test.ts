import { describe, expect, it } from 'vitest';
import { Lru } from './lru.ts';

describe('Lru', () => {
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
});
