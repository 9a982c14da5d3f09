import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock, TestClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { openJournal } from '../store/disk/journal.ts';
import type { JournalPosition } from '../store/ports.ts';
import { KeptJournal } from './journal-trimmer.ts';

async function start(dir?: string) {
  const made = dir ?? (await mkdtemp(join(tmpdir(), 'sluice-kept-')));
  onTestFinished(() => rm(made, { recursive: true, force: true }));
  const journal = await openJournal({ dir: made, clock: systemClock, log: silentLog, segmentBytes: 10_000 });
  const clock = new TestClock();
  const state = { woken: 0, asked: 0, kept: null as JournalPosition | null };
  const keptTo = async () => {
    state.asked++;
    return state.kept;
  };
  const wake = () => void state.woken++;
  const under = new KeptJournal({ journal, dir: made, keptTo, wake, clock, log: silentLog });
  const write = (bytes: number) =>
    new Promise<void>((resolve) => journal.append(JSON.stringify({ a: 'x'.repeat(bytes) }), resolve));
  const segments = async () => (await readdir(made)).filter((name) => name.endsWith('.journal')).sort();
  return { dir: made, journal, clock, state, under, write, segments };
}

it('a journal in which nothing waits wakes no keeper and asks for nothing', async () => {
  const { clock, state, journal } = await start();
  await clock.advance(600_000);
  expect([state.woken, state.asked]).toEqual([0, 0]);
  await journal.close();
});

it('the keeper is woken when records have waited for half a minute, or soon when there are many', async () => {
  const few = await start();
  await few.write(100);
  await few.clock.advance(30_000);
  expect([few.state.woken, few.under.lag]).toEqual([0, 25_000]);
  await few.clock.advance(10_000);
  expect(few.state.woken).toBeGreaterThan(0);
  const many = await start();
  await many.write(5 << 20);
  await many.clock.advance(5_000);
  expect(many.state.woken).toBe(1);
  await Promise.all([few.journal.close(), many.journal.close()]);
});

it('no segment is written to for more than ten minutes, however little comes', async () => {
  const { clock, journal, write, segments } = await start();
  for (let minute = 0; minute < 12; minute++) {
    await write(100);
    await clock.advance(60_000);
  }
  expect(await segments()).toHaveLength(2);
  await journal.close();
});

it('a segment goes once all of it is in files and it is not written to any more, after a restart too', async () => {
  const first = await start();
  for (let i = 0; i < 3; i++) await first.write(9_000);
  const [one = '', two = '', three = ''] = await first.segments();
  first.state.kept = { segment: two, offset: 8 };
  const wait = async (clock: TestClock) => {
    await clock.advance(5_000);
    await new Promise((resolve) => setTimeout(resolve, 50));
  };
  await wait(first.clock);
  expect(await first.segments()).toEqual([two, three]);
  first.state.kept = { segment: three, offset: 20_000 };
  await wait(first.clock);
  expect([first.journal.depth(), first.under.lag]).toEqual([0, 0]);
  await wait(first.clock);
  // Everything in the live one is in files as well: it has an empty successor, whose name is a later one.
  const left = await first.segments();
  expect([left.length, (left[0] ?? '') > three]).toEqual([1, true]);
  await first.journal.close();
  const second = await start(first.dir);
  expect(await second.segments()).toHaveLength(2);
  second.state.kept = first.state.kept;
  await wait(second.clock);
  expect([(await second.segments()).length, second.journal.depth()]).toEqual([1, 0]);
  expect(one).not.toBe('');
  await second.journal.close();
});
