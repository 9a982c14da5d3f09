/** What a group can tell of its requests, by the names of columns, and what requests can be grouped by. */
import { z } from 'zod';
import type { LogMeasure } from '../../telemetry/log-query.ts';
import { toIso } from '../body-fields.ts';
import { IS_ERROR, IS_SUCCESS } from './filters.ts';
import { IS_HIT, UNPRICED, type Values } from './graphs.ts';
import { centsOf, millisOf, percentOf, whole } from './numbers.ts';

interface Column {
  readonly measures: readonly LogMeasure[];
  /** The measure that groups are ordered by; of ratios the nearest one. */
  readonly order: string;
  readonly fields: z.ZodRawShape;
  readonly of: (values: Values) => Record<string, unknown>;
}

const int = z.int();
const requests: LogMeasure = { as: 'requests', of: 'count' };
const tokens: LogMeasure = { as: 'tokens', of: 'sum', column: 'tokens_total' };
const errors: LogMeasure = { as: 'errors', of: 'count', where: [IS_ERROR] };
const hits: LogMeasure = { as: 'hits', of: 'count', where: [IS_HIT] };

function single(measure: LogMeasure, fields: z.ZodRawShape, of: Column['of']): Column {
  return { measures: [measure], order: measure.as, fields, of };
}

const average = (as: string, column: string, as2: string): Column =>
  single({ as, of: 'avg', column }, { [as2]: int }, (values) => ({ [as2]: whole(values[as]) }));

const latency = (name: string, measure: Omit<LogMeasure, 'as' | 'column'>): Column =>
  single({ as: name, column: 'latency_us', ...measure }, { [name]: int.describe('Milliseconds.') }, (values) => ({
    [name]: millisOf(values[name]),
  }));

const seen = (name: string, of: 'min' | 'max'): Column =>
  single({ as: name, of, column: 'time' }, { [name]: z.string().nullable() }, (values) => ({
    [name]: values[name] == null ? null : toIso(Number(values[name])),
  }));

/** Names of `columns`, and of `order_by`. */
export const COLUMNS = {
  requests: single(requests, { requests: int }, (values) => ({ requests: whole(values.requests) })),
  cost: {
    measures: [{ as: 'micros', of: 'sum', column: 'cost_micros' }, UNPRICED],
    order: 'micros',
    fields: {
      cost: int.describe('Cents, rounded half up.'),
      cost_micros: int.describe('Micro-dollars.'),
      unpriced_requests: int.describe('Requests with tokens and no known price: they are in no sum.'),
    },
    of: ({ micros, unpriced_requests }) => ({
      cost: centsOf(micros),
      cost_micros: whole(micros),
      unpriced_requests: whole(unpriced_requests),
    }),
  },
  total_tokens: single(tokens, { total_tokens: int }, (values) => ({ total_tokens: whole(values.tokens) })),
  avg_tokens: average('average_tokens', 'tokens_total', 'avg_tokens'),
  avg_input_tokens: average('average_in', 'tokens_in', 'avg_input_tokens'),
  avg_output_tokens: average('average_out', 'tokens_out', 'avg_output_tokens'),
  avg_latency: latency('avg_latency', { of: 'avg' }),
  p95_latency: latency('p95_latency', { of: 'quantile', q: 0.95 }),
  p99_latency: latency('p99_latency', { of: 'quantile', q: 0.99 }),
  success_rate: {
    measures: [requests, { as: 'successes', of: 'count', where: [IS_SUCCESS] }],
    order: 'successes',
    fields: { success_rate: z.number().describe('Percent, 2 digits.') },
    of: (values) => ({ success_rate: percentOf(values.successes, values.requests) }),
  },
  error_count: single(errors, { error_count: int }, (values) => ({ error_count: whole(values.errors) })),
  cache_hit_rate: {
    measures: [requests, hits],
    order: 'hits',
    fields: { cache_hit_rate: z.number().describe('Percent, 2 digits.') },
    of: (values) => ({ cache_hit_rate: percentOf(values.hits, values.requests) }),
  },
  last_seen: seen('last_seen', 'max'),
  first_seen: seen('first_seen', 'min'),
  saved: single(
    { as: 'saved_micros', of: 'sum', column: 'saved_micros' },
    { saved: int.describe('Cents that the cache has saved.'), saved_micros: int.describe('Micro-dollars.') },
    (values) => ({ saved: centsOf(values.saved_micros), saved_micros: whole(values.saved_micros) }),
  ),
} as const satisfies Readonly<Record<string, Column>>;

export type ColumnName = keyof typeof COLUMNS;
export const COLUMN_NAMES = Object.keys(COLUMNS) as [ColumnName, ...ColumnName[]];
/** Ordered by the share of a group's requests, a list would begin with groups of one request: it is by their number. */
const RATES: ReadonlySet<ColumnName> = new Set(['success_rate', 'cache_hit_rate']);

/** Names that lists can be ordered by. */
export const ORDERS = COLUMN_NAMES.filter((name) => !RATES.has(name)) as [ColumnName, ...ColumnName[]];

/** The measures of these columns, each once. */
export function measuresOf(names: readonly ColumnName[]): LogMeasure[] {
  const all = names.flatMap((name): readonly LogMeasure[] => COLUMNS[name].measures);
  return [...new Map(all.map((measure) => [measure.as, measure])).values()];
}

export function fieldsOf(names: readonly ColumnName[], values: Values): Record<string, unknown> {
  return Object.assign({}, ...names.map((name) => COLUMNS[name].of(values)));
}

/** Every field that columns may have, none of them required but the number of requests. */
export const columnFields: z.ZodRawShape = {
  ...Object.fromEntries(
    COLUMN_NAMES.flatMap((name) =>
      Object.entries(COLUMNS[name].fields).map(([field, schema]) => [field, (schema as z.ZodType).optional()]),
    ),
  ),
  requests: int,
};

/** A name that `groupBy` can have. */
interface Dimension {
  readonly column: string;
  /** The field of the items. */
  readonly field: string;
  readonly kind: 'text' | 'integer';
  /** What its ids are of: answers show their names, too. */
  readonly names?: 'api_key' | 'workspace' | 'user';
  /** Values of metadata. */
  readonly metadata?: true;
  /** Another field with the same value. */
  readonly also?: string;
}

const of = (column: string, field: string, more: Partial<Dimension> = {}): Dimension => ({
  column,
  field,
  kind: 'text',
  ...more,
});

export const DIMENSIONS = {
  ai_service: of('provider', 'ai_service'),
  provider: of('provider', 'ai_org', { also: 'provider' }),
  model: of('model', 'model'),
  'ai-models': of('model', 'ai_model'),
  status_code: of('status', 'status_code', { kind: 'integer' }),
  api_key: of('api_key_id', 'api_key', { names: 'api_key' }),
  config: of('config_slug', 'config'),
  workspace: of('workspace_id', 'workspace', { names: 'workspace' }),
  prompt: of('prompt_slug', 'prompt'),
  virtual_key: of('provider_slug', 'virtual_key'),
  user: of('user_id', 'user_id', { names: 'user' }),
  users: of('end_user', 'user', { metadata: true }),
  operation: of('operation', 'operation'),
  source: of('source', 'source'),
  outcome: of('outcome', 'outcome'),
  error_code: of('error_code', 'error_code'),
  cache_status: of('cache_status', 'cache_status'),
} as const satisfies Readonly<Record<string, Dimension>>;

export type DimensionName = keyof typeof DIMENSIONS;
export const dimensionOf = (name: DimensionName): Dimension => DIMENSIONS[name];
