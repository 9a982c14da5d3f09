/**
 * What directories say to a server and hear from it, on one engine. The conversations of Entra ID and Okta were written by hand
 * after their public documentation; no traffic of theirs was recorded.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Directory, ENTERPRISE, filterOf, GROUP, openDirectory, patch, USER } from './world.ts';

const UNKNOWN = '01900000-0000-7000-8000-000000000000';

export function conversations(engine: 'sqlite' | 'postgres'): void {
  let directory: Directory;
  const send: Directory['send'] = (...given) => directory.send(...given);
  beforeAll(async () => {
    directory = await openDirectory(engine);
  }, 60_000);
  afterAll(() => directory.server.stop());

  describe('the conversation of Entra ID', () => {
    it('tests the connection, makes, finds, changes, deactivates and deletes a user', async () => {
      const none = await send('GET', `/Users${filterOf('userName eq "3f1c9b9e"')}&aadOptscim062020`);
      expect(none.status).toBe(200);
      expect(none.body).toMatchObject({ totalResults: 0, itemsPerPage: 0, startIndex: 1, Resources: [] });
      const made = await send('POST', '/Users', {
        schemas: [USER, ENTERPRISE],
        externalId: '0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef',
        userName: 'Test_User@Example.com',
        active: true,
        emails: [{ primary: true, type: 'work', value: 'Test_User@Example.com' }],
        meta: { resourceType: 'User' },
        name: { formatted: 'givenName familyName', familyName: 'familyName', givenName: 'givenName' },
        roles: [],
        title: 'Engineer',
        [ENTERPRISE]: { department: 'Engines' },
      });
      expect(made.status).toBe(201);
      expect(made.headers.get('content-type')).toContain('application/scim+json');
      const { id } = made.body;
      expect(made.headers.get('location')).toBe(`${directory.server.url}${directory.base}/Users/${id}`);
      expect(made.body.meta.location).toBe(made.headers.get('location'));
      expect(made.body).toMatchObject({
        userName: 'Test_User@Example.com',
        active: true,
        roles: [{ value: 'member' }],
      });
      expect(made.text).not.toMatch(/Engines|Engineer|null/);
      const found = await send('GET', `/Users${filterOf('userName eq "test_user@example.com"')}`);
      expect(found.body.Resources).toEqual([made.body]);
      for (const filter of [
        'externalId eq "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef"',
        `id eq "${id}"`,
        'emails[type eq "work"].value eq "TEST_USER@example.com"',
      ]) {
        expect((await send('GET', `/Users${filterOf(filter)}`)).body.totalResults, filter).toBe(1);
      }
      const changed = await send(
        'PATCH',
        `/Users/${id}`,
        patch(
          { op: 'Replace', path: 'emails[type eq "work"].value', value: 'updated@example.com' },
          { op: 'Replace', path: 'name.familyName', value: 'updated' },
          { op: 'Add', path: 'roles[primary eq "True"].value', value: 'admin' },
        ),
      );
      expect(changed.status).toBe(200);
      expect(changed.body).toMatchObject({ name: { familyName: 'updated' }, roles: [{ value: 'admin' }] });
      const away = await send('PATCH', `/Users/${id}`, patch({ op: 'Replace', path: 'active', value: 'False' }));
      expect(away.body.active).toBe(false);
      expect((await send('GET', `/Users/${id}`)).body.active).toBe(false);
      expect(
        (await send('GET', `/Users${filterOf('userName eq "test_user@example.com"')}`)).body.Resources[0].active,
      ).toBe(false);
      const listed = await directory.server.admin('GET', '/admin/users?email=test_user%40example.com');
      expect(listed.body.data).toEqual([]);
      expect((await send('DELETE', `/Users/${id}`)).status).toBe(204);
      for (const method of ['GET', 'DELETE']) expect((await send(method, `/Users/${id}`)).status).toBe(404);
      expect(await directory.user('test_user@example.com')).not.toBe(id);
    });

    it('keeps a group: members are added and removed one by one', async () => {
      const [a, b] = [await directory.user('ga@example.com'), await directory.user('gb@example.com')];
      const none = await send(
        'GET',
        `/Groups?excludedAttributes=members&filter=${encodeURIComponent('displayName eq "Entra group"')}`,
      );
      expect(none.body).toMatchObject({ totalResults: 0, Resources: [] });
      const id = await directory.group('Entra group');
      const add = (user: string) => patch({ op: 'Add', path: 'members', value: [{ $ref: null, value: user }] });
      for (const user of [a, b]) expect((await send('PATCH', `/Groups/${id}`, add(user))).status).toBe(204);
      const membersOf = async () =>
        (await send('GET', `/Groups/${id}`)).body.members.map((one: { value: string }) => one.value).sort();
      expect(await membersOf()).toEqual([a, b].sort());
      expect((await send('GET', `/Users/${a}`)).body.groups).toMatchObject([{ value: id, display: 'Entra group' }]);
      for (const filter of [
        `id eq "${id}" and members eq "${a}"`,
        `members[value eq "${b}"]`,
        'displayName eq "ENTRA GROUP"',
      ]) {
        expect((await send('GET', `/Groups${filterOf(filter)}`)).body.totalResults, filter).toBe(1);
      }
      await send('PATCH', `/Groups/${id}`, patch({ op: 'Remove', path: 'members', value: [{ value: a }] }));
      expect(await membersOf()).toEqual([b]);
      expect((await send('PATCH', `/Groups/${id}`, patch({ op: 'Remove', path: 'members', value: [] }))).status).toBe(
        204,
      );
      expect(await membersOf()).toEqual([b]);
      await send('PATCH', `/Groups/${id}`, patch({ op: 'Replace', path: 'displayName', value: 'Renamed' }));
      const lean = await send('GET', `/Groups/${id}?excludedAttributes=members`);
      expect(lean.body).toMatchObject({ displayName: 'Renamed' });
      expect(lean.body).not.toHaveProperty('members');
      expect((await send('DELETE', `/Groups/${id}`)).status).toBe(204);
      expect((await send('GET', `/Groups/${id}`)).status).toBe(404);
      expect((await send('GET', `/Users/${b}`)).status).toBe(200);
    });
  });

  describe('the conversation of Okta', () => {
    it('imports pages, makes a user, replaces it, deactivates and activates it', async () => {
      const first = await send('GET', '/Users?startIndex=1&count=2');
      expect(first.body).toMatchObject({ startIndex: 1 });
      expect(typeof first.body.totalResults).toBe('number');
      const user = {
        schemas: [USER],
        userName: 'okta@example.com',
        name: { givenName: 'Isaac', familyName: 'Brock' },
        emails: [{ primary: true, value: 'okta@example.com', type: 'work' }],
        displayName: 'Isaac Brock',
        locale: 'en-US',
        externalId: '00ujl29u0le5T6Aj10h7',
        groups: [],
        password: '1mz050nq',
        active: true,
      };
      const made = await send('POST', '/Users', user);
      expect(made.status).toBe(201);
      expect(made.text).not.toContain('1mz050nq');
      const { id } = made.body;
      const put = { ...user, id, name: { givenName: 'Isaac', familyName: 'B.' }, active: true };
      expect((await send('PUT', `/Users/${id}`, put)).body.name).toMatchObject({ familyName: 'B.' });
      expect(
        (await send('PATCH', `/Users/${id}`, patch({ op: 'replace', value: { active: false } }))).body.active,
      ).toBe(false);
      const { active: _active, ...old } = put;
      const quiet = await send('PUT', `/Users/${id}`, old);
      expect(quiet.body.active, 'PUT without active does not bring a leaver back').toBe(false);
      expect((await send('PUT', `/Users/${id}`, put)).body.active).toBe(true);
      expect((await send('PUT', `/Users/${id}`, { ...put, active: false })).body.active).toBe(false);
      const again = await send('POST', '/Users', user);
      expect([again.status, again.body.id, again.body.active]).toEqual([200, id, true]);
    });

    it('pushes a group, its members and its name', async () => {
      const users = [await directory.user('oa@example.com'), await directory.user('ob@example.com')];
      const id = await directory.group('Okta group', users);
      await send('PATCH', `/Groups/${id}`, patch({ op: 'replace', value: { id, displayName: 'Okta new' } }));
      await send('PATCH', `/Groups/${id}`, patch({ op: 'replace', path: 'members', value: [{ value: users[1] }] }));
      const { body } = await send('GET', `/Groups/${id}`);
      expect(body).toMatchObject({ displayName: 'Okta new', members: [{ value: users[1] }] });
      await send('PATCH', `/Groups/${id}`, patch({ op: 'remove', path: `members[value eq "${users[1]}"]` }));
      expect((await send('GET', `/Groups/${id}`)).body.members).toEqual([]);
      const put = await send('PUT', `/Groups/${id}`, {
        displayName: 'Okta new',
        members: users.map((value) => ({ value })),
      });
      expect(put.body.members).toHaveLength(2);
      const existing = await send('POST', '/Groups', { schemas: [GROUP], displayName: 'OKTA NEW', members: [] });
      expect([existing.status, existing.body.id, existing.body.members.length]).toEqual([200, id, 2]);
    });
  });

  describe('users', () => {
    it('a POST of one who is there changes no role and no name', async () => {
      const id = await directory.user('same@example.com', { name: { givenName: 'Sam', familyName: 'E' } });
      const again = await send('POST', '/Users', {
        userName: 'SAME@example.com',
        externalId: 'late',
        name: { givenName: 'Other' },
        roles: [{ value: 'admin' }],
      });
      expect(again.status).toBe(200);
      expect(again.body).toMatchObject({
        id,
        externalId: 'late',
        name: { givenName: 'Sam' },
        roles: [{ value: 'member' }],
      });
    });

    it('roles are admin and member; a directory makes no owner and demotes none', async () => {
      for (const [value, role] of [
        ['ADMIN', 'admin'],
        ['owner', 'member'],
        ['group', 'member'],
        ['{"value":"admin"}', 'admin'],
        ['{"value":"owner"}', 'member'],
        ['{broken', 'member'],
      ] as const) {
        const userName = `${role}-${value.replace(/\W/g, '')}-${value.length}@example.com`;
        const id = await directory.user(userName, { roles: [{ value, primary: 'True' }] });
        expect((await send('GET', `/Users/${id}`)).body.roles[0].value, value).toBe(role);
      }
      const [owner] = (await send('GET', `/Users${filterOf('roles eq "owner"')}`)).body.Resources;
      const kept = await send(
        'PATCH',
        `/Users/${owner.id}`,
        patch({ op: 'replace', path: 'roles', value: [{ value: 'member' }] }),
      );
      expect(kept.body.roles[0].value).toBe('owner');
      for (const [method, body] of [
        ['PATCH', patch({ op: 'replace', path: 'active', value: false })],
        ['DELETE', undefined],
      ] as const) {
        const refused = await send(method, `/Users/${owner.id}`, body);
        expect([refused.status, refused.body.scimType]).toEqual([400, 'mutability']);
      }
      expect((await send('GET', `/Users/${owner.id}`)).body.active).toBe(true);
    });

    it('a directory gives the owner no other address: who reads its mail could sign in as the owner', async () => {
      const [owner] = (await send('GET', `/Users${filterOf('roles eq "owner"')}`)).body.Resources;
      const { userName, ...others } = owner;
      const address = 'somebody-else@example.com';
      for (const [method, body] of [
        ['PATCH', patch({ op: 'replace', path: 'userName', value: address })],
        ['PUT', { ...others, userName: address }],
      ] as const) {
        const refused = await send(method, `/Users/${owner.id}`, body);
        expect([refused.status, refused.body.scimType]).toEqual([400, 'mutability']);
        expect(refused.body.detail).toContain('account page');
      }
      const renamed = { ...others, userName: userName.toUpperCase(), name: { givenName: 'Olga', familyName: 'W' } };
      const kept = await send('PUT', `/Users/${owner.id}`, renamed);
      expect([kept.status, kept.body.name.givenName]).toEqual([200, 'Olga']);
      const { body } = await directory.server.admin('GET', `/admin/users/${owner.id}`);
      expect(body).toMatchObject({ role: 'owner', email: userName, first_name: 'Olga' });
    });

    it('are of the domains that the organisation lists, where it lists any', async () => {
      const list = (allowed_domains: object[]) =>
        directory.server.admin('PUT', '/admin/organisation/settings', { auth_settings: { allowed_domains } });
      const statusOf = async (userName: string) => (await send('POST', '/Users', { userName })).status;
      const before = await directory.user('before@elsewhere.example');
      const listed = await list([{ domain: 'Listed.example' }, { domain: 'wide.example', allow_subdomains: true }]);
      expect(listed.status, JSON.stringify(listed.body)).toBe(200);
      expect(await statusOf('one@elsewhere.example')).toBe(400);
      expect(await statusOf('one@deep.listed.example')).toBe(400);
      expect(await statusOf('one@notlisted.example')).toBe(400);
      expect(await statusOf('one@notwide.example')).toBe(400);
      const moved = patch({ op: 'replace', path: 'userName', value: 'moved@elsewhere.example' });
      const id = await directory.user('One@LISTED.example');
      const refused = await send('PATCH', `/Users/${id}`, moved);
      expect([refused.status, refused.body.scimType]).toEqual([400, 'invalidValue']);
      expect(refused.body.detail).toContain('auth_settings.allowed_domains');
      expect(await statusOf('one@deep.wide.example')).toBe(201);
      const off = await send('PATCH', `/Users/${before}`, patch({ op: 'replace', path: 'active', value: false }));
      expect([off.status, off.body.active], 'who was there before can still be deactivated').toEqual([200, false]);
      expect((await list([])).status).toBe(200);
      expect(await statusOf('two@elsewhere.example')).toBe(201);
    });

    it('members named __proto__ are dropped from a body, wherever they are', async () => {
      const raw = `{"userName":"proto@example.com","__proto__":{"active":false,"polluted":1},
        "name":{"givenName":"Ada","\\u005f_proto__":{"familyName":"x"}},"emails":[{"value":"a@example.com","__proto__":{"primary":true}}]}`;
      const made = await send('POST', '/Users', undefined, { raw });
      expect(made.status, made.text).toBe(201);
      expect(made.body).toMatchObject({ active: true, name: { givenName: 'Ada' } });
      expect(made.text).not.toMatch(/polluted|familyName|primary":true,"value":"a@/);
      expect(({} as { polluted?: number }).polluted).toBeUndefined();
      const told = await send('PATCH', `/Users/${made.body.id}`, undefined, {
        raw: '{"Operations":[{"op":"replace","value":{"__proto__":{"active":false},"displayName":"Ada L."}}]}',
      });
      expect(told.body).toMatchObject({ active: true, displayName: 'Ada L.' });
    });

    it('a refused PATCH has changed nothing', async () => {
      const id = await directory.user('whole@example.com', { displayName: 'Whole' });
      const before = (await send('GET', `/Users/${id}`)).text;
      const refused = await send(
        'PATCH',
        `/Users/${id}`,
        patch({ op: 'replace', path: 'displayName', value: 'Half' }, { op: 'replace', path: 'active', value: 'maybe' }),
      );
      expect([refused.status, refused.body.scimType, refused.body.status]).toEqual([400, 'invalidValue', '400']);
      expect((await send('GET', `/Users/${id}`)).text).toBe(before);
    });

    it('one who is deactivated loses keys and workspaces, and gets the workspaces back', async () => {
      const { server } = directory;
      const id = await directory.user('leaver@example.com');
      const groupId = await directory.group('Workers', [id]);
      const mapped = await server.admin('POST', '/scim/workspaces', {
        workspace_id: server.first.workspace_id,
        role: 'manager',
        scim_group_id: groupId,
      });
      expect(mapped.status).toBe(200);
      const membership = async () =>
        (await server.admin('GET', `/admin/workspaces/${server.first.workspace_id}/users/${id}`)).status;
      expect(await membership()).toBe(200);
      const key = await server.admin('POST', '/api-keys/workspace/user', {
        name: 'own',
        user_id: id,
        workspace_id: server.first.workspace_id,
        scopes: ['completions.write'],
      });
      const call = () =>
        fetch(`${server.url}/v1/chat/completions`, {
          method: 'POST',
          headers: { 'x-gateway-api-key': String(key.body.key), 'content-type': 'application/json' },
          body: JSON.stringify({ model: '@sandbox/echo', messages: [{ role: 'user', content: 'hi' }] }),
        });
      expect((await call()).status, JSON.stringify(key.body)).toBe(200);
      await send('PATCH', `/Users/${id}`, patch({ op: 'replace', path: 'active', value: false }));
      expect((await call()).status).toBe(401);
      expect(await membership()).toBe(404);
      expect((await send('GET', `/Groups/${groupId}`)).body.members).toMatchObject([{ value: id }]);
      await send('PATCH', `/Users/${id}`, patch({ op: 'replace', path: 'active', value: true }));
      expect(await membership()).toBe(200);
      expect((await call()).status, 'keys do not come back').toBe(401);
      await send('PATCH', `/Groups/${groupId}`, patch({ op: 'remove', path: `members[value eq "${id}"]` }));
      expect(await membership()).toBe(404);
    });

    it('are listed in pages that have each of them once, the inactive last', async () => {
      const gone = await directory.user('inactive@example.com', { active: false });
      const whole = await send('GET', '/Users?count=200');
      const ids: string[] = [];
      for (let startIndex = 1; startIndex <= whole.body.totalResults; startIndex += 3) {
        const page = await send('GET', `/Users?startIndex=${startIndex}&count=3`);
        ids.push(...page.body.Resources.map((one: { id: string }) => one.id));
      }
      expect(ids).toEqual(whole.body.Resources.map((one: { id: string }) => one.id));
      expect(new Set(ids).size).toBe(whole.body.totalResults);
      expect(ids).toContain(gone);
      const shape = async (query: string) => {
        const { body } = await send('GET', `/Users?${query}`);
        return [body.startIndex, body.itemsPerPage];
      };
      expect(await shape('startIndex=0&count=1')).toEqual([1, 1]);
      expect(await shape('startIndex=-5&count=1')).toEqual([1, 1]);
      expect(await shape('count=0')).toEqual([1, 0]);
      expect(await shape('count=-1')).toEqual([1, 0]);
      expect(await shape('count=5000')).toEqual([1, whole.body.totalResults]);
      expect(await shape('startIndex=9999')).toEqual([9999, 0]);
      const searched = await send('POST', '/Users/.search', {
        filter: 'active eq false',
        attributes: ['userName'],
        count: 200,
      });
      expect(searched.body.Resources.map((one: { id: string }) => one.id)).toContain(gone);
      expect(Object.keys(searched.body.Resources[0]).sort()).toEqual(['id', 'schemas', 'userName']);
      const parts = await send('GET', `/Users?attributes=name.givenName,${USER}:active&count=1`);
      expect(Object.keys(parts.body.Resources[0]).sort()).toEqual(['active', 'id', 'name', 'schemas']);
    });

    it('have versions: If-None-Match 304, If-Match 412', async () => {
      const id = await directory.user('version@example.com');
      const etag = String((await send('GET', `/Users/${id}`)).headers.get('etag'));
      expect(etag).toMatch(/^W\/"/);
      expect((await send('GET', `/Users/${id}`, undefined, { headers: { 'if-none-match': etag } })).status).toBe(304);
      const change = (name: string, headers: Record<string, string>) =>
        send('PATCH', `/Users/${id}`, patch({ op: 'replace', path: 'displayName', value: name }), { headers });
      expect((await change('A', { 'if-match': etag })).status).toBe(200);
      expect((await change('B', { 'if-match': etag })).status).toBe(412);
      expect((await send('DELETE', `/Users/${id}`, undefined, { headers: { 'if-match': etag } })).status).toBe(412);
      expect((await change('C', { 'if-match': '*' })).body.displayName).toBe('C');
    });
  });

  describe('refusals', () => {
    it.each<[number, string | undefined, string, string, unknown, object?]>([
      [400, 'invalidFilter', 'GET', `/Users${filterOf('userName eq')}`, undefined],
      [400, 'invalidFilter', 'GET', `/Users${filterOf('('.repeat(2_000))}`, undefined],
      [400, 'invalidFilter', 'GET', `/Groups${filterOf('__proto__ pr')}`, undefined],
      [400, 'invalidValue', 'GET', '/Users?count=many', undefined],
      [400, 'invalidValue', 'GET', '/Users?attributes=id&excludedAttributes=name', undefined],
      [400, 'invalidSyntax', 'POST', '/Users', undefined, { raw: '{' }],
      [400, 'invalidSyntax', 'POST', '/Users', undefined, { raw: '[]' }],
      [400, 'invalidSyntax', 'POST', '/Users', undefined, { raw: '' }],
      [400, 'invalidValue', 'POST', '/Users', {}],
      [400, 'invalidValue', 'POST', '/Users', { userName: 'no address' }],
      [400, 'invalidValue', 'POST', '/Users', { userName: 'x@example.com', name: { givenName: 'a\u202eb' } }],
      [400, 'invalidValue', 'POST', '/Users', { userName: 'x@example.com', active: 'maybe' }],
      [400, 'invalidValue', 'POST', '/Groups', { displayName: '' }],
      [400, 'invalidValue', 'POST', '/Groups', { displayName: 'n', members: [{ value: UNKNOWN }] }],
      [400, 'invalidValue', 'POST', '/Groups', { displayName: 'n', members: [{ value: 'not an id' }] }],
      [404, undefined, 'GET', `/Users/${UNKNOWN}`, undefined],
      [404, undefined, 'GET', '/Users/none', undefined],
      [404, undefined, 'PUT', `/Users/${UNKNOWN}`, { userName: 'x@example.com' }],
      [404, undefined, 'PATCH', `/Groups/${UNKNOWN}`, patch({ op: 'replace', value: {} })],
      [404, undefined, 'DELETE', `/Groups/${UNKNOWN}`, undefined],
      [404, undefined, 'GET', '/Nothing', undefined],
      [404, undefined, 'GET', '/Schemas/urn:x', undefined],
      [405, undefined, 'POST', '/Schemas', {}],
      [405, undefined, 'DELETE', '/Users', undefined],
      [405, undefined, 'POST', '/ServiceProviderConfig', {}],
      [415, undefined, 'POST', '/Users', undefined, { raw: '{}', headers: { 'content-type': 'text/plain' } }],
      [
        415,
        undefined,
        'POST',
        '/Users',
        undefined,
        { raw: '{}', headers: { 'content-type': 'application/json; charset=latin1' } },
      ],
      [501, undefined, 'POST', '/Bulk', {}],
      [501, undefined, 'GET', '/Me', undefined],
      [401, undefined, 'GET', '/Users', undefined, { token: null }],
      [401, undefined, 'GET', '/Users', undefined, { token: 'slc_scm_x' }],
    ])('%d %s: %s %s', async (status, scimType, method, path, body, sending) => {
      const told = await send(method, path, body, sending as never);
      expect(told.status, told.text).toBe(status);
      expect(told.headers.get('content-type')).toContain('application/scim+json');
      expect(told.body).toMatchObject({
        schemas: ['urn:ietf:params:scim:api:messages:2.0:Error'],
        status: String(status),
      });
      expect(told.body.scimType).toBe(scimType);
      if (status === 401) expect(told.headers.get('www-authenticate')).toMatch(/^Bearer/);
    });
  });

  describe('discovery', () => {
    it('says what is supported, and says nothing as null', async () => {
      const config = await send('GET', '/ServiceProviderConfig');
      expect(config.body).toMatchObject({
        patch: { supported: true },
        bulk: { supported: false, maxOperations: 0, maxPayloadSize: 0 },
        filter: { supported: true, maxResults: 200 },
        changePassword: { supported: false },
        sort: { supported: false },
        etag: { supported: true },
        authenticationSchemes: [{ type: 'oauthbearertoken' }],
      });
      const types = await send('GET', '/ResourceTypes');
      expect(types.body.Resources.map((one: { id: string }) => one.id)).toEqual(['User', 'Group']);
      const schemas = await send('GET', '/Schemas');
      expect(schemas.body.Resources.map((one: { id: string }) => one.id)).toEqual([USER, GROUP]);
      expect((await send('GET', `/Schemas/${USER}`)).body).toEqual(schemas.body.Resources[0]);
      expect((await send('GET', '/ResourceTypes/Group')).body.schema).toBe(GROUP);
      for (const { text } of [config, types, schemas]) expect(text).not.toContain('null');
    });
  });

  describe('tokens', () => {
    it('open SCIM and nothing else, under both bases and as Basic, until they are deleted', async () => {
      const { server, organisationId } = directory;
      const { body } = await server.admin('POST', '/scim/tokens', { name: 'second' });
      const token = String(body.token);
      expect(body.base_url).toBe(`${server.url}/v1/scim/${organisationId}`);
      const plain = await send('GET', '/Users?count=1', undefined, { token, base: '/scim/v2' });
      expect(plain.body.Resources[0].meta.location).toContain(`${server.url}/scim/v2/Users/`);
      const basic = `Basic ${Buffer.from(`${organisationId}:${token}`).toString('base64')}`;
      expect((await send('GET', '/Users', undefined, { token: null, headers: { authorization: basic } })).status).toBe(
        200,
      );
      expect(
        (await send('GET', '/Users', undefined, { token: null, headers: { authorization: `bEARER ${token}` } })).status,
      ).toBe(200);
      for (const path of ['/admin/users', '/scim/tokens', '/api-keys', '/models']) {
        expect((await server.admin('GET', path, undefined, token)).status, path).toBe(401);
      }
      expect((await send('GET', '/Users', undefined, { token: server.first.admin_api_key })).status).toBe(401);
      const list = await server.admin('GET', '/scim/tokens');
      expect(JSON.stringify(list.body)).not.toContain(token.slice(8));
      expect(
        (await server.admin('POST', '/scim/tokens', { name: 'past', expires_at: '2020-01-01T00:00:00Z' })).status,
      ).toBe(400);
      await server.admin('DELETE', `/scim/tokens/${body.id}`);
      expect((await send('GET', '/Users', undefined, { token })).status).toBe(401);
      expect((await server.admin('DELETE', `/scim/tokens/${body.id}`)).status).toBe(404);
      expect((await server.admin('POST', '/scim/tokens', { name: 'x' }, server.first.workspace_api_key)).status).toBe(
        403,
      );
    });

    it('each write leaves a row in the audit log, without passwords', async () => {
      const id = await directory.user('audited@example.com', { password: 'hunter2-hunter2' });
      await send('PATCH', `/Users/${id}`, patch({ op: 'replace', path: 'active', value: 'maybe' }));
      const { body } = await directory.server.admin(
        'GET',
        '/audit-logs?page_size=5&start_time=2020-01-01T00:00:00Z&end_time=2100-01-01T00:00:00Z',
      );
      const rows = Object.values(body).find(Array.isArray) as { resource_type: string; response_status_code: number }[];
      const mine = rows.filter((row) => JSON.stringify(row).includes(id));
      expect(mine.map((row) => [row.resource_type, row.response_status_code])).toEqual([
        ['scim users', 400],
        ['scim users', 201],
      ]);
      expect(JSON.stringify(body)).not.toContain('hunter2');
    });
  });

  it('ids of another organisation get the answers of ids that nothing has', async () => {
    const { server } = directory;
    const operator = server.first.operator_api_key;
    const other = await server.admin(
      'POST',
      '/operator/organisations',
      { name: 'Other', owner: { email: 'o@other.example', first_name: 'O', last_name: 'W' } },
      operator,
    );
    expect(other.status, JSON.stringify(other.body)).toBe(200);
    const key = String(other.body.admin_api_key);
    const made = await server.admin('POST', '/scim/tokens', { name: 'other' }, key);
    expect(made.status, JSON.stringify(other.body)).toBe(200);
    const theirs = { token: String(made.body.token), base: String(made.body.base_url).slice(server.url.length) };
    const user = (await send('POST', '/Users', { userName: 'x@other.example', externalId: 'theirs' }, theirs)).body.id;
    const group = (await send('POST', '/Groups', { displayName: 'Theirs', members: [{ value: user }] }, theirs)).body
      .id;
    const mine = await directory.group('Mine');
    const calls: (readonly [string, (id: string) => string, ((id: string) => unknown)?])[] = [
      ['GET', (id) => `/Users/${id}`],
      ['DELETE', (id) => `/Users/${id}`],
      ['PUT', (id) => `/Users/${id}`, () => ({ userName: 'x@other.example' })],
      ['PATCH', (id) => `/Users/${id}`, () => patch({ op: 'replace', value: { active: false } })],
      ['GET', (id) => `/Groups/${id}`],
      ['DELETE', (id) => `/Groups/${id}`],
      ['PUT', (id) => `/Groups/${id}`, () => ({ displayName: 'Theirs' })],
      ['PATCH', (id) => `/Groups/${id}`, () => patch({ op: 'remove', path: 'members' })],
      ['GET', (id) => `/Users${filterOf(`id eq "${id}"`)}`],
      ['GET', (id) => `/Groups${filterOf(`id eq "${id}" or members eq "${id}"`)}`],
      ['PATCH', () => `/Groups/${mine}`, (id) => patch({ op: 'add', path: 'members', value: [{ value: id }] })],
      ['POST', () => '/Groups', (id) => ({ displayName: 'With theirs', members: [{ value: id }] })],
    ];
    for (const [method, path, body] of calls) {
      const unknown = await send(method, path(UNKNOWN), body?.(UNKNOWN));
      for (const id of [user, group]) {
        const told = await send(method, path(id), body?.(id));
        expect([told.status, told.text], `${method} ${path(id)}`).toEqual([unknown.status, unknown.text]);
      }
    }
    const refused = await send('GET', '/Users', undefined, { base: theirs.base });
    const none = await send('GET', '/Users', undefined, { base: `/v1/scim/${UNKNOWN}` });
    expect([refused.status, refused.text]).toEqual([401, none.text]);
    expect((await send('GET', `/Users${filterOf('externalId eq "theirs"')}`)).body.totalResults).toBe(0);
    expect((await send('GET', `/Groups/${group}`, undefined, theirs)).body.members).toMatchObject([{ value: user }]);
  });

  it('members that are added at the same moment are all there', async () => {
    const users = await Promise.all(Array.from({ length: 12 }, (_none, n) => directory.user(`par${n}@example.com`)));
    const id = await directory.group('Parallel');
    const told = await Promise.all(
      users.map((value) => send('PATCH', `/Groups/${id}`, patch({ op: 'add', path: 'members', value: [{ value }] }))),
    );
    expect(told.map(({ status }) => status)).toEqual(users.map(() => 204));
    const { body } = await send('GET', `/Groups/${id}`);
    expect(body.members.map((one: { value: string }) => one.value).sort()).toEqual([...users].sort());
    const same = await Promise.all(
      Array.from({ length: 6 }, () => send('POST', '/Users', { userName: 'twin@example.com' })),
    );
    expect(same.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 200, 201]);
    expect(new Set(same.map(({ body: one }) => one.id)).size).toBe(1);
  });
}
