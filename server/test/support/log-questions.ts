/** Random records and random questions about them, for the comparison of engines. */
import fc from 'fast-check';
import type { StoredLog } from '../../src/store/ports.ts';
import { LOG_COLUMNS } from '../../src/telemetry/log-columns.ts';
import type {
  ErasedLogs,
  LogFilter,
  LogGroupKey,
  LogGroupQuery,
  LogMeasure,
  LogPageQuery,
  LogSelection,
} from '../../src/telemetry/log-query.ts';

export const SPAN_MS = 1_000;
const ORGANISATIONS = ['org-a', 'org-b'];
const WORKSPACES = ['ws-1', 'ws-2', 'ws-3'];
const WORDS = ['a', 'B', 'é', '🦥', "x' OR 1=1 --", '', 'nul \u0000'];
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: null, freq: 3 });
const word = fc.constantFrom(...WORDS);
const tokens = maybe(fc.integer({ min: 0, max: 50 }));
const key = fc.constantFrom('_user', '_environment', 'team', '__proto__', 'a.b', 'é"');

const usage = fc.record({
  input: fc.integer({ min: 0, max: 50 }),
  output: fc.integer({ min: 0, max: 50 }),
  cache_read: fc.nat(5),
  cache_write: fc.nat(5),
  reasoning: fc.nat(5),
  audio_input: fc.nat(5),
  audio_output: fc.nat(5),
});

/** A record of one of two organisations within `SPAN_MS` from 0, without what tells it from others. */
export const record = fc.record(
  {
    time: fc.nat(SPAN_MS - 1),
    organisation_id: maybe(fc.constantFrom(...ORGANISATIONS)),
    workspace_id: maybe(fc.constantFrom(...WORKSPACES)),
    user_id: maybe(fc.constantFrom('u1', 'u2')),
    api_key_id: maybe(fc.constantFrom('k1', 'k2', 'k3')),
    operation: fc.constantFrom('chat', 'embeddings'),
    provider: maybe(fc.constantFrom('openai', 'anthropic')),
    model_requested: maybe(word),
    model_sent: maybe(word),
    stream: fc.boolean(),
    dry_run: fc.constantFrom(false, false, false, true),
    status: fc.constantFrom(200, 404, 429, 500),
    outcome: fc.constantFrom('ok', 'refused', 'failed'),
    error_code: maybe(fc.constantFrom('AB06', 'timeout')),
    error_message: maybe(word),
    usage: maybe(usage),
    cost_micros: maybe(fc.nat(2 ** 40)),
    latency_ms: fc.nat(5_000_000).map((us) => us / 1_000),
    retries: maybe(fc.nat(3)),
    cache_status: fc.constantFrom('HIT', 'SEMANTIC HIT', 'MISS', 'DISABLED'),
    cache: maybe(fc.record({ saved_micros: fc.nat(5_000) })),
    metadata: maybe(fc.dictionary(key, word, { maxKeys: 3 })),
    source: fc.constantFrom(undefined, 'mcp', 'custom'),
    decision: maybe(fc.record({ config_version: maybe(word), generation: fc.nat(3), target: maybe(word) })),
    attempts: fc.array(fc.record({ target: word, status: tokens }), { maxLength: 2 }),
  },
  { noNullPrototype: true },
);

/** The same with ids and (node, seq) of their own. */
export function numbered(all: readonly object[]): StoredLog[] {
  return all.map((each, i) => ({ id: `${(i * 7) % 10}-${i}`, node: 'n', seq: i + 1, ...each }) as unknown as StoredLog);
}

export function records(max: number): fc.Arbitrary<StoredLog[]> {
  return fc.array(record, { maxLength: max }).map(numbered);
}

/** An answer as two engines give the same one: doubles may differ in their last bits, and texts of JSON in their order. */
export function comparable(value: unknown): unknown {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : Number(value.toPrecision(12));
  if (typeof value === 'string' && /^[[{]/.test(value)) return comparable(JSON.parse(value));
  if (Array.isArray(value)) return value.map(comparable);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, of]) => (of === undefined ? [] : [[name, comparable(of)]])),
  );
}

const TEXTS = [
  'model',
  'provider',
  'operation',
  'outcome',
  'source',
  'end_user',
  'workspace_id',
  'error_message',
  'option',
];
const NUMBERS = ['status', 'tokens_in', 'tokens_total', 'cost_micros', 'latency_us', 'time', 'bytes_in'];
const text = fc.constantFrom(...TEXTS);
const number = fc.constantFrom(...NUMBERS);
const bound = fc.oneof(fc.integer({ min: -2, max: 600 }), fc.double({ min: -1, max: 1e13, noNaN: true }));

