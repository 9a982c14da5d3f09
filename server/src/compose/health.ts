import type { HealthReport } from '../admin/operator.ts';
import { registerVerifyPing } from '../admin/verify-ping.ts';
import { LINKS_GO_NOWHERE, linksGoNowhere } from '../cli/links.ts';
import type { Exporter } from '../exporter/exporter.ts';
import type { ExporterState } from '../exporter/messages.ts';
import { type Dependency, type Readiness, readinessOf, registerHealth } from '../http/health.ts';
import type { KeeperHealth } from '../keeper/keeper-client.ts';
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
    { name: 'logs', needed: false, check: async () => isWell(await spools.logs.keeper.health()) },
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

const isWell = ({ status, state }: KeeperHealth) => (status === 'resting' || status === 'running') && !state?.away;

/** The keeper of this machine's records, with the names of the API. */
function shownOf({ status, restarts, gaps, state }: KeeperHealth): Readonly<Record<string, unknown>> {
  const found = { status, restarts, missing_records: gaps };
  if (state === null) return found;
  const { tail, files, damagedFiles, damagedLines, rejected, rssMb, away } = state;
  return {
    ...found,
    records_in_no_file: tail,
    files,
    damaged_files: damagedFiles,
    damaged_lines: damagedLines,
    rejected_records: rejected,
    memory_mb: rssMb,
    ...(away === undefined ? {} : { store_failure: away }),
  };
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
  const { journal, recorder, settlements } = spools;
  const { keeper, journal: waiting } = spools.logs;
  return async () => {
    const [{ ready, dependencies }, logs] = await Promise.all([readiness(), keeper.health().catch(() => null)]);
    const ok = (name: string) => dependencies[name] !== 'away';
    return {
      ready: ready && !front.draining,
      dependencies,
      store: { engine: tables.engine, row_security: tables.rowSecurity, ok: ok('store') },
      logs: { ok: ok('logs'), lag_ms: Math.round(waiting.lag), keeper: logs === null ? null : shownOf(logs) },
      counters: { kind: shared.redis === null ? 'memory' : 'redis', ok: ok('redis') },
      clock: { ahead_of_store_ms: storeClock.skew() },
      feed: { age_ms: Math.round(kept.watch.age()), ok: ok('feed') },
      spool: {
        ...stateOf(journal),
        dropped: journal.dropped + recorder.givenUp,
        when_failing: config.unrecorded,
      },
      usage_spool: settlements.state,
      telemetry: exporter === null || !exporter.active ? null : telemetryOf(await exporter.state()),
      in_flight: gateway.services.inFlight.count,
      body_bytes: gateway.services.bodies.held,
      warnings: linksGoNowhere(config) ? [LINKS_GO_NOWHERE] : [],
      versions: { sluice: version, node: process.versions.node },
    };
  };
}

/** Of the log destinations together; null without any. */
function destinationsOf(state: ExporterState | null): object | null {
  const { destinations = null } = state ?? {};
  if (destinations === null) return null;
  const { states, waitingBytes } = destinations;
  const sum = (of: 'delivered' | 'failed' | 'lost' | 'waiting') => states.reduce((all, one) => all + one[of], 0);
  return {
    count: states.length,
    failing: states.filter(({ error }) => error !== null).length,
    ...{ delivered: sum('delivered'), failed: sum('failed'), lost: sum('lost'), waiting: sum('waiting') },
    waiting_bytes: waitingBytes,
  };
}

/** Records that were sent and not, and why the last ones were not; nulls where the process does not answer. */
function telemetryOf(state: ExporterState | null): object {
  const { traces, waitingBytes = null } = state ?? {};
  const { sent = null, refused = null, lost = null } = traces ?? {};
  const failure = state === null ? 'the process that sends telemetry does not answer' : (traces?.failure ?? null);
  return {
    ok: failure === null,
    ...{ sent, refused, lost, waiting_bytes: waitingBytes, failure },
    destinations: destinationsOf(state),
  };
}
