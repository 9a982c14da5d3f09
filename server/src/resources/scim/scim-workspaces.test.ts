import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Directory, directory } from '../../../test/support/groups.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../test/support/organisation.ts';
import { addUser } from '../../../test/support/people.ts';
import { systemClock } from '../../kernel/clock.ts';
import { acceptInvite } from '../admin/invites/accept.ts';

const PATH = '/v1/scim/workspaces';

let org: Organisation;
let scim: Directory;
let call: Caller;
let count = 0;

beforeAll(async () => {
  org = await startOrganisation('sqlite');
  scim = directory(org.admin.tables, org.admin.a.organisation_id);
  call = org.as(org.admin.a.admin_api_key);
});

afterAll(async () => {
  await org?.admin.close();
});

const workspace = async () => {
  const { body } = await call('POST', '/v1/admin/workspaces', { name: `Team ${++count}` });
  return body as { id: string; slug: string };
};
const name = () => `Group ${++count}`;
const map = (body: Record<string, unknown>) => call('POST', PATH, body);
const membersOf = async (id: string): Promise<Record<string, string>> => {
  const { body } = await call('GET', `/v1/admin/workspaces/${id}/users?page_size=100`);
  return Object.fromEntries(body.data.map((one: { id: string; role: string }) => [one.id, one.role]));
};

describe('a mapping', () => {
  it('takes a role in any case, makes a group that is not there, and answers the role in lower case', async () => {
    const team = await workspace();
    const made = await map({ workspace_id: team.slug, role: 'MaNaGeR', scim_group_name: ' Research ' });
    expect(made.status, made.text).toBe(200);
    expect(made.body).toEqual({
      id: expect.any(String),
      workspace_id: team.id,
      scim_group: 'Research',
      scim_group_id: expect.any(String),
      role: 'manager',
    });
    const { body } = await call('GET', '/v1/scim/groups?search=RESEAR');
    expect(body).toEqual({
      groups: [{ id: made.body.scim_group_id, display_name: 'Research', member_count: 0, mappings: [made.body] }],
      page: 1,
      page_size: 50,
      total_count: 1,
    });
    const other = await workspace();
    const again = await map({ workspace_id: other.id, role: 'manager', scim_group_name: 'RESEARCH' });
    expect(again.body.scim_group_id).toBe(made.body.scim_group_id);
  });

  it('is refused, each with the field that is wrong', async () => {
    const [team, other] = [await workspace(), await workspace()];
    const group = await scim.group(name());
    const foreign = await directory(org.admin.tables, org.admin.b.organisation_id).group(name());
    const first = { workspace_id: team.id, role: 'member', scim_group_id: group };
    expect((await map(first)).status).toBe(200);
    const cases: readonly [string, Record<string, unknown>, number, string][] = [
      ['the same pair again', first, 409, 'workspace_id'],
      [
        'another role than the group’s other mappings',
        { ...first, workspace_id: other.id, role: 'admin' },
        400,
        'role',
      ],
      ['an unknown role', { ...first, workspace_id: other.id, role: 'owner' }, 400, 'role'],
      ['both group fields', { ...first, scim_group_name: 'x' }, 400, 'scim_group_id'],
      ['neither group field', { workspace_id: team.id, role: 'member' }, 400, 'scim_group_id'],
      ['a group of nobody', { ...first, scim_group_id: crypto.randomUUID() }, 404, 'scim_group_id'],
      ['a group of another organisation', { ...first, scim_group_id: foreign }, 404, 'scim_group_id'],
      [
        'a workspace of another organisation',
        { ...first, workspace_id: org.admin.b.workspace_id },
        404,
        'workspace_id',
      ],
      [
        'a reserved name',
        { workspace_id: team.id, role: 'member', scim_group_name: 'WS-x-role-admin' },
        400,
        'scim_group_name',
      ],
      ['an empty name', { workspace_id: team.id, role: 'member', scim_group_name: '  ' }, 400, 'scim_group_name'],
      ['no workspace', { role: 'member', scim_group_id: group }, 400, 'workspace_id'],
    ];
    for (const [what, body, status, param] of cases) {
      const answer = await map(body);
      expect([answer.status, answer.body.error?.param], `${what}: ${answer.text}`).toEqual([status, param]);
    }
  });

  it('is listed by workspace, group and role, in pages that are counted from 1', async () => {
    const teams = [await workspace(), await workspace(), await workspace()];
    const group = await scim.group(name());
    for (const team of teams) await map({ workspace_id: team.id, role: 'admin', scim_group_id: group });
    const page = async (query: string) => (await call('GET', `${PATH}?scim_group_id=${group}${query}`)).body;
    const whole = await page('');
    expect(whole).toMatchObject({ page: 1, page_size: 50, total_count: 3 });
    const second = await page('&page=2&page_size=2&role=ADMIN');
    expect(second).toMatchObject({ page: 2, page_size: 2, total_count: 3 });
    expect(second.mappings).toEqual([whole.mappings[2]]);
    expect((await page(`&workspace_id=${teams[1]?.slug}`)).mappings).toHaveLength(1);
    expect((await page('&role=member')).total_count).toBe(0);
    for (const query of ['&page=0', '&page_size=101', '&role=owner', '&x=1']) {
      expect((await call('GET', `${PATH}?scim_group_id=${group}${query}`)).status, query).toBe(400);
    }
  });

  it('gives all members of the group their place at once, and leaves it to them when it is deleted', async () => {
    const [team, other] = [await workspace(), await workspace()];
    const group = await scim.group(name());
    const users = [await org.addUser('member'), await org.addUser('member')] as const;
    await scim.enter(group, users);
    const made = await map({ workspace_id: team.id, role: 'manager', scim_group_id: group });
    await map({ workspace_id: other.id, role: 'manager', scim_group_id: group });
    expect(await membersOf(team.id)).toEqual({ [users[0]]: 'manager', [users[1]]: 'manager' });
    await call('PUT', `/v1/admin/workspaces/${team.id}/users/${users[1]}`, { role: 'admin' });
    const gone = await call('DELETE', `${PATH}/${made.body.id}`);
    expect([gone.status, gone.body]).toEqual([200, { success: true }]);
    expect((await call('DELETE', `${PATH}/${made.body.id}`)).status).toBe(404);
    await scim.leave(group, users);
    expect(await membersOf(team.id)).toEqual({ [users[0]]: 'manager', [users[1]]: 'admin' });
    expect(await membersOf(other.id)).toEqual({});
  });

  it('is for owners, admins and keys of the organisation, which cannot give more than they hold', async () => {
    const team = await workspace();
    const member = await org.addUser('member', { [team.id]: 'admin' });
    const admin = await org.addUser('admin');
    const body = (role: string) => ({ workspace_id: team.id, role, scim_group_name: name() });
    const callers: readonly [string, Caller, number][] = [
      ['an admin', await org.signIn(admin), 200],
      ['an admin of the workspace', await org.signIn(member), 403],
      ['a key of the workspace', org.as(org.admin.a.workspace_api_key), 403],
      ['a key with the one scope', org.as((await org.makeKey('organisation/service', ['workspaces.update'])).key), 403],
      ['a key without it', org.as((await org.makeKey('organisation/service', ['workspaces.list'])).key), 403],
    ];
    for (const [who, as, status] of callers) {
      const answer = await as('POST', PATH, body('admin'));
      expect(answer.status, `${who}: ${answer.text}`).toBe(status);
    }
    const mine = await map(body('member'));
    for (const [who, as, status] of callers.slice(1, 3)) {
      for (const path of [`${PATH}?workspace_id=${team.id}`, '/v1/scim/groups']) {
        expect((await as('GET', path)).status, who).not.toBe(200);
      }
      expect((await as('DELETE', `${PATH}/${mine.body.id}`)).status, who).not.toBe(200);
      expect(status).toBe(403);
    }
    expect((await org.as(org.admin.b.admin_api_key)('DELETE', `${PATH}/${mine.body.id}`)).status).toBe(404);
  });
});

