/** Records of requests that went another way: priced, attributed and recorded like those of this gateway. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import { costMicros } from '../pricing/cost.ts';
import type { Pricer } from '../pricing/price.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { WorkspaceSnapshot } from '../runtime/snapshot.ts';
import type { CustomLog, CustomLogCaller, CustomLogs } from '../telemetry/custom-log.ts';
import type { RecordDraft, Recorder } from '../telemetry/recorder.ts';
import type { BodyLog } from './body-log.ts';
import { keepToldBodies } from './custom-bodies.ts';
import { MAX_KEYS } from './metadata.ts';
import { recordOf } from './record.ts';

export interface CustomLogParts {
  readonly recorder: Pick<Recorder, 'record' | 'once' | 'failing'>;
  /** What is known of a workspace now. */
  readonly snapshotOf: Runtime['workspace'];
  readonly pricer: Pick<Pricer, 'price'>;
  readonly clock: Clock;
  readonly bodyLog: BodyLog;
  /** Other beginnings of `x-gateway-` headers. */
  readonly headerAliases: readonly string[];
}

export function createCustomLogs(parts: CustomLogParts): CustomLogs {
  const { recorder, snapshotOf, pricer, clock, bodyLog, headerAliases } = parts;
  const named = (what: string) => ['x-gateway-', ...headerAliases].map((begin) => begin.toLowerCase() + what);
  return {
    headers: { provider: named('provider'), virtualKey: named('virtual-key') },
    async record(caller, entries, pathOf) {
      const snapshot = await snapshotOf(caller.organisationId, caller.workspaceId);
      // All of them before the first is recorded: one that is refused must leave none of the others behind.
      const drafts = entries.map((entry, index) => ({
        draft: draftOf(caller, entry, metadataOf(caller, entry, snapshot, pathOf(index)), snapshot, pricer, clock),
        key: keyOf(caller.workspaceId, entry),
      }));
      if (recorder.failing) throw unwritten();
      const kept = await keepToldBodies(bodyLog, clock, {
        ...{ caller, snapshot, debug: named('debug') },
        entries: entries.map((entry, index) => ({ entry, draft: drafts[index]?.draft ?? null })),
      });
      await Promise.all(
        drafts.map(
          ({ draft: before, key }, index) =>
            new Promise<void>((done) => {
              const draft = { ...before, ...kept[index] };
              if (key === null) recorder.record(draft, done);
              else recorder.once(key, draft, done);
            }),
        ),
      );
      // A record that the disk did not take is given up, or held in memory until it does.
      if (recorder.failing) throw unwritten();
    },
  };
}

function unwritten(): SluiceError {
  const message =
    'Records cannot be written right now. Send the entries again: those with trace_id and span_id count once.';
  return new SluiceError('unavailable', message, { retryAfter: 1 });
}

/** Names an entry that its caller may send again; null for one that says nothing of itself. */
function keyOf(workspaceId: string, { traceId, spanId }: CustomLog): string | null {
  return traceId === null || spanId === null ? null : `custom ${JSON.stringify([workspaceId, traceId, spanId])}`;
}

/** As of a request: the workspace's defaults win over the key's, and these over what was sent. */
function metadataOf(
  caller: CustomLogCaller,
  entry: CustomLog,
  snapshot: WorkspaceSnapshot,
  path: string,
): Readonly<Record<string, string>> | null {
  const metadata = { ...entry.metadata, ...caller.defaults.metadata, ...snapshot.metadata };
  const { length } = Object.keys(metadata);
  if (length > MAX_KEYS) {
    const message = `${path} has ${length} keys, with those of its API key and its workspace; at most ${MAX_KEYS} are allowed.`;
    throw new SluiceError('validation', message, { param: path });
  }
  return length === 0 ? null : metadata;
}

function draftOf(
  caller: CustomLogCaller,
  entry: CustomLog,
  metadata: Readonly<Record<string, string>> | null,
  snapshot: WorkspaceSnapshot,
  pricer: Pick<Pricer, 'price'>,
  clock: Clock,
): RecordDraft {
  const id = uuidv7(clock);
  const { latencyMs, provider, usage, modelAnswered, traceId, spanId, spanName } = entry;
  const time = clock.now() - latencyMs;
  const slug = provider?.startsWith('@') === true ? provider.slice(1) : null;
  const stored = slug === null ? null : (snapshot.providers.get(slug) ?? null);
  const base = slug === null ? provider : (stored?.provider?.id ?? null);
  const model = entry.modelRequested ?? modelAnswered;
  const price =
    base === null || model === null || usage === null ? null : pricer.price(base, modelAnswered, model, stored, time);
  const cost = price === null || usage === null ? null : costMicros(price, usage);
  return recordOf(
    {
      id,
      time,
      organisation_id: caller.organisationId,
      workspace_id: caller.workspaceId,
      api_key_id: caller.keyId,
      user_id: caller.userId,
      trace_id: traceId ?? id,
      span_id: spanId ?? id,
      parent_span_id: entry.parentSpanId,
      span_name: spanName ?? undefined,
      status: entry.status,
      outcome: entry.status < 400 ? 'ok' : 'failed',
      error_code: entry.errorCode,
      error_message: null,
      cost_micros: cost?.micros ?? null,
      latency_ms: latencyMs,
      bytes_in: 0,
      bytes_out: 0,
      metadata,
      limits: undefined,
      client: undefined,
    },
    {
      source: 'custom',
      operation: 'custom',
      method: entry.method,
      path: entry.url,
      provider: base,
      provider_slug: slug,
      model_requested: model,
      model_answered: modelAnswered,
      stream: entry.stream,
      usage,
      price: price === null || cost === null ? null : { source: price.source, rates: cost.rates },
      upstream_us: latencyMs * 1_000,
    },
  );
}
