import { type ConsoleDeps, registerConsole } from '../admin/console.ts';
import { CONSOLE_DIST } from '../admin/console-dist.ts';
import { registerDocs } from '../admin/docs.ts';
import { registerExportFiles } from '../admin/export-files.ts';
import { type AdminDeps, registerAdmin } from '../admin/handle.ts';
import type { LimitedMails } from '../admin/mails.ts';
import { buildOpenApi } from '../admin/openapi.ts';
import { type HealthReport, registerOperator } from '../admin/operator.ts';
import { createAddressLimiter, createAdminLimiter } from '../admin/rate-limit.ts';
import { registerSignIn } from '../admin/sign-in.ts';
import type { SingleSignOn } from '../auth/sso.ts';
import { systemTenant } from '../auth/tenant.ts';
import { createCustomLogs } from '../gateway/custom-logs.ts';
import { gatewayPings } from '../http/gateway-pings.ts';
import { hostFault } from '../http/host-fault.ts';
import type { LogErasures } from '../jobs/log-erasures.ts';
import { SluiceError } from '../kernel/errors.ts';
import { cryptoRandom } from '../kernel/random.ts';
import { createSimulationRunner } from '../limits/simulation/simulation-runner.ts';
import { createGuardrailInvoker } from '../llm/guard/guardrail-invoker.ts';
import { dataPlanePaths } from '../llm/openapi.ts';
import type { DataPlane } from '../llm/routes.ts';
import type { Mailer } from '../mail/mailer.ts';
import { type OpenOAuth, registerOAuth } from '../oauth/routes.ts';
import { OPERATIONS } from '../operations/operation.ts';
import { MAILS } from '../resources/admin/mails.ts';
import { DOMAIN_PROOFS } from '../resources/admin/organisation/settings.ts';
import { ISSUERS } from '../resources/admin/organisation/sso-clients/index.ts';
import { AUDIT_CHECK } from '../resources/audit-logs/index.ts';
import { auditCheck } from '../resources/audit-logs/verify.ts';
import { ACTIONS } from '../resources/catalog.ts';
import { GATEWAYS } from '../resources/deployments/ping.ts';
import { TRACES } from '../resources/feedback/traces.ts';
import { GUARDRAIL_INVOKER } from '../resources/guardrails/invoke.ts';
import { ACCOUNTS } from '../resources/integrations/accounts.ts';
import { ACCOUNT_TRIALS } from '../resources/integrations/trial.ts';
import { RATE_COUNTERS } from '../resources/limits/index.ts';
import { DESTINATION_TRIALS } from '../resources/log-destinations/index.ts';
import { KEPT_BODIES } from '../resources/logs/bodies.ts';
import { fedDestinations } from '../resources/logs/erasures/destinations.ts';
import { ERASURES } from '../resources/logs/erasures/index.ts';
import { pendingErasures } from '../resources/logs/erasures/pending.ts';
import { EXPORTS } from '../resources/logs/exports/index.ts';
import { RECORDS } from '../resources/logs/index.ts';
import { CUSTOM_LOGS } from '../resources/logs/insert.ts';
import { KEPT_LOGS } from '../resources/logs/reach.ts';
import { SIMULATIONS } from '../resources/policies/simulation.ts';
import { SECRET_MANAGERS, type SecretManagers } from '../resources/secret-references/manager.ts';
import { Services } from '../resources/services.ts';
import { registerScim, SCIM_REQUESTS_PER_MINUTE } from '../scim/routes.ts';
import { memoryCounters } from '../store/memory/counters.ts';
import type { StoredRecords } from '../store/ports.ts';
import type { DestinationHost } from '../telemetry/log-destination.ts';
import { storedRecords } from '../telemetry/stored-records.ts';
import { accountTrials } from './account-trials.ts';
import type { Common } from './common.ts';
import type { Gateway } from './data-plane.ts';
import { parquetOf } from './exporter.ts';
import type { Front } from './front.ts';
import type { Kept } from './runtime.ts';
import type { Shared } from './shared.ts';
import type { Spools } from './spools.ts';
import type { Stores } from './stores.ts';
import { tracesOf } from './traces.ts';
import type { Training } from './training.ts';

interface Parts {
  readonly stores: Stores;
  readonly shared: Shared;
  readonly spools: Spools;
  readonly kept: Kept;
  readonly front: Front;
  readonly gateway: Gateway;
  readonly training: Training;
  readonly oauth: OpenOAuth;
  /** Null: no mail server is configured. */
  readonly mailer: Mailer | null;
  readonly managers: SecretManagers;
  readonly health: HealthReport;
  /** Tells this process's scheduler, when it has one, that a row was added or changed. */
  readonly wake: (id: string) => void;
  /** Of this process; null where another one of the machine has it. */
  readonly erasures: Pick<LogErasures, 'wake'> | null;
}

