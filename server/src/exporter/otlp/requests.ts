/** Bodies of OTLP's calls, in either of its forms. */
import type { Attribute, Span, SpanKind } from '../../telemetry/spans.ts';
import { TRACES_REQUEST } from './messages.ts';
import { encodeMessage } from './protobuf.ts';

export type OtlpProtocol = 'http/protobuf' | 'http/json';

/** Who sends: the same in every body. */
export interface OtlpSender {
  /** `service.name` and the like. */
  readonly resource: Readonly<Record<string, string>>;
  readonly version: string;
}

export const CONTENT_TYPES: Readonly<Record<OtlpProtocol, string>> = {
  'http/protobuf': 'application/x-protobuf',
  'http/json': 'application/json',
};

const KINDS: Readonly<Record<SpanKind, number>> = { internal: 1, server: 2, client: 3 };
const ERROR = 2;

/** The body of a call of `/v1/traces`. */
export function tracesBody(spans: readonly Span[], sender: OtlpSender, protocol: OtlpProtocol): Buffer {
  const request = {
    resourceSpans: [
      {
        resource: resourceOf(sender),
        scopeSpans: [{ scope: scopeOf(sender), spans: spans.map(spanOf) }],
      },
    ],
  };
  return protocol === 'http/json' ? Buffer.from(JSON.stringify(request)) : encodeMessage(TRACES_REQUEST, request);
}

export const resourceOf = ({ resource }: OtlpSender) => ({
  attributes: Object.entries(resource).map(([key, stringValue]) => ({ key, value: { stringValue } })),
});

export const scopeOf = ({ version }: OtlpSender) => ({ name: 'sluice', version });

function spanOf({ traceId, spanId, parentSpanId, name, kind, start, end, error, attributes }: Span): object {
  return {
    traceId,
    spanId,
    ...(parentSpanId === null ? {} : { parentSpanId }),
    name,
    kind: KINDS[kind],
    startTimeUnixNano: nanos(start),
    endTimeUnixNano: nanos(end),
    attributes: attributes.map(keyValue),
    ...(error === null ? {} : { status: { message: error, code: ERROR } }),
  };
}

function keyValue({ name, value, double }: Attribute): object {
  if (typeof value === 'string') return { key: name, value: { stringValue: value } };
  if (typeof value === 'boolean') return { key: name, value: { boolValue: value } };
  return { key: name, value: double === true ? { doubleValue: value } : { intValue: String(value) } };
}

/** Milliseconds with fractions as nanoseconds; below a microsecond a number has no room for more. */
export const nanos = (ms: number): string => `${Math.round(ms * 1_000)}000`;
