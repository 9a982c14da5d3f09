/** Whose stored requests a caller reads, on every route that reads them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import type { Answer } from '../../../test/support/admin.ts';
import { logRow, naiveLogs } from '../../../test/support/log-rows.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../test/support/organisation.ts';

const { store, services } = naiveLogs();
const CANARY = 'alice-canary';
const RANGE = 'time_of_generation_min=2026-05-04T00:00:00Z&time_of_generation_max=2026-05-05T00:00:00Z';
const NOON = Date.UTC(2026, 4, 4, 12);

let on: Organisation;
beforeAll(async () => {
  on = await startOrganisation('sqlite', { admin: { services } });
});
afterAll(() => on.admin.close());

/** A request of each of these users, in the default workspace of organisation A, and one of organisation B. */
function keep(...users: (string | null)[]): void {
  const { a, b } = on.admin;
  store.rows = [
    ...users.map((user_id) =>
      logRow({
        organisation_id: a.organisation_id,
        workspace_id: a.workspace_id,
        user_id,
        time: NOON,
        metadata: { _user: CANARY },
        error_message: `Budget "p" is used up for user ${CANARY}: 2 of 1 tokens.`,
      }),
    ),
    logRow({ organisation_id: b.organisation_id, workspace_id: b.workspace_id, time: NOON, model: 'theirs' }),
  ];
}

type Role = 'owner' | 'admin' | 'workspace admin' | 'manager' | 'member';
const ROLES: readonly Role[] = ['owner', 'admin', 'workspace admin', 'manager', 'member'];
const SCOPES = ['logs.view', 'logs.list', 'analytics.view'];

interface Person {
  readonly id: string;
  /** Signed in, and by key. */
  readonly calls: readonly Caller[];
}

async function person(role: Role): Promise<Person> {
  const joined = role === 'owner' || role === 'admin' ? {} : { [on.admin.a.workspace_id]: WITHIN[role] };
  const id = await on.addUser(role === 'owner' || role === 'admin' ? role : 'member', joined);
  const { key } = await on.makeKey('workspace/user', SCOPES, { user_id: id });
  return { id, calls: [await on.signIn(id), on.as(key)] };
}
const WITHIN = { 'workspace admin': 'admin', manager: 'manager', member: 'member' } as const;

async function withSetting(name: string, run: () => Promise<void>): Promise<void> {
  const set = async (value: boolean | null) => {
    const body = { security_settings: { [name]: value } };
    expect((await on.admin.call('PUT', '/v1/admin/organisation/settings', { body })).status).toBe(200);
  };
  await set(false);
  await run();
  await set(null);
}

/** How many requests each route shows or counts. */
const ROUTES: Readonly<Record<string, (answer: Answer) => number>> = {
  'analytics/graphs/requests': ({ body }) => body.summary.total,
  'analytics/groups/model': ({ body }) => body.summary.requests,
  'analytics/groups/workspaces': ({ body }) => body.summary.requests,
  'analytics/summary/cache': ({ body }) => body.summary.total_requests,
  'logs/groups/model': ({ body }) => body.summary.requests,
  'logs/histogram': ({ body }) => body.summary.total,
  logs: ({ body }) => body.data.length,
};
const BY_METADATA = [
  'analytics/groups/users',
  'analytics/groups/metadata/_user',
  'analytics/metadata/_user',
  'logs/metadata/_user',
  'logs/groups/metadata/_user',
];

const read = (call: Caller, path: string, more = ''): Promise<Answer> =>
  call('GET', `/v1/${path}?workspace_id=${on.admin.a.workspace_id}&${RANGE}${more}`);

const isLogs = (path: string): boolean => path.startsWith('logs');

