/**
 * Large data sets: `npm run test:datasets -- --rows 1000000`. Checks a file of that many chat rows, converts a tenth of
 * it and counts the tokens of a tenth. Speeds are megabytes for each second of CPU of the whole process, so that other
 * work on the machine does not count; with `--speeds shown` they are shown and not judged, for short runs and for
 * machines of unknown speed. Prints one line of JSON for each promise and ends with
 * `datasets: N passed, N failed`.
 */
import { createReadStream, createWriteStream, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { parseArgs } from 'node:util';
import { systemClock } from '../../src/kernel/clock.ts';
import { type Log, silentLog } from '../../src/kernel/log.ts';
import { loadTokenizer } from '../../src/operations/tokens.ts';
import { convertDataset, countDataset, validateDataset } from '../../src/training/datasets/index.ts';
import { watchdog } from '../support/watchdog.ts';

const { values: options } = parseArgs({
  options: { rows: { type: 'string', default: '1000000' }, speeds: { type: 'string', default: 'judged' } },
});
const rows = Number(options.rows);
if (!(Number.isInteger(rows) && rows >= 1000)) {
  process.stderr.write('--rows must be a whole number of at least 1000\n');
  process.exit(2);
}
const TOPICS = ['rivers', 'trade routes', 'old bridges', 'the price of salt', 'Größenordnungen', 'winter roads'];
let passed = 0;
let failed = 0;

function report(id: string, value: number, goal: number, pass: boolean, n: number): void {
  if (pass) passed += 1;
  else failed += 1;
  process.stdout.write(`${JSON.stringify({ id, value: Math.round(value * 100) / 100, goal, pass, n })}\n`);
}

const fast = (value: number, goal: number): boolean => options.speeds === 'shown' || value >= goal;

const prose = (i: number): string =>
  `City number ${i} grew because of ${TOPICS[i % 6]}; it had ${(i * 7919) % 100_000} people in the year ${1000 + (i % 900)}, and "${TOPICS[(i * 5) % 6]}" made it known.\n`;
const row = (i: number): string =>
  JSON.stringify({
    messages: [
      { role: 'system', content: 'You answer briefly and name your sources.' },
      { role: 'user', content: `What do you know about city ${i}, and what about ${TOPICS[(i * 11) % 6]}?` },
      { role: 'assistant', content: prose(i) + prose(i * 3 + 1) },
    ],
  });

function* lines(count: number): Generator<Buffer> {
  let text = '';
  for (let i = 0; i < count; i++) {
    text += `${row(i)}\n`;
    if (text.length < 1 << 18) continue;
    yield Buffer.from(text);
    text = '';
  }
  yield Buffer.from(text);
}

const watch = watchdog('datasets');
watch.phase('files are written', 300_000);
const folder = mkdtempSync(join(tmpdir(), 'sluice-datasets-'));
const large = join(folder, 'large.jsonl');
const small = join(folder, 'small.jsonl');
const tenth = Math.ceil(rows / 10);
await pipeline(Readable.from(lines(rows)), createWriteStream(large));
await pipeline(Readable.from(lines(tenth)), createWriteStream(small));

interface Measured<T> {
  readonly result: T;
  readonly cpu: number;
  /**
   * The most CPU the serving thread used before it could turn to something else, milliseconds: its longest stall, less
   * what other processes took.
   */
  readonly stall: number;
  /** RSS growth between the first tenth of the bytes and the highest point, MB. */
  readonly growth: number;
}

async function measure<T>(
  bytes: number,
  run: (onProgress: (progress: { bytes: number }) => void) => Promise<T>,
): Promise<Measured<T>> {
  let stall = 0;
  let own = process.threadCpuUsage();
  const ticks = setInterval(() => {
    const { user, system } = process.threadCpuUsage(own);
    stall = Math.max(stall, (user + system) / 1000);
    own = process.threadCpuUsage();
  }, 2);
  let base = 0;
  let most = 0;
  const sample = (progress: { bytes: number }) => {
    watch.progress();
    const { rss } = process.memoryUsage();
    if (progress.bytes < bytes / 10) base = Math.max(base, rss);
    else most = Math.max(most, rss);
  };
  const before = process.cpuUsage();
  const result = await run(sample);
  const { user, system } = process.cpuUsage(before);
  clearInterval(ticks);
  return { result, cpu: (user + system) / 1e6, stall, growth: (most - base) / 1e6 };
}

const context = { clock: systemClock, log: silentLog, owner: 'org' };
const bytes = statSync(large).size;
const smallBytes = statSync(small).size;
const FLAT_MB = 64;
const STALL_MS = 100;

// The first run brings the heap to the size that the collector likes: what grows after that is kept.
await validateDataset(createReadStream(large), context);

watch.phase('validation');
let told = 0;
const counting: Log = {
  ...silentLog,
  info() {
    told += 1;
  },
};
const began = performance.now();
const valid = await measure(bytes, (onProgress) =>
  validateDataset(createReadStream(large), { ...context, log: counting, onProgress }),
);
const seconds = (performance.now() - began) / 1000;
const speed = bytes / 1e6 / valid.cpu;
report('data set: rows that are not valid', rows - valid.result.valid, 0, valid.result.valid === rows, rows);
report('data set: validation, MB per CPU second', speed, 50, fast(speed, 50), rows);
report('data set: validation, memory growth, MB', valid.growth, FLAT_MB, valid.growth <= FLAT_MB, rows);
report('data set: validation, longest event-loop stall, ms', valid.stall, STALL_MS, valid.stall <= STALL_MS, rows);
const expected = Math.floor(seconds / 3) - 1;
report('data set: progress lines', told, Math.max(0, expected), told >= expected, rows);

watch.phase('conversion');
const sink = () => new Writable({ write: (_chunk, _encoding, done) => done() });
const converted = await measure(smallBytes, async (onProgress) => {
  const { stream, report: found } = convertDataset(createReadStream(small), {
    ...context,
    onProgress,
    format: 'vertex-supervised',
  });
  await pipeline(stream, sink());
  return found;
});
const pace = smallBytes / 1e6 / converted.cpu;
report('data set: conversion, MB per CPU second', pace, 20, fast(pace, 20), tenth);
report(
  'data set: conversion, longest event-loop stall, ms',
  converted.stall,
  STALL_MS,
  converted.stall <= STALL_MS,
  tenth,
);

watch.phase('token count', 300_000);
const checked = await measure(smallBytes, (onProgress) =>
  validateDataset(createReadStream(small), { ...context, onProgress }),
);
const counted = await measure(smallBytes, (onProgress) =>
  countDataset(createReadStream(small), { ...context, onProgress }),
);
const bare = process.cpuUsage();
const { count } = await loadTokenizer();
for (let i = 0; i < tenth; i++) {
  for (const text of ['You answer briefly and name your sources.', prose(i) + prose(i * 3 + 1)]) count(text);
  count(`What do you know about city ${i}, and what about ${TOPICS[(i * 11) % 6]}?`);
}
const used = process.cpuUsage(bare);
const own = (used.user + used.system) / 1e6;
const share = own / Math.max(0.001, counted.cpu - checked.cpu);
report('data set: token count, part of the speed of the tokeniser', share, 0.7, fast(share, 0.7), tenth);
report(
  'data set: token count, longest event-loop stall, ms',
  counted.stall,
  STALL_MS,
  counted.stall <= STALL_MS,
  tenth,
);

rmSync(folder, { recursive: true, force: true });
process.stdout.write(`datasets: ${passed} passed, ${failed} failed\n`);
process.exit(failed === 0 ? 0 : 1);
