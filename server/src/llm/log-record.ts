/** The record of a request as it stands now. */

import { guardsOf } from '../gateway/guardrail-state.ts';
import { headOf, recordOf } from '../gateway/record.ts';
import { pathOnly } from '../kernel/path-only.ts';
import { bindingFor } from '../providers/binding.ts';
import type { DecisionFacts } from '../telemetry/decision-facts.ts';
import type { CacheFacts, RouteMode } from '../telemetry/record.ts';
import type { RecordDraft } from '../telemetry/recorder.ts';
import { rounded } from './attempt-cause.ts';
import type { KeptReference } from './bodies/keep.ts';
import type { CacheHit } from './cache/cache-entry-writer.ts';
import type { Uses } from './exchange.ts';
import { retriesOf } from './gateway-headers.ts';
import type { Plan } from './plan.ts';
import { countOf } from './routing/scores.ts';
import { modelUnder } from './shaping.ts';
import { appliedLimits } from './state/limits.ts';
import { isExplained } from './steps/build-target-request.ts';
import type { Target } from './target.ts';

export function logRecordOf(
  x: Uses<'attempt' | 'guard' | 'limits' | 'outcome' | 'request' | 'execution'>,
  bodies: KeptReference | null = null,
): RecordDraft {
  const target = x.attempt.target;
  const { request, outcome, attempt } = x;
  const { times } = outcome;
  const asked = outcome.asked(request);
  const sent = modelUnder(target?.shaping ?? null, asked);
  const { plan } = request;
  const head = headOf(request, outcome, x.limits);
  return recordOf(head, {
    operation: request.operation.id,
    method: request.incoming.method ?? '',
    path: pathOnly(request.incoming.url ?? ''),
    provider: target?.provider.id ?? null,
    provider_slug: target?.stored?.slug ?? null,
    config_slug: plan?.config?.slug ?? null,
    config_version: plan?.config?.versionId ?? undefined,
    mode: plan === null ? undefined : modeOf(plan),
    option: target?.path,
    retries: retriesOf(x),
    fallback: outcome.attempts.length > 1 && outcome.attempts[0]?.target !== target?.path,
    model_requested: asked === '' ? null : asked,
    model_sent: sent === asked ? undefined : sent,
    model_answered: outcome.modelAnswered,
    stream: attempt.stream,
    usage: outcome.usage ?? outcome.answer.usage,
    usage_estimated: outcome.usageEstimated,
    price: outcome.price,
    ttft_ms: outcome.firstTokenMs === null ? null : rounded(outcome.firstTokenMs),
    // Files, batches and jobs are called by adapters, which tell their attempts alone.
    upstream_us: outcome.attemptCount === 0 ? undefined : micros(times.upstream),
    parse_us: times.parse === null ? undefined : micros(times.parse),
    pre_us: times.pre === null ? undefined : micros(times.pre),
    cache_us: times.cache === null ? undefined : micros(times.cache),
    post_us: times.answered === null ? undefined : micros(Math.max(0, head.latency_ms - times.answered)),
    attempts: outcome.attempts,
    upstream_bytes_out: outcome.upstreamBytesOut,
    upstream_bytes_in: outcome.upstreamBytesIn,
    cache_status: attempt.caching?.status ?? 'DISABLED',
    cache_type: attempt.caching === null ? undefined : target?.cache?.mode,
    cache: attempt.caching?.hit == null ? undefined : hitFacts(attempt.caching.hit),
    decision: isExplained(x.request) ? decisionOf(x) : undefined,
    guards: x.guard == null ? undefined : guardsOf(x.guard),
    guardrails: x.guard?.facts(),
    dry_run: request.dryRun,
    body_chunk: bodies?.chunk,
    body_slot: bodies?.slot,
    body_flags: bodies?.flags,
  });
}

function modeOf({ route }: Plan): RouteMode {
  const kind = route?.route.root.kind ?? 'target';
  return kind === 'target' ? 'single' : kind;
}

const micros = (ms: number): number => Math.round(ms * 1000);

function decisionOf(x: Uses<'attempt' | 'limits' | 'outcome' | 'request' | 'execution'>): DecisionFacts {
  const {
    request: { plan, snapshot, operation },
    attempt: { target },
    execution,
  } = x;
  const bound =
    target === null
      ? null
      : bindingFor(target.provider, operation.id, target.sends(x.outcome.asked(x.request)), target.credentials);
  const shape = target === null ? operation.shape : bound?.binding.shape;
  const limits = appliedLimits(x.limits);
  return {
    config_version: plan?.config?.versionId ?? null,
    generation: snapshot?.generation ?? 0,
    target: target?.path ?? null,
    route: execution === null || execution.decisions.length === 0 ? undefined : execution.decisions,
    targets: execution?.scored ?? undefined,
    targets_total: execution === null ? undefined : countOf(execution.route),
    limits: limits.length === 0 ? undefined : limits,
    changed: x.outcome.fieldChanges,
    converted: shape === operation.shape ? undefined : shape,
  };
}

function hitFacts({ facts, similarity }: CacheHit): CacheFacts {
  const { madeAt, costMicros, latencyMs } = facts;
  return { made_at: madeAt, saved_micros: costMicros, saved_ms: latencyMs, similarity };
}

/** The name under which the provider of a request has its model stored; null for a model without settings there. */
export function configuredModel(target: Target | null, { model_sent, model_requested }: RecordDraft): string | null {
  const models = target?.stored?.models;
  const name = model_sent ?? model_requested;
  if (models === undefined || models.size === 0 || name === null) return null;
  const slug = name.toLowerCase();
  return models.has(slug) ? slug : null;
}