describe('a setting that keeps requests from a role', () => {
  it.each([
    ['membersViewAllData', 'member'],
    ['managersViewAllData', 'manager'],
  ])('%s off leaves a %s the requests of that user, on every route', async (setting, whom) => {
    for (const role of ROLES) {
      const someone = await person(role);
      keep(someone.id, on.admin.a.user_id, null);
      const counted: [string, number][] = [];
      const seen = async () => {
        for (const [path, count] of Object.entries(ROUTES)) {
          for (const call of someone.calls) {
            const answer = await read(call, path);
            expect(answer.status, `${role} ${path} ${answer.text}`).toBe(200);
            expect(answer.text).not.toContain('theirs');
            counted.push([path, count(answer)]);
          }
        }
      };
      await withSetting(setting, seen);
      for (const [path, count] of counted.splice(0)) expect(count, `${role} ${path}`).toBe(role === whom ? 1 : 3);
      await seen();
      for (const [path, count] of counted) expect(count, `${role} ${path}`).toBe(3);
      const hidden = store.rows[1]?.id;
      await withSetting(setting, async () => {
        for (const call of someone.calls) {
          const path = `/v1/logs/${hidden}?workspace_id=${on.admin.a.workspace_id}`;
          expect((await call('GET', path)).status, role).toBe(role === whom ? 404 : 200);
        }
      });
    }
  });

  it.each([
    ['membersViewLogMetadata', 'member'],
    ['managersViewLogMetadata', 'manager'],
    ['organisationAdminsViewLogMetadata', 'admin'],
  ])('%s off hides metadata from a %s: its values, and what is found by them', async (setting, whom) => {
    for (const role of ROLES) {
      const someone = await person(role);
      keep(someone.id);
      const id = String(store.rows[0]?.id);
      await withSetting(setting, async () => {
        for (const call of someone.calls) {
          for (const path of ['logs', `logs/${id}`]) {
            const place = `workspace_id=${on.admin.a.workspace_id}`;
            const answer = await call('GET', `/v1/${path}?${place}${path === 'logs' ? `&${RANGE}` : ''}`);
            expect([answer.status, answer.text.includes(CANARY)], `${role} ${path}`).toEqual([200, role !== whom]);
          }
          const filter = `&metadata=${encodeURIComponent(JSON.stringify({ _user: CANARY }))}`;
          for (const path of [...BY_METADATA, ...Object.keys(ROUTES).map((one) => `${one}?`)]) {
            const answer = await read(call, path.replace('?', ''), path.endsWith('?') ? filter : '');
            if (role === whom) refused(answer, 403, 'AB03', path.endsWith('?') ? 'metadata' : null);
            else expect(answer.status, `${role} ${path}`).toBe(200);
          }
        }
      });
    }
  });

  it.each([
    ['membersViewLogs', 'member', true],
    ['managersViewLogs', 'manager', true],
    ['organisationAdminsViewLogs', 'admin', true],
    ['membersViewAnalytics', 'member', false],
    ['managersViewAnalytics', 'manager', false],
  ])('%s off closes its routes to a %s, signed in and by key', async (setting, whom, logs) => {
    for (const role of ROLES) {
      const someone = await person(role);
      keep(someone.id);
      await withSetting(setting, async () => {
        for (const call of someone.calls) {
          for (const path of Object.keys(ROUTES)) {
            const closed = role === whom && isLogs(path) === logs;
            expect((await read(call, path)).status, `${role} ${path}`).toBe(closed ? 403 : 200);
          }
        }
      });
    }
  });

  it('closes a single request also to keys of members that may only send requests', async () => {
    const id = await on.addUser('member', { [on.admin.a.workspace_id]: 'member' });
    const { key } = await on.makeKey('workspace/user', ['completions.write'], { user_id: id });
    keep(id);
    const one = () => on.as(key)('GET', `/v1/logs/${store.rows[0]?.id}`);
    expect((await one()).status).toBe(200);
    await withSetting('membersViewLogs', async () => refused(await one(), 403, 'AB03', null));
  });

  it('of one workspace keeps its requests from an admin who reads the whole organisation', async () => {
    const { admin } = on;
    const made = await admin.call('POST', '/v1/admin/workspaces', { body: { name: 'Closed' } });
    const settings = (body: object) => admin.call('PUT', '/v1/admin/organisation/settings', { body });
    expect((await settings({ workspace_overrides: { logs: true } })).status).toBe(200);
    const closed = { security_settings: { organisationAdminsViewLogs: false } };
    const put = await admin.call('PUT', `/v1/admin/workspaces/${made.body.id}`, { body: closed });
    expect(put.status, put.text).toBe(200);
    keep(null);
    store.rows.push({ ...(store.rows[0] ?? {}), id: crypto.randomUUID(), workspace_id: made.body.id, model: 'closed' });
    const listed = async (role: Role) => {
      const [call] = (await person(role)).calls;
      return (await call?.('GET', `/v1/logs?${RANGE}`))?.body.data.length;
    };
    expect([await listed('owner'), await listed('admin')]).toEqual([2, 1]);
    await settings({ workspace_overrides: { logs: false } });
  });
});

