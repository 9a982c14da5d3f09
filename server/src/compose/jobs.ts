/** Work beside requests: what falls due, what one node does for all, and what leaves for webhooks and mail addresses. */
import { purgeIdempotencyKeys } from '../admin/idempotency.ts';
import { systemTenant } from '../auth/tenant.ts';
import type { Config } from '../config.ts';
import { webhookPoster } from '../http/post-webhook.ts';
import { startAlertDeliveries } from '../jobs/alerts/deliver.ts';
import type { trafficWatch, WatchOptions } from '../jobs/alerts/watch-traffic.ts';
import { forgetBodies } from '../jobs/body-retention.ts';
import { startKeyRotation } from '../jobs/key-rotation.ts';
import { startLeader } from '../jobs/leader.ts';
import { forget, forgetOld } from '../jobs/retention.ts';
import type { Scheduler } from '../jobs/scheduler.ts';
import { turnUsageWindows } from '../jobs/turn-usage-windows.ts';
import { purgeVectors } from '../llm/cache/semantic-cache.ts';
import type { Mailer } from '../mail/mailer.ts';
import { openUrl } from '../resources/secret-url.ts';
import type { RunInternalCall } from '../runtime/internal-call.ts';
import { purgeOwners } from '../runtime/owners.ts';
import type { Common } from './common.ts';
import type { Front } from './front.ts';
import { startLogExports } from './log-exports.ts';
import type { Spools } from './spools.ts';
import type { Stores } from './stores.ts';
import type { Training } from './training.ts';

/** Rows one process works on at the same time: jobs mostly wait for their provider, batches mostly call it. */
const JOBS_AT_ONCE = 16;
const BATCHES_AT_ONCE = 8;
const USAGE_AT_ONCE = 4;
const SWEEP_FILES_MS = 60 * 60_000;
const SWEEP_ANSWERS_MS = 5 * 60_000;
const FORGET_OLD_MS = 60 * 60_000;
const WATCH_MS = 60_000;
/** The whole of one call of a webhook. */
const WEBHOOK_MS = 10_000;

interface Parts {
  readonly stores: Stores;
  readonly spools: Spools;
  readonly front: Front;
  readonly training: Training;
  readonly mailer: Mailer | null;
  readonly runLine: RunInternalCall;
}

/** Starts the work of a `jobs` node. */
export function startJobs(common: Common, parts: Parts, scheduler: Scheduler): void {
  startLogExports(common, parts, scheduler);
  startDueWork(common, parts, scheduler);
  startCleanUp(common, parts);
  const { clock, log, lifecycle } = common;
  const { stores, spools, front, training, mailer } = parts;
  const { tables, vault: macs, node } = stores;
  const basics = { tables, clock, log, macs, node };
  const { fetcher } = training.services;
  const post = webhookPoster({ fetcher, clock, limitMs: WEBHOOK_MS });
  const open = (organisationId: string, url: string) => openUrl(macs, systemTenant(organisationId), url);
  lifecycle.own('key rotation', startKeyRotation(basics));
  lifecycle.own('usage limits in time', turnUsageWindows({ ...basics, publicUrl: () => front.publicUrl() }));
  const watched = new WatchedTraffic({ ...basics, publicUrl: () => front.publicUrl(), logs: spools.logs.store });
  lifecycle.own(
    'traffic alerts',
    startLeader({ ...basics, name: 'traffic-alerts', everyMs: WATCH_MS, lead: (signal) => watched.look(signal) }),
  );
  lifecycle.own('alert deliveries', startAlertDeliveries({ ...basics, open, mailer, post }));
}

/** Looks at watched traffic. What that needs is loaded for the first place that is watched. */
class WatchedTraffic {
  readonly #options: WatchOptions;
  #opened: Promise<ReturnType<typeof trafficWatch>> | null = null;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  async look(signal: AbortSignal): Promise<void> {
    const { tables } = this.#options;
    if ((await tables.systemRead((tx) => tx.count('alert_watches'))) === 0) return;
    this.#opened ??= import('../jobs/alerts/watch-traffic.ts').then(({ trafficWatch }) => trafficWatch(this.#options));
    await (await this.#opened)(signal);
  }
}

/** Turns at jobs and batches that are due. */
function startDueWork({ lifecycle }: Common, { training, runLine }: Parts, scheduler: Scheduler): void {
  scheduler.add({
    table: 'training_jobs',
    concurrency: JOBS_AT_ONCE,
    run: async (claim) => (await training.open()).runJob(claim),
  });
  scheduler.add({
    table: 'batches',
    concurrency: BATCHES_AT_ONCE,
    run: async (claim) => (await training.open()).runBatch(claim, runLine),
  });
  scheduler.add({
    table: 'object_usage',
    concurrency: USAGE_AT_ONCE,
    run: async (claim) => (await training.open()).runUsage(claim),
  });
  lifecycle.own('due work', scheduler);
  scheduler.start();
}

/** Bodies are kept no longer than records. */
function daysOf({ bodiesDays, logDays }: Config): number {
  return logDays === 0 ? bodiesDays : Math.min(bodiesDays, logDays);
}

/** The clean-up that one node does for all. */
function startCleanUp({ config, clock, log, lifecycle }: Common, { stores, training }: Parts): void {
  const { tables, blobs, vault: macs, node } = stores;
  const { logDays, auditDays } = config;
  const lead = (what: string, name: string, everyMs: number, work: (signal: AbortSignal) => Promise<void>) =>
    lifecycle.own(what, startLeader({ tables, clock, log, node, name, everyMs, lead: work }));
  lead('file sweep', 'file-sweep', SWEEP_FILES_MS, async (signal) => {
    const kept = training.isOpen || (await tables.systemRead((tx) => tx.count('files'))) > 0;
    if (kept) await (await training.open()).sweep(signal);
  });
  lead('kept answers', 'kept-answers', SWEEP_ANSWERS_MS, async (signal) => {
    await purgeIdempotencyKeys(tables);
    await purgeVectors(tables);
    await forget({ tables, signal });
    await purgeOwners(tables);
  });
  lead('kept bodies', 'kept-bodies', FORGET_OLD_MS, (signal) =>
    forgetBodies({ tables, blobs, days: daysOf(config), signal }),
  );
  if (logDays === 0 && auditDays === 0) return;
  lead('old records', 'old-records', FORGET_OLD_MS, (signal) =>
    forgetOld({ tables, log, macs, logDays, auditDays, signal }),
  );
}
