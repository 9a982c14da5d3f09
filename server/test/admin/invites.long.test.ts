/** Invites: what is sent, who may send it, how long it lives, and who comes in by it. */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { roleScopes, scopesOf } from '../../src/auth/scopes.ts';
import { SECURITY_DEFAULTS } from '../../src/auth/security-settings.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import type { CreatedOrganisation } from '../../src/resources/organisations.ts';
import { refused } from '../support/accounts.ts';
import type { Call } from '../support/admin.ts';
import {
  address,
  api,
  at,
  expire,
  invite,
  invited,
  LINK,
  organisation,
  patch,
  sessions,
  tokenOf,
  useInvites,
  withConsole,
} from '../support/invites.ts';
import { addUser, signIn } from '../support/people.ts';

const TIME = /^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$/;
const ABSENT = '00000000-0000-7000-8000-000000000000';
const WEEK_MS = 7 * 86_400_000;

describe.each(['sqlite', 'postgres'] as const)('invites on %s', (engine) => {
  useInvites(engine);

  /** Makes keys that invite, with those of these scopes that an organisation key may have and a filter leaves. */
  const inviter = (org: CreatedOrganisation, scopes: Iterable<string>) => async (keep: (scope: string) => boolean) => {
    const possible = [...scopes].filter((scope) => scopesOf('organisation-service').has(scope) && keep(scope));
    const body = { name: 'people', scopes: ['organisation_users.create', ...possible] };
    const made = await api.call('POST', '/v1/api-keys/organisation/service', { key: org.admin_api_key, body });
    expect(made.status, made.text).toBe(200);
    return made.body.key as string;
  };

  describe('inviting', () => {
    it('answers id and link, keeps only the digest of the token, and is pending for seven days', async () => {
      const org = await organisation();
      const email = address();
      const workspaces = [{ id: org.workspace_slug, role: 'manager' }];
      const made = await invite(org, { email: email.toUpperCase(), role: 'admin', workspaces });
      expect(made.status).toBe(200);
      expect(Object.keys(made.body).toSorted()).toEqual(['id', 'invite_link']);
      expect(made.body.invite_link).toMatch(LINK);
      const { body } = await at(org).get(`/${made.body.id}`);
      expect(body).toEqual({
        object: 'invite',
        id: made.body.id,
        email,
        role: 'admin',
        created_at: expect.stringMatching(TIME),
        expires_at: expect.stringMatching(TIME),
        accepted_at: null,
        status: 'pending',
        invited_by: expect.stringMatching(/^[0-9a-f-]{36}$/),
        workspaces: [{ workspace_id: org.workspace_slug, role: 'manager' }],
      });
      expect(Date.parse(`${body.expires_at}Z`) - Date.parse(`${body.created_at}Z`)).toBeCloseTo(WEEK_MS, -4);
      const token = tokenOf(made.body.invite_link);
      const row = await api.tables.systemRead((tx) => tx.find('invites', { id: made.body.id }));
      expect(row?.token_digest).toBe(createHash('sha256').update(token).digest('hex'));
      const everything = await api.tables.systemRead(async (tx) => [
        await tx.list('invites'),
        await tx.list('audit_log'),
      ]);
      expect(JSON.stringify([everything, api.logged])).not.toContain(token);
    });

    it.each([
      ['no body', {}, 'email'],
      ['no e-mail', { role: 'member', workspaces: [] }, 'email'],
      ['an e-mail that is none', { email: 'ada', role: 'member', workspaces: [] }, 'email'],
      ['a name with the e-mail', { email: 'Ada <ada@x.example>', role: 'member', workspaces: [] }, 'email'],
      ['two e-mails', { email: 'a@x.example,b@x.example', role: 'member', workspaces: [] }, 'email'],
      ['a list of e-mails', { email: ['a@x.example'], role: 'member', workspaces: [] }, 'email'],
      ['a long e-mail', { email: `${'a'.repeat(250)}@x.example`, role: 'member', workspaces: [] }, 'email'],
      ['no role', { email: 'a@x.example', workspaces: [] }, 'role'],
      ['an owner', { email: 'a@x.example', role: 'owner', workspaces: [] }, 'role'],
      ['another case', { email: 'a@x.example', role: 'Member', workspaces: [] }, 'role'],
      ['padding', { email: 'a@x.example', role: 'member ', workspaces: [] }, 'role'],
      ['an array', { email: 'a@x.example', role: ['member'], workspaces: [] }, 'role'],
      ['no workspaces', { email: 'a@x.example', role: 'member' }, 'workspaces'],
      ['null workspaces', { email: 'a@x.example', role: 'member', workspaces: null }, 'workspaces'],
      [
        'a workspace role above',
        { email: 'a@x.example', role: 'member', workspaces: [{ id: 'x', role: 'owner' }] },
        'workspaces[0].role',
      ],
      [
        'an unknown key of a workspace',
        { email: 'a@x.example', role: 'member', workspaces: [{ id: 'x', role: 'member', more: 1 }] },
        'workspaces[0].more',
      ],
      ['an unknown key', { email: 'a@x.example', role: 'member', workspaces: [], first_name: 'Ada' }, 'first_name'],
      [
        'a key for no workspace',
        { email: 'a@x.example', role: 'member', workspaces: [], workspace_api_key_details: { scopes: [] } },
        'workspace_api_key_details',
      ],
    ])('%s is a 400 that names the field', async (_title, body, param) => {
      refused(await api.call('POST', '/v1/admin/users/invites', { body }), 400, 'AB01', param);
    });

    it.each([
      ['no scopes', {}, 400, 'scopes'],
      ['null scopes', { scopes: null }, 400, 'scopes'],
      ['an unknown scope', { scopes: ['completions.write', 'completions.all'] }, 400, 'scopes[1]'],
      ['a scope of no user key', { scopes: ['audit_logs.list'] }, 400, 'scopes[0]'],
      ['metadata that is no text', { scopes: [], defaults: { metadata: { team: 1 } } }, 400, 'defaults.metadata.team'],
      ['a config', { scopes: [], defaults: { config_id: 'pc-x' } }, 400, 'defaults.config_id'],
      ['an empty name', { scopes: [], name: '' }, 400, 'name'],
    ])('key details with %s are refused and name the field', async (_title, details, status, param) => {
      const workspaces = [{ id: api.a.workspace_slug, role: 'member' }];
      const answer = await invite(api.a, { workspaces, workspace_api_key_details: details });
      refused(answer, status, 'AB01', `workspace_api_key_details.${param}`);
    });

    it('says how long a text must be, in whole words', async () => {
      const workspaces = [{ id: api.a.workspace_slug, role: 'member' }];
      const named = (name: string) => invite(api.a, { workspaces, workspace_api_key_details: { scopes: [], name } });
      const start = 'workspace_api_key_details.name must have at';
      expect((await named('')).body.error.message).toBe(`${start} least 1 character.`);
      expect((await named('n'.repeat(256))).body.error.message).toBe(`${start} most 255 characters.`);
    });

    it('key details must satisfy the metadata schema of the organisation, and get its defaults', async () => {
      const org = await organisation();
      const team = { type: 'string', enum: ['search', 'ads'] };
      const env = { type: 'string', default: 'dev' };
      const schema = { type: 'object', required: ['team'], properties: { team, env } };
      const settings = { key: org.admin_api_key, body: { metadata_schemas: { api_key: schema } } };
      expect((await api.call('PUT', '/v1/admin/organisation/settings', settings)).status).toBe(200);
      const workspaces = [{ id: org.workspace_slug, role: 'member' }];
      const send = (defaults?: object) =>
        invite(org, { workspaces, workspace_api_key_details: { scopes: [], ...(defaults && { defaults }) } });
      const param = 'workspace_api_key_details.defaults.metadata.team';
      refused(await send(), 400, 'AB01', param);
      refused(await send({ metadata: { team: 'sales' } }), 400, 'AB01', param);
      const made = await send({ metadata: { team: 'ads' } });
      expect(made.status, made.text).toBe(200);
      await withConsole(async (console) => {
        const [{ id }] = (await console.accept(tokenOf(made.body.invite_link))).body.api_keys;
        const { body } = await api.call('GET', `/v1/api-keys/${id}`, { key: org.admin_api_key });
        expect(body.defaults.metadata).toEqual({ team: 'ads', env: 'dev' });
      });
      // An invite without a key of its own asks for nothing that could break the schema.
      expect((await invite(org, { workspaces })).status).toBe(200);
    });

    it('a foreign or invented workspace is one 404, a repeated one 400, and no invite is left', async () => {
      const email = address();
      const send = (...ids: string[]) =>
        invite(api.a, { email, workspaces: ids.map((id) => ({ id, role: 'member' })) });
      for (const id of [api.b.workspace_id, api.b.workspace_slug, ABSENT, 'ws-invented']) {
        refused(await send(api.a.workspace_slug, id), 404, 'AB02', 'workspaces[1].id');
      }
      refused(await send(api.a.workspace_id, api.a.workspace_slug), 400, 'AB01', 'workspaces[1].id');
      expect((await at(api.a).get(`?email=${email}`)).body.total).toBe(0);
    });

    it('an address with an account or an open invite is a 409, in any case; another organisation may have it', async () => {
      const email = address();
      await invited(api.a, { email });
      refused(await invite(api.a, { email: email.toUpperCase() }), 409, 'AB07', 'email');
      expect((await invite(api.b, { email })).status).toBe(200);
      const user = await addUser(api.tables, api.a.organisation_id, { email: address() });
      refused(await invite(api.a, { email: user.email.toUpperCase() }), 409, 'AB07', 'email');
      await api.tables.systemWrite((tx) => tx.update('users', { id: user.id }, { status: 'archived' }));
      expect((await invite(api.a, { email: user.email })).status).toBe(200);
    });

    it('of many invites to one address at once exactly one is made', async () => {
      const email = address();
      const answers = await Promise.all(Array.from({ length: 6 }, () => invite(api.a, { email })));
      expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409, 409, 409, 409, 409]);
    });

    it('nobody invites with a key above his own scopes, nor without the right to make keys', async () => {
      const org = await organisation();
      const people = inviter(org, roleScopes('member', 'member', SECURITY_DEFAULTS));
      const limited = (...lost: string[]) => people((scope) => !lost.includes(scope));
      const workspaces = [{ id: org.workspace_slug, role: 'member' }];
      const send = (key: string, scopes: string[]) =>
        invite(org, { workspaces, workspace_api_key_details: { scopes } }, key);
      // Without the right to make user keys it can give no role in a workspace either.
      const without = await limited('workspace_user_api_keys.create');
      refused(await send(without, ['configs.read']), 403, 'AB03', 'workspace_api_key_details');
      const narrow = await limited();
      refused(
        await send(narrow, ['configs.read', 'configs.update']),
        403,
        'AB03',
        'workspace_api_key_details.scopes[1]',
      );
      // The link of an invite hands its role and key out again.
      const sent = await invite(org, { workspaces, workspace_api_key_details: { scopes: ['configs.update'] } });
      const resend = (key: string) => api.call('POST', `/v1/admin/users/invites/${sent.body.id}/resend`, { key });
      refused(await resend(without), 403, 'AB03', null);
      refused(await resend(narrow), 403, 'AB03', 'workspace_api_key_details.scopes[0]');
      // What no organisation key can hold may be granted by one that makes workspace keys, as anywhere else.
      expect((await send(narrow, ['configs.read', 'completions.write'])).status).toBe(200);
    });

    it('an admin invites admins; a member nobody; a key falls with the user who made it', async () => {
      const org = await organisation();
      const admin = await addUser(api.tables, org.organisation_id, { role: 'admin' });
      const member = await addUser(api.tables, org.organisation_id);
      await api.tables.systemWrite((tx) =>
        tx.insert('workspace_members', {
          organisation_id: org.organisation_id,
          workspace_id: org.workspace_id,
          user_id: member.id,
          role: 'admin',
          status: 'active',
          created_at: 0,
          last_updated_at: 0,
        }),
      );
      const headers = await signIn(api.tables, sessions, admin);
      const post = (headers: Record<string, string>, query = '') =>
        api.call('POST', `/v1/admin/users/invites${query}`, {
          key: null,
          headers,
          body: { email: address(), role: 'admin', workspaces: [] },
        });
      expect((await post(headers)).status).toBe(200);
      const his = await signIn(api.tables, sessions, member);
      refused(await post(his), 403, 'AB03', null);
      refused(await post(his, `?workspace_id=${org.workspace_slug}`), 403, 'AB03', null);

      const made = await api.call('POST', '/v1/api-keys/organisation/service', {
        key: null,
        headers,
        body: { name: 'people', scopes: [...scopesOf('organisation-service')] },
      });
      expect((await invite(org, { role: 'admin' }, made.body.key)).status).toBe(200);
      await api.call('PUT', `/v1/admin/users/${admin.id}`, { key: org.admin_api_key, body: { role: 'member' } });
      expect((await invite(org, { role: 'admin' }, made.body.key)).status).toBe(403);
    });
  });

  describe('listing and reading', () => {
    it('filters by role, e-mail, status and part of the address, and pages in both spellings', async () => {
      const org = await organisation();
      const one = await invited(org, { email: 'ada.one@x.example', role: 'admin' });
      const two = await invited(org, { email: 'ada.two@x.example' });
      const three = await invited(org, { email: 'th_ree@x.example' });
      const four = await invited(org, { email: 'four@y.example' });
      const five = await invited(org, { email: 'five@y.example' });
      await expire(two.id);
      expect((await at(org).del(three.id)).body).toEqual({});
      await withConsole(async (console) => {
        expect((await console.accept(four.token)).status).toBe(200);
      });
      const ids = async (query: string) => {
        const { body } = await at(org).get(query);
        expect(body.total).toBe(body.data.length);
        return body.data.map(({ id }: { id: string }) => id).toSorted();
      };
      const these = (...wanted: { id: string }[]) => wanted.map(({ id }) => id).toSorted();
      expect(await ids('')).toEqual(these(one, two, three, four, five));
      expect(await ids('?role=admin')).toEqual(these(one));
      expect(await ids('?email=ADA.two%40x.example')).toEqual(these(two));
      expect(await ids('?search=ADA.')).toEqual(these(one, two));
      expect(await ids('?search=_')).toEqual(these(three));
      expect(await ids('?search=%25')).toEqual([]);
      expect(await ids('?search=ada&email=four%40y.example')).toEqual([]);
      expect(await ids('?status=pending')).toEqual(these(one, five));
      expect(await ids('?status=expired')).toEqual(these(two));
      expect(await ids('?status=cancelled')).toEqual(these(three));
      expect(await ids('?status=accepted')).toEqual(these(four));
      expect(await ids('?status=expired,accepted&search=y.example')).toEqual(these(four));
      expect((await at(org).get(`/${two.id}`)).body.status).toBe('expired');
      expect((await at(org).get(`/${four.id}`)).body.accepted_at).toMatch(TIME);
      const pages = await Promise.all([0, 1, 2].map((page) => at(org).get(`?pageSize=2&currentPage=${page}`)));
      expect(pages.map(({ body }) => [body.total, body.data.length])).toEqual([
        [5, 2],
        [5, 2],
        [5, 1],
      ]);
      expect(new Set(pages.flatMap(({ body }) => body.data.map((item: { id: string }) => item.id))).size).toBe(5);
    });

    it.each([
      ['?role=owner', 'role'],
      ['?status=open', 'status'],
      ['?status=', 'status'],
      ['?email=x', 'email'],
      ['?search=', 'search'],
      ['?page_size=101', 'page_size'],
      ['?name=x', 'name'],
    ])('a list with %s is refused', async (query, param) => {
      const answer = await at(api.a).get(query);
      expect([answer.status, answer.body.error.param.replace(/\[\d\]$/, '')]).toEqual([400, param]);
    });

    it('an invite of another organisation and an invented one are one 404, for every verb', async () => {
      const { id, token } = await invited(api.b);
      for (const name of [id, ABSENT, 'x', token]) {
        refused(await at(api.a).get(`/${name}`), 404, 'AB08', null);
        refused(await at(api.a).del(name), 404, 'AB08', null);
        refused(await at(api.a).resend(name), 404, 'AB08', null);
      }
      expect((await at(api.b).get(`/${id}`)).body.status).toBe('pending');
    });
  });

  describe('cancelling and sending again', () => {
    it('a new link lives seven more days and kills the old one', async () => {
      const { id, token } = await invited(api.a);
      await patch(id, { expires_at: systemClock.now() + 60_000 });
      const { status, body } = await at(api.a).resend(id);
      expect([status, Object.keys(body)]).toEqual([200, ['inviteLink']]);
      const fresh = tokenOf(body.inviteLink);
      expect(fresh).not.toBe(token);
      const { expires_at } = (await at(api.a).get(`/${id}`)).body;
      expect(Date.parse(`${expires_at}Z`) - systemClock.now()).toBeGreaterThan(WEEK_MS - 60_000);
      await withConsole(async (console) => {
        expect((await console.look(token)).status).toBe(401);
        expect((await console.accept(token)).status).toBe(401);
        expect((await console.accept(fresh)).status).toBe(200);
      });
    });

    it('cancelled, accepted and expired are final: 409 for both verbs, and the address is free again', async () => {
      await withConsole(async (console) => {
        const emails = [address(), address(), address()] as const;
        const [cancelled, accepted, expired] = await Promise.all(emails.map((email) => invited(api.a, { email })));
        expect((await at(api.a).del(cancelled?.id ?? '')).status).toBe(200);
        expect((await console.accept(accepted?.token ?? '')).status).toBe(200);
        await expire(expired?.id ?? '');
        for (const [made, status] of [
          [cancelled, 'cancelled'],
          [accepted, 'accepted'],
          [expired, 'expired'],
        ] as const) {
          for (const answer of [await at(api.a).del(made?.id ?? ''), await at(api.a).resend(made?.id ?? '')]) {
            refused(answer, 409, 'AB07', null);
            expect(answer.body.error.message).toContain(status);
          }
        }
        expect((await invite(api.a, { email: emails[0] })).status).toBe(200);
        expect((await invite(api.a, { email: emails[1] })).status).toBe(409);
        expect((await invite(api.a, { email: emails[2] })).status).toBe(200);
        expect((await at(api.a).get(`/${expired?.id}`)).body.status).toBe('expired');
      });
    });

    it('whoever was demoted leaves no open invites behind', async () => {
      const admin = await addUser(api.tables, api.a.organisation_id, { role: 'admin' });
      const headers = await signIn(api.tables, sessions, admin);
      const body = { email: address(), role: 'admin', workspaces: [] };
      const made = await api.call('POST', '/v1/admin/users/invites', { key: null, headers, body });
      await api.call('PUT', `/v1/admin/users/${admin.id}`, { body: { role: 'member' } });
      expect((await at(api.a).get(`/${made.body.id}`)).body.status).toBe('cancelled');
    });
  });

  describe('invites of keys', () => {
    const PEOPLE = ['organisation_users.create', 'organisation_users.list', 'organisation_users.delete'];
    const keyOf = async (creator: Call = {}, scopes: readonly string[] = PEOPLE) => {
      const body = { name: 'people', scopes };
      const made = await api.call('POST', '/v1/api-keys/organisation/service', { ...creator, body });
      expect(made.status, made.text).toBe(200);
      return made.body as { id: string; key: string };
    };

    it.each([
      ['was revoked', 'DELETE', undefined],
      ['lost the scope', 'PUT', { scopes: ['organisation_users.list'] }],
    ])('a key that %s leaves no open invites behind', async (_what, method, body) => {
      const { id, key } = await keyOf();
      const made = await invite(api.a, {}, key);
      expect((await api.call(method, `/v1/api-keys/${id}`, { body })).status).toBe(200);
      expect((await at(api.a).get(`/${made.body.id}`)).body.status).toBe('cancelled');
      await withConsole(async ({ accept }) => {
        expect((await accept(tokenOf(made.body.invite_link))).status).toBe(401);
      });
    });

    it('an invite gives no role that its sender could not give any more when it is accepted', async () => {
      const admin = await addUser(api.tables, api.a.organisation_id, { role: 'admin' });
      const { key } = await keyOf({ key: null, headers: await signIn(api.tables, sessions, admin) }, [
        ...scopesOf('organisation-service'),
      ]);
      const above = await invite(api.a, { role: 'admin' }, key);
      await api.call('PUT', `/v1/admin/users/${admin.id}`, { body: { role: 'member' } });
      const path = `/v1/admin/users/invites/${above.body.id}`;
      refused(await api.call('DELETE', path, { key }), 403, 'AB03', null);
      refused(await api.call('POST', `${path}/resend`, { key }), 403, 'AB03', null);
      await withConsole(async ({ look, accept }) => {
        for (const answer of [
          await look(tokenOf(above.body.invite_link)),
          await accept(tokenOf(above.body.invite_link)),
        ]) {
          expect([answer.status, answer.body.error.message]).toEqual([
            401,
            'The sender of this invite may no longer invite. Ask an administrator for a new one.',
          ]);
        }
      });
    });
  });
});