describe('the workspace that is read', () => {
  it('is the default one of analytics, and all with all_workspaces, for a key of the organisation', async () => {
    keep(null);
    store.rows.push({ ...(store.rows[0] ?? {}), id: crypto.randomUUID(), workspace_id: crypto.randomUUID() });
    const total = async (more: string) =>
      (await on.admin.call('GET', `/v1/analytics/graphs/requests?${RANGE}${more}`)).body.summary.total;
    expect(await total('')).toBe(1);
    expect(await total('&all_workspaces=true')).toBe(2);
    expect(await total(`&workspace_slug=${on.admin.a.workspace_slug}`)).toBe(1);
  });

  it('is that of the key, whatever workspace_slug says', async () => {
    keep(null);
    const { key } = await on.makeKey('workspace/service', SCOPES);
    const answer = await on.as(key)('GET', `/v1/analytics/graphs/requests?${RANGE}&workspace_slug=another`);
    expect(answer.body.summary.total).toBe(1);
  });

  it('may be archived for owners, admins and keys of the organisation, and not for members', async () => {
    const { admin } = on;
    const { body: made } = await admin.call('POST', '/v1/admin/workspaces', { body: { name: 'Old' } });
    const member = await on.signIn(await on.addUser('member', { [made.id]: 'admin' }));
    const owner = await on.signIn(await on.addUser('owner'));
    keep(null);
    store.rows.push({ ...(store.rows[0] ?? {}), id: crypto.randomUUID(), workspace_id: made.id });
    expect((await admin.call('DELETE', `/v1/admin/workspaces/${made.id}`, { body: { name: 'Old' } })).status).toBe(200);
    for (const name of [made.id, made.slug]) {
      const path = `/v1/analytics/graphs/requests?${RANGE}&workspace_slug=${name}`;
      expect((await admin.call('GET', path)).body.summary.total).toBe(1);
      expect((await owner('GET', path)).body.summary.total).toBe(1);
      refused(await member('GET', path), 403, 'AB03', 'workspace_slug');
    }
    const both = `/v1/analytics/graphs/requests?${RANGE}&workspace_slug=${made.slug}&workspace_id=${admin.a.workspace_id}`;
    refused(await admin.call('GET', both), 400, 'AB01', 'workspace_slug');
  });
});

describe('requests that are older than they are kept', () => {
  it('are nowhere', async () => {
    const kept = naiveLogs(30);
    const bounded = await startOrganisation('sqlite', { admin: { services: kept.services } });
    try {
      const { organisation_id, workspace_id } = bounded.admin.a;
      const day = 86_400_000;
      kept.store.rows = [29, 31].map((days) =>
        logRow({ organisation_id, workspace_id, time: Date.now() - days * day }),
      );
      expect((await bounded.admin.call('GET', '/v1/logs')).body.data).toHaveLength(1);
      const [young, old] = kept.store.rows;
      expect((await bounded.admin.call('GET', `/v1/logs/${young?.id}`)).status).toBe(200);
      expect((await bounded.admin.call('GET', `/v1/logs/${old?.id}`)).status).toBe(404);
    } finally {
      await bounded.admin.close();
    }
  });
});