/** Registers the administration API, the routes of the operator, the reference and the console. */
export async function openAdmin(common: Common, parts: Parts): Promise<void> {
  const { app } = parts.front;
  const mails = await openMails(common, parts);
  const { clock, config } = common;
  const { tables, vault } = parts.stores;
  const records = storedRecords(
    parts.spools.logs.store,
    config.logDays,
    () => clock.now(),
    (organisationId) => tables.read(systemTenant(organisationId), (tx) => pendingErasures(tx, vault)),
  );
  const sso = lazySso(common, parts);
  const deps = adminDeps(common, parts, records, mails, sso);
  await registerAdmin(app, deps);
  const limiter = createAdminLimiter(parts.shared.counters, deps.clock, common.log, SCIM_REQUESTS_PER_MINUTE);
  registerScim(app, { ...deps, limiter, membersByUser: common.config.membersByUser });
  registerOperator(app, { ...deps, health: parts.health });
  registerExportFiles(app, { ...deps, blobs: parts.training.services.blobs });
  registerDocs(app, async () => {
    const [{ scimPaths }, { oauthPaths }, { ssoPaths }] = await Promise.all([
      import('../scim/openapi.ts'),
      import('../oauth/openapi.ts'),
      import('../oidc/openapi.ts'),
    ]);
    const paths = { ...dataPlanePaths(), ...scimPaths(), ...oauthPaths(), ...ssoPaths() };
    return buildOpenApi(ACTIONS, common.version, paths);
  });
  registerOAuth(app, { ...deps, open: parts.oauth });
  const page = consoleDeps(common, parts, records, mails);
  const { counters, share } = parts.shared;
  registerSignIn(app, {
    sessions: parts.kept.sessions,
    tables,
    vault,
    clock: deps.clock,
    log: common.log,
    publicUrl: page.publicUrl,
    mailedLinks: page.mailedLinks,
    sso,
    limiter: createAddressLimiter(counters, share?.counters ?? counters, deps.clock, common.log),
    paths: parts.front.paths,
    accessLog: common.accessLog,
  });
  await registerConsole(app, page);
}

async function openMails(
  { clock, log, lifecycle }: Common,
  { stores, shared, mailer }: Parts,
): Promise<LimitedMails | null> {
  if (mailer === null) return null;
  const { LimitedMails } = await import('../admin/mails.ts');
  const { openOutbox } = await import('../mail/outbox.ts');
  const { counters, share } = shared;
  const { post } = lifecycle.own('mails', openOutbox({ mailer, clock, log }));
  return new LimitedMails({ counters, local: share?.counters ?? counters, clock: stores.storeClock, log, post });
}

function adminDeps(
  common: Common,
  parts: Parts,
  records: StoredRecords,
  mails: LimitedMails | null,
  sso: () => Promise<SingleSignOn>,
): AdminDeps {
  const { config, log, accessLog } = common;
  const { stores, shared, kept, front, gateway } = parts;
  const { tables, vault, storeClock } = stores;
  const { egress } = gateway.services;
  return {
    accessLog,
    paths: front.paths,
    tables,
    vault,
    clock: storeClock,
    log,
    authenticator: kept.authenticator,
    sessions: kept.sessions,
    publicUrl: () => front.publicUrl(),
    limiter: createAdminLimiter(shared.counters, storeClock, log, config.adminRequestsPerMinute),
    checkHost: (host, rules) => hostFault(egress, host, rules),
    bodies: gateway.services.bodies,
    stopping: front.stopping,
    async caughtUp() {
      await kept.watch.catchUp();
      kept.runtime.settle();
    },
    services: servicesOf(common, parts, records, mails, sso),
  };
}

/** A provider has five seconds and 64 KB for each answer. */
const PROVIDER_CALLS = {
  storedCredential: true,
  httpsOnly: true,
  headersTimeoutMs: 5_000,
  idleMs: 5_000,
  totalMs: 5_000,
  maxBytes: 65_536,
  maxRedirects: 0,
} as const;

/** The way to identity providers, loaded with the first sign-in that goes there. */
function lazySso({ log }: Common, { stores, kept, gateway }: Parts): () => Promise<SingleSignOn> {
  const { tables, vault, storeClock } = stores;
  return once(async () =>
    (await import('../oidc/sign-in.ts')).openSingleSignOn({
      tables,
      vault,
      clock: storeClock,
      log,
      callsOf: (organisationId) => gateway.services.guardedFetch(organisationId, PROVIDER_CALLS),
      sessionsEnded: () => kept.sessions.invalidate(),
    }),
  );
}

/** What the first call opens, for all calls. */
function once<T>(open: () => Promise<T>): () => Promise<T> {
  const loaded: { opened?: Promise<T> } = {};
  return () => {
    loaded.opened ??= open();
    return loaded.opened;
  };
}

