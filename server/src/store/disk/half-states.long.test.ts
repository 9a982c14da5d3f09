/** A write that fails at any of its statements leaves nothing behind, and the next one is carried out. */
import { expect, it } from 'vitest';
import { type Call, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { addUser } from '../../../test/support/people.ts';
import type { Tables } from '../ports.ts';
import { SCHEMA, type TableName } from '../schema.ts';

const VERBS = new Set([
  'find',
  'list',
  'count',
  'insert',
  'insertAll',
  'update',
  'updateOrganisation',
  'remove',
  'now',
]);

/** The same tables; once armed, the nth statement of a tenant's write fails, once. */
function failing(tables: Tables) {
  let left = 0;
  let failed = false;
  const wrap = <T extends object>(tx: T): T =>
    new Proxy(tx, {
      get(target, verb) {
        const value: unknown = Reflect.get(target, verb, target);
        if (typeof value !== 'function') return value;
        const call = value.bind(target) as (...given: unknown[]) => unknown;
        if (!VERBS.has(String(verb))) return call;
        return async (...given: unknown[]) => {
          if (left > 0 && --left === 0) {
            failed = true;
            throw new Error('the store failed at this statement');
          }
          return call(...given);
        };
      },
    });
  const write: Tables['write'] = (tenant, run, options) => tables.write(tenant, (tx) => run(wrap(tx)), options);
  const wrapped = new Proxy(tables, {
    get(target, name) {
      if (name === 'write') return write;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  return {
    tables: wrapped,
    arm: (n: number) => {
      left = n;
      failed = false;
    },
    /** Whether the statement was reached; afterwards nothing fails. */
    disarm: () => {
      left = 0;
      return failed;
    },
  };
}

/** Refusals are audited; everything else must be as it was. */
const WATCHED = (Object.keys(SCHEMA) as TableName[]).filter(
  (table) => table !== 'audit_log' && table !== 'audit_heads' && table !== 'changes',
);

it.each(['sqlite', 'postgres'] as const)(
  'rotating, removing a user or a workspace, settings, exemptions and repeated creates are whole or nothing on %s',
  async (engine) => {
    const store = failing(await emptyTables(engine));
    const api = await startAdmin(store.tables, { admin: { requestsPerMinute: 100_000 } });
    const { organisation_id, workspace_id } = api.a;
    const state = () =>
      api.tables.systemRead(async (tx) => {
        const rows: Record<string, unknown> = {};
        for (const table of WATCHED) rows[table] = (await tx.list(table, {})).map((row) => JSON.stringify(row)).sort();
        return rows;
      });
    const made = async (path: string, body: object) => (await api.call('POST', path, { body })).body;

    const rotated = await made('/v1/api-keys/workspace/service', { name: 'turned', workspace_id, scopes: [] });
    const second = await made('/v1/admin/workspaces', { name: 'Second', slug: 'ws-second' });
    const third = await made('/v1/admin/workspaces', { name: 'Third', slug: 'ws-third' });
    const user = await addUser(api.tables, organisation_id);
    await api.call('POST', `/v1/admin/workspaces/${second.id}/users`, {
      body: { users: [{ id: user.id, role: 'member' }] },
    });
    await made('/v1/api-keys/workspace/user', {
      name: 'his',
      workspace_id: second.id,
      user_id: user.id,
      scopes: ['configs.list'],
    });
    const writes: readonly (readonly [string, string, Call])[] = [
      ['POST', `/v1/api-keys/${rotated.id}/rotate`, { body: {} }],
      [
        'PUT',
        '/v1/admin/organisation/settings',
        { body: { workspace_overrides: { export_settings: true }, export_settings: { deniedFields: [] } } },
      ],
      [
        'PUT',
        '/v1/workspace-exclusions/input-guardrails',
        { body: { workspaces: [second, third].map(({ id }) => ({ workspace_id: id, excluded: true })) } },
      ],
      [
        'POST',
        '/v1/api-keys/workspace/service',
        { body: { name: 'once', workspace_id, scopes: [] }, headers: { 'idempotency-key': 'once' } },
      ],
      ['POST', '/v1/admin/users/invites', { body: { email: 'a@x.example', role: 'member', workspaces: [] } }],
      ['DELETE', `/v1/admin/users/${user.id}`, {}],
      ['DELETE', `/v1/admin/workspaces/${third.id}`, { body: { force_delete: true } }],
    ];
    for (const [method, path, call] of writes) {
      for (let n = 1; ; n++) {
        const before = await state();
        store.arm(n);
        const answer = await api.call(method, path, call);
        if (!store.disarm()) {
          expect([path, answer.status, answer.text.slice(0, 300)]).toEqual([path, 200, expect.any(String)]);
          expect(n).toBeGreaterThan(3);
          break;
        }
        expect([path, n, answer.status]).toEqual([path, n, 500]);
        expect(await state(), `${method} ${path} at statement ${n}`).toEqual(before);
      }
    }
    await api.close();
  },
  120_000,
);
