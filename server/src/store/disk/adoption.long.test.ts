import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { compose } from '../../compose.ts';
import { loadConfig } from '../../config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { type Log, silentLog } from '../../kernel/log.ts';
import { logRecord } from '../conformance/logs.ts';
import { openJournal } from './journal.ts';

const RECORDS = 20_000;

it('records of a worker that is no more are stored by later starts, also when the first of them is stopped at once', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'sluice-adoption-'));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const dir = join(dataDir, 'spool', 'journal-3');
  const journal = await openJournal({ dir, clock: systemClock, log: silentLog, segmentBytes: 500_000 });
  await Promise.all(
    Array.from(
      { length: RECORDS },
      (_, seq) => new Promise<void>((resolve) => journal.append(JSON.stringify(logRecord(seq)), resolve)),
    ),
  );
  await journal.close();

  const problems: string[] = [];
  const log: Log = { ...silentLog, error: (text) => problems.push(text), warn: (text) => problems.push(text) };
  const config = loadConfig([], { SLUICE_DATA_DIR: dataDir, SLUICE_PORT: '0' }, dataDir);
  const first = await compose(config, log);
  await first.stop({ noticeMs: 0, drainMs: 1000 });
  expect(problems).toEqual([]);

  const second = await compose(config, log);
  const deadline = performance.now() + 30_000;
  let stored = 0;
  while (stored < RECORDS && performance.now() < deadline) stored = await second.recordCount();
  await second.stop({ noticeMs: 0, drainMs: 1000 });
  expect(stored).toBe(RECORDS);
  expect(problems).toEqual([]);
}, 90_000);
