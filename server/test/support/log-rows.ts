/** Rows of stored requests for tests of logs and analytics. */
import { CUSTOM_LOGS } from '../../src/resources/logs/insert.ts';
import { KEPT_LOGS } from '../../src/resources/logs/reach.ts';
import { Services } from '../../src/resources/services.ts';
import type { CustomLogs } from '../../src/telemetry/custom-log.ts';
import type { LogRow } from '../../src/telemetry/log-query.ts';
import { ComparedLogStore, ENGINE } from './compared-log-store.ts';
import { NaiveLogStore } from './naive-log-store.ts';

let made = 0;

/** A row of a request that went well; `more` says what is different. */
export function logRow(more: Partial<Record<string, LogRow[string]>>): LogRow {
  made += 1;
  const tail = made.toString(16).padStart(12, '0');
  const row: Record<string, LogRow[string]> = {
    id: `01900000-0000-7000-8000-${tail}`,
    time: Date.UTC(2026, 4, 4, 12),
    node: 'n',
    seq: made,
    organisation_id: null,
    workspace_id: null,
    api_key_id: null,
    user_id: null,
    end_user: null,
    metadata: null,
    trace_id: `trace-${made}`,
    span_id: `span-${made}`,
    parent_span_id: null,
    source: 'llm',
    operation: 'chat',
    method: 'POST',
    path: '/v1/chat/completions',
    provider: 'openai',
    provider_slug: 'openai-prod',
    config_slug: null,
    model: 'gpt-4o',
    model_requested: 'gpt-4o',
    model_answered: 'gpt-4o-2024-11-20',
    stream: false,
    dry_run: false,
    usage_estimated: false,
    status: 200,
    outcome: 'ok',
    error_code: null,
    error_message: null,
    tokens_in: 100,
    tokens_out: 50,
    tokens_total: 150,
    cost_micros: 12_345,
    saved_micros: null,
    latency_us: 200_000,
    retries: 0,
    fallback: false,
    cache_status: 'MISS',
    attempts: '[]',
    decision: null,
    limits: null,
    guards: null,
    guardrails: null,
    price: null,
    cache: null,
    detail: null,
    bytes_in: 10,
    bytes_out: 20,
    ...more,
  };
  if ('tokens_in' in more && !('tokens_total' in more)) {
    row.tokens_total = row.tokens_in === null ? null : Number(row.tokens_in) + Number(row.tokens_out);
  }
  const { metadata } = row;
  if (typeof metadata === 'object' && metadata !== null) row.end_user = metadata._user ?? null;
  return row;
}

/** Takes requests that were sent elsewhere, and forgets them. */
export const forgottenLogs: CustomLogs = {
  record: async () => undefined,
  headers: { provider: ['x-gateway-provider'], virtualKey: ['x-gateway-virtual-key'] },
};

/** A store of rows in memory, and the services that routes read it through. */
export function naiveLogs(days = 0): { readonly store: NaiveLogStore; readonly services: Services } {
  const Store = process.env[ENGINE] === undefined ? NaiveLogStore : ComparedLogStore;
  const store = new Store([], { completeTo: Date.UTC(2026, 5, 1), incomplete: [] });
  const services = new Services()
    .provide(KEPT_LOGS, { store, days, erased: async () => [] })
    .provide(CUSTOM_LOGS, forgottenLogs);
  return { store, services };
}
