/** Who sees which limits, and whose counters, in `GET /limits`. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../test/support/organisation.ts';
import { Services } from '../services.ts';
import { RATE_COUNTERS } from './index.ts';

let on: Organisation;
let here = '';
beforeAll(async () => {
  // Each counter has three, so that what is hidden is told from what was not used.
  const counters = { get: async (keys: readonly string[]) => keys.map(() => 3) };
  on = await startOrganisation('sqlite', { admin: { services: new Services().provide(RATE_COUNTERS, counters) } });
  here = on.admin.a.workspace_id;
});
afterAll(() => on.admin.close());

interface Limit {
  readonly id: string;
  readonly kind: string;
  readonly value_key: string | null;
  readonly used: number | null;
}

const SCOPES = ['completions.write'];
const RATES = { rate_limits: [{ type: 'requests', unit: 'rpm', value: 10 }] };
const LIST = '/v1/limits';

const ask = (call: Caller, query = '') => call('GET', `${LIST}?workspace_id=${here}${query}`);

/** The limits in an answer by the id of what they belong to. */
async function seen(call: Caller, query = ''): Promise<Map<string, Limit>> {
  const answer = await ask(call, query);
  expect(answer.status, answer.text).toBe(200);
  return new Map((answer.body.data as Limit[]).map((limit) => [limit.id, limit]));
}

async function person(role: 'member' | 'manager') {
  const id = await on.addUser('member', { [here]: role });
  const key = await on.makeKey('workspace/user', SCOPES, { user_id: id, ...RATES });
  return { id, key, signedIn: await on.signIn(id), byKey: on.as(key.key) };
}

async function policy(key: string): Promise<string> {
  const { status, text, body } = await on.admin.call('POST', '/v1/policies/rate-limits', {
    body: {
      name: `by ${key}`,
      workspace_id: here,
      conditions: [{ key: 'workspace_id', value: '*' }],
      group_by: [{ key }],
      type: 'requests',
      unit: 'rpm',
      value: 10,
    },
  });
  expect(status, text).toBe(200);
  return body.id;
}

it('counters of all callers are shown to a member only while the settings show the requests of all', async () => {
  const [member, manager] = [await person('member'), await person('manager')];
  const service = on.as((await on.makeKey('workspace/service', SCOPES, RATES)).key);
  const shared = await policy('workspace_id');
  const own = await policy('api_key');
  const chosen = await policy('metadata._user');
  const set = (membersViewAllData: boolean | null) =>
    on.admin.call('PUT', '/v1/admin/organisation/settings', { body: { security_settings: { membersViewAllData } } });
  for (const call of [member.byKey, manager.byKey, service]) expect((await seen(call)).get(shared)?.used).toBe(3);
  expect((await set(false)).status).toBe(200);
  for (const call of [manager.byKey, manager.signedIn, service]) expect((await seen(call)).get(shared)?.used).toBe(3);
  for (const call of [member.byKey, member.signedIn]) {
    const limits = await seen(call);
    // That the limit is there is said; whose use it counts is not.
    expect(limits.get(shared)).toMatchObject({ used: null });
    expect(limits.get(member.key.id)?.used).toBe(3);
  }
  expect((await seen(member.byKey)).get(own)).toMatchObject({ value_key: `api_key:${member.key.id}`, used: 3 });
  for (const call of [member.byKey, manager.byKey, service])
    expect((await seen(call)).get(chosen)).toMatchObject({ value_key: null, used: null });
  expect((await set(null)).status).toBe(200);
});

it('the limits of all keys are for managers and service keys that list keys, and members get those of their own keys', async () => {
  const [member, manager] = [await person('member'), await person('manager')];
  const lists = on.as((await on.makeKey('workspace/service', [...SCOPES, 'workspace_service_api_keys.list'])).key);
  const plain = on.as((await on.makeKey('workspace/service', SCOPES)).key);
  for (const call of [manager.signedIn, manager.byKey, lists])
    expect([...(await seen(call, '&all=true')).keys()]).toEqual(
      expect.arrayContaining([member.key.id, manager.key.id]),
    );
  for (const call of [member.signedIn, member.byKey, plain]) {
    const keys = [...(await seen(call, '&all=true')).values()].filter(({ kind }) => kind === 'key');
    expect(keys.map(({ id }) => id)).toEqual(call === plain ? [] : [member.key.id]);
    refused(await ask(call, `&api_key_id=${manager.key.id}`), 404, 'AB02', 'api_key_id');
  }
  expect([...(await seen(member.signedIn, `&api_key_id=${member.key.id}`)).keys()]).toContain(member.key.id);
  expect([...(await seen(member.signedIn)).keys()]).not.toContain(manager.key.id);
});

it('workspaces and keys of others are not there', async () => {
  const member = await person('member');
  const made = await on.admin.call('POST', '/v1/admin/workspaces', { body: { name: 'Apart' } });
  expect(made.status, made.text).toBe(200);
  for (const call of [member.signedIn, member.byKey]) {
    for (const id of [made.body.id, on.admin.b.workspace_id]) {
      const answer = await call('GET', `${LIST}?workspace_id=${id}`);
      expect([403, 404], answer.text).toContain(answer.status);
    }
  }
  const theirs = await on.admin.call('POST', '/v1/api-keys/workspace/service', {
    key: on.admin.b.admin_api_key,
    body: { name: 'theirs', scopes: SCOPES, workspace_id: on.admin.b.workspace_id, ...RATES },
  });
  expect(theirs.status, theirs.text).toBe(200);
  const admin: Caller = (method, path) => on.admin.call(method, path);
  refused(await ask(admin, `&api_key_id=${theirs.body.id}`), 404, 'AB02', 'api_key_id');
  expect([...(await seen(admin, '&all=true')).keys()]).not.toContain(theirs.body.id);
});

it('a key of the organisation that names a workspace sees its own limits beside those of the workspace', async () => {
  const scopes = ['policies.list', 'workspace_service_api_keys.list'];
  const { id, key } = await on.makeKey('organisation/service', scopes, RATES);
  const member = await person('member');
  expect((await seen(on.as(key))).get(id)).toMatchObject({ kind: 'key', used: 3 });
  const all = await seen(on.as(key), '&all=true');
  expect(all.get(id)).toMatchObject({ kind: 'key', used: 3 });
  expect(all.get(member.key.id)?.used).toBe(3);
});
