import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ERROR_KINDS, SluiceError } from '../../kernel/errors.ts';
import type { Dialect } from '../operation.ts';
import { errorBody } from './errors.ts';
import { embeddedError, providerErrorBody, readProviderError } from './provider-error.ts';
import { errorEvent, hasFinishReason, isErrorEvent, isTerminal, streamErrorEvent, TerminalTracker } from './stream.ts';

const json = (text: string): unknown => JSON.parse(text);

describe('errorBody', () => {
  it('answers admin errors with their AB code', () => {
    const error = new SluiceError('unauthenticated', 'Send an API key.');
    expect(errorBody(error, 'openai').status).toBe(401);
    expect(json(errorBody(error, 'openai').body)).toEqual({
      error: { message: 'Send an API key.', type: 'client_error', param: null, code: 'AB05' },
    });
  });

  it('answers calls it cannot understand with status failure, the list of errors and the error object', () => {
    const error = new SluiceError('malformed_call', 'The config is not valid.', {
      errors: ['path: retry, message: no'],
    });
    expect(json(errorBody(error, 'openai').body)).toEqual({
      status: 'failure',
      error: { message: 'The config is not valid.', type: 'invalid_request_error', param: null, code: null },
      message: 'The config is not valid.',
      errors: ['path: retry, message: no'],
    });
  });

  it.each(ERROR_KINDS)('%s carries its message where each official client looks for it', (kind) => {
    for (const dialect of ['openai', 'responses', 'anthropic'] as const)
      expect(json(errorBody(new SluiceError(kind, 'No.'), dialect).body)).toMatchObject({
        error: { message: 'No.' },
      });
  });

  it('names code and field of a saved-only refusal', () => {
    const error = new SluiceError('inline_blocked', 'Save it first.', {
      reason: 'inline_config_blocked',
      param: 'x-y',
    });
    expect(json(errorBody(error, 'openai').body)).toEqual({
      status: 'failure',
      error: { code: 'inline_config_blocked', message: 'Save it first.', field: 'x-y' },
      message: 'Save it first.',
    });
  });

  it('answers limits with the OpenAI error object', () => {
    const error = new SluiceError('rate_limit_exceeded', 'Too fast.');
    const { status, body } = errorBody(error, 'responses');
    expect(status).toBe(429);
    expect(json(body)).toEqual({
      error: { message: 'Too fast.', type: 'rate_limit_exceeded', param: null, code: '429' },
    });
  });

  it('marks every shape as an error for Anthropic callers and keeps the documented keys', () => {
    for (const kind of ['unauthenticated', 'malformed_call', 'inline_blocked', 'usage_limit_exceeded'] as const) {
      const error = new SluiceError(kind, 'No.');
      const { error: _, ...plain } = json(errorBody(error, 'openai').body) as { error: object };
      const marked = json(errorBody(error, 'anthropic').body) as { error: { message: string } };
      expect(marked).toMatchObject({ type: 'error', ...plain });
      expect(marked.error.message).toBe('No.');
    }
  });

  it('adds documented extra keys', () => {
    const { body } = errorBody(new SluiceError('guardrail_denied', 'Denied.'), 'openai', { hook_results: {} });
    expect(json(body)).toMatchObject({ hook_results: {}, error: { type: 'hooks_failed' } });
  });

  it('never shows the detail of an error', () => {
    const error = new SluiceError('internal', 'Failed.', { detail: { secret: 'sk-1' } });
    expect(errorBody(error, 'openai').body).not.toContain('sk-1');
  });
});

