import { type ConsoleDeps, registerConsole } from '../admin/console.ts';
import { CONSOLE_DIST } from '../admin/console-dist.ts';
import { registerDocs } from '../admin/docs.ts';
import { registerExportFiles } from '../admin/export-files.ts';
import { type AdminDeps, registerAdmin } from '../admin/handle.ts';
import { Invitations } from '../admin/invitations.ts';
import { MailedLinks } from '../admin/mailed-links.ts';
import { LimitedMails } from '../admin/mails.ts';
import { buildOpenApi } from '../admin/openapi.ts';
import { type HealthReport, registerOperator } from '../admin/operator.ts';
import { createAdminLimiter } from '../admin/rate-limit.ts';
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
import { openOutbox } from '../mail/outbox.ts';
import { OPERATIONS } from '../operations/operation.ts';
import { MAILS } from '../resources/admin/mails.ts';
import { ACTIONS } from '../resources/catalog.ts';
import { GATEWAYS } from '../resources/deployments/ping.ts';
import { TRACES } from '../resources/feedback/traces.ts';
import { GUARDRAIL_INVOKER } from '../resources/guardrails/invoke.ts';
import { ACCOUNTS } from '../resources/integrations/accounts.ts';
import { DESTINATION_TRIALS } from '../resources/log-destinations/index.ts';
import { KEPT_BODIES } from '../resources/logs/bodies.ts';
import { ERASURES } from '../resources/logs/erasures/index.ts';
import { pendingErasures } from '../resources/logs/erasures/pending.ts';
import { EXPORTS } from '../resources/logs/exports/index.ts';
import { RECORDS } from '../resources/logs/index.ts';
import { CUSTOM_LOGS } from '../resources/logs/insert.ts';
import { KEPT_LOGS } from '../resources/logs/reach.ts';
import { SIMULATIONS } from '../resources/policies/simulation.ts';
import { SECRET_MANAGERS, type SecretManagers } from '../resources/secret-references/manager.ts';
import { Services } from '../resources/services.ts';
import { memoryCounters } from '../store/memory/counters.ts';
import type { StoredRecords } from '../store/ports.ts';
import { storedRecords } from '../telemetry/stored-records.ts';
import type { Common } from './common.ts';
import type { Gateway } from './data-plane.ts';
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
  const mails = openMails(common, parts);
  const { clock, config } = common;
  const { tables, vault } = parts.stores;
  const records = storedRecords(
    parts.spools.logs.store,
    config.logDays,
    () => clock.now(),
    (organisationId) => tables.read(systemTenant(organisationId), (tx) => pendingErasures(tx, vault)),
  );
  const deps = adminDeps(common, parts, records, mails);
  await registerAdmin(app, deps);
  registerOperator(app, { ...deps, health: parts.health });
  registerExportFiles(app, { ...deps, blobs: parts.training.services.blobs });
  registerDocs(app, () => buildOpenApi(ACTIONS, common.version, dataPlanePaths()));
  await registerConsole(app, consoleDeps(common, parts, records, mails));
}

function openMails({ clock, log, lifecycle }: Common, { stores, shared, mailer }: Parts): LimitedMails | null {
  if (mailer === null) return null;
  const { counters, share } = shared;
  const { post } = lifecycle.own('mails', openOutbox({ mailer, clock, log }));
  return new LimitedMails({ counters, local: share?.counters ?? counters, clock: stores.storeClock, log, post });
}

function adminDeps(common: Common, parts: Parts, records: StoredRecords, mails: LimitedMails | null): AdminDeps {
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
    checkHost: (host) => hostFault(egress, host),
    bodies: gateway.services.bodies,
    stopping: front.stopping,
    async caughtUp() {
      await kept.watch.catchUp();
      kept.runtime.settle();
    },
    services: servicesOf(common, parts, records, mails),
  };
}

function servicesOf(
  { config, clock, version }: Common,
  { stores, spools, kept, gateway, training, managers, wake, erasures }: Parts,
  records: StoredRecords,
  mails: LimitedMails | null,
): Services {
  const { outside, fetcher, pricer } = gateway.services;
  const services = new Services()
    .provide(GUARDRAIL_INVOKER, createGuardrailInvoker({ outside, clock }))
    .provide(GATEWAYS, gatewayPings({ fetcher, clock }))
    .provide(ACCOUNTS, { unowned: async (...asked) => (await training.open()).unowned(...asked) })
    .provide(SECRET_MANAGERS, managers)
    .provide(RECORDS, records)
    .provide(KEPT_LOGS, {
      store: spools.logs.store,
      days: config.logDays,
      erased: (tx) => pendingErasures(tx, stores.vault),
    })
    .provide(
      CUSTOM_LOGS,
      createCustomLogs({
        recorder: spools.recorder,
        snapshotOf: (...place) => kept.runtime.workspace(...place),
        pricer,
        clock,
        headerAliases: config.headerAliases,
      }),
    )
    .provide(KEPT_BODIES, { find: (place) => spools.logs.bodies.find(place), days: config.bodiesDays })
    .provide(DESTINATION_TRIALS, {
      run: async (...asked) => {
        const { trySample } = await import('../exporter/destinations/sample.ts');
        return trySample(...asked, { fetcher, clock, version });
      },
    })
    .provide(ERASURES, { wake: () => erasures?.wake() })
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
  return {
    audit: { clock, vault },
    log,
    sessions,
    invitations: new Invitations({ tables, vault, clock: storeClock, sessions }),
    mailedLinks: new MailedLinks({ tables, vault, clock: storeClock, log, random: cryptoRandom, publicUrl, mails }),
    addresses: { tables, vault, clock: storeClock, mails },
    records,
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
