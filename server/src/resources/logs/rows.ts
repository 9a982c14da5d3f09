/** A stored request as lists show it. */
import { z } from 'zod';
import type { Sight } from '../../auth/scopes.ts';
import type { LogRow } from '../../telemetry/log-query.ts';
import { centsOf } from '../analytics/numbers.ts';
import { toIso } from '../body-fields.ts';
import type { NameKind, Names } from './names.ts';
import { withoutMetadata } from './sight.ts';

const text = z.string().nullable();
const count = z.int().nullable();
const named = z.object({ id: z.string(), name: text.describe('As it is now; null when it is gone.') }).nullable();

/** Columns that a list reads. */
export const LIST_COLUMNS: readonly string[] = [
  'id',
  'time',
  'workspace_id',
  'api_key_id',
  'user_id',
  'metadata',
  'trace_id',
  'span_id',
  'parent_span_id',
  'source',
  'operation',
  'method',
  'path',
  'provider',
  'provider_slug',
  'config_slug',
  'model',
  'model_answered',
  'stream',
  'dry_run',
  'usage_estimated',
  'status',
  'outcome',
  'error_code',
  'error_message',
  'tokens_in',
  'tokens_out',
  'tokens_total',
  'cost_micros',
  'saved_micros',
  'latency_us',
  'ttft_us',
  'cache_status',
];

export const listedLog = z.object({
  id: z.string(),
  object: z.literal('log'),
  created_at: z.string(),
  workspace: z.object({ id: z.string(), name: text, slug: text }).nullable(),
  api_key: named,
  user: named,
  metadata: z.record(z.string(), z.string()).nullable().describe('Null without any, and where a setting hides it.'),
  trace_id: text,
  span_id: text,
  parent_span_id: text,
  source: z.string().describe('`llm`, `mcp`, `a2a`, or `custom` for what `POST /logs` has brought.'),
  operation: text,
  method: text,
  path: text,
  provider: text,
  provider_slug: text,
  config_slug: text,
  model: text.describe('The model that was asked for, as a config has set it.'),
  model_answered: text,
  stream: z.boolean().nullable(),
  dry_run: z.boolean().nullable(),
  status: z.int().nullable(),
  outcome: text.describe('`ok`, `refused` (by Sluice), `failed`, `aborted` (by the client).'),
  error_code: text,
  error_message: text,
  tokens_in: count,
  tokens_out: count,
  tokens_total: count,
  usage_estimated: z.boolean().nullable(),
  cost: count.describe('Cents, rounded half up; null when the price is not known.'),
  cost_micros: count.describe('Micro-dollars.'),
  saved_micros: count.describe('Micro-dollars that the cache has saved.'),
  latency_ms: z.number().nullable(),
  ttft_ms: z.number().nullable().describe('Until the first token of a stream.'),
  cache_status: text,
});

export type ListedLog = z.output<typeof listedLog>;

const textOf = (row: LogRow, name: string): string | null => {
  const value = row[name];
  return typeof value === 'string' ? value : null;
};
const numberOf = (row: LogRow, name: string): number | null => {
  const value = row[name];
  return typeof value === 'number' ? value : null;
};
const flagOf = (row: LogRow, name: string): boolean | null => {
  const value = row[name];
  return typeof value === 'boolean' ? value : null;
};

/** Milliseconds with what is behind the point, of a column of microseconds. */
export const millisOf = (row: LogRow, name: string): number | null => {
  const value = numberOf(row, name);
  return value === null ? null : value / 1_000;
};

export const columns = { text: textOf, number: numberOf, flag: flagOf };

/** The metadata of a row, as its caller sees it. */
export function metadataOf(row: LogRow, sight: Sight): Readonly<Record<string, string>> | null {
  const { metadata } = row;
  return sight.noMetadata === null && typeof metadata === 'object' ? (metadata ?? null) : null;
}

/** Ids of rows that names are looked up of. */
export function idsOf(rows: readonly LogRow[]): Record<NameKind, string[]> {
  const all = (column: string) => rows.map((row) => textOf(row, column)).filter((id) => id !== null);
  return { workspace: all('workspace_id'), api_key: all('api_key_id'), user: all('user_id') };
}

export function listedOf(row: LogRow, names: Names, sight: Sight): ListedLog {
  const known = (kind: NameKind, column: string) => {
    const id = textOf(row, column);
    return id === null ? null : { id, name: names[kind].get(id)?.name ?? null };
  };
  const workspace = known('workspace', 'workspace_id');
  const micros = numberOf(row, 'cost_micros');
  const shown: ListedLog = {
    id: String(row.id),
    object: 'log',
    created_at: toIso(Number(row.time)),
    workspace: workspace === null ? null : { ...workspace, slug: names.workspace.get(workspace.id)?.slug ?? null },
    api_key: known('api_key', 'api_key_id'),
    user: known('user', 'user_id'),
    metadata: metadataOf(row, sight),
    trace_id: textOf(row, 'trace_id'),
    span_id: textOf(row, 'span_id'),
    parent_span_id: textOf(row, 'parent_span_id'),
    source: textOf(row, 'source') ?? 'llm',
    operation: textOf(row, 'operation'),
    method: textOf(row, 'method'),
    path: textOf(row, 'path'),
    provider: textOf(row, 'provider'),
    provider_slug: textOf(row, 'provider_slug'),
    config_slug: textOf(row, 'config_slug'),
    model: textOf(row, 'model'),
    model_answered: textOf(row, 'model_answered'),
    stream: flagOf(row, 'stream'),
    dry_run: flagOf(row, 'dry_run'),
    status: numberOf(row, 'status'),
    outcome: textOf(row, 'outcome'),
    error_code: textOf(row, 'error_code'),
    error_message: textOf(row, 'error_message'),
    tokens_in: numberOf(row, 'tokens_in'),
    tokens_out: numberOf(row, 'tokens_out'),
    tokens_total: numberOf(row, 'tokens_total'),
    usage_estimated: flagOf(row, 'usage_estimated'),
    cost: micros === null ? null : centsOf(micros),
    cost_micros: micros,
    saved_micros: numberOf(row, 'saved_micros'),
    latency_ms: millisOf(row, 'latency_us'),
    ttft_ms: millisOf(row, 'ttft_us'),
    cache_status: textOf(row, 'cache_status'),
  };
  return withoutMetadata(sight, row, shown);
}
