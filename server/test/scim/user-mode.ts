/** Directories that say in users which groups they are in (SCIM_MEMBERSHIP_USER_MODE), on one engine. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Directory, openDirectory, patch } from './world.ts';

const UNKNOWN = '01900000-0000-7000-8000-000000000000';

export function userMode(engine: 'sqlite' | 'postgres'): void {
  let directory: Directory;
  const send: Directory['send'] = (...given) => directory.send(...given);
  beforeAll(async () => {
    directory = await openDirectory(engine, { SCIM_MEMBERSHIP_USER_MODE: 'ON' });
  }, 60_000);
  afterAll(() => directory.server.stop());

  const groupsOf = async (id: string): Promise<string[]> =>
    ((await send('GET', `/Users/${id}`)).body.groups ?? []).map((one: { display: string }) => one.display).sort();
  const placesOf = async (id: string): Promise<number> => {
    const { server } = directory;
    return (await server.admin('GET', `/admin/workspaces/${server.first.workspace_id}/users/${id}`)).status;
  };

  it('users say their groups by id or by name, and get and lose the workspaces of these', async () => {
    const { server } = directory;
    const group = await directory.group('Research');
    const mapping = { workspace_id: server.first.workspace_id, role: 'manager', scim_group_id: group };
    expect((await server.admin('POST', '/scim/workspaces', mapping)).status).toBe(200);
    const id = await directory.user('ada@example.com', { groups: [{ value: group }, { display: 'New by name' }] });
    expect(await groupsOf(id)).toEqual(['New by name', 'Research']);
    expect(await placesOf(id)).toBe(200);
    const told = await send('PATCH', `/Users/${id}`, patch({ op: 'remove', path: `groups[value eq "${group}"]` }));
    expect(told.status, told.text).toBe(200);
    expect(await placesOf(id)).toBe(404);
    await send('PATCH', `/Users/${id}`, patch({ op: 'Add', path: 'groups', value: [{ value: 'RESEARCH' }] }));
    expect(await groupsOf(id)).toEqual(['New by name', 'Research']);
    expect(await placesOf(id)).toBe(200);
    expect((await send('GET', `/Groups/${group}`)).body.members).toMatchObject([{ value: id }]);
    await send('PUT', `/Users/${id}`, { userName: 'ada@example.com' });
    expect(await groupsOf(id), 'a PUT without groups leaves them').toEqual(['New by name', 'Research']);
    await send('PUT', `/Users/${id}`, { userName: 'ada@example.com', groups: [] });
    expect(await groupsOf(id)).toEqual([]);
    expect(await placesOf(id)).toBe(404);
  });

  it('a group with other members has another version', async () => {
    const group = await directory.group('Versioned');
    const { etag } = Object.fromEntries((await send('GET', `/Groups/${group}`)).headers);
    const id = await directory.user('version@example.com', { groups: [{ value: group }] });
    const later = (await send('GET', `/Groups/${group}`)).headers.get('etag');
    expect(later).not.toBe(etag);
    await send('DELETE', `/Users/${id}`);
    expect((await send('GET', `/Groups/${group}`)).headers.get('etag')).not.toBe(later);
  });

  it('what groups say of members is accepted and changes nobody', async () => {
    const inside = await directory.group('Kept');
    const a = await directory.user('kept@example.com', { groups: [{ value: inside }] });
    const b = await directory.user('outside@example.com');
    const members = async () => (await send('GET', `/Groups/${inside}`)).body.members;
    const before = await members();
    for (const [method, body, status] of [
      ['PATCH', patch({ op: 'add', path: 'members', value: [{ value: b }] }), 204],
      ['PATCH', patch({ op: 'remove', path: `members[value eq "${a}"]` }), 204],
      ['PATCH', patch({ op: 'replace', path: 'members', value: [{ value: UNKNOWN }] }), 204],
      ['PUT', { displayName: 'Kept', members: [{ value: b }] }, 200],
      ['PUT', { displayName: 'Kept', members: [] }, 200],
    ] as const) {
      const told = await send(method, `/Groups/${inside}`, body);
      expect(told.status, told.text).toBe(status);
      expect(await members()).toEqual(before);
    }
    const made = await send('POST', '/Groups', { displayName: 'Born', members: [{ value: b }] });
    expect([made.status, made.body.members]).toEqual([201, []]);
    await send('PATCH', `/Groups/${inside}`, patch({ op: 'replace', path: 'displayName', value: 'Renamed' }));
    expect(await groupsOf(a)).toEqual(['Renamed']);
  });

  it('an id of no group is refused, and does not keep a leaver in', async () => {
    const id = await directory.user('stale@example.com');
    const groups = [{ value: UNKNOWN }];
    const refused = await send('PUT', `/Users/${id}`, { userName: 'stale@example.com', groups });
    expect([refused.status, refused.body.scimType]).toEqual([400, 'invalidValue']);
    const left = await send('PUT', `/Users/${id}`, { userName: 'stale@example.com', groups, active: false });
    expect([left.status, left.body.active]).toEqual([200, false]);
  });

  it('a user who comes back has the workspaces of the groups that are said then', async () => {
    const { server } = directory;
    const group = await directory.group('Returning');
    const mapping = { workspace_id: server.first.workspace_id, role: 'member', scim_group_id: group };
    await server.admin('POST', '/scim/workspaces', mapping);
    const settings = (value: boolean) =>
      server.admin('PUT', '/admin/organisation/settings', { group_based_user_provisioning: value });
    expect((await settings(true)).status).toBe(200);
    const id = await directory.user('back@example.com', { active: false });
    const joined = await send('PATCH', `/Users/${id}`, patch({ op: 'add', path: 'groups', value: [{ value: group }] }));
    expect(joined.body.active, 'the user says whether it is active').toBe(false);
    expect(await placesOf(id)).toBe(404);
    await send('PUT', `/Users/${id}`, { userName: 'back@example.com', groups: [{ value: group }], active: true });
    expect(await placesOf(id)).toBe(200);
    await settings(false);
  });

  it('the schemas say who writes', async () => {
    const attributes = async (urn: string) =>
      (await send('GET', `/Schemas/urn:ietf:params:scim:schemas:core:2.0:${urn}`)).body.attributes as {
        name: string;
        mutability: string;
      }[];
    const of = async (urn: string, name: string) =>
      (await attributes(urn)).find((one) => one.name === name)?.mutability;
    expect([await of('User', 'groups'), await of('Group', 'members')]).toEqual(['readWrite', 'readOnly']);
  });
}
