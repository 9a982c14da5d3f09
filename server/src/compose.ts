/**
 * The composition root: with the parts in `compose/` the only place that names concrete adapters. Opens everything in
 * order, closes it in reverse, and knows nothing about requests.
 */
import { readFile } from 'node:fs/promises';
import { isConsoleBuilt } from './admin/console-dist.ts';
import { openAdmin } from './compose/admin.ts';
import { clientDocuments } from './compose/client-documents.ts';
import type { Common, WorkerRole } from './compose/common.ts';
import { type GivenServices, openGateway } from './compose/data-plane.ts';
import { feedDestinations, openExporter, pushMetrics } from './compose/exporter.ts';
import { Front } from './compose/front.ts';
import { healthReport, openProbes } from './compose/health.ts';
import { startJobs } from './compose/jobs.ts';
import { startLogErasures } from './compose/log-erasures.ts';
import { openMetrics } from './compose/metrics.ts';
import { openRuntime } from './compose/runtime.ts';
import { secretManagers } from './compose/secrets.ts';
import { openShared } from './compose/shared.ts';
import { openSpools } from './compose/spools.ts';
import { type Stop, stopOf } from './compose/stop.ts';
import { openStores } from './compose/stores.ts';
import { openTraining } from './compose/training.ts';
import type { Config } from './config.ts';
import { type FirstRun, firstRun } from './first-run.ts';
import { createEgressGuard } from './http/egress-guard.ts';
import { createUpstream } from './http/upstream.ts';
import { createScheduler } from './jobs/scheduler.ts';
import type { KeeperClient } from './keeper/keeper-client.ts';
import { systemClock } from './kernel/clock.ts';
import type { FairShares } from './kernel/fair-shares.ts';
import { Lifecycle } from './kernel/lifecycle.ts';
import type { Log } from './kernel/log.ts';
import { createNotes } from './kernel/notes.ts';
import { registerModelPrices } from './llm/model-prices.ts';
import { smtpMailer } from './mail/smtp.ts';
import { oauthServer } from './oauth/routes.ts';
import { createPricer } from './pricing/pricer.ts';
import { PROVIDERS } from './providers/catalog.ts';
import { createAccessLog } from './telemetry/access-log.ts';
import { Metrics } from './telemetry/metrics/metrics.ts';
import { datasetShares } from './training/datasets/thread.ts';

const PACKAGE = new URL('../package.json', import.meta.url);

export interface Running extends Stop {
  /** Where it listens, `http://127.0.0.1:8787`. */
  readonly url: string;
  /** The own listener for metrics; null without one. */
  readonly metricsUrl: string | null;
  readonly firstRun: FirstRun | null;
  /** Whether it serves a console: the role is `admin`, and it is built. */
  readonly console: boolean;
  /** The keeper of this machine's records. */
  readonly logs: KeeperClient;
  /** Everything that is bounded for all organisations together, and what each of them has of it. */
  readonly shares: readonly FairShares[];
}

/** What tests put in the place of the data plane's own, and what the process around it wants. */
export type Given = GivenServices & {
  /** Where lines of the access log go: nowhere when absent. */
  readonly writeAccess?: (lines: string) => void;
  /** Called once when all is open, just before the first request can come. */
  readonly beforeListening?: () => void;
};

const ALONE: WorkerRole = { index: 1, shared: null, primary: null };

/** Opens the stores, starts the jobs and listens. Whatever fails closes what was opened before. */
export async function compose(
  config: Config,
  log: Log,
  worker: WorkerRole = ALONE,
  given: Given = {},
): Promise<Running> {
  const lifecycle = new Lifecycle();
  try {
    const { writeAccess, beforeListening, ...services } = given;
    return await open(await commonOf(config, log, lifecycle, worker, writeAccess), services, beforeListening);
  } catch (error) {
    await lifecycle
      .close()
      .catch((closing: unknown) => log.error('closing after a failed start failed', { error: String(closing) }));
    throw error;
  }
}

