import { expect, it } from 'vitest';
import { calmLog } from './calm-log.ts';
import { TestClock } from './clock.ts';
import type { Log } from './log.ts';
import { NOTES } from './notes.ts';

function setup() {
  const clock = new TestClock();
  const lines: [string, string, unknown][] = [];
  const at = (level: string) => (message: string, fields?: unknown) => void lines.push([level, message, fields]);
  const log: Log = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
  return { clock, lines, log: calmLog(log, clock) };
}

it('an outage of two minutes leaves three lines, a sum each minute, and one line at its end', async () => {
  const { clock, lines, log } = setup();
  for (let second = 0; second < 120; second++) {
    for (let i = 0; i < 200; i++) log.warn('a connection was lost', { second });
    await clock.advance(1_000);
  }
  await clock.advance(60_000);
  expect(lines).toEqual([
    ['warn', 'a connection was lost', { second: 0 }],
    ['warn', 'a connection was lost', { second: 0 }],
    ['warn', 'a connection was lost', { second: 0 }],
    ['warn', 'a connection was lost', { repeated: 11_997, seconds: 60, total: 12_000 }],
    ['warn', 'a connection was lost', { repeated: 12_000, seconds: 60, total: 24_000 }],
    ['info', 'a connection was lost: not seen for a minute', { total: 24_000 }],
  ]);
  lines.length = 0;
  log.warn('a connection was lost', { again: true });
  expect(lines).toEqual([['warn', 'a connection was lost', { again: true }]]);
});

it('each kind is counted by itself, and what happens now and then is written as it comes', async () => {
  const { clock, lines, log } = setup();
  for (let i = 0; i < 5; i++) log.error('one');
  log.error('another');
  log.warn('one');
  log.info('plain');
  for (let i = 0; i < 5; i++) log.info('plain');
  expect(lines.filter(([level]) => level === 'error').map(([, message]) => message)).toEqual([
    'one',
    'one',
    'one',
    'another',
  ]);
  expect(lines.filter(([, message]) => message === 'plain')).toHaveLength(6);
  await clock.advance(120_000);
  lines.length = 0;
  for (let i = 0; i < 10; i++) {
    log.error('rare');
    await clock.advance(61_000);
  }
  expect(lines).toHaveLength(10);
});

it('refusals that have a bound of their own pass', () => {
  const { lines, log } = setup();
  for (let i = 0; i < 20; i++) log.warn(NOTES.limit);
  expect(lines).toHaveLength(20);
});
