import { describe, expect, it } from 'vitest';
import { readExposition, seriesOf, totalOf } from '../../../test/support/exposition.ts';
import { type Clock, systemClock, TestClock } from '../../kernel/clock.ts';
import type { RecordDraft } from '../recorder.ts';
import { MAX_SERIES } from './cells.ts';
import { Exposed } from './exposed.ts';
import { exposition, type Format, formatOf } from './exposition.ts';
import { Lag } from './lag.ts';
import { Metrics } from './metrics.ts';
import { MAX_WORKSPACES } from './request-metrics.ts';

const PROVIDERS = new Set(['openai', 'anthropic', 'sandbox']);

const draft = (more: Partial<RecordDraft> = {}): RecordDraft => ({
  id: 'id',
  time: 0,
  organisation_id: 'o',
  workspace_id: 'w',
  api_key_id: null,
  user_id: null,
  trace_id: 't',
  span_id: 's',
  parent_span_id: null,
  source: 'llm',
  operation: 'chat',
  method: 'POST',
  path: '/v1/chat/completions',
  provider: 'openai',
  provider_slug: 'openai-prod',
  config_slug: null,
  model_requested: 'gpt-4o-2024-08-06',
  model_answered: 'gpt-4o-2024-08-06',
  stream: true,
  status: 200,
  outcome: 'ok',
  error_code: null,
  error_message: null,
  usage: { input: 100, output: 11, cache_read: 0, cache_write: 0, reasoning: 0, audio_input: 0, audio_output: 0 },
  usage_estimated: false,
  cost_micros: 360,
  price: { source: 'genai-prices:openai/gpt-4o', rates: {} },
  latency_ms: 1500,
  ttft_ms: 500,
  upstream_us: 1_490_000,
  gateway_us: 10_000,
  pre_us: 5_000,
  attempts: [{ target: 'a', provider: 'openai', status: 200, error: null, duration_ms: 1490 }],
  bytes_in: 1,
  bytes_out: 1,
  upstream_bytes_out: 1,
  upstream_bytes_in: 1,
  metadata: null,
  cache_status: 'DISABLED',
  dry_run: false,
  ...more,
});

const textOf = async (metrics: Metrics, format: Format = 'text', clock: Clock = systemClock) =>
  Buffer.concat(await exposition(metrics.families(), format, clock)).toString();

const metricsOf = (workspaces = false) => new Metrics({ providers: PROVIDERS, workspaces });

async function read(metrics: Metrics, format: 'text' | 'openmetrics' = 'text') {
  return readExposition(await textOf(metrics, format), format);
}

