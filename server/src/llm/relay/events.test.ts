import { expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import { EventReader } from './events.ts';

const HELLO = 'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n';

/** The model that is known after each of the chunks. */
function models(chunks: readonly string[], modelKey?: string): (string | null)[] {
  const x = testExchange();
  const reader = new EventReader({
    x,
    target: { sent: [], credentials: { settings: {} } } as never,
    bound: { binding: { shape: 'chat', modelKey }, convert: null } as never,
    context: {} as never,
    meter: { count: () => undefined, see: () => undefined } as never,
    stripUsage: false,
    framing: 'sse',
  });
  return chunks.map((chunk) => {
    reader.push(Buffer.from(chunk));
    return x.outcome.modelAnswered;
  });
}

it('finds the model in whichever of many events tells it first', () => {
  const told = 'data: {"model":"m-1","choices":[]}\n\n';
  const many = HELLO.repeat(20);
  expect(models([many + told + many.replaceAll('Hello', '{\\"model\\":')])).toEqual(['m-1']);
  expect(models([many, many + told])).toEqual([null, 'm-1']);
  // The event that tells it began in the chunk before.
  expect(models([many + told.slice(0, 14), told.slice(14) + many])).toEqual([null, 'm-1']);
  expect(models([many + told.replace('model', 'modelVersion') + many], 'modelVersion')).toEqual(['m-1']);
});

/** A reader of a stream that is made anew, event by event. */
const converting = () =>
  new EventReader({
    x: testExchange(),
    target: { sent: [], credentials: { settings: {} } } as never,
    bound: { binding: { shape: 'chat' }, convert: {}, stream: () => ({ event: () => {}, end: () => {} }) } as never,
    context: {} as never,
    meter: { count: () => undefined, see: () => undefined } as never,
    stripUsage: false,
    framing: 'sse',
  });

it('refuses an event of too many members before most of it has come', () => {
  const keys = Array.from({ length: 100_000 }, (_, i) => `"${i}":1`).join(',');
  const reader = converting();
  const bytes = Buffer.from(`data: {${keys}}\n\n`);
  const parts = (from: number) => bytes.subarray(from, from + 64 * 1024);
  let taken = 0;
  expect(() => {
    for (; taken < bytes.length; taken += 64 * 1024) reader.push(parts(taken));
  }).toThrow('too many values, to convert');
  expect(taken).toBeLessThan(300 * 1024);
});

it('takes a large event of one text, however it arrives', () => {
  const reader = converting();
  const bytes = Buffer.from(`event: x\ndata: {"a":"${',:'.repeat(300_000)}"}\n\n`);
  for (let at = 0; at < bytes.length; at += 64 * 1024) reader.push(bytes.subarray(at, at + 64 * 1024));
  expect(() => reader.push(bytes)).not.toThrow();
});
