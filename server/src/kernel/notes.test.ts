import { describe, expect, it } from 'vitest';
import { TestClock } from './clock.ts';
import { silentLog } from './log.ts';
import { createNotes, NOTES } from './notes.ts';

function noting() {
  const clock = new TestClock();
  const lines: [string, Record<string, unknown> | undefined][] = [];
  const log = {
    ...silentLog,
    warn: (message: string, fields?: Record<string, unknown>) => lines.push([message, fields]),
  };
  return { clock, lines, notes: createNotes(log, clock, { burst: 3, perSecond: 1 }) };
}

describe('notes of refusals', () => {
  it('a flood of one kind is cut, and the next line says how many were left out', async () => {
    const { clock, lines, notes } = noting();
    for (let i = 0; i < 1000; i++) notes('limit', { i });
    expect(lines).toHaveLength(3);
    await clock.advance(1000);
    notes('limit', { i: 1000 });
    expect(lines.at(-1)).toEqual([NOTES.limit, { i: 1000, suppressed: 997 }]);
    expect(lines).toHaveLength(4);
  });

  it('a flood of one kind hides no other kind', () => {
    const { lines, notes } = noting();
    for (let i = 0; i < 1000; i++) notes('limit', {});
    notes('dns', { host: 'api.openai.com' });
    expect(lines.at(-1)).toEqual([NOTES.dns, { host: 'api.openai.com' }]);
  });
});
