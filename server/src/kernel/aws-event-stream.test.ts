import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { awsEvent, awsMessage } from '../../test/support/aws-frames.ts';
import { AwsEventStream, type AwsMessage } from './aws-event-stream.ts';
import { SluiceError } from './errors.ts';

interface Seen {
  readonly headers: Record<string, string>;
  readonly payload: string;
}

const seen = ({ headers, payload }: AwsMessage): Seen => ({
  headers: Object.fromEntries(headers),
  payload: payload.toString('latin1'),
});

/** What a stream in these chunks holds, and the error it ends with. */
function read(chunks: readonly Buffer[], stream = new AwsEventStream()): { messages: Seen[]; error: unknown } {
  const messages: Seen[] = [];
  try {
    for (const chunk of chunks) for (const message of stream.push(chunk)) messages.push(seen(message));
  } catch (error) {
    return { messages, error };
  }
  return { messages, error: null };
}

const every = (bytes: Buffer, step: number): Buffer[] =>
  Array.from({ length: Math.ceil(bytes.length / step) }, (_, i) => bytes.subarray(i * step, (i + 1) * step));

describe('AwsEventStream', () => {
  const bytes = Buffer.concat([
    awsEvent('messageStart', { role: 'assistant' }),
    awsEvent('contentBlockDelta', { contentBlockIndex: 0, delta: { text: 'Grüße 😀' } }),
    awsMessage({}, ''),
  ]);
  const whole = read([bytes]);

  it('reads the messages of the AWS codec', () => {
    expect(whole.error).toBeNull();
    expect(whole.messages.map(({ headers }) => headers[':event-type'])).toEqual([
      'messageStart',
      'contentBlockDelta',
      undefined,
    ]);
    expect(whole.messages[0]?.headers).toEqual({
      ':event-type': 'messageStart',
      ':content-type': 'application/json',
      ':message-type': 'event',
    });
    expect(JSON.parse(Buffer.from(whole.messages[1]?.payload ?? '', 'latin1').toString())).toMatchObject({
      delta: { text: 'Grüße 😀' },
    });
    expect(whole.messages[2]).toEqual({ headers: {}, payload: '' });
  });

  it('reads the same wherever the bytes are split', () => {
    for (let at = 0; at <= bytes.length; at++) {
      expect(read([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(whole);
    }
    for (const step of [1, 2, 3, 7, 11, 12, 13, 64]) expect(read(every(bytes, step))).toEqual(whole);
  });

  it('knows while a message has begun and not ended', () => {
    const stream = new AwsEventStream();
    const one = awsEvent('ping', {});
    expect(stream.partial).toBe(false);
    read([one.subarray(0, 5)], stream);
    expect(stream.partial).toBe(true);
    read([one.subarray(5)], stream);
    expect(stream.partial).toBe(false);
  });

  it('passes over headers of every other kind of value', () => {
    const message = awsMessage(
      {
        yes: { type: 'boolean', value: true },
        no: { type: 'boolean', value: false },
        byte: { type: 'byte', value: -3 },
        short: { type: 'short', value: -300 },
        integer: { type: 'integer', value: 70_000 },
        bytes: { type: 'binary', value: new Uint8Array([1, 2, 3]) },
        time: { type: 'timestamp', value: new Date(1_700_000_000_000) },
        id: { type: 'uuid', value: '0189c2f4-0000-7000-8000-0123456789ab' },
        text: { type: 'string', value: 'found' },
      },
      'x',
    );
    expect(read([message])).toEqual({ messages: [{ headers: { text: 'found' }, payload: 'x' }], error: null });
  });

  it('refuses a message with any one bit turned, and never passes it on as another', () => {
    const first = awsEvent('messageStart', { role: 'assistant' });
    const second = awsEvent('messageStop', { stopReason: 'end_turn' });
    const expected = read([first]).messages;
    for (let at = 0; at < second.length; at++) {
      for (const bit of [1, 16, 128]) {
        const damaged = Buffer.from(second);
        damaged[at] = (damaged[at] ?? 0) ^ bit;
        const { messages, error } = read([Buffer.concat([first, damaged])]);
        expect(messages).toEqual(expected);
        expect(error).toBeInstanceOf(SluiceError);
        expect((error as SluiceError).kind).toBe('upstream_invalid');
      }
    }
  });

  it('refuses what is too large by its announced length, before the bytes come', () => {
    const message = awsMessage({}, Buffer.alloc(2000));
    expect(read([message], new AwsEventStream(2000)).error).toBeNull();
    const { messages, error } = read([message.subarray(0, 12)], new AwsEventStream(1999));
    expect(messages).toEqual([]);
    expect(error).toMatchObject({ kind: 'upstream_invalid' });
  });

  it('refuses bytes that are no such stream', () => {
    for (const text of ['data: {"a":1}\n\n', '<html><body>Bad gateway</body></html>', '{"message":"no"}        ']) {
      expect(read([Buffer.from(text)]).error).toMatchObject({ kind: 'upstream_invalid' });
    }
  });

  it('never hangs or throws anything else, whatever the bytes', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.constant(bytes), fc.uint8Array({ maxLength: 80 })), { maxLength: 4 }),
        fc.integer({ min: 1, max: 50 }),
        (parts, step) => {
          const all = Buffer.concat(parts);
          const { messages, error } = read(every(all, step));
          expect(error === null || error instanceof SluiceError).toBe(true);
          expect(read([all]).messages).toEqual(messages);
        },
      ),
      { numRuns: 300, seed: 7 },
    );
  });
});
