/** Invites are accepted in the console. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { uuidv7 } from '../../src/kernel/id.ts';
import { workspaceRow } from '../../src/store/conformance/rows.ts';
import { refused } from '../support/accounts.ts';
import {
  address,
  api,
  at,
  expire,
  invite,
  invited,
  NAMES,
  organisation,
  sessions,
  tokenOf,
  useInvites,
  withConsole,
} from '../support/invites.ts';
import { addUser } from '../support/people.ts';

describe.each(['sqlite', 'postgres'] as const)('invites on %s', (engine) => {
  useInvites(engine);

  describe('accepting', () => {
    it('shows what is offered, then makes the user with role, names, workspaces and a sign-in', async () => {
      const org = await organisation();
      const gone = uuidv7(systemClock);
      await api.tables.systemWrite((tx) =>
        tx.insert('workspaces', workspaceRow(org.organisation_id, gone, { slug: 'ws-gone', name: 'Gone' })),
      );
      const email = address();
      const workspaces = [
        { id: org.workspace_slug, role: 'manager' },
        { id: gone, role: 'member' },
      ];
      const { id, token } = await invited(org, { email, workspaces });
      await api.tables.systemWrite((tx) => tx.update('workspaces', { id: gone }, { status: 'archived' }));
      await withConsole(async (console) => {
        const offer = await console.look(token);
        expect(offer.status).toBe(200);
        expect(offer.headers.get('cache-control')).toBe('no-store');
        expect(offer.headers.get('set-cookie')).toBeNull();
        expect(offer.body).toEqual({
          object: 'console_invite',
          organisation: { name: `Org${/\d+/.exec(offer.body.organisation.name)?.[0]}` },
          email,
          role: 'member',
          workspaces: [{ slug: org.workspace_slug, name: 'Default', role: 'manager' }],
          expires_at: expect.any(String),
        });
        const before = await api.tables.lastChange();
        const { status, body, headers } = await console.accept(token, { first_name: ' Zoë ', last_name: 'Ångström' });
        expect(status).toBe(200);
        expect(body).toMatchObject({
          object: 'console_acceptance',
          session: { user: { email, first_name: 'Zoë', last_name: 'Ångström', role: 'member' } },
          api_keys: [],
        });
        const userId = body.session.user.id;
        const cookie = String(headers.get('set-cookie')).split(';')[0] ?? '';
        expect((await sessions.find(cookie))?.principal.userId).toBe(userId);
        const read = await api.call('GET', `/v1/admin/users/${userId}`, { key: org.admin_api_key });
        expect(read.body).toMatchObject({ email, role: 'member', workspace_ids: [org.workspace_slug] });
        expect((await at(org).get(`/${id}`)).body).toMatchObject({ status: 'accepted' });
        const topics = (await api.tables.changesAfter(before, 100)).map(({ topic, entityId }) => [topic, entityId]);
        expect(topics).toEqual(
          expect.arrayContaining([
            ['users', userId],
            ['invites', id],
            ['workspace_members', userId],
          ]),
        );
        const rows = await api.tables.systemRead((tx) => tx.list('audit_log', { where: { user_id: userId } }));
        expect(rows).toMatchObject([
          { resource_id: id, response_status_code: 200, organisation_id: org.organisation_id },
        ]);
      });
    });

    it('a key that was asked for is made in each workspace and works as it is shown', async () => {
      const org = await organisation();
      const workspaces = [{ id: org.workspace_slug, role: 'member' }];
      const details = { name: 'Ada’s key', scopes: ['configs.list'], defaults: { metadata: { team: 'search' } } };
      const { token } = await invited(org, { workspaces, workspace_api_key_details: details });
      await withConsole(async (console) => {
        const { body } = await console.accept(token);
        expect(body.api_keys).toEqual([
          {
            id: expect.any(String),
            key: expect.stringMatching(/^slc_usr_/),
            workspace: { id: org.workspace_id, slug: org.workspace_slug, name: 'Default' },
          },
        ]);
        const { id, key } = body.api_keys[0];
        expect((await api.call('GET', '/v1/configs', { key })).status).toBe(200);
        expect((await api.call('GET', '/v1/providers', { key })).status).toBe(403);
        const stored = await api.call('GET', `/v1/api-keys/${id}`, { key: org.admin_api_key });
        expect(stored.body).toMatchObject({
          name: 'Ada’s key',
          user_id: body.session.user.id,
          scopes: ['configs.list'],
          defaults: { metadata: { team: 'search' } },
        });
      });
    });

    it('whoever was removed comes back as the same user, with the role and workspaces of the invite only', async () => {
      const org = await organisation();
      const email = address();
      const before = await addUser(api.tables, org.organisation_id, { email, role: 'admin' });
      await api.call('PUT', `/v1/admin/users/${before.id}`, {
        key: org.admin_api_key,
        body: { workspaces: [{ id: org.workspace_slug, role: 'admin' }] },
      });
      const key = await api.call('POST', '/v1/api-keys/workspace/user', {
        key: org.admin_api_key,
        body: { name: 'old', workspace_id: org.workspace_id, user_id: before.id, scopes: ['configs.list'] },
      });
      await api.call('DELETE', `/v1/admin/users/${before.id}`, { key: org.admin_api_key });
      const { token } = await invited(org, { email });
      await withConsole(async (console) => {
        const { body } = await console.accept(token, { first_name: 'New', last_name: 'Name' });
        expect(body.session.user).toMatchObject({ id: before.id, first_name: 'New', role: 'member' });
      });
      const read = await api.call('GET', `/v1/admin/users/${before.id}`, { key: org.admin_api_key });
      expect(read.body).toMatchObject({ role: 'member', workspace_ids: [] });
      expect((await api.call('GET', '/v1/configs', { key: key.body.key })).status).toBe(401);
    });

    it('of many acceptances at once exactly one succeeds; used, cancelled, expired and unknown are told apart', async () => {
      const org = await organisation();
      await withConsole(async (console) => {
        const { token } = await invited(org);
        const answers = await Promise.all(Array.from({ length: 6 }, () => console.accept(token)));
        expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 401, 401, 401, 401, 401]);
        expect(
          await api.tables.systemRead((tx) => tx.count('users', { where: { organisation_id: org.organisation_id } })),
        ).toBe(2);
        const cancelled = await invited(org);
        await at(org).del(cancelled.id);
        const expired = await invited(org);
        await expire(expired.id);
        const messages = [];
        for (const text of [token, cancelled.token, expired.token, 'A'.repeat(43)]) {
          const look = await console.look(text);
          expect([look.status, look.body.error.code, look.headers.get('set-cookie')]).toEqual([401, 'AB05', null]);
          messages.push(look.body.error.message);
        }
        expect(messages.map((message) => /accepted|cancelled|expired|not valid/.exec(message)?.[0])).toEqual([
          'accepted',
          'cancelled',
          'expired',
          'not valid',
        ]);
      });
    });

    it('a cancellation and an acceptance at once end in one of the two, never both', async () => {
      await withConsole(async (console) => {
        for (let round = 0; round < 8; round++) {
          const email = address();
          const { id, token } = await invited(api.a, { email });
          const [gone, come] = await Promise.all([at(api.a).del(id), console.accept(token)]);
          expect([
            [200, 401],
            [409, 200],
          ]).toContainEqual([gone.status, come.status]);
          const users = await api.tables.systemRead((tx) => tx.count('users', { where: { email, status: 'active' } }));
          expect(users).toBe(come.status === 200 ? 1 : 0);
        }
      });
    });

    it('an address that became a user’s meanwhile is a 409, and the invite stays open', async () => {
      const email = address();
      const { id, token } = await invited(api.a, { email });
      await addUser(api.tables, api.a.organisation_id, { email });
      await withConsole(async (console) => {
        refused(await console.accept(token), 409, 'AB07', null);
      });
      expect((await at(api.a).get(`/${id}`)).body.status).toBe('pending');
    });

    it('a suspended organisation takes nobody in', async () => {
      const org = await organisation();
      const { token } = await invited(org);
      await api.call('PUT', `/v1/operator/organisations/${org.organisation_id}`, {
        key: api.operatorKey,
        body: { status: 'suspended' },
      });
      await withConsole(async (console) => {
        refused(await console.look(token), 403, 'AB03', null);
        refused(await console.accept(token), 403, 'AB03', null);
      });
    });

    it('another origin, or none, is refused and leaves the link usable', async () => {
      const { token } = await invited(api.a);
      await withConsole(async (console) => {
        for (const headers of [{}, { origin: 'null' }, { origin: 'https://sluice.example.attacker.example' }]) {
          expect((await console.look(token, headers as Record<string, string>)).status).toBe(403);
          expect((await console.accept(token, NAMES, headers as Record<string, string>)).status).toBe(403);
        }
        expect((await console.accept(token)).status).toBe(200);
      });
    });

    it('guessing is slowed down: after ten failures in a minute 429, and a true link still works', async () => {
      const { token } = await invited(api.a);
      await withConsole(async (console) => {
        for (let n = 0; n < 10; n++) expect((await console.look('B'.repeat(43))).status).toBe(401);
        const blocked = await console.accept('B'.repeat(43));
        expect([blocked.status, Number(blocked.headers.get('retry-after')) >= 1]).toEqual([429, true]);
        expect((await console.accept(token)).status).toBe(200);
      });
    });

    it.each([
      ['no names', {}, 'first_name'],
      ['a missing last name', { first_name: 'Ada' }, 'last_name'],
      ['an empty name', { first_name: '', last_name: 'L' }, 'first_name'],
      ['only space', { first_name: 'Ada', last_name: ' \t ' }, 'last_name'],
      ['a number', { first_name: 7, last_name: 'L' }, 'first_name'],
      ['101 characters', { first_name: 'a'.repeat(101), last_name: 'L' }, 'first_name'],
      ['U+0000', { first_name: 'A\u0000', last_name: 'L' }, 'first_name'],
      ['a line feed inside', { first_name: 'A\nB', last_name: 'L' }, 'first_name'],
      ['a mark that turns the direction of writing', { first_name: 'A\u202e', last_name: 'L' }, 'first_name'],
      ['a space without width', { first_name: 'Ada', last_name: 'L\u200bL' }, 'last_name'],
      ['a line separator', { first_name: 'A\u2028B', last_name: 'L' }, 'first_name'],
      ['half a surrogate pair', { first_name: 'A\ud800', last_name: 'L' }, 'first_name'],
    ])('%s is a 400 that names the field, and the link stays usable', async (_title, names, param) => {
      const { id, token } = await invited(api.a);
      await withConsole(async (console) => {
        const answer = await console.accept(token, names);
        expect([answer.status, answer.body.error.param]).toEqual([400, param]);
      });
      expect((await at(api.a).get(`/${id}`)).body.status).toBe('pending');
    });

    it('whatever stands in e-mail, names and token is refused or kept as it is, and never an error of ours', async () => {
      const org = await organisation();
      await withConsole(async (console) => {
        await fc.assert(
          fc.asyncProperty(
            fc.oneof(fc.emailAddress(), fc.string({ unit: 'binary', maxLength: 40 })),
            fc.string({ unit: 'grapheme', maxLength: 20 }),
            fc.string({ unit: 'binary', maxLength: 120 }),
            async (email, first_name, last_name) => {
              const made = await invite(org, { email });
              expect([200, 400, 409]).toContain(made.status);
              if (made.status !== 200) return;
              const token = tokenOf(made.body.invite_link);
              const come = await console.accept(token, { first_name, last_name });
              expect([200, 400]).toContain(come.status);
              if (come.status === 200) {
                const { user } = come.body.session;
                expect(user).toMatchObject({
                  email: email.toLowerCase(),
                  first_name: first_name.trim(),
                  last_name: last_name.trim(),
                });
              }
              await at(org).del(made.body.id);
            },
          ),
          { numRuns: 60 },
        );
      });
    });
  });
});