describe('readProviderError', () => {
  it.each([
    ['error.message', { error: { message: 'm', type: 't', code: 'Bad_Code' } }, 'm', 'bad_code', null],
    ['error text', { error: 'm' }, 'm', null, null],
    ['xAI code and error text', { code: 'Some Code', error: 'm' }, 'm', 'some_code', null],
    ['message', { message: 'm' }, 'm', null, null],
    ['Message', { Message: 'm' }, 'm', null, null],
    ['detail text', { detail: 'm' }, 'm', null, null],
    [
      'FastAPI detail',
      { detail: [{ loc: ['body', 'messages', 0, 'role'], msg: 'a' }, { msg: 'b' }] },
      'a; b',
      null,
      'messages.0.role',
    ],
    ['Mistral nested detail', { message: { detail: [{ loc: ['body', 'x'], msg: 'm' }] } }, 'm', null, 'x'],
    [
      'Google status',
      { error: { code: 400, message: 'm', status: 'INVALID_ARGUMENT' } },
      'm',
      'invalid_argument',
      null,
    ],
    ['Cerebras flat', { message: 'm', type: 't', param: 'p', code: 'wrong_api_key' }, 'm', 'wrong_api_key', 'p'],
  ])('reads %s', (_name, body, message, code, param) => {
    expect(readProviderError(400, body)).toEqual({
      status: 400,
      message,
      type: 'invalid_request_error',
      param,
      code,
    });
  });

  it('reads the message of an XML error and cuts plain text at 500 characters', () => {
    expect(readProviderError(403, '<Error><Code>X</Code><Message>No access</Message></Error>').message).toBe(
      'No access',
    );
    expect(readProviderError(500, 'x'.repeat(900)).message).toHaveLength(500);
  });

  it.each([
    [401, 401, 'authentication_error', 'invalid_api_key'],
    [402, 402, 'billing_error', 'insufficient_quota'],
    [403, 403, 'permission_error', null],
    [404, 404, 'not_found_error', null],
    [409, 409, 'conflict_error', null],
    [413, 413, 'invalid_request_error', 'request_too_large'],
    [422, 400, 'invalid_request_error', null],
    [424, 502, 'api_error', 'model_error'],
    [429, 429, 'rate_limit_error', 'rate_limit_exceeded'],
    [499, 499, 'api_error', 'cancelled'],
    [500, 500, 'api_error', null],
    [503, 503, 'api_error', null],
    [504, 504, 'timeout_error', null],
    [529, 529, 'overloaded_error', 'overloaded'],
  ])('maps upstream status %i', (upstream, status, type, code) => {
    expect(readProviderError(upstream, { message: 'm' })).toEqual({ status, message: 'm', type, param: null, code });
  });

  it('tells an unknown model from another unknown object, and quota from rate', () => {
    expect(readProviderError(404, { message: 'The model x does not exist' }).code).toBe('model_not_found');
    expect(readProviderError(429, { error: { message: 'm', code: 'insufficient_quota' } }).code).toBe(
      'insufficient_quota',
    );
  });

  it('reads any JSON and any text without failing', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.object()), fc.integer({ min: 100, max: 999 }), (body, status) => {
        const error = readProviderError(status, body as string);
        expect(error.message.length).toBeGreaterThan(0);
        expect(error.status).toBeGreaterThanOrEqual(400);
      }),
    );
  });
});

describe('providerErrorBody', () => {
  const openai = '{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"x"},"more":1}';
  const anthropic = '{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"r"}';

  it('passes an error of the caller’s own dialect unchanged', () => {
    for (const caller of ['openai', 'responses'] as const) {
      expect(providerErrorBody({ status: 400, raw: openai, upstream: 'openai', caller }).body).toBe(openai);
    }
    const same = providerErrorBody({ status: 529, raw: anthropic, upstream: 'anthropic', caller: 'anthropic' });
    expect(same).toMatchObject({ status: 529, body: anthropic });
  });

  it('brings Anthropic errors to the OpenAI shape and back', () => {
    const out = providerErrorBody({ status: 529, raw: anthropic, upstream: 'anthropic', caller: 'openai' });
    expect(json(out.body)).toEqual({
      error: { message: 'busy', type: 'overloaded_error', param: null, code: 'overloaded' },
    });
    const back = providerErrorBody({ status: 400, raw: openai, upstream: 'openai', caller: 'anthropic' });
    expect(json(back.body)).toEqual({ type: 'error', error: { type: 'invalid_request_error', message: 'm' } });
  });

  it('brings compatible servers’ own shapes to the OpenAI shape', () => {
    const out = providerErrorBody({ status: 422, raw: '{"detail":"bad"}', upstream: 'openai', caller: 'openai' });
    expect(out.status).toBe(400);
    expect(json(out.body)).toEqual({
      error: { message: 'bad', type: 'invalid_request_error', param: null, code: null },
    });
  });

  it('reads an error wrapped in a list of one', () => {
    const out = providerErrorBody({
      status: 400,
      raw: '[{"error":{"message":"m","status":"INVALID_ARGUMENT"}}]',
      upstream: 'openai',
      caller: 'openai',
    });
    expect(out.error).toMatchObject({ message: 'm', code: 'invalid_argument' });
  });

  it('answers an HTML error page with its text, cut', () => {
    const raw = `<html>${'x'.repeat(2000)}</html>`;
    const out = providerErrorBody({ status: 502, raw, upstream: 'openai', caller: 'openai' });
    expect(out.error.message).toHaveLength(500);
  });
});

