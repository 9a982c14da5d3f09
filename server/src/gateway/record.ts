/** The maker of records: one head for every source, and what the source itself has to say. */
import { withoutSecrets } from '../kernel/quoted.ts';
import type { RecordDraft } from '../telemetry/recorder.ts';
import { clientFacts } from './client-facts.ts';
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
    | 'parent_sampled'
    | 'span_name'
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
    | 'client'
  > {}

/** What a source says beside that; what it leaves out it has nothing of. Of its times it says what its attempts do not. */
export type RecordPart = Pick<RecordDraft, 'operation' | 'method' | 'path'> &
  Partial<Omit<RecordDraft, keyof RecordHead | 'operation' | 'method' | 'path' | 'gateway_us'>>;

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
    parent_sampled: request.parentSampled,
    span_name: request.spanName,
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
    client: clientFacts(request.incoming),
  };
}

const NO_ATTEMPTS: RecordDraft['attempts'] = [];

const asItIs = (text: string): string => text;

/** Fields have the order in which the log store finds the first seven without parsing. */
export function recordOf(head: RecordHead, part: RecordPart): RecordDraft {
  const attempts = part.attempts ?? NO_ATTEMPTS;
  const whole = Math.round(head.latency_ms * 1000);
  const upstream = Math.min(whole, part.upstream_us ?? waited(attempts));
  const gateway = whole - upstream;
  // People paste keys where the name of a model belongs. What goes well had a name, and need not be looked at.
  const shown = head.status < 400 ? asItIs : withoutSecrets;
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
    parent_sampled: head.parent_sampled,
    span_name: head.span_name,
    source: part.source ?? 'llm',
    operation: part.operation,
    method: part.method,
    path: shown(part.path),
    provider: part.provider ?? null,
    provider_slug: part.provider_slug ?? null,
    config_slug: part.config_slug ?? null,
    config_version: part.config_version,
    prompt_slug: part.prompt_slug,
    prompt_version: part.prompt_version,
    mode: part.mode,
    option: part.option,
    retries: part.retries,
    fallback: part.fallback,
    model_requested: part.model_requested == null ? null : shown(part.model_requested),
    model_sent: part.model_sent === undefined ? undefined : shown(part.model_sent),
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
    upstream_us: upstream,
    gateway_us: gateway,
    parse_us: part.parse_us,
    pre_us:
      part.pre_us ??
      began(attempts) ??
      Math.max(0, gateway - (part.parse_us ?? 0) - (part.cache_us ?? 0) - (part.post_us ?? 0)),
    cache_us: part.cache_us,
    post_us: part.post_us,
    attempts,
    bytes_in: head.bytes_in,
    bytes_out: head.bytes_out,
    upstream_bytes_out: part.upstream_bytes_out ?? 0,
    upstream_bytes_in: part.upstream_bytes_in ?? 0,
    metadata: head.metadata,
    cache_status: part.cache_status ?? 'DISABLED',
    cache_type: part.cache_type,
    cache: part.cache,
    decision: part.decision,
    limits: head.limits,
    guards: part.guards,
    guardrails: part.guardrails,
    client: head.client,
    detail: part.detail,
    body_chunk: part.body_chunk,
    body_slot: part.body_slot,
    body_flags: part.body_flags,
    dry_run: part.dry_run ?? false,
  };
}

/** Microseconds in which at least one attempt was under way. Of those that do not say when they began, one followed another. */
function waited(attempts: RecordDraft['attempts']): number {
  let sum = 0;
  let until = 0;
  const order = attempts.toSorted((a, b) => (a.began_ms ?? 0) - (b.began_ms ?? 0));
  for (const { began_ms: from, duration_ms: ms } of order) {
    if (from === undefined) sum += ms;
    else {
      sum += Math.max(0, from + ms - Math.max(from, until));
      until = Math.max(until, from + ms);
    }
  }
  return Math.round(sum * 1000);
}

/** Microseconds from the arrival to the first attempt; undefined where none says so. */
function began(attempts: RecordDraft['attempts']): number | undefined {
  let first: number | undefined;
  for (const { began_ms: ms } of attempts) if (ms !== undefined) first = Math.min(first ?? ms, ms);
  return first === undefined ? undefined : Math.round(first * 1000);
}
