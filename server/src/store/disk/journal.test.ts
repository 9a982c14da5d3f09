import * as fs from 'node:fs';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { systemClock, TestClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { type JournalIo, type JournalOptions, openJournal } from './journal.ts';

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-journal-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

async function setup(options: Partial<JournalOptions> = {}) {
  const dir = options.dir ?? folder();
  const journal = await openJournal({ dir, clock: systemClock, log: silentLog, ...options });
  onTestFinished(() => journal.close());
  const append = (line: string): Promise<void> => new Promise((resolve) => journal.append(line, resolve));
  const segments = () => readdirSync(dir).filter((name) => name.endsWith('.journal'));
  const text = () =>
    segments()
      .map((name) => readFileSync(join(dir, name), 'utf8'))
      .join('');
  return { dir, journal, append, segments, text };
}

const io = (changes: Partial<JournalIo>): JournalIo => ({ ...fs, ...changes });
/** A line as it is in a segment. */
const sealed = (line: string): string => {
  const open = line.slice(0, -1);
  return `${open},"crc":"${crc32(open).toString(16).padStart(8, '0')}"}\n`;
};
const fail = (code: string) => Object.assign(new Error(code), { code });

describe('journal', () => {
  it('has a record in its file, with a checksum, before its callback runs', async () => {
    const { journal, text } = await setup();
    const line = '{"name":"Zoë ☃"}';
    const seen = await new Promise<string>((resolve) => journal.append(line, () => resolve(text())));
    expect(seen).toBe(sealed(line));
  });

  it('is a file of JSON lines that others read as it is, the checksum being the last member of each', async () => {
    const { append, journal, text } = await setup();
    const parts: [string, string][] = [
      ['{"a":1', ',"node":"n","seq":1}'],
      ['{"a":{"crc":"0"}', ',"b":[]}'],
    ];
    await append('{"crc":"mine"}');
    for (const [line, tail] of parts) await new Promise<void>((resolve) => journal.append(line, resolve, tail));
    const read = text()
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(read).toEqual([
      { crc: expect.stringMatching(/^[0-9a-f]{8}$/) },
      { a: 1, node: 'n', seq: 1, crc: expect.stringMatching(/^[0-9a-f]{8}$/) },
      { a: { crc: '0' }, b: [], crc: expect.stringMatching(/^[0-9a-f]{8}$/) },
    ]);
    expect(read.map((record) => Object.keys(record).at(-1))).toEqual(['crc', 'crc', 'crc']);
    expect(text()).toBe(['{"crc":"mine"}', ...parts.map((part) => part.join(''))].map(sealed).join(''));
  });

  it('takes objects with members alone', async () => {
    const { journal, text } = await setup();
    for (const line of ['{}', '[]', '"text"', '7', '', '{"a":1'])
      expect(() => journal.append(line, () => undefined), line).toThrow(TypeError);
    expect(() => journal.append('{"a":1', () => undefined, ',"b":2')).toThrow(TypeError);
    journal.flush();
    expect(text()).toBe('');
  });

  it('writes all records of one event-loop turn with one system call, and runs their callbacks in order', async () => {
    let writes = 0;
    const writeSync = ((...args: Parameters<typeof fs.writeSync>) => {
      writes++;
      return fs.writeSync(...args);
    }) as typeof fs.writeSync;
    const { append, journal } = await setup({ io: io({ writeSync }) });
    const order: number[] = [];
    await Promise.all(Array.from({ length: 500 }, (_, i) => append(`{"i":${i}}`).then(() => order.push(i))));
    expect(writes).toBe(1);
    expect(order).toEqual(Array.from({ length: 500 }, (_, i) => i));
    expect(journal.depth()).toBe(journal.tail().offset);
  });

  it('goes on when a callback throws', async () => {
    const { journal, append, text } = await setup();
    journal.append('{"i":1}', () => {
      throw new Error('bad callback');
    });
    await append('{"i":2}');
    expect(text()).toContain(sealed('{"i":2}'));
  });

  it('takes records of any size, also larger than its buffer, and refuses a line break', async () => {
    const { append, text, journal } = await setup();
    const large = JSON.stringify({ text: 'ü'.repeat(3_000_000) });
    await Promise.all([append('{"i":1}'), append(large), append('{"i":2}')]);
    expect(text()).toBe(['{"i":1}', large, '{"i":2}'].map(sealed).join(''));
    expect(() => journal.append('{\n}', () => undefined)).toThrow(TypeError);
  });

  it('starts a new segment at every start and at its size, and keeps its name', async () => {
    const { dir, journal, append, segments } = await setup({ segmentBytes: 1_000 });
    for (let i = 0; i < 5; i++) await append(JSON.stringify({ x: 'x'.repeat(400) }));
    expect(segments()).toHaveLength(3);
    for (const name of segments()) expect(statSync(join(dir, name)).size).toBeLessThanOrEqual(1_000);
    await journal.close();
    const again = await setup({ dir });
    expect(again.journal.name).toBe(journal.name);
    expect(again.segments()).toHaveLength(4);
    expect(again.journal.depth()).toBe(journal.depth());
  });

  it('keeps its files from other users', async () => {
    const { dir, append, segments } = await setup({ dir: join(folder(), 'made') });
    await append('{"i":1}');
    expect(statSync(dir).mode & 0o777).toBe(0o700);
    for (const name of segments()) expect(statSync(join(dir, name)).mode & 0o777).toBe(0o600);
  });

  it('has records on disk within 50 ms or 256 KB, and at once when asked', async () => {
    const clock = new TestClock();
    let syncs = 0;
    const fdatasync = ((fd: number, done: (error: Error | null) => void) => {
      syncs++;
      fs.fdatasync(fd, done);
    }) as typeof fs.fdatasync;
    const { journal, append } = await setup({ clock, io: io({ fdatasync }) });
    await append('{"i":1}');
    await clock.advance(49);
    expect(syncs).toBe(0);
    await clock.advance(1);
    await vi.waitFor(() => expect(syncs).toBe(1), { timeout: 15_000 });
    await journal.sync();
    await append(JSON.stringify({ x: 'x'.repeat(300_000) }));
    await journal.sync();
    expect(syncs).toBe(2);
    journal.append('{"i":1}', () => undefined);
    await journal.sync();
    expect(syncs).toBe(3);
  });

  for (const code of ['ENOSPC', 'EIO']) {
    it(`on ${code} requests go on, records are held, and are written by themselves once that works`, async () => {
      const clock = new TestClock();
      let broken = false;
      const writeSync = ((fd: number, buffer: Buffer, at: number, length: number) => {
        if (!broken) return fs.writeSync(fd, buffer, at, length);
        // Half a group reaches the disk before it is full.
        if (length > 40) return fs.writeSync(fd, buffer, at, 40);
        throw fail(code);
      }) as typeof fs.writeSync;
      const { journal, append, text } = await setup({ clock, io: io({ writeSync }) });
      await append('{"i":"before"}');
      broken = true;
      await Promise.all([append('{"i":"held 1"}'), append('{"i":"held 2"}')]);
      await append('{"i":"held 3"}');
      await clock.advance(5_000);
      expect(journal).toMatchObject({ failing: true, held: 3, dropped: 0 });
      broken = false;
      await clock.advance(1_000);
      expect(journal).toMatchObject({ failing: false, held: 0, dropped: 0 });
      await append('{"i":"after"}');
      const ids = ['before', 'held 1', 'held 2', 'held 3', 'after'];
      expect(text()).toBe(ids.map((i) => sealed(JSON.stringify({ i }))).join(''));
      expect(journal.depth()).toBe(Buffer.byteLength(text()));
    });

    it(`on ${code} it tries the disk by itself, so that whoever waits for it need not append`, async () => {
      const clock = new TestClock();
      let broken = false;
      const writeSync = ((...args: Parameters<typeof fs.writeSync>) => {
        if (broken) throw fail(code);
        return fs.writeSync(...args);
      }) as typeof fs.writeSync;
      // Nothing can be held: the one record is lost, and none comes after it.
      const { journal, append, text } = await setup({ clock, holdBytes: 0, io: io({ writeSync }) });
      await append('{"i":"before"}');
      broken = true;
      await append('{"i":"lost"}');
      await clock.advance(60_000);
      expect(journal).toMatchObject({ failing: true, held: 0, dropped: 1 });
      broken = false;
      await clock.advance(1_000);
      expect(journal.failing).toBe(false);
      // What it tried with is not left behind.
      expect(Buffer.byteLength(text())).toBe(journal.depth());
    });
  }

  it('drops and counts what is beyond its bound of held records, and says so when it closes on a full disk', async () => {
    let broken = false;
    const errors: unknown[] = [];
    const writeSync = ((...args: Parameters<typeof fs.writeSync>) => {
      if (broken) throw fail('ENOSPC');
      return fs.writeSync(...args);
    }) as typeof fs.writeSync;
    const log = { ...silentLog, error: (message: string, fields?: unknown) => errors.push([message, fields]) };
    const { journal, append } = await setup({ clock: new TestClock(), holdBytes: 90, log, io: io({ writeSync }) });
    broken = true;
    for (const i of [1, 2, 3, 4]) await append(`{"i":"a record ${i}"}`);
    expect(journal).toMatchObject({ held: 2, dropped: 2 });
    await journal.close();
    expect(journal.dropped).toBe(4);
    expect(errors.at(-1)).toEqual(['journal cannot write, records are lost', { records: 2 }]);
  });

  it('writes what it holds when it closes and there is room again', async () => {
    const clock = new TestClock();
    let full = true;
    const writeSync = ((...args: Parameters<typeof fs.writeSync>) => {
      if (full) throw fail('ENOSPC');
      return fs.writeSync(...args);
    }) as typeof fs.writeSync;
    const { journal, append, text } = await setup({ clock, io: io({ writeSync }) });
    await append('{"i":1}');
    expect(journal.held).toBe(1);
    full = false;
    await journal.close();
    expect([journal.dropped, text()]).toEqual([0, sealed('{"i":1}')]);
  });

  it('goes to a new segment when a half-written group cannot be taken back', async () => {
    const clock = new TestClock();
    let broken = true;
    const { journal, append, segments, dir } = await setup({
      clock,
      io: io({
        writeSync: ((fd: number, buffer: Buffer, at: number, length: number) => {
          if (!broken) return fs.writeSync(fd, buffer, at, length);
          if (at === 0) return fs.writeSync(fd, buffer, at, 10);
          throw fail('EIO');
        }) as typeof fs.writeSync,
        ftruncateSync: () => {
          throw fail('EIO');
        },
      }),
    });
    await append('{"i":"late"}');
    broken = false;
    await clock.advance(100);
    await append('{"i":"kept"}');
    expect(journal.dropped).toBe(0);
    expect(journal.segments().map((segment) => segment.live)).toEqual([false, true]);
    expect(journal.segments()[0]?.size).toBe(0);
    const kept = readFileSync(join(dir, segments()[1] ?? ''), 'utf8');
    expect(kept).toBe(sealed('{"i":"late"}') + sealed('{"i":"kept"}'));
  });

  it('starts on a full disk and begins to write when there is room', async () => {
    const clock = new TestClock();
    let full = true;
    const openSync = ((...args: Parameters<typeof fs.openSync>) => {
      if (full) throw fail('ENOSPC');
      return fs.openSync(...args);
    }) as typeof fs.openSync;
    const { journal, append, text } = await setup({ clock, io: io({ openSync }) });
    await append('{"i":1}');
    full = false;
    await clock.advance(100);
    await append('{"i":2}');
    expect(journal.dropped).toBe(0);
    expect(text()).toBe(sealed('{"i":1}') + sealed('{"i":2}'));
  });

  it('writes to a new segment after a failed fdatasync', async () => {
    let broken = true;
    const fdatasync = ((fd: number, done: (error: Error | null) => void) => {
      if (broken) done(fail('EIO'));
      else fs.fdatasync(fd, done);
    }) as typeof fs.fdatasync;
    const { journal, append, segments } = await setup({ io: io({ fdatasync }) });
    await append('{"i":1}');
    await journal.sync();
    broken = false;
    await append('{"i":2}');
    expect(segments()).toHaveLength(2);
    expect(journal.dropped).toBe(0);
  });

  it('drops and counts records above its bound, and takes them again once the reader has caught up', async () => {
    const { journal, append } = await setup({ maxBytes: 2_000 });
    // 500 bytes on disk.
    const line = JSON.stringify({ x: 'x'.repeat(474) });
    for (let i = 0; i < 6; i++) await append(line);
    expect(journal.dropped).toBe(2);
    expect(journal.depth()).toBeLessThanOrEqual(2_000);
    expect(journal.failing).toBe(true);
    journal.shippedTo(journal.tail());
    expect(journal.depth()).toBe(0);
    // Before anything is appended: who is refused meanwhile appends nothing.
    expect(journal.failing).toBe(false);
    await append(line);
    expect(journal.dropped).toBe(2);
  });

  it('takes records again only when a tenth of its bound is free, so that it does not stop and start at each record', async () => {
    const { journal, append } = await setup({ maxBytes: 10_000 });
    // 500 bytes on disk.
    const line = JSON.stringify({ x: 'x'.repeat(474) });
    while (!journal.failing) await append(line);
    const full = journal.depth();
    const { segment } = journal.tail();
    // To a byte more than nine tenths, and then to nine tenths.
    journal.shippedTo({ segment, offset: full - 9_001 });
    expect([journal.depth(), journal.failing]).toEqual([9_001, true]);
    journal.shippedTo({ segment, offset: full - 9_000 });
    expect([journal.depth(), journal.failing]).toEqual([9_000, false]);
  });

  it('writes what is queued when it closes; what comes later is dropped, counted and called back', async () => {
    const { journal, append, text } = await setup();
    const queued = append('{"i":1}');
    await journal.close();
    await queued;
    expect(text()).toContain(sealed('{"i":1}'));
    await append('{"i":2}');
    expect(journal.dropped).toBe(1);
    await journal.close();
  });

  it('refuses a directory whose id is damaged', async () => {
    const dir = folder();
    writeFileSync(join(dir, 'journal-id'), '');
    await expect(setup({ dir })).rejects.toThrow(/journal-id/);
  });
});
