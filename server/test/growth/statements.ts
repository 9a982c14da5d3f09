/**
 * Every statement that the store is sent while the whole product is used: all administration routes by several callers,
 * requests, files, batches, jobs, sign-ins, and all that runs by itself. A new statement is seen because it is sent.
 */
import { purgeIdempotencyKeys } from '../../src/admin/idempotency.ts';
import { createAuthenticator } from '../../src/auth/authenticator.ts';
import { ConsoleSessions } from '../../src/auth/console-session.ts';
import { systemTenant } from '../../src/auth/tenant.ts';
import { removeOld } from '../../src/jobs/alerts/deliver.ts';
import { raiseAlerts } from '../../src/jobs/alerts/raise.ts';
import { trafficWatch } from '../../src/jobs/alerts/watch-traffic.ts';
import { dueRows, freeRows, nextDue } from '../../src/jobs/claim.ts';
import { enforceRotation, rotateDueKeys } from '../../src/jobs/key-rotation.ts';
import { LogDestinations } from '../../src/jobs/log-destinations.ts';
import { type ExportOptions, exportTurn, sweepExports } from '../../src/jobs/log-exports.ts';
import { forget } from '../../src/jobs/retention.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { sweepBuckets } from '../../src/limits/ledger/sweep.ts';
import { purgeVectors } from '../../src/llm/cache/semantic-cache.ts';
import { MIGRATIONS } from '../../src/store/migrations/index.ts';
import { TYPES } from '../../src/store/migrations/migration.ts';
import type { Blobs } from '../../src/store/ports.ts';
import type { LogRecord } from '../../src/telemetry/record.ts';
import { type FileServices, ManagedFiles } from '../../src/training/managed/files.ts';
import { each, type Matrix, startMatrix } from '../matrix/harness.ts';
import { build, ROWS, readRoutes } from '../matrix/routes.ts';
import { type Directory, directoryOf, filterOf, patch } from '../scim/world.ts';
import { plainVault } from '../support/admin.ts';
import { alertTurn } from '../support/alert-turn.ts';
import { NaiveLogStore } from '../support/naive-log-store.ts';
import { migratedDatabase } from '../support/postgres.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { issuer, storedKeysOnly } from '../support/tokens.ts';
import { loadWorkspace } from '../support/workspace-rows.ts';
import { hear, type Sent } from './hear.ts';
import { SIGN_INS, signIns } from './sign-ins.ts';
import { traffic } from './traffic.ts';

export interface Statement extends Sent {
  /** What first sent it. */
  readonly by: string;
}

/** What migrations send is sent once. */
const ONCE = new Set(
  MIGRATIONS.flatMap((migration) => Object.values(TYPES).flatMap((types) => migration.statements(types))),
);
const WORK = /^(select|update|delete|insert|with)\b(?!.*_migrations)/i;

/** Notes the statements that pass to the engine, until it is ended. */
function listen(engine: 'sqlite' | 'postgres') {
  const found = new Map<string, Statement>();
  let by = 'start';
  const note = ({ sql, parameters, begin }: Sent) => {
    if (WORK.test(sql) && !ONCE.has(sql) && !found.has(sql)) found.set(sql, { sql, parameters, begin, by });
  };
  const end = hear(engine, note);
  return {
    found,
    during: (name: string) => {
      by = name;
    },
    end,
  };
}

/** What passes between the store and everything that uses it. `look` sees the store while its rows are there;
 * `url` is that of the PostgreSQL. */
export async function statementsOf(
  engine: 'sqlite' | 'postgres',
  look: (statements: readonly Statement[], url: string) => Promise<void>,
): Promise<void> {
  const url = engine === 'postgres' ? await migratedDatabase() : null;
  const ear = listen(engine);
  const matrix = await startMatrix(engine);
  let server: TestServer | null = null;
  try {
    await administration(matrix, ear.during);
    await work(matrix, ear.during);
    server = await startServer({ ...SIGN_INS, ...(url === null ? {} : { SLUICE_DATABASE_URL: url }) });
    await traffic(server, ear.during);
    await signIns(server, ear.during);
    ear.during('SCIM');
    await sync(await directoryOf(server));
    ear.end();
    await look([...ear.found.values()], url ?? '');
  } finally {
    ear.end();
    await server?.stop();
    await matrix.close();
  }
}

