/** The messages of OTLP that Sluice sends: numbers and kinds of their fields, by the names of the JSON form. */
import type { Message } from './protobuf.ts';

const ANY_VALUE: Message = {
  stringValue: [1, 'string'],
  boolValue: [2, 'bool'],
  intValue: [3, 'int64'],
  doubleValue: [4, 'double'],
};
const KEY_VALUE: Message = { key: [1, 'string'], value: [2, ANY_VALUE] };
const RESOURCE: Message = { attributes: [1, 'repeated', KEY_VALUE] };
const SCOPE: Message = { name: [1, 'string'], version: [2, 'string'] };
const STATUS: Message = { message: [2, 'string'], code: [3, 'enum'] };
const SPAN: Message = {
  traceId: [1, 'id'],
  spanId: [2, 'id'],
  parentSpanId: [4, 'id'],
  name: [5, 'string'],
  kind: [6, 'enum'],
  startTimeUnixNano: [7, 'fixed64'],
  endTimeUnixNano: [8, 'fixed64'],
  attributes: [9, 'repeated', KEY_VALUE],
  status: [15, STATUS],
};
const SCOPE_SPANS: Message = { scope: [1, SCOPE], spans: [2, 'repeated', SPAN] };
const RESOURCE_SPANS: Message = { resource: [1, RESOURCE], scopeSpans: [2, 'repeated', SCOPE_SPANS] };

export const TRACES_REQUEST: Message = { resourceSpans: [1, 'repeated', RESOURCE_SPANS] };

const NUMBER_POINT: Message = {
  startTimeUnixNano: [2, 'fixed64'],
  timeUnixNano: [3, 'fixed64'],
  asDouble: [4, 'double'],
  attributes: [7, 'repeated', KEY_VALUE],
};
const HISTOGRAM_POINT: Message = {
  startTimeUnixNano: [2, 'fixed64'],
  timeUnixNano: [3, 'fixed64'],
  count: [4, 'fixed64'],
  sum: [5, 'double'],
  bucketCounts: [6, 'packed_fixed64'],
  explicitBounds: [7, 'packed_double'],
  attributes: [9, 'repeated', KEY_VALUE],
};
const GAUGE: Message = { dataPoints: [1, 'repeated', NUMBER_POINT] };
const SUM: Message = {
  dataPoints: [1, 'repeated', NUMBER_POINT],
  aggregationTemporality: [2, 'enum'],
  isMonotonic: [3, 'bool'],
};
const HISTOGRAM: Message = { dataPoints: [1, 'repeated', HISTOGRAM_POINT], aggregationTemporality: [2, 'enum'] };
const METRIC: Message = {
  name: [1, 'string'],
  description: [2, 'string'],
  unit: [3, 'string'],
  gauge: [5, GAUGE],
  sum: [7, SUM],
  histogram: [9, HISTOGRAM],
};
const SCOPE_METRICS: Message = { scope: [1, SCOPE], metrics: [2, 'repeated', METRIC] };
const RESOURCE_METRICS: Message = { resource: [1, RESOURCE], scopeMetrics: [2, 'repeated', SCOPE_METRICS] };

export const METRICS_REQUEST: Message = { resourceMetrics: [1, 'repeated', RESOURCE_METRICS] };
