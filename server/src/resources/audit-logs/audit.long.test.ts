/** The audit log as an organisation sees it, and as somebody who can write to the database cannot leave it. */
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { AdminHarness, Answer, Call } from '../../../test/support/admin.ts';
import { emptyTables, plainVault, startAdmin } from '../../../test/support/admin.ts';
import { consoleServer } from '../../../test/support/console.ts';
import { NaiveLogStore } from '../../../test/support/naive-log-store.ts';
import { addUser, PUBLIC_URL, signIn } from '../../../test/support/people.ts';
import { migratedDatabase } from '../../../test/support/postgres.ts';
import { registerAdmin } from '../../admin/handle.ts';
import { refuse } from '../../admin/respond.ts';
import { createAuthenticator } from '../../auth/authenticator.ts';
import { ConsoleSessions } from '../../auth/console-session.ts';
import { createApp } from '../../http/app.ts';
import { KnownPaths } from '../../http/known-paths.ts';
import { systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import type { Tables } from '../../store/ports.ts';
import { openPostgresTables } from '../../store/postgres/tables.ts';
import type { Row } from '../../store/schema.ts';
import { ACTIONS } from '../catalog.ts';
import { KEPT_LOGS } from '../logs/reach.ts';
import { Services } from '../services.ts';
import { verifyAudit } from './verify.ts';

const ID = '00000000-0000-7000-8000-000000000000';
const WINDOW = 'start_time=2020-01-01T00:00:00Z&end_time=2100-01-01T00:00:00Z';

const rowsOf = (tables: Tables, organisationId: string): Promise<Row<'audit_log'>[]> =>
  tables.systemRead((tx) =>
    tx.list('audit_log', { where: { organisation_id: organisationId }, orderBy: [['seq', 'asc']] }),
  );

/** Another node on the same store, which serves the administration API. */
async function secondNode(tables: Tables) {
  const authenticator = createAuthenticator({ tables, clock: systemClock, log: silentLog });
  const paths = new KnownPaths(() => PUBLIC_URL);
  const app = createApp({
    clock: systemClock,
    express: new Map(),
    headerAliases: [],
    trustedProxies: [],
    paths,
    refuse: (request, response, error) => refuse(request, response, error, silentLog),
    draining: () => false,
  });
  registerAdmin(app, {
    paths,
    tables,
    vault: plainVault,
    clock: systemClock,
    log: silentLog,
    authenticator,
    requestsPerMinute: 1_000_000,
    checkHost: () => null,
    publicUrl: () => PUBLIC_URL,
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  return { url: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`, close: () => app.close() };
}

/** Paths of a route with names of nothing in the place of its parameters. */
function pathOf(path: string): string {
  return `/v2${path.replace(':type', 'workspace').replace(':subType', 'service').replace(/:\w+/g, ID)}`;
}

describe.each(['sqlite', 'postgres'] as const)('the audit log on %s', (engine) => {
  let admin: AdminHarness;
  let sessions: ConsoleSessions;
  let weakKey: string;
  let signedIn: Readonly<Record<string, string>>;

  beforeAll(async () => {
    const tables = await emptyTables(engine);
    sessions = new ConsoleSessions({ tables, clock: systemClock, publicUrl: () => PUBLIC_URL });
    const logs = { store: new NaiveLogStore(), days: 0, erased: async () => [] };
    admin = await startAdmin(tables, { admin: { sessions, services: new Services().provide(KEPT_LOGS, logs) } });
    const body = { name: 'weak', scopes: ['completions.write'], workspace_id: admin.a.workspace_id };
    weakKey = (await ok('POST', '/v1/api-keys/workspace/service', { body })).body.key;
    signedIn = await signIn(tables, sessions, await addUser(tables, admin.a.organisation_id, { role: 'admin' }));
  });

  afterAll(async () => {
    await admin?.close();
  });

  async function ok(method: string, path: string, call?: Call): Promise<Answer> {
    const answer = await admin.call(method, path, call);
    expect([answer.status, answer.text.slice(0, 300)]).toEqual([200, expect.anything()]);
    return answer;
  }

  /** Rows of a call, in whichever organisation. */
  const rowsOfCall = (answer: Answer) =>
    admin.tables.systemRead((tx) =>
      tx.list('audit_log', { where: { request_id: answer.headers.get('x-gateway-request-id') ?? '' } }),
    );

  async function oneRow(answer: Answer): Promise<Row<'audit_log'>> {
    const [row, ...others] = await rowsOfCall(answer);
    if (!row) throw new Error(`no audit row: ${answer.status} ${answer.text}`);
    expect(others).toEqual([]);
    return row;
  }

  const list = (query = '', call?: Call) => admin.call('GET', `/v1/audit-logs?${WINDOW}${query && `&${query}`}`, call);
  const verify = () => verifyAudit(admin.tables, plainVault, admin.a.organisation_id);

  describe('has exactly one row', () => {
    const writes = ACTIONS.filter((action) => action.writes && action.unaudited !== true);
    const calls: readonly (readonly [string, (method: string) => Call & { readonly query?: string }])[] = [
      ['an empty body', (method) => (method === 'DELETE' ? {} : { body: {} })],
      ['its example', () => ({})],
      ['unknown fields', () => ({ body: { '?': 1 } })],
      ['an unknown parameter', () => ({ query: '?nope=1' })],
      ['a body that is no JSON', () => ({ raw: '{' })],
      ['a key without its scope', () => ({ key: weakKey })],
    ];

    it.each(writes.map((action) => [`${action.method} ${action.path}`, action] as const))(
      'of each %s, refused or not',
      async (_title, action) => {
        for (const [title, how] of calls) {
          const { query = '', ...asked } = how(action.method);
          const ofUsers = action.auth === 'login';
          // There a key is a credential that is none.
          if (ofUsers && 'key' in asked) continue;
          const call = ofUsers ? { ...asked, key: null, headers: signedIn } : asked;
          // A GET that stores what it found out has no body.
          if (action.method === 'GET' && ('body' in call || 'raw' in call)) continue;
          const example = title === 'its example' && action.example?.body !== undefined;
          const path = `${pathOf(action.path)}${query}`;
          const answer = await admin.call(action.method, path, example ? { body: action.example?.body } : call);
          const row = await oneRow(answer);
          expect([title, row.response_status_code]).toEqual([title, answer.status]);
          expect(row).toMatchObject({ method: action.method, uri: pathOf(action.path), action: action.audit?.action });
          if (answer.status !== 200) expect([row.before, row.after]).toEqual([null, null]);
          else expect([title, row.before ?? row.after]).not.toEqual([title, null]);
        }
      },
    );

    it('of a body that is too large', async () => {
      const answer = await admin.call('POST', '/v1/configs', { raw: `{"name":"${'x'.repeat(1_100_000)}"}` });
      expect(answer.status).toBe(413);
      await vi.waitFor(async () => expect((await oneRow(answer)).response_status_code).toBe(413), { timeout: 15_000 });
    });

    it('and none of a read, nor of a credential that is none', async () => {
      for (const answer of [
        await admin.call('GET', '/v1/configs?nope=1'),
        await list(),
        await admin.call('POST', '/v1/configs', { key: null, body: {} }),
        await admin.call('POST', '/v1/configs', { key: 'slc_wks_nothing', body: {} }),
        await admin.call('PATCH', '/v1/configs', { body: {} }),
      ]) {
        expect(await rowsOfCall(answer)).toEqual([]);
      }
    });

    it('in the log of the organisation whose key knocked at the operator’s door', async () => {
      const path = `/v1/operator/organisations/${admin.b.organisation_id}`;
      const row = await oneRow(await admin.call('PUT', path, { body: { name: 'Mine' } }));
      expect([row.organisation_id, row.response_status_code]).toEqual([admin.a.organisation_id, 403]);
      expect(await rowsOfCall(await admin.call('POST', '/v1/configs', { key: admin.operatorKey, body: {} }))).toEqual(
        [],
      );
    });

    it('of what the operator did, and tried to do, to an organisation', async () => {
      const path = (id: string) => `/v1/operator/organisations/${id}`;
      const call = { key: admin.operatorKey };
      const done = await oneRow(await ok('PUT', path(admin.b.organisation_id), { ...call, body: { name: 'Beta 2' } }));
      expect(done).toMatchObject({ organisation_id: admin.b.organisation_id, user_type: 'operator', user_id: null });
      expect(JSON.parse(done.before ?? '')).toEqual({ id: admin.b.organisation_id, name: 'Beta' });
      expect(JSON.parse(done.after ?? '')).toEqual({ id: admin.b.organisation_id, name: 'Beta 2' });
      const refused = await admin.call('PUT', path(admin.b.organisation_id), { ...call, body: { status: 'gone' } });
      expect(await oneRow(refused)).toMatchObject({
        organisation_id: admin.b.organisation_id,
        response_status_code: 400,
      });
      expect(await rowsOfCall(await admin.call('PUT', path(ID), { ...call, body: {} }))).toEqual([]);
      const owner = { email: 'new@owner.example', first_name: 'New', last_name: 'Owner' };
      const made = await ok('POST', '/v1/operator/organisations', { ...call, body: { name: 'Gamma', owner } });
      expect(await oneRow(made)).toMatchObject({
        organisation_id: made.body.organisation_id,
        action: 'create',
        seq: 1,
      });
    });

    it('of a sign-in and of a sign-out of the console', async () => {
      const server = await consoleServer({ tables: admin.tables, clock: systemClock });
      try {
        const user = await addUser(admin.tables, admin.a.organisation_id, { role: 'admin' });
        const token = (await server.link(user)).split('#')[1];
        const headers = { origin: server.url, 'content-type': 'application/json' };
        const body = JSON.stringify({ token });
        const answer = await fetch(`${server.url}/console/api/session`, { method: 'POST', headers, body });
        expect(answer.status).toBe(200);
        const cookie = (answer.headers.get('set-cookie') ?? '').split(';')[0] ?? '';
        const { csrf_token } = (await answer.json()) as { csrf_token: string };
        const out = { cookie, origin: server.url, 'x-csrf-token': csrf_token };
        const ended = await fetch(`${server.url}/console/api/session`, { method: 'DELETE', headers: out });
        expect(ended.status).toBe(204);
        const rows = (await rowsOf(admin.tables, admin.a.organisation_id)).filter((row) => row.user_id === user.id);
        expect(rows.map((row) => [row.action, row.resource_type, row.user_type, row.method])).toEqual([
          ['create', 'auth.sign_in', 'user', 'POST'],
          ['delete', 'auth.sign_out', 'user', 'DELETE'],
        ]);
        expect(JSON.stringify(rows)).not.toContain(token);
      } finally {
        await server.close();
      }
    });
  });

  describe('says what changed', () => {
    it('the whole object when it was made or removed, the columns that differ when it was changed', async () => {
      const { workspace_id } = admin.a;
      const made = await ok('POST', '/v1/configs', {
        body: { name: 'One', config: { retry: { attempts: 1 } }, workspace_id },
      });
      const created = await oneRow(made);
      expect(created.before).toBeNull();
      expect(JSON.parse(created.after ?? '')).toMatchObject({ id: created.resource_id, name: 'One', status: 'active' });
      const changed = await oneRow(await ok('PUT', `/v1/configs/${made.body.slug}`, { body: { name: 'Two' } }));
      expect(JSON.parse(changed.before ?? '')).toMatchObject({ id: created.resource_id, name: 'One' });
      expect(JSON.parse(changed.after ?? '')).toMatchObject({ id: created.resource_id, name: 'Two' });
      expect(JSON.parse(changed.after ?? '')).not.toHaveProperty('status');
      const removed = await oneRow(await ok('DELETE', `/v1/configs/${made.body.slug}`));
      expect(JSON.parse(removed.before ?? '')).toMatchObject({
        id: created.resource_id,
        name: 'Two',
        status: 'active',
      });
      expect(removed.after).toBeNull();
    });

    it('that a secret was changed, and never what it is', async () => {
      const secret = (n: number) => `canary-${n}-${'q'.repeat(20)}`;
      const body = { name: 'OpenAI', ai_provider_id: 'openai', key: secret(1) };
      const made = await ok('POST', '/v1/integrations', { body });
      const change = await ok('PUT', `/v1/integrations/${made.body.slug}`, { body: { key: secret(2) } });
      const row = await oneRow(change);
      const [before, after] = [JSON.parse(row.before ?? ''), JSON.parse(row.after ?? '')];
      expect([before.key, after.key]).toEqual([
        expect.stringMatching(/^\*{7}[0-9a-f]{8}$/),
        expect.stringMatching(/^\*{7}[0-9a-f]{8}$/),
      ]);
      expect(before.key).not.toBe(after.key);
      expect(JSON.stringify(await rowsOf(admin.tables, admin.a.organisation_id))).not.toContain('canary');
    });

    it('and with which headers, of which secrets are only marked', async () => {
      const answer = await admin.call('POST', '/v1/configs', {
        body: {},
        headers: { 'user-agent': 'curl/8', 'x-own': 'mine' },
      });
      const headers = JSON.parse((await oneRow(answer)).request_headers ?? '');
      expect(headers).toMatchObject({ 'user-agent': 'curl/8', 'x-own': expect.stringMatching(/^\*{7}/) });
      expect(JSON.stringify(headers)).not.toContain(admin.a.admin_api_key.slice(8, 20));
    });
  });

  describe('GET /audit-logs', () => {
    it('answers records newest first, in pages, with the total', async () => {
      const all = await list('page_size=100');
      expect(all.body).toMatchObject({ object: 'list', total: expect.any(Number) });
      const times = all.body.records.map((record: { timestamp: string }) => record.timestamp);
      expect(times).toEqual([...times].sort().reverse());
      const ids = (answer: Answer) => answer.body.records.map((record: { id: string }) => record.id);
      const [one, two] = [await list('page_size=3'), await list('page_size=3&current_page=1')];
      expect([...ids(one), ...ids(two)]).toEqual(ids(all).slice(0, 6));
      expect((await list()).body.records).toHaveLength(50);
      const none = await list('page_size=0');
      expect(none.body).toEqual({ object: 'list', total: all.body.total, records: [] });
      expect((await list('', { key: admin.b.admin_api_key })).body.total).toBeLessThan(all.body.total);
    });

    it('a record has the fields of the contract, and the object, its place and its proof beside them', async () => {
      const call = await admin.call('PUT', `/v1/configs/none?workspace_id=${admin.a.workspace_id}`, {
        body: { name: 'x' },
      });
      const requestId = call.headers.get('x-gateway-request-id');
      const { records } = (await list(`request_id=${requestId}`)).body;
      expect(records).toEqual([
        {
          id: expect.any(String),
          timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
          method: 'PUT',
          uri: '/v1/configs/none',
          request_id: requestId,
          request_body: '{"name":"x"}',
          query_params: JSON.stringify({ workspace_id: admin.a.workspace_id }),
          request_headers: expect.stringContaining('content-type'),
          user_id: expect.any(String),
          user_type: 'api_key',
          actor_name: null,
          key_name: expect.any(String),
          actor: 'api_key',
          organisation_id: admin.a.organisation_id,
          workspace_id: admin.a.workspace_id,
          response_status_code: 404,
          resource_type: 'configs',
          resource_id: null,
          action: 'update',
          client_ip: '127.0.0.1',
          country: null,
          before: null,
          after: null,
          seq: expect.any(Number),
          hash: expect.stringMatching(/^test\.[0-9a-f]{64}$/),
        },
      ]);
    });

    it('shows what the operator and Sluice itself did as api_key, and who it was as actor', async () => {
      const path = `/v1/operator/organisations/${admin.a.organisation_id}`;
      await ok('PUT', path, { key: admin.operatorKey, body: { name: 'Alpha again' } });
      const [record] = (await list('resource_type=organisation&user_type=api_key&response_status_code=200')).body
        .records;
      expect(record).toMatchObject({ user_type: 'api_key', actor: 'operator', user_id: null });
    });

    it('every filter narrows to the rows that match it', async () => {
      const rows = await rowsOf(admin.tables, admin.a.organisation_id);
      const sample = rows.findLast((row) => row.workspace_id !== null && row.user_id !== null);
      if (!sample) throw new Error('no row to filter for');
      const names = [
        ['method', 'method'],
        ['uri', 'uri'],
        ['request_id', 'request_id'],
        ['user_id', 'user_id'],
        ['workspace_id', 'workspace_id'],
        ['response_status_code', 'response_status_code'],
        ['resource_type', 'resource_type'],
        ['action', 'action'],
        ['client_ip', 'client_ip'],
      ] as const;
      for (const [parameter, column] of names) {
        const value = sample[column];
        const answer = await list(`${parameter}=${encodeURIComponent(String(value))}`);
        const expected = rows.filter((row) => row[column] === value).length;
        expect([parameter, answer.body.total]).toEqual([parameter, expected]);
      }
      expect((await list('user_type=user')).body.total).toBe(rows.filter((row) => row.user_type === 'user').length);
      expect((await list('user_type=api_key')).body.total).toBe(rows.filter((row) => row.user_type !== 'user').length);
      expect((await list('country=DE')).body.total).toBe(0);
      const spellings = await Promise.all(
        ['api keys', 'api-keys', 'api_keys'].map((name) => list(`resource_type=${name}`)),
      );
      expect(new Set(spellings.map((answer) => answer.body.total)).size).toBe(1);
      const time = (at: number) => new Date(at).toISOString();
      const from = `/v1/audit-logs?start_time=${time(sample.timestamp)}&end_time=${time(sample.timestamp + 1)}`;
      const within = rows.filter(({ timestamp }) => timestamp >= sample.timestamp && timestamp <= sample.timestamp + 1);
      expect((await ok('GET', from)).body.total).toBe(within.length);
    });

    it('the workspace of a row is that of its object, also where an organisation key named none', async () => {
      const workspace = await ok('POST', '/v1/admin/workspaces', { body: { name: 'Own' } });
      const inside = { workspace_id: workspace.body.id, name: 'n' };
      const config = await ok('POST', '/v1/configs', { body: { ...inside, config: { retry: { attempts: 1 } } } });
      await ok('PUT', `/v1/configs/${config.body.slug}`, { body: { name: 'm' } });
      const key = await ok('POST', '/v1/api-keys/workspace/service', { body: { ...inside, scopes: ['logs.list'] } });
      await ok('POST', `/v1/api-keys/${key.body.id}/rotate`);
      const again = await admin.call('POST', `/v1/api-keys/${key.body.id}/rotate`);
      expect(again.status).toBe(409);
      await ok('DELETE', `/v1/api-keys/${key.body.id}`);
      await ok('DELETE', `/v1/configs/${config.body.slug}`);
      const { records } = (await list(`workspace_id=${workspace.body.slug}`)).body;
      const said = records.map((row: { action: string; resource_type: string; response_status_code: number }) =>
        [row.action, row.resource_type, row.response_status_code].join(' '),
      );
      expect(said.reverse()).toEqual([
        'create workspaces 200',
        'create configs 200',
        'update configs 200',
        'create api keys 200',
        'rotate api keys 200',
        'rotate api keys 409',
        'delete api keys 200',
        'delete configs 200',
      ]);
    });

    it('takes a workspace by slug, and a deleted one too', async () => {
      const body = { name: 'Short lived', slug: 'short-lived' };
      const made = await ok('POST', '/v1/admin/workspaces', { body });
      const inside = { workspace_id: made.body.id, name: 'c', config: { retry: { attempts: 1 } } };
      const config = await ok('POST', '/v1/configs', { body: inside });
      await ok('DELETE', `/v1/configs/${config.body.slug}`);
      const before = (await list(`workspace_id=${made.body.id}`)).body.total;
      expect(before).toBeGreaterThanOrEqual(1);
      await admin.tables.systemWrite((tx) =>
        tx.update('workspaces', { id: made.body.id, organisation_id: admin.a.organisation_id }, { status: 'archived' }),
      );
      expect((await list(`workspace_id=${made.body.id}`)).body.total).toBe(before);
      expect((await list(`workspace_id=${made.body.slug}`)).body.total).toBe(before);
    });

    it.each([
      ['no start_time', 'end_time=2030-01-01T00:00:00Z', 'start_time'],
      ['no end_time', 'start_time=2030-01-01T00:00:00Z', 'end_time'],
      ['a start_time that is no date', 'start_time=yesterday&end_time=2030-01-01T00:00:00Z', 'start_time'],
      ['a date without a zone', 'start_time=2030-01-01T00:00:00&end_time=2030-01-02T00:00:00Z', 'start_time'],
      ['an end before the start', 'start_time=2030-01-02T00:00:00Z&end_time=2030-01-01T00:00:00Z', 'end_time'],
      ['an end at the start', 'start_time=2030-01-01T00:00:00Z&end_time=2030-01-01T00:00:00Z', 'end_time'],
      ['method GET', `${WINDOW}&method=GET`, 'method'],
      ['a user_type that is none', `${WINDOW}&user_type=operator`, 'user_type'],
      ['an action that is none', `${WINDOW}&action=read`, 'action'],
      ['a status that is no number', `${WINDOW}&response_status_code=ok`, 'response_status_code'],
      ['a status beyond 599', `${WINDOW}&response_status_code=600`, 'response_status_code'],
      ['page_size 101', `${WINDOW}&page_size=101`, 'page_size'],
      ['page_size -1', `${WINDOW}&page_size=-1`, 'page_size'],
      ['current_page -1', `${WINDOW}&current_page=-1`, 'current_page'],
      ['an empty uri', `${WINDOW}&uri=`, 'uri'],
      ['an organisation_id that is no UUID', `${WINDOW}&organisation_id=x`, 'organisation_id'],
      ['an unknown parameter', `${WINDOW}&limit=3`, 'limit'],
    ])('refuses %s', async (_title, query, param) => {
      const answer = await admin.call('GET', `/v1/audit-logs?${query}`);
      expect([answer.status, answer.body.error?.code, answer.body.error?.param]).toEqual([400, 'AB01', param]);
    });

    it('is for organisation keys with audit_logs.list, owners and admins', async () => {
      const key = async (type: string, scopes: string[], more = {}) =>
        (await ok('POST', `/v1/api-keys/${type}`, { body: { name: 'k', scopes, ...more } })).body.key as string;
      const holder = await key('organisation/service', ['audit_logs.list']);
      const without = await key('organisation/service', ['configs.list']);
      expect((await list('', { key: holder })).status).toBe(200);
      for (const refused of [without, weakKey, admin.operatorKey]) {
        const answer = await list('', { key: refused });
        expect([answer.status, answer.body.error.code]).toEqual([403, 'AB03']);
      }
      for (const [role, status] of [
        ['owner', 200],
        ['admin', 200],
        ['member', 403],
      ] as const) {
        const user = await addUser(admin.tables, admin.a.organisation_id, { role });
        const headers = await signIn(admin.tables, sessions, user);
        expect([role, (await list('', { key: null, headers })).status]).toEqual([role, status]);
      }
    });

    it('shows the present names of the user and of the key, which are not part of the chain', async () => {
      const { tables, a } = admin;
      const person = { role: 'admin', first_name: 'Ada', last_name: 'King' } as const;
      const user = await addUser(tables, a.organisation_id, person);
      const headers = await signIn(tables, sessions, user);
      const recordOf = async (answer: Answer) =>
        (await list(`request_id=${answer.headers.get('x-gateway-request-id')}`)).body.records[0];
      const scopes = ['configs.create'];
      const makeKey = async (type: string, more: object) =>
        (await ok('POST', `/v1/api-keys/${type}`, { body: { name: `of ${type}`, scopes, ...more } })).body;
      const body = () => ({ name: 'named', config: { retry: { attempts: 1 } }, workspace_id: a.workspace_id });
      const service = await makeKey('organisation/service', {});
      const personal = await makeKey('workspace/user', { workspace_id: a.workspace_id, user_id: user.id });
      const made = [
        await ok('POST', '/v1/configs', { body: body(), key: null, headers }),
        await ok('POST', '/v1/configs', { body: body(), key: service.key }),
        await ok('POST', '/v1/configs', { body: body(), key: personal.key }),
      ];
      const names = async () =>
        Promise.all(
          made.map(async (answer) => {
            const { actor_name, key_name, hash } = await recordOf(answer);
            return { actor_name, key_name, hash };
          }),
        );
      const before = await names();
      expect(before).toMatchObject([
        { actor_name: 'Ada King', key_name: null },
        { actor_name: null, key_name: 'of organisation/service' },
        { actor_name: 'Ada King', key_name: 'of workspace/user' },
      ]);
      await tables.systemWrite((tx) => tx.update('users', { id: user.id }, { last_name: 'Lovelace' }));
      await ok('PUT', `/v1/api-keys/${service.id}`, { body: { name: 'renamed' } });
      const after = await names();
      expect(after).toMatchObject([
        { actor_name: 'Ada Lovelace' },
        { key_name: 'renamed' },
        { key_name: 'of workspace/user' },
      ]);
      expect(after.map(({ hash }) => hash)).toEqual(before.map(({ hash }) => hash));
      expect((await verify()).finding).toBeNull();
    });

    it('knows no other organisation', async () => {
      const own = await list(`organisation_id=${admin.a.organisation_id}`);
      expect(own.status).toBe(200);
      const other = await list(`organisation_id=${admin.b.organisation_id}`);
      expect([other.status, other.body.error.param]).toEqual([403, 'organisation_id']);
      const workspace = await list(`workspace_id=${admin.b.workspace_id}`);
      expect([workspace.status, workspace.body.error.code]).toEqual([404, 'AB02']);
      const theirs = await rowsOf(admin.tables, admin.b.organisation_id);
      expect((await list(`request_id=${theirs[0]?.request_id}`)).body.total).toBe(0);
    });
  });

  describe('in the hands of somebody who can write to the database', () => {
    const restore = async (row: Row<'audit_log'>) => admin.tables.systemWrite((tx) => tx.insert('audit_log', row));
    const at = async (seq: number) => {
      const rows = await rowsOf(admin.tables, admin.a.organisation_id);
      const row = rows.find((one) => one.seq === seq);
      if (!row) throw new Error(`no row ${seq}`);
      return { row, count: rows.length };
    };

    it('is whole as long as nobody did', async () => {
      const rows = await rowsOf(admin.tables, admin.a.organisation_id);
      expect(rows.map(({ seq }) => seq)).toEqual(rows.map((_, i) => i + 1));
      expect(await verify()).toMatchObject({ rows: rows.length, unchained: 0, finding: null });
    });

    it('shows a removed row as a gap, a changed one by its place, and a shortened log as such', async () => {
      const { organisation_id } = admin.a;
      const { row, count } = await at(5);
      await admin.tables.systemWrite((tx) => tx.remove('audit_log', { id: row.id, organisation_id }));
      expect((await verify()).finding).toEqual({ kind: 'gap', from: 5, to: 5 });
      await restore({ ...row, response_status_code: row.response_status_code + 1 });
      expect((await verify()).finding).toEqual({ kind: 'altered', seq: 5, id: row.id });
      await admin.tables.systemWrite((tx) => tx.remove('audit_log', { id: row.id, organisation_id }));
      await restore(row);
      expect((await verify()).finding).toBeNull();
      const { row: last } = await at(count);
      await admin.tables.systemWrite((tx) => tx.remove('audit_log', { id: last.id, organisation_id }));
      expect((await verify()).finding).toEqual({ kind: 'tail', from: count, to: count });
      await restore(last);
    });

    it('shows a row that was put beside the chain, and tells of rows from before it', async () => {
      const { organisation_id } = admin.a;
      const { row } = await at(1);
      const forged = { ...row, id: ID, seq: null, hash: null };
      await restore({ ...forged, timestamp: row.timestamp - 1 });
      expect(await verify()).toMatchObject({ unchained: 1, finding: null });
      await admin.tables.systemWrite((tx) => tx.remove('audit_log', { id: ID, organisation_id }));
      await restore({ ...forged, timestamp: row.timestamp + 1 });
      expect(await verify()).toMatchObject({ unchained: 1, finding: { kind: 'unchained', id: ID } });
      await admin.tables.systemWrite((tx) => tx.remove('audit_log', { id: ID, organisation_id }));
    });

    it('shows a head that was set back, and the next write does not hide it', async () => {
      const { organisation_id } = admin.a;
      const head = await admin.tables.systemRead((tx) => tx.find('audit_heads', { organisation_id }));
      if (!head) throw new Error('no head');
      const { row } = await at(head.seq);
      const { row: former } = await at(head.seq - 1);
      const proof = head.hash.split('.').at(-1);
      await admin.tables.systemWrite(async (tx) => {
        await tx.remove('audit_log', { id: row.id, organisation_id });
        const hash = `${former.hash}.${proof}`;
        await tx.update('audit_heads', { organisation_id }, { seq: head.seq - 1, hash });
      });
      expect((await verify()).finding).toEqual({ kind: 'head', seq: head.seq - 1 });
      await ok('POST', '/v1/configs', {
        body: { name: 'after', config: { retry: { attempts: 1 } }, workspace_id: admin.a.workspace_id },
      });
      expect((await verify()).finding).toMatchObject({ kind: 'altered', seq: head.seq });
    });
  });
});

describe('many writes at once on PostgreSQL', () => {
  it('from two nodes all succeed, and each has its place in the chain', async () => {
    const url = await migratedDatabase();
    const one = await openPostgresTables({ url, log: silentLog });
    const two = await openPostgresTables({ url, log: silentLog });
    await one.migrate();
    await two.migrate();
    const admin = await startAdmin(one);
    const node = await secondNode(two);
    try {
      const { a } = admin;
      const post = async (base: string, i: number) => {
        const answer = await fetch(`${base}/v1/configs`, {
          method: 'POST',
          headers: { 'x-gateway-api-key': a.admin_api_key, 'content-type': 'application/json' },
          body: JSON.stringify({ name: `c${i}`, config: { retry: { attempts: 1 } }, workspace_id: a.workspace_id }),
        });
        return answer.status;
      };
      await post(admin.url, 1_000);
      const round = async (bases: string[], from: number) => {
        return Promise.all(Array.from({ length: 32 }, (_, i) => post(bases[i % bases.length] ?? '', from + i)));
      };
      for (const [n, bases] of [[admin.url], [admin.url, node.url], [admin.url], [admin.url, node.url]].entries()) {
        expect(await round(bases, n * 100)).toEqual(Array(32).fill(200));
      }
      const verified = await verifyAudit(one, plainVault, a.organisation_id);
      expect(verified).toMatchObject({ rows: 129, finding: null });
    } finally {
      await node.close();
      await admin.close();
      await two.close();
    }
  });
});
