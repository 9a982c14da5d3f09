import { describe, expect, it } from 'vitest';
import { awsChunk, awsEvent, awsException, awsFault, awsMessage } from '../../../test/support/aws-frames.ts';
import { parseEvent } from '../../kernel/sse.ts';
import { AwsFrames } from './frames.ts';

function events(bytes: readonly Buffer[]): { frames: AwsFrames; events: unknown[] } {
  const frames = new AwsFrames();
  return { frames, events: bytes.flatMap((chunk) => frames.push(chunk)).map(parseEvent) };
}

describe('AwsFrames', () => {
  it('gives events of Converse under their type, what is inside as it came', () => {
    const headers = { ':event-type': { type: 'string' as const, value: 'contentBlockDelta' } };
    const payload = '{"contentBlockIndex":0,\n "delta":{"text":"9007199254740993"},"n":9007199254740993}';
    expect(events([awsMessage(headers, payload)]).events).toEqual([
      { event: 'contentBlockDelta', data: `{"contentBlockDelta":${payload}}` },
    ]);
  });

  it("gives chunks of InvokeModel as the model's own events, named by their type", () => {
    const stop = { type: 'message_stop', 'amazon-bedrock-invocationMetrics': { inputTokenCount: 3 } };
    const { frames, events: out } = events([awsChunk({ type: 'ping' }), awsChunk(stop), awsChunk({ generation: 'a' })]);
    expect(out).toEqual([
      { event: 'ping', data: '{"type":"ping"}' },
      { event: 'message_stop', data: JSON.stringify(stop) },
      { event: null, data: '{"generation":"a"}' },
    ]);
    expect(frames.broken).toBeNull();
  });

  it.each([
    ['throttlingException', { message: 'Too many requests' }, 429, 'rate_limit_exceeded', 'Too many requests'],
    ['validationException', { message: 'bad' }, 400, 'validation_exception', 'bad'],
    ['serviceUnavailableException', { message: 'later' }, 503, null, 'later'],
    ['internalServerException', {}, 500, null, 'AWS answered with status 500.'],
    ['modelTimeoutException', { message: 'slow' }, 408, 'model_timeout_exception', 'slow'],
    [
      'modelStreamErrorException',
      { message: 'The model failed', originalStatusCode: 500, originalMessage: 'x' },
      502,
      'model_error',
      'The model failed',
    ],
    ['somethingNewException', { message: 'new' }, 502, null, 'new'],
  ])('ends with a %s as an error with a status, after the events before it', (type, payload, status, code, message) => {
    const { frames, events: out } = events([
      Buffer.concat([awsEvent('messageStart', { role: 'assistant' }), awsException(type, payload)]),
      awsEvent('messageStop', { stopReason: 'end_turn' }),
    ]);
    expect(out).toHaveLength(1);
    expect(frames.broken).toMatchObject({ kind: 'provider_error', provider: { status, code }, message });
  });

  it('ends with a fault of the service as an error with its message', () => {
    const { frames } = events([awsFault('InternalError', 'An internal server error occurred')]);
    expect(frames.broken).toMatchObject({ provider: { status: 502 }, message: 'An internal server error occurred' });
  });

  it('ends with an error where bytes cannot be read, after the events before them', () => {
    const { frames, events: out } = events([
      Buffer.concat([awsEvent('messageStart', { role: 'assistant' }), Buffer.alloc(20, 1)]),
    ]);
    expect(out).toHaveLength(1);
    expect(frames.broken).toMatchObject({ kind: 'upstream_invalid' });
    const chunk = events([awsEvent('chunk', { bytes: Buffer.from('no json').toString('base64') })]);
    expect(chunk.frames.broken).toMatchObject({ kind: 'upstream_invalid' });
    expect(chunk.frames.rest()).toBeNull();
  });
});
