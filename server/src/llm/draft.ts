/** The record of a request as it stands now. */

import { pathOnly } from '../kernel/path-only.ts';
import { bindingFor } from '../providers/binding.ts';
import type { DecisionFacts } from '../telemetry/decision-facts.ts';
import type { CacheFacts } from '../telemetry/record.ts';
import type { RecordDraft } from '../telemetry/recorder.ts';
import { isExplained } from './attempt.ts';
import { rounded } from './attempt-cause.ts';
import type { Hit } from './cache/caching.ts';
import type { Exchange } from './exchange.ts';
import { countOf } from './routing/scores.ts';
import { modelUnder } from './shaping.ts';
import { limitsAsked } from './steps/asked.ts';

export function draftOf(x: Exchange): RecordDraft {
  const target = x.attempt.target;
  const sent = modelUnder(target?.shaping ?? null, x.request.model);
  return {
    id: x.request.id,
    time: x.request.time,
    organisation_id: x.request.principal?.organisationId ?? null,
    workspace_id: x.request.principal?.workspaceId ?? null,
    api_key_id: x.request.principal?.keyId ?? null,
    user_id: x.request.principal?.userId ?? null,
    trace_id: x.request.traceId,
    span_id: x.request.spanId,
    parent_span_id: x.request.parentSpanId,
    operation: x.request.operation.id,
    method: x.request.incoming.method ?? '',
    path: pathOnly(x.request.incoming.url ?? ''),
    provider: target?.provider.id ?? null,
    provider_slug: target?.stored?.slug ?? null,
    config_slug: x.request.plan?.config?.slug ?? null,
    model_requested: x.request.model === '' ? null : x.request.model,
    model_sent: sent === x.request.model ? undefined : sent,
    model_answered: x.outcome.modelAnswered,
    stream: x.attempt.stream,
    status: x.outcome.status,
    outcome: x.outcome.result,
    error_code: x.outcome.errorCode,
    error_message: x.outcome.errorMessage,
    usage: x.outcome.usage,
    usage_estimated: x.outcome.usageEstimated,
    cost_micros: x.outcome.costMicros,
    price: x.outcome.price,
    latency_ms: rounded(x.request.elapsed()),
    ttft_ms: x.outcome.firstTokenMs === null ? null : rounded(x.outcome.firstTokenMs),
    attempts: x.outcome.attempts,
    bytes_in: x.outcome.bytesIn,
    bytes_out: x.outcome.bytesOut,
    upstream_bytes_out: x.outcome.upstreamBytesOut,
    upstream_bytes_in: x.outcome.upstreamBytesIn,
    metadata: x.request.metadata,
    cache_status: x.attempt.caching?.status ?? 'DISABLED',
    cache: x.attempt.caching?.hit == null ? undefined : hitFacts(x.attempt.caching.hit),
    decision: isExplained(x) ? decisionOf(x) : undefined,
    limits: x.limits.facts ?? undefined,
    guards: x.guard == null ? undefined : { input: x.guard.input.map(slugOf), output: x.guard.output.map(slugOf) },
    guardrails: x.guard?.facts(),
    dry_run: x.request.dryRun,
  };
}

const slugOf = ({ slug }: { readonly slug: string }): string => slug;

function decisionOf(x: Exchange): DecisionFacts {
  const {
    request: { plan, snapshot, operation },
    attempt: { target },
    walk,
  } = x;
  const bound =
    target === null
      ? null
      : bindingFor(target.provider, operation.id, target.sends(x.request.model), target.credentials);
  const shape = target === null ? operation.shape : bound?.binding.shape;
  const limits = limitsAsked(x);
  return {
    config_version: plan?.config?.versionId ?? null,
    generation: snapshot?.generation ?? 0,
    target: target?.path ?? null,
    route: walk === null || walk.decisions.length === 0 ? undefined : walk.decisions,
    targets: walk?.scored ?? undefined,
    targets_total: walk === null ? undefined : countOf(walk.route),
    limits: limits.length === 0 ? undefined : limits,
    changed: x.outcome.fieldChanges,
    converted: shape === operation.shape ? undefined : shape,
  };
}

function hitFacts({ facts, similarity }: Hit): CacheFacts {
  const { madeAt, costMicros, latencyMs } = facts;
  return { made_at: madeAt, saved_micros: costMicros, saved_ms: latencyMs, similarity };
}
