/** Users: what is answered of them, who may change whom, and that an owner is left. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../../test/support/accounts.ts';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from '../../../../test/support/admin.ts';
import { addUser, PUBLIC_URL, signIn } from '../../../../test/support/people.ts';
import { ConsoleSessions } from '../../../auth/console-session.ts';
import { systemClock } from '../../../kernel/clock.ts';
import { uuidv7 } from '../../../kernel/id.ts';
import { workspaceRow } from '../../../store/conformance/rows.ts';
import type { Row } from '../../../store/schema.ts';
import { type CreatedOrganisation, createOrganisation } from '../../organisations.ts';

const TIME = /^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$/;
const ABSENT = '00000000-0000-7000-8000-000000000000';

describe.each(['sqlite', 'postgres'] as const)('users on %s', (engine) => {
  let api: AdminHarness;
  let sessions: ConsoleSessions;
  let organisations = 0;

  beforeAll(async () => {
    const tables = await emptyTables(engine);
    sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
    api = await startAdmin(tables, { admin: { sessions } });
  });
  afterAll(() => api.close());

  /** A fresh organisation, so that a test may count its users. */
  const organisation = (): Promise<CreatedOrganisation> => {
    const name = `Org${++organisations}`;
    const owner = { email: `owner@${name.toLowerCase()}.example`, first_name: 'Ada', last_name: 'Lovelace' };
    return api.tables.systemWrite((tx) =>
      createOrganisation(tx, { name, owner, blockInlineConfig: true, clock: systemClock }),
    );
  };
  const workspace = async (org: CreatedOrganisation, slug: string, patch: Partial<Row<'workspaces'>> = {}) => {
    const id = uuidv7(systemClock);
    const row = workspaceRow(org.organisation_id, id, { slug, name: slug, ...patch });
    await api.tables.systemWrite((tx) => tx.insert('workspaces', row));
    return id;
  };
  const user = (org: CreatedOrganisation, fields: Partial<Row<'users'>> = {}) =>
    addUser(api.tables, org.organisation_id, fields);
  const join = (org: CreatedOrganisation, workspace_id: string, user_id: string, role: 'admin' | 'member' = 'member') =>
    api.tables.systemWrite((tx) =>
      tx.insert('workspace_members', {
        organisation_id: org.organisation_id,
        workspace_id,
        user_id,
        role,
        status: 'active',
        created_at: systemClock.now(),
        last_updated_at: systemClock.now(),
      }),
    );

  /** Calls with the organisation's own key, which its owner made. */
  const as = (org: CreatedOrganisation) => ({
    get: (path: string) => api.call('GET', `/v1/admin/users${path}`, { key: org.admin_api_key }),
    put: (id: string, body: unknown) => api.call('PUT', `/v1/admin/users/${id}`, { key: org.admin_api_key, body }),
    del: (id: string) => api.call('DELETE', `/v1/admin/users/${id}`, { key: org.admin_api_key }),
  });
  /** Calls of a signed-in user. */
  const browser = async (person: { id: string; organisation_id: string }) => {
    const headers = await signIn(api.tables, sessions, person);
    return (method: string, path: string, body?: unknown): Promise<Answer> =>
      api.call(method, `/v1/admin/users${path}`, { key: null, headers, body });
  };
  const ownerOf = (org: CreatedOrganisation) => ({ id: org.user_id, organisation_id: org.organisation_id });
  const roleOf = async (id: string) => {
    const row = await api.tables.systemRead((tx) => tx.find('users', { id }));
    return row && [row.role, row.status];
  };
  const userKey = async (org: CreatedOrganisation, workspace_id: string, user_id: string) => {
    const body = { name: 'mine', workspace_id, user_id, scopes: ['configs.list'] };
    const made = await api.call('POST', '/v1/api-keys/workspace/user', { key: org.admin_api_key, body });
    expect(made.status, made.text).toBe(200);
    return made.body as { id: string; key: string };
  };
  const organisationKey = async (creator: { key: string } | { headers: Record<string, string> }) => {
    const scopes = ['organisation_users.update', 'organisation_users.delete', 'organisation_service_api_keys.create'];
    const body = { name: 'people', scopes };
    const made = await api.call('POST', '/v1/api-keys/organisation/service', { key: null, ...creator, body });
    expect(made.status, made.text).toBe(200);
    return made.body.key as string;
  };

  describe('what is answered', () => {
    it('a user has the nine fields, with dates as YYYY-MM-DD HH:MM:SS in UTC', async () => {
      const org = await organisation();
      const at = Date.parse('2026-05-03T17:08:55.999Z');
      const ada = await user(org, { email: 'ada@x.example', first_name: 'Ada', created_at: at, last_updated_at: at });
      await join(org, org.workspace_id, ada.id);
      const { status, body } = await as(org).get(`/${ada.id}`);
      expect(status).toBe(200);
      expect(body).toEqual({
        object: 'user',
        id: ada.id,
        first_name: 'Ada',
        last_name: 'Hopper',
        role: 'member',
        email: 'ada@x.example',
        created_at: '2026-05-03 17:08:55',
        last_updated_at: '2026-05-03 17:08:55',
        workspace_ids: [org.workspace_slug],
      });
    });

    it('owners and admins have all active workspaces, members those they joined, in get and in list', async () => {
      const org = await organisation();
      await workspace(org, 'ws-two', { created_at: systemClock.now() + 1 });
      const gone = await workspace(org, 'ws-gone', { status: 'archived' });
      const admin = await user(org, { role: 'admin' });
      const member = await user(org);
      const lonely = await user(org);
      await join(org, org.workspace_id, member.id);
      await join(org, gone, member.id);
      const all = [org.workspace_slug, 'ws-two'];
      const wanted = new Map([
        [org.user_id, all],
        [admin.id, all],
        [member.id, [org.workspace_slug]],
        [lonely.id, []],
      ]);
      for (const [id, slugs] of wanted) {
        expect((await as(org).get(`/${id}`)).body.workspace_ids.toSorted()).toEqual(slugs.toSorted());
      }
      const { body } = await as(org).get('');
      expect(body).toMatchObject({ object: 'list', total: 4 });
      for (const item of body.data) expect(item.workspace_ids.toSorted()).toEqual(wanted.get(item.id)?.toSorted());
    });

    it('the list takes role, e-mail in any case, and both spellings of a page', async () => {
      const org = await organisation();
      for (let n = 0; n < 4; n++) await user(org, { role: n < 2 ? 'admin' : 'member', email: `n${n}@x.example` });
      await user(org, { status: 'archived', email: 'gone@x.example' });
      const emails = async (query: string) =>
        (await as(org).get(query)).body.data.map((item: { email: string }) => item.email).toSorted();
      expect(await emails('?role=admin')).toEqual(['n0@x.example', 'n1@x.example']);
      expect(await emails('?role=owner')).toHaveLength(1);
      expect(await emails('?email=N3%40X.example')).toEqual(['n3@x.example']);
      expect(await emails('?email=gone%40x.example')).toEqual([]);
      const seen = new Set<string>();
      for (const page of [0, 1, 2]) {
        const camel = await as(org).get(`?pageSize=2&currentPage=${page}`);
        expect(camel.body).toEqual((await as(org).get(`?page_size=2&current_page=${page}`)).body);
        expect(camel.body.total).toBe(5);
        for (const { id, created_at } of camel.body.data) {
          expect(created_at).toMatch(TIME);
          seen.add(id);
        }
      }
      expect(seen.size).toBe(5);
    });

    it.each([
      ['?role=Owner', 'role'],
      ['?role=admin,member', 'role'],
      ['?email=nobody', 'email'],
      ['?pageSize=0', 'pageSize'],
      ['?pageSize=101', 'pageSize'],
      ['?currentPage=-1', 'currentPage'],
      ['?pageSize=2&page_size=3', 'pageSize'],
      ['?search=x', 'search'],
    ])('a list with %s is refused and names the parameter', async (query, param) => {
      refused(await as(api.a).get(query), 400, 'AB01', param);
    });

    it('a user of another organisation, an archived one and an invented one are one 404', async () => {
      const org = await organisation();
      const archived = await user(org, { status: 'archived' });
      for (const id of [api.b.user_id, archived.id, ABSENT, 'x', 'invites2']) {
        for (const answer of [await as(org).get(`/${id}`), await as(org).put(id, {}), await as(org).del(id)]) {
          refused(answer, 404, 'AB08', null);
        }
      }
      expect(await roleOf(api.b.user_id)).toEqual(['owner', 'active']);
    });
  });

  describe('changing a user', () => {
    it('the role changes between admin and member, both ways, and what is left out stays', async () => {
      const org = await organisation();
      const ada = await user(org, { created_at: 0, last_updated_at: 0 });
      await join(org, org.workspace_id, ada.id);
      expect((await as(org).put(ada.id, { role: 'admin' })).body).toEqual({});
      expect((await as(org).get(`/${ada.id}`)).body).toMatchObject({
        role: 'admin',
        created_at: '1970-01-01 00:00:00',
        last_updated_at: expect.stringMatching(/^20/),
      });
      expect((await as(org).put(ada.id, { role: 'member' })).status).toBe(200);
      expect((await as(org).put(ada.id, {})).body).toEqual({});
      expect((await as(org).get(`/${ada.id}`)).body).toMatchObject({
        role: 'member',
        workspace_ids: [org.workspace_slug],
      });
    });

    it('workspaces is the whole list afterwards: joined, another role, and left with the keys there', async () => {
      const org = await organisation();
      const second = await workspace(org, 'ws-second');
      const third = await workspace(org, 'ws-third');
      const ada = await user(org);
      await join(org, org.workspace_id, ada.id);
      await join(org, second, ada.id);
      const kept = await userKey(org, second, ada.id);
      const lost = await userKey(org, org.workspace_id, ada.id);
      const workspaces = [
        { id: 'ws-second', role: 'manager' },
        { id: third, role: 'admin' },
      ];
      expect((await as(org).put(ada.id, { workspaces })).body).toEqual({});
      const { body } = await as(org).get(`/${ada.id}`);
      expect(body.workspace_ids.toSorted()).toEqual(['ws-second', 'ws-third']);
      const rows = await api.tables.systemRead((tx) =>
        tx.list('workspace_members', { where: { user_id: ada.id, status: 'active' } }),
      );
      expect(new Map(rows.map((row) => [row.workspace_id, row.role]))).toEqual(
        new Map([
          [second, 'manager'],
          [third, 'admin'],
        ]),
      );
      expect((await api.call('GET', '/v1/configs', { key: kept.key })).status).toBe(200);
      expect((await api.call('GET', '/v1/configs', { key: lost.key })).status).toBe(401);
      expect((await as(org).put(ada.id, { workspaces: [] })).status).toBe(200);
      expect((await as(org).get(`/${ada.id}`)).body.workspace_ids).toEqual([]);
      expect((await api.call('GET', '/v1/configs', { key: kept.key })).status).toBe(401);
    });

    it.each([
      ['an owner', { role: 'owner' }, 'role'],
      ['another case', { role: 'Admin' }, 'role'],
      ['padding', { role: ' admin' }, 'role'],
      ['a look-alike', { role: 'аdmin' }, 'role'],
      ['an array', { role: ['admin'] }, 'role'],
      ['null', { role: null }, 'role'],
      ['null workspaces', { workspaces: null }, 'workspaces'],
      ['an object of workspaces', { workspaces: {} }, 'workspaces'],
      ['a workspace without role', { workspaces: [{ id: 'x' }] }, 'workspaces[0].role'],
      ['a workspace owner', { workspaces: [{ id: 'x', role: 'owner' }] }, 'workspaces[0].role'],
      ['a workspace without id', { workspaces: [{ role: 'member' }] }, 'workspaces[0].id'],
      ['a bad workspace id', { workspaces: [{ id: 'a b', role: 'member' }] }, 'workspaces[0].id'],
      ['an unknown key', { nickname: 'Eve' }, 'nickname'],
      ['no address', { email: 'eve' }, 'email'],
    ])('%s is a 400 that names the field', async (_title, body, param) => {
      const ada = await user(api.a);
      refused(await as(api.a).put(ada.id, body), 400, 'AB01', param);
      expect(await roleOf(ada.id)).toEqual(['member', 'active']);
    });

    it('the address of another user is not for a key to change', async () => {
      const ada = await user(api.a);
      refused(await as(api.a).put(ada.id, { email: 'eve@x.example' }), 403, 'AB03', 'email');
    });

    it('a role given twice in the body is refused', async () => {
      const ada = await user(api.a);
      const raw = '{"role":"member","role":"admin"}';
      const answer = await api.call('PUT', `/v1/admin/users/${ada.id}`, { raw });
      expect([answer.status, await roleOf(ada.id)]).toEqual([400, ['member', 'active']]);
    });

    it('a workspace that is foreign or invented is one 404, a repeated one 400, and nothing changes', async () => {
      const ada = await user(api.a);
      const put = (...ids: string[]) =>
        as(api.a).put(ada.id, { role: 'admin', workspaces: ids.map((id) => ({ id, role: 'admin' })) });
      for (const id of [api.b.workspace_id, api.b.workspace_slug, ABSENT, 'ws-invented']) {
        refused(await put(api.a.workspace_slug, id), 404, 'AB02', 'workspaces[1].id');
      }
      refused(await put(api.a.workspace_slug, api.a.workspace_id), 400, 'AB01', 'workspaces[1].id');
      expect(await roleOf(ada.id)).toEqual(['member', 'active']);
      expect((await as(api.a).get(`/${ada.id}`)).body.workspace_ids).toEqual([]);
    });

    it('an owner cannot be changed, by nobody: 403', async () => {
      const org = await organisation();
      const other = await user(org, { role: 'owner' });
      const owner = await browser(ownerOf(org));
      const admin = await browser(await user(org, { role: 'admin' }));
      for (const body of [{ role: 'member' }, { role: 'admin' }, { workspaces: [] }]) {
        refused(await as(org).put(other.id, body), 403, 'AB03', null);
        refused(await owner('PUT', `/${other.id}`, body), 403, 'AB03', null);
        refused(await owner('PUT', `/${org.user_id}`, body), 403, 'AB03', null);
        refused(await admin('PUT', `/${org.user_id}`, body), 403, 'AB03', null);
      }
      expect([await roleOf(other.id), await roleOf(org.user_id)]).toEqual([
        ['owner', 'active'],
        ['owner', 'active'],
      ]);
    });

    it('a demotion acts at once: the next call of the same sign-in is refused', async () => {
      const org = await organisation();
      const admin = await user(org, { role: 'admin' });
      const call = await browser(admin);
      expect((await call('GET', '')).status).toBe(200);
      expect((await as(org).put(admin.id, { role: 'member' })).status).toBe(200);
      // The sign-in itself is known for up to a second; what it may do to others is read where it is done.
      const target = await user(org);
      const late = await call('PUT', `/${target.id}`, { role: 'admin' });
      expect([late.status, await roleOf(target.id)]).toEqual([403, ['member', 'active']]);
      sessions.invalidate();
      expect((await call('GET', '')).status).toBe(403);
    });
  });

  describe('who may touch whom', () => {
    it('a signed-in member or workspace admin has no rights here, whichever workspace he names', async () => {
      const org = await organisation();
      const manager = await user(org);
      await join(org, org.workspace_id, manager.id, 'admin');
      const target = await user(org);
      const call = await browser(manager);
      for (const query of ['', `?workspace_id=${org.workspace_slug}`]) {
        for (const [method, path, body] of [
          ['GET', ''],
          ['PUT', `/${target.id}`, { role: 'admin' }],
          ['PUT', `/${manager.id}`, { role: 'admin' }],
          ['DELETE', `/${target.id}`],
        ] as const) {
          refused(await call(method, `${path}${query}`, body), 403, 'AB03', null);
        }
      }
      expect([await roleOf(target.id), await roleOf(manager.id)]).toEqual([
        ['member', 'active'],
        ['member', 'active'],
      ]);
    });

    it('an admin changes and removes admins and members, and never an owner; neither does a key he made', async () => {
      const org = await organisation();
      await user(org, { role: 'owner' });
      const admin = await user(org, { role: 'admin' });
      const headers = await signIn(api.tables, sessions, admin);
      const key = await organisationKey({ headers });
      const second = await organisationKey({ key });
      for (const credential of [{ key: null, headers }, { key }, { key: second }]) {
        const peer = await user(org, { role: 'admin' });
        const at = (id: string) => `/v1/admin/users/${id}`;
        expect((await api.call('PUT', at(peer.id), { ...credential, body: { role: 'member' } })).status).toBe(200);
        expect((await api.call('DELETE', at(peer.id), credential)).status).toBe(200);
        refused(await api.call('DELETE', at(org.user_id), credential), 403, 'AB03', null);
      }
      expect(await roleOf(org.user_id)).toEqual(['owner', 'active']);
    });

    it('keys of somebody who was demoted do not rise again when he is removed, nor through a long line of keys', async () => {
      const org = await organisation();
      const admin = await user(org, { role: 'admin' });
      const key = await organisationKey({ headers: await signIn(api.tables, sessions, admin) });
      let last = key;
      for (let i = 0; i < 20; i++) last = await organisationKey({ key: last });
      const peer = await user(org, { role: 'admin' });
      const at = (id: string) => `/v1/admin/users/${id}`;
      expect((await as(org).put(admin.id, { role: 'member' })).status).toBe(200);
      refused(await api.call('DELETE', at(peer.id), { key: last }), 403, 'AB03', null);
      refused(await api.call('DELETE', at(peer.id), { key }), 403, 'AB03', null);
      refused(await api.call('PUT', at(peer.id), { key, body: { workspaces: [] } }), 403, 'AB03', null);
      // He is no more than a member, and may remove himself.
      expect((await api.call('DELETE', at(admin.id), { key })).status).toBe(200);
      refused(await api.call('DELETE', at(peer.id), { key }), 403, 'AB03', null);
      refused(await api.call('DELETE', at(peer.id), { key: last }), 403, 'AB03', null);
      expect(await roleOf(peer.id)).toEqual(['admin', 'active']);
    });
  });

  describe('removing a user', () => {
    it('ends everything of his at once: memberships, keys, sign-ins, unused links and open invites', async () => {
      const org = await organisation();
      const second = await workspace(org, 'ws-other');
      const admin = await user(org, { role: 'admin' });
      await join(org, org.workspace_id, admin.id, 'admin');
      await join(org, second, admin.id);
      const keys = [await userKey(org, org.workspace_id, admin.id), await userKey(org, second, admin.id)];
      for (const { key } of keys) expect((await api.call('GET', '/v1/configs', { key })).status).toBe(200);
      const call = await browser(admin);
      const invited = { email: 'late@x.example', role: 'admin', workspaces: [] };
      const { body: invite } = await call('POST', '/invites', invited);

      expect((await as(org).del(admin.id)).body).toEqual({});
      refused(await as(org).get(`/${admin.id}`), 404, 'AB08', null);
      for (const { key } of keys) expect((await api.call('GET', '/v1/configs', { key })).status).toBe(401);
      sessions.invalidate();
      expect((await call('GET', '')).status).toBe(401);
      expect((await as(org).get(`/invites/${invite.id}`)).body.status).toBe('cancelled');
      await api.tables.systemRead(async (tx) => {
        expect(await tx.count('console_sessions', { where: { user_id: admin.id } })).toBe(0);
        expect(await tx.count('workspace_members', { where: { user_id: admin.id, status: 'active' } })).toBe(0);
        expect(await tx.count('api_keys', { where: { user_id: admin.id, status: { not: 'archived' } } })).toBe(0);
      });
      refused(await as(org).del(admin.id), 404, 'AB08', null);
    });

    it('ends his keys of workspaces that he never joined, so that they do not come back with him', async () => {
      const org = await organisation();
      const admin = await user(org, { role: 'admin' });
      const body = { name: 'his', workspace_id: org.workspace_id, user_id: admin.id, scopes: ['configs.list'] };
      const made = await api.call('POST', '/v1/api-keys/workspace/user', { key: org.admin_api_key, body });
      expect(made.status, made.text).toBe(200);
      expect((await as(org).del(admin.id)).status).toBe(200);
      await api.tables.systemWrite((tx) => tx.update('users', { id: admin.id }, { status: 'active' }));
      expect((await api.call('GET', '/v1/configs', { key: made.body.key })).status).toBe(401);
    });

    it('another node learns of it by the change feed', async () => {
      const org = await organisation();
      const ada = await user(org);
      await join(org, org.workspace_id, ada.id);
      const { id: keyId } = await userKey(org, org.workspace_id, ada.id);
      const before = await api.tables.lastChange();
      await as(org).del(ada.id);
      const changes = await api.tables.changesAfter(before, 100);
      expect(changes.map(({ topic, entityId }) => [topic, entityId])).toEqual(
        expect.arrayContaining([
          ['users', ada.id],
          ['workspace_members', ada.id],
          ['api_keys', keyId],
        ]),
      );
    });

    it('the owner cannot be removed, by themselves or by their key: 400', async () => {
      const org = await organisation();
      const owner = await browser(ownerOf(org));
      for (const remove of [() => owner('DELETE', `/${org.user_id}`), () => as(org).del(org.user_id)])
        refused(await remove(), 400, 'AB01', null);
      expect(await roleOf(org.user_id)).toEqual(['owner', 'active']);
    });
  });
});
