/** Bounds that an administrator sets on a user's key: no sequence of the user's own calls leaves a key looser. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { type Caller, type Organisation, startOrganisation } from '../../../test/support/organisation.ts';
import type { Row } from '../../store/schema.ts';

type Key = Row<'api_keys'>;

let on: Organisation;
let workspace: string;
let configs: string[];
beforeAll(async () => {
  on = await startOrganisation('sqlite', { admin: { requestsPerMinute: 100_000 } });
  workspace = on.admin.a.workspace_id;
  configs = await Promise.all(
    ['guarded', 'free'].map(async (name) => {
      const body = { name, workspace_id: workspace, config: { retry: { attempts: 1 } } };
      return (await on.admin.call('POST', '/v1/configs', { body })).body.slug as string;
    }),
  );
});
afterAll(() => on.admin.close());

const admin: Caller = (method, path, body) => on.admin.call(method, path, { body });
const row = (id: string) => on.admin.tables.systemRead((tx) => tx.find('api_keys', { id })) as Promise<Key>;
const keysOf = (user_id: string) => on.admin.tables.systemRead((tx) => tx.list('api_keys', { where: { user_id } }));
const DAY = 86_400_000;
const inDays = (days: number) => new Date(Date.now() + days * DAY).toISOString();

async function person(role: 'member' | 'manager' = 'member') {
  const id = await on.addUser('member', { [workspace]: role });
  return { id, call: await on.signIn(id) };
}

const create = (call: Caller, user_id: string, more: object = {}) =>
  call('POST', '/v1/api-keys/workspace/user', {
    name: 'k',
    workspace_id: workspace,
    user_id,
    scopes: ['completions.write'],
    ...more,
  });
const update = (call: Caller, id: string, body: object) =>
  call('PUT', `/v1/api-keys/${id}`, { workspace_id: workspace, ...body });

/** Each bound, with what loosens it and what does not. */
const BOUNDS: readonly (readonly [string, () => object, () => object, () => object])[] = [
  [
    'usage_limits',
    () => ({ usage_limits: { credit_limit: 10, type: 'cost', periodic_reset: 'monthly' } }),
    () => ({ usage_limits: null }),
    () => ({ usage_limits: { credit_limit: 9, type: 'cost', periodic_reset: 'monthly' } }),
  ],
  [
    'usage_limits',
    () => ({ usage_limits: { credit_limit: 10, periodic_reset: 'monthly' } }),
    () => ({ usage_limits: { credit_limit: 10, periodic_reset: 'weekly' } }),
    () => ({ usage_limits: { credit_limit: 10, type: 'cost', periodic_reset: 'monthly', alert_threshold: 5 } }),
  ],
  ...(
    [
      [{ on_outage: 'refuse' }, { on_outage: 'serve' }],
      [{ unpriced: 'deny' }, { unpriced: 'serve' }],
      [{ periodic_reset_days: 30 }, { periodic_reset_days: 7 }],
      [{ periodic_reset_days: 30, next_usage_reset_at: inDays(20) }, { next_usage_reset_at: inDays(2) }],
    ] as const
  ).map(([was, is]): (typeof BOUNDS)[number] => [
    'usage_limits',
    () => ({ usage_limits: { credit_limit: 10, ...was } }),
    () => ({ usage_limits: { credit_limit: 10, ...was, ...is } }),
    () => ({ usage_limits: { credit_limit: 9, ...was } }),
  ]),
  [
    'rate_limits',
    () => ({ rate_limits: [{ type: 'requests', unit: 'rpm', value: 10 }] }),
    () => ({ rate_limits: [{ type: 'requests', unit: 'rph', value: 10 }] }),
    () => ({
      rate_limits: [
        { type: 'requests', unit: 'rpm', value: 10 },
        { type: 'tokens', unit: 'rpd', value: 1000 },
      ],
    }),
  ],
  [
    'expires_at',
    () => ({ expires_at: inDays(10) }),
    () => ({ expires_at: inDays(11) }),
    () => ({ expires_at: inDays(9) }),
  ],
  ['expires_at', () => ({ expires_at: inDays(10) }), () => ({ expires_at: null }), () => ({ name: 'other' })],
  [
    'defaults.config_id',
    () => ({ defaults: { config_id: configs[0], allow_config_override: false } }),
    () => ({ defaults: { config_id: configs[1] } }),
    () => ({ defaults: { metadata: { team: 'x' } } }),
  ],
  [
    'defaults.config_id',
    () => ({ defaults: { config_id: configs[0] } }),
    () => ({ defaults: { config_id: configs[1] } }),
    () => ({ defaults: { config_id: configs[0], allow_config_override: false } }),
  ],
  [
    'defaults.allow_config_override',
    () => ({ defaults: { config_id: configs[0], allow_config_override: false } }),
    () => ({ defaults: { allow_config_override: true } }),
    () => ({ defaults: { config_id: configs[0] } }),
  ],
  [
    'defaults.allow_config_override',
    () => ({ defaults: { config_id: configs[0], allow_config_override: false } }),
    () => ({ defaults: null }),
    () => ({ alert_emails: ['a@x.example'] }),
  ],
  [
    'reset_usage',
    () => ({ usage_limits: { credit_limit: 10 } }),
    () => ({ reset_usage: true }),
    () => ({ reset_usage: false }),
  ],
];

