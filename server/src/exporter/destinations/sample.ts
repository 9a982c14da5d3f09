/** One made-up record, sent to a destination once: whether its address, its headers and its keys are right. */
import { randomUUID } from 'node:crypto';
import { sentFields, withoutFields } from '../../telemetry/destination-fields.ts';
import type { BatchRules, DestinationPlan } from '../../telemetry/log-destination.ts';
import { EXPORT_FIELD_IDS } from '../../telemetry/log-export.ts';
import type { LogRecord } from '../../telemetry/record.ts';
import { type SendParts, sendBatch } from './send.ts';

/** A request of the sandbox, as small as one gets. */
function sampleOf({ organisationId, workspaceId }: DestinationPlan, now: number): LogRecord {
  const id = randomUUID();
  return {
    id,
    node: 'sample',
    seq: 1,
    time: now - 1,
    organisation_id: organisationId,
    workspace_id: workspaceId,
    api_key_id: null,
    user_id: null,
    trace_id: id,
    span_id: id,
    parent_span_id: null,
    span_name: 'sluice test of a log destination',
    source: 'custom',
    operation: 'chat_completions',
    method: 'POST',
    path: '/v1/chat/completions',
    provider: null,
    provider_slug: null,
    config_slug: null,
    model_requested: 'echo',
    model_answered: 'echo',
    stream: false,
    status: 200,
    outcome: 'ok',
    error_code: null,
    error_message: null,
    usage: null,
    usage_estimated: false,
    cost_micros: null,
    price: null,
    latency_ms: 1,
    ttft_ms: null,
    upstream_us: 0,
    gateway_us: 1_000,
    pre_us: 0,
    attempts: [],
    bytes_in: 0,
    bytes_out: 0,
    upstream_bytes_in: 0,
    upstream_bytes_out: 0,
    metadata: { sluice_test: 'true' },
    cache_status: 'DISABLED',
    dry_run: false,
  };
}

/** Sends it. Never rejects. */
export async function trySample(plan: DestinationPlan, { denied, ...terms }: BatchRules, parts: SendParts) {
  const { id, organisationId, workspaceId, target } = plan;
  if (target === null) return { delivered: false, status: null, answer: '', message: 'It has no address.' };
  const fields = sentFields(plan.fields, false, new Set(denied));
  const hidden = target.kind === 'otlp' ? EXPORT_FIELD_IDS.filter((one) => !fields.includes(one)) : denied;
  const record = withoutFields(sampleOf(plan, parts.clock.now()), new Set(hidden));
  const batch = { destinationId: id, organisationId, workspaceId, fields, ...terms, bodies: new Map() };
  const answer = await sendBatch(target, { ...batch, records: [record] }, parts);
  const message = answer.kind === 'accepted' ? null : answer.why;
  return { delivered: answer.kind === 'accepted', status: answer.status, answer: answer.text, message };
}