describe('a record in the metrics', () => {
  it('counts once in each family that it belongs to', async () => {
    const metrics = metricsOf();
    metrics.count(draft(), null);
    const families = await read(metrics);
    const of = { gen_ai_operation_name: 'chat', gen_ai_provider_name: 'openai', gen_ai_request_model: 'gpt-4o' };
    const sum = (name: string, labels = {}, suffix = '') => totalOf(families, name, { ...of, ...labels }, suffix);
    expect(sum('gen_ai_client_token_usage', { gen_ai_token_type: 'input' }, '_sum')).toBe(100);
    expect(sum('gen_ai_client_token_usage', { gen_ai_token_type: 'output' }, '_sum')).toBe(11);
    expect(sum('gen_ai_client_operation_duration_seconds', { error_type: '' }, '_sum')).toBe(1.49);
    expect(sum('gen_ai_server_request_duration_seconds', { error_type: '' }, '_sum')).toBe(1.5);
    expect(sum('gen_ai_server_time_to_first_token_seconds', {}, '_sum')).toBe(0.5);
    expect(sum('gen_ai_server_time_per_output_token_seconds', {}, '_sum')).toBe(0.1);
    expect(totalOf(families, 'sluice_requests_total', { operation: 'chat', outcome: 'ok', status: '2xx' })).toBe(1);
    expect(totalOf(families, 'sluice_attempts_total', { provider: 'openai', result: 'ok' })).toBe(1);
    expect(totalOf(families, 'sluice_cost_microdollars_total', { provider: 'openai', model: 'gpt-4o' })).toBe(360);
    expect(totalOf(families, 'sluice_cache_total', { status: 'disabled' })).toBe(1);
    expect(totalOf(families, 'sluice_unpriced_total')).toBe(0);
  });

  it('of a dry run counts nowhere', async () => {
    const metrics = metricsOf();
    metrics.count(draft({ dry_run: true, status: 200 }), null);
    const families = await read(metrics);
    expect([...families.keys()].sort()).toEqual(['sluice_metrics_overflow_total', 'sluice_workers_answered']);
  });

  it('of what a provider ran later counts its use once, however often it is recorded, and no time', async () => {
    const metrics = metricsOf();
    const ran = draft({ operation: 'batch_create', latency_ms: 0, attempts: [], stream: false, ttft_ms: null });
    metrics.countOnce('usage-1', ran);
    metrics.countOnce('usage-1', ran);
    const families = await read(metrics);
    expect(totalOf(families, 'sluice_requests_total')).toBe(1);
    expect(totalOf(families, 'sluice_cost_microdollars_total')).toBe(360);
    expect(families.has('gen_ai_server_request_duration_seconds')).toBe(false);
  });

  it('names refusals by their kind, attempts by their result and guardrails by phase and verdict', async () => {
    const metrics = metricsOf();
    const facts = { slug: 'g', version: null, async: false, transformed: false, ms: 1, checks: [] };
    metrics.count(draft({ outcome: 'refused', status: 429, error_code: '429', usage: null, cost_micros: 0 }), null);
    metrics.count(draft({ outcome: 'refused', status: 446, error_code: 'hooks_failed' }), null);
    metrics.count(draft({ outcome: 'refused', status: 400, error_code: 'inline_config_blocked' }), null);
    metrics.count(draft({ outcome: 'refused', status: 400, error_code: 'what a provider made up' }), null);
    metrics.count(
      draft({
        cost_micros: null,
        price: null,
        attempts: [
          {
            target: 'a',
            provider: 'anthropic',
            status: 529,
            error: 'x',
            duration_ms: 5,
            cause: { kind: 'status', code: null, message: '' },
          },
          {
            target: 'b',
            provider: 'openai',
            status: null,
            error: 'x',
            duration_ms: 0,
            cause: { kind: 'limit', code: null, message: '' },
          },
        ],
        guardrails: [
          { ...facts, phase: 'input', verdict: false, deny: true, skipped: false },
          { ...facts, phase: null, verdict: true, deny: true, skipped: false },
        ],
      }),
      null,
    );
    const families = await read(metrics);
    const kinds = families.get('sluice_refused_total')?.samples.map(({ labels, value }) => [labels.kind, value]);
    expect(kinds).toEqual([
      ['rate_limit_exceeded', 1],
      ['guardrail_denied', 1],
      ['inline_config_blocked', 1],
      ['other', 1],
    ]);
    expect(totalOf(families, 'sluice_attempts_total', { provider: 'anthropic', result: 'status_5xx' })).toBe(1);
    expect(totalOf(families, 'sluice_attempts_total', { provider: 'openai', result: 'limit' })).toBe(1);
    // Nothing was sent where a limit refused.
    expect(totalOf(families, 'gen_ai_client_operation_duration_seconds', { error_type: 'limit' })).toBe(0);
    expect(totalOf(families, 'sluice_guardrail_verdicts_total', { phase: 'input', verdict: 'deny' })).toBe(1);
    expect(totalOf(families, 'sluice_guardrail_verdicts_total', { phase: 'beside', verdict: 'pass' })).toBe(1);
    expect(totalOf(families, 'sluice_unpriced_total')).toBe(1);
  });
});

