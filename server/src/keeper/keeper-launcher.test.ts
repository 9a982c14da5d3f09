import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type KeeperUnderTest, recent, recordOfNow, startKeeper } from '../../test/support/log-keeper.ts';
import type { LogFields } from '../kernel/log.ts';
import { recordOfRow } from '../telemetry/log-columns.ts';

let under: KeeperUnderTest;
afterEach(() => under.close());

const some = (from: number, count: number, more: Record<string, unknown> = {}) =>
  Array.from({ length: count }, (_, i) => recordOfNow(from + i, more));
const parquet = () => readdirSync(join(under.dir, 'logs')).filter((name) => name.endsWith('.parquet'));
const count = () => under.keeper.count(recent(), 1_000_000);

describe('log keeper', () => {
  it('answers what was served a moment ago, from no file, and the same after it is in files', async () => {
    under = await startKeeper();
    const records = some(1, 5, { metadata: { _user: 'é', 'a\u0000b': '\\' }, error_message: 'half \ud800 pair' });
    await under.write(...records);
    expect(await count()).toBe(5);
    const { scope } = recent();
    const [first] = records;
    const found = await under.keeper.find(scope, String(first?.id));
    expect(found).toMatchObject({ end_user: 'é', status: 200, error_message: 'half \ufffd pair' });
    await under.keeper.flush();
    expect(parquet()).toHaveLength(1);
    expect(await under.keeper.find(scope, String(first?.id))).toEqual(found);
    expect(recordOfRow(found ?? {})).toMatchObject({ id: first?.id, metadata: { 'a\u0000b': '\\' } });
    await under.write(...some(6, 2));
    expect(await count()).toBe(7);
  });

  it('answers what is asked while it comes to rest', async () => {
    // It is too large at every tick, so it rests whenever nothing is asked.
    under = await startKeeper({ mostRssMb: 1, tickMs: 60 });
    await under.write(...some(1, 5));
    const pids = new Set<number | null>();
    for (let i = 0; i < 16; i++) {
      expect(await count()).toBe(5);
      pids.add(under.keeper.pid);
      await new Promise((resolve) => setTimeout(resolve, (i * 17) % 90));
    }
    expect(pids.size).toBeGreaterThan(2);
    expect(under.keeper.restarts).toBe(0);
  });

  it('sets aside a record that is none, and skips a damaged line; the others are kept', async () => {
    const errors: LogFields[] = [];
    const log = {
      debug() {},
      info() {},
      warn() {},
      error: (message: string, more?: LogFields) => errors.push({ message, ...more }),
    };
    under = await startKeeper({ log });
    await under.write(...some(1, 3), { ...recordOfNow(4), time: 'no' as never }, ...some(5, 2));
    await under.journal.sync();
    const file = join(under.dir, 'spool', 'journal', under.journal.tail().segment);
    const lines = readFileSync(file, 'utf8').split('\n');
    lines[1] = lines[1]?.replace('"POST"', '"POSX"').replace('200', '201') ?? '';
    writeFileSync(file, lines.join('\n'));
    expect(await count()).toBe(4);
    expect(readFileSync(join(under.dir, 'logs', 'rejected.ndjson'), 'utf8')).toContain('"time":"no"');
    expect(errors.map(({ message }) => message)).toEqual([
      'journal lines are damaged and skipped',
      'records do not have the form of a record, they were moved to rejected.ndjson',
    ]);
  });

  it('a machine without the engine has one line in its log, and questions are answered with 503', async () => {
    const warnings: string[] = [];
    const log = { debug() {}, info() {}, warn: (message: string) => warnings.push(message), error() {} };
    under = await startKeeper({ log, memoryMb: Number.NaN });
    await expect(count()).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(count()).rejects.toMatchObject({ kind: 'unavailable' });
    under.keeper.wake();
    expect([under.keeper.status, under.keeper.restarts, warnings.length]).toEqual(['missing', 0, 1]);
  });
});
