/** A collector of OpenTelemetry's data on loopback: takes both forms of OTLP over HTTP, and says what it was sent. */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';

/** Fields as the published schema numbers them; a text names another message, `[]` means repeated. */
const SCHEMA: Readonly<Record<string, Readonly<Record<number, string>>>> = {
  ExportTraceServiceRequest: { 1: 'resourceSpans ResourceSpans[]' },
  ResourceSpans: { 1: 'resource Resource', 2: 'scopeSpans ScopeSpans[]', 3: 'schemaUrl string' },
  Resource: { 1: 'attributes KeyValue[]', 2: 'droppedAttributesCount int' },
  ScopeSpans: { 1: 'scope InstrumentationScope', 2: 'spans Span[]', 3: 'schemaUrl string' },
  InstrumentationScope: { 1: 'name string', 2: 'version string' },
  Span: {
    1: 'traceId id',
    2: 'spanId id',
    3: 'traceState string',
    4: 'parentSpanId id',
    5: 'name string',
    6: 'kind int',
    7: 'startTimeUnixNano fixed64',
    8: 'endTimeUnixNano fixed64',
    9: 'attributes KeyValue[]',
    10: 'droppedAttributesCount int',
    12: 'droppedEventsCount int',
    14: 'droppedLinksCount int',
    15: 'status Status',
    16: 'flags fixed32',
  },
  Status: { 2: 'message string', 3: 'code int' },
  KeyValue: { 1: 'key string', 2: 'value AnyValue' },
  AnyValue: { 1: 'stringValue string', 2: 'boolValue bool', 3: 'intValue int64', 4: 'doubleValue double' },
  ExportMetricsServiceRequest: { 1: 'resourceMetrics ResourceMetrics[]' },
  ResourceMetrics: { 1: 'resource Resource', 2: 'scopeMetrics ScopeMetrics[]' },
  ScopeMetrics: { 1: 'scope InstrumentationScope', 2: 'metrics Metric[]' },
  Metric: {
    1: 'name string',
    2: 'description string',
    3: 'unit string',
    5: 'gauge Gauge',
    7: 'sum Sum',
    9: 'histogram Histogram',
  },
  Gauge: { 1: 'dataPoints NumberDataPoint[]' },
  Sum: { 1: 'dataPoints NumberDataPoint[]', 2: 'aggregationTemporality int', 3: 'isMonotonic bool' },
  Histogram: { 1: 'dataPoints HistogramDataPoint[]', 2: 'aggregationTemporality int' },
  NumberDataPoint: {
    2: 'startTimeUnixNano fixed64',
    3: 'timeUnixNano fixed64',
    4: 'asDouble double',
    6: 'asInt fixed64',
    7: 'attributes KeyValue[]',
  },
  HistogramDataPoint: {
    2: 'startTimeUnixNano fixed64',
    3: 'timeUnixNano fixed64',
    4: 'count fixed64',
    5: 'sum double',
    6: 'bucketCounts packed_fixed64',
    7: 'explicitBounds packed_double',
    9: 'attributes KeyValue[]',
  },
};

type Decoded = Record<string, unknown>;

/** Decodes a message of the table. Throws for bytes that are none of it. */
export function decodeProtobuf(message: string, bytes: Buffer): Decoded {
  const fields = SCHEMA[message] ?? {};
  const out: Decoded = {};
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      if (byte === undefined) throw new Error(`${message} ends inside of a number`);
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const [name, kind = ''] = (fields[tag >> 3] ?? '').split(' ');
    if (name === undefined || name === '') throw new Error(`${message} has no field ${tag >> 3}`);
    const wire = tag & 7;
    let value: unknown;
    if (wire === 0) {
      const read = varint();
      value = kind === 'bool' ? read === 1n : kind === 'int64' ? String(BigInt.asIntN(64, read)) : Number(read);
    } else if (wire === 1) {
      value = kind === 'double' ? bytes.readDoubleLE(at) : String(bytes.readBigUInt64LE(at));
      at += 8;
    } else if (wire === 5) {
      value = bytes.readUInt32LE(at);
      at += 4;
    } else {
      const length = Number(varint());
      const part = bytes.subarray(at, at + length);
      if (part.length < length) throw new Error(`${message}.${name} is cut`);
      at += length;
      value = decodedPart(kind, part);
    }
    if (kind.endsWith('[]')) out[name] = [...((out[name] as unknown[] | undefined) ?? []), value];
    else out[name] = value;
  }
  return out;
}

