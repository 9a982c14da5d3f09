import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { systemClock, TestClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { type Log, silentLog } from '../../src/kernel/log.ts';
import { loadTokenizer } from '../../src/operations/tokens.ts';
import { openDiskScratch } from '../../src/store/disk/scratch.ts';
import { convertDataset, countDataset, isValid, validateDataset } from '../../src/training/datasets/index.ts';

const context = { clock: systemClock, log: silentLog, owner: 'org' };
const LARGE = 3_000;

const row = (i: number, answer = `Answer ${i}, which is not short: ${'word '.repeat(30)}`) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: `Question ${i}` },
      { role: 'assistant', content: answer },
    ],
  });
const rows = (count: number, from = 0) => Array.from({ length: count }, (_, i) => row(from + i));

/** Lines in pieces that know nothing of lines. */
function stream(lines: readonly string[], size = 10_007): Readable {
  const bytes = Buffer.from(`${lines.join('\n')}\n`);
  return Readable.from(
    (function* () {
      for (let from = 0; from < bytes.length; from += size) yield bytes.subarray(from, from + size);
    })(),
  );
}

describe('a data set is checked', () => {
  it('the same in the thread as at once: small or large', async () => {
    for (const count of [3, LARGE]) {
      const lines = rows(count);
      lines[1] = '{"messages": []}';
      lines.push(lines[0] ?? '');
      const report = await validateDataset(stream(lines), context);
      expect(report).toEqual({
        rows: count + 1,
        valid: count,
        kind: 'chat',
        bytes: Buffer.byteLength(`${lines.join('\n')}\n`),
        problems: [{ line: 2, code: 'messages', reason: '"messages" must be a list with messages' }],
        totals: { messages: 1 },
        tokens: null,
        duplicates: 1,
        duplicates_complete: true,
      });
    }
  });

  it('against the rules of the format it will be converted to', async () => {
    const tooNew = JSON.stringify({ messages: [{ role: 'assistant', content: 'hello' }] });
    const canonical = await validateDataset(stream([tooNew]), context);
    expect(isValid(canonical)).toBe(true);
    const bedrock = await validateDataset(stream([tooNew]), { ...context, format: 'bedrock-conversation' });
    expect(bedrock.totals).toEqual({ alternation: 1 });
  });

  it('and its tokens are those of the tokeniser, with the frame of each turn', async () => {
    const { count } = await loadTokenizer();
    const lines = rows(50);
    const expected = lines.reduce((sum, line) => {
      const { messages } = JSON.parse(line) as { messages: { role: string; content: string }[] };
      return sum + 3 + messages.reduce((all, { role, content }) => all + 3 + count(role) + count(content), 0);
    }, 0);
    expect(await countDataset(stream(lines), context)).toEqual({ rows: 50, tokens: expected });
    expect(await validateDataset(stream(lines), { ...context, countTokens: true })).toMatchObject({ tokens: expected });
  });

  it('while the log tells how far it is, every three seconds by the clock', async () => {
    const clock = new TestClock();
    const told: Record<string, unknown>[] = [];
    const log: Log = {
      ...silentLog,
      info: (_message, fields = {}) => {
        told.push(fields);
      },
    };
    let open = () => {};
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    let seen = () => {};
    const progress = new Promise<void>((resolve) => {
      seen = resolve;
    });
    const lines = rows(LARGE);
    const slow = Readable.from(
      (async function* () {
        yield Buffer.from(`${lines.join('\n')}\n`);
        await opened;
        yield Buffer.from(`${row(-1)}\n`);
      })(),
    );
    const report = validateDataset(slow, { clock, log, owner: 'org', name: 'gw_file_1', onProgress: () => seen() });
    await progress;
    await clock.advance(7_000);
    open();
    expect(await report).toMatchObject({ rows: LARGE + 1 });
    expect(told).toHaveLength(2);
    expect(told[1]).toMatchObject({ name: 'gw_file_1', seconds: 6 });
    expect(Number(told[1]?.rows)).toBeGreaterThan(500);
    expect(JSON.stringify(told)).not.toContain('Question');
    await clock.advance(10_000);
    expect(told).toHaveLength(2);
  });

  it('until it is cancelled: the reason is thrown and the input is let go', async () => {
    const leaving = new AbortController();
    let begun = () => {};
    const started = new Promise<void>((resolve) => {
      begun = resolve;
    });
    const endless = Readable.from(
      (function* () {
        const lines = Buffer.from(`${rows(2_000).join('\n')}\n`);
        for (;;) yield lines;
      })(),
    );
    const report = validateDataset(endless, { ...context, signal: leaving.signal, onProgress: () => begun() });
    report.catch(() => undefined);
    await started;
    leaving.abort(new SluiceError('client_closed', 'The client went away.'));
    await expect(report).rejects.toMatchObject({ message: 'The client went away.' });
    expect(endless.destroyed).toBe(true);
  });

  it('not at all when it was cancelled before', async () => {
    const signal = AbortSignal.abort(new SluiceError('client_closed', 'gone'));
    await expect(validateDataset(stream(rows(1)), { ...context, signal })).rejects.toThrow('gone');
  });

  it('and the failure of its input is thrown', async () => {
    for (const count of [1, LARGE]) {
      const failing = Readable.from(
        (async function* () {
          yield Buffer.from(`${rows(count).join('\n')}\n`);
          throw new Error('the disk is gone');
        })(),
      );
      await expect(validateDataset(failing, context)).rejects.toThrow('the disk is gone');
    }
  });

  it('many at a time, each with its own result', async () => {
    const reports = await Promise.all([1, 2, 3, 4, 5, 6].map((n) => validateDataset(stream(rows(1_000 + n)), context)));
    expect(reports.map((report) => report.rows)).toEqual([1_001, 1_002, 1_003, 1_004, 1_005, 1_006]);
  });
});

