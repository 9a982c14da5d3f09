import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Counters, WindowHit } from '../ports.ts';

/** The promises of `Counters`. `now` is the adapter's own clock; every test has keys of its own. */
export function countersSuite(
  name: string,
  open: () => Promise<{ counters: Counters; now: () => number; close?: () => Promise<void> }>,
): void {
  describe(`counters: ${name}`, () => {
    let opened: Awaited<ReturnType<typeof open>>;
    let counters: Counters;
    beforeAll(async () => {
      opened = await open();
      counters = opened.counters;
    });
    afterAll(async () => {
      await counters.close();
      await opened.close?.();
    });

    const tag = (): string => `{${randomUUID()}}`;
    const window = (key: string, amount: number, limit: number, inMs = 60_000): WindowHit => ({
      key,
      amount,
      limit,
      expiresAt: opened.now() + inMs,
    });

    it('takes until the limit is reached exactly, then refuses and takes nothing', async () => {
      const key = `${tag()}:a`;
      expect(await counters.hit([window(key, 3, 5)])).toEqual({ allowed: true, refusedBy: -1, used: [3] });
      expect(await counters.hit([window(key, 2, 5)])).toEqual({ allowed: true, refusedBy: -1, used: [5] });
      expect(await counters.hit([window(key, 1, 5)])).toEqual({ allowed: false, refusedBy: 0, used: [5] });
      expect(await counters.get([key])).toEqual([5]);
    });

    it('takes from all windows or from none, and names the first that refused', async () => {
      const t = tag();
      await counters.hit([window(`${t}:b`, 9, 10)]);
      const hits = [window(`${t}:a`, 2, 10), window(`${t}:b`, 2, 10), window(`${t}:c`, 2, 1)];
      expect(await counters.hit(hits)).toEqual({ allowed: false, refusedBy: 1, used: [0, 9, 0] });
      expect(await counters.get([`${t}:a`, `${t}:b`, `${t}:c`])).toEqual([0, 9, 0]);
    });

    it('counts one key that stands twice in a call twice', async () => {
      const key = `${tag()}:a`;
      expect((await counters.hit([window(key, 3, 5), window(key, 3, 5)])).allowed).toBe(false);
      expect(await counters.get([key])).toEqual([0]);
      expect((await counters.hit([window(key, 2, 5), window(key, 3, 5)])).allowed).toBe(true);
      expect(await counters.get([key])).toEqual([5]);
    });

    it('allows a call without windows, and an amount of 0 on a full window', async () => {
      expect(await counters.hit([])).toEqual({ allowed: true, refusedBy: -1, used: [] });
      expect(await counters.get([])).toEqual([]);
      await counters.add([]);
      const key = `${tag()}:a`;
      await counters.hit([window(key, 5, 5)]);
      expect((await counters.hit([window(key, 0, 5)])).allowed).toBe(true);
    });

    it('adds without a limit and takes back, never below 0', async () => {
      const key = `${tag()}:a`;
      const expiresAt = opened.now() + 60_000;
      await counters.add([{ key, amount: 70, expiresAt }]);
      expect((await counters.hit([window(key, 1, 50)])).allowed).toBe(false);
      await counters.add([{ key, amount: -30, expiresAt }]);
      expect(await counters.get([key])).toEqual([40]);
      await counters.add([{ key, amount: -100, expiresAt }]);
      expect(await counters.get([key])).toEqual([0]);
    });

    it('keeps amounts of micro-dollars exact up to 2^53', async () => {
      const key = `${tag()}:a`;
      await counters.hit([window(key, 2 ** 53 - 2, 2 ** 53)]);
      const last = await counters.hit([window(key, 1, 2 ** 53)]);
      expect(last.used).toEqual([2 ** 53 - 1]);
      expect(await counters.get([key])).toEqual([2 ** 53 - 1]);
    });

    it('forgets a window whose end has passed', async () => {
      const key = `${tag()}:a`;
      await counters.add([{ key, amount: 5, expiresAt: opened.now() - 1_000 }]);
      expect(await counters.get([key])).toEqual([0]);
    });

    it('never lets more through than the limit, however many calls run at once', async () => {
      const t = tag();
      const results = await Promise.all(
        Array.from({ length: 400 }, (_, i) =>
          counters.hit([window(`${t}:all`, 1, 100), window(`${t}:part${i % 2}`, 1, 60)]),
        ),
      );
      const allowed = results.filter((result) => result.allowed).length;
      const [all, even, odd] = await counters.get([`${t}:all`, `${t}:part0`, `${t}:part1`]);
      expect(allowed).toBe(100);
      expect(all).toBe(100);
      expect((even ?? 0) + (odd ?? 0)).toBe(100);
    });
  });
}
