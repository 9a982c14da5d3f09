/** API keys on a real listener: a clock that is moved by hand, people who are signed in, the job's turns. */
import { expect } from 'vitest';
import { ConsoleSessions, createLink } from '../../src/auth/console-session.ts';
import { systemTenant } from '../../src/auth/tenant.ts';
import { enforceRotation, rotateDueKeys } from '../../src/jobs/key-rotation.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import type { Log } from '../../src/kernel/log.ts';
import type { Row, TableName } from '../../src/store/schema.ts';
import { type AdminHarness, type Answer, emptyTables, plainVault, startAdmin } from './admin.ts';

export const DAY_MS = 86_400_000;
export const NOWHERE = '00000000-0000-7000-8000-000000000000';

export type Role = 'owner' | 'admin' | 'member';
export type WorkspaceRole = 'admin' | 'manager' | 'member';
/** Calls as somebody who is signed in to the console. */
export type SignedIn = (method: string, path: string, body?: unknown) => Promise<Answer>;

export async function startKeys(engine: 'sqlite' | 'postgres') {
  // The store has a clock of its own: this one starts with it.
  const clock = new TestClock(Date.now());
  const tables = await emptyTables(engine);
  const publicUrl = () => 'http://127.0.0.1:8787';
  const sessions = new ConsoleSessions({ tables, clock, publicUrl });
  const admin: AdminHarness = await startAdmin(tables, { clock, admin: { sessions } });
  const { organisation_id, workspace_id } = admin.a;
  const logged: { level: string; message: string; fields: Record<string, unknown> }[] = [];
  const write =
    (level: string) =>
    (message: string, fields: Record<string, unknown> = {}) => {
      logged.push({ level, message, fields });
    };
  const log: Log = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
  const stamps = { created_at: clock.now(), last_updated_at: clock.now() };

  const row = (id: string) => tables.systemRead((tx) => tx.find('api_keys', { id })) as Promise<Row<'api_keys'>>;
  const secrets = (id: string) =>
    tables.systemRead((tx) =>
      tx.list('api_key_secrets', { where: { api_key_id: id }, orderBy: [['created_at', 'asc']] }),
    );

  return {
    admin,
    clock,
    tables,
    logged,
    row,
    secrets,
    async policy(id: string) {
      const { rotation_policy: stored } = await row(id);
      if (stored === null) throw new Error('the key has no rotation policy');
      return stored;
    },
    close: () => admin.close(),

    /** What administrators would have set. */
    async settings(organisation: Record<string, unknown>, workspace: Record<string, unknown> = {}) {
      const block_inline_config = true;
      await tables.systemWrite(async (tx) => {
        await tx.update(
          'organisations',
          { id: organisation_id },
          { settings: { block_inline_config, ...organisation } },
        );
        await tx.update('workspaces', { id: workspace_id }, { settings: workspace });
        tx.changed({
          organisationId: organisation_id,
          workspaceId: null,
          topic: 'organisations',
          entityId: organisation_id,
        });
      });
      admin.authenticator.invalidateAll();
    },

    async addWorkspace(slug: string): Promise<string> {
      const id = crypto.randomUUID();
      await tables.systemWrite((tx) =>
        tx.insert('workspaces', {
          id,
          organisation_id,
          slug,
          name: slug,
          icon: null,
          description: null,
          is_default: false,
          status: 'active',
          defaults: null,
          settings: {},
          security_settings: {},
          usage_limits: null,
          rate_limits: null,
          created_by: null,
          creation_source: null,
          scim_source_id: null,
          last_reset_at: null,
          ...stamps,
        }),
      );
      return id;
    },

    async addUser(role: Role, workspaceRole: WorkspaceRole | null, workspaceId = workspace_id): Promise<string> {
      const id = crypto.randomUUID();
      await tables.systemWrite(async (tx) => {
        const person = { email: `${id}@alpha.example`, first_name: 'Grace', last_name: 'Hopper' };
        await tx.insert('users', { id, organisation_id, ...person, role, status: 'active', ...stamps });
        if (workspaceRole === null) return;
        const member = { organisation_id, workspace_id: workspaceId, user_id: id, role: workspaceRole };
        await tx.insert('workspace_members', { ...member, status: 'active', ...stamps });
      });
      return id;
    },

    /** Changes a user's roles, as another administrator would. */
    async setRole(id: string, role: Role, workspaceRole: WorkspaceRole | null) {
      const changes: [TableName, string | null][] = [];
      await tables.systemWrite(async (tx) => {
        await tx.update('users', { id }, { role });
        if (workspaceRole !== null) await tx.update('workspace_members', { user_id: id }, { role: workspaceRole });
        for (const [topic, workspaceId] of [
          ['users', null],
          ['workspace_members', workspace_id],
        ] as const) {
          changes.push([topic, workspaceId]);
          tx.changed({ organisationId: organisation_id, workspaceId, topic, entityId: id });
        }
      });
      for (const [topic, workspaceId] of changes) {
        const change = { organisationId: organisation_id, workspaceId, topic, entityId: id };
        admin.authenticator.invalidate(change);
        sessions.invalidate({ ...change, seq: 0 } as never);
      }
    },

    async signIn(userId: string): Promise<SignedIn> {
      const { token } = await createLink(tables, clock, { id: userId, organisation_id });
      const { token: cookie, session } = await sessions.exchange(token);
      const headers = {
        cookie: `${sessions.cookieName}=${cookie}`,
        origin: publicUrl(),
        'x-csrf-token': session.csrf,
      };
      return (method, path, body) => admin.call(method, path, { key: null, headers, ...(body ? { body } : {}) });
    },

    async makeKey(scopes: string[], patch: Record<string, unknown> = {}, type = 'workspace/service') {
      const where = type.startsWith('workspace') ? { workspace_id } : {};
      const answer = await admin.call('POST', `/v1/api-keys/${type}`, {
        body: { name: 'key', scopes, ...where, ...patch },
      });
      expect(answer.status, answer.text).toBe(200);
      return answer.body as { id: string; key: string };
    },

    async read(id: string) {
      const answer = await admin.call('GET', `/v1/api-keys/${id}`);
      expect(answer.status, answer.text).toBe(200);
      return answer.body;
    },

    rotate: (id: string, body?: unknown, key?: string) =>
      admin.call('POST', `/v1/api-keys/${id}/rotate`, {
        ...(body === undefined ? {} : { body }),
        ...(key ? { key } : {}),
      }),

    /** Whether a key opens anything: 403 for lack of scope is an answer to somebody who is known. */
    async opens(key: string): Promise<boolean> {
      const { status } = await admin.call('GET', '/v1/api-keys', { key });
      expect([200, 401, 403]).toContain(status);
      return status !== 401;
    },

    /** The rotation of this key falls due now. */
    due: (id: string) => tables.systemWrite((tx) => tx.update('api_keys', { id }, { rotation_due_at: Date.now() - 1 })),

    /** What was in transition has ended, by the store's clock. */
    endTransition: (id: string) =>
      tables.systemWrite((tx) =>
        tx.update('api_key_secrets', { api_key_id: id, expires_at: { gt: 0 } }, { expires_at: Date.now() - 1 }),
      ),

    async turn() {
      await rotateDueKeys({ tables, clock, log, macs: plainVault });
    },
    async enforce() {
      await enforceRotation({ tables, clock, log, macs: plainVault });
    },

    audits: () =>
      tables.read(systemTenant(organisation_id), (tx) => tx.list('audit_log', { orderBy: [['seq', 'asc']] })),

    fails(answer: Answer, status: number, code: string, param: string | null = null) {
      const { error } = answer.body ?? {};
      expect([answer.status, error?.code, error?.param], answer.text).toEqual([status, code, param]);
      expect(error.message).toMatch(/^.{10,}[.)!?]$/s);
    },
  };
}

export type KeyHarness = Awaited<ReturnType<typeof startKeys>>;
