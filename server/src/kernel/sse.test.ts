import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SluiceError } from './errors.ts';
import { formatEvent, parseEvent, type SseEvent, SseSplitter } from './sse.ts';

function split(chunks: readonly Buffer[], max?: number): { events: string[]; rest: string | null } {
  const splitter = new SseSplitter(max);
  const events = chunks.flatMap((chunk) => splitter.push(chunk)).map((event) => event.toString('latin1'));
  return { events, rest: splitter.rest()?.toString('latin1') ?? null };
}

/** The definition, slowly: lines end with CRLF, LF or CR; an empty line ends what has a line that is not empty. */
function reference(bytes: Buffer): { events: string[]; rest: string | null } {
  const text = bytes.toString('latin1');
  const events: string[] = [];
  let from = 0;
  let lineFrom = 0;
  let content = false;
  for (const match of text.matchAll(/\r\n|\n|\r/g)) {
    const end = match.index + match[0].length;
    // A CR at the very end waits for a LF that may follow.
    if (match.index > lineFrom) content = true;
    else if (content && !(match[0] === '\r' && end === text.length)) {
      events.push(text.slice(from, end));
      from = end;
      content = false;
    }
    lineFrom = end;
  }
  return { events, rest: from < text.length ? text.slice(from) : null };
}

it('gives the last event out when the stream ends with the lone CR that ends it', () => {
  const splitter = new SseSplitter();
  expect(splitter.push(Buffer.from('data: 1\r\rdata: 2\r\r')).map(String)).toEqual(['data: 1\r\r']);
  expect(String(splitter.last())).toBe('data: 2\r\r');
  expect([splitter.last(), splitter.rest()]).toEqual([null, null]);
  splitter.push(Buffer.from('data: 3\r'));
  expect(splitter.last()).toBeNull();
});

const stream = fc
  .array(
    fc.constantFrom(
      'data: {"a":1}',
      'data:é😀',
      'event: x',
      ': ping',
      'id: 7',
      'data',
      '\n',
      '\n',
      '\r\n',
      '\r\n',
      '\r',
      'x',
    ),
    { maxLength: 30 },
  )
  .map((parts) => Buffer.from(parts.join('')));

describe('SseSplitter', () => {
  it('gives the same whole events wherever the stream is split, and loses no byte', () => {
    fc.assert(
      fc.property(stream, fc.array(fc.nat({ max: 60 }), { maxLength: 8 }), (bytes, cuts) => {
        const expected = reference(bytes);
        expect(split([bytes])).toEqual(expected);
        expect(split([...bytes].map((byte) => Buffer.from([byte])))).toEqual(expected);
        const at = [0, ...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length];
        const chunks = at.slice(1).map((end, k) => bytes.subarray(at[k] ?? 0, end));
        expect(split(chunks)).toEqual(expected);
        expect(expected.events.join('') + (expected.rest ?? '')).toBe(bytes.toString('latin1'));
      }),
      { numRuns: 3000 },
    );
  });

  it('hands out slices of the chunk, not copies, for events that lie inside it', () => {
    const chunk = Buffer.from('data: 1\n\ndata: 2\n\ndata: 3');
    const events = new SseSplitter().push(chunk);
    expect(events.map(String)).toEqual(['data: 1\n\n', 'data: 2\n\n']);
    for (const event of events) expect(event.buffer).toBe(chunk.buffer);
  });

  it('a flood of blank lines makes no events and is bounded', () => {
    const splitter = new SseSplitter(1 << 20);
    expect(splitter.push(Buffer.alloc(9_000, '\n'))).toEqual([]);
    expect(splitter.push(Buffer.from('data: 1\n\n'))).toHaveLength(1);
    expect(() => splitter.push(Buffer.alloc(10_001, '\n'))).toThrow('an event of more than 10000 lines');
  });

  it('refuses an event of more lines than anybody reads', () => {
    const splitter = new SseSplitter();
    expect(splitter.push(Buffer.from(`${'data: 1\n'.repeat(9_000)}\n`))).toHaveLength(1);
    expect(() => splitter.push(Buffer.from('data: 1\r\n'.repeat(10_001)))).toThrow('an event of more than 10000 lines');
  });

  it('gives an event out with its last byte and not with the next event', () => {
    const splitter = new SseSplitter();
    expect(splitter.push(Buffer.from('data: 1\r\n\r'))).toEqual([]);
    expect(splitter.push(Buffer.from('\n')).map(String)).toEqual(['data: 1\r\n\r\n']);
    expect(splitter.push(Buffer.from('data: 2\n\n')).map(String)).toEqual(['data: 2\n\n']);
  });

  it('refuses an event larger than the bound, also when it arrives in single bytes', () => {
    expect(() => split([Buffer.alloc(1001, 0x61)], 1000)).toThrow(SluiceError);
    expect(() =>
      split(
        Array.from({ length: 1001 }, () => Buffer.from('a')),
        1000,
      ),
    ).toThrow(SluiceError);
    expect(split([Buffer.alloc(999, 0x61), Buffer.from('\n\n')], 1001).events).toHaveLength(1);
    expect(() => split([Buffer.alloc(8 * 1024 * 1024 + 1, 0x61)])).toThrow('8388608 bytes');
  });
});

describe('parseEvent', () => {
  it.each<[string, SseEvent | null]>([
    ['data: {"a":1}\n\n', { event: null, data: '{"a":1}' }],
    ['data:x\n\n', { event: null, data: 'x' }],
    ['data:  x\n\n', { event: null, data: ' x' }],
    ['data: a\ndata: b\n\n', { event: null, data: 'a\nb' }],
    ['data: a\r\ndata:\r\ndata: b\r\n\r\n', { event: null, data: 'a\n\nb' }],
    ['data: a\rdata: b\r\r', { event: null, data: 'a\nb' }],
    ['event: ping\ndata: {}\nid: 1\nretry: 5\n\n', { event: 'ping', data: '{}' }],
    [': comment\ndata: x\n\n', { event: null, data: 'x' }],
    ['data\n\n', { event: null, data: '' }],
    ['data: \n\n', { event: null, data: '' }],
    ['\ufeffdata: x\n\n', { event: null, data: 'x' }],
    ['data: a:b: c\n\n', { event: null, data: 'a:b: c' }],
    [': only a comment\n\n', null],
    ['event: x\n\n', null],
    ['\n', null],
    ['', null],
    ['datax: 1\n\n', null],
    ['Data: 1\n\n', null],
  ])('reads %j', (text, expected) => {
    expect(parseEvent(Buffer.from(text))).toEqual(expected);
  });

  it('reads back what formatEvent wrote', () => {
    fc.assert(
      fc.property(fc.option(fc.stringMatching(/^[a-z_.]{1,20}$/)), fc.string({ unit: 'grapheme' }), (event, data) => {
        const normal = data.replace(/\r\n|\r/g, '\n');
        expect(parseEvent(Buffer.from(formatEvent({ event, data })))).toEqual({ event, data: normal });
      }),
    );
  });

  it('never lets data or a name forge a further event', () => {
    const text = formatEvent({ event: 'a\n\ndata: forged', data: 'x\r\n\r\nevent: forged' });
    expect(split([Buffer.from(text)]).events).toHaveLength(1);
    expect(parseEvent(Buffer.from(text))?.data).toBe('x\n\nevent: forged');
  });
});
