import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import type { JsonValue } from '../../src/kernel/json.ts';
import { damaged, hostile } from '../hostile/fuzz-admin.ts';
import type { Answer } from '../support/admin.ts';
import {
  AMOUNTS_REFUSED,
  admin,
  done,
  group,
  LARGEST_COST,
  NEW_COST_REFUSED,
  RESETS_REFUSED,
  RESETS_TAKEN,
  type Refused,
  raw,
  refuses,
  send,
  some,
  type Taken,
  TOMORROW,
  useAdmin,
  workspace,
} from '../support/limit-input.ts';

/** What workspaces without limits of their own are given: no counter of its own stands behind it. */
const TEMPLATE = 'other workspaces of an integration';

/** The usage-limit object of keys, workspaces, providers, virtual keys and integrations. */
const LIMIT_TAKEN: readonly Taken[] = [
  ['a limit of 1', { credit_limit: 1 }],
  ['the largest limit', { credit_limit: 1e12, type: 'tokens' }],
  ['the largest limit of cost', { credit_limit: LARGEST_COST, type: 'cost' }],
  ['no limit', { credit_limit: undefined }],
  ['cost', { type: 'cost' }],
  ['a threshold of 1', { credit_limit: 2, alert_threshold: 1 }],
  ...RESETS_TAKEN,
];

const LIMIT_REFUSED: readonly Refused[] = [
  ...RESETS_REFUSED,
  ...NEW_COST_REFUSED,
  ...AMOUNTS_REFUSED,
  ['a limit of 0', { credit_limit: 0 }, 'credit_limit'],
  ['a limit with a fraction', { credit_limit: 1.5 }, 'credit_limit'],
  ['a threshold of 0', { alert_threshold: 0 }, 'alert_threshold'],
  ['a threshold with a fraction', { alert_threshold: 1.5 }, 'alert_threshold'],
  ['type requests', { type: 'requests' }, 'type'],
  ['type null', { type: null }, 'type'],
  ['an unknown field', { colour: 'red' }, 'colour'],
];

/** The rate-limit object. */
const PER_SECOND = { type: 'requests', unit: 'rps', value: 1 };
const RATES_TAKEN: readonly Taken[] = [
  ['a value of 0', { value: 0 }],
  ['the largest value', { value: 2 ** 53 - 1 }],
  ...['rps', 'rpm', 'rph', 'rpd', 'rpw'].map((unit): Taken => [unit, { unit, type: 'tokens' }]),
];
const RATES_REFUSED: readonly Refused[] = [
  ['a value of -1', { value: -1 }, 'value'],
  ['a value of 1.5', { value: 1.5 }, 'value'],
  ['a value of 2^53', { value: 2 ** 53 }, 'value'],
  ['an endless value', { value: raw('1e999') }, 'value'],
  ['a text as value', { value: '1' }, 'value'],
  ['null as value', { value: null }, 'value'],
  ['no value', { value: undefined }, 'value'],
  ['tpd', { unit: 'tpd' }, 'unit'],
  ['no unit', { unit: undefined }, 'unit'],
  ['type cost', { type: 'cost' }, 'type'],
  ['no type', { type: undefined }, 'type'],
  ['an unknown field', { colour: 'red' }, 'colour'],
];