async function commonOf(
  config: Config,
  log: Log,
  lifecycle: Lifecycle,
  worker: WorkerRole,
  write: Given['writeAccess'],
): Promise<Common> {
  const clock = systemClock;
  const { accessLog: mode, logFormat: format } = config;
  const made = write === undefined ? null : createAccessLog({ mode, format, clock, write });
  const accessLog = made === null ? null : lifecycle.own('access log', made);
  const { version } = JSON.parse(await readFile(PACKAGE, 'utf8')) as { version: string };
  const workspaces = config.metricsLabels.has('workspace');
  const metrics = new Metrics({ providers: new Set(PROVIDERS.keys()), workspaces });
  return { config, log, notes: createNotes(log, clock), clock, lifecycle, worker, version, accessLog, metrics };
}

async function open(common: Common, given: GivenServices, beforeListening: Given['beforeListening']): Promise<Running> {
  const { config, log, notes, clock, lifecycle, worker } = common;
  const { roles } = config;
  const stores = await openStores(common);
  const { tables, node } = stores;
  const shared = await openShared(common, stores);
  const spools = await openSpools(common, stores, shared);
  const erasures = startLogErasures(common, stores, spools);
  const exporter = await openExporter(common);
  const front = new Front(common);
  const egress = createEgressGuard({
    trustedHosts: config.trustedHosts,
    ownListeners: () => front.listeners(),
    clock,
    log,
    notes,
  });
  const upstream = lifecycle.own('upstream', createUpstream({ egress, clock }));
  const managers = secretManagers(common, egress);
  const kept = await openRuntime(common, stores, shared, front, managers, egress);
  const readiness = openProbes(common, { stores, shared, spools, kept, front });
  const pricer = createPricer();
  registerModelPrices(front.app, { pricer, clock });
  const scheduler = roles.has('jobs') ? createScheduler({ tables, clock, log, node }) : null;
  const wake = (id: string) => scheduler?.wake(id);
  const training = await openTraining(common, stores, {
    egress,
    runtime: kept.runtime,
    pricer,
    recorder: spools.recorder,
    wake,
  });
  const oauth = oauthServer(
    {
      tables,
      vault: stores.vault,
      counters: shared.counters,
      clock: stores.storeClock,
      log,
      sessions: kept.sessions,
      publicUrl: () => front.publicUrl(),
      documents: clientDocuments(common, front, { fetcher: training.services.fetcher, egress }),
    },
    kept.follow,
  );
  const planes = { stores, shared, spools, kept, front, training, oauth };
  const gateway = openGateway(common, { ...planes, egress, upstream, pricer, given });
  const mailer = config.smtp === null ? null : lifecycle.own('mail', smtpMailer(config.smtp));
  const metrics = openMetrics(common, { ...planes, gateway, exporter });
  pushMetrics(common, exporter, () => metrics.families());
  const health = healthReport(common, { ...planes, gateway, exporter, readiness });
  if (roles.has('admin')) await openAdmin(common, { ...planes, gateway, mailer, managers, health, wake, erasures });

  // The price list takes 45 ms to load: better now than while requests wait.
  pricer.warm();
  beforeListening?.();
  await front.listen(config.host, config.port);
  const metricsUrl = await metrics.listen();
  await feedDestinations(common, { stores, spools, kept, front, exporter });
  const console = roles.has('admin') && isConsoleBuilt();
  const { dataDir, blockInlineConfig } = config;
  const first =
    roles.has('admin') && worker.index === 1
      ? await firstRun({ tables, clock, dataDir, publicUrl: front.publicUrl(), blockInlineConfig, console })
      : null;
  if (first !== null) await kept.watch.catchUp();
  if (scheduler !== null) startJobs(common, { ...planes, mailer, runLine: gateway.runLine }, scheduler);
  return {
    url: front.url(),
    metricsUrl,
    firstRun: first,
    shares: [gateway.services.bodies.shares, gateway.services.concurrency, upstream.pools, ...datasetShares],
    console,
    logs: spools.logs.keeper,
    ...stopOf(common, { front, gateway, spools, scheduler }),
  };
}
