import { expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import type { SequencedChange } from '../store/ports.ts';
import { startWatch } from './watch.ts';

/** A feed whose reads are answered when the test says so. */
function slowFeed() {
  const changes: SequencedChange[] = [];
  const waiting: (() => void)[] = [];
  let hint = () => {};
  return {
    add() {
      const seq = changes.length + 1;
      changes.push({ seq, organisationId: 'o', workspaceId: null, topic: 'api_keys', entityId: `k${seq}` });
    },
    hint: () => hint(),
    /** Answers the read that waits, with what is there now. */
    answer: () => waiting.shift()?.(),
    tables: {
      lastChange: async () => 0,
      changesAfter: (seq: number) =>
        new Promise<SequencedChange[]>((resolve) => {
          waiting.push(() => resolve(changes.filter((change) => change.seq > seq)));
        }),
      onChangeHint: (listener: () => void) => {
        hint = listener;
        return () => {};
      },
    },
  };
}

it('a hint is never lost, however close it comes to the end of a read', async () => {
  // One more turn of the microtask queue each time, so that one of them falls on every step of the end of a read.
  for (let turns = 0; turns < 12; turns++) {
    const feed = slowFeed();
    const applied: string[] = [];
    const watch = await startWatch({
      tables: feed.tables as never,
      feed: null,
      clock: new TestClock(),
      log: silentLog,
      apply: (changes) => applied.push(...changes.map((change) => change.entityId)),
    });
    feed.hint();
    feed.answer();
    for (let i = 0; i < turns; i++) await null;
    feed.add();
    const caught = watch.catchUp();
    for (let i = 0; i < 20; i++) {
      feed.answer();
      await null;
    }
    await caught;
    expect(applied, `after ${turns} turns`).toEqual(['k1']);
  }
});

it('a node that did not look for half a day takes everything anew: changes may have been removed meanwhile', async () => {
  const clock = new TestClock();
  let missed = 0;
  const watch = await startWatch({
    tables: { lastChange: async () => 0, changesAfter: async () => [], onChangeHint: () => () => {} } as never,
    feed: null,
    clock,
    log: silentLog,
    apply: () => {},
    missed: () => {
      missed += 1;
    },
  });
  await watch.catchUp();
  expect(missed).toBe(0);
  clock.jump(13 * 3_600_000);
  await watch.catchUp();
  expect(missed).toBe(1);
  await watch.close();
});
