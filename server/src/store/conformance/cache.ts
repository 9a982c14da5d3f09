import { randomBytes, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Cache } from '../ports.ts';

/** The promises of `Cache`. `pass` lets at least `ms` go by for the adapter. */
export function cacheSuite(
  name: string,
  open: () => Promise<{ cache: Cache; pass: (ms: number) => Promise<void>; close?: () => Promise<void> }>,
): void {
  describe(`cache: ${name}`, () => {
    let opened: Awaited<ReturnType<typeof open>>;
    let cache: Cache;
    beforeAll(async () => {
      opened = await open();
      cache = opened.cache;
    });
    afterAll(async () => {
      await cache.close();
      await opened.close?.();
    });

    it('returns what was set, byte for byte, and null for what was not', async () => {
      const key = randomUUID();
      expect(await cache.get(key)).toBeNull();
      for (const value of [Buffer.alloc(0), Buffer.from([0, 255, 10, 13]), randomBytes(300_000)]) {
        await cache.set(key, value, 60_000);
        expect(await cache.get(key)).toEqual(value);
      }
    });

    it('keeps its own copy of a value', async () => {
      const key = randomUUID();
      const value = Buffer.from('before');
      await cache.set(key, value, 60_000);
      value.write('after!');
      expect((await cache.get(key))?.toString()).toBe('before');
    });

    it('forgets a value after its time to live, and at once when that is not positive', async () => {
      const key = randomUUID();
      await cache.set(key, Buffer.from('x'), 30);
      await opened.pass(40);
      expect(await cache.get(key)).toBeNull();
      await cache.set(key, Buffer.from('x'), 60_000);
      await cache.set(key, Buffer.from('y'), 0);
      expect(await cache.get(key)).toBeNull();
    });

    it('deletes, also what is not there', async () => {
      const key = randomUUID();
      await cache.set(key, Buffer.from('x'), 60_000);
      await cache.delete(key);
      await cache.delete(key);
      expect(await cache.get(key)).toBeNull();
    });
  });
}
