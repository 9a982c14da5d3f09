/** `GET /analytics/graphs/…`: one route for each row of the table of graphs. */
import { z } from 'zod';
import type { Buckets } from '../../telemetry/buckets.ts';
import type { LogGroup, LogGroupQuery, LogGroups, LogMeasure } from '../../telemetry/log-query.ts';
import { toIso, toMillis } from '../body-fields.ts';
import { KEPT_LOGS, reachOf } from '../logs/reach.ts';
import { type AnyAction, action } from '../resource.ts';
import { afterCommit } from '../services.ts';
import { feedbackFilter } from './feedback-filter.ts';
import {
  bucketKey,
  checkBounds,
  checkRange,
  conditionsOf,
  filterFields,
  placeFields,
  REAL,
  rangeFields,
  selectionOf,
  wholeField,
  zoneField,
} from './filters.ts';
import { GRAPHS, type Graph, type Part, SOURCES, type Values } from './graphs.ts';
import { approximateField, coverageFields, coverageOf } from './numbers.ts';

const graphQuery = z
  .strictObject({ ...placeFields, ...wholeField, ...rangeFields, ...filterFields, ...zoneField })
  .superRefine(checkRange)
  .superRefine(checkBounds);

const bySource = z.object({ llm: z.int(), mcp: z.int(), a2a: z.int(), custom: z.int() });

function answerOf(graph: Graph) {
  const parted = graph.bySource === undefined ? {} : { by_source: bySource };
  const micros = graph.bySource?.micros === true ? { by_source_micros: bySource } : {};
  return z.object({
    object: z.literal('analytics-graph'),
    summary: graph.summary.extend({ ...parted, ...micros }),
    data_points: z.array(
      graph.point.extend({
        timestamp: z
          .string()
          .describe(graph.shape.as === 'values' ? 'The begin of the range.' : 'The begin of the bucket, by the clock.'),
        ...parted,
        ...micros,
      }),
    ),
    bucket: z.enum(['minute', 'hour', 'day', 'week']).describe('The width of a bucket, by the length of the range.'),
    zone: z.string(),
    ...coverageFields,
    ...approximateField,
  });
}

export const graphs: readonly AnyAction[] = GRAPHS.map((graph) =>
  action({
    id: `analytics.graphs.${graph.path.replaceAll('/', '.')}`,
    method: 'GET',
    path: `/analytics/graphs/${graph.path}`,
    ...(graph.alias === undefined ? {} : { aliases: [`/v1/analytics/graphs/${graph.alias}`] }),
    summary: graph.title,
    description: `${graph.description} Without \`workspace_slug\`, credentials that are bound to no workspace read the default one.`,
    tag: 'Analytics',
    auth: 'key_or_login',
    scopes: ['analytics.view'],
    tenant: 'workspace_optional',
    workspace: 'past',
    params: null,
    query: graphQuery,
    body: null,
    response: answerOf(graph),
    writes: false,
    audit: null,
    run: async (call) => {
      const { query } = call;
      const unnamed = query.all_workspaces === true ? 'whole organisation' : 'default workspace';
      const reach = await reachOf(call, 'analytics.view', unnamed);
      const feedback = await feedbackFilter(call, reach, query, toMillis(query.time_of_generation_min));
      const own = [REAL, ...feedback, ...(graph.where ?? [])];
      const selection = selectionOf(reach, query, conditionsOf(query), own);
      const zone = query.zone ?? 'UTC';
      const { buckets, key } = bucketKey(query, zone);
      return afterCommit({ logs: KEPT_LOGS }, async ({ logs }) => {
        const found = await logs.store.groups(selection, questionOf(graph, key));
        return { ...shaped(graph, buckets, found), bucket: buckets.width, zone, ...coverageOf(found) };
      });
    },
  }),
);

/** What the store is asked: all measures by bucket, with those that are parted by source once more for each. */
function questionOf(graph: Graph, key: { readonly bounds: readonly number[] }): LogGroupQuery {
  const { shape, measures } = graph;
  const split = measures.filter(({ as }) => as === graph.bySource?.of);
  const parted = SOURCES.flatMap((source) =>
    split.map(
      (measure): LogMeasure => ({
        ...measure,
        as: `${measure.as}_${source}`,
        where: [...(measure.where ?? []), { column: 'source', in: [source] }],
      }),
    ),
  );
  const by =
    shape.as === 'points' ? [key] : shape.as === 'parts' ? [key, { column: shape.by }] : [{ column: shape.by }];
  return { by, measures: [...measures, ...parted] };
}

function shaped(graph: Graph, buckets: Buckets, { groups, summary, approximate }: LogGroups) {
  const sources = (values: Values) => {
    const split = graph.bySource;
    if (split === undefined) return {};
    const each = (value: (measured: number | null) => number) =>
      Object.fromEntries(SOURCES.map((source) => [source, value(values[`${split.of}_${source}`] ?? null)]));
    return { by_source: each(split.value), ...(split.micros ? { by_source_micros: each((value) => value ?? 0) } : {}) };
  };
  const names = new Set(graph.measures.map(({ as }) => as));
  const inexact = approximate.filter((name) => names.has(name));
  return {
    object: 'analytics-graph' as const,
    summary: { ...graph.summaryOf(summary), ...sources(summary) },
    data_points: pointsOf(graph, buckets, groups, sources),
    ...(inexact.length === 0 ? {} : { approximate: inexact }),
  };
}

type Point = Record<string, unknown>;

function pointsOf(
  { shape }: Graph,
  buckets: Buckets,
  groups: readonly LogGroup[],
  sources: (values: Values) => Point,
): Point[] {
  const begins = buckets.starts.map(toIso);
  if (shape.as === 'values') {
    const timestamp = toIso(buckets.range.from);
    return groups.map(({ keys, values }) => ({ timestamp, ...shape.pointOf({ key: keys[0] ?? null, values }) }));
  }
  if (shape.as === 'parts') {
    const parts = begins.map((): Part[] => []);
    for (const { keys, values } of groups) parts[Number(keys[0])]?.push({ key: keys[1] ?? null, values });
    return parts.map((own, index) => ({ timestamp: begins[index], ...shape.pointOf(own) }));
  }
  const found = new Map(groups.map(({ keys, values }) => [keys[0], values]));
  const all = begins.map((_begin, index) => found.get(index) ?? {});
  return all.map((values, index) => ({
    timestamp: begins[index],
    ...shape.pointOf(values, all.slice(0, index)),
    ...sources(values),
  }));
}
