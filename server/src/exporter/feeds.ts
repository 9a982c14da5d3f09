/** The feeds of one server, made of its settings. */
import { join } from 'node:path';
import type { Fetcher } from '../http/background-fetcher.ts';
import type { OperatorHttp } from '../http/operator-http.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { ATTRIBUTES } from '../telemetry/conventions/conventions.ts';
import type { DestinationHost, DestinationPlan } from '../telemetry/log-destination.ts';
import type { FamilyValues } from '../telemetry/metrics/family-values.ts';
import { type Span, spansOf } from '../telemetry/spans.ts';
import type { Destinations } from './destinations/destinations.ts';
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
  /** For log destinations: calls through the egress guard, and what the server is asked. Absent: there are none. */
  readonly tenants?: { readonly fetcher: () => Promise<Fetcher>; readonly host: DestinationHost };
  /** Free bytes of the disk, in tests. */
  readonly freeBytes?: (spool: string) => Promise<number>;
}

export interface Feeds {
  readonly state: ExporterState;
  /** Sends them; what is not accepted is in the next ones, which are sums. */
  metrics(families: readonly FamilyValues[], period: Period): Promise<void>;
  /** Takes the log destinations as they are now. */
  destinations(plans: readonly DestinationPlan[]): Promise<void>;
  /** Sends what is there; what is not accepted then waits for the next start. */
  finish(): Promise<void>;
}

/** Spans of one call. */
const MOST_SPANS = 512;
const LOOK_MS = 2_000;

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
  let destinations: Destinations | null = null;
  const needs = (journal: string): string | null => {
    const each = [feed, destinations].filter((one) => one !== null).map((one) => one.needs(journal));
    const known = each.filter((segment) => segment !== null);
    return known.length < each.length ? null : (known.sort()[0] ?? null);
  };
  const look = async () => {
    if (!(await spool.look(needs))) return;
    feed?.wake();
    destinations?.wake();
  };
  let ended = false;
  let looking = false;
  const again = (): void => {
    clock.after(LOOK_MS, () => {
      if (ended) return;
      look()
        .catch((error: unknown) => log.error('the segments to be sent cannot be listed', { error: String(error) }))
        .finally(again);
    });
  };
  /** Second names of segments are made from here on. */
  const follow = async () => {
    if (looking) return;
    looking = true;
    await look();
    again();
  };
  if (feed !== null) await follow();
  await feed?.start();
  let changing: Promise<void> = Promise.resolve();
  const change = async (plans: readonly DestinationPlan[]): Promise<void> => {
    const { tenants } = parts;
    const { destinations: shared } = settings;
    if (ended || tenants === undefined || shared === undefined) return;
    if (destinations !== null) return destinations.change(plans);
    // Looked for before it is read: what was written before is of the past.
    await follow();
    const { Destinations: All } = await import('./destinations/destinations.ts');
    destinations = await All.start(
      {
        dir: join(settings.dir, 'destinations'),
        spool,
        clock,
        log,
        host: tenants.host,
        fetcher: await tenants.fetcher(),
        version: settings.version,
        maxBytes: settings.maxBytes,
        keepMs: shared.keepMs,
      },
      plans,
    );
  };
  return {
    get state() {
      const sent = destinations === null ? null : { states: destinations.states, waitingBytes: destinations.bytes };
      return { waitingBytes: spool.bytes, traces: feed?.state ?? null, destinations: sent };
    },
    destinations(plans) {
      const next = changing.then(() => change(plans));
      changing = next.catch(() => undefined);
      return next;
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
      await changing;
      await Promise.all([feed?.finish(), destinations?.finish()]);
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
