/** What the security settings show of requests, and that no setting is without effect. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { refused } from '../../../test/support/accounts.ts';
import type { Answer } from '../../../test/support/admin.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../test/support/organisation.ts';
import { roleScopes, roleSight } from '../../auth/scopes.ts';
import { SECURITY_DEFAULTS, SECURITY_KEYS, type SecuritySettings } from '../../auth/security-settings.ts';
import { tenantRows } from '../../store/conformance/rows.ts';
import type { StoredLog } from '../../store/ports.ts';
import { ACTIONS } from '../catalog.ts';
import { Services } from '../services.ts';
import { RECORDS } from './index.ts';

const ID = '00000000-0000-7000-8000-00000000000a';
const SECRET = 'alice@secret.example';

let on: Organisation;
let record: Record<string, unknown>;
beforeAll(async () => {
  on = await startOrganisation('sqlite', {
    admin: { services: new Services().provide(RECORDS, { find: async () => record as unknown as StoredLog }) },
  });
});
afterAll(() => on.admin.close());

/** A request of another user that a limit refused, which its error and its limits name by metadata. */
const requestOf = (user_id: string | null) => ({
  id: ID,
  time: Date.now(),
  workspace_id: on.admin.a.workspace_id,
  user_id,
  metadata: { _user: SECRET },
  status: 412,
  outcome: 'refused',
  error_message: `Budget "p" is used up for user ${SECRET}: 2 of 1 tokens.`,
  limits: { [`policy p metadata._user:${SECRET}`]: { reserved: 1, value_key: `metadata._user:${SECRET}` } },
});

type Role = 'owner' | 'admin' | 'workspace admin' | 'manager' | 'member';
const ROLES: readonly Role[] = ['owner', 'admin', 'workspace admin', 'manager', 'member'];

async function person(
  role: Role,
  scopes: readonly string[] = ['logs.view'],
): Promise<{ id: string; call: Caller; key: Caller }> {
  const workspace = on.admin.a.workspace_id;
  if (role === 'owner' || role === 'admin') {
    const id = await on.addUser(role);
    const { key } = await on.makeKey('workspace/user', scopes, { user_id: id });
    return { id, call: await on.signIn(id), key: on.as(key) };
  }
  const id = await on.addUser('member', { [workspace]: role === 'workspace admin' ? 'admin' : role });
  const { key } = await on.makeKey('workspace/user', scopes, { user_id: id });
  return { id, call: await on.signIn(id), key: on.as(key) };
}

async function withSetting(name: string, run: () => Promise<void>): Promise<void> {
  const set = async (value: boolean | null) => {
    const body = { security_settings: { [name]: value } };
    expect((await on.admin.call('PUT', '/v1/admin/organisation/settings', { body })).status).toBe(200);
  };
  await set(false);
  await run();
  await set(null);
}

const decision = (call: Caller): Promise<Answer> =>
  call('GET', `/v1/logs/${ID}/decision?workspace_id=${on.admin.a.workspace_id}`);

