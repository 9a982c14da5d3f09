/** Graphs of feedback: how much, which scores, how good, and of which models. */
import { z } from 'zod';
import type { Totals, TotalsQuery, Where } from '../../store/ports.ts';
import { averageOf, type Buckets, fillBuckets, MAX_RANGE_MS } from '../../telemetry/buckets.ts';
import { MICROS } from '../../telemetry/feedback.ts';
import { toIso, toMillis } from '../body-fields.ts';
import { refuse } from '../common.ts';
import { KEPT_LOGS, type Reach, reachOf } from '../logs/reach.ts';
import { type AnyAction, action, type Call } from '../resource.ts';
import { type Work, withServices } from '../services.ts';
import { feedbackWhere, ofTraces, tracesWith } from './feedback-filter.ts';
import {
  bucketKey,
  checkBounds,
  checkRange,
  conditionsOf,
  type Filters,
  filterFields,
  placeFields,
  REAL,
  rangeFields,
  selectionOf,
  zoneField,
} from './filters.ts';

/** Models of one answer: those with the most feedback. */
const MOST_MODELS = 100;
const UNKNOWN = 'unknown';

/** Filters that rows of feedback answer. For all others the log store is asked which of their traces have such requests. */
const OWN: ReadonlySet<string> = new Set<keyof Filters>([
  'trace_id',
  'api_key_ids',
  'configs',
  'ai_org_model',
  'ai_model',
  'weighted_feedback_min',
  'weighted_feedback_max',
]);

const query = z
  .strictObject({ ...placeFields, ...rangeFields, ...filterFields, ...zoneField })
  .superRefine(checkRange)
  .superRefine(checkBounds);

const count = z.int().min(0);
const average = {
  avg: z.int().describe('Of value times weight, as a whole number; 0 where there is no feedback.'),
  avg_exact: z.number().nullable().describe('The same with decimals; null where there is no feedback.'),
} as const;

interface Graph<R> {
  readonly name: string;
  /** What clients call it, too. */
  readonly alsoAt?: string;
  readonly summary: string;
  readonly description?: string;
  readonly response: z.ZodType<unknown, R>;
  readonly groups: Pick<TotalsQuery<'feedback'>, 'by' | 'sums' | 'most'> & { readonly inTime: boolean };
  readonly shown: (groups: readonly Totals[], buckets: Buckets) => Omit<R, 'object' | 'bucket' | 'zone'>;
}

function graphOf<S extends z.ZodRawShape, P extends z.ZodRawShape>(summary: S, point: P) {
  return z.object({
    object: z.literal('analytics-graph'),
    summary: z.object(summary),
    data_points: z.array(
      z.object({ timestamp: z.string().describe('The begin of the bucket, by the clock.'), ...point }),
    ),
    bucket: z.enum(['minute', 'hour', 'day', 'week']).describe('The width of a bucket, by the length of the range.'),
    zone: z.string(),
  });
}

function graph<R extends { object: 'analytics-graph'; bucket: unknown; zone: string }>(own: Graph<R>): AnyAction {
  return action<unknown, z.output<typeof query>, unknown, R, readonly string[]>({
    id: `analytics.graphs.${own.name.replaceAll('/', '.')}`,
    method: 'GET',
    path: `/analytics/graphs/${own.name}`,
    ...(own.alsoAt === undefined ? {} : { aliases: [`/v1/analytics/graphs/${own.alsoAt}`] }),
    summary: own.summary,
    description:
      `${own.description ?? ''} Without \`workspace_slug\`, credentials that are bound to no workspace read the default one.`.trim(),
    tag: 'Analytics',
    auth: 'key_or_login',
    scopes: ['analytics.view'],
    tenant: 'workspace_optional',
    workspace: 'past',
    params: null,
    query,
    body: null,
    response: own.response,
    writes: false,
    audit: null,
    ahead: async (call) => {
      const reach = await reachOf(call, 'analytics.view', 'default workspace');
      return tracesOfRequests(call, reach);
    },
    run: async (call) => {
      const zone = call.query.zone ?? 'UTC';
      const { buckets } = bucketKey(call.query, zone);
      const { inTime, ...groups } = own.groups;
      const reach = await reachOf(call, 'analytics.view', 'default workspace');
      const { where, ...alternatives } = conditions(reach, buckets.range, call.query);
      const found = await call.tx.totals('feedback', {
        where: call.asked === null ? where : { ...where, trace_id: { in: call.asked } },
        ...alternatives,
        ...groups,
        ...(inTime ? { slot: { column: 'created_at', stepMs: buckets.stepMs } } : {}),
      });
      const shown = own.shown(found, buckets);
      // What the graph shows is all that its schema names but these.
      return { object: 'analytics-graph', ...shown, bucket: buckets.width, zone } as unknown as R as never;
    },
  });
}

/** The traces with feedback whose requests meet the filters that feedback does not answer itself; null without such filters. */
async function tracesOfRequests(
  call: Pick<Call<unknown, z.output<typeof query>>, 'tx' | 'query'>,
  reach: Reach,
): Promise<Work<readonly string[]> | null> {
  const others = Object.entries(call.query).filter(([name]) => !OWN.has(name));
  const asked = conditionsOf(Object.fromEntries(others));
  if (asked.length === 0) return null;
  const to = toMillis(call.query.time_of_generation_max);
  const range = { from: toMillis(call.query.time_of_generation_min), to };
  const { traces, all } = await tracesWith(call, conditions(reach, range, call.query).where ?? {});
  if (!all) {
    throw refuse(
      'time_of_generation_max',
      'makes a range with feedback on too many traces for filters of requests: ask for a shorter one',
    );
  }
  // The requests may be older than their feedback.
  const whole = { ...call.query, time_of_generation_min: toIso(Math.max(0, to - MAX_RANGE_MS)) };
  const selection = selectionOf(reach, whole, asked, [REAL, ofTraces(traces)]);
  return withServices({ logs: KEPT_LOGS }, async ({ logs }) => {
    const by = [{ column: 'trace_id' }];
    const found = await logs.store.groups(selection, { by, measures: [{ as: 'requests', of: 'count' }] });
    return found.groups.map(({ keys }) => String(keys[0]));
  });
}

