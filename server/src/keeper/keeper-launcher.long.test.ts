import { readdirSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type KeeperUnderTest, recent, recordOfNow, startKeeper } from '../../test/support/log-keeper.ts';
import { systemClock, TestClock } from '../kernel/clock.ts';

let under: KeeperUnderTest;
afterEach(() => under.close());

const DAY_MS = 86_400_000;
const some = (from: number, count: number, more: Record<string, unknown> = {}) =>
  Array.from({ length: count }, (_, i) => recordOfNow(from + i, more));
const parquet = () => readdirSync(join(under.dir, 'logs')).filter((name) => name.endsWith('.parquet'));
const segments = () => readdirSync(join(under.dir, 'spool', 'journal')).filter((name) => name.endsWith('.journal'));
const count = () => under.keeper.count(recent(), 1_000_000);

describe('log keeper', () => {
  it('leaves the segments of a process that runs to that process, and removes those of one that is no more', async () => {
    under = await startKeeper({ segmentBytes: 4_000 });
    for (let i = 1; i < 40; i++) await under.write(recordOfNow(i));
    const written = segments();
    expect(written.length).toBeGreaterThan(3);
    await under.keeper.flush();
    expect(segments()).toEqual(written);
    await under.restart({ workers: 0 });
    await under.write(recordOfNow(40));
    await under.keeper.flush();
    expect(segments()).toEqual(written.slice(-1));
    expect(statSync(join(under.dir, 'spool', 'journal', segments()[0] ?? '')).size).toBe(0);
    expect(await count()).toBe(40);
    await under.restart();
    expect(await count()).toBe(40);
  });

  it('goes on where the one before it was, whether what it read is in files or not', async () => {
    under = await startKeeper();
    await under.write(...some(1, 3));
    await under.keeper.flush();
    await under.write(...some(4, 3));
    expect(await count()).toBe(6);
    await under.restart();
    expect(await count()).toBe(6);
    await under.keeper.flush();
    await under.restart();
    expect(await count()).toBe(6);
  });

  it('flushes by itself, makes one file of eight, and sums up each hour', async () => {
    under = await startKeeper({ flushMs: 0 });
    for (let i = 0; i < 8; i++) {
      await under.write(recordOfNow(i, { cost_micros: 5, outcome: 'ok', source: i === 0 ? 'mcp' : undefined }));
      await under.keeper.flush();
    }
    await vi.waitFor(() => expect(parquet()).toHaveLength(1), { timeout: 15_000 });
    expect(await count()).toBe(8);
    const hours = await under.tables.systemRead((tx) => tx.list('log_hours', {}));
    const of = (source: string) => hours.filter((hour) => hour.source === source).map(({ requests }) => requests);
    expect(of('mcp')).toEqual([1]);
    expect(of('llm').reduce((sum, each) => sum + each, 0)).toBe(7);
    expect(hours.reduce((sum, { cost_micros }) => sum + cost_micros, 0)).toBe(40);
    await under.write(recordOfNow(9));
    await vi.waitFor(() => expect(parquet()).toHaveLength(2), { timeout: 15_000 });
  });

  it('keeps a record once that was recorded again after a kill', async () => {
    under = await startKeeper();
    const again = recordOfNow(1, { node: 'job-7' });
    await under.write(again, again);
    expect(await count()).toBe(1);
    await under.write(again);
    await under.keeper.flush();
    await under.write(again);
    expect(await count()).toBe(1);
    await under.restart();
    expect(await count()).toBe(1);
  });

  it('leaves out a file that cannot be read, and says so of every answer over its time', async () => {
    under = await startKeeper();
    await under.write(...some(1, 3));
    await under.keeper.flush();
    await under.write(...some(4, 2));
    await under.keeper.flush();
    const [first = ''] = parquet().sort();
    truncateSync(join(under.dir, 'logs', first), 40);
    const page = await under.keeper.page(recent(), { columns: ['id'], order: 'newest', limit: 9, behind: null });
    expect(page.rows).toHaveLength(2);
    expect(page.incomplete).toHaveLength(1);
    expect((await under.keeper.health()).state?.damagedFiles).toBe(1);
    await under.restart();
    expect(await count()).toBe(2);
  });

  it('removes what an earlier one left unfinished, and nothing that is in the list', async () => {
    under = await startKeeper();
    await under.write(...some(1, 3));
    await under.keeper.flush();
    for (const name of ['x.parquet', 'y.unfinished']) writeFileSync(join(under.dir, 'logs', name), 'half');
    await under.restart();
    expect(await count()).toBe(3);
    expect(readdirSync(join(under.dir, 'logs')).filter((name) => /^[xy]/.test(name))).toEqual([]);
    expect(parquet()).toHaveLength(1);
  });

  it('forgets files of which every record is old', async () => {
    under = await startKeeper();
    await under.write(...some(1, 2, { time: systemClock.now() - 3 * DAY_MS }), ...some(3, 2));
    await under.keeper.flush();
    expect(parquet()).toHaveLength(2);
    expect(await under.keeper.forgetBefore(systemClock.now() - DAY_MS)).toBe(2);
    await vi.waitFor(() => expect(parquet()).toHaveLength(1));
    expect(await under.keeper.count({ ...recent(), from: 1e12 }, 99).catch((error) => error.kind)).toBe('validation');
    expect(await under.keeper.count({ ...recent(), from: systemClock.now() - 9 * DAY_MS }, 99)).toBe(2);
  });

  it('ends after it was idle for its time, and is started again by a question', async () => {
    under = await startKeeper({ restMs: 50 });
    await under.write(recordOfNow(1));
    await under.keeper.flush();
    await vi.waitFor(() => expect(under.keeper.status).toBe('resting'), { timeout: 15_000 });
    expect([under.keeper.pid, (await under.keeper.health()).state]).toEqual([null, null]);
    expect(await count()).toBe(1);
    expect(under.keeper.restarts).toBe(0);
  });

  it('is away for a second after a kill, then answers as before; the next wait is twice as long', async () => {
    const clock = new TestClock(systemClock.now());
    under = await startKeeper({ clock });
    await under.write(...some(1, 3));
    expect(await count()).toBe(3);
    const asked = count();
    const ended = expect(asked).rejects.toMatchObject({ kind: 'unavailable', retryAfter: 1 });
    for (const wait of [1, 2, 4]) {
      await under.kill();
      await ended;
      await expect(count()).rejects.toMatchObject({ kind: 'unavailable', retryAfter: wait });
      expect(under.keeper.status).toBe('failing');
      await clock.advance(wait * 1_000);
      expect(await count()).toBe(3);
    }
    expect(under.keeper.restarts).toBe(3);
  });

  it('twenty kills at random moments lose no record and double none', async () => {
    under = await startKeeper({ segmentBytes: 100_000, flushRecords: 500, flushMs: 0, tickMs: 5 });
    let written = 0;
    for (let kill = 0; kill < 20; kill++) {
      for (let batch = 0; batch < 10; batch++) {
        await under.write(...some(written + 1, 60));
        written += 60;
      }
      under.keeper.wake();
      // The moment is the point of it: within the start, a read, a flush, a commit or a merge.
      await new Promise((resolve) => setTimeout(resolve, 300 + ((kill * 137) % 900)));
      await under.kill();
      await under.restart();
    }
    await under.keeper.flush();
    const measures = [{ as: 'distinct', of: 'distinct', column: 'seq' } as const, { as: 'all', of: 'count' } as const];
    const { summary } = await under.keeper.groups(recent(), { by: [], measures });
    expect(summary).toEqual({ distinct: written, all: written });
    const files = await under.tables.systemRead((tx) => tx.list('log_files', {}));
    expect(files.reduce((sum, { records }) => sum + records, 0)).toBe(written);
    expect(parquet().sort()).toEqual(files.map(({ id }) => `${id}.parquet`).sort());
    const hours = await under.tables.systemRead((tx) => tx.list('log_hours', {}));
    expect(hours.reduce((sum, { requests }) => sum + requests, 0)).toBe(written);
  }, 180_000);
});
