import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Feed } from '../ports.ts';

/** The promises of `Feed`. `nodes` are two ends of one feed; the same object twice where the feed has one process. */
export function feedSuite(
  name: string,
  open: () => Promise<{ nodes: readonly [Feed, Feed]; close?: () => Promise<void> }>,
): void {
  describe(`feed: ${name}`, () => {
    const start = async () => {
      const opened = await open();
      onTestFinished(async () => {
        for (const node of opened.nodes) await node.close();
        await opened.close?.();
      });
      const [here, there] = opened.nodes;
      // The first hint that arrives shows that the subscription stands.
      const ready = vi.fn();
      const stop = there.subscribe(ready);
      await vi.waitFor(
        () => {
          here.publish(0);
          expect(ready).toHaveBeenCalled();
        },
        { timeout: 20_000, interval: 20 },
      );
      stop();
      return { here, there };
    };

    it('brings hints to every subscriber of every node', async () => {
      const { here, there } = await start();
      const first: number[] = [];
      const second: number[] = [];
      const own: number[] = [];
      there.subscribe((seq) => first.push(seq));
      there.subscribe((seq) => second.push(seq));
      here.subscribe((seq) => own.push(seq));
      here.publish(7);
      here.publish(8);
      await vi.waitFor(
        () => {
          for (const seen of [first, second, own]) expect(seen.filter((seq) => seq > 0)).toEqual([7, 8]);
        },
        { timeout: 20_000 },
      );
    });

    it('brings nothing more after unsubscribing, and leaves the others', async () => {
      const { here, there } = await start();
      const gone = vi.fn();
      const stays: number[] = [];
      const stop = there.subscribe(gone);
      there.subscribe((seq) => stays.push(seq));
      stop();
      stop();
      here.publish(9);
      await vi.waitFor(() => expect(stays).toContain(9), { timeout: 20_000 });
      expect(gone).not.toHaveBeenCalledWith(9);
    });

    it('publishes without subscribers and after closing without an error', async () => {
      const { here } = await start();
      here.publish(1);
      await here.close();
      here.publish(2);
    });
  });
}