/** The feedback that the caller may read, of the range, as it is filtered. */
function conditions(
  reach: Reach,
  range: Buckets['range'],
  asked: Filters,
): Pick<TotalsQuery<'feedback'>, 'where' | 'anyOf'> {
  const where: Where<'feedback'> = {
    ...feedbackWhere(reach, range, asked),
    ...(asked.trace_id === undefined ? {} : { trace_id: { in: asked.trace_id } }),
    ...(asked.api_key_ids === undefined ? {} : { api_key_id: { in: asked.api_key_ids } }),
    ...(asked.configs === undefined ? {} : { config_slug: { in: asked.configs } }),
    ...(asked.ai_model === undefined ? {} : { ai_model: { in: asked.ai_model } }),
  };
  if (asked.ai_org_model === undefined) return { where };
  return { where, anyOf: asked.ai_org_model.map(({ provider, model }) => ({ provider, ai_model: model })) };
}

const countOf = (groups: readonly Totals[]): number => groups.reduce((sum, group) => sum + group.count, 0);
const weightedOf = (groups: readonly Totals[]): number =>
  groups.reduce((sum, { sums }) => sum + (sums.weighted_micros ?? 0), 0);

function averageShown(weightedMicros: number, of: number) {
  const { rounded, exact } = averageOf(weightedMicros / MICROS, of);
  return { avg: rounded, avg_exact: exact };
}

/** The groups of each bucket, in order. */
function byBucket(groups: readonly Totals[], buckets: Buckets): { timestamp: string; groups: Totals[] }[] {
  const timeOf = ({ slot }: Totals) => (slot ?? 0) * buckets.stepMs;
  const filled = fillBuckets<Totals, Totals[]>(
    buckets,
    groups,
    timeOf,
    () => [],
    (sum, group) => [...sum, group],
  );
  return filled.map((own, index) => ({ timestamp: toIso(buckets.starts[index] ?? 0), groups: own }));
}

/** What is added up over the whole range is shown at its begin. */
const beginOf = ({ range }: Buckets): string => toIso(range.from);

const feedbacks = graph({
  name: 'feedbacks',
  summary: 'Feedback over time',
  response: graphOf({ total: count }, { total: count }),
  groups: { inTime: true },
  shown: (groups, buckets) => ({
    summary: { total: countOf(groups) },
    data_points: byBucket(groups, buckets).map(({ timestamp, groups: own }) => ({ timestamp, total: countOf(own) })),
  }),
});

const scores = graph({
  name: 'feedbacks/scores',
  alsoAt: 'feedbacks/score',
  summary: 'Feedback by score',
  description: 'One point for each score that was given, lowest first. `timestamp` is the begin of the range.',
  response: graphOf({ total: count }, { score: z.int(), total: count }),
  groups: { inTime: false, by: ['value'] },
  shown: (groups, buckets) => ({
    summary: { total: countOf(groups) },
    data_points: groups
      .map((group) => ({ timestamp: beginOf(buckets), score: Number(group.by.value), total: group.count }))
      .sort((a, b) => a.score - b.score),
  }),
});

const weighted = graph({
  name: 'feedbacks/weighted',
  summary: 'Average weighted feedback over time',
  description: 'Each feedback counts as its value times its weight.',
  response: graphOf(average, average),
  groups: { inTime: true, sums: ['weighted_micros'] },
  shown: (groups, buckets) => ({
    summary: averageShown(weightedOf(groups), countOf(groups)),
    data_points: byBucket(groups, buckets).map(({ timestamp, groups: own }) => ({
      timestamp,
      ...averageShown(weightedOf(own), countOf(own)),
    })),
  }),
});

const models = graph({
  name: 'feedbacks/ai-models',
  summary: 'Feedback by model',
  description:
    `The ${MOST_MODELS} models with the most feedback, and \`${UNKNOWN}\` for feedback whose request is not known. ` +
    '`timestamp` is the begin of the range.',
  response: graphOf(
    {},
    {
      ai_model: z.string(),
      total: count,
      avg_weighted_feedback: average.avg,
      avg_weighted_feedback_exact: average.avg_exact,
    },
  ),
  groups: { inTime: false, by: ['ai_model'], sums: ['weighted_micros'], most: MOST_MODELS },
  shown: (groups, buckets) => ({
    summary: {},
    data_points: groups.map((group) => {
      const { avg, avg_exact } = averageShown(group.sums.weighted_micros ?? 0, group.count);
      return {
        timestamp: beginOf(buckets),
        ai_model: group.by.ai_model == null ? UNKNOWN : String(group.by.ai_model),
        total: group.count,
        avg_weighted_feedback: avg,
        avg_weighted_feedback_exact: avg_exact,
      };
    }),
  }),
});

export const feedbackGraphs: readonly AnyAction[] = [feedbacks, scores, weighted, models];