describe('a setting that shows requests', () => {
  it.each([
    ['membersViewAllData', 'member'],
    ['managersViewAllData', 'manager'],
  ])('%s off leaves a %s only the requests of that user, signed in and by key', async (setting, whom) => {
    for (const role of ROLES) {
      const someone = await person(role);
      await withSetting(setting, async () => {
        for (const call of [someone.call, someone.key]) {
          record = requestOf(on.admin.a.user_id);
          const other = await decision(call);
          if (role === whom) refused(other, 404, 'AB08', null);
          else expect(other.status, `${role}: ${other.text}`).toBe(200);
          record = requestOf(null);
          expect((await decision(call)).status).toBe(role === whom ? 404 : 200);
          record = requestOf(someone.id);
          expect((await decision(call)).status).toBe(200);
        }
      });
      record = requestOf(on.admin.a.user_id);
      expect((await decision(someone.call)).status).toBe(200);
    }
  });

  it.each([
    ['membersViewLogMetadata', 'member'],
    ['managersViewLogMetadata', 'manager'],
    ['organisationAdminsViewLogMetadata', 'admin'],
  ])('%s off hides the metadata of requests from a %s, wherever an answer names it', async (setting, whom) => {
    for (const role of ROLES) {
      const someone = await person(role);
      record = requestOf(on.admin.a.user_id);
      await withSetting(setting, async () => {
        for (const call of [someone.call, someone.key]) {
          const { status, text } = await decision(call);
          expect([status, text.includes(SECRET)], role).toEqual([200, role !== whom]);
          if (role === whom)
            for (const hidden of ['metadata._user:***', 'for user ***:']) expect(text).toContain(hidden);
        }
      });
      expect((await decision(someone.call)).text).toContain(SECRET);
    }
  });

  it('an organisation’s service keys are not restricted', async () => {
    record = requestOf(on.admin.a.user_id);
    await withSetting('membersViewAllData', async () => {
      expect((await decision((method, path, body) => on.admin.call(method, path, { body }))).status).toBe(200);
    });
  });

  it.each(['membersViewAllData', 'membersViewLogMetadata'])(
    '%s off keeps members from simulations, which read the requests of all',
    async (setting) => {
      const member = await person('member');
      const simulate = (kind: string, policy: object) =>
        member.call('POST', `/v1/policies/${kind}/simulate`, {
          workspace_id: on.admin.a.workspace_id,
          policy: {
            name: 'p',
            conditions: [{ key: 'workspace_id', value: on.admin.a.workspace_id }],
            group_by: [{ key: 'api_key' }],
            ...policy,
          },
          start_time: new Date(Date.now() - 3_600_000).toISOString(),
          end_time: new Date().toISOString(),
        });
      await withSetting(setting, async () => {
        const usage = await simulate('usage-limits', { type: 'cost', credit_limit: 1 });
        refused(usage, 403, 'AB03', null);
        expect(usage.body.error.message).toContain(setting);
        refused(await simulate('rate-limits', { type: 'requests', unit: 'rpm', value: 1 }), 403, 'AB03', null);
      });
    },
  );
});

