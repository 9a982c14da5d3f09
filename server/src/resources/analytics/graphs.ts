/** The graphs as a table: what each measures, and the shapes of its summary and its points. */
import { z } from 'zod';
import { averageOf } from '../../telemetry/buckets.ts';
import type { LogFilter, LogMeasure } from '../../telemetry/log-query.ts';
import { IS_ERROR, IS_SUCCESS } from './filters.ts';
import { centsOf, millisOf, percentOf, ratioOf, whole } from './numbers.ts';

export type Values = Readonly<Record<string, number | null>>;

/** One graph below `/analytics/graphs/`. */
export interface Graph {
  readonly path: string;
  /** As the official client writes it, where that differs. */
  readonly alias?: string;
  readonly title: string;
  readonly description: string;
  /** Only these requests. */
  readonly where?: readonly LogFilter[];
  readonly measures: readonly LogMeasure[];
  /** The number that is also told for each source, of a measure of this name. */
  readonly bySource?: {
    readonly of: string;
    readonly value: (measured: number | null) => number;
    readonly micros?: true;
  };
  readonly summary: z.ZodObject;
  readonly summaryOf: (all: Values) => Record<string, unknown>;
  readonly point: z.ZodObject;
  readonly shape: Plain | Parted | Distribution;
}

/** A point for each bucket. `before` are the values of the buckets before it, of which a running sum is made. */
interface Plain {
  readonly as: 'points';
  readonly pointOf: (values: Values, before: readonly Values[]) => Record<string, unknown>;
}

/** A point for each bucket, whose requests are parted by a column. */
interface Parted {
  readonly as: 'parts';
  readonly by: string;
  readonly pointOf: (parts: readonly Part[]) => Record<string, unknown>;
}

/** A point for each value of a column, of the whole range. */
interface Distribution {
  readonly as: 'values';
  readonly by: string;
  readonly pointOf: (part: Part) => Record<string, unknown>;
}

export interface Part {
  readonly key: string | number | null;
  readonly values: Values;
}

export const SOURCES = ['llm', 'mcp', 'a2a', 'custom'] as const;

const int = z.int();
const total = { total: int };
const count: LogMeasure = { as: 'requests', of: 'count' };
const quantile = (q: number): LogMeasure => ({ as: `p${q * 100}`, of: 'quantile', column: 'latency_us', q });

export const UNPRICED: LogMeasure = {
  as: 'unpriced_requests',
  of: 'count',
  where: [
    { column: 'cost_micros', known: false },
    { column: 'tokens_total', known: true },
  ],
};
const isHit = (...statuses: string[]): LogFilter => ({ column: 'cache_status', in: statuses });
export const IS_HIT = isHit('HIT', 'SEMANTIC HIT');
const RESCUED_BY_RETRY: readonly LogFilter[] = [IS_SUCCESS, { column: 'retries', min: 1 }];
const RESCUED_BY_FALLBACK: readonly LogFilter[] = [IS_SUCCESS, { column: 'fallback', is: true }];
const counted = (as: string, ...where: LogFilter[]): LogMeasure => ({ as, of: 'count', where });

const costFields = {
  total: int.describe('Cents, rounded half up.'),
  avg: int.describe('Cents of a request that has a price, rounded half up.'),
  total_micros: int.describe('Micro-dollars.'),
  avg_micros: int.describe('Micro-dollars.'),
  unpriced_requests: int.describe('Requests with tokens and no known price: they are in no sum.'),
};
const costOf = ({ micros, avg, unpriced_requests }: Values) => ({
  total: centsOf(micros),
  avg: centsOf(avg),
  total_micros: whole(micros),
  avg_micros: whole(avg),
  unpriced_requests: whole(unpriced_requests),
});

const latencyFields = { avg: int, p50: int, p90: int, p99: int };
const latencyOf = ({ avg, p50, p90, p99 }: Values) => ({
  avg: millisOf(avg),
  p50: millisOf(p50),
  p90: millisOf(p90),
  p99: millisOf(p99),
});

const tokensOf = ({ tokens, avg }: Values) => ({ total: whole(tokens), avg: whole(avg) });

const rateFields = {
  rate: int.describe('Percent, rounded half up.'),
  rate_exact: z.number().describe('Percent, 2 digits.'),
};
const rateOf = (part: number | null | undefined, of: number | null | undefined) => ({
  rate: averageOf((part ?? 0) * 100, of ?? 0).rounded,
  rate_exact: percentOf(part, of),
});

