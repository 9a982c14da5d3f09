import { describe, expect, it } from 'vitest';
import { logRecord } from '../../test/support/log-record.ts';
import { ATTRIBUTES, type ConventionsVersion } from './conventions/conventions.ts';
import type { GuardrailFacts } from './guardrail-facts.ts';
import type { AttemptRecord, LogRecord } from './record.ts';
import { type Span, spansOf } from './spans.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';

const attempt = (more: Partial<AttemptRecord> = {}): AttemptRecord => ({
  target: 'config.targets[0]',
  provider: 'openai',
  status: 200,
  error: null,
  began_ms: 2,
  first_byte_ms: 20,
  duration_ms: 50,
  ...more,
});

const failed = (status: number, more: Partial<AttemptRecord> = {}): AttemptRecord =>
  attempt({ status, cause: { kind: 'status', code: null, message: `it said ${status}` }, ...more });

function recordOf(more: Partial<LogRecord> = {}): LogRecord {
  return {
    ...(logRecord(1) as unknown as LogRecord),
    id: '018f0000-0000-7000-8000-00000000000a',
    trace_id: TRACE,
    span_id: '018f0000-0000-7000-8000-00000000000a',
    parent_span_id: '00f067aa0ba902b7',
    span_name: undefined,
    time: 1_700_000_000_000,
    latency_ms: 100,
    method: 'POST',
    path: '/v1/chat/completions',
    operation: 'chat',
    provider: 'openai',
    option: 'config.targets[0]',
    model_requested: 'gpt-x',
    model_sent: undefined,
    model_answered: 'gpt-x-1',
    stream: true,
    status: 200,
    outcome: 'ok',
    error_code: null,
    error_message: null,
    usage: { input: 10, output: 5, cache_read: 3, cache_write: 2, reasoning: 1, audio_input: 0, audio_output: 0 },
    metadata: { _user: 'ann' },
    decision: undefined,
    guardrails: undefined,
    attempts: [attempt()],
    ...more,
  };
}

const spans = (more: Partial<LogRecord> = {}, version: ConventionsVersion = 'v1.41'): Span[] =>
  spansOf(recordOf(more), ATTRIBUTES[version]);
const named = (span: Span | undefined) =>
  Object.fromEntries((span?.attributes ?? []).map(({ name, value }) => [name, value]));

