/** The administration API with real encryption on both stores, for the resources that hold accounts and configs. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { workspaceRow } from '../../src/store/conformance/rows.ts';
import { type EnvelopeVault, openVault } from '../../src/store/envelope.ts';
import { loadKeyring } from '../../src/store/keyring.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { type AdminHarness, type Answer, startAdmin } from './admin.ts';
import { migratedDatabase } from './postgres.ts';
import { temporaryTables } from './tables.ts';
import { loadWorkspace, type WorkspaceRows } from './workspace-rows.ts';

const ENGINES: readonly [string, () => Promise<Tables>][] = [
  ['SQLite', () => temporaryTables()],
  [
    'PostgreSQL',
    async () => {
      const tables = await openPostgresTables({ url: await migratedDatabase(), log: silentLog });
      await tables.migrate();
      return tables;
    },
  ],
];

/** A value that no answer and no table may hold. */
export const CANARY = 'sk-canary-4f9a1c';
export const MASK = /^\*{7}[0-9a-f]{8}$/;

/** Calls go to organisation A: with its organisation key, or with the key of its first workspace where `key` says so. */
export interface Accounts {
  readonly api: AdminHarness;
  readonly vault: EnvelopeVault;
  /** A second workspace of organisation A. */
  readonly second: { readonly id: string; readonly slug: string };
  /** Key of the first workspace. */
  readonly mine: string;
  post(path: string, body: unknown, key?: string): Promise<Answer>;
  put(path: string, body: unknown, key?: string): Promise<Answer>;
  get(path: string, key?: string): Promise<Answer>;
  del(path: string, key?: string): Promise<Answer>;
  /** What the data plane gets. */
  load(workspaceId?: string): Promise<WorkspaceRows>;
}

let counter = 0;
export const unique = (prefix: string) => `${prefix}-${++counter}`;

/** The body of an answer that must be a success. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
export function ok(answer: Answer): any {
  expect(answer.body).not.toHaveProperty('error');
  expect(answer.status).toBe(200);
  return answer.body;
}

export function refused(answer: Answer, status: number, code: string, param: string | null): void {
  expect(answer.body.error).toMatchObject({ code, param, type: 'client_error' });
  expect(answer.status).toBe(status);
}

/** Runs the suite on SQLite and on PostgreSQL. `accounts` is filled before the first test. */
export function onBothStores(suite: (accounts: Accounts) => void): void {
  describe.each(ENGINES)('on %s', (_engine, open) => {
    const accounts = {} as { -readonly [K in keyof Accounts]: Accounts[K] };
    let vault: EnvelopeVault;
    beforeAll(async () => {
      const tables = await open();
      const masterKey = randomBytes(32).toString('base64');
      const keyring = await loadKeyring({ masterKey, masterKeyFile: '/nonexistent', create: false });
      vault = openVault({ keyring, tables, clock: systemClock });
      const api = await startAdmin(tables, { admin: { vault } });
      const second = { id: uuidv7(systemClock), slug: 'ws-second' };
      await tables.systemWrite((tx) =>
        tx.insert('workspaces', workspaceRow(api.a.organisation_id, second.id, { slug: second.slug, name: 'Second' })),
      );
      Object.assign(accounts, {
        api,
        vault,
        second,
        mine: api.a.workspace_api_key,
        post: (path, body, key) => api.call('POST', `/v1${path}`, { body, key }),
        put: (path, body, key) => api.call('PUT', `/v1${path}`, { body, key }),
        get: (path, key) => api.call('GET', `/v1${path}`, { key }),
        del: (path, key) => api.call('DELETE', `/v1${path}`, { key }),
        load: async (workspaceId = api.a.workspace_id) => {
          const tenant = systemTenant(api.a.organisation_id);
          const rows = await tables.read(tenant, (tx) => loadWorkspace(tx, vault, workspaceId));
          if (!rows) throw new Error('no such workspace');
          return rows;
        },
      } satisfies Accounts);
    });
    afterAll(async () => {
      await accounts.api.close();
      await vault.close();
    });
    suite(accounts);
  });
}