/** What a directory does, by each of the indexes that it finds users and groups by. */
async function sync({ send, user, group }: Directory): Promise<void> {
  const id = await user('growth@scim.acme.example', { externalId: 'growth' });
  const groupId = await group('Growth', [id]);
  for (const filter of ['userName eq "a"', 'externalId eq "a"', `id eq "${id}"`, `groups.value eq "${groupId}"`]) {
    await send('GET', `/Users${filterOf(filter)}`);
  }
  for (const filter of ['displayName eq "a"', 'externalId eq "a"', `members eq "${id}"`]) {
    await send('GET', `/Groups${filterOf(filter)}`);
  }
  for (const kind of ['Users', 'Groups']) await send('GET', `/${kind}?startIndex=2&count=2`);
  await send('PATCH', `/Groups/${groupId}`, patch({ op: 'remove', path: 'members', value: [{ value: id }] }));
  for (const active of [false, true]) await send('PATCH', `/Users/${id}`, patch({ op: 'replace', value: { active } }));
  await send('DELETE', `/Users/${id}`);
  await send('DELETE', `/Groups/${groupId}`);
}

const CALLERS = new Set([
  'organisation-service key',
  'workspace-service key',
  'signed-in member, workspace manager',
  'deployment',
]);
/** Of lists: each of them selects other rows. */
const FILTERS = [
  'status=active',
  'page_size=2&current_page=1',
  'search=a',
  'include_usage=true',
  'name=a',
  'email=a%40b.c',
  'type=production&status=archived',
  'workspace_slug=a&workspace_slug=b',
  'tags=%7B%22a%22%3A%22b%22%7D',
];

async function administration(matrix: Matrix, during: (by: string) => void): Promise<void> {
  const { routes } = readRoutes(ROWS);
  matrix.undo('all');
  for (const caller of matrix.people.callers.filter(({ name }) => CALLERS.has(name) || /owner/.test(name))) {
    for (const route of routes) {
      during(`${route.name}, ${caller.name}`);
      for (const nameWorkspace of [true, false]) {
        await matrix.send(build(route, caller.own, { nameWorkspace }), caller.headers);
        if (route.row.method !== 'GET') continue;
        const call = build(route, caller.own, { nameWorkspace });
        await each(FILTERS, async (more) => {
          const path = `${call.path}${call.path.includes('?') ? '&' : '?'}${more}`;
          await matrix.send({ ...call, path }, caller.headers);
        });
      }
    }
  }
}

