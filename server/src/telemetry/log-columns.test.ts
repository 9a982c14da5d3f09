import { expect, it } from 'vitest';
import { logRecord } from '../../test/support/log-record.ts';
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
  span_name: 'step',
  parent_sampled: true,
  operation: 'chat',
  method: 'POST',
  path: '/v1/chat/completions',
  provider: 'openai',
  provider_slug: 'mine',
  config_slug: 'pc-a',
  config_version: 'v1',
  prompt_slug: 'pp-a',
  prompt_version: 'v2',
  mode: 'fallback',
  option: 'config.targets[0]',
  retries: 0,
  fallback: true,
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
  upstream_us: 12_000,
  gateway_us: 345,
  parse_us: 45,
  pre_us: 200,
  cache_us: 60,
  post_us: 40,
  attempts: [{ target: 'a', provider: 'openai', status: 200, error: null, duration_ms: 1.25 }],
  bytes_in: 1,
  bytes_out: 2,
  upstream_bytes_out: 3,
  upstream_bytes_in: 4,
  metadata: { _user: 'ann', team: 'é "quoted"' },
  cache_status: 'HIT',
  cache_type: 'semantic',
  cache: { made_at: 1, saved_micros: 9, saved_ms: 8, similarity: null },
  decision: { config_version: 'v1', generation: 3, target: 'targets[0]' } as unknown as LogRecord['decision'] & object,
  limits: { usage_at: 1.5 } as unknown as LogRecord['limits'] & object,
  guards: { input: ['pii'], output: [] },
  guardrails: [],
  source: 'mcp',
  client: { sdk: 'openai-js', address: 'private' },
  body_chunk: '018f0000-0000-7000-8000-00000000000c',
  body_slot: 3,
  body_flags: 1,
  detail: { tool: 'x' },
  dry_run: false,
};

const LATER: ReadonlySet<string> = new Set<keyof LogRecord>([
  'span_name',
  'parent_sampled',
  'source',
  'config_version',
  'prompt_slug',
  'prompt_version',
  'mode',
  'option',
  'retries',
  'fallback',
  'model_sent',
  'upstream_us',
  'gateway_us',
  'parse_us',
  'pre_us',
  'cache_us',
  'post_us',
  'cache_type',
  'cache',
  'decision',
  'limits',
  'guards',
  'guardrails',
  'client',
  'detail',
]);

it('every member of a record is in a column, and comes back out of the columns as it was', () => {
  const members = new Set<string>(LOG_COLUMNS.flatMap(({ from }) => from.map(([member]) => member)));
  expect(Object.keys(RECORD).filter((member) => !members.has(member))).toEqual([]);
  expect(recordOfRow(rowOf(RECORD))).toEqual(RECORD);
});

it('members that are left out of a record are left out of what comes back', () => {
  // Those that a record of an earlier version has.
  const older = {
    ...Object.fromEntries(Object.entries(RECORD).filter(([name]) => !LATER.has(name))),
    usage: null,
    ttft_ms: null,
    metadata: null,
  };
  expect(recordOfRow(rowOf(older as unknown as LogRecord))).toEqual({ ...older, source: 'llm' });
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
    option: 'config.targets[0]',
  });
  // An earlier version has them in the decision only.
  const { option: _option, config_version: _version, ...older } = RECORD;
  expect(rowOf(older as LogRecord)).toMatchObject({ option: 'targets[0]', config_version: 'v1' });
  expect(rowOf(logRecord(1, { model_sent: undefined, model_requested: 'asked' })).model).toBe('asked');
  expect(METADATA_COLUMNS.get('_user')).toBe('end_user');
});

it('a name that is no column is none, whatever objects have by themselves', () => {
  expect(['constructor', '__proto__', 'id; DROP TABLE logs', ''].map(logColumn)).toEqual(Array(4).fill(undefined));
  expect(new Set(LOG_COLUMNS.map(({ name }) => name)).size).toBe(LOG_COLUMNS.length);
  expect(LOG_COLUMNS.filter(({ name }) => !/^[a-z_]+$/.test(name))).toEqual([]);
});
