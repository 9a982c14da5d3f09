import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { RecordingSink } from '../../../test/support/log-sink.ts';
import { type Clock, systemClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { silentLog } from '../../kernel/log.ts';
import { type JournalOptions, openJournal } from './journal.ts';
import { type ShipperOptions, startShipper } from './shipper.ts';

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-shipper-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** Waits pass at once, so tests of retries need no real time. */
const hasty: Clock = {
  ...systemClock,
  after(_ms, fn) {
    const timer = setImmediate(fn);
    return () => clearImmediate(timer);
  },
};

async function setup(options: { dir?: string; sink?: RecordingSink } & Partial<JournalOptions & ShipperOptions> = {}) {
  const dir = options.dir ?? folder();
  const sink = options.sink ?? new RecordingSink();
  const base = { clock: systemClock, log: silentLog, ...options, dir };
  const journal = await openJournal(base);
  const shipper = startShipper({ ...base, journal, sink });
  const close = async () => {
    await shipper.close();
    await journal.close();
  };
  onTestFinished(close);
  const append = (...lines: string[]) =>
    Promise.all(lines.map((line) => new Promise<void>((resolve) => journal.append(line, resolve))));
  const segments = () => readdirSync(dir).filter((name) => name.endsWith('.journal'));
  return { dir, sink, journal, shipper, append, close, segments };
}

const numbered = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => `{"i":${from + i}}`);
const checksum = (text: string) => crc32(text).toString(16).padStart(8, '0');
const oldLine = (line: string) => `${checksum(line)} ${line}\n`;
const newLine = (line: string) => `${line.slice(0, -1)},"crc":"${checksum(line.slice(0, -1))}"}\n`;
const last = (names: string[]) => names.at(-1) ?? '';