async function work(matrix: Matrix, during: (by: string) => void): Promise<void> {
  const { tables } = matrix.admin;
  const { a1 } = matrix.tenants;
  const now = await tables.now();
  const steps: Record<string, () => Promise<unknown>> = {
    'usage sweep': () => sweepBuckets({ tables, clock: systemClock }),
    alerts: () => raiseAlerts({ tables, log: silentLog, clock: systemClock, macs: plainVault, publicUrl: () => '' }),
    'watched traffic': async () => {
      const logs = new NaiveLogStore();
      const options = { tables, clock: systemClock, log: silentLog, macs: plainVault, publicUrl: () => '', logs };
      const place = { organisation_id: a1.organisationId, created_at: now, last_updated_at: now, raised: {} };
      const budgets = { spend_budget: 1, error_budget: 1, spend_anomalies: true };
      await tables.systemWrite(async (tx) => {
        await tx.remove('alert_watches', { id: { in: [a1.organisationId, a1.workspaceId] } });
        await tx.insert('alert_watches', { ...place, id: a1.organisationId, workspace_id: '', budgets });
        await tx.insert('alert_watches', { ...place, id: a1.workspaceId, workspace_id: a1.workspaceId, budgets });
      });
      await trafficWatch(options)();
    },
    'old alerts': () => removeOld(tables),
    'alert delivery': () =>
      alertTurn({
        tables,
        clock: systemClock,
        log: silentLog,
        macs: plainVault,
        open: async () => 'https://example.com',
        mailer: null,
        post: async () => 200,
      }),
    'key rotation': async () => {
      matrix.undo('audit');
      const { id } = a1.objects.api_key;
      const rotation_policy = {
        rotation_period: 'monthly' as const,
        rotation_period_days: null,
        next_rotation_at: '2026-01-01T00:00:00.000Z',
        key_transition_period_ms: 3_600_000,
        status: 'ACTIVE' as const,
      };
      await tables.systemWrite((tx) => tx.update('api_keys', { id }, { rotation_policy, rotation_due_at: 1 }));
      const options = { tables, clock: systemClock, log: silentLog, macs: plainVault };
      await enforceRotation(options);
      await rotateDueKeys(options);
    },
    'sweep of files': async () => {
      const blobs = {
        async *all() {
          yield { organisationId: a1.organisationId, key: 'gw_file_x', createdAt: 0 };
        },
        delete: async () => true,
      };
      const services = { tables, blobs, clock: systemClock, log: silentLog } as unknown as FileServices;
      await new ManagedFiles(services).sweep(new AbortController().signal);
    },
    'turn of an export': async () => {
      const id = a1.objects.log_export.id;
      const running = { status: 'in_progress', started_at: 1 } as const;
      await tables.systemWrite((tx) => tx.update('log_exports', { id }, running));
      const row = await tables.systemRead((tx) => tx.find('log_exports', { id }));
      await exportTurn({ tables } as ExportOptions, { row: { ...row, id: 'waits behind it' } } as never);
      await tables.systemWrite((tx) => tx.update('log_exports', { id }, { status: 'draft', started_at: 0 }));
    },
    'sweep of exports': () => sweepExports({ tables, blobs: { delete: async () => true } as unknown as Blobs }),
    'log destinations': async () => {
      const { id } = a1.objects.log_destination;
      const state = {
        ...{
          id,
          delivered: 1,
          failed: 0,
          lost: 0,
          waiting: 0,
          deliveredAt: 1,
          lagMs: 0,
          error: null,
          backfilling: false,
          mark: null,
        },
      };
      const fed = new LogDestinations({
        tables,
        vault: plainVault,
        process: { feed: async () => undefined, states: async () => [state] },
        records: new NaiveLogStore(),
        bodies: { find: async () => null },
        parquet: async () => '',
        days: { logs: 30, bodies: 14 },
        origin: () => '',
        nodeId: 'node',
        shared: true,
        clock: systemClock,
        log: silentLog,
      });
      await fed.start();
      fed.changed({ organisationId: a1.organisationId, workspaceId: null, topic: 'log_destinations', entityId: id });
      await fed.terms(id);
      await fed.past(id, systemClock.now(), null);
      await fed.settled(state);
      await fed.left(id);
      await fed.leftSettled(id, { node: 'other', next: null });
      const kept = {
        id,
        organisation_id: a1.organisationId,
        workspace_id: a1.workspaceId,
        body_chunk: 'c',
        body_slot: 0,
      };
      await fed.bodies([{ ...kept, time: systemClock.now() } as unknown as LogRecord], false);
      await fed.close();
    },
    'idempotency keys': () => purgeIdempotencyKeys(tables),
    retention: async () => {
      await tables.systemWrite(async (tx) => {
        for (const entityId of ['a', 'b']) {
          tx.changed({ organisationId: a1.organisationId, workspaceId: null, topic: 'configs', entityId });
        }
      });
      await forget({ tables });
    },
    'console session': () =>
      new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => '' }).describe({
        kind: 'user',
        organisationId: a1.organisationId,
        userId: null,
        role: 'owner',
      } as never),
    vectors: () => purgeVectors(tables),
    compile: () => tables.read(systemTenant(a1.organisationId), (tx) => loadWorkspace(tx, plainVault, a1.workspaceId)),
    authentication: async () => {
      createAuthenticator({ tables, clock: systemClock, log: silentLog });
      await tables.findKey('AAAAAAAAAAAA');
    },
    tokens: async () => {
      const key = issuer('growth');
      await tables.systemWrite(async (tx) => {
        const row = await tx.find('organisations', { id: a1.organisationId });
        const jwt = { version: '1', jwks: { keys: [key.jwk] }, issuer: 'issuer', audience: 'sluice' };
        const settings = { block_inline_config: true, ...row?.settings, auth_settings: { jwt } };
        await tx.update('organisations', { id: a1.organisationId }, { settings });
      });
      const authenticator = createAuthenticator({ tables, clock: systemClock, log: silentLog, tokens: storedKeysOnly });
      const named = { gateway_oid: a1.organisationId, gateway_workspace: a1.workspaceId };
      const claims = { exp: now / 1_000 + 3_600, iss: 'issuer', aud: 'sluice', scope: 'completions.write' };
      const who = {
        email_id: 'removed@example.com',
        sub: '00000000-0000-7000-8000-00000000dead',
        defaults: { config_id: 'unknown' },
      };
      await authenticator.authenticate(key.token({ ...claims, ...named, ...who }));
      await Promise.allSettled([authenticator.authenticate(key.token(claims))]);
    },
    feed: async () => {
      await tables.changesAfter(0, 100);
      await tables.lastChange();
    },
  };
  for (const table of ['training_jobs', 'batches', 'object_usage', 'log_exports'] as const) {
    steps[`claims of ${table}`] = async () => {
      await dueRows(tables, table, now, 10);
      await nextDue(tables, table, now);
      await freeRows(tables, table, () => false);
    };
  }
  for (const [name, step] of Object.entries(steps)) {
    during(name);
    await step();
  }
}
