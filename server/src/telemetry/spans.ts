/**
 * The spans of a record: one of the request (SERVER), one of each attempt (CLIENT) and one of each guardrail that ran
 * (INTERNAL), below the first. Nothing is stored for them but the record.
 */
import { childSpanId, spanIdOf, traceIdOf } from '../kernel/trace-context.ts';
import type { AttributeNames } from './conventions/conventions.ts';
import { CONVENTION_NAMES } from './conventions/operations.ts';
import { PROVIDER_NAMES } from './conventions/v1-41.ts';
import type { GuardrailFacts } from './guardrail-facts.ts';
import { type AttemptRecord, type LogRecord, NOT_SENT } from './record.ts';

export type SpanKind = 'internal' | 'server' | 'client';

export interface Attribute {
  readonly name: string;
  /** A number is an integer unless `double` is true. */
  readonly value: string | number | boolean;
  readonly double?: true;
}

export interface Span {
  /** 32 and 16 hexadecimal digits. */
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | null;
  readonly name: string;
  readonly kind: SpanKind;
  /** Milliseconds since the epoch, with fractions. */
  readonly start: number;
  readonly end: number;
  /** A code; null: it did not fail. Messages of providers stay here: some quote what was sent. */
  readonly error: string | null;
  readonly attributes: readonly Attribute[];
}

/** Children of a span are numbered: attempts from 1, guardrails from here. */
const FIRST_GUARDRAIL = 1 << 16;

/** The span of the request comes first. */
export function spansOf(record: LogRecord, names: AttributeNames): Span[] {
  const traceId = traceIdOf(record.trace_id);
  const spanId = spanIdOf(record.span_id);
  // Records of earlier versions lack it.
  const parent = record.parent_span_id ?? null;
  const child = (n: number) => ({ traceId, spanId: childSpanId(spanId, n), parentSpanId: spanId });
  const failed = record.outcome === 'failed';
  const spans: Span[] = [
    {
      traceId,
      spanId,
      parentSpanId: parent === null ? null : spanIdOf(parent),
      name: record.span_name ?? `${record.method} ${record.path}`,
      kind: 'server',
      start: record.time,
      end: record.time + record.latency_ms,
      error: failed ? failureOf(record) : null,
      attributes: attributesOf(requestFacts(record, names)),
    },
  ];
  record.attempts.forEach((attempt, i) => {
    spans.push({ ...child(i + 1), ...attemptSpan(record, attempt, i === record.attempts.length - 1, names) });
  });
  record.guardrails?.forEach((facts, i) => {
    if (!facts.skipped) spans.push({ ...child(FIRST_GUARDRAIL + i), ...guardrailSpan(record, facts) });
  });
  return spans;
}

type Fact = readonly [name: string, value: string | number | boolean | null | undefined, double?: true];

/** Facts that are known. */
function attributesOf(facts: readonly Fact[]): Attribute[] {
  const out: Attribute[] = [];
  for (const [name, value, double] of facts) {
    if (value === null || value === undefined) continue;
    out.push(double === true ? { name, value, double } : { name, value });
  }
  return out;
}

function requestFacts(record: LogRecord, names: AttributeNames): Fact[] {
  return [
    ['http.request.method', record.method],
    ['url.path', record.path],
    ['http.response.status_code', record.status],
    [names.errorType, record.outcome === 'failed' ? failureOf(record) : null],
    ['sluice.request_id', record.id],
    ['sluice.organisation.id', record.organisation_id],
    ['sluice.workspace.id', record.workspace_id],
    ['sluice.api_key.id', record.api_key_id],
    ['sluice.outcome', record.outcome],
    ['sluice.error_code', record.error_code],
    ['sluice.cost_micros', record.cost_micros],
    ['sluice.config', record.config_slug],
    ['sluice.cache', record.cache_status === 'DISABLED' ? null : record.cache_status],
    ['sluice.dry_run', record.dry_run ? true : null],
    ['user.id', record.metadata?._user],
  ];
}

type Own = Omit<Span, 'traceId' | 'spanId' | 'parentSpanId'>;

/** Only the last attempt has given the answer that the record tells of. */
function attemptSpan(record: LogRecord, attempt: AttemptRecord, last: boolean, names: AttributeNames): Own {
  const { cause, began_ms: began = 0, duration_ms: duration } = attempt;
  const operation = CONVENTION_NAMES.get(record.operation) ?? record.operation;
  const model = modelOf(record, attempt);
  const start = record.time + began;
  const failed = cause !== undefined || attempt.error !== null;
  const answered = last && !failed;
  const usage = answered ? record.usage : null;
  const first = attempt.first_content_ms ?? (record.stream ? attempt.first_byte_ms : undefined);
  const facts: Fact[] = [
    [names.operation, operation],
    [names.provider, PROVIDER_NAMES[attempt.provider] ?? attempt.provider],
    [names.requestModel, model],
    [names.stream, record.stream ? true : null],
    [names.responseModel, answered ? record.model_answered : null],
    ['http.response.status_code', attempt.status],
    [names.errorType, failed ? errorType(attempt) : null],
    [names.timeToFirstChunk, record.stream && first !== undefined ? first / 1_000 : null, true],
    [names.inputTokens, usage?.input],
    [names.outputTokens, usage?.output],
    [names.cacheReadTokens, usage?.cache_read === 0 ? null : usage?.cache_read],
    [names.cacheWriteTokens, usage?.cache_write === 0 ? null : usage?.cache_write],
    [names.reasoningTokens, usage?.reasoning === 0 ? null : usage?.reasoning],
    ['sluice.target', attempt.target],
  ];
  return {
    name: model === null ? operation : `${operation} ${model}`,
    kind: cause !== undefined && NOT_SENT.has(cause.kind) ? 'internal' : 'client',
    start,
    end: start + duration,
    error: failed ? errorType(attempt) : null,
    attributes: attributesOf(facts),
  };
}

/** A record names the model of its last target; its decision names those of others. */
function modelOf(record: LogRecord, { target, provider }: AttemptRecord): string | null {
  const scored = record.decision?.targets?.find(({ path }) => path === target);
  if (scored !== undefined && scored.model !== null) return scored.model;
  const own = target === record.option || (record.option === undefined && provider === record.provider);
  return own ? (record.model_sent ?? record.model_requested) : null;
}

const failureOf = ({ error_code, status }: LogRecord): string =>
  error_code ?? (status === null ? '_OTHER' : String(status));

function errorType({ status, cause, error }: AttemptRecord): string {
  if (cause === undefined || cause.kind === 'status') return status === null ? (error ?? '_OTHER') : String(status);
  return cause.kind;
}

/** How long it took is measured. Where it lies is not: before the first attempt, or at the end. */
function guardrailSpan(record: LogRecord, facts: GuardrailFacts): Own {
  const whole = record.time + record.latency_ms;
  const begins = record.attempts.map(({ began_ms: began }) => began).filter((began) => began !== undefined);
  const end = facts.phase === 'input' && begins.length > 0 ? record.time + Math.min(...begins) : whole;
  return {
    name: `guardrail ${facts.slug}`,
    kind: 'internal',
    start: Math.max(record.time, end - facts.ms),
    end: Math.max(record.time, end - facts.ms) + facts.ms,
    error: null,
    attributes: attributesOf([
      ['sluice.guardrail.slug', facts.slug],
      ['sluice.guardrail.phase', facts.phase ?? 'beside'],
      ['sluice.guardrail.verdict', facts.verdict],
      ['sluice.guardrail.deny', facts.deny],
      ['sluice.guardrail.transformed', facts.transformed],
    ]),
  };
}
