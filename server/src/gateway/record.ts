/** The maker of records: one head for every source, and what the source itself has to say. */
import type { RecordDraft } from '../telemetry/recorder.ts';
import type { LimitState } from './limit-state.ts';
import type { Outcome } from './outcome.ts';
import type { RequestContext } from './request-context.ts';

/** Who asked, when, and what became of it: the same for every source. */
export interface RecordHead
  extends Pick<
    RecordDraft,
    | 'id'
    | 'time'
    | 'organisation_id'
    | 'workspace_id'
    | 'api_key_id'
    | 'user_id'
    | 'trace_id'
    | 'span_id'
    | 'parent_span_id'
    | 'status'
    | 'outcome'
    | 'error_code'
    | 'error_message'
    | 'cost_micros'
    | 'latency_ms'
    | 'bytes_in'
    | 'bytes_out'
    | 'metadata'
    | 'limits'
  > {}

/** What a source says beside that; what it leaves out it has nothing of. */
export type RecordPart = Pick<RecordDraft, 'operation' | 'method' | 'path'> &
  Partial<Omit<RecordDraft, keyof RecordHead | 'operation' | 'method' | 'path'>>;

/** The head of a request's record as it is now. */
export function headOf(request: RequestContext, outcome: Outcome, limits: LimitState): RecordHead {
  const { principal } = request;
  return {
    id: request.id,
    time: request.time,
    organisation_id: principal?.organisationId ?? null,
    workspace_id: principal?.workspaceId ?? null,
    api_key_id: principal?.keyId ?? null,
    user_id: principal?.userId ?? null,
    trace_id: request.traceId,
    span_id: request.spanId,
    parent_span_id: request.parentSpanId,
    status: outcome.status,
    outcome: outcome.result,
    error_code: outcome.errorCode,
    error_message: outcome.errorMessage,
    cost_micros: outcome.costMicros,
    latency_ms: Math.round(request.elapsed() * 1000) / 1000,
    bytes_in: outcome.bytesIn,
    bytes_out: outcome.bytesOut,
    metadata: request.metadata,
    limits: limits.facts ?? undefined,
  };
}

const NO_ATTEMPTS: RecordDraft['attempts'] = [];

/** Fields have the order in which the log store finds the first seven without parsing. */
export function recordOf(head: RecordHead, part: RecordPart): RecordDraft {
  return {
    id: head.id,
    time: head.time,
    organisation_id: head.organisation_id,
    workspace_id: head.workspace_id,
    api_key_id: head.api_key_id,
    user_id: head.user_id,
    trace_id: head.trace_id,
    span_id: head.span_id,
    parent_span_id: head.parent_span_id,
    operation: part.operation,
    method: part.method,
    path: part.path,
    provider: part.provider ?? null,
    provider_slug: part.provider_slug ?? null,
    config_slug: part.config_slug ?? null,
    model_requested: part.model_requested ?? null,
    model_sent: part.model_sent,
    model_answered: part.model_answered ?? null,
    stream: part.stream ?? false,
    status: head.status,
    outcome: head.outcome,
    error_code: head.error_code,
    error_message: head.error_message,
    usage: part.usage ?? null,
    usage_estimated: part.usage_estimated ?? false,
    cost_micros: head.cost_micros,
    price: part.price ?? null,
    latency_ms: head.latency_ms,
    ttft_ms: part.ttft_ms ?? null,
    attempts: part.attempts ?? NO_ATTEMPTS,
    bytes_in: head.bytes_in,
    bytes_out: head.bytes_out,
    upstream_bytes_out: part.upstream_bytes_out ?? 0,
    upstream_bytes_in: part.upstream_bytes_in ?? 0,
    metadata: head.metadata,
    cache_status: part.cache_status ?? 'DISABLED',
    cache: part.cache,
    decision: part.decision,
    limits: head.limits,
    guards: part.guards,
    guardrails: part.guardrails,
    source: part.source,
    detail: part.detail,
    dry_run: part.dry_run ?? false,
  };
}
