/** The numbers of a server as the body of a call of `/v1/metrics`: sums since the start, as OpenTelemetry names them. */
import type { ConventionsVersion } from '../../telemetry/conventions/conventions.ts';
import { LATEST } from '../../telemetry/conventions/latest.ts';
import { V1_41 } from '../../telemetry/conventions/v1-41.ts';
import { definitionOf } from '../../telemetry/metrics/families.ts';
import type { CellValues, FamilyValues } from '../../telemetry/metrics/family-values.ts';
import { METRICS_REQUEST } from './messages.ts';
import { encodeMessage } from './protobuf.ts';
import { nanos, type OtlpProtocol, type OtlpSender, resourceOf, scopeOf } from './requests.ts';

/** Milliseconds since the epoch: since when sums are counted, and when they were read. */
export interface Period {
  readonly start: number;
  readonly now: number;
}

/** A family under one name, with the cells that belong to it. */
interface Named extends FamilyValues {
  readonly otel: string;
  readonly unit: string;
  /** Of a histogram the sums alone, as a counter. */
  readonly sums?: true;
}

const CUMULATIVE = 2;
/** Names of attributes by their names as labels, which have no dots. */
const ATTRIBUTES: ReadonlyMap<string, string> = new Map(
  Object.values(V1_41.attributes).map((name) => [name.replaceAll('.', '_'), name]),
);
const { tokenType, operation } = V1_41.attributes;
const UNITS = [
  ['_seconds', 's'],
  ['_bytes', 'By'],
] as const;

/** Families whose name OpenTelemetry has other words for are those of `process_`: they are left out. */
export function metricsBody(
  families: readonly FamilyValues[],
  period: Period,
  version: ConventionsVersion,
  sender: OtlpSender,
  protocol: OtlpProtocol,
): Buffer {
  const metrics = families
    .filter(({ name, cells }) => cells.length > 0 && !name.startsWith('process_'))
    .flatMap((family) => (version === 'latest' ? newest(family) : [named(family)]))
    .filter(({ cells }) => cells.length > 0)
    .map((family) => metricOf(family, period));
  const request = {
    resourceMetrics: [{ resource: resourceOf(sender), scopeMetrics: [{ scope: scopeOf(sender), metrics }] }],
  };
  return protocol === 'http/json' ? Buffer.from(JSON.stringify(request)) : encodeMessage(METRICS_REQUEST, request);
}

/** As version 1.41 of the conventions names it; `sluice_requests_total` is `sluice.requests`. */
function named(family: FamilyValues): Named {
  const known = Object.entries(V1_41.metrics).find(([name]) => name === family.name)?.[1];
  if (known !== undefined) return { ...family, otel: known.name, unit: known.unit };
  const bare = family.name.replace(/_total$/, '').replace('_', '.');
  const [ending, unit] = UNITS.find(([end]) => bare.endsWith(end)) ?? ['', '1'];
  return { ...family, otel: bare.slice(0, bare.length - ending.length), unit };
}

function newest(family: FamilyValues): Named[] {
  const usual = named(family);
  if (family.name === 'gen_ai_client_token_usage') {
    return Object.entries(LATEST.tokens).flatMap(([type, { counter, histogram }]) => {
      const own = only(usual, tokenType, (value) => value === type);
      return [
        { ...own, otel: counter, sums: true as const },
        { ...own, otel: histogram },
      ];
    });
  }
  if (family.name !== 'gen_ai_client_operation_duration_seconds') return [usual];
  const isOther = (value: string) => LATEST.otherOperations.some((other) => other === value);
  return [
    { ...only(usual, operation, (value) => !isOther(value)), otel: LATEST.inferenceDuration },
    only(usual, operation, isOther),
  ];
}

/** The cells whose label is so; of the types of tokens, without that label. */
function only(family: Named, attribute: string, wanted: (value: string) => boolean): Named {
  const at = family.labels.findIndex((label) => ATTRIBUTES.get(label) === attribute);
  const cells = family.cells.filter(({ labels }) => wanted(labels[at] ?? ''));
  if (attribute !== tokenType) return { ...family, cells };
  const without = (list: readonly string[]) => list.filter((_, i) => i !== at);
  return {
    ...family,
    labels: without(family.labels),
    cells: cells.map(({ labels, values }) => ({ labels: without(labels), values })),
  };
}

function metricOf({ name, otel, unit, labels, cells, sums }: Named, period: Period): object {
  const { type, help, buckets = [] } = definitionOf(name);
  const head = { name: otel, description: help, unit };
  const point = (cell: CellValues) => ({
    startTimeUnixNano: nanos(period.start),
    timeUnixNano: nanos(period.now),
    attributes: cell.labels.flatMap((stringValue, i) => {
      const label = labels[i] ?? '';
      return stringValue === '' ? [] : [{ key: ATTRIBUTES.get(label) ?? label, value: { stringValue } }];
    }),
  });
  const value = (cell: CellValues) => (sums === true ? sumOf(cell) : (cell.values[0] ?? 0));
  if (type === 'histogram' && sums !== true) {
    const dataPoints = cells.map((cell) => {
      const counts = Array.from(cell.values).slice(0, -1);
      return {
        ...point(cell),
        count: String(counts.reduce((all, count) => all + count, 0)),
        sum: sumOf(cell),
        bucketCounts: counts.map(String),
        explicitBounds: [...buckets],
      };
    });
    return { ...head, histogram: { dataPoints, aggregationTemporality: CUMULATIVE } };
  }
  const dataPoints = cells.map((cell) => ({ ...point(cell), asDouble: value(cell) }));
  if (type === 'gauge') return { ...head, gauge: { dataPoints } };
  return { ...head, sum: { dataPoints, aggregationTemporality: CUMULATIVE, isMonotonic: true } };
}

/** The sum of a histogram is its last number. */
const sumOf = ({ values }: CellValues): number => values[values.length - 1] ?? 0;