describe.each(['sqlite', 'postgres'] as const)('limits on %s', (engine) => {
  useAdmin(engine);

  interface Surface {
    create(limits: object): Promise<Answer>;
    update(limits: object): Promise<Answer>;
    /** The limits as they are answered. */
    read(): Promise<{ usage_limits: unknown; rate_limits: unknown }>;
    /** How the limits stand in a body, and the path before their fields. */
    readonly several: boolean;
    readonly within: string;
  }

  let made = 0;
  const surfaces: Record<string, () => Promise<Surface>> = {
    'an API key': async () => {
      const create = (limits: object) =>
        send('POST', '/api-keys/workspace/service', {
          name: 'k',
          ...workspace(),
          scopes: ['completions.write'],
          ...limits,
        });
      const path = `/api-keys/${(await create({})).body.id}`;
      return {
        create,
        update: (limits) => send('PUT', path, limits),
        read: () => done('GET', path),
        several: false,
        within: '',
      };
    },
    'a workspace': async () => {
      const create = (limits: object) => send('POST', '/admin/workspaces', { name: `w${made++}`, ...limits });
      const path = `/admin/workspaces/${(await create({})).body.id}`;
      return {
        create,
        update: (limits) => send('PUT', path, limits),
        read: () => done('GET', path),
        several: true,
        within: '',
      };
    },
    'a virtual key': async () => {
      const create = (limits: object) =>
        send('POST', '/virtual-keys', {
          name: `v${made++}`,
          provider: 'openai',
          key: 'sk-x',
          ...workspace(),
          ...limits,
        });
      const path = `/virtual-keys/${(await create({})).body.slug}`;
      const query = `?workspace_id=${admin.a.workspace_id}`;
      return {
        create,
        update: (limits) => send('PUT', path, { ...workspace(), ...limits }),
        read: () => done('GET', `${path}${query}`),
        several: false,
        within: '',
      };
    },
    'a provider': async () => {
      const slug = `i${made++}`;
      const integration = { name: slug, slug, ai_provider_id: 'openai', key: 'sk-x', create_default_provider: false };
      await done('POST', '/integrations', integration);
      const create = (limits: object) =>
        send('POST', '/providers', { name: `p${made++}`, integration_id: slug, ...workspace(), ...limits });
      const path = `/providers/${(await create({})).body.slug}`;
      const query = `?workspace_id=${admin.a.workspace_id}`;
      return {
        create,
        update: (limits) => send('PUT', path, { ...workspace(), ...limits }),
        read: () => done('GET', `${path}${query}`),
        several: false,
        within: '',
      };
    },
    'a workspace of an integration': async () => {
      const slug = `i${made++}`;
      const integration = { name: slug, slug, ai_provider_id: 'openai', key: 'sk-x', create_default_provider: false };
      await done('POST', '/integrations', integration);
      const path = `/integrations/${slug}/workspaces`;
      const update = (limits: object) =>
        send('PUT', path, {
          workspaces: [{ id: admin.a.workspace_id, enabled: true, create_default_provider: false, ...limits }],
        });
      await update({});
      return {
        create: update,
        update,
        read: async () => (await done('GET', path)).workspaces[0],
        several: true,
        within: 'workspaces[0].',
      };
    },
    [TEMPLATE]: async () => {
      const slug = `i${made++}`;
      const integration = { name: slug, slug, ai_provider_id: 'openai', key: 'sk-x', create_default_provider: false };
      await done('POST', '/integrations', integration);
      const update = (limits: object) =>
        send('PUT', `/integrations/${slug}/workspaces`, { global_workspace_access: { enabled: true, ...limits } });
      return {
        create: update,
        update,
        read: async () => (await done('GET', `/integrations/${slug}`)).global_workspace_access_settings,
        several: true,
        within: 'global_workspace_access.',
      };
    },
  };

  describe.each(Object.keys(surfaces))('of %s', (name) => {
    // The shape is one and the same: in full where there is one limit, where there are several, and on one path below.
    const share = ['an API key', 'a workspace', 'a workspace of an integration'].includes(name) ? 1 : 5;
    let surface: Surface;
    beforeAll(async () => {
      surface = await (surfaces[name] as () => Promise<Surface>)();
    });
    const usage = (fields: object) => {
      const limit = { credit_limit: 100, ...fields };
      return { usage_limits: surface.several ? [limit] : limit };
    };
    const at = (field: string) => `${surface.within}usage_limits${surface.several ? '[0]' : ''}.${field}`;

    it.each(some(engine, LIMIT_TAKEN, share))('%s is taken and answered as given', async (_, fields, answered) => {
      const before = await surface.create(usage(fields));
      expect(before.status, before.text).toBe(200);
      const changed = await surface.update(usage(fields));
      expect(changed.status, changed.text).toBe(200);
      const [shown] = [(await surface.read()).usage_limits].flat();
      if (name !== TEMPLATE) expect(shown).toHaveProperty('type', (fields as { type?: string }).type ?? 'cost');
      expect(shown).toMatchObject(JSON.parse(JSON.stringify({ credit_limit: 100, ...fields, ...answered })));
    });

    it.each(some(engine, LIMIT_REFUSED, share))('%s is refused', async (_, fields, param) => {
      const before = await surface.read();
      await refuses(() => surface.create(usage(fields)), at(String(param)));
      await refuses(() => surface.update(usage(fields)), at(String(param)));
      expect(await surface.read()).toEqual(before);
    });

    it.each(some(engine, RATES_TAKEN, share))('a rate limit of %s is taken', async (_, fields) => {
      const rate_limits = [{ type: 'requests', unit: 'rpm', value: 5, ...fields }];
      const changed = await surface.update({ rate_limits });
      expect(changed.status, changed.text).toBe(200);
      expect((await surface.read()).rate_limits).toEqual(rate_limits);
    });

    it.each(some(engine, RATES_REFUSED, share))('a rate limit of %s is refused', async (_, fields, param) => {
      const before = await surface.read();
      const rate_limits = [{ type: 'requests', unit: 'rpm', value: 5, ...fields }];
      const path = `${surface.within}rate_limits[0].${param}`;
      await refuses(() => surface.create({ rate_limits }), path);
      await refuses(() => surface.update({ rate_limits }), path);
      expect(await surface.read()).toEqual(before);
    });

    it('limits of another form are refused, null takes them away', async () => {
      const form = surface.several ? {} : [];
      for (const usage_limits of [form, 5, 'x', true, ...(surface.several ? [[null], [[]]] : [])]) {
        const index = Array.isArray(usage_limits) && surface.several ? '[0]' : '';
        await refuses(() => surface.update({ usage_limits }), `${surface.within}usage_limits${index}`);
      }
      for (const rate_limits of [5, 'x', true]) {
        await refuses(() => surface.update({ rate_limits }), `${surface.within}rate_limits`);
      }
      const twice = [PER_SECOND, PER_SECOND];
      const answer = await surface.update({ rate_limits: twice });
      expect([answer.status, answer.body.error?.param], answer.text).toEqual([
        400,
        expect.stringMatching(/rate_limits(\[1\])?$/),
      ]);
      expect((await surface.update({ usage_limits: null, rate_limits: null })).status).toBe(200);
      const { usage_limits, rate_limits } = await surface.read();
      expect([[usage_limits ?? []].flat(), [rate_limits ?? []].flat()]).toEqual([[], []]);
    });
  });

  it('whatever is damaged in a body that is good, the answer is below 500, and often enough it is still good', async () => {
    const limits = {
      usage_limits: { credit_limit: 5, alert_threshold: 1, periodic_reset: 'weekly', next_usage_reset_at: TOMORROW },
      rate_limits: [PER_SECOND],
    };
    const policy = {
      ...workspace(),
      name: 'n',
      description: 'd',
      conditions: [{ key: 'metadata.a', value: ['a', 'b'], excludes: 'c' }],
      ...group('metadata.a', 'api_key'),
      type: 'tokens',
    };
    const usage = {
      ...policy,
      credit_limit: 5,
      alert_threshold: 1,
      periodic_reset_days: 5,
      next_usage_reset_at: TOMORROW,
    };
    const key = { name: 'k', ...workspace(), scopes: ['completions.write'], ...limits };
    const { id } = (await send('POST', '/policies/usage-limits', usage)).body;
    const targets: [string, string, JsonValue][] = [
      ['POST', '/policies/usage-limits', usage],
      [
        'PUT',
        `/policies/usage-limits/${id}`,
        { name: 'n', credit_limit: 9, alert_threshold: 2, conditions: policy.conditions, periodic_reset: 'weekly' },
      ],
      ['POST', '/policies/rate-limits', { ...policy, unit: 'rpm', value: 5, target: 'llm' }],
      ['POST', '/api-keys/workspace/service', key],
      ['POST', '/admin/workspaces', { name: 'w', ...limits, usage_limits: [limits.usage_limits] }],
    ];
    const statuses: Record<number, number> = {};
    const damage = fc.array(fc.tuple(fc.nat(10_000), hostile), { minLength: 1, maxLength: 2 });
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...targets), damage, async ([method, path, body], changes) => {
        const text = damaged(body, changes);
        const answer = await send(method, path, undefined, { raw: text });
        statuses[answer.status] = (statuses[answer.status] ?? 0) + 1;
        expect(answer.status, `${method} ${path} ${text}: ${answer.text}`).toBeLessThan(500);
      }),
      { numRuns: engine === 'sqlite' ? 300 : 100 },
    );
    expect(statuses[200]).toBeGreaterThan(0);
    expect(statuses[400]).toBeGreaterThan(20);
  }, 60_000);

  it('two limits of one type and period of a workspace are refused: they would share a counter', async () => {
    const monthly = { credit_limit: 5, periodic_reset: 'monthly' };
    const create = (...usage_limits: object[]) =>
      send('POST', '/admin/workspaces', { name: `w${made++}`, usage_limits });
    await refuses(() => create(monthly, { ...monthly, credit_limit: 9, type: 'cost' }), 'usage_limits[1]');
    await refuses(() => create(...Array(11).fill(monthly)), 'usage_limits');
    expect((await create(monthly, { credit_limit: 9 }, { ...monthly, type: 'tokens' })).status).toBe(200);
  });
});