describe('a data set is converted', () => {
  it('row by row, none left out and in order', async () => {
    for (const count of [2, LARGE]) {
      const { stream: out, report } = convertDataset(stream(rows(count)), { ...context, format: 'vertex-supervised' });
      const lines = (await text(out)).trimEnd().split('\n');
      expect(await report).toMatchObject({ rows: count, valid: count });
      expect(lines).toHaveLength(count);
      lines.forEach((line, i) => {
        const { contents } = JSON.parse(line) as { contents: { parts: { text: string }[] }[] };
        expect(contents[0]?.parts[0]?.text).toBe(`Question ${i}`);
      });
    }
  });

  it('without a change where the provider takes canonical rows, but for byte order mark and line ends', async () => {
    const [first = '', second = ''] = rows(2);
    const input = Readable.from([Buffer.from(`\ufeff${first}\r\n${second}`)]);
    const { stream: out } = convertDataset(input, { ...context, format: 'openai' });
    expect(await text(out)).toBe(`${first}\n${second}\n`);
  });

  it('or refused with ten lines and without their content, and the upload it feeds does not end', async () => {
    for (const count of [40, LARGE]) {
      const lines = rows(count);
      for (let i = 20; i < count; i++)
        lines[i] = JSON.stringify({ messages: [{ role: 'user', content: 'my secret' }] });
      const { stream: out, report } = convertDataset(stream(lines), {
        ...context,
        format: 'mistral',
        param: 'training_file',
      });
      const error = await text(out).then(
        () => null,
        (thrown: unknown) => thrown,
      );
      expect(error).toMatchObject({ kind: 'invalid_request', param: 'training_file', reason: 'invalid_dataset_row' });
      const { message } = error as SluiceError;
      for (let line = 21; line <= 30; line++) expect(message).toContain(`line ${line}: `);
      expect(message).not.toContain('line 31');
      expect(message).not.toContain('secret');
      // Reading stopped with the tenth.
      expect((await report).rows).toBe(30);
    }
  });

  it('with too few rows refused, whatever was sent before', async () => {
    const { stream: out } = convertDataset(stream(rows(2)), { ...context, format: 'fireworks', minimumRows: 3 });
    await expect(buffer(out)).rejects.toThrow('the data set has 2 rows and needs at least 3');
  });

  it('no faster than it is read', async () => {
    let made = 0;
    const lines = Buffer.from(`${rows(1_000).join('\n')}\n`);
    const input = Readable.from(
      (function* () {
        for (let i = 0; i < 60; i++) {
          made += lines.length;
          yield lines;
        }
      })(),
    );
    const { stream: out, report } = convertDataset(input, { ...context, format: 'bedrock-conversation' });
    let read = 0;
    let ahead = 0;
    for await (const chunk of out) {
      read += (chunk as Buffer).length;
      ahead = Math.max(ahead, made - read);
      await new Promise(setImmediate);
    }
    expect((await report).rows).toBe(60_000);
    expect(ahead).toBeLessThan(4_000_000);
  });

  it('or fails with its reason, also when that is known before anybody reads', async () => {
    const cancelled = new SluiceError('client_closed', 'The job was cancelled.');
    const dir = mkdtempSync(join(tmpdir(), 'sluice-scratch-'));
    const scratch = await openDiskScratch({ dir, clock: systemClock });
    const early: Error[] = [];
    const ended = (error: Error) => early.push(error);
    process.on('uncaughtExceptionMonitor', ended);
    try {
      for (const [lines, signal, reason] of [
        [rows(2), AbortSignal.abort(cancelled), 'The job was cancelled.'],
        [['{"messages": []}'], undefined, 'line 1: "messages" must be a list with messages'],
      ] as const) {
        const { stream: out, report } = convertDataset(stream(lines), { ...context, format: 'openai', signal });
        await report.catch(() => undefined);
        // The reader opens its file first.
        await expect(scratch.hold(out)).rejects.toThrow(reason);
      }
    } finally {
      process.off('uncaughtExceptionMonitor', ended);
      rmSync(dir, { recursive: true });
    }
    expect(early).toEqual([]);
  });

  it('until nobody reads it any more', async () => {
    const endless = Readable.from(
      (function* () {
        const lines = Buffer.from(`${rows(2_000).join('\n')}\n`);
        for (;;) yield lines;
      })(),
    );
    const { stream: out, report } = convertDataset(endless, { ...context, format: 'mistral' });
    for await (const chunk of out) {
      expect((chunk as Buffer).length).toBeGreaterThan(0);
      break;
    }
    await expect(report).rejects.toMatchObject({ kind: 'client_closed' });
    expect(endless.destroyed).toBe(true);
  });
});