describe('bounds of a user’s key', () => {
  it.each(BOUNDS)(
    '%s: a member tightens it and never loosens it; a manager does both',
    async (param, bound, loose, tight) => {
      const member = await person();
      const manager = await person('manager');
      const { id } = (await create(admin, member.id, bound())).body;
      refused(await update(member.call, id, loose()), 403, 'AB03', param);
      const tightened = await update(member.call, id, tight());
      expect(tightened.status, tightened.text).toBe(200);
      const loosened = await update(manager.call, id, loose());
      expect(loosened.status, loosened.text).toBe(200);
    },
  );

  it('a key with the update scope alone loosens no key, not even itself', async () => {
    const scopes = ['workspace_service_api_keys.update', 'workspace_user_api_keys.update'];
    const made = await on.makeKey('workspace/service', scopes, { usage_limits: { credit_limit: 1 } });
    const call = on.as(made.key);
    refused(await call('PUT', `/v1/api-keys/${made.id}`, { usage_limits: null }), 403, 'AB03', 'usage_limits');
    refused(await call('PUT', `/v1/api-keys/${made.id}`, { reset_usage: true }), 403, 'AB03', 'reset_usage');
  });

  it('who has a bounded key makes no further one, also after revoking it; an administrator lifts that', async () => {
    const member = await person();
    const { id } = (await create(admin, member.id, { usage_limits: { credit_limit: 5 } })).body;
    refused(await create(member.call, member.id), 403, 'AB03', 'user_id');
    expect((await member.call('DELETE', `/v1/api-keys/${id}?workspace_id=${workspace}`)).status).toBe(200);
    refused(await create(member.call, member.id), 403, 'AB03', 'user_id');
    // The administrator makes another one; the one that was revoked bounds nobody once an unbounded one is there.
    const second = (await create(admin, member.id)).body;
    expect((await create(member.call, member.id)).status).toBe(200);
    expect((await row(second.id)).bounded_by).toBeNull();

    const other = await person();
    const bounded = (await create(admin, other.id, { usage_limits: { credit_limit: 5 } })).body;
    refused(await create(other.call, other.id), 403, 'AB03', 'user_id');
    expect((await update(admin, bounded.id, { usage_limits: null })).status).toBe(200);
    expect((await create(other.call, other.id)).status).toBe(200);
  });

  it('bounds of one’s own stop nobody from making further keys', async () => {
    const member = await person();
    expect((await create(member.call, member.id, { usage_limits: { credit_limit: 5 } })).status).toBe(200);
    expect((await create(member.call, member.id)).status).toBe(200);
  });

  it('a member’s new key takes the config that the workspace gives user keys, and no other', async () => {
    const set = (defaults: Record<string, unknown> | null) =>
      on.admin.tables.systemWrite((tx) => tx.update('workspaces', { id: workspace }, { defaults }));
    await set({ user_api_key_config: configs[0] });
    const member = await person();
    for (const config_id of [configs[1], null]) {
      const answer = await create(member.call, member.id, { defaults: { config_id } });
      refused(answer, 403, 'AB03', 'defaults.config_id');
    }
    const made = (await create(member.call, member.id)).body;
    expect((await row(made.id)).defaults?.config_id).toBe(configs[0]);
    expect((await create(admin, member.id, { defaults: { config_id: configs[1] } })).status).toBe(200);
    await set(null);
  });
});

