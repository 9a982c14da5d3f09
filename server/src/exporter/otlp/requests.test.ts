import { describe, expect, it } from 'vitest';
import { decodeProtobuf } from '../../../test/support/otlp-collector.ts';
import type { Span } from '../../telemetry/spans.ts';
import { tracesBody } from './requests.ts';

const SENDER = { resource: { 'service.name': 'é', 'service.version': '1' }, version: '1.2.3' };

const span = (more: Partial<Span> = {}): Span => ({
  traceId: '0af7651916cd43dd8448eb211c80319c',
  spanId: 'b7ad6b7169203331',
  parentSpanId: null,
  name: 'POST /v1/chat/completions',
  kind: 'server',
  start: 1_700_000_000_123.456,
  end: 1_700_000_000_130,
  error: null,
  attributes: [],
  ...more,
});

const both = (spans: readonly Span[]) => ({
  binary: decodeProtobuf('ExportTraceServiceRequest', tracesBody(spans, SENDER, 'http/protobuf')),
  text: JSON.parse(tracesBody(spans, SENDER, 'http/json').toString()) as object,
});

describe('the body of a call with spans', () => {
  it('says the same in both of its forms, whatever the values are', () => {
    const attributes = [
      { name: 'a', value: '' },
      { name: 'b', value: 'é☃\u0000\ud800'.toWellFormed() },
      { name: 'c', value: false },
      { name: 'd', value: true },
      ...[0, 1, 127, 128, 16_383, 16_384, 2 ** 31, Number.MAX_SAFE_INTEGER, -1, -(2 ** 40)].map((value) => ({
        name: `i${value}`,
        value,
      })),
      { name: 'e', value: 0.125, double: true as const },
      { name: 'f', value: 2, double: true as const },
    ];
    const spans = [
      span({ attributes }),
      span({ parentSpanId: '00f067aa0ba902b7', kind: 'client', error: 'why', attributes: [{ name: 'a', value: 1 }] }),
    ];
    const { binary, text } = both(spans);
    expect(binary).toEqual(text);
    expect(text).toMatchObject({
      resourceSpans: [
        {
          resource: { attributes: [{ key: 'service.name', value: { stringValue: 'é' } }, {}] },
          scopeSpans: [
            {
              scope: { name: 'sluice', version: '1.2.3' },
              spans: [
                { startTimeUnixNano: '1700000000123456000', endTimeUnixNano: '1700000000130000000', kind: 2 },
                { parentSpanId: '00f067aa0ba902b7', kind: 3, status: { message: 'why', code: 2 } },
              ],
            },
          ],
        },
      ],
    });
  });

  it('is whole when it is larger than any first buffer', () => {
    const spans = Array.from({ length: 512 }, (_, i) =>
      span({ attributes: [{ name: `n${i}`, value: 'x'.repeat(1_000) }] }),
    );
    const { binary, text } = both(spans);
    expect(binary).toEqual(text);
  });
});
