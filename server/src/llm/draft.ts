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
  const target = x.target;
  const sent = modelUnder(target?.shaping ?? null, x.model);
  return {
    id: x.id,
    time: x.time,
    organisation_id: x.principal?.organisationId ?? null,
    workspace_id: x.principal?.workspaceId ?? null,
    api_key_id: x.principal?.keyId ?? null,
    user_id: x.principal?.userId ?? null,
    trace_id: x.traceId,
    span_id: x.spanId,
    parent_span_id: x.parentSpanId,
    operation: x.operation.id,
    method: x.request.method ?? '',
    path: pathOnly(x.request.url ?? ''),
    provider: target?.provider.id ?? null,
    provider_slug: target?.stored?.slug ?? null,
    config_slug: x.plan?.config?.slug ?? null,
    model_requested: x.model === '' ? null : x.model,
    model_sent: sent === x.model ? undefined : sent,
    model_answered: x.modelAnswered,
    stream: x.stream,
    status: x.status,
    outcome: x.outcome,
    error_code: x.errorCode,
    error_message: x.errorMessage,
    usage: x.usage,
    usage_estimated: x.usageEstimated,
    cost_micros: x.costMicros,
    price: x.price,
    latency_ms: rounded(x.elapsed()),
    ttft_ms: x.ttft === null ? null : rounded(x.ttft),
    attempts: x.attempts,
    bytes_in: x.bytesIn,
    bytes_out: x.bytesOut,
    upstream_bytes_out: x.upstreamBytesOut,
    upstream_bytes_in: x.upstreamBytesIn,
    metadata: x.metadata,
    cache_status: x.caching?.status ?? 'DISABLED',
    cache: x.caching?.hit == null ? undefined : hitFacts(x.caching.hit),
    decision: isExplained(x) ? decisionOf(x) : undefined,
    limits: x.limits ?? undefined,
    guards: x.guard == null ? undefined : { input: x.guard.input.map(slugOf), output: x.guard.output.map(slugOf) },
    guardrails: x.guard?.facts(),
    dry_run: x.dryRun,
  };
}

const slugOf = ({ slug }: { readonly slug: string }): string => slug;

function decisionOf(x: Exchange): DecisionFacts {
  const { plan, snapshot, target, walk, operation } = x;
  const bound =
    target === null ? null : bindingFor(target.provider, operation.id, target.sends(x.model), target.credentials);
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
    changed: x.changed,
    converted: shape === operation.shape ? undefined : shape,
  };
}

function hitFacts({ facts, similarity }: Hit): CacheFacts {
  const { madeAt, costMicros, latencyMs } = facts;
  return { made_at: madeAt, saved_micros: costMicros, saved_ms: latencyMs, similarity };
}
