/** The owner's own data, handing an organisation over, and sign-in links that administrators make for others. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../../test/support/accounts.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../../test/support/organisation.ts';
import { PUBLIC_URL } from '../../../../test/support/people.ts';
import { ConsoleSessions } from '../../../auth/console-session.ts';
import { scopesOf } from '../../../auth/scopes.ts';
import { systemClock } from '../../../kernel/clock.ts';
import type { Row } from '../../../store/schema.ts';

const UUID = '00000000-0000-7000-8000-000000000000';

describe.each(['sqlite', 'postgres'] as const)('owners on %s', (engine) => {
  let on: Organisation;
  let owner: Caller;
  beforeAll(async () => {
    on = await startOrganisation(engine);
    owner = await on.signIn(on.admin.a.user_id);
  });
  afterAll(() => on?.admin.close());

  const read = (id: string) => on.admin.tables.systemRead((tx) => tx.find('users', { id })) as Promise<Row<'users'>>;
  const at = (id: string, deed = '') => `/v1/admin/users/${id}${deed}`;
  const exchange = (link: string) => {
    const sessions = new ConsoleSessions({ tables: on.admin.tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
    return sessions.exchange(link.split('#')[1] ?? '');
  };

  it('an owner changes the own name, and no admin does; role and workspaces stay refused', async () => {
    const id = on.admin.a.user_id;
    const admin = await on.signIn(await on.addUser('admin'));
    refused(await admin('PUT', at(id), { first_name: 'Eve' }), 403, 'AB03', null);
    expect((await owner('PUT', at(id), { first_name: 'Ada', last_name: ' King ' })).body).toEqual({});
    expect(await read(id)).toMatchObject({ first_name: 'Ada', last_name: 'King', role: 'owner' });
    for (const body of [{ role: 'admin' }, { workspaces: [] }, { first_name: 'B', role: 'member' }]) {
      refused(await owner('PUT', at(id), body), 403, 'AB03', null);
    }
    refused(await owner('PUT', at(id), { first_name: 'a\u202eb' }), 400, 'AB01', 'first_name');
    expect((await read(id)).first_name).toBe('Ada');
  });

  describe('a sign-in link for somebody else', () => {
    it('signs the user in once, begins with the public address, and is in the audit log without its token', async () => {
      const id = await on.addUser('member');
      const { status, body } = await owner('POST', at(id, '/sign-in-link'));
      expect(status).toBe(200);
      expect(body.sign_in_link).toMatch(/^https:\/\/sluice\.example\/console\/sign-in#[0-9A-Za-z]{43}$/);
      expect((await exchange(body.sign_in_link)).session.principal.userId).toBe(id);
      await expect(exchange(body.sign_in_link)).rejects.toThrow('has been used');
      const rows = await on.admin.tables.systemRead((tx) => tx.list('audit_log', { where: { resource_id: id } }));
      expect(JSON.stringify(rows)).toContain('console sessions');
      expect(JSON.stringify(rows)).not.toContain(body.sign_in_link.split('#')[1]);
    });

    it('is for the same or a lower role only, and for users that are there', async () => {
      const admin = await on.signIn(await on.addUser('admin'));
      const peer = await on.addUser('admin');
      expect((await admin('POST', at(peer, '/sign-in-link'))).status).toBe(200);
      refused(await admin('POST', at(on.admin.a.user_id, '/sign-in-link')), 403, 'AB03', null);
      const member = await on.signIn(await on.addUser('member', { [on.admin.a.workspace_id]: 'admin' }));
      refused(await member('POST', at(peer, '/sign-in-link')), 403, 'AB03', null);
      refused(await owner('POST', at(UUID, '/sign-in-link')), 404, 'AB08', null);
      refused(await owner('POST', at(on.admin.b.user_id, '/sign-in-link')), 404, 'AB08', null);
    });

    it('needs a key to hold every scope that the user has', async () => {
      const place = on.admin.a.workspace_id;
      const few = on.as((await on.makeKey('organisation/service', ['organisation_users.update'])).key);
      const all = on.as((await on.makeKey('organisation/service', [...scopesOf('organisation-service')])).key);
      const bare = await on.addUser('member');
      expect((await few('POST', at(bare, '/sign-in-link'))).status).toBe(200);
      for (const id of [await on.addUser('admin'), await on.addUser('member', { [place]: 'member' })]) {
        refused(await few('POST', at(id, '/sign-in-link')), 403, 'AB03', null);
        expect((await all('POST', at(id, '/sign-in-link'))).status).toBe(200);
      }
    });
  });

  it('an owner hands the organisation over to an admin, signed in and never by key', async () => {
    const next = await on.addUser('admin');
    const member = await on.addUser('member');
    const call = await on.signIn(next);
    refused(await call('POST', at(next, '/ownership')), 403, 'AB03', null);
    const byKey: Caller = (method, path, body) => on.admin.call(method, path, { body });
    refused(await byKey('POST', at(next, '/ownership')), 403, 'AB03', null);
    refused(await owner('POST', at(member, '/ownership')), 409, 'AB07', null);
    refused(await owner('POST', at(UUID, '/ownership')), 404, 'AB08', null);
    expect((await owner('POST', at(next, '/ownership'))).body).toEqual({});
    expect([(await read(next)).role, (await read(on.admin.a.user_id)).role]).toEqual(['owner', 'admin']);
    const rows = await on.admin.tables.systemRead((tx) =>
      tx.list('audit_log', { where: { resource_id: next, action: 'manage' } }),
    );
    expect(rows.length).toBeGreaterThan(0);
    // The one who was owner has no more rights than an admin, and may be removed as one.
    refused(await owner('POST', at(next, '/ownership')), 403, 'AB03', null);
    expect((await call('DELETE', at(on.admin.a.user_id))).status).toBe(200);
  });
});