describe('label values', () => {
  const models = (families: ReturnType<typeof readExposition>) => [
    ...new Set(
      families.get('gen_ai_server_request_duration_seconds')?.samples.map((s) => s.labels.gen_ai_request_model),
    ),
  ];

  it('name models of the catalogue and those that a workspace has stored; all others are other', async () => {
    const metrics = metricsOf();
    const unpriced = { price: null, cost_micros: null, usage: null, outcome: 'failed', status: 502 } as const;
    metrics.count(draft({ ...unpriced, model_requested: 'gpt-4o' }), null);
    metrics.count(draft({ ...unpriced, model_requested: 'My-Own' }), 'my-own');
    metrics.count(draft({ ...unpriced, model_requested: 'sk-a-secret' }), null);
    metrics.count(draft({ ...unpriced, provider: 'sandbox', model_requested: 'slow?ttft_ms=3' }), null);
    metrics.count(draft({ ...unpriced, provider: 'sandbox', model_requested: 'made-up' }), null);
    expect(models(await read(metrics))).toEqual(['gpt-4o', 'my-own', 'other', 'slow']);
  });

  it('have one name for all versions of a model, also of requests that fail once one was answered', async () => {
    const metrics = metricsOf();
    metrics.count(draft(), null);
    metrics.count(draft({ price: null, cost_micros: null, usage: null, outcome: 'failed', status: 502 }), null);
    expect(models(await read(metrics))).toEqual(['gpt-4o']);
  });

  it('are other for unknown operations, providers, codes and states of the cache', async () => {
    const metrics = metricsOf();
    metrics.count(
      draft({ operation: 'x', provider: 'y', cache_status: 'z', outcome: 'refused', error_code: 'q', status: 999 }),
      null,
    );
    const text = await textOf(metrics);
    expect(text).not.toMatch(/"[xyzq]"/);
    expect(text).toContain('sluice_requests_total{operation="other",outcome="refused",status="other"} 1');
    expect(text).toContain('sluice_cache_total{status="other"} 1');
  });

  it('are escaped: quotes, backslashes and line feeds come back as they were', async () => {
    const strange = 'a"b\\c\nd{}=,e';
    const metrics = metricsOf();
    metrics.count(draft({ price: { source: 'custom', rates: {} }, model_requested: strange }), strange);
    for (const format of ['text', 'openmetrics'] as const)
      expect(models(await read(metrics, format)), format).toEqual([strange]);
  });
});

describe('the bound on series', () => {
  it('100,000 invented models are one', async () => {
    const metrics = metricsOf();
    for (let i = 0; i < 100_000; i++) {
      metrics.count(draft({ model_requested: `invented-${i}`, price: null, cost_micros: null }), null);
    }
    const families = await read(metrics);
    expect(seriesOf(families)).toBeLessThan(200);
    expect(totalOf(families, 'sluice_requests_total')).toBe(100_000);
  });

  it('100,000 stored models of one workspace give at most 10,000; the rest is other, counted, and nothing is lost', async () => {
    const metrics = metricsOf();
    for (let i = 0; i < 100_000; i++) {
      metrics.count(draft({ model_requested: `own-${i}`, price: { source: 'custom', rates: {} } }), `own-${i}`);
    }
    const families = await read(metrics);
    expect(seriesOf(families)).toBeLessThanOrEqual(MAX_SERIES);
    expect(seriesOf(families)).toBeGreaterThan(MAX_SERIES / 2);
    expect(totalOf(families, 'sluice_metrics_overflow_total')).toBeGreaterThan(100_000);
    expect(totalOf(families, 'sluice_cost_microdollars_total')).toBe(36_000_000);
    expect(totalOf(families, 'gen_ai_server_request_duration_seconds')).toBe(100_000);
    // What comes from short tables still has its labels.
    metrics.count(draft({ operation: 'embeddings', outcome: 'aborted', status: 499 }), null);
    const after = await read(metrics);
    const aborted = { operation: 'embeddings', outcome: 'aborted', status: '4xx' };
    expect(totalOf(after, 'sluice_requests_total', aborted)).toBe(1);
    expect(seriesOf(after)).toBeLessThanOrEqual(MAX_SERIES);
  });

  it('workspaces are a label where the setting says so, 500 of them at most', async () => {
    const [with_, without] = [metricsOf(true), metricsOf()];
    for (let i = 0; i < 2 * MAX_WORKSPACES; i++) {
      for (const metrics of [with_, without]) metrics.count(draft({ workspace_id: `w-${i}` }), null);
    }
    const names = (families: ReturnType<typeof readExposition>) =>
      new Set(families.get('sluice_requests_total')?.samples.map(({ labels }) => labels.workspace));
    const families = await read(with_);
    expect(names(families).size).toBe(MAX_WORKSPACES + 1);
    expect(totalOf(families, 'sluice_requests_total', { workspace: 'other' })).toBe(MAX_WORKSPACES);
    expect(names(await read(without))).toEqual(new Set([undefined]));
  });
});