const { filter } = fc.letrec<{ filter: LogFilter }>((tie) => ({
  filter: fc.oneof(
    { maxDepth: 2 },
    fc.record({
      column: text,
      in: fc.array(fc.constantFrom(...WORDS, 'openai', 'chat', 'ok', 'mcp', 'llm', 'ws-1'), { maxLength: 3 }),
    }),
    fc.record({
      column: fc.constant('status'),
      in: fc.array(fc.constantFrom('200', '404', 'x', ' 500'), { maxLength: 3 }),
    }),
    fc.record({ column: number, min: bound, max: bound }, { requiredKeys: ['column'] }),
    fc.record({ column: fc.constantFrom('stream', 'dry_run'), is: fc.boolean() }),
    fc.record({ column: fc.oneof(text, number), known: fc.boolean() }),
    fc.record({ metadata: key, in: fc.array(word, { maxLength: 3 }) }),
    fc.record({ metadata: key, known: fc.boolean() }),
    fc.record({ anyOf: fc.array(fc.array(tie('filter'), { maxLength: 2 }), { maxLength: 2 }) }),
  ) as fc.Arbitrary<LogFilter>,
}));
const filters = fc.array(filter, { maxLength: 2 });

const erasure: fc.Arbitrary<ErasedLogs> = fc.record({
  workspaceId: maybe(fc.constantFrom(...WORKSPACES)),
  column: fc.constantFrom('id', 'end_user', 'api_key_id', 'trace_id'),
  value: fc.oneof(word, fc.constantFrom('3-13', '0-0', '7-1')),
  before: fc.constantFrom(100, 499.5, SPAN_MS),
});

export const selections: fc.Arbitrary<LogSelection> = fc.record({
  scope: fc.record({
    organisationId: fc.constantFrom(...ORGANISATIONS),
    workspaceIds: maybe(fc.subarray(WORKSPACES)),
    userId: maybe(fc.constantFrom('u1', 'u2')),
    keptSince: fc.constantFrom(0, 0, 300, 300.5),
    erased: fc.array(erasure, { maxLength: 2 }),
  }),
  from: fc.constantFrom(0, 100, 499.5),
  to: fc.constantFrom(SPAN_MS, SPAN_MS, 700, 0),
  where: filters,
});

export const pages: fc.Arbitrary<LogPageQuery> = fc.record({
  columns: fc.subarray(LOG_COLUMNS.map(({ name }) => name)),
  order: fc.constantFrom('newest', 'oldest'),
  limit: fc.integer({ min: 1, max: 30 }),
  behind: maybe(fc.record({ time: fc.nat(SPAN_MS), id: fc.constantFrom('', '3-13', '9') })),
});

const groupKey: fc.Arbitrary<LogGroupKey> = fc.oneof(
  fc.record({ column: fc.oneof(text, fc.constantFrom('status', 'stream')) }),
  fc.record({ metadata: key }),
  fc.record({
    bounds: fc.uniqueArray(fc.nat(SPAN_MS), { minLength: 2, maxLength: 9 }).map((all) => all.sort((a, b) => a - b)),
  }),
);

const measure: fc.Arbitrary<Omit<LogMeasure, 'as'>> = fc.oneof(
  fc.record({ of: fc.constant('count' as const), where: filters }, { requiredKeys: ['of'] }),
  fc.record(
    { of: fc.constantFrom('sum' as const, 'avg', 'min', 'max', 'distinct'), column: number, where: filters },
    { requiredKeys: ['of', 'column'] },
  ),
  fc.record({ of: fc.constant('distinct' as const), column: text }),
  fc.record({ of: fc.constant('quantile' as const), column: number, q: fc.constantFrom(0, 0.5, 0.9, 0.99, 1) }),
);

export const groupings: fc.Arbitrary<LogGroupQuery> = fc
  .record({
    by: fc.array(groupKey, { maxLength: 2 }),
    measures: fc.array(measure, { maxLength: 4 }),
    descending: fc.boolean(),
    by_: fc.nat(5),
    offset: fc.option(fc.nat(3), { nil: undefined }),
    limit: fc.option(fc.integer({ min: 1, max: 20 }), { nil: undefined }),
  })
  .map(({ by, measures, descending, by_, offset, limit }) => {
    const named = measures.map((each, i) => ({ ...each, as: `m ${i}"` }));
    const orders: readonly (string | 0 | 1)[] = [...by.map((_, i) => i as 0 | 1), ...named.map(({ as }) => as)];
    const order = orders[by_];
    return {
      by,
      measures: named,
      ...(order === undefined || by.length === 0 ? {} : { order: { by: order, descending } }),
      ...(offset === undefined ? {} : { offset }),
      ...(limit === undefined ? {} : { limit }),
    };
  });
