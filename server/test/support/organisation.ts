/** The administration API as the people of organisation A use it: signed in to the console, or with a key. */
import { expect } from 'vitest';
import { ConsoleSessions } from '../../src/auth/console-session.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import type { Row } from '../../src/store/schema.ts';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from './admin.ts';
import { addUser, PUBLIC_URL, signIn } from './people.ts';

/** Calls the API as one person or key. */
export type Caller = (method: string, path: string, body?: unknown) => Promise<Answer>;

export interface Organisation {
  readonly admin: AdminHarness;
  /** A new user of organisation A, with a role in each of these workspaces; answers the id. */
  addUser(
    role: Row<'users'>['role'],
    joined?: Readonly<Record<string, Row<'workspace_members'>['role']>>,
  ): Promise<string>;
  signIn(userId: string): Promise<Caller>;
  as(key: string): Caller;
  /** A key of organisation A, made with its organisation key, in its first workspace unless `more` names another. */
  makeKey(
    type: string,
    scopes: readonly string[],
    more?: Record<string, unknown>,
  ): Promise<{ id: string; key: string }>;
}

export async function startOrganisation(
  engine: 'sqlite' | 'postgres',
  options: Parameters<typeof startAdmin>[1] = {},
): Promise<Organisation> {
  const tables = await emptyTables(engine);
  const sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
  const admin = await startAdmin(tables, { ...options, admin: { sessions, ...options.admin } });
  const { organisation_id } = admin.a;
  return {
    admin,
    async addUser(role, joined = {}) {
      const { id, created_at, last_updated_at } = await addUser(tables, organisation_id, { role });
      await tables.systemWrite(async (tx) => {
        for (const [workspace_id, within] of Object.entries(joined)) {
          const member = { organisation_id, workspace_id, user_id: id, role: within, status: 'active' as const };
          await tx.insert('workspace_members', { ...member, created_at, last_updated_at });
        }
      });
      return id;
    },
    async signIn(userId) {
      const headers = await signIn(tables, sessions, { id: userId, organisation_id });
      return (method, path, body) => admin.call(method, path, { key: null, headers, body });
    },
    as: (key) => (method, path, body) => admin.call(method, path, { key, body }),
    async makeKey(type, scopes, more = {}) {
      const where = type.startsWith('workspace') ? { workspace_id: admin.a.workspace_id } : {};
      const body = { name: 'for a test', scopes, ...where, ...more };
      const answer = await admin.call('POST', `/v1/api-keys/${type}`, { body });
      expect(answer.status, answer.text).toBe(200);
      return answer.body;
    },
  };
}