function decodedPart(kind: string, part: Buffer): unknown {
  if (kind === 'string') return part.toString('utf8');
  if (kind === 'id') return part.toString('hex');
  const eighths = Array.from({ length: part.length / 8 }, (_, i) => i * 8);
  if (kind === 'packed_double') return eighths.map((i) => part.readDoubleLE(i));
  if (kind === 'packed_fixed64') return eighths.map((i) => String(part.readBigUInt64LE(i)));
  return decodeProtobuf(kind.replace('[]', ''), part);
}

interface Pair {
  readonly key: string;
  readonly value: Decoded;
}

/** A span with its attributes by name. */
export interface SeenSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly status?: { readonly message?: string; readonly code?: number };
  readonly attributes: Readonly<Record<string, unknown>>;
}

export interface SeenCall {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  /** Without compression. */
  readonly body: Buffer;
  readonly message: Decoded;
}

const named = (pairs: unknown): Record<string, unknown> =>
  Object.fromEntries(((pairs as Pair[] | undefined) ?? []).map(({ key, value }) => [key, Object.values(value)[0]]));

export interface Collector {
  readonly url: string;
  readonly port: number;
  /** Calls that were answered 200. */
  readonly calls: SeenCall[];
  /** What comes next is answered so; null: 200. */
  refuse: { readonly status: number; readonly headers?: Record<string, string> } | null;
  /** How many calls came, refused ones too. */
  tries: number;
  spans(): SeenSpan[];
  resource(): Record<string, unknown>;
  /** The points of a metric as they were told last; of a histogram the sums. */
  metric(name: string): { readonly value: number; readonly attributes: Record<string, unknown> }[];
  close(): Promise<void>;
}

export async function startCollector(port = 0): Promise<Collector> {
  const calls: SeenCall[] = [];
  const server: Server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      collector.tries += 1;
      if (collector.refuse !== null) {
        response.writeHead(collector.refuse.status, collector.refuse.headers);
        response.end();
        return;
      }
      const sent = Buffer.concat(parts);
      const body = request.headers['content-encoding'] === 'gzip' ? gunzipSync(sent) : sent;
      const path = request.url ?? '';
      const type = path.endsWith('/metrics') ? 'ExportMetricsServiceRequest' : 'ExportTraceServiceRequest';
      const message =
        request.headers['content-type'] === 'application/json'
          ? (JSON.parse(body.toString()) as Decoded)
          : decodeProtobuf(type, body);
      calls.push({ path, headers: request.headers, body, message });
      response.writeHead(200, { 'content-type': 'application/x-protobuf' });
      response.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const own = (server.address() as AddressInfo).port;
  const resources = (): Decoded[] =>
    calls.flatMap(({ message }) => (message.resourceSpans as Decoded[] | undefined) ?? []);
  const collector: Collector = {
    url: `http://127.0.0.1:${own}`,
    port: own,
    calls,
    refuse: null,
    tries: 0,
    spans: () =>
      resources()
        .flatMap(({ scopeSpans }) => scopeSpans as Decoded[])
        .flatMap(({ spans }) => spans as Decoded[])
        .map((span) => ({ ...(span as unknown as SeenSpan), attributes: named(span.attributes) })),
    metric(name) {
      const told = calls.filter(({ path }) => path.endsWith('/metrics')).at(-1)?.message.resourceMetrics as Decoded[];
      const metrics = ((told ?? [])[0]?.scopeMetrics as Decoded[] | undefined)?.flatMap((scope) => scope.metrics);
      const found = (metrics as Decoded[] | undefined)?.find((metric) => metric.name === name);
      const { dataPoints = [] } = (found?.sum ?? found?.histogram ?? found?.gauge ?? {}) as { dataPoints?: Decoded[] };
      return dataPoints.map(({ attributes, asDouble, sum }) => ({
        value: Number(asDouble ?? sum),
        attributes: named(attributes),
      }));
    },
    resource: () => named((resources()[0]?.resource as Decoded | undefined)?.attributes),
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return collector;
}