function servicesOf(
  { config, clock, version }: Common,
  { stores, shared, spools, kept, gateway, training, managers, wake, erasures }: Parts,
  records: StoredRecords,
  mails: LimitedMails | null,
  sso: () => Promise<SingleSignOn>,
): Services {
  const { outside, fetcher, pricer } = gateway.services;
  const services = new Services()
    .provide(GUARDRAIL_INVOKER, createGuardrailInvoker({ outside, clock }))
    .provide(GATEWAYS, gatewayPings({ fetcher, clock }))
    .provide(ACCOUNTS, { unowned: async (...asked) => (await training.open()).unowned(...asked) })
    .provide(ACCOUNT_TRIALS, accountTrials(gateway.plane))
    .provide(SECRET_MANAGERS, managers)
    .provide(DOMAIN_PROOFS, {
      isOnlyOrganisation: async () => (await stores.tables.systemRead((tx) => tx.count('organisations'))) === 1,
      txt: async (name) => (await import('../http/txt-records.ts')).txtRecords(clock, name),
    })
    .provide(ISSUERS, {
      discover: async (organisationId, issuer) => (await sso()).problemOf(organisationId, issuer),
    })
    .provide(RECORDS, records)
    .provide(RATE_COUNTERS, shared.counters)
    .provide(AUDIT_CHECK, auditCheck(stores.tables, stores.vault))
    .provide(KEPT_LOGS, {
      store: spools.logs.store,
      days: config.logDays,
      erased: (tx) => pendingErasures(tx, stores.vault),
    })
    .provide(
      CUSTOM_LOGS,
      createCustomLogs({
        recorder: spools.recorder,
        bodyLog: spools.bodyLog,
        snapshotOf: (...place) => kept.runtime.workspace(...place),
        pricer,
        clock,
        headerAliases: config.headerAliases,
      }),
    )
    .provide(KEPT_BODIES, {
      find: (place) => spools.logs.bodies.find(place),
      search: (...asked) => spools.logs.bodies.search(...asked),
      days: config.bodiesDays,
    })
    .provide(DESTINATION_TRIALS, {
      run: async (...asked) => {
        const { trySample } = await import('../exporter/destinations/sample.ts');
        const parquet: DestinationHost['parquet'] = (...of) => parquetOf(spools, ...of);
        return trySample(...asked, { fetcher, clock, version, parquet });
      },
    })
    .provide(ERASURES, {
      wake: () => erasures?.wake(),
      destinations: (organisationId, workspaceId) =>
        stores.tables.read(systemTenant(organisationId), (tx) => fedDestinations(tx, workspaceId)),
    })
    .provide(EXPORTS, { maxRows: config.exportMaxRows, wake })
    .provide(TRACES, tracesOf(records, stores.storeClock))
    .provide(SIMULATIONS, createSimulationRunner({ records, countersFor: (time) => memoryCounters({ clock: time }) }));
  return mails === null ? services : services.provide(MAILS, mails);
}

function consoleDeps(
  { clock, log }: Common,
  parts: Parts,
  records: StoredRecords,
  mails: LimitedMails | null,
): ConsoleDeps {
  const { stores, kept, front, gateway } = parts;
  const { tables, vault, storeClock } = stores;
  const { sessions } = kept;
  const publicUrl = () => front.publicUrl();
  // Loaded with the first invite and with the first link that is asked for.
  const invitations = once(async () => {
    const { Invitations } = await import('../admin/invitations.ts');
    return new Invitations({ tables, vault, clock: storeClock, sessions });
  });
  const mailedLinks = once(async () => {
    const { MailedLinks } = await import('../admin/mailed-links.ts');
    return new MailedLinks({ tables, vault, clock: storeClock, log, random: cryptoRandom, publicUrl, mails });
  });
  return {
    audit: { clock, vault },
    log,
    sessions,
    invitations: {
      look: async (...asked) => (await invitations()).look(...asked),
      accept: async (...asked) => (await invitations()).accept(...asked),
    },
    mailedLinks: {
      available: mails !== null,
      ask: async (...asked) => (await mailedLinks()).ask(...asked),
    },
    addresses: { tables, vault, clock: storeClock, mails },
    records,
    oauth: parts.oauth,
    publicUrl,
    dist: CONSOLE_DIST,
    tryRequest: tryThrough(gateway.plane),
  };
}

/** Requests of the console's own page, through the data plane of this node. */
function tryThrough(plane: DataPlane | null): ConsoleDeps['tryRequest'] {
  return (request, reply, principal, body) => {
    if (plane === null) throw new SluiceError('not_found', 'This node does not serve the data plane (SLUICE_ROLES).');
    reply.hijack();
    return plane.runAs(principal, OPERATIONS.chat, request.raw, reply.raw, body);
  };
}
