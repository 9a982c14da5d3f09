import { describe, expect, it } from 'vitest';
import { logRecord } from '../../test/support/log-record.ts';
import { ATTRIBUTES } from './conventions/conventions.ts';
import { DESTINATION_FIELDS, destinationObject, sentFields, withoutFields } from './destination-fields.ts';
import { EXPORT_FIELD_IDS, type ExportFieldId } from './log-export.ts';
import type { LogRecord } from './record.ts';
import { spansOf } from './spans.ts';

/** What a record says of each field, in texts that stand nowhere else. */
const SAYS: Readonly<Record<ExportFieldId, readonly string[]>> = {
  id: ['canary-id'],
  trace_id: ['ca0a0000000000000000000000000001'],
  created_at: ['1767268800123'],
  request: [],
  response: [],
  is_success: ['canary-error', '503', 'canary-message'],
  ai_org: ['canary-provider', 'canary-provider-slug'],
  ai_model: ['canary-model', 'canary-sent', 'canary-answered', 'canary-scored'],
  req_units: ['70001', '70003'],
  res_units: ['70002', '70005'],
  total_units: [],
  request_url: ['/v1/canary-path'],
  cost: ['70006', '70007'],
  cost_currency: [],
  response_time: ['70008', '70009', '70010', '70011'],
  response_status_code: ['503'],
  mode: [],
  config: ['canary-config', 'canary-target'],
  prompt_slug: ['canary-prompt'],
  metadata: ['canary-user', 'canary-value'],
};

const RECORD = {
  ...logRecord(1, {
    id: 'canary-id',
    span_id: 'c'.repeat(16),
    trace_id: 'ca0a0000000000000000000000000001',
    parent_span_id: null,
    span_name: undefined,
    time: Date.UTC(2026, 0, 1, 12) + 123,
    method: 'POST',
    path: '/v1/canary-path',
    operation: 'chat_completions',
    provider: 'canary-provider',
    provider_slug: 'canary-provider-slug',
    config_slug: 'canary-config',
    option: 'canary-target',
    mode: 'fallback',
    prompt_slug: 'canary-prompt',
    model_requested: 'canary-model',
    model_sent: 'canary-sent',
    model_answered: 'canary-answered',
    stream: true,
    status: 503,
    outcome: 'failed',
    error_code: 'canary-error',
    error_message: 'canary-message',
    usage: {
      input: 70001,
      output: 70002,
      cache_read: 70003,
      cache_write: 0,
      reasoning: 70005,
      audio_input: 0,
      audio_output: 0,
    },
    cost_micros: 70006,
    cache: { made_at: 1, saved_micros: 70007, saved_ms: 1, similarity: null },
    price: { source: 'canary-price', rates: {} },
    latency_ms: 70.008,
    ttft_ms: 70.009,
    gateway_us: 70010,
    attempts: [
      {
        ...{ target: 'canary-target', provider: 'canary-provider', status: 503, error: 'canary-error' },
        cause: { kind: 'status', code: null, message: 'canary-message' },
        duration_ms: 70.011,
      },
    ],
    metadata: { _user: 'canary-user', team: 'canary-value' },
    limits: { values: ['metadata._user:canary-user'] },
    guardrails: undefined,
    cache_status: 'MISS',
    dry_run: false,
    decision: { targets: [{ path: 'canary-target', model: 'canary-scored' }] },
  }),
} as unknown as LogRecord;

const given = { origin: 'https://sluice.example', bodies: null };
const asObject = (denied: ReadonlySet<string>) =>
  JSON.stringify(destinationObject(withoutFields(RECORD, denied), sentFields(null, true, denied), given));
const asSpans = (denied: ReadonlySet<string>) =>
  JSON.stringify(spansOf(withoutFields(RECORD, denied), ATTRIBUTES['v1.41']));
/** Numbers are in microseconds there, and dates in words. */
const said = (text: string) => text.replaceAll('2026-01-01T12:00:00.123Z', '1767268800123');

describe('a field that is denied', () => {
  it.each(EXPORT_FIELD_IDS.filter((id) => SAYS[id].length > 0))('%s is said by no other field and by no span', (id) => {
    const none = new Set<string>();
    const all = said(asObject(none)) + asSpans(none).replaceAll('.', '');
    // Most of it is said somewhere, or the test would be of nothing.
    expect(SAYS[id].some((text) => all.includes(text))).toBe(true);
    const denied = new Set<string>([id]);
    const left = said(asObject(denied)) + asSpans(denied);
    expect(SAYS[id].filter((text) => left.includes(text))).toEqual([]);
  });

  it('is not among what is sent, and bodies are only where they are asked for', () => {
    const fields = sentFields(null, false, new Set(['cost', 'id']));
    expect(fields).toEqual(DESTINATION_FIELDS.filter((id) => !['cost', 'id', 'request', 'response'].includes(id)));
    expect(sentFields(['id', 'request'], true, new Set())).toEqual(['id', 'request']);
    expect(sentFields(['id', 'request'], true, new Set(['request']))).toEqual(['id']);
  });

  it('changes nothing of the record that others are sent', () => {
    const before = JSON.stringify(RECORD);
    withoutFields(RECORD, new Set(EXPORT_FIELD_IDS));
    expect(JSON.stringify(RECORD)).toBe(before);
  });
});
