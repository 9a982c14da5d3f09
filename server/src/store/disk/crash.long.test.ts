import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished, vi } from 'vitest';
import { RecordingSink } from '../../../test/support/log-sink.ts';
import { systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { openJournal } from './journal.ts';
import { startShipper } from './shipper.ts';

const WRITER = fileURLToPath(new URL('../../../test/support/children/journal-writer.ts', import.meta.url));
const KILLS = 20;

it(`${KILLS} times kill -9 while writing and shipping: every acknowledged record is stored exactly once`, async () => {
  const root = mkdtempSync(join(tmpdir(), 'sluice-crash-'));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  const dir = join(root, 'journal');
  const sinkFile = join(root, 'sink.db');
  const ackFile = join(root, 'acks');
  const size = () => (existsSync(ackFile) ? statSync(ackFile).size : 0);
  for (let round = 0; round < KILLS; round++) {
    const before = size();
    const child = spawn(process.execPath, [WRITER, dir, sinkFile, ackFile, String(round * 10_000_000)], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let stderr = '';
    child.stderr.on('data', (chunk) => {
      stderr += chunk;
    });
    await vi.waitFor(() => expect(size(), stderr).toBeGreaterThan(before), { timeout: 10_000, interval: 2 });
    // When the kill falls is the point of the test.
    await new Promise((resolve) => setTimeout(resolve, randomInt(1, 60)));
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  const sink = new RecordingSink(sinkFile);
  const base = { dir, clock: systemClock, log: silentLog };
  const journal = await openJournal(base);
  const shipper = startShipper({ ...base, journal, sink });
  await shipper.drain();
  await vi.waitFor(() => expect(readdirSync(dir).filter((name) => name.endsWith('.journal'))).toHaveLength(1), {
    timeout: 15_000,
  });
  await shipper.close();
  await journal.close();

  const stored = sink.lines.map((line) => (JSON.parse(line) as { number: number }).number);
  const distinct = new Set(stored);
  // The last acknowledgement may be cut by the kill; it then is not one.
  const acknowledged = readFileSync(ackFile, 'utf8').split('\n').slice(0, -1).map(Number);
  expect(acknowledged.length).toBeGreaterThan(KILLS * 10);
  expect(stored.length - distinct.size).toBe(0);
  expect(acknowledged.filter((number) => !distinct.has(number))).toEqual([]);
  expect(stored).toEqual([...stored].sort((a, b) => a - b));
  expect(shipper.stats.corrupt).toBe(0);
  await sink.close();
}, 60_000);