describe('the answer', () => {
  const full = () => {
    const metrics = metricsOf();
    for (let i = 0; i < 2_000; i++)
      metrics.count(draft({ model_requested: `own-${i}`, price: { source: 'custom', rates: {} } }), `own-${i}`);
    return metrics;
  };

  it('is what both formats ask for, of every family', async () => {
    const metrics = full();
    const [text, openmetrics] = [await read(metrics), await read(metrics, 'openmetrics')];
    expect([...openmetrics.keys()]).toEqual([...text.keys()].map((name) => name.replace(/_total$/, '')));
    expect(seriesOf(openmetrics)).toBe(seriesOf(text));
  });

  it.each([
    [undefined, 'text'],
    ['*/*', 'text'],
    ['text/plain', 'text'],
    ['application/openmetrics-text', 'openmetrics'],
    ['application/openmetrics-text;version=0.0.1', 'text'],
    ['application/openmetrics-text; version=1.0.0; charset=utf-8', 'openmetrics'],
    ['application/openmetrics-text;version=1.0.0;q=0,text/plain', 'text'],
    [
      'application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2',
      'openmetrics',
    ],
    ['text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5', 'text'],
  ])('to %s is %s', (accept, format) => {
    expect(formatOf(accept)).toBe(format);
  });

  it('leaves the event loop after each millisecond of work', async () => {
    // Each look at this clock is a twentieth of a millisecond of work.
    let now = 0;
    let turn = 0;
    let longest = 0;
    let began = 0;
    const clock: Clock = {
      ...systemClock,
      monotonic() {
        now += 0.05;
        longest = Math.max(longest, now - began);
        return now;
      },
    };
    const metrics = full();
    const slow = new Metrics({ providers: PROVIDERS, workspaces: false });
    for (let i = 0; i < 2_000; i++)
      slow.count(draft({ model_requested: `own-${i}`, price: { source: 'custom', rates: {} } }), `own-${i}`);
    let done = false;
    const count = () => {
      turn += 1;
      began = now;
      if (!done) setImmediate(count);
    };
    setImmediate(count);
    const text = await textOf(slow, 'text', clock);
    done = true;
    expect(longest).toBeLessThan(2);
    expect(turn).toBeGreaterThan(10);
    expect(text).toBe(await textOf(metrics));
  });

  it('of 10,000 series takes less than 2 ms of CPU between two turns', async () => {
    const metrics = full();
    await textOf(metrics);
    let turns = 0;
    let done = false;
    const count = () => {
      turns += 1;
      if (!done) setImmediate(count);
    };
    setImmediate(count);
    // The system counts in steps of a few milliseconds: one answer alone cannot be measured.
    const before = process.threadCpuUsage();
    for (let i = 0; i < 20; i++) await exposition(metrics.families(), 'text', systemClock);
    const { user, system } = process.threadCpuUsage(before);
    done = true;
    expect((user + system) / 1_000 / turns).toBeLessThan(2);
  });

  it('is one for all that ask at the same time', async () => {
    let asked = 0;
    const exposed = new Exposed(async () => {
      asked += 1;
      return metricsOf().families();
    }, systemClock);
    const [one, two, other] = await Promise.all([
      exposed.answer(undefined),
      exposed.answer('text/plain'),
      exposed.answer('application/openmetrics-text'),
    ]);
    expect(one).toBe(two);
    expect(other.contentType).toContain('openmetrics');
    expect(asked).toBe(2);
  });
});

describe('lag', () => {
  it('of the event loop is the longest delay of the last 15 seconds', async () => {
    const clock = new TestClock();
    const lag = new Lag(clock);
    await clock.advance(200);
    clock.jump(350);
    await clock.advance(1);
    expect(lag.eventLoop()).toBeCloseTo(0.3, 1);
    await clock.advance(16_000);
    expect(lag.eventLoop()).toBe(0);
    await lag.close();
  });
});
