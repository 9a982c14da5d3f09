import { expect, it } from 'vitest';
import { logRecord } from '../../../test/support/log-record.ts';
import { decodeProtobuf } from '../../../test/support/otlp-collector.ts';
import type { ConventionsVersion } from '../../telemetry/conventions/conventions.ts';
import { Metrics } from '../../telemetry/metrics/metrics.ts';
import type { RecordDraft } from '../../telemetry/recorder.ts';
import { metricsBody } from './metrics.ts';

const SENDER = { resource: { 'service.name': 'sluice' }, version: '1' };
const PERIOD = { start: 1_700_000_000_000, now: 1_700_000_060_000 };

function numbers(): Metrics {
  const metrics = new Metrics({ providers: new Set(['openai']), workspaces: false });
  metrics.read('sluice_inflight', () => 3);
  metrics.read('process_cpu_seconds_total', () => 1);
  const usage = { input: 10, output: 5, cache_read: 0, cache_write: 0, reasoning: 0, audio_input: 0, audio_output: 0 };
  for (const operation of ['chat', 'embeddings']) {
    const more = { operation, usage, outcome: 'ok', latency_ms: 100, provider: 'openai', cost_micros: 7, price: null };
    metrics.count(
      logRecord(1, { ...more, model_requested: 'gpt-x', dry_run: false }) as unknown as RecordDraft,
      'gpt-x',
    );
  }
  return metrics;
}

function sent(version: ConventionsVersion): Record<string, Record<string, unknown>> {
  const families = numbers().families();
  const text = JSON.parse(metricsBody(families, PERIOD, version, SENDER, 'http/json').toString());
  const binary = metricsBody(families, PERIOD, version, SENDER, 'http/protobuf');
  expect(withoutEmpty(decodeProtobuf('ExportMetricsServiceRequest', binary))).toEqual(withoutEmpty(text));
  const metrics = text.resourceMetrics[0].scopeMetrics[0].metrics as { name: string }[];
  return Object.fromEntries(metrics.map((metric) => [metric.name, metric as unknown as Record<string, unknown>]));
}

/** Lists without items are not there in the binary form. */
const withoutEmpty = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (_, each) => (Array.isArray(each) && each.length === 0 ? undefined : each)));

it('has the names of version 1.41 of the conventions, and says the same in both forms', () => {
  const metrics = sent('v1.41');
  expect(Object.keys(metrics)).toEqual(
    expect.arrayContaining(['gen_ai.client.token.usage', 'gen_ai.client.operation.duration', 'sluice.inflight']),
  );
  expect(Object.keys(metrics).filter((name) => !/^(?:gen_ai|sluice)\.[a-z_.]+$/.test(name))).toEqual([]);
  expect(metrics['sluice.requests']).toMatchObject({
    unit: '1',
    sum: { isMonotonic: true, aggregationTemporality: 2 },
  });
  expect(metrics['sluice.inflight']).toMatchObject({ gauge: { dataPoints: [{ asDouble: 3 }] } });
  const { histogram } = metrics['gen_ai.client.token.usage'] as {
    histogram: { dataPoints: Record<string, unknown>[] };
  };
  expect(histogram.dataPoints[0]).toMatchObject({
    startTimeUnixNano: '1700000000000000000',
    timeUnixNano: '1700000060000000000',
    count: '1',
    sum: 10,
    attributes: expect.arrayContaining([{ key: 'gen_ai.token.type', value: { stringValue: 'input' } }]),
  });
  const { bucketCounts, explicitBounds } = histogram.dataPoints[0] as Record<string, unknown[]>;
  expect(bucketCounts).toHaveLength((explicitBounds?.length ?? 0) + 1);
});

it('has the newest names where they are asked for: tokens by their own counters, calls of models by themselves', () => {
  const metrics = sent('latest');
  expect(metrics).not.toHaveProperty(['gen_ai.client.token.usage']);
  const points = (name: string, kind: string) =>
    (metrics[name] as Record<string, { dataPoints: { attributes: { key: string }[] }[] }>)[kind]?.dataPoints ?? [];
  for (const type of ['input', 'output']) {
    expect(points(`gen_ai.client.inference.usage.${type}_tokens`, 'sum')).toHaveLength(2);
    const [first] = points(`gen_ai.client.inference.operation.${type}_tokens`, 'histogram');
    expect(first?.attributes.map(({ key }) => key)).not.toContain('gen_ai.token.type');
  }
  const operations = (name: string) => JSON.stringify(points(name, 'histogram').map(({ attributes }) => attributes));
  expect(operations('gen_ai.client.inference.duration')).toContain('"chat"');
  expect(operations('gen_ai.client.inference.duration')).not.toContain('embeddings');
  expect(operations('gen_ai.client.operation.duration')).toContain('embeddings');
});