/** Repeatable numbers from 0 to n - 1. */
function dice(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

it.each([1, 2, 3, 4, 5, 6])(
  'no sequence of a member’s calls leaves a key looser than its bounds (seed %i)',
  async (seed) => {
    const roll = dice(seed);
    const member = await person();
    const start = Date.now() + 20 * DAY;
    const bounds = {
      usage_limits: { credit_limit: 100, type: 'cost', periodic_reset: 'monthly' },
      rate_limits: [{ type: 'requests', unit: 'rpm', value: 100 }],
      expires_at: new Date(start).toISOString(),
      defaults: { config_id: configs[0], allow_config_override: false },
    };
    await create(admin, member.id, bounds);
    const pick = <T>(list: readonly T[]): T => list[roll(list.length)] as T;
    const body = () => {
      const parts = [
        () => ({
          usage_limits: pick([
            null,
            { credit_limit: roll(200) + 1, periodic_reset: pick([null, 'monthly', 'weekly']) },
          ]),
        }),
        () => ({
          usage_limits: { credit_limit: roll(200) + 1, type: pick(['cost', 'tokens']), periodic_reset: 'monthly' },
        }),
        () => ({ rate_limits: pick([null, [], [{ type: 'requests', unit: 'rpm', value: roll(200) }]]) }),
        () => ({ expires_at: pick([null, inDays(1 + roll(40))]) }),
        () => ({
          defaults: pick([null, { config_id: null }, { config_id: pick(configs) }, { allow_config_override: true }]),
        }),
        () => ({ reset_usage: true }),
        () => ({ name: 'n' }),
      ];
      return Object.assign({}, ...Array.from({ length: 1 + roll(2) }, () => pick(parts)()));
    };
    let changes = 0;
    for (let step = 0; step < 60; step++) {
      const alive = (await keysOf(member.id)).filter(({ status }) => status !== 'archived');
      const id = alive.length === 0 ? null : pick(alive).id;
      const what = roll(10);
      if (id === null || what === 0) {
        const { reset_usage: _none, ...asked } = body();
        await create(member.call, member.id, asked);
      } else if (what === 1 && step > 50) await member.call('DELETE', `/v1/api-keys/${id}?workspace_id=${workspace}`);
      else if ((await update(member.call, id, body())).status === 200) changes++;
      for (const key of await keysOf(member.id)) {
        if (key.status === 'archived') continue;
        expect({ type: 'cost', ...key.usage_limits }).toMatchObject({ type: 'cost', periodic_reset: 'monthly' });
        expect(key.usage_limits?.credit_limit).toBeLessThanOrEqual(100);
        const rate = key.rate_limits?.find(({ type, unit }) => type === 'requests' && unit === 'rpm');
        expect(rate?.value).toBeLessThanOrEqual(100);
        expect(key.expires_at).toBeLessThanOrEqual(start);
        expect(key.defaults).toMatchObject(bounds.defaults);
        expect(key.last_reset_at).toBeNull();
      }
    }
    expect(changes).toBeGreaterThan(2);
  },
);
