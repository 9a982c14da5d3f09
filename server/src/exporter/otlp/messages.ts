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
