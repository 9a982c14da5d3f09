/**
 * The columns of the stored records, once: where each comes from in the journal's record, how it is stored, and what may be
 * asked of it. Files, filters, groups and answers are all made of this table. New columns go to the end: older files lack
 * them and are read as if they were null there.
 */
import { isObject, type JsonValue } from '../kernel/json.ts';
import type { TokenUsage } from '../operations/usage.ts';
import type { StoredLog } from '../store/ports.ts';
import type { LogRow, LogValue } from './log-query.ts';
import type { CacheFacts, LogRecord } from './record.ts';

/**
 * `integer` is a whole number below 2⁵³, `json` a text of JSON that nothing filters by, and `map` has texts by texts.
 */
export type LogColumnType = 'text' | 'integer' | 'boolean' | 'map' | 'json';

type Member = keyof LogRecord & string;
/** A member of the record, or one below it. */
export type LogPath =
  | readonly [Member]
  | readonly ['usage', keyof TokenUsage]
  | readonly ['cache', keyof CacheFacts]
  | readonly ['decision', 'config_version' | 'target']
  | readonly ['metadata', string];

export interface LogColumn {
  readonly name: string;
  readonly type: LogColumnType;
  /** One path; of several the first that is there, or their sum. */
  readonly from: readonly LogPath[];
  readonly sum?: boolean;
  /** What the record's number is multiplied by, and rounded: milliseconds become microseconds by 1,000. */
  readonly times?: number;
  /** The value of records that do not have the member. */
  readonly absent?: string;
  /** Filters and groups may name it. Of numbers only the status and the retries are groups. */
  readonly filter: boolean;
  readonly group: boolean;
  /** What the API calls it (fields of exports, `metrics` of a log); absent where it has another form there. */
  readonly contract?: string;
}

type Plan = Partial<Omit<LogColumn, 'name' | 'from'>> & { readonly from?: LogColumn['from'] };

const at = (...path: string[]): LogColumn['from'] => [path as unknown as LogPath];
const own = (name: Member, more: Plan = {}) => column(name, at(name), more);
const number = (name: string, from: LogColumn['from'], more: Plan = {}) =>
  column(name, from, { type: 'integer', group: false, ...more });
const text = (name: string, from: LogColumn['from'], more: Plan = {}) => column(name, from, more);
const flag = (name: Member) => own(name, { type: 'boolean' });
const json = (name: Member) => own(name, { type: 'json', filter: false, group: false });

function column(name: string, from: LogColumn['from'], more: Plan): LogColumn {
  return { name, type: 'text', filter: true, group: true, ...more, from };
}

/** Single records only: a group by it has as many groups as there are records. */
const SINGLE = { group: false } as const;

export const LOG_COLUMNS: readonly LogColumn[] = [
  own('id', { ...SINGLE, contract: 'id' }),
  number('time', at('time'), { contract: 'created_at' }),
  own('node', SINGLE),
  number('seq', at('seq')),
  own('organisation_id', { contract: 'organisation_id' }),
  own('workspace_id'),
  own('api_key_id', { contract: 'api_key_id' }),
  own('user_id'),
  text('end_user', at('metadata', '_user')),
  text('meta_organisation', at('metadata', '_organisation')),
  text('meta_prompt', at('metadata', '_prompt')),
  text('meta_environment', at('metadata', '_environment')),
  own('metadata', { type: 'map', filter: false, group: false, contract: 'metadata' }),
  own('trace_id', { ...SINGLE, contract: 'trace_id' }),
  own('span_id', { ...SINGLE, contract: 'span_id' }),
  own('parent_span_id', { ...SINGLE, contract: 'parent_span_id' }),
  own('source', { absent: 'llm' }),
  own('operation'),
  own('method', { contract: 'request_method' }),
  own('path', { contract: 'request_url' }),
  own('provider', { contract: 'ai_org' }),
  own('provider_slug', { contract: 'virtual_key' }),
  own('config_slug', { contract: 'config' }),
  text('config_version', [['config_version'], ['decision', 'config_version']], { contract: 'config_version_id' }),
  text('model', [['model_sent'], ['model_requested']], { contract: 'ai_model' }),
  own('model_requested'),
  own('model_sent'),
  own('model_answered'),
  flag('stream'),
  flag('dry_run'),
  flag('usage_estimated'),
  number('status', at('status'), { group: true, contract: 'response_status_code' }),
  own('outcome'),
  own('error_code'),
  own('error_message', SINGLE),
  number('tokens_in', at('usage', 'input'), { contract: 'req_units' }),
  number('tokens_out', at('usage', 'output'), { contract: 'res_units' }),
  number(
    'tokens_total',
    [
      ['usage', 'input'],
      ['usage', 'output'],
    ],
    { sum: true, contract: 'total_units' },
  ),
  number('tokens_cache_read', at('usage', 'cache_read')),
  number('tokens_cache_write', at('usage', 'cache_write')),
  number('tokens_reasoning', at('usage', 'reasoning')),
  number('tokens_audio_in', at('usage', 'audio_input')),
  number('tokens_audio_out', at('usage', 'audio_output')),
  number('cost_micros', at('cost_micros')),
  number('saved_micros', at('cache', 'saved_micros')),
  number('latency_us', at('latency_ms'), { times: 1_000 }),
  number('ttft_us', at('ttft_ms'), { times: 1_000 }),
  text('option', [['option'], ['decision', 'target']]),
  own('cache_status', { contract: 'cache_status' }),
  number('bytes_in', at('bytes_in')),
  number('bytes_out', at('bytes_out')),
  number('upstream_bytes_in', at('upstream_bytes_in')),
  number('upstream_bytes_out', at('upstream_bytes_out')),
  json('attempts'),
  json('decision'),
  json('limits'),
  json('guards'),
  json('guardrails'),
  json('price'),
  json('cache'),
  json('detail'),
  own('span_name', { ...SINGLE, contract: 'span_name' }),
  own('prompt_slug', { contract: 'prompt_slug' }),
  own('prompt_version', { contract: 'prompt_version_id' }),
  own('mode', { contract: 'mode' }),
  number('retries', at('retries'), { group: true, contract: 'retry_success_count' }),
  flag('fallback'),
  number('upstream_us', at('upstream_us')),
  number('gateway_us', at('gateway_us')),
  number('parse_us', at('parse_us')),
  number('pre_us', at('pre_us')),
  number('cache_us', at('cache_us')),
  number('post_us', at('post_us')),
  own('cache_type', { contract: 'cache_type' }),
  json('client'),
  own('parent_sampled', { type: 'boolean', filter: false, group: false }),
  own('body_chunk', { filter: false, group: false }),
  number('body_slot', at('body_slot'), { filter: false }),
  number('body_flags', at('body_flags'), { filter: false }),
];

