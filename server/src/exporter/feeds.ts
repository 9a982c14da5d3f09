/** The feeds of one server, made of its settings. */
import type { OperatorHttp } from '../http/operator-http.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { ATTRIBUTES } from '../telemetry/conventions/conventions.ts';
import type { FamilyValues } from '../telemetry/metrics/family-values.ts';
import { type Span, spansOf } from '../telemetry/spans.ts';
import { Feed, type FeedOptions } from './feed.ts';
import type { ExporterSettings, ExporterState, TraceSettings } from './messages.ts';
import { metricsBody, type Period } from './otlp/metrics.ts';
import { tracesBody } from './otlp/requests.ts';
import { sendToCollector } from './otlp/sender.ts';
import { sampledBy } from './sampler.ts';
import { ExportSpool } from './spool.ts';

export interface FeedParts {
  readonly http: OperatorHttp;
  readonly clock: Clock;
  readonly log: Log;
  /** Free bytes of the disk, in tests. */
  readonly freeBytes?: (spool: string) => Promise<number>;
}

export interface Feeds {
  readonly state: ExporterState;
  /** Sends them; what is not accepted is in the next ones, which are sums. */
  metrics(families: readonly FamilyValues[], period: Period): Promise<void>;
  /** Sends what is there; what is not accepted then waits for the next start. */
  finish(): Promise<void>;
}

/** Spans of one call. */
const MOST_SPANS = 512;
const LOOK_MS = 5_000;

export async function startFeeds(settings: ExporterSettings, parts: FeedParts): Promise<Feeds> {
  const { clock, log } = parts;
  const spool = new ExportSpool({
    ...settings,
    log,
    ...(parts.freeBytes === undefined ? {} : { freeBytes: parts.freeBytes }),
  });
  const { traces } = settings;
  const feed =
    traces === null
      ? null
      : new Feed({ name: 'traces', dir: settings.dir, spool, clock, log, ...traceFeed(settings, traces, parts) });
  const look = async () => {
    const gaveUp = await spool.look((journal) => (feed === null ? null : feed.needs(journal)));
    if (gaveUp) feed?.wake();
  };
  if (feed !== null) await look();
  let ended = false;
  const again = (): void => {
    clock.after(LOOK_MS, () => {
      if (ended) return;
      look()
        .catch((error: unknown) => log.error('the segments to be sent cannot be listed', { error: String(error) }))
        .finally(again);
    });
  };
  if (feed !== null) again();
  await feed?.start();
  return {
    get state() {
      return { waitingBytes: spool.bytes, traces: feed?.state ?? null };
    },
    async metrics(families, period) {
      const { metrics, resource, version } = settings;
      if (metrics === null) return;
      const body = metricsBody(families, period, metrics.conventions, { resource, version }, metrics.protocol);
      const { url, headers, protocol } = metrics;
      const result = await sendToCollector(parts.http, { url: new URL(url), headers, protocol }, body, clock);
      if (result.kind !== 'accepted') log.warn('metrics were not accepted by the collector', { why: result.why });
    },
    async finish() {
      ended = true;
      await feed?.finish();
    },
  };
}

function traceFeed(
  { resource, version }: ExporterSettings,
  traces: TraceSettings,
  { http, clock }: FeedParts,
): Pick<FeedOptions<Span>, 'ready' | 'most' | 'deliver'> {
  const sampled = sampledBy(traces.sampler, traces.ratio);
  const names = ATTRIBUTES[traces.conventions];
  const call = { url: new URL(traces.url), headers: traces.headers, protocol: traces.protocol };
  return {
    most: MOST_SPANS,
    ready: (record) => (sampled(record) ? spansOf(record, names) : []),
    deliver: (spans) => sendToCollector(http, call, tracesBody(spans, { resource, version }, traces.protocol), clock),
  };
}
