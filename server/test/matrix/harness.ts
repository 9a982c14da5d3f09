/** The administration API over the four tenants, with writes that can be taken back and reads that are counted. */

import { Pool } from 'undici';
import type { AdminRow } from '../../src/admin/route.ts';
import type { SignIns } from '../../src/admin/sign-in.ts';
import { createAuthenticator } from '../../src/auth/authenticator.ts';
import { systemClock, TestClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { RECORDS } from '../../src/resources/logs/index.ts';
import { CUSTOM_LOGS } from '../../src/resources/logs/insert.ts';
import { KEPT_LOGS } from '../../src/resources/logs/reach.ts';
import { Services } from '../../src/resources/services.ts';
import type { StoredLog, Tables } from '../../src/store/ports.ts';
import { rowOf } from '../../src/telemetry/log-columns.ts';
import { storedRecords } from '../../src/telemetry/stored-records.ts';
import { type AdminHarness, emptyTables, startAdmin } from '../support/admin.ts';
import { logRecord } from '../support/log-record.ts';
import { forgottenLogs } from '../support/log-rows.ts';
import { NaiveLogStore } from '../support/naive-log-store.ts';
import { storedKeysOnly } from '../support/tokens.ts';
import { makePeople, type People } from './principals.ts';
import type { Built } from './routes.ts';
import { fill, newTenant, ofWorkspace, picture, type Tenant } from './world.ts';

export interface Told {
  readonly status: number;
  /** The body without what differs between two calls. */
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: answers of every shape
  readonly body: any;
  /** Names and values of the headers, without request id, date and length. */
  readonly headers: string;
}

/**
 * Which writes are undone after their answer was made: all, so that a call can be carried out again, or those that only
 * add to the audit log, which thousands of refused calls do; what they would cost is not what is tested.
 */
export type Undo = 'all' | 'audit';

export interface Matrix {
  readonly admin: AdminHarness;
  readonly people: People;
  readonly tenants: Readonly<Record<'a1' | 'a2' | 'b1' | 'b2', Tenant>>;
  send(call: Built, headers: Readonly<Record<string, string>>): Promise<Told>;
  undo(what: Undo): void;
  /** Transactions that the handler has begun since the last call of this. */
  transactions(): number;
  /** What a caller of `tenant` must neither read nor change: everything of the other organisation. */
  foreign(tenant: Tenant): Promise<string>;
  neighbour(tenant: Tenant): Promise<string>;
  close(): Promise<void>;
}

const UNDONE = new Error('undone');
const WRITES = new Set(['insert', 'insertAll', 'update', 'remove', 'updateOrganisation']);
const AUDIT = new Set(['audit_log', 'audit_heads']);

/** `rows` are served beside the catalogue and get the store as it is. */
export async function startMatrix(
  engine: 'sqlite' | 'postgres',
  rows: (tables: Tables) => readonly AdminRow[] = () => [],
): Promise<Matrix> {
  const base = await emptyTables(engine);
  let undoing: Undo = 'audit';
  let transactions = 0;
  /** Runs a write and undoes it when it is to be undone; the caller gets its answer either way. */
  const undone = async <T>(write: (run: (tx: object) => Promise<T>) => Promise<T>, run: (tx: object) => Promise<T>) => {
    let answer: { value: T } | null = null;
    try {
      return await write(async (tx) => {
        let wrote = false;
        const watched = new Proxy(tx, {
          get(target, name) {
            const value: unknown = Reflect.get(target, name, target);
            if (typeof value !== 'function') return value;
            return (...args: unknown[]) => {
              if (WRITES.has(String(name)) && !AUDIT.has(String(args[0]))) wrote = true;
              return value.apply(target, args);
            };
          },
        });
        answer = { value: await run(watched) };
        if (undoing === 'all' || !wrote) throw UNDONE;
        return answer.value;
      });
    } catch (error) {
      if (error !== UNDONE) throw error;
      return (answer as { value: T } | null)?.value as T;
    }
  };
  const tables: Tables = new Proxy(base, {
    get(target, name) {
      if (name === 'read' || name === 'write') transactions += 1;
      if (name === 'write') {
        return (tenant: never, run: never, options?: never) =>
          undone((inner) => target.write(tenant, inner, options), run);
      }
      if (name === 'systemWrite') return (run: never) => undone((inner) => target.systemWrite(inner), run);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  // A clock that stands: refusals are remembered for the whole run, so that the throttle of failed attempts stays out.
  const authenticator = createAuthenticator({
    tables: base,
    clock: new TestClock(systemClock.now()),
    log: silentLog,
    tokens: storedKeysOnly,
  });
  let people: People | null = null;
  const present = () => {
    if (people === null) throw new Error('nobody is here yet');
    return people.sessions;
  };
  const sessions: SignIns = {
    get cookies() {
      return present().cookies;
    },
    find: (cookie) => present().find(cookie),
    findBearer: (token, address) => present().findBearer(token, address),
    authenticate: (request) => present().authenticate(request),
  };
  const kept = new NaiveLogStore();
  const admin = await startAdmin(base, {
    admin: {
      tables,
      authenticator,
      sessions,
      services: new Services()
        .provide(
          RECORDS,
          storedRecords(
            kept,
            0,
            () => systemClock.now(),
            async () => [],
          ),
        )
        .provide(KEPT_LOGS, { store: kept, days: 0, erased: async () => [] })
        .provide(CUSTOM_LOGS, forgottenLogs),
    },
    rows: rows(base),
  });
  const tenants = {
    a1: newTenant('a1', admin.a.organisation_id),
    a2: newTenant('a2', admin.a.organisation_id),
    b1: newTenant('b1', admin.b.organisation_id),
    b2: newTenant('b2', admin.b.organisation_id),
  };
  await base.systemWrite(async (tx) => {
    for (const tenant of Object.values(tenants)) await fill(tx, tenant);
  });
  kept.rows = Object.values(tenants).map((tenant, seq) => rowOf(recordOf(tenant, seq)));
  people = await makePeople(base, tenants);
  const pool = new Pool(admin.url, { connections: 6, pipelining: 1 });
  const other = (tenant: Tenant) =>
    tenant.organisationId === tenants.a1.organisationId ? tenants.b1.organisationId : tenants.a1.organisationId;
  return {
    admin,
    people,
    tenants,
    undo: (what) => {
      undoing = what;
    },
    transactions: () => {
      const count = transactions;
      transactions = 0;
      return count;
    },
    foreign: async (tenant) => {
      const all = await picture(base, other(tenant));
      return JSON.stringify([...all]);
    },
    neighbour: async (tenant) => {
      const near = Object.values(tenants).find(
        (one) => one !== tenant && one.organisationId === tenant.organisationId,
      ) as Tenant;
      return JSON.stringify(ofWorkspace(await picture(base, tenant.organisationId), near));
    },
    send: async (call, headers) => {
      const answer = await pool.request({
        method: call.method as 'GET',
        path: call.path,
        headers: { ...headers, ...(call.body === null ? {} : { 'content-type': 'application/json' }) },
        body: call.body === null ? null : JSON.stringify(call.body),
      });
      const text = await answer.body.text();
      const kept = Object.entries(answer.headers).filter(
        ([name]) => !['x-gateway-request-id', 'date', 'content-length'].includes(name),
      );
      return {
        status: answer.statusCode,
        text,
        body: text === '' || text.startsWith('event: ') ? null : JSON.parse(text),
        headers: JSON.stringify(kept.sort()),
      };
    },
    close: async () => {
      await pool.close();
      await admin.close();
    },
  };
}

/** The record of one request of a tenant. */
function recordOf(tenant: Tenant, seq: number): StoredLog {
  return logRecord(seq, {
    id: tenant.objects.log.id,
    organisation_id: tenant.organisationId,
    workspace_id: tenant.workspaceId,
    operation: 'chat',
    outcome: 'ok',
    cache_status: 'DISABLED',
    latency_ms: 1,
    error_message: `Message for ${tenant.canary}`,
    model_requested: `model-${tenant.canary}`,
    metadata: { team: `team-${tenant.canary}`, _user: `user-${tenant.canary}` },
  });
}

/** Runs `task` over all items, a few at a time, and answers in their order. */
export async function each<T, R>(items: readonly T[], task: (item: T) => Promise<R>, width = 6): Promise<R[]> {
  const out: R[] = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: Math.min(width, items.length) }, async () => {
      while (next < items.length) {
        const at = next++;
        out[at] = await task(items[at] as T);
      }
    }),
  );
  return out;
}
