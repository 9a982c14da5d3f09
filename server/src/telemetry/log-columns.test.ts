import { expect, it } from 'vitest';
import { logRecord } from '../store/conformance/logs.ts';
import { LOG_COLUMNS, logColumn, METADATA_COLUMNS, recordOfRow, rowOf } from './log-columns.ts';
import type { LogRecord } from './record.ts';

const RECORD: Required<LogRecord> = {
  id: '018f0000-0000-7000-8000-000000000001',
  node: 'n-1',
  seq: 7,
  time: 1_700_000_000_123,
  organisation_id: 'org',
  workspace_id: 'ws',
  api_key_id: 'key',
  user_id: null,
  trace_id: 't',
  span_id: 's',
  parent_span_id: null,
  operation: 'chat',
  method: 'POST',
  path: '/v1/chat/completions',
  provider: 'openai',
  provider_slug: 'mine',
  config_slug: 'pc-a',
  model_requested: 'fast',
  model_sent: 'gpt-x',
  model_answered: 'gpt-x-1',
  stream: true,
  status: 200,
  outcome: 'ok',
  error_code: null,
  error_message: null,
  usage: { input: 10, output: 5, cache_read: 1, cache_write: 2, reasoning: 3, audio_input: 0, audio_output: 0 },
  usage_estimated: false,
  cost_micros: 12,
  price: { source: 'library', rates: { input: 1.5 } },
  latency_ms: 12.345,
  ttft_ms: 3.001,
  attempts: [{ target: 'a', provider: 'openai', status: 200, error: null, duration_ms: 1.25 }],
  bytes_in: 1,
  bytes_out: 2,
  upstream_bytes_out: 3,
  upstream_bytes_in: 4,
  metadata: { _user: 'ann', team: 'é "quoted"' },
  cache_status: 'HIT',
  cache: { made_at: 1, saved_micros: 9, saved_ms: 8, similarity: null },
  decision: { config_version: 'v1', generation: 3, target: 'targets[0]' } as unknown as LogRecord['decision'] & object,
  limits: { usage_at: 1.5 } as unknown as LogRecord['limits'] & object,
  guards: { input: ['pii'], output: [] },
  guardrails: [],
  source: 'mcp',
  detail: { tool: 'x' },
  dry_run: false,
};

it('every member of a record is in a column, and comes back out of the columns as it was', () => {
  const members = new Set<string>(LOG_COLUMNS.flatMap(({ from }) => from.map(([member]) => member)));
  expect(Object.keys(RECORD).filter((member) => !members.has(member))).toEqual([]);
  expect(recordOfRow(rowOf(RECORD))).toEqual(RECORD);
});

it('members that are left out of a record are left out of what comes back', () => {
  const { model_sent, cache, decision, limits, guards, guardrails, source, detail, ...few } = RECORD;
  const record = { ...few, usage: null, ttft_ms: null, metadata: null };
  expect(recordOfRow(rowOf(record))).toEqual(record);
  expect(rowOf(record).source).toBe('llm');
});

it('tells what is derived: the model that was sent, sums, microseconds, reserved metadata', () => {
  expect(rowOf(RECORD)).toMatchObject({
    model: 'gpt-x',
    tokens_total: 15,
    latency_us: 12_345,
    ttft_us: 3_001,
    saved_micros: 9,
    end_user: 'ann',
    meta_prompt: null,
    config_version: 'v1',
    option: 'targets[0]',
  });
  expect(rowOf(logRecord(1, { model_sent: undefined, model_requested: 'asked' })).model).toBe('asked');
  expect(METADATA_COLUMNS.get('_user')).toBe('end_user');
});

it('a name that is no column is none, whatever objects have by themselves', () => {
  expect(['constructor', '__proto__', 'id; DROP TABLE logs', ''].map(logColumn)).toEqual(Array(4).fill(undefined));
  expect(new Set(LOG_COLUMNS.map(({ name }) => name)).size).toBe(LOG_COLUMNS.length);
  expect(LOG_COLUMNS.filter(({ name }) => !/^[a-z_]+$/.test(name))).toEqual([]);
});