describe('counters of usage limits, which name the callers that they count', () => {
  const AT = (path: string, more = '') => `${path}?workspace_id=${on.admin.a.workspace_id}${more}`;
  let policy: string;
  beforeAll(async () => {
    const { organisation_id, workspace_id } = on.admin.a;
    const made = await on.admin.call('POST', '/v1/policies/usage-limits', {
      body: {
        workspace_id,
        conditions: [{ key: 'workspace_id', value: workspace_id }],
        group_by: [{ key: 'metadata._user' }],
        type: 'cost',
        credit_limit: 1,
      },
    });
    expect(made.status, made.text).toBe(200);
    policy = made.body.id;
    await on.admin.tables.systemWrite((tx) =>
      tx.insert('usage_buckets', {
        ...tenantRows(organisation_id, workspace_id).usage_buckets,
        owner_id: policy,
        value_key: `metadata._user:${SECRET}`,
      }),
    );
  });

  const reads = (call: Caller): Promise<Answer[]> =>
    Promise.all(
      [
        AT(`/v1/policies/usage-limits/${policy}`, '&include_usage=true'),
        AT(`/v1/policies/usage-limits/${policy}/entities`),
        AT(`/v1/policies/usage-limits/${policy}/entities`, `&search=${SECRET.slice(0, 5)}`),
        AT(`/v1/policies/usage-limits/${policy}/alerts`),
      ].map((path) => call('GET', path)),
    );

  it.each([
    ['membersViewAllData', 'member'],
    ['managersViewAllData', 'manager'],
    ['membersViewLogMetadata', 'member'],
    ['managersViewLogMetadata', 'manager'],
    ['organisationAdminsViewLogMetadata', 'admin'],
  ])('%s off keeps them from a %s, signed in and by key; the policy itself is shown', async (setting, whom) => {
    for (const role of ROLES) {
      const someone = await person(role, ['policies.read', 'policies.list']);
      await withSetting(setting, async () => {
        for (const call of [someone.call, someone.key]) {
          const told = await reads(call);
          for (const answer of told) {
            if (role === whom) refused(answer, 403, 'AB03', null);
            else expect(answer.status, `${role}: ${answer.text}`).toBe(200);
          }
          expect(told.some(({ text }) => text.includes(SECRET))).toBe(role !== whom);
          for (const path of ['', `/${policy}`]) {
            const plain = await call('GET', AT(`/v1/policies/usage-limits${path}`));
            expect([plain.status, plain.text.includes(policy), plain.text.includes(SECRET)]).toEqual([
              200,
              true,
              false,
            ]);
          }
        }
      });
      expect((await reads(someone.call)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    }
  });
});

describe('a reset of the usage of a value', () => {
  it.each([
    ['managersViewAllData', 'manager'],
    ['managersViewLogMetadata', 'manager'],
  ])('tells a manager the same with %s off whether or not the value has sent requests', async (setting, whom) => {
    const { organisation_id, workspace_id } = on.admin.a;
    const made = await on.admin.call('POST', '/v1/policies/usage-limits', {
      body: {
        workspace_id,
        conditions: [{ key: 'workspace_id', value: workspace_id }],
        group_by: [{ key: 'metadata._user' }],
        type: 'cost',
        credit_limit: 1,
      },
    });
    const { id } = made.body;
    const counter = {
      ...tenantRows(organisation_id, workspace_id).usage_buckets,
      id: crypto.randomUUID(),
      owner_id: id,
    };
    const seen = `metadata._user:${SECRET}`;
    await on.admin.tables.systemWrite((tx) => tx.insert('usage_buckets', { ...counter, value_key: seen, used: 7 }));
    const used = async () =>
      (await on.admin.tables.systemRead((tx) => tx.find('usage_buckets', { id: counter.id })))?.used;
    const manager = await person(whom as Role, ['policies.update']);
    const reset = async (value: string) => {
      const path = `/v1/policies/usage-limits/${id}?workspace_id=${workspace_id}`;
      const { status, text } = await manager.call('PUT', path, { reset_usage_for_value: value });
      return [status, text];
    };
    await withSetting(setting, async () => {
      const unknown = await reset('metadata._user:somebody-else');
      expect(await used()).toBe(7);
      expect(await reset(seen)).toEqual(unknown);
      expect([unknown[0], await used()]).toEqual([200, 0]);
    });
    expect((await reset('metadata._user:somebody-else'))[0]).toBe(400);
  });
});

describe('every switch of the security settings', () => {
  it.each(SECURITY_KEYS)('%s changes what somebody may do or see', (key) => {
    const views = (security: SecuritySettings) =>
      (['owner', 'admin', 'member'] as const).flatMap((role) =>
        (['admin', 'manager', 'member'] as const).map((workspace) => [
          [...roleScopes(role, workspace, security)].sort(),
          roleSight(role, workspace, security),
        ]),
      );
    const [off, onward] = [false, true].map((value) => views({ ...SECURITY_DEFAULTS, [key]: value }));
    expect(off).not.toEqual(onward);
  });

  it('every route about requests asks what its caller may see of them', async () => {
    // A route that shows requests, or whom they were counted for, is named here together with a test above.
    const shows = ACTIONS.filter(({ path, response }) => {
      // Those read through `reachOf`, which `reach.test.ts` and `tail.test.ts` ask with each setting off.
      if (path.startsWith('/analytics') || /^\/logs(\/(groups|metadata|histogram|tail).*|\/:logId)?$/.test(path))
        return false;
      // By `exports/exports-sight.test.ts`.
      if (path.startsWith('/logs/exports')) return false;
      if (path.startsWith('/logs')) return true;
      return /"(?:value_key|value_key_usage_map|trace_id)":/.test(
        JSON.stringify(z.toJSONSchema(response, { io: 'input', unrepresentable: 'any' })),
      );
    });
    expect(shows.map(({ id }) => id).sort()).toEqual([
      // Of feedback, by `resources/feedback/feedback.test.ts`.
      'feedback.list',
      'feedback.read',
      // Of limits, by `resources/limits/limits.test.ts`.
      'limits.list',
      'logs.decision',
      // Of erasures, by `test/logs/erasure.long.test.ts`: owners, admins and organisation keys alone.
      'logs.erase',
      'logs.erasures.list',
      'logs.erasures.read',
      'policies.rate-limits.simulate',
      'policies.usage-limits.alerts',
      'policies.usage-limits.entities',
      'policies.usage-limits.list',
      'policies.usage-limits.read',
      'policies.usage-limits.simulate',
    ]);
  });
});
