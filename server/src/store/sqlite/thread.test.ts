import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { TestClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { joined, logRecord } from '../conformance/logs.ts';
import { openSqliteLogs } from './logs.ts';
import type { ConnectionOptions } from './protocol.ts';
import { SqliteThread } from './thread.ts';

const CONNECTION: ConnectionOptions = {
  synchronous: 'NORMAL',
  readOnly: false,
  busyTimeoutMs: 1_000,
  cacheKb: 100,
  pageSize: 4096,
  secureDelete: false,
  checkpointPages: 100,
};
let dir: string;
let file: string;
let clock: TestClock;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'sluice-thread-'));
  file = join(dir, 'logs.db');
  clock = new TestClock();
});
afterEach(() => rmSync(dir, { recursive: true }));

it('a thread that nothing is asked of ends, and the next request starts another', async () => {
  const thread = new SqliteThread({ file, connections: [CONNECTION] }, silentLog, { clock, afterMs: 1_000 });
  await thread.open();
  await thread.script(0, 'CREATE TABLE t (a); INSERT INTO t VALUES (1)');
  const { life } = thread;
  await clock.advance(2_000);
  expect(thread.resting).toBe(true);
  expect((await thread.query(0, 'SELECT a FROM t', [])).rows).toEqual([{ a: 1 }]);
  expect(thread.resting).toBe(false);
  expect(thread.life).not.toBe(life);
  await thread.close();
});

it('the thread of a start ends sooner than those that traffic starts', async () => {
  const rest = { clock, afterMs: 5_000, firstMs: 1_000 };
  const thread = new SqliteThread({ file, connections: [CONNECTION] }, silentLog, rest);
  await thread.open();
  await clock.advance(2_000);
  expect(thread.resting).toBe(true);
  await thread.query(0, 'SELECT 1', []);
  await clock.advance(4_900);
  expect(thread.resting).toBe(false);
  await clock.advance(5_100);
  expect(thread.resting).toBe(true);
  await thread.close();
});

it('a thread that is asked again and again keeps running, as does one without a rest', async () => {
  const thread = new SqliteThread({ file, connections: [CONNECTION] }, silentLog, { clock, afterMs: 1_000 });
  const restless = new SqliteThread({ file, connections: [CONNECTION] }, silentLog);
  await thread.open();
  await restless.open();
  const { life } = thread;
  for (let i = 0; i < 5; i++) {
    await clock.advance(900);
    await thread.query(0, 'SELECT 1', []);
  }
  expect(thread.life).toBe(life);
  await clock.advance(100_000);
  expect([thread.resting, restless.resting]).toEqual([true, false]);
  await thread.close();
  await restless.close();
});

it('records that come after the log store rested are kept, and its health is told without waking it', async () => {
  const logs = await openSqliteLogs({ file, log: silentLog, clock });
  await logs.migrate();
  await logs.insert('j', joined(JSON.stringify(logRecord(1))), { segment: '1', offset: 0 });
  await clock.advance(60_000);
  await logs.ping();
  await logs.insert('j', joined(JSON.stringify(logRecord(2))), { segment: '1', offset: 1 });
  expect(await logs.count()).toBe(2);
  await clock.advance(60_000);
  rmSync(file);
  await expect(logs.ping()).rejects.toThrow();
  await logs.close();
});