const hitsOf = ({ simple, semantic }: Values): number => (simple ?? 0) + (semantic ?? 0);
const sum = (values: readonly Values[], name: string): number =>
  values.reduce((all, each) => all + (each[name] ?? 0), 0);

const points = (pointOf: Plain['pointOf']): Plain => ({ as: 'points', pointOf });

/** Counts requests: all of them, or those of a graph's condition. */
const NUMBER_OF_REQUESTS = {
  measures: [count],
  bySource: { of: 'requests', value: whole },
  summary: z.object(total),
  summaryOf: ({ requests }) => ({ total: whole(requests) }),
  point: z.object(total),
  shape: points(({ requests }) => ({ total: whole(requests) })),
} as const satisfies Partial<Graph>;

export const GRAPHS: readonly Graph[] = [
  {
    path: 'requests',
    title: 'Requests over time',
    description: 'The number of requests.',
    ...NUMBER_OF_REQUESTS,
  },
  {
    path: 'cost',
    title: 'Cost over time',
    description: 'What the requests have cost.',
    measures: [
      { as: 'micros', of: 'sum', column: 'cost_micros' },
      { as: 'avg', of: 'avg', column: 'cost_micros' },
      UNPRICED,
    ],
    bySource: { of: 'micros', value: centsOf, micros: true },
    summary: z.object(costFields),
    summaryOf: costOf,
    point: z.object(costFields),
    shape: points(costOf),
  },
  {
    path: 'latency',
    title: 'Latency over time',
    description: 'Milliseconds from the arrival of a request to the end of its answer. `by_source` has the averages.',
    measures: [{ as: 'avg', of: 'avg', column: 'latency_us' }, quantile(0.5), quantile(0.9), quantile(0.99)],
    bySource: { of: 'avg', value: millisOf },
    summary: z.object(latencyFields),
    summaryOf: latencyOf,
    point: z.object(latencyFields),
    shape: points(latencyOf),
  },
  {
    path: 'tokens',
    title: 'Tokens over time',
    description: 'Input and output tokens together; `avg` is of the requests that have any.',
    measures: [
      { as: 'tokens', of: 'sum', column: 'tokens_total' },
      { as: 'avg', of: 'avg', column: 'tokens_total' },
    ],
    bySource: { of: 'tokens', value: whole },
    summary: z.object({ total: int, avg: int }),
    summaryOf: tokensOf,
    point: z.object({ total: int, avg: int }),
    shape: points(tokensOf),
  },
  {
    path: 'users',
    title: 'Users over time',
    description: 'The number of different values of the metadata key `_user`. A user counts once in the summary.',
    measures: [{ as: 'users', of: 'distinct', column: 'end_user' }],
    summary: z.object(total),
    summaryOf: ({ users }) => ({ total: whole(users) }),
    point: z.object(total),
    shape: points(({ users }) => ({ total: whole(users) })),
  },
  {
    path: 'users/requests',
    alias: 'users-requests',
    title: 'Requests of a user over time',
    description: 'Requests with the metadata key `_user`, and how many of them a user has sent on average.',
    where: [{ column: 'end_user', known: true }],
    measures: [count, { as: 'users', of: 'distinct', column: 'end_user' }],
    summary: z.object({ total: int, unique: int, avg: int }),
    summaryOf: ({ requests, users }) => ({
      total: whole(requests),
      unique: whole(users),
      avg: whole(ratioOf(requests, users)),
    }),
    point: z.object({ avg: int }),
    shape: points(({ requests, users }) => ({ avg: whole(ratioOf(requests, users)) })),
  },
  {
    path: 'errors',
    title: 'Errors over time',
    description: 'The number of answers with a status of 400 and above.',
    where: [IS_ERROR],
    ...NUMBER_OF_REQUESTS,
  },
  {
    path: 'errors/rate',
    alias: 'errors-rate',
    title: 'Error rate over time',
    description: 'The share of requests whose answer had a status of 400 and above.',
    measures: [count, counted('errors', IS_ERROR)],
    summary: z.object(rateFields),
    summaryOf: ({ errors, requests }) => rateOf(errors, requests),
    point: z.object(rateFields),
    shape: points(({ errors, requests }) => rateOf(errors, requests)),
  },
  {
    path: 'errors/stacks',
    alias: 'errors-stack',
    title: 'Errors over time by status',
    description: 'The errors of each bucket by their status.',
    where: [IS_ERROR],
    measures: [count],
    summary: z.object(total),
    summaryOf: ({ requests }) => ({ total: whole(requests) }),
    point: z.object({ stats: z.array(z.object({ response_status_code: int, count: int })) }),
    shape: {
      as: 'parts',
      by: 'status',
      pointOf: (parts) => ({
        stats: parts.map(({ key, values }) => ({ response_status_code: Number(key), count: whole(values.requests) })),
      }),
    },
  },
  {
    path: 'errors/status-codes',
    alias: 'errors-status-code',
    title: 'Errors by status',
    description: 'The errors of the whole range by their status: each point is a status.',
    where: [IS_ERROR],
    measures: [count, { as: 'codes', of: 'distinct', column: 'status' }],
    summary: z.object({ total_errors: int, unique_error_codes: int }),
    summaryOf: ({ requests, codes }) => ({ total_errors: whole(requests), unique_error_codes: whole(codes) }),
    point: z.object({ status_code: int, count: int }),
    shape: {
      as: 'values',
      by: 'status',
      pointOf: ({ key, values }) => ({ status_code: Number(key), count: whole(values.requests) }),
    },
  },
  {
    path: 'requests/rescued',
    alias: 'requests-rescued',
    title: 'Rescued requests over time',
    description: 'Requests that were answered well after a retry, by the number of retries, or by a fallback.',
    measures: [counted('retry', ...RESCUED_BY_RETRY), counted('fallback', ...RESCUED_BY_FALLBACK)],
    summary: z.object({ retry: int, fallback: int }),
    summaryOf: ({ retry, fallback }) => ({ retry: whole(retry), fallback: whole(fallback) }),
    point: z.object({ retry: z.array(z.object({ retry_success_count: int, count: int })), fallback: int }),
    shape: {
      as: 'parts',
      by: 'retries',
      pointOf: (parts) => ({
        retry: parts
          .filter(({ values }) => (values.retry ?? 0) > 0)
          .map(({ key, values }) => ({ retry_success_count: Number(key), count: whole(values.retry) })),
        fallback: sum(
          parts.map(({ values }) => values),
          'fallback',
        ),
      }),
    },
  },
  {
    path: 'cache/hit-rate',
    alias: 'cache-hit-rate',
    title: 'Cache hits over time',
    description:
      'Hits of the cache, their share of all requests, and what they have saved since the begin of the range.',
    measures: [
      count,
      counted('simple', isHit('HIT')),
      counted('semantic', isHit('SEMANTIC HIT')),
      { as: 'simple_micros', of: 'sum', column: 'saved_micros', where: [isHit('HIT')] },
      { as: 'semantic_micros', of: 'sum', column: 'saved_micros', where: [isHit('SEMANTIC HIT')] },
    ],
    summary: z.object({ total: int, ...rateFields }),
    summaryOf: (all) => ({ total: hitsOf(all), ...rateOf(hitsOf(all), all.requests) }),
    point: z.object({
      simple_hits: int,
      semantic_hits: int,
      ...rateFields,
      cumulative_simple_cache_savings: int.describe('Cents, rounded half up.'),
      cumulative_semantic_cache_savings: int.describe('Cents, rounded half up.'),
      cumulative_simple_cache_savings_micros: int,
      cumulative_semantic_cache_savings_micros: int,
    }),
    shape: points((values, before) => {
      const [simple, semantic] = ['simple_micros', 'semantic_micros'].map((name) => sum([...before, values], name));
      return {
        simple_hits: whole(values.simple),
        semantic_hits: whole(values.semantic),
        ...rateOf(hitsOf(values), values.requests),
        cumulative_simple_cache_savings: centsOf(simple),
        cumulative_semantic_cache_savings: centsOf(semantic),
        cumulative_simple_cache_savings_micros: whole(simple),
        cumulative_semantic_cache_savings_micros: whole(semantic),
      };
    }),
  },
  {
    path: 'cache/latency',
    alias: 'cache-latency',
    title: 'Latency of cache hits over time',
    description: 'Milliseconds that an answer from the cache took on average.',
    where: [IS_HIT],
    measures: [{ as: 'avg', of: 'avg', column: 'latency_us' }],
    summary: z.object({}),
    summaryOf: () => ({}),
    point: z.object({ avg: int }),
    shape: points(({ avg }) => ({ avg: millisOf(avg) })),
  },
];
