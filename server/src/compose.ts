/**
 * The composition root: the only file that names concrete adapters. Opens everything in order, closes it in reverse,
 * and knows nothing about requests.
 */
import { mkdir, readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { registerConsole } from './admin/console.ts';
import { CONSOLE_DIST, isConsoleBuilt } from './admin/console-dist.ts';
import { registerDocs } from './admin/docs.ts';
import { registerAdmin } from './admin/handle.ts';
import { Invitations } from './admin/invitations.ts';
import { MailedLinks } from './admin/mailed-links.ts';
import { MailDesk } from './admin/mails.ts';
import { buildOpenApi } from './admin/openapi.ts';
import { registerOperator } from './admin/operator.ts';
import { createAdminLimiter } from './admin/rate-limit.ts';
import { refuse } from './admin/respond.ts';
import { createAuthenticator } from './auth/authenticator.ts';
import { ConsoleSessions } from './auth/console-session.ts';
import { systemTenant } from './auth/tenant.ts';
import { startWork, Training } from './background.ts';
import { LINKS_GO_NOWHERE, linksGoNowhere } from './cli/links.ts';
import { openTables } from './cli/stored-tables.ts';
import { type Config, cloudVariable, readCloudFile } from './config.ts';
import { type FirstRun, firstRun } from './first-run.ts';
import { createApp } from './http/app.ts';
import { BodyBudget, bodyMemory, FREE_BYTES } from './http/body-budget.ts';
import { createEgressGuard } from './http/egress-guard.ts';
import { createFetcher } from './http/fetcher.ts';
import { type Dependency, readinessOf, registerHealth } from './http/health.ts';
import { hostFault } from './http/host-fault.ts';
import { KnownPaths } from './http/known-paths.ts';
import { webhookPoster } from './http/post-webhook.ts';
import { createUpstream } from './http/upstream.ts';
import { startAlertDeliveries } from './jobs/alerts/deliver.ts';
import { startKeyRotation } from './jobs/key-rotation.ts';
import { createScheduler } from './jobs/scheduler.ts';
import { startUsageLimits } from './jobs/usage-limits.ts';
import { type Clock, holdFor, systemClock } from './kernel/clock.ts';
import { SluiceError } from './kernel/errors.ts';
import { Lifecycle } from './kernel/lifecycle.ts';
import type { Log } from './kernel/log.ts';
import { createNotes } from './kernel/notes.ts';
import { cryptoRandom } from './kernel/random.ts';
import { Shares } from './kernel/shares.ts';
import { createAdmission } from './limits/admission.ts';
import { settlementSink } from './limits/ledger/journal.ts';
import { createLedger } from './limits/ledger/ledger.ts';
import { createOutputs } from './limits/ledger/outputs.ts';
import { countLiveNodes } from './limits/live-nodes.ts';
import { createSimulationDesk } from './limits/simulation/desk.ts';
import { createAnswers } from './llm/cache/answers.ts';
import { createSimilar } from './llm/cache/similar.ts';
import { createGuardrailDesk } from './llm/guard/desk.ts';
import { outsideFactory } from './llm/guard/outside.ts';
import { createInner } from './llm/inner.ts';
import { registerModelPrices } from './llm/model-prices.ts';
import { dataPlanePaths } from './llm/openapi.ts';
import { run } from './llm/pipeline.ts';
import { type DataPlane, type Express, registerDataPlane } from './llm/routes.ts';
import { Breakers } from './llm/routing/breaker.ts';
import type { Services } from './llm/services.ts';
import { openOutbox } from './mail/outbox.ts';
import { smtpMailer } from './mail/smtp.ts';
import { OPERATIONS } from './operations/operation.ts';
import { createPricer } from './pricing/pricer.ts';
import { createTokenCache } from './providers/token-cache.ts';
import { ACTIONS } from './resources/catalog.ts';
import { sealStored } from './resources/seal-stored.ts';
import { openUrl } from './resources/secret-url.ts';
import { createOwners } from './runtime/owners.ts';
import { createRuntime } from './runtime/runtime.ts';
import { startStoreClock } from './runtime/store-clock.ts';
import { startWatch } from './runtime/watch.ts';
import { adoptJournals } from './store/disk/adopt.ts';
import { openDataDir } from './store/disk/data-dir.ts';
import { openJournal } from './store/disk/journal.ts';
import { openLazyJournal, stateOf } from './store/disk/lazy-journal.ts';
import { openDiskScratch } from './store/disk/scratch.ts';
import { startShipper } from './store/disk/shipper.ts';
import { hasMasterKey, openVault } from './store/envelope.ts';
import { countersByClock } from './store/ipc/ipc.ts';
import { loadKeyring } from './store/keyring.ts';
import { memoryCache } from './store/memory/cache.ts';
import { memoryCounters } from './store/memory/counters.ts';
import type { Blobs, Counters, Feed, LogSink, StoredLog, TenantContext } from './store/ports.ts';
import { createAccessLog } from './telemetry/access-log.ts';
import { createRecorder, nodeRunId } from './telemetry/recorder.ts';
import { datasetShares } from './training/datasets/thread.ts';
import type { OpenTraining, SharedServices } from './training/open.ts';
import type { TrainingServices } from './training/services.ts';

/** Limits of calls where a config sets none: until the head of an answer, between two chunks of it. */
const HEADERS_MS = 60_000;
const IDLE_MS = 120_000;
/** Of a stream: from the call to its first content, and with nothing but signs of life. */
const FIRST_TOKEN_MS = 120_000;
const QUIET_MS = 600_000;
/** While draining, how often connections that became idle are closed. */
const SWEEP_MS = 50;
/** At the end, how long the journal may take to reach the store. */
const SHIP_MS = 5_000;
/** Largest input file of a batch. */
const MAX_BATCH_BYTES = 100 * 1024 * 1024;
/** Requests of all organisations together, on the smallest machine. */
const MIN_UNDER_WAY = 2_048;
/** The whole of one call of a webhook. */
const WEBHOOK_MS = 10_000;
/** How soon what was used is in the books: until then it counts as reserved. */
const SETTLE_MS = 20;
/** Answers kept in a process that has no Redis. */
const CACHE_BYTES = 64 * 1024 * 1024;
/** Changes that nobody has looked for so long are late: they are promised within a second. */
const FEED_MS = 5_000;
const PACKAGE = new URL('../package.json', import.meta.url);

export interface Running {
  /** Where it listens, `http://127.0.0.1:8787`. */
  readonly url: string;
  readonly firstRun: FirstRun | null;
  /** Whether it serves a console: the role is `admin`, and it is built. */
  readonly console: boolean;
  /**
   * Not ready at once; listens `noticeMs` longer; then runs what is left for at most `drainMs` in all, cuts the rest
   * with an error event, writes every record and closes the stores.
   */
  stop(options: { readonly noticeMs: number; readonly drainMs: number }): Promise<void>;
  /** Stored records of a workspace, newest first, once all that were written before have arrived in the store. */
  records(organisationId: string, workspaceId: string): Promise<StoredLog[]>;
  /** Stored records of all tenants, in the same sense. */
  recordCount(): Promise<number>;
  /** Everything that is bounded for all organisations together, and what each of them has of it. */
  readonly shares: readonly Shares[];
  /** Shortens a running drain to `ms` from now. */
  hurry(ms: number): void;
}

/** One process among those that share the port. */
export interface WorkerRole {
  /** From 1; the first one makes the first run and adopts what processes that are no more have left behind. */
  readonly index: number;
  /** What the primary process holds for all; null when this process is alone. */
  readonly shared: { readonly counters: Counters; readonly feed: Feed } | null;
}

/** What tests put in the place of the data plane's own, and where lines of the access log go: nowhere when absent. */
export type Given = Partial<Pick<Services, 'clock' | 'random'>> & { readonly writeAccess?: (lines: string) => void };

const ALONE: WorkerRole = { index: 1, shared: null };

function journalName(index: number): string {
  return index === 1 ? 'journal' : `journal-${index}`;
}

/** What requests used under usage limits, on its way into the books. */
function ledgerName(index: number): string {
  return index === 1 ? 'ledger' : `ledger-${index}`;
}

async function openLogs(config: Config, log: Log): Promise<LogSink> {
  if (config.databaseUrl === null) {
    const { openSqliteLogs } = await import('./store/sqlite/logs.ts');
    return openSqliteLogs({ file: join(config.dataDir, 'logs.db'), log });
  }
  const { openPostgresLogs } = await import('./store/postgres/logs.ts');
  return openPostgresLogs({ url: config.databaseUrl, log });
}

async function openBlobs(config: Config, clock: Clock, log: Log): Promise<Blobs> {
  if (config.blobs === null) {
    const { openDiskBlobs } = await import('./store/disk/blobs.ts');
    return openDiskBlobs({ dir: config.dataDir, clock, reserveBytes: config.diskReserve });
  }
  const { openS3Blobs } = await import('./store/s3/blobs.ts');
  return openS3Blobs({ ...config.blobs, clock, log });
}

/** Counters that the processes of this machine share, or this process alone has. */
function countersOfMachine({ shared }: WorkerRole, windows: Clock, machine: Clock): Counters {
  return shared === null ? memoryCounters({ clock: windows }) : countersByClock(shared.counters, windows, machine);
}

async function openShared(config: Config, log: Log, clock: Clock) {
  if (config.redisUrl === null) return null;
  const { openRedis } = await import('./store/redis/redis.ts');
  return openRedis({ url: config.redisUrl, log, clock });
}

/** Opens the stores, starts the jobs and listens. Whatever fails closes what was opened before. */
export async function compose(
  config: Config,
  log: Log,
  worker: WorkerRole = ALONE,
  given: Given = {},
): Promise<Running> {
  const lifecycle = new Lifecycle();
  try {
    return await open(config, log, lifecycle, worker, given);
  } catch (error) {
    await lifecycle
      .close()
      .catch((closing: unknown) => log.error('closing after a failed start failed', { error: String(closing) }));
    throw error;
  }
}

async function open(
  config: Config,
  log: Log,
  lifecycle: Lifecycle,
  worker: WorkerRole,
  given: Given,
): Promise<Running> {
  const clock = systemClock;
  const { writeAccess, ...parts } = given;
  const { accessLog: mode, logFormat: format } = config;
  const made = writeAccess === undefined ? null : createAccessLog({ mode, format, clock, write: writeAccess });
  const accessLog = made === null ? null : lifecycle.own('access log', made);
  const notes = createNotes(log, clock);
  const { version } = JSON.parse(await readFile(PACKAGE, 'utf8')) as { version: string };
  const dataDir = lifecycle.own('data directory', await openDataDir(config.dataDir, { lock: worker.shared === null }));
  const tables = lifecycle.own('control store', await openTables(config, log));
  await tables.migrate();
  const storeClock = lifecycle.own('store clock', await startStoreClock({ tables, clock, log }));
  const logs = lifecycle.own('log store', await openLogs(config, log));
  await logs.migrate();
  const keyring = await loadKeyring({
    ...(config.masterKey === null ? {} : { masterKey: config.masterKey }),
    masterKeyFile: config.masterKeyFile,
    create: !(await hasMasterKey(tables)),
  });
  const vault = lifecycle.own('vault', openVault({ keyring, tables, clock }));
  await vault.verify();
  await sealStored(tables, vault, log);

  const shared = await openShared(config, log, storeClock);
  const redis = shared === null ? null : lifecycle.own('redis', shared);
  const counters = redis?.counters ?? lifecycle.own('counters', countersOfMachine(worker, storeClock, clock));
  // With Redis away every node admits its share of a limit.
  const share =
    redis === null
      ? null
      : {
          counters: memoryCounters({ clock: storeClock }),
          nodes: lifecycle.own('live nodes', countLiveNodes({ counters, clock: storeClock })),
        };
  const feed: Feed | null = redis?.feed ?? worker.shared?.feed ?? null;

  const spool = join(config.dataDir, 'spool');
  await mkdir(spool, { recursive: true, mode: 0o700 });
  const journalDir = join(spool, journalName(worker.index));
  const journal = lifecycle.own('journal', await openJournal({ dir: journalDir, clock, log }));
  const shipper = lifecycle.own('shipper', startShipper({ dir: journalDir, journal, sink: logs, clock, log }));

  const books = settlementSink({ tables, clock });
  const ledgerDir = join(spool, ledgerName(worker.index));
  const settlements = lifecycle.own(
    'ledger journal',
    await openLazyJournal({ dir: ledgerDir, sink: books, clock, log, everyMs: SETTLE_MS }),
  );

  if (worker.index === 1) {
    const { workers } = config;
    lifecycle.own('adopted journals', adoptJournals(spool, /^journal-(\d+)$/, { workers, sink: logs, clock, log }));
    lifecycle.own('adopted ledgers', adoptJournals(spool, /^ledger-(\d+)$/, { workers, sink: books, clock, log }));
  }

  let url = '';
  let draining = false;
  let listening: AddressInfo | null = null;
  const publicUrl = () => config.publicUrl ?? url;

  const guard = createEgressGuard({
    trustedHosts: config.trustedHosts,
    ownListeners: () => (listening === null ? [] : [{ address: listening.address, port: listening.port }]),
    clock,
    log,
    notes,
  });
  const upstream = lifecycle.own('upstream', createUpstream({ guard, clock }));
  const authenticator = createAuthenticator({ tables, clock: storeClock, log });
  const runtime = createRuntime({ tables, vault, clock, log, blockInlineConfig: config.blockInlineConfig });
  const sessions = new ConsoleSessions({ tables, clock: storeClock, publicUrl });
  const watch = lifecycle.own(
    'change feed',
    await startWatch({
      tables,
      feed,
      clock,
      log,
      apply: (changes) => {
        for (const change of changes) for (const one of [authenticator, runtime, sessions]) one.invalidate(change);
      },
      missed: () => {
        for (const one of [authenticator, runtime]) one.invalidateAll();
        sessions.invalidate();
      },
      confirmed: (readAt) => authenticator.confirm(readAt),
    }),
  );

  const express: Express = new Map();
  const paths = new KnownPaths(publicUrl);
  const app = createApp({
    clock,
    express,
    headerAliases: config.headerAliases,
    trustedProxies: config.trustedProxies,
    paths,
    refuse: (request, response, error) => refuse(request, response, error, log, accessLog),
    draining: () => draining,
  });
  const dependencies: Dependency[] = [
    { name: 'store', needed: true, check: () => tables.ping() },
    { name: 'logs', needed: true, check: () => logs.ping() },
    { name: 'feed', needed: false, check: () => watch.age() < FEED_MS },
    { name: 'spool', needed: config.unrecorded === 'refuse', check: () => !journal.failing },
    { name: 'usage_spool', needed: false, check: () => !settlements.state.failing },
    ...(redis === null ? [] : [{ name: 'redis', needed: false, check: () => redis.ping() }]),
  ];
  const readiness = () => readinessOf(dependencies, clock);
  registerHealth(app, { readiness, draining: () => draining, version });

  const pricer = createPricer();
  const roles = config.roles;
  registerModelPrices(app, { pricer, clock });
  const ledger = lifecycle.own(
    'usage limits',
    createLedger({
      tables,
      journal: settlements.open,
      clock: storeClock,
      log,
      node: nodeRunId(dataDir.nodeId, clock, worker.index),
    }),
  );
  const recorder = createRecorder(nodeRunId(dataDir.nodeId, clock, worker.index), journal);
  let runLine: TrainingServices['runLine'] | null = null;
  const blobs = lifecycle.own('blobs', await openBlobs(config, clock, log));
  const training: SharedServices = {
    tables,
    blobs,
    scratch: await openDiskScratch({
      dir: join(config.dataDir, 'scratch'),
      clock,
      reserveBytes: config.diskReserve,
    }),
    clock,
    log,
    guard,
    fetcher: lifecycle.own('calls off the hot path', createFetcher({ guard, clock })),
    runtime,
    pricer,
    tokens: createTokenCache(() => clock.now()),
    ambient: config.cloudIdentity ? { variable: cloudVariable, file: readCloudFile } : null,
    node: `${dataDir.nodeId}-${worker.index}`,
    // Made below, because it needs the data plane, which needs this object.
    runLine: (line) =>
      runLine === null
        ? Promise.reject(new SluiceError('gateway_unavailable', 'The server is still starting.'))
        : runLine(line),
    recordOnce: (key, draft) => new Promise((resolve) => recorder.once(key, draft, resolve)),
    maxUploadBytes: config.maxUploadBytes,
    maxBatchBytes: MAX_BATCH_BYTES,
    settings: { concurrency: config.batchConcurrency },
    filesQuota: config.filesQuota,
  };
  const scheduler = roles.has('jobs') ? createScheduler({ tables, clock, log, node: training.node }) : null;
  const own = lifecycle.own('files, batches and jobs', new Training(training, (id) => scheduler?.wake(id)));
  const bodies = new BodyBudget(Math.max(4 * config.maxBodyBytes, bodyMemory(config.workers)), clock);
  // As many as have room for a body that is not counted.
  const underWay = new Shares(
    'requests under way',
    Math.max(MIN_UNDER_WAY, Math.floor(bodies.shares.max / FREE_BYTES)),
  );
  let dataPlane: DataPlane | null = null;
  const cache = redis?.cache ?? lifecycle.own('cache', memoryCache({ clock, maxBytes: CACHE_BYTES }));
  const gateway: Services = {
    authenticator,
    runtime,
    guard,
    paths,
    upstream,
    fetcher: training.fetcher,
    tokens: training.tokens,
    ambient: training.ambient ?? null,
    recorder,
    pricer,
    admission: createAdmission({ counters, share, clock: storeClock, log }),
    ledger,
    outputs: createOutputs(),
    cache,
    breakers: new Breakers(given.clock ?? clock),
    answers: createAnswers({
      cache,
      similar: createSimilar({ tables, clock: storeClock, log }),
      log,
    }),
    runInner: (x) => dataPlane?.runInner(x) ?? run(x),
    unpriced: config.unpriced,
    unrecorded: config.unrecorded,
    owners: lifecycle.own('owners of objects', createOwners({ tables, clock: storeClock })),
    objects: own,
    outside: (organisationId) => outsideFactory({ fetcher: training.fetcher, guard, clock, organisationId }),
    clock,
    random: cryptoRandom,
    ...parts,
    storeClock,
    log,
    notes,
    accessLog,
    maxBodyBytes: config.maxBodyBytes,
    bodies,
    underWay,
    blockInlineConfig: config.blockInlineConfig,
    timeouts: { headersMs: HEADERS_MS, idleMs: IDLE_MS, firstTokenMs: FIRST_TOKEN_MS, quietMs: QUIET_MS },
  };
  dataPlane = roles.has('gateway') ? registerDataPlane(app, gateway, express) : null;
  // A node that only works in the background runs the lines of batches all the same.
  runLine = createInner({ services: gateway, tables, clock: storeClock, run: gateway.runInner });
  const mailer = config.smtp === null ? null : lifecycle.own('mail', smtpMailer(config.smtp));
  if (roles.has('admin')) {
    const outbox = mailer === null ? null : lifecycle.own('mails', openOutbox({ mailer, clock, log }));
    const local = share?.counters ?? counters;
    const mails = outbox === null ? null : new MailDesk({ counters, local, clock: storeClock, log, post: outbox.post });
    const admin = {
      mails,
      accessLog,
      paths,
      tables,
      vault,
      clock: storeClock,
      log,
      authenticator,
      sessions,
      publicUrl,
      version,
      limiter: createAdminLimiter(counters, storeClock, log, config.adminRequestsPerMinute),
      checkHost: (host: string) => hostFault(guard, host),
      caughtUp: () => watch.catchUp(),
      guardrails: createGuardrailDesk({ outside: gateway.outside, clock }),
      accounts: {
        unowned: async (...asked: Parameters<OpenTraining['unowned']>) => (await own.open()).unowned(...asked),
      },
      records: {
        async find(tenant: TenantContext, id: string) {
          const found = await logs.find(tenant, id);
          if (found !== null) return found;
          await shipper.drain();
          return logs.find(tenant, id);
        },
      },
      simulations: createSimulationDesk({ logs, countersFor: (time) => memoryCounters({ clock: time }) }),
      health: async () => {
        const { ready, dependencies: states } = await readiness();
        const ok = (name: string) => states[name] !== 'away';
        return {
          ready: ready && !draining,
          dependencies: states,
          store: { engine: tables.engine, row_security: tables.rowSecurity, ok: ok('store') },
          logs: { ok: ok('logs') },
          counters: { kind: redis === null ? 'memory' : 'redis', ok: ok('redis') },
          clock: { ahead_of_store_ms: storeClock.skew() },
          feed: { age_ms: Math.round(watch.age()), ok: ok('feed') },
          spool: {
            ...stateOf(journal),
            dropped: journal.dropped + recorder.givenUp,
            when_failing: config.unrecorded,
            ...shipper.stats,
          },
          usage_spool: settlements.state,
          in_flight: dataPlane?.inFlight ?? 0,
          body_bytes: bodies.held,
          warnings: linksGoNowhere(config) ? [LINKS_GO_NOWHERE] : [],
          versions: { sluice: version, node: process.versions.node },
        };
      },
    };
    await registerAdmin(app, admin);
    registerOperator(app, admin);
    registerDocs(app, () => buildOpenApi(ACTIONS, version, dataPlanePaths()));
    await registerConsole(app, {
      audit: { clock, vault },
      log,
      sessions,
      invitations: new Invitations({ tables, vault, clock: storeClock, sessions }),
      mailedLinks: new MailedLinks({ tables, vault, clock: storeClock, log, random: cryptoRandom, publicUrl, mails }),
      addresses: { tables, vault, clock: storeClock, mails },
      logs,
      publicUrl,
      dist: CONSOLE_DIST,
      tryRequest: (request, reply, principal, body) => {
        if (dataPlane === null)
          throw new SluiceError('not_found', 'This node does not serve the data plane (SLUICE_ROLES).');
        reply.hijack();
        return dataPlane.runAs(principal, OPERATIONS.chat, request.raw, reply.raw, body);
      },
    });
  }

  await app.listen({ host: config.host, port: config.port });
  const address = app.server.address();
  if (address === null || typeof address === 'string')
    throw new SluiceError('internal', 'The server does not listen on a port.');
  listening = address;
  url = `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`;
  const first =
    roles.has('admin') && worker.index === 1
      ? await firstRun({
          tables,
          clock,
          dataDir: config.dataDir,
          publicUrl: publicUrl(),
          blockInlineConfig: config.blockInlineConfig,
          console: isConsoleBuilt(),
        })
      : null;
  if (first !== null) await watch.catchUp();
  if (scheduler !== null) startWork(lifecycle, scheduler, own, training, { ...config, logs, macs: vault });
  if (roles.has('jobs')) {
    const rotation = startKeyRotation({ tables, clock, log, macs: vault, node: training.node });
    lifecycle.own('key rotation', rotation);
    const { node, fetcher } = training;
    lifecycle.own('usage limits in time', startUsageLimits({ tables, clock, log, macs: vault, node, publicUrl }));
    const post = webhookPoster({ fetcher, clock, limitMs: WEBHOOK_MS });
    const open = (organisationId: string, url: string) => openUrl(vault, systemTenant(organisationId), url);
    const deliveries = startAlertDeliveries({ tables, clock, log, macs: vault, open, node, mailer, post });
    lifecycle.own('alert deliveries', deliveries);
  }
  // The price list takes 45 ms to load: better now than within somebody's request.
  setImmediate(() => pricer.warm());

  let deadline: (() => void) | null = null;
  return {
    url,
    firstRun: first,
    shares: [bodies.shares, underWay, upstream.pools, ...datasetShares],
    console: roles.has('admin') && isConsoleBuilt(),
    async records(organisationId, workspaceId) {
      await shipper.drain();
      return (await logs.list(systemTenant(organisationId, workspaceId), { limit: 1000 })).rows;
    },
    async recordCount() {
      await shipper.drain();
      return logs.count();
    },
    hurry(ms) {
      clock.after(ms, () => deadline?.());
    },
    async stop({ noticeMs, drainMs }) {
      draining = true;
      // Others take the work over while requests still run here.
      const workEnded = scheduler?.close();
      if (noticeMs > 0) await new Promise<void>((resolve) => holdFor(clock, noticeMs, resolve));
      let open = true;
      const closed = app.close().then(() => {
        open = false;
      });
      // A kept-alive connection whose last request has ended would hold the server open for its idle time.
      const sweep = () => {
        app.server.closeIdleConnections();
        if (open) holdFor(clock, SWEEP_MS, sweep);
      };
      sweep();
      const expired = new Promise<void>((resolve) => {
        deadline = resolve;
        clock.after(Math.max(0, drainMs - noticeMs), resolve);
      });
      await Promise.race([closed, expired]);
      dataPlane?.cut(new SluiceError('gateway_unavailable', 'Sluice is shutting down; send the request again.'));
      const cutBy = clock.monotonic() + 2_000;
      while ((dataPlane?.inFlight ?? 0) > 0 && clock.monotonic() < cutBy)
        await new Promise<void>((resolve) => holdFor(clock, 10, resolve));
      app.server.closeAllConnections();
      await closed;
      await workEnded;
      await Promise.all([journal.sync(), settlements.sync()]);
      // What is not in the store by then is shipped by the next start.
      await Promise.race([
        Promise.all([shipper.drain(), settlements.drain()]),
        new Promise<void>((resolve) => clock.after(SHIP_MS, resolve)),
      ]);
      await lifecycle.close();
    },
  };
}
