import { describe, expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { type AccessEntry, type AccessMode, createAccessLog } from './access-log.ts';

const ENTRY: AccessEntry = {
  request_id: 'r',
  method: 'POST',
  path: '/v1/chat/completions',
  status: 400,
  duration_ms: 1,
  error: 'bad_call',
  organisation_id: null,
  workspace_id: null,
  api_key_id: null,
};

function open(mode: AccessMode) {
  const clock = new TestClock();
  const writes: string[] = [];
  const output = { full: false };
  const log = createAccessLog({
    mode,
    format: 'json',
    clock,
    write(lines) {
      if (output.full) throw new Error('EAGAIN');
      writes.push(lines);
    },
  });
  if (log === null) throw new Error('no log');
  const write = (times: number, more: Partial<AccessEntry> = {}) => {
    for (let i = 0; i < times; i++) log.write({ ...ENTRY, ...more });
  };
  /** What was written since the last time. */
  const texts = async () => {
    await new Promise((resolve) => setImmediate(resolve));
    return writes
      .splice(0)
      .join('')
      .split('\n')
      .filter((line) => line !== '');
  };
  const lines = async () => (await texts()).map((line) => JSON.parse(line) as Record<string, unknown>);
  return { log, clock, writes, output, write, texts, lines };
}

describe('a line of the access log', () => {
  it.each(['\u0085', '\u2028', '\u2029', '\u007f', '\n', '\r'])(
    'stays one line for readers that end lines at %j, in a path, a trace id or a model',
    async (end) => {
      const { write, texts } = open('all');
      const name = `/a${end}b`;
      write(1, { path: name, trace_id: name, model: name });
      const [line = '', ...more] = await texts();
      expect(more).toEqual([]);
      expect(line.split(/[\r\n\u007f-\u009f\u2028\u2029]/)).toHaveLength(1);
      const { path, trace_id, model } = JSON.parse(line);
      for (const text of [path, trace_id, model]) expect(text).toMatch(/^\/a.{1,6}b$/s);
    },
  );

  it('holds 200 characters of a path, a trace id or a model at most', async () => {
    const { write, lines } = open('all');
    const long = 'm'.repeat(5_000);
    write(1, { path: long, trace_id: long, model: long });
    const text = 'm'.repeat(200);
    expect(await lines()).toEqual([expect.objectContaining({ path: text, trace_id: text, model: text })]);
  });
});

describe('the access log', () => {
  it('of errors writes 100 lines at once, then 5 a second, and says how many it left out', async () => {
    const { clock, write, lines } = open('errors');
    write(103);
    const first = await lines();
    expect(first).toHaveLength(100);
    expect(first.filter((line) => 'suppressed' in line)).toEqual([]);
    clock.jump(1_000);
    write(7);
    expect((await lines()).map(({ suppressed }) => suppressed)).toEqual([
      3,
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
    clock.jump(1_000);
    write(1);
    expect((await lines()).map(({ suppressed }) => suppressed)).toEqual([2]);
  });

  it('of all requests leaves none out', async () => {
    const { write, lines } = open('all');
    write(1_000);
    expect(await lines()).toHaveLength(1_000);
  });

  it('writes the lines of one turn by one write', async () => {
    const { write, writes } = open('all');
    write(50);
    expect(writes).toHaveLength(0);
    await new Promise((resolve) => setImmediate(resolve));
    expect(writes).toHaveLength(1);
  });

  it('writes what waits when it closes, once', async () => {
    const { log, write, writes, lines } = open('all');
    write(2);
    await log.close();
    expect(writes).toHaveLength(1);
    expect(await lines()).toHaveLength(2);
  });

  it('goes on while standard output takes nothing, and writes again when it does', async () => {
    const { log, output, write, lines } = open('all');
    output.full = true;
    write(1, { request_id: 'lost' });
    await log.close();
    write(1, { request_id: 'lost, too' });
    expect(await lines()).toEqual([]);
    output.full = false;
    write(1, { request_id: 'written' });
    expect((await lines()).map(({ request_id }) => request_id)).toEqual(['written']);
  });
});
