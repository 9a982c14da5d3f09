import { endParts } from '../../http/answer-body.ts';
import { linger } from '../../http/linger.ts';
import { bindingFor } from '../../providers/binding.ts';
import type { DecisionFacts } from '../../telemetry/decision-facts.ts';
import type { CacheFacts } from '../../telemetry/record.ts';
import { isExplained } from '../attempt.ts';
import type { Hit } from '../cache/caching.ts';
import type { Exchange } from '../exchange.ts';
import { modelUnder } from '../shaping.ts';

const NO_HEADERS: string[] = [];

/**
 * Writes the one record of the request, then lets the answer complete: an answer that a client saw whole has its
 * record in the journal, whatever kills the process afterwards.
 */
export function record(x: Exchange): Promise<void> {
  const latency = x.elapsed();
  const target = x.target;
  const sent = modelUnder(target?.shaping ?? null, x.model);
  const ending = x.clientGone ? { kind: 'destroy' as const } : (x.ending ?? { kind: 'destroy' as const });
  if (ending.kind !== 'destroy') for (const part of ending.body) x.bytesOut += part.length;
  const draft = {
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
    config_slug: x.plan?.configSlug ?? null,
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
    latency_ms: Math.round(latency * 1000) / 1000,
    ttft_ms: x.ttft === null ? null : Math.round(x.ttft * 1000) / 1000,
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
    guardrails: x.guard?.facts(),
    dry_run: x.dryRun,
  };
  return new Promise((resolve) => {
    x.services.recorder.record(draft, () => {
      finish(x, ending);
      resolve();
    });
  });
}

function decisionOf(x: Exchange): DecisionFacts {
  const { plan, snapshot, target, walk, operation } = x;
  const config = plan?.configSlug == null ? undefined : snapshot?.configs.get(plan.configSlug);
  const bound =
    target === null ? null : bindingFor(target.provider, operation.id, target.sends(x.model), target.credentials);
  const shape = target === null ? operation.shape : bound?.binding.shape;
  return {
    config_version: config?.versionId ?? null,
    generation: snapshot?.generation ?? 0,
    target: target?.path ?? null,
    route: walk === null || walk.decisions.length === 0 ? undefined : walk.decisions,
    changed: x.changed,
    converted: shape === operation.shape ? undefined : shape,
  };
}

function hitFacts({ facts, similarity }: Hit): CacheFacts {
  const { madeAt, costMicros, latencyMs } = facts;
  return { made_at: madeAt, saved_micros: costMicros, saved_ms: latencyMs, similarity };
}

function finish(x: Exchange, ending: NonNullable<Exchange['ending']>): void {
  const { response } = x;
  if (ending.kind === 'destroy' || response.destroyed) {
    response.destroy();
    return;
  }
  if (ending.kind === 'whole') {
    response.writeHead(ending.status, ending.headers ?? NO_HEADERS);
    x.headSent = true;
    // A client that waits for `100 Continue` has sent nothing: reading would invite it.
    if (!x.request.complete && (x.request.headers.expect === undefined || x.bytesIn > 0)) {
      // The length of a whole answer stands in its head: it is complete for the client before the end is written.
      for (const part of ending.body) response.write(part);
      linger(x.request, x.services.clock, () => endParts(response, []));
      return;
    }
  }
  endParts(response, ending.body);
}

export function pathOnly(url: string): string {
  const query = url.indexOf('?');
  return query === -1 ? url : url.slice(0, query);
}
