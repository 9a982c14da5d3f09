/** Members of workspaces, on both engines: who belongs, who may say so, and what goes with a membership. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Answer } from '../../../../test/support/admin.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../../test/support/organisation.ts';
import { scopesOf } from '../../../auth/scopes.ts';

const NOWHERE = '00000000-0000-7000-8000-000000000000';
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

function ok(answer: Answer) {
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
}

function refused(answer: Answer, status: number, code: string, param: string | null = null) {
  expect([answer.status, answer.body?.error?.code, answer.body?.error?.param], answer.text).toEqual([
    status,
    code,
    param,
  ]);
}

const ROLES = ['member', 'manager', 'admin'] as const;
type Role = (typeof ROLES)[number];

describe.each(['sqlite', 'postgres'] as const)('members of a workspace on %s', (engine) => {
  let on: Organisation;
  let workspace: { id: string; slug: string };
  let users = '';

  beforeAll(async () => {
    on = await startOrganisation(engine);
    workspace = ok(await call('POST', '/v1/admin/workspaces', { name: 'Team' }));
    users = `/v1/admin/workspaces/${workspace.id}/users`;
  });

  afterAll(async () => {
    await on?.admin.close();
  });

  const call: Caller = (method, path, body) => on.admin.call(method, path, { body });
  const add = (...list: { id: string; role: string }[]) => call('POST', users, { users: list });
  const joined = async (role: Role) => {
    const id = await on.addUser('member', { [workspace.id]: role });
    return { id, call: await on.signIn(id) };
  };
  const organisation = (settings: Record<string, unknown>) =>
    on.admin.tables.systemWrite((tx) =>
      tx.update(
        'organisations',
        { id: on.admin.a.organisation_id },
        { settings: { block_inline_config: true, ...settings } },
      ),
    );
  const keysOf = (userId: string, workspaceId = workspace.id) =>
    on.admin.tables.systemRead((tx) => tx.list('api_keys', { where: { user_id: userId, workspace_id: workspaceId } }));

  describe('add, list and get', () => {
    it('a user of the organisation becomes a member and is answered with name, e-mail, roles and scopes', async () => {
      const id = await on.addUser('member');
      expect(ok(await add({ id, role: 'manager' }))).toEqual({});
      const member = ok(await call('GET', `${users}/${id}`));
      expect(member).toEqual({
        object: 'workspace-user',
        id,
        first_name: 'Grace',
        last_name: 'Hopper',
        email: `${id}@people.example`,
        org_role: 'member',
        role: 'manager',
        status: 'active',
        workspace_id: workspace.id,
        scopes: expect.arrayContaining(['completions.write', 'workspace_users.create', 'workspaces.update']),
        sources: [{ type: 'manual', id: null, role: 'manager' }],
        settings: null,
        created_at: expect.stringMatching(ISO),
        last_updated_at: expect.stringMatching(ISO),
      });
      const list = ok(await call('GET', `${users}?page_size=100`));
      expect(list.data.find((one: { id: string }) => one.id === id)).toEqual(member);
    });

    it('every path of it is the same', async () => {
      const { id } = await joined('member');
      const wanted = ok(await call('GET', `${users}/${id}`));
      for (const name of [workspace.id, workspace.slug]) {
        for (const base of ['/v1/admin/workspaces', '/v2/admin/workspaces', '/v2/workspaces']) {
          for (const part of ['users', 'members']) {
            const path = `${base}/${name}/${part}`;
            expect(ok(await call('GET', `${path}/${id}`))).toEqual(wanted);
            expect(ok(await call('GET', `${path}?email=${wanted.email}`)).data).toEqual([wanted]);
          }
        }
      }
      ok(await call('PUT', `/v2/workspaces/${workspace.slug}/members/${id}`, { role: 'manager' }));
      ok(await call('DELETE', `/v2/workspaces/${workspace.slug}/members/${id}`));
      ok(await call('POST', `/v2/workspaces/${workspace.slug}/members`, { users: [{ id, role: 'member' }] }));
    });

    it('query and body may repeat the path, in both spellings, and never differ from it', async () => {
      const { id } = await joined('member');
      const path = `${users}/${id}`;
      const other = on.admin.a.workspace_id;
      expect(ok(await call('GET', `${users}?workspaceId=${workspace.id}&email=${id}@people.example`)).total).toBe(1);
      refused(await call('GET', `${users}?workspaceId=${other}`), 400, 'AB01', 'workspaceId');
      for (const key of ['workspaceId', 'workspace_id']) {
        refused(await call('PUT', path, { role: 'admin', [key]: other }), 400, 'AB01', key);
        refused(await call('PUT', path, { role: 'admin', [key]: [workspace.id] }), 400, 'AB01', key);
        ok(await call('PUT', path, { role: 'admin', [key]: workspace.id }));
      }
      refused(await call('DELETE', path, { userId: NOWHERE }), 400, 'AB01');
      ok(await call('DELETE', path, { workspace_id: workspace.id, user_id: id }));
    });

    it('lists by role and by e-mail, whatever its case, and in pages', async () => {
      const there = ok(await call('POST', '/v1/admin/workspaces', { name: 'Listed' }));
      const path = `/v1/admin/workspaces/${there.id}/users`;
      const ids: string[] = [];
      for (const role of ['member', 'member', 'manager', 'admin'] as const) {
        ids.push(await on.addUser('member', { [there.id]: role }));
      }
      const list = async (query: string) => {
        const { object, total, data } = ok(await call('GET', `${path}?${query}`));
        expect(object).toBe('list');
        return [total, data.map((one: { id: string }) => one.id).sort()];
      };
      expect(await list('')).toEqual([4, [...ids].sort()]);
      expect(await list('role=member')).toEqual([2, ids.slice(0, 2).sort()]);
      expect(await list('role=admin')).toEqual([1, [ids[3]]]);
      expect(await list(`email=${ids[2]?.toUpperCase()}@people.example`)).toEqual([1, [ids[2]]]);
      expect(await list(`email=${ids[2]}@people.example&role=admin`)).toEqual([0, []]);
      expect(await list('email=nobody@people.example')).toEqual([0, []]);
      // A member of another workspace of the organisation is not found by his address.
      const { id: elsewhere } = await joined('member');
      expect(await list(`email=${elsewhere}@people.example`)).toEqual([0, []]);
      const pages = [0, 1].map((page) => call('GET', `${path}?page_size=3&current_page=${page}`));
      const seen = (await Promise.all(pages)).flatMap((page) => ok(page).data.map((one: { id: string }) => one.id));
      expect(seen.sort()).toEqual([...ids].sort());
      refused(await call('GET', `${path}?role=owner`), 400, 'AB01', 'role');
      refused(await call('GET', `${path}?email=nobody`), 400, 'AB01', 'email');
      refused(await call('GET', `${path}?workspace_id=x`), 400, 'AB01', 'workspace_id');
    });

    it('owners and admins of the organisation are listed where they were added, and work here without', async () => {
      const id = await on.addUser('admin');
      const admin = await on.signIn(id);
      ok(await admin('PUT', `/v1/admin/workspaces/${workspace.id}`, { description: 'by an admin' }));
      refused(await call('GET', `${users}/${id}`), 404, 'AB08');
      ok(await add({ id, role: 'member' }));
      const shown = ok(await call('GET', `${users}/${id}`));
      expect(shown).toMatchObject({ org_role: 'admin', role: 'member' });
      expect(shown.scopes).toContain('workspaces.update');
      ok(await admin('PUT', `/v1/admin/workspaces/${workspace.id}`, { description: null }));
      ok(await call('DELETE', `${users}/${id}`));
      ok(await admin('GET', users));
    });

    it('scopes are those that the security settings leave', async () => {
      const { id } = await joined('manager');
      const scopes = async () => ok(await call('GET', `${users}/${id}`)).scopes as string[];
      expect(await scopes()).toContain('workspace_users.create');
      await organisation({ security_settings: { managersWriteWsUsers: false } });
      expect(await scopes()).not.toContain('workspace_users.create');
      expect(await scopes()).toContain('workspace_users.list');
      await organisation({});
    });

    it('adding a member again with the same role changes nothing but that it is by hand, too; with another role it is a conflict', async () => {
      const { id } = await joined('member');
      const before = ok(await call('GET', `${users}/${id}`));
      expect(ok(await add({ id, role: 'member' }))).toEqual({});
      const sources = [{ type: 'manual', id: null, role: 'member' }];
      expect(ok(await call('GET', `${users}/${id}`))).toEqual({ ...before, sources });
      refused(
        await add({ id: await on.addUser('member'), role: 'member' }, { id, role: 'admin' }),
        409,
        'AB07',
        'users[1].id',
      );
      expect(ok(await call('GET', `${users}/${id}`))).toEqual({ ...before, sources });
    });

    it('all of a list or none: an unknown user and one of another organisation are the same', async () => {
      const id = await on.addUser('member');
      const answers = [];
      for (const other of [NOWHERE, on.admin.b.user_id]) {
        answers.push(await add({ id, role: 'member' }, { id: other, role: 'member' }));
      }
      refused(answers[0] as Answer, 404, 'AB02', 'users[1].id');
      expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
      refused(await call('GET', `${users}/${id}`), 404, 'AB08');
    });

    it.each<[string, unknown, string]>([
      ['no users', {}, 'users'],
      ['an empty list', { users: [] }, 'users'],
      ['null', { users: null }, 'users'],
      ['a list of ids', { users: [NOWHERE] }, 'users[0]'],
      ['a user without a role', { users: [{ id: NOWHERE }] }, 'users[0].role'],
      ['a role of the organisation', { users: [{ id: NOWHERE, role: 'owner' }] }, 'users[0].role'],
      ['a role in capitals', { users: [{ id: NOWHERE, role: 'ADMIN' }] }, 'users[0].role'],
      ['a padded role', { users: [{ id: NOWHERE, role: 'admin ' }] }, 'users[0].role'],
      ['a role that is a list', { users: [{ id: NOWHERE, role: ['admin'] }] }, 'users[0].role'],
      ['an e-mail in place of the id', { users: [{ id: 'a@b.example', role: 'member' }] }, 'users[0].id'],
      ['an unknown key of a user', { users: [{ id: NOWHERE, role: 'member', x: 1 }] }, 'users[0].x'],
      ['an unknown key', { users: [{ id: NOWHERE, role: 'member' }], x: 1 }, 'x'],
      [
        'a user twice',
        {
          users: [
            { id: NOWHERE, role: 'member' },
            { id: NOWHERE, role: 'admin' },
          ],
        },
        'users[1].id',
      ],
      ['101 users', { users: Array(101).fill({ id: NOWHERE, role: 'member' }) }, 'users'],
    ])('refuses %s', async (_title, body, param) => {
      refused(await call('POST', users, body), 400, 'AB01', param);
    });
  });

  describe('nobody grants, changes or takes a role above his own', () => {
    it.each(ROLES)('signed in as a workspace %s', async (own) => {
      const caller = await joined(own);
      for (const role of ROLES) {
        const may = own !== 'member' && ROLES.indexOf(role) <= ROLES.indexOf(own);
        const wanted = may ? 200 : 403;
        const id = await on.addUser('member');
        expect((await caller.call('POST', users, { users: [{ id, role }] })).status, `add ${role}`).toBe(wanted);
        const other = await joined(role);
        const path = `${users}/${other.id}`;
        expect((await caller.call('PUT', path, { role: 'member' })).status, `demote ${role}`).toBe(wanted);
        const plain = await joined('member');
        expect((await caller.call('PUT', `${users}/${plain.id}`, { role })).status, `make ${role}`).toBe(wanted);
        const last = await joined(role);
        expect((await caller.call('DELETE', `${users}/${last.id}`)).status, `remove ${role}`).toBe(wanted);
      }
      const raised = await caller.call('PUT', `${users}/${caller.id}`, { role: 'admin' });
      expect(raised.status).toBe(own === 'admin' ? 200 : 403);
    });

    it('a service key counts as the user it goes back to; a user key gives no roles', async () => {
      const scopes = [...scopesOf('workspace-service')];
      const manager = await joined('manager');
      const make = async (by: Caller, body: Record<string, unknown>, sub: string) =>
        ok(
          await by('POST', `/v1/api-keys/workspace/${sub}`, { name: 'k', scopes, workspace_id: workspace.id, ...body }),
        );
      const own = await make(
        manager.call,
        { user_id: manager.id, scopes: scopes.filter((scope) => scopesOf('workspace-user').has(scope)) },
        'user',
      );
      const service = await make(manager.call, {}, 'service');
      const second = await make(on.as(service.key), {}, 'service');
      for (const { key } of [service, second]) {
        const id = await on.addUser('member');
        const body = (role: string) => ({ users: [{ id, role }] });
        refused(await on.as(key)('POST', users, body('admin')), 403, 'AB03', 'users[0].role');
        ok(await on.as(key)('POST', users, body('manager')));
      }
      const id = await on.addUser('member');
      const body = (role: string) => ({ users: [{ id, role }] });
      refused(await on.as(own.key)('POST', users, body('member')), 403, 'AB03', 'users[0].role');
      ok(await call('DELETE', `${users}/${manager.id}`));
      refused(await on.as(own.key)('POST', users, body('member')), 401, 'AB05');
      refused(await on.as(second.key)('POST', users, body('admin')), 403, 'AB03', 'users[0].role');
      const { key } = await on.makeKey('workspace/service', scopes, { workspace_id: workspace.id });
      ok(await on.as(key)('POST', users, body('admin')));
    });

    it('the refusal of a role says nothing about the user', async () => {
      const manager = await joined('manager');
      const member = await joined('admin');
      const answers = await Promise.all(
        [NOWHERE, on.admin.b.user_id, member.id].map((id) => manager.call('PUT', `${users}/${id}`, { role: 'admin' })),
      );
      expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
      refused(answers[0] as Answer, 403, 'AB03', 'role');
    });
  });

  describe('who gets in', () => {
    it('managersWriteWsUsers takes managers the writing, and leaves them the reading', async () => {
      const manager = await joined('manager');
      const other = await joined('member');
      await organisation({ security_settings: { managersWriteWsUsers: false } });
      const id = await on.addUser('member');
      refused(await manager.call('POST', users, { users: [{ id, role: 'member' }] }), 403, 'AB03');
      refused(await manager.call('PUT', `${users}/${other.id}`, { role: 'member' }), 403, 'AB03');
      refused(await manager.call('DELETE', `${users}/${other.id}`), 403, 'AB03');
      ok(await manager.call('GET', users));
      const admin = await joined('admin');
      ok(await admin.call('POST', users, { users: [{ id, role: 'member' }] }));
      await organisation({});
    });

    it('a plain member reads the list and changes nothing', async () => {
      const member = await joined('member');
      ok(await member.call('GET', users));
      ok(await member.call('GET', `${users}/${member.id}`));
      refused(await member.call('DELETE', `${users}/${member.id}`), 403, 'AB03');
    });

    it('members of a workspace that the caller cannot see are the one 404', async () => {
      const other = ok(await call('POST', '/v1/admin/workspaces', { name: 'Other' }));
      const outsider = await joined('admin');
      const { key } = await on.makeKey('workspace/service', ['workspace_users.list', 'workspace_users.create'], {
        workspace_id: workspace.id,
      });
      const answers: Answer[] = [];
      for (const name of [
        other.id,
        other.slug,
        on.admin.b.workspace_id,
        on.admin.b.workspace_slug,
        NOWHERE,
        'ws-none',
      ]) {
        for (const caller of [outsider.call, on.as(key)]) {
          const path = `/v1/admin/workspaces/${name}/users`;
          answers.push(await caller('GET', path));
          answers.push(await caller('POST', path, { users: [{ id: outsider.id, role: 'member' }] }));
        }
      }
      expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
      refused(answers[0] as Answer, 404, 'AB08');
      const ofMembers = new Set<string>();
      for (const id of [NOWHERE, on.admin.b.user_id, 'nobody', other.id]) {
        for (const [method, body] of [['GET'], ['PUT', { role: 'member' }], ['DELETE']] as [string, unknown?][]) {
          const answer = await call(method, `${users}/${id}`, body);
          refused(answer, 404, 'AB08');
          ofMembers.add(answer.text);
        }
      }
      expect(ofMembers.size).toBe(1);
    });
  });

  describe('what goes with a membership', () => {
    it('leaving ends the rights and the own keys here at once, and nothing elsewhere', async () => {
      const other = ok(await call('POST', '/v1/admin/workspaces', { name: 'Elsewhere' }));
      const id = await on.addUser('member', { [workspace.id]: 'member', [other.id]: 'member' });
      const person = await on.signIn(id);
      const key = (workspace_id: string) =>
        on.makeKey('workspace/user', ['configs.list'], { workspace_id, user_id: id });
      const [here, there] = [await key(workspace.id), await key(other.id)];
      const service = await on.makeKey('workspace/service', ['configs.list'], { workspace_id: workspace.id });
      ok(await on.as(here.key)('GET', '/v1/configs'));
      expect(ok(await call('DELETE', `${users}/${id}`))).toEqual({});
      refused(await on.as(here.key)('GET', '/v1/configs'), 401, 'AB05');
      ok(await on.as(there.key)('GET', '/v1/configs'));
      ok(await on.as(service.key)('GET', '/v1/configs'));
      refused(await person('GET', users), 404, 'AB08');
      refused(await person('GET', `/v1/configs?workspace_id=${workspace.id}`), 403, 'AB03', 'workspace_id');
      refused(await call('GET', `${users}/${id}`), 404, 'AB08');
      refused(await call('DELETE', `${users}/${id}`), 404, 'AB08');
      expect((await keysOf(id)).map((row) => row.status)).toEqual(['archived']);
      // Coming back does not revive what was revoked.
      ok(await add({ id, role: 'manager' }));
      expect(ok(await call('GET', `${users}/${id}`)).role).toBe('manager');
      refused(await on.as(here.key)('GET', '/v1/configs'), 401, 'AB05');
    });

    it('a new role is in force with the next call', async () => {
      const person = await joined('admin');
      const { key } = await on.makeKey('workspace/user', ['workspace_users.delete'], {
        workspace_id: workspace.id,
        user_id: person.id,
      });
      const again = { users: [{ id: person.id, role: 'admin' }] };
      ok(await person.call('POST', users, again));
      ok(await on.as(key)('DELETE', `${users}/${(await joined('admin')).id}`));
      expect(ok(await call('PUT', `${users}/${person.id}`, { role: 'member' }))).toEqual({});
      refused(await on.as(key)('DELETE', `${users}/${(await joined('member')).id}`), 403, 'AB03');
      refused(await person.call('POST', users, again), 403, 'AB03');
      refused(await call('PUT', `${users}/${person.id}`, {}), 400, 'AB01', 'role');
      refused(await call('PUT', `${users}/${person.id}`, { role: null }), 400, 'AB01', 'role');
      refused(await call('PUT', `${users}/${person.id}`, { role: 'member', status: 'x' }), 400, 'AB01', 'status');
    });

    it('joining makes a user key where the settings want one, in a new workspace too', async () => {
      const id = await on.addUser('member');
      await organisation({ user_api_key_auto_create: true, user_api_key_auto_create_scopes: ['completions.write'] });
      const made = ok(await call('POST', '/v1/admin/workspaces', { name: 'Keyed', users: [id] }));
      ok(await add({ id, role: 'manager' }));
      ok(await add({ id, role: 'manager' }));
      for (const workspaceId of [workspace.id, made.id]) {
        const keys = await keysOf(id, workspaceId);
        expect(keys.map((row) => [row.creation_mode, row.type, row.scopes])).toEqual([
          ['auto', 'workspace-user', ['completions.write']],
        ]);
      }
      await organisation({});
    });

    it('each change is in the feed and in the audit log, with the role before and after', async () => {
      const id = await on.addUser('member');
      const { tables } = on.admin;
      const seq = await tables.lastChange();
      ok(await add({ id, role: 'member' }));
      ok(await call('PUT', `${users}/${id}`, { role: 'manager' }));
      ok(await call('PUT', `${users}/${id}`, { role: 'manager' }));
      ok(await call('DELETE', `${users}/${id}`));
      const changes = (await tables.changesAfter(seq, 100)).map((one) => [one.topic, one.workspaceId, one.entityId]);
      expect(changes).toEqual(Array(3).fill(['workspace_members', workspace.id, id]));
      const rows = await tables.systemRead((tx) =>
        tx.list('audit_log', { where: { resource_id: workspace.id }, orderBy: [['timestamp', 'asc']] }),
      );
      const mine = rows.filter((row) => row.after?.includes(id) || row.before?.includes(id));
      const seen = mine.map((row) => [
        row.action,
        row.workspace_id,
        JSON.parse(row.before ?? 'null'),
        JSON.parse(row.after ?? 'null'),
      ]);
      const [member, manager] = ['member', 'manager'].map((role) => ({ user_id: id, role }));
      expect(seen).toEqual([
        ['create', workspace.id, null, { users: [{ id, role: 'member' }] }],
        ['update', workspace.id, member, manager],
        ['update', workspace.id, manager, manager],
        ['delete', workspace.id, manager, null],
      ]);
    });

    it('the same user added twice at once is a member once', async () => {
      for (let round = 0; round < 10; round++) {
        const id = await on.addUser('member');
        const [first, second] = await Promise.all([add({ id, role: 'member' }), add({ id, role: 'manager' })]);
        expect([first?.status, second?.status].sort(), `${first?.text} ${second?.text}`).toEqual([200, 409]);
      }
    });
  });
});