describe('the spans of a record', () => {
  it('are one of the request, below its caller’s, and one of the call, below that', () => {
    const [server, client, ...more] = spans();
    expect(more).toEqual([]);
    expect(server).toMatchObject({
      traceId: TRACE,
      spanId: '800000000000000a',
      parentSpanId: '00f067aa0ba902b7',
      name: 'POST /v1/chat/completions',
      kind: 'server',
      start: 1_700_000_000_000,
      end: 1_700_000_000_100,
      error: null,
    });
    expect(client).toMatchObject({
      traceId: TRACE,
      spanId: '800000000000000b',
      parentSpanId: '800000000000000a',
      name: 'chat gpt-x',
      kind: 'client',
      start: 1_700_000_000_002,
      end: 1_700_000_000_052,
      error: null,
    });
    expect(named(server)).toMatchObject({ 'user.id': 'ann', 'http.response.status_code': 200, 'sluice.outcome': 'ok' });
  });

  it.each([
    ['v1.41', 'gen_ai.usage.cache_creation.input_tokens'],
    ['latest', 'gen_ai.usage.cache_write.input_tokens'],
  ] as const)('have the names of the conventions %s', (version, written) => {
    expect(named(spans({}, version)[1])).toEqual({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'openai',
      'gen_ai.request.model': 'gpt-x',
      'gen_ai.request.stream': true,
      'gen_ai.response.model': 'gpt-x-1',
      'http.response.status_code': 200,
      'gen_ai.response.time_to_first_chunk': 0.02,
      'gen_ai.usage.input_tokens': 10,
      'gen_ai.usage.output_tokens': 5,
      'gen_ai.usage.cache_read.input_tokens': 3,
      [written]: 2,
      'gen_ai.usage.reasoning.output_tokens': 1,
      'sluice.target': 'config.targets[0]',
    });
    expect(
      named(spans({ provider: 'bedrock', attempts: [attempt({ provider: 'bedrock' })] }, version)[1]),
    ).toMatchObject({
      'gen_ai.provider.name': 'aws.bedrock',
    });
  });

  it('of retries and fallbacks are siblings, each with its own id and error, and only the last has the tokens', () => {
    const [server, ...calls] = spans({
      option: 'config.targets[1]',
      model_sent: 'claude-y',
      provider: 'anthropic',
      decision: {
        config_version: null,
        generation: 1,
        target: 'config.targets[1]',
        changed: null,
        targets: ['gpt-x', 'claude-y'].map((model, i) => ({
          path: `config.targets[${i}]`,
          provider: null,
          provider_slug: null,
          model,
          weight: 1,
          order: i + 1,
          why: null,
          breaker: null,
        })),
      },
      attempts: [
        failed(429),
        failed(503, { began_ms: 60 }),
        attempt({ began_ms: 70, status: null, error: 'limit', cause: { kind: 'limit', code: null, message: 'spent' } }),
        attempt({ target: 'config.targets[1]', provider: 'anthropic', began_ms: 80 }),
      ],
    });
    expect(calls.map(({ name }) => name)).toEqual(['chat gpt-x', 'chat gpt-x', 'chat gpt-x', 'chat claude-y']);
    expect(calls.map(({ parentSpanId }) => parentSpanId)).toEqual(Array(4).fill(server?.spanId));
    expect(new Set([server, ...calls].map((span) => span?.spanId)).size).toBe(5);
    expect(calls.map((call) => named(call)['error.type'])).toEqual(['429', '503', 'limit', undefined]);
    expect(calls.map(({ error }) => error)).toEqual(['429', '503', 'limit', null]);
    // Nothing was sent.
    expect(calls.map(({ kind }) => kind)).toEqual(['client', 'client', 'internal', 'client']);
    expect(calls.map((call) => named(call)['gen_ai.usage.input_tokens'])).toEqual([
      undefined,
      undefined,
      undefined,
      10,
    ]);
  });

  it('of guardrails are those that ran, with their verdict and time', () => {
    const facts = (more: Partial<GuardrailFacts>): GuardrailFacts => ({
      slug: 'pii',
      version: null,
      phase: 'input',
      verdict: true,
      deny: false,
      async: false,
      transformed: false,
      skipped: false,
      ms: 1.5,
      checks: [],
      ...more,
    });
    const guardrails = [facts({}), facts({ skipped: true }), facts({ slug: 'tone', phase: 'output', verdict: false })];
    const all = spans({ guardrails });
    expect(
      all.slice(2).map(({ name, kind, parentSpanId, start, end }) => [name, kind, parentSpanId, end - start]),
    ).toEqual([
      ['guardrail pii', 'internal', all[0]?.spanId, 1.5],
      ['guardrail tone', 'internal', all[0]?.spanId, 1.5],
    ]);
    expect(all[2]?.end).toBe(1_700_000_000_002);
    expect(named(all[3])).toMatchObject({ 'sluice.guardrail.verdict': false, 'sluice.guardrail.phase': 'output' });
    expect(new Set(all.map(({ spanId }) => spanId)).size).toBe(4);
  });

  it('of a request that failed say so, and of a refused one do not', () => {
    const gone = spans({
      outcome: 'failed',
      status: 502,
      error_code: 'upstream',
      error_message: 'no answer',
      attempts: [],
    });
    expect(gone).toHaveLength(1);
    expect(gone[0]).toMatchObject({ error: 'upstream' });
    expect(named(gone[0])['error.type']).toBe('upstream');
    const refused = spans({ outcome: 'refused', status: 403, error_code: 'AB03', attempts: [] });
    expect(refused[0]?.error).toBeNull();
    expect(named(refused[0])).toMatchObject({ 'sluice.error_code': 'AB03' });
    expect(named(refused[0])).not.toHaveProperty('error.type');
  });

  it('have ids of OpenTelemetry’s form, whatever the caller called its trace and span', () => {
    for (const id of [
      'order 7',
      'a'.repeat(128),
      '0'.repeat(32),
      '018f0000-0000-7000-8000-00000000000a',
      'ABCDEF0123456789',
    ]) {
      const made = spans({ trace_id: id, span_id: id, parent_span_id: id });
      for (const { traceId, spanId } of made) {
        expect(traceId).toMatch(/^(?!0+$)[0-9a-f]{32}$/);
        expect(spanId).toMatch(/^(?!0+$)[0-9a-f]{16}$/);
      }
      expect(made[0]?.parentSpanId).toBe(made[0]?.spanId);
      expect(spans({ trace_id: id, span_id: id })[1]?.spanId).toBe(made[1]?.spanId);
    }
    const low = spans({ span_id: '0000000000000001' });
    expect(low[1]?.spanId).toBe('f'.repeat(16));
  });
});
