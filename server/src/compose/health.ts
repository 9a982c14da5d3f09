import type { HealthReport } from '../admin/operator.ts';
import { registerVerifyPing } from '../admin/verify-ping.ts';
import { LINKS_GO_NOWHERE, linksGoNowhere } from '../cli/links.ts';
import type { Exporter } from '../exporter/exporter.ts';
import type { ExporterState } from '../exporter/messages.ts';
import { type Dependency, type Readiness, readinessOf, registerHealth } from '../http/health.ts';
import { stateOf } from '../store/disk/lazy-journal.ts';
import type { Common } from './common.ts';
import type { Gateway } from './data-plane.ts';
import type { Front } from './front.ts';
import type { Kept } from './runtime.ts';
import type { Shared } from './shared.ts';
import type { Spools } from './spools.ts';
import type { Stores } from './stores.ts';

/** A feed that was not read for so long is late: they are promised within a second. */
const FEED_MS = 5_000;

interface Parts {
  readonly stores: Stores;
  readonly shared: Shared;
  readonly spools: Spools;
  readonly kept: Kept;
  readonly front: Front;
}

/** Registers the probes; what they say is asked for anew each time. */
export function openProbes({ config, clock, log, lifecycle, version }: Common, parts: Parts): () => Promise<Readiness> {
  const { stores, shared, spools, kept, front } = parts;
  const { journal, settlements } = spools;
  const { redis } = shared;
  const dependencies: Dependency[] = [
    { name: 'store', needed: true, check: () => stores.tables.ping() },
    { name: 'logs', needed: true, check: () => stores.logs.ping() },
    { name: 'feed', needed: false, check: () => kept.watch.age() < FEED_MS },
    { name: 'spool', needed: config.unrecorded === 'refuse', check: () => !journal.failing },
    { name: 'usage_spool', needed: false, check: () => !settlements.state.failing },
    ...(redis === null ? [] : [{ name: 'redis', needed: false, check: () => redis.ping() }]),
  ];
  const readiness = () => readinessOf(dependencies, clock);
  registerVerifyPing(front.app, {
    controlPlane: config.controlPlane,
    openHttp: async () => lifecycle.own('pings', (await import('../http/operator-http.ts')).operatorHttp()),
    clock,
    log,
  });
  registerHealth(front.app, { readiness, draining: () => front.draining, version });
  return readiness;
}

/** The state of this node for the operator. */
export function healthReport(
  { config, version }: Common,
  parts: Parts & {
    readonly gateway: Gateway;
    readonly exporter: Exporter | null;
    readonly readiness: () => Promise<Readiness>;
  },
): HealthReport {
  const { stores, shared, spools, kept, front, gateway, exporter, readiness } = parts;
  const { tables, storeClock } = stores;
  const { journal, recorder, shipper, settlements } = spools;
  return async () => {
    const { ready, dependencies } = await readiness();
    const ok = (name: string) => dependencies[name] !== 'away';
    return {
      ready: ready && !front.draining,
      dependencies,
      store: { engine: tables.engine, row_security: tables.rowSecurity, ok: ok('store') },
      logs: { ok: ok('logs') },
      counters: { kind: shared.redis === null ? 'memory' : 'redis', ok: ok('redis') },
      clock: { ahead_of_store_ms: storeClock.skew() },
      feed: { age_ms: Math.round(kept.watch.age()), ok: ok('feed') },
      spool: {
        ...stateOf(journal),
        dropped: journal.dropped + recorder.givenUp,
        when_failing: config.unrecorded,
        ...shipper.stats,
      },
      usage_spool: settlements.state,
      telemetry: exporter === null ? null : telemetryOf(await exporter.state()),
      in_flight: gateway.services.inFlight.count,
      body_bytes: gateway.services.bodies.held,
      warnings: linksGoNowhere(config) ? [LINKS_GO_NOWHERE] : [],
      versions: { sluice: version, node: process.versions.node },
    };
  };
}

/** Records that were sent and not, and why the last ones were not; nulls where the process does not answer. */
function telemetryOf(state: ExporterState | null): object {
  const { traces, waitingBytes = null } = state ?? {};
  const { sent = null, refused = null, lost = null } = traces ?? {};
  const failure = state === null ? 'the process that sends telemetry does not answer' : (traces?.failure ?? null);
  return { ok: failure === null, sent, refused, lost, waiting_bytes: waitingBytes, failure };
}
