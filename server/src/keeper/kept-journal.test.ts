import { expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import type { JournalPosition } from '../store/ports.ts';
import { KeptJournal } from './kept-journal.ts';

function start(segments: { name: string; size: number; live: boolean }[]) {
  const clock = new TestClock();
  const state = { woken: 0, asked: 0, kept: null as JournalPosition | null };
  const journal = { name: 'j', segments: () => segments };
  const keptTo = async () => {
    state.asked++;
    return state.kept;
  };
  const wake = () => void state.woken++;
  return { clock, state, under: new KeptJournal({ journal, keptTo, wake, clock, log: silentLog }) };
}

it('a journal in which nothing waits wakes no keeper and asks for nothing', async () => {
  const { clock, state } = start([{ name: '1', size: 0, live: true }]);
  await clock.advance(600_000);
  expect([state.woken, state.asked]).toEqual([0, 0]);
});

it('the keeper is woken when records wait for half a minute, or at once when there are many', async () => {
  const few = start([{ name: '1', size: 900, live: true }]);
  await few.clock.advance(30_000);
  expect(few.state.woken).toBe(0);
  await few.clock.advance(10_000);
  expect(few.state.woken).toBeGreaterThan(0);
  const many = start([{ name: '1', size: 5 << 20, live: true }]);
  await many.clock.advance(5_000);
  expect(many.state.woken).toBe(1);
});

it('a segment may go when all of it is in files, and not while it is written to', async () => {
  const { clock, state, under } = start([
    { name: '1', size: 10, live: false },
    { name: '2', size: 20, live: false },
    { name: '3', size: 5, live: true },
  ]);
  const may = () => ['1', '2', '3'].filter((name) => under.covers(name));
  expect(may()).toEqual([]);
  state.kept = { segment: '2', offset: 8 };
  await clock.advance(5_000);
  expect([may(), under.bytes]).toEqual([['1'], 17]);
  state.kept = { segment: '3', offset: 5 };
  await clock.advance(5_000);
  expect([may(), under.bytes]).toEqual([['1', '2'], 0]);
});