describe('shipper', () => {
  it('brings every record to the sink in order, in batches, and removes finished segments only', async () => {
    const { append, shipper, sink, journal, segments } = await setup({ segmentBytes: 20_000, batch: 100 });
    const lines = numbered(0, 5_000);
    for (let i = 0; i < lines.length; i += 50) await append(...lines.slice(i, i + 50));
    await shipper.drain();
    expect(sink.lines).toEqual(lines);
    expect(journal.depth()).toBe(0);
    await vi.waitFor(() => expect(segments()).toEqual([journal.tail().segment]), { timeout: 15_000 });
    expect(sink.inserts).toBeGreaterThanOrEqual(50);
    expect(shipper.stats).toMatchObject({ shipped: 5_000, torn: 0, corrupt: 0, rejected: 0 });
  });

  it('keeps finished segments until the sink says that they survive a power cut, also over a restart', async () => {
    const dir = folder();
    const sink = new RecordingSink();
    let settled = false;
    const settling = Object.assign(sink, { settle: async () => settled });
    const first = await setup({ dir, sink: settling, segmentBytes: 2_000, everyMs: 5 });
    for (let i = 0; i < 1_000; i += 20) await first.append(...numbered(i, i + 20));
    await first.shipper.drain();
    expect(first.segments().length).toBeGreaterThan(5);
    expect(first.journal.depth()).toBe(0);
    await first.close();
    const second = await setup({ dir, sink: settling, everyMs: 5 });
    await second.append('{"i":1000}');
    await second.shipper.drain();
    expect(second.segments().length).toBeGreaterThan(6);
    expect(second.journal.depth()).toBe(0);
    settled = true;
    await vi.waitFor(() => expect(second.segments()).toHaveLength(1), { timeout: 15_000 });
    expect(sink.lines).toEqual(numbered(0, 1_001));
  });

  it('drains what is still in the queue, and at once when there is nothing', async () => {
    const { shipper, journal, sink } = await setup();
    await shipper.drain();
    journal.append('{"i":1}', () => undefined);
    await shipper.drain();
    expect(sink.lines).toEqual(['{"i":1}']);
  });

  it('ships without being asked', async () => {
    const { append, sink } = await setup({ everyMs: 5 });
    await append(...numbered(0, 10));
    await vi.waitFor(() => expect(sink.lines).toHaveLength(10), { timeout: 15_000 });
    await append(...numbered(10, 20));
    await vi.waitFor(() => expect(sink.lines).toEqual(numbered(0, 20)), { timeout: 15_000 });
  });

  it('goes on after a restart where it stood: nothing lost, nothing twice', async () => {
    const dir = folder();
    const sink = new RecordingSink();
    let expected = 0;
    for (let start = 0; start < 6; start++) {
      const run = await setup({ dir, sink, segmentBytes: 3_000, batch: 7 });
      await run.append(...numbered(expected, expected + 300));
      expected += 300;
      // Every second start is closed with a backlog.
      if (start % 2) await run.shipper.drain();
      await run.close();
    }
    const final = await setup({ dir, sink });
    await final.shipper.drain();
    expect(sink.lines).toEqual(numbered(0, expected));
    await vi.waitFor(() => expect(final.segments()).toHaveLength(1), { timeout: 15_000 });
  });

  it('keeps everything while the sink is down and ships it once when it is back', async () => {
    const { sink, append, shipper, journal } = await setup({ clock: hasty });
    let down = true;
    sink.before = () => {
      if (down) throw new Error('connection refused');
    };
    await append(...numbered(0, 2_500));
    const drained = shipper.drain();
    await vi.waitFor(() => expect(shipper.stats.failures).toBeGreaterThan(5), { timeout: 15_000 });
    expect(sink.lines).toHaveLength(0);
    expect(journal.depth()).toBeGreaterThan(0);
    down = false;
    await drained;
    expect(sink.lines).toEqual(numbered(0, 2_500));
    expect(shipper.stats.failures).toBe(0);
    expect(journal.depth()).toBe(0);
  });

  it('does not insert a batch twice when only the answer was lost', async () => {
    const { sink, append, shipper } = await setup({ clock: hasty, batch: 10 });
    let lost = 0;
    sink.after = () => {
      if (sink.inserts % 3 === 0 && lost < 20) {
        lost++;
        throw new Error('connection reset');
      }
    };
    await append(...numbered(0, 200));
    await shipper.drain();
    expect(lost).toBeGreaterThan(3);
    expect(sink.lines).toEqual(numbered(0, 200));
  });

  it('sets a record aside that the sink refuses for good, and ships all others', async () => {
    const { dir, sink, append, shipper } = await setup({ clock: hasty });
    sink.before = (lines) => {
      if (lines.some((line) => line.includes('"i":137}'))) throw new Error('invalid input syntax');
    };
    await append(...numbered(0, 300));
    await shipper.drain();
    expect(sink.lines).toEqual(numbered(0, 300).filter((line) => line !== '{"i":137}'));
    expect(readFileSync(join(dir, 'rejected.jsonl'), 'utf8')).toBe('{"i":137}\n');
    expect(shipper.stats.rejected).toBe(1);
  });

  it('sets nothing aside while the sink refuses every write', async () => {
    const { dir, sink, append, shipper } = await setup({ clock: hasty });
    let full = true;
    sink.before = () => {
      if (full) throw new Error('disk full');
    };
    await append(...numbered(0, 50));
    const drained = shipper.drain();
    await vi.waitFor(() => expect(shipper.stats.failures).toBeGreaterThan(30), { timeout: 15_000 });
    full = false;
    await drained;
    expect(sink.lines).toEqual(numbered(0, 50));
    expect(readdirSync(dir)).not.toContain('rejected.jsonl');
  });

  it('sets nothing aside while the sink has no room for records, even if it takes a position', async () => {
    const { dir, sink, append, shipper } = await setup({ clock: hasty });
    let full = true;
    sink.before = (lines) => {
      if (full && lines.length > 0) throw new SluiceError('unavailable', 'database or disk is full');
    };
    await append(...numbered(0, 5));
    const drained = shipper.drain();
    await vi.waitFor(() => expect(shipper.stats.failures).toBeGreaterThan(60), { timeout: 15_000 });
    expect(shipper.stats.rejected).toBe(0);
    full = false;
    await drained;
    expect(sink.lines).toEqual(numbered(0, 5));
    expect(readdirSync(dir)).not.toContain('rejected.jsonl');
  });

  it('skips and counts a line torn at the end of a dead segment', async () => {
    for (const torn of [
      '1234',
      '00000000 {"i":99',
      'deadbeef {"i":99}\n',
      '\0\0\0\0',
      '{"i":99,"crc":"',
      '{"i":99}\n',
      '{"i":99,"crc":"deadbeef"}\n',
      '{"crc":"00000000"}\n',
      '{"i":99,"crc":"00000000"}}\n',
    ]) {
      const dir = folder();
      const sink = new RecordingSink();
      const first = await setup({ dir, sink });
      await first.append(...numbered(0, 3));
      await first.close();
      appendFileSync(join(dir, last(first.segments())), torn);
      const second = await setup({ dir, sink });
      await second.append(...numbered(3, 6));
      await second.shipper.drain();
      expect(sink.lines).toEqual(numbered(0, 6));
      expect(second.shipper.stats).toMatchObject({ torn: 1, corrupt: 0 });
      await vi.waitFor(() => expect(second.segments()).toHaveLength(1), { timeout: 15_000 });
      expect(second.journal.depth()).toBe(0);
    }
  });

  it('ships what an earlier version left, which had the checksum in front, and what was appended after it', async () => {
    const dir = folder();
    writeFileSync(join(dir, '000000000001.journal'), numbered(0, 300).map(oldLine).join(''));
    // As after a downgrade and another upgrade: both forms in one segment.
    const mixed = [
      oldLine('{"i":300}'),
      newLine('{"i":301}'),
      oldLine('{"text":"Zoë"}'),
      oldLine('{"a":1}').slice(0, 12),
    ];
    writeFileSync(join(dir, '000000000002.journal'), mixed.join(''));
    const { sink, append, shipper } = await setup({ dir, batch: 100 });
    await append('{"i":302}');
    await shipper.drain();
    expect(sink.lines).toEqual([...numbered(0, 302), '{"text":"Zoë"}', '{"i":302}']);
    expect(shipper.stats).toMatchObject({ torn: 1, corrupt: 0 });
  });

  it('skips, counts and reports a line damaged in the middle, and ships the others', async () => {
    const dir = folder();
    const sink = new RecordingSink();
    const first = await setup({ dir, sink });
    sink.before = () => {
      throw new Error('down');
    };
    await first.append(...numbered(0, 9));
    await first.close();
    const file = join(dir, last(first.segments()));
    const bytes = readFileSync(file);
    bytes[bytes.indexOf('"i":4')] = 0x27;
    writeFileSync(file, bytes);
    sink.before = () => undefined;
    const errors: string[] = [];
    const log = { ...silentLog, error: (message: string) => errors.push(message) };
    const second = await setup({ dir, sink, log });
    await second.shipper.drain();
    expect(sink.lines).toEqual(numbered(0, 9).filter((line) => line !== '{"i":4}'));
    expect(second.shipper.stats).toMatchObject({ torn: 0, corrupt: 1 });
    expect(errors).toEqual(['journal line is damaged and skipped']);
  });

  it('ships exactly the undamaged lines, whatever bytes are changed, cut or added', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.json({ maxDepth: 1 }), { minLength: 1, maxLength: 12 }),
        fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), { maxLength: 3 }),
        fc.nat({ max: 40 }),
        fc.uint8Array({ maxLength: 20 }),
        async (values, flips, cut, extra) => {
          const lines = values.map((value, i) => `{"i":${i},"value":${value}}`);
          const dir = mkdtempSync(join(tmpdir(), 'sluice-shipper-'));
          try {
            const journal = await openJournal({ dir, clock: systemClock, log: silentLog });
            for (const line of lines) journal.append(line, () => undefined);
            await journal.close();
            const file = join(dir, journal.tail().segment);
            const bytes = readFileSync(file);
            const whole = bytes.toString().split('\n').slice(0, -1);
            for (const [at, by] of flips) bytes[at % bytes.length] = (bytes[at % bytes.length] ?? 0) ^ by;
            const damaged = Buffer.concat([bytes.subarray(0, Math.max(0, bytes.length - cut)), extra]);
            writeFileSync(file, damaged);
            const sink = new RecordingSink();
            const again = await openJournal({ dir, clock: systemClock, log: silentLog });
            const shipper = startShipper({ dir, journal: again, sink, clock: systemClock, log: silentLog });
            await shipper.drain();
            await shipper.close();
            await again.close();
            // A damaged line is never shipped: what arrives is a subsequence of what was written, and whole lines survive.
            const kept = damaged.toString('latin1').split('\n').slice(0, -1);
            const intact = whole.filter((line) => kept.includes(Buffer.from(line).toString('latin1')));
            expect(sink.lines).toEqual(intact.map((line) => line.replace(/,"crc":"[0-9a-f]{8}"\}$/, '}')));
          } finally {
            rmSync(dir, { recursive: true, force: true });
          }
        },
      ),
      { numRuns: 60 },
    );
  });

  it('ships records larger than its buffer', async () => {
    const { append, shipper, sink } = await setup();
    const large = JSON.stringify({ text: '☃'.repeat(2_000_000) });
    await append('{"i":0}', large, '{"i":1}');
    await shipper.drain();
    expect(sink.lines).toEqual(['{"i":0}', large, '{"i":1}']);
  });

  it('starts over when its files are older than the sink, rather than skipping records', async () => {
    const dir = folder();
    const sink = new RecordingSink();
    const first = await setup({ dir, sink });
    await first.append(...numbered(0, 100));
    await first.shipper.drain();
    await first.close();
    for (const name of first.segments()) unlinkSync(join(dir, name));
    const second = await setup({ dir, sink });
    await second.append('{"i":100}');
    await second.shipper.drain();
    expect(sink.lines).toEqual(numbered(0, 101));
  });

  it('goes on with the next segment when somebody removed one', async () => {
    const dir = folder();
    const sink = new RecordingSink();
    sink.before = () => {
      throw new Error('down');
    };
    const first = await setup({ dir, sink });
    await first.append('{"i":0}');
    await first.close();
    const second = await setup({ dir, sink, clock: hasty });
    await second.append('{"i":1}');
    unlinkSync(join(dir, first.segments()[0] ?? ''));
    sink.before = () => undefined;
    await second.shipper.drain();
    expect(sink.lines).toEqual(['{"i":1}']);
  });

  it('rejects a drain that a close cuts short, and closes although the sink is down', async () => {
    const { append, shipper, sink } = await setup();
    sink.before = () => {
      throw new Error('down');
    };
    await append('{"i":0}');
    const drained = expect(shipper.drain()).rejects.toThrow(/closed/);
    await shipper.close();
    await drained;
    await expect(shipper.drain()).rejects.toThrow(/closed/);
  });
});