describe('embeddedError', () => {
  it('finds an error in a 200 body and knows its status', () => {
    expect(embeddedError({ error: { message: 'm', code: 429 } })?.status).toBe(429);
    expect(embeddedError({ error: 'm' })?.status).toBe(502);
    expect(embeddedError({ error: { message: 'm', type: 'x', code: 'y' } })).toMatchObject({ status: 502, code: 'y' });
  });

  it('takes no answer for an error', () => {
    expect(embeddedError({ error: null, object: 'chat.completion' })).toBeNull();
    expect(embeddedError({})).toBeNull();
    expect(embeddedError({ object: 'response', error: { code: 'server_error', message: 'm' } })).toBeNull();
  });
});

describe('stream errors', () => {
  const error = new SluiceError('upstream_cut', 'Cut.');

  it('has the form each kind of client reads', () => {
    expect(streamErrorEvent(error, 'openai')).toBe(
      'data: {"error":{"message":"Cut.","type":"api_error","param":null,"code":"upstream_stream_cut"}}\n\n',
    );
    expect(streamErrorEvent(error, 'anthropic')).toBe(
      'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"Cut."}}\n\n',
    );
    expect(json(errorEvent(error, 'responses', 7).data)).toEqual({
      type: 'error',
      code: 'upstream_stream_cut',
      message: 'Cut.',
      param: null,
      sequence_number: 7,
    });
  });

  it('is recognised as an error and never as an end marker', () => {
    for (const dialect of ['openai', 'anthropic', 'responses'] as const) {
      const bytes = Buffer.from(streamErrorEvent(error, dialect));
      expect(isErrorEvent(dialect, bytes)).toBe(true);
      expect(isTerminal(dialect, bytes)).toBe(false);
    }
  });
});

describe('isTerminal', () => {
  it.each<[Dialect, string]>([
    ['openai', 'data: [DONE]'],
    ['openai', 'data:[DONE]\r\n\r\n'],
    ['anthropic', 'event: message_stop\ndata: {"type":"message_stop"}'],
    ['anthropic', 'data: {"type" : "message_stop", "amazon-bedrock-invocationMetrics":{}}'],
    ['responses', 'event: response.completed\ndata: {"type":"response.completed","response":{}}'],
    ['responses', 'data: {"type": "response.incomplete"}'],
    ['responses', 'data: {"type":"response.failed"}'],
  ])('sees the end of a %s stream in %s', (dialect, event) => {
    expect(isTerminal(dialect, Buffer.from(event))).toBe(true);
  });

  it('is not deceived by generated text that spells a marker', () => {
    const markers = [
      '[DONE]',
      '{"type":"message_stop"}',
      '{"type":"response.completed"}',
      '"finish_reason":"stop"',
      '{"error":{"a":1}}',
    ];
    fc.assert(
      fc.property(fc.constantFrom(...markers), fc.string(), (marker, text) => {
        const content = text + marker;
        const chat = Buffer.from(`data: ${JSON.stringify({ id: 'x'.repeat(40), choices: [{ delta: { content } }] })}`);
        const delta = Buffer.from(`data: ${JSON.stringify({ type: 'content_block_delta', delta: { text: content } })}`);
        const item = Buffer.from(`data: ${JSON.stringify({ type: 'response.output_text.delta', delta: content })}`);
        expect(isTerminal('openai', chat)).toBe(false);
        expect(hasFinishReason(chat)).toBe(false);
        expect(isErrorEvent('openai', chat)).toBe(false);
        expect(isTerminal('anthropic', delta)).toBe(false);
        expect(isTerminal('responses', item)).toBe(false);
      }),
    );
  });
});

describe('TerminalTracker', () => {
  const run = (dialect: Dialect, ...events: string[]): TerminalTracker => {
    const tracker = new TerminalTracker(dialect);
    for (const event of events) tracker.see(Buffer.from(event));
    return tracker;
  };

  it('counts a finish reason as the end where no [DONE] is sent', () => {
    expect(run('openai', 'data: {"choices":[{"finish_reason":null}]}').ended).toBe(false);
    expect(run('openai', 'data: {"choices":[{"finish_reason": "stop"}]}').ended).toBe(true);
  });

  it('remembers that a stream ended in an error', () => {
    expect(run('anthropic', 'event: error\ndata: {"type":"error","error":{}}')).toMatchObject({
      ended: true,
      failed: true,
    });
    expect(run('openai', 'data: {"error":{"message":"m"}}')).toMatchObject({ ended: true, failed: true });
    expect(run('responses', 'data: {"type":"response.failed","response":{}}')).toMatchObject({
      ended: true,
      failed: true,
    });
    for (const end of ['response.completed', 'response.incomplete'])
      expect(run('responses', `data: {"type":"${end}","response":{}}`)).toMatchObject({ ended: true, failed: false });
    expect(run('openai', 'data: {"error":null,"choices":[]}')).toMatchObject({ ended: false, failed: false });
  });
});