const BY_NAME: ReadonlyMap<string, LogColumn> = new Map(LOG_COLUMNS.map((each) => [each.name, each]));

/** The column of a name, or undefined: what callers write is looked up here before anything is made of it. */
export function logColumn(name: string): LogColumn | undefined {
  return BY_NAME.get(name);
}

/** Reserved keys of the metadata, which have columns. */
export const METADATA_COLUMNS: ReadonlyMap<string, string> = new Map(
  LOG_COLUMNS.flatMap(({ name, from: [path] }) =>
    path?.[0] === 'metadata' && path[1] !== undefined ? [[path[1], name] as const] : [],
  ),
);

/** The columns of a record, as a log store answers them. */
export function rowOf(record: LogRecord | StoredLog): LogRow {
  const source = record as unknown as Readonly<Record<string, JsonValue | undefined>>;
  return Object.fromEntries(LOG_COLUMNS.map((each) => [each.name, columnValue(each, source)]));
}

function columnValue(column: LogColumn, record: Readonly<Record<string, JsonValue | undefined>>): LogValue {
  const found = column.from.map((path) => read(record, path)).filter((value) => value !== null);
  const first = found[0];
  if (first === undefined) return column.absent ?? null;
  switch (column.type) {
    case 'integer': {
      const parts = (column.sum === true ? found : [first]).filter((value) => typeof value === 'number');
      return parts.length === 0 ? null : Math.round(parts.reduce((sum, part) => sum + part, 0) * (column.times ?? 1));
    }
    case 'json':
      return JSON.stringify(first);
    case 'map':
      return isObject(first) ? (first as Readonly<Record<string, string>>) : null;
    case 'text':
      return typeof first === 'string' ? first : null;
    case 'boolean':
      return typeof first === 'boolean' ? first : null;
  }
}

function read(record: Readonly<Record<string, JsonValue | undefined>>, path: LogPath): JsonValue {
  const top = record[path[0]] ?? null;
  const below = path[1];
  if (below === undefined) return top;
  return isObject(top) && Object.hasOwn(top, below) ? (top[below] ?? null) : null;
}

/** Members that records leave out instead of being null. */
const LEFT_OUT: ReadonlySet<string> = new Set<Member>([
  'model_sent',
  'cache',
  'decision',
  'limits',
  'guards',
  'guardrails',
  'detail',
  'span_name',
  'parent_sampled',
  'config_version',
  'prompt_slug',
  'prompt_version',
  'mode',
  'option',
  'retries',
  'fallback',
  'upstream_us',
  'gateway_us',
  'parse_us',
  'pre_us',
  'cache_us',
  'post_us',
  'cache_type',
  'client',
  'body_chunk',
  'body_slot',
  'body_flags',
]);

/** The record that a whole row was made of, for what reads records and not columns. */
export function recordOfRow(row: LogRow): StoredLog {
  const record: Record<string, unknown> = {};
  const usage: Record<string, unknown> = {};
  for (const { name, type, from, sum, times } of LOG_COLUMNS) {
    const [path] = from;
    // Of several paths the first is the member's own, or the column is made of others.
    if (path === undefined || sum === true || (from.length > 1 && path[0] !== name)) continue;
    const value = row[name] ?? null;
    const [member, below] = path;
    if (member === 'usage' && below !== undefined) usage[below] = value;
    else if (below !== undefined) continue;
    else if (type === 'json') record[member] = typeof value === 'string' ? JSON.parse(value) : null;
    else record[member] = times !== undefined && typeof value === 'number' ? value / times : value;
    if (record[member] === null && LEFT_OUT.has(member)) delete record[member];
  }
  record.usage = Object.values(usage).some((count) => count !== null) ? usage : null;
  return record as StoredLog;
}
