import fc from 'fast-check';
import { expect, test } from 'vitest';
import { sseReader } from './sse.ts';

const STREAM =
  'data: {"a":1}\n\n: a comment\nevent: ping\ndata: one\ndata:two\n\r\ndata: crlf\r\n\r\nid: 7\n\ndata\n\ndata:  two spaces\n\ndata: [DONE]\n\n';
const EVENTS = ['{"a":1}', 'one\ntwo', 'crlf', '', ' two spaces', '[DONE]'];

function read(pieces: readonly string[]): string[] {
  const events: string[] = [];
  const push = sseReader((data) => events.push(data));
  for (const piece of pieces) push(piece);
  return events;
}

test('an event stream gives the same events however it is cut into pieces', () => {
  expect(read([STREAM])).toEqual(EVENTS);
  expect(read([...STREAM])).toEqual(EVENTS);
  fc.assert(
    fc.property(fc.array(fc.nat(STREAM.length)), (cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), STREAM.length];
      expect(read(at.slice(1).map((end, index) => STREAM.slice(at[index], end)))).toEqual(EVENTS);
    }),
  );
});

test('CR, LF and CRLF all end a line', () => {
  const stream = 'data: a\ndata: b\n\ndata: c\n\n';
  for (const end of ['\r', '\n', '\r\n']) {
    const text = stream.replaceAll('\n', end);
    expect(read([text])).toEqual(['a\nb', 'c']);
    expect(read([...text])).toEqual(['a\nb', 'c']);
  }
});

test('an event without its closing blank line is not reported', () => {
  expect(read(['data: whole\n\ndata: half\n'])).toEqual(['whole']);
});