describe('a membership that a group gives', () => {
  it('is neither ended nor lowered by hand: 409, and a higher role by hand counts', async () => {
    const team = await workspace();
    const group = await scim.group(name());
    const user = await org.addUser('member');
    await scim.enter(group, [user]);
    await map({ workspace_id: team.id, role: 'manager', scim_group_id: group });
    const path = `/v1/admin/workspaces/${team.id}/users/${user}`;
    expect((await call('DELETE', path)).status).toBe(409);
    const lower = await call('PUT', path, { role: 'member' });
    expect([lower.status, lower.body.error.param]).toEqual([409, 'role']);
    const whole = await call('PUT', `/v1/admin/users/${user}`, { workspaces: [] });
    expect([whole.status, whole.body.error.param]).toEqual([409, 'workspaces']);
    expect((await call('PUT', path, { role: 'admin' })).status).toBe(200);
    expect((await call('GET', path)).body).toMatchObject({
      role: 'admin',
      sources: [
        { type: 'manual', id: null, role: 'admin' },
        { type: 'scim', id: group, role: 'manager' },
      ],
    });
    expect((await call('PUT', path, { role: 'manager' })).status).toBe(200);
    await scim.leave(group, [user]);
    expect((await call('DELETE', path)).status).toBe(200);
    expect(await membersOf(team.id)).toEqual({});
  });

  it('ends with the user keys of that workspace when the user leaves the group, and no earlier', async () => {
    await call('PUT', '/v1/admin/organisation/settings', { user_api_key_auto_create: true });
    const team = await workspace();
    const [group, other] = [await scim.group(name()), await scim.group(name())];
    const user = await org.addUser('member');
    for (const id of [group, other]) {
      await map({ workspace_id: team.id, role: 'member', scim_group_id: id });
      await scim.enter(id, [user]);
    }
    const keys = async () => {
      const all = await org.admin.tables.systemRead((tx) => tx.list('api_keys', { where: { user_id: user } }));
      return all.map((key) => [key.status, key.created_by]);
    };
    expect(await keys()).toEqual([['active', user]]);
    await scim.leave(group, [user]);
    expect(await keys()).toEqual([['active', user]]);
    await scim.dissolve(other);
    expect(await keys()).toEqual([['archived', user]]);
    expect(await membersOf(team.id)).toEqual({});
    expect((await call('GET', `${PATH}?workspace_id=${team.id}`)).body.total_count).toBe(1);
    await call('PUT', '/v1/admin/organisation/settings', { user_api_key_auto_create: null });
  });

  it('is back when a deactivated user is active again; keys are not, and a new one is made where the settings want it', async () => {
    await call('PUT', '/v1/admin/organisation/settings', { user_api_key_auto_create: true });
    const [team, hand, late] = [await workspace(), await workspace(), await workspace()];
    const group = await scim.group(name());
    const user = await org.addUser('member');
    await map({ workspace_id: team.id, role: 'manager', scim_group_id: group });
    await scim.enter(group, [user]);
    await call('POST', `/v1/admin/workspaces/${hand.id}/users`, { users: [{ id: user, role: 'member' }] });
    const keys = (status: 'active' | 'archived') =>
      org.admin.tables.systemRead((tx) => tx.list('api_keys', { where: { user_id: user, status } }));
    const before = (await keys('active')).map((key) => key.id);
    expect(before).toHaveLength(2);
    await scim.deactivate(user);
    expect([await membersOf(team.id), await membersOf(hand.id), await keys('active')]).toEqual([{}, {}, []]);
    await map({ workspace_id: late.id, role: 'manager', scim_group_id: group });
    expect(await membersOf(late.id)).toEqual({});
    await scim.activate(user);
    for (const [place, role] of [
      [team, 'manager'],
      [hand, 'member'],
      [late, 'manager'],
    ] as const) {
      expect(await membersOf(place.id)).toEqual({ [user]: role });
    }
    const after = (await keys('active')).map((key) => key.id);
    expect([after.length, after.some((id) => before.includes(id))]).toEqual([3, false]);
    await call('PUT', '/v1/admin/organisation/settings', { user_api_key_auto_create: null });
  });

  it('brings users back whom the directory deactivated, only where the organisation wants it', async () => {
    const { tables, a } = org.admin;
    const team = await workspace();
    const group = await scim.group(name());
    await map({ workspace_id: team.id, role: 'member', scim_group_id: group });
    const away = async () => {
      const user = await addUser(tables, a.organisation_id);
      const at = { created_at: user.created_at, last_updated_at: user.created_at };
      const profile = { userName: user.email };
      const row = { organisation_id: a.organisation_id, user_id: user.id, external_id: null, user_name: user.email };
      await tables.systemWrite((tx) => tx.insert('scim_users', { ...row, profile, active: false, ...at }));
      await scim.deactivate(user.id);
      return user.id;
    };
    const [first, second] = [await away(), await away()] as const;
    await scim.enter(group, [first]);
    expect(await membersOf(team.id)).toEqual({});
    await call('PUT', '/v1/admin/organisation/settings', { group_based_user_provisioning: true });
    await scim.enter(group, [second]);
    expect(await membersOf(team.id)).toEqual({ [second]: 'member' });
    await call('PUT', '/v1/admin/organisation/settings', { group_based_user_provisioning: null });
  });

  it('comes back with a new invite for whom a directory deactivated, what was given by hand does not', async () => {
    const { tables, a } = org.admin;
    const [team, hand, invited] = [await workspace(), await workspace(), await workspace()];
    const group = await scim.group(name());
    const { id: user, email } = await addUser(tables, a.organisation_id);
    await map({ workspace_id: team.id, role: 'manager', scim_group_id: group });
    await scim.enter(group, [user]);
    await call('POST', `/v1/admin/workspaces/${hand.id}/users`, { users: [{ id: user, role: 'member' }] });
    await scim.deactivate(user);
    const workspaces = [{ id: invited.id, role: 'admin' }];
    const { body } = await call('POST', '/v1/admin/users/invites', { email, role: 'member', workspaces });
    const token = body.invite_link.split('#')[1] ?? '';
    await scim.write((tx) => acceptInvite(tx, systemClock, { token, firstName: 'Ada', lastName: 'Back' }));
    expect(await membersOf(team.id)).toEqual({ [user]: 'manager' });
    expect(await membersOf(invited.id)).toEqual({ [user]: 'admin' });
    expect(await membersOf(hand.id)).toEqual({});
  });

  it('does not come back with an invite that was open when the user was removed', async () => {
    const { tables, a } = org.admin;
    const email = `open-${++count}@people.example`;
    const invite = await call('POST', '/v1/admin/users/invites', { email, role: 'member', workspaces: [] });
    const user = await addUser(tables, a.organisation_id, { email });
    await scim.deactivate(user.id);
    expect((await call('GET', `/v1/admin/users/invites/${invite.body.id}`)).body.status).toBe('cancelled');
  });
});
