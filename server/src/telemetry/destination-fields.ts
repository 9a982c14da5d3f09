/**
 * What a log destination is sent of a record: the fields of exports, further ones by the names of their columns, and the record
 * without what its organisation has denied. A denied field takes with it whatever else says the same.
 */
import { LOG_COLUMNS, rowOf } from './log-columns.ts';
import {
  EXPORT_FIELD_IDS,
  type ExportFieldId,
  type ExportValue,
  exportValue,
  type LogBodies,
  TYPES as PARQUET_TYPES,
  parquetColumns,
} from './log-export.ts';
import type { AttemptRecord, LogRecord } from './record.ts';

/** Columns that destinations may have beside the fields of exports. */
const MORE_COLUMNS = [
  'organisation_id',
  'workspace_id',
  'api_key_id',
  'user_id',
  'source',
  'operation',
  'provider_slug',
  'model_answered',
  'stream',
  'outcome',
  'error_code',
  'error_message',
  'cost_micros',
  'saved_micros',
  'ttft_us',
  'gateway_us',
  'tokens_cache_read',
  'tokens_cache_write',
  'tokens_reasoning',
  'cache_status',
  'retries',
  'fallback',
  'span_id',
  'parent_span_id',
  'guardrails',
  'attempts',
] as const;

export const DESTINATION_FIELDS = [...EXPORT_FIELD_IDS, ...MORE_COLUMNS] as const;
export type DestinationField = (typeof DESTINATION_FIELDS)[number];

const BODIES: ReadonlySet<string> = new Set(['request', 'response']);
const EXPORTED: ReadonlySet<string> = new Set(EXPORT_FIELD_IDS);
const TYPES = new Map(LOG_COLUMNS.map(({ name, type }) => [name, type]));
const MS_PER_DAY = 86_400_000;

/** Readers of records that are sent take null for what is hidden, also where a record has it always. */
type Mutable = { -readonly [K in keyof LogRecord]: LogRecord[K] | null };

/** What goes when a field is denied. */
const REMOVE: Readonly<Record<ExportFieldId, (record: Mutable) => void>> = {
  id: (record) => {
    record.id = null;
  },
  trace_id: (record) => {
    // Spans need one: that of the span says nothing of the trace.
    record.trace_id = record.span_id;
    record.parent_span_id = null;
  },
  created_at: (record) => {
    record.time = Math.floor((record.time ?? 0) / MS_PER_DAY) * MS_PER_DAY;
  },
  request: () => undefined,
  response: () => undefined,
  is_success: (record) => {
    REMOVE.response_status_code(record);
    record.outcome = null;
    record.error_message = null;
    eachAttempt(record, (attempt) => ({ ...attempt, error: null, cause: undefined }));
  },
  ai_org: (record) => {
    record.provider = null;
    record.provider_slug = null;
    eachAttempt(record, (attempt) => ({ ...attempt, provider: '' }));
  },
  ai_model: (record) => {
    record.model_requested = null;
    record.model_sent = undefined;
    record.model_answered = null;
    // Its targets name theirs.
    record.decision = undefined;
    record.price = null;
  },
  // Of the usage: `withoutFields`.
  req_units: () => undefined,
  res_units: () => undefined,
  total_units: () => undefined,
  request_url: (record) => {
    record.path = null;
    record.span_name = record.span_name ?? 'request';
  },
  cost: (record) => {
    record.cost_micros = null;
    record.price = null;
    if (record.cache != null) record.cache = { ...record.cache, saved_micros: null };
  },
  cost_currency: (record) => {
    record.price = null;
  },
  response_time: (record) => {
    Object.assign(record, { latency_ms: 0, ttft_ms: null, upstream_us: 0, gateway_us: 0, pre_us: 0 });
    Object.assign(record, { parse_us: undefined, cache_us: undefined, post_us: undefined });
    eachAttempt(record, ({ target, provider, status, error, cause }) => {
      return { target, provider, status, error, cause, duration_ms: 0 };
    });
    record.guardrails = (record.guardrails ?? undefined)?.map((facts) => ({
      ...facts,
      ms: 0,
      checks: facts.checks.map((check) => ({ ...check, ms: 0 })),
    }));
  },
  response_status_code: (record) => {
    record.status = null;
    record.error_code = null;
    eachAttempt(record, (attempt) => ({ ...attempt, status: null }));
  },
  mode: (record) => {
    record.mode = undefined;
    record.decision = undefined;
  },
  config: (record) => {
    Object.assign(record, { config_slug: null, config_version: undefined, option: undefined, decision: undefined });
    eachAttempt(record, (attempt) => ({ ...attempt, target: 'config' }));
  },
  prompt_slug: (record) => {
    record.prompt_slug = undefined;
    record.prompt_version = undefined;
  },
  metadata: (record) => {
    record.metadata = null;
    // Values that limits count for are those of metadata, too.
    record.limits = undefined;
  },
};

function eachAttempt(record: Mutable, change: (attempt: AttemptRecord) => AttemptRecord): void {
  record.attempts = (record.attempts ?? []).map(change);
}

/** A copy of the record without what these fields say of it; others of `denied` are no fields. */
export function withoutFields(record: LogRecord, denied: ReadonlySet<string>): LogRecord {
  if (denied.size === 0) return record;
  const copy: Mutable = { ...record };
  for (const id of EXPORT_FIELD_IDS) if (denied.has(id)) REMOVE[id](copy);
  const { usage } = record;
  if (usage !== null && (denied.has('req_units') || denied.has('res_units'))) {
    const input = denied.has('req_units') ? NO_INPUT : {};
    const output = denied.has('res_units') ? NO_OUTPUT : {};
    copy.usage = { ...usage, ...input, ...output } as LogRecord['usage'];
  }
  return copy as LogRecord;
}

const NO_INPUT = { input: null, cache_read: null, cache_write: null, audio_input: null };
const NO_OUTPUT = { output: null, reasoning: null, audio_output: null };

/** The fields that a destination gets: those that it asks for, or all; bodies only where it has them, denied ones never. */
export function sentFields(
  chosen: readonly DestinationField[] | null,
  bodies: boolean,
  denied: ReadonlySet<string>,
): DestinationField[] {
  return (chosen ?? DESTINATION_FIELDS).filter((field) => !denied.has(field) && (bodies || !BODIES.has(field)));
}

/** One record as an object of these fields. The record is without what is denied. */
export function destinationObject(
  record: LogRecord,
  fields: readonly DestinationField[],
  given: { readonly origin: string; readonly bodies: LogBodies | null },
): Record<string, ExportValue> {
  const row = rowOf(record);
  return Object.fromEntries(
    fields.map((field) => {
      if (EXPORTED.has(field)) return [field, exportValue(field as ExportFieldId, row, given)];
      const value = row[field] ?? null;
      return [field, TYPES.get(field) === 'json' && typeof value === 'string' ? JSON.parse(value) : value];
    }),
  );
}

/** Names and types of the columns of a Parquet file of these fields. Texts of JSON are texts. */
export function destinationColumns(fields: readonly DestinationField[]): readonly (readonly [string, string])[] {
  return fields.map((name) => {
    const [column] = EXPORTED.has(name) ? parquetColumns([name as ExportFieldId]) : [];
    return column ?? [name, PARQUET_TYPES[TYPES.get(name) ?? 'text']];
  });
}
