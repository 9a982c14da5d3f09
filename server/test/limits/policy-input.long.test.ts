/** What policies take and refuse, field by field. */
import { beforeAll, describe, expect, it } from 'vitest';
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
  stored,
  type Taken,
  TOMORROW,
  useAdmin,
  workspace,
} from '../support/limit-input.ts';

const UUID = '0190c3c4-7e1a-7000-8000-000000000000';
const metadata = (count: number) => Array.from({ length: count }, (_, i) => ({ key: `metadata.m${i}`, value: 'a' }));

const EVERY_KEY = ['api_key', 'workspace_id', 'virtual_key', 'provider', 'config', 'prompt', 'model', 'metadata.a.b'];

/** What both kinds of policies say alike. */
const BOTH_TAKEN: readonly Taken[] = [
  ['a name of 1', { name: 'x' }],
  ['a name of 255', { name: 'x'.repeat(255) }],
  ['a name of 255 characters outside the basic plane', { name: '😀'.repeat(255) }],
  ['no name', { name: null }],
  ['a description of 500', { description: 'x'.repeat(500) }],
  ['an empty description', { description: '' }],
  ['no description', { description: null }],
  ['20 conditions', { conditions: metadata(20) }],
  ['100 values', { conditions: [{ key: 'provider', value: Array.from({ length: 100 }, (_, i) => `p${i}`) }] }],
  ['values of 512', { conditions: [{ key: 'metadata.a', value: 'x'.repeat(512), excludes: '😀'.repeat(512) }] }],
  ['a metadata name of 128', { conditions: [{ key: `metadata.${'n'.repeat(128)}`, value: '*' }] }],
  ['metadata called like a prototype', { conditions: [{ key: 'metadata.__proto__', value: 'constructor' }] }],
  ['a condition that only excludes', { conditions: [{ key: 'provider', excludes: ['openai'] }] }],
  ['groups by every key', group(...EVERY_KEY)],
];

const BOTH_REFUSED: readonly Refused[] = [
  ['a name of 256', { name: 'x'.repeat(256) }, 'name'],
  ['an empty name', { name: '' }, 'name'],
  ['a name with U+0000', { name: 'a\u0000' }, 'name'],
  ['half of a character as name', { name: '\ud83d' }, 'name'],
  ['a number as name', { name: 1 }, 'name'],
  ['a description of 501', { description: 'x'.repeat(501) }, 'description'],
  ['a list as description', { description: [] }, 'description'],
  ['no conditions', { conditions: [] }, 'conditions'],
  ['null as conditions', { conditions: null }, 'conditions'],
  ['an object as conditions', { conditions: {} }, 'conditions'],
  ['21 conditions', { conditions: metadata(21) }, 'conditions'],
  ['1,000 conditions', { conditions: metadata(1_000) }, 'conditions'],
  ['10,000 conditions', { conditions: metadata(10_000) }, null],
  ['a text as condition', { conditions: ['api_key'] }, 'conditions[0]'],
  ['a condition without key', { conditions: [{ value: '*' }] }, 'conditions[0].key'],
  ['a number as key', { conditions: [{ key: 1, value: '*' }] }, 'conditions[0].key'],
  ['an unknown key', { conditions: [{ key: 'colour', value: '*' }] }, 'conditions[0].key'],
  ['a key of a prototype', { conditions: [{ key: 'constructor', value: '*' }] }, 'conditions[0].key'],
  ['a key in capitals', { conditions: [{ key: 'API_KEY', value: '*' }] }, 'conditions[0].key'],
  ['metadata without name', { conditions: [{ key: 'metadata.', value: '*' }] }, 'conditions[0].key'],
  ['a metadata name of 129', { conditions: [{ key: `metadata.${'n'.repeat(129)}`, value: '*' }] }, 'conditions[0].key'],
  ['a tool as key', { conditions: [{ key: 'mcp_tool', value: '*' }] }, 'conditions[0].key'],
  ['a key twice', { conditions: [...metadata(2), { key: 'metadata.m0', value: 'b' }] }, 'conditions[2].key'],
  ['a condition without value', { conditions: [{ key: 'provider' }] }, 'conditions[0].value'],
  ['null as value', { conditions: [{ key: 'provider', value: null }] }, 'conditions[0].value'],
  ['a number as value', { conditions: [{ key: 'provider', value: 1 }] }, 'conditions[0].value'],
  ['an object as value', { conditions: [{ key: 'provider', value: {} }] }, 'conditions[0].value'],
  ['an empty value', { conditions: [{ key: 'provider', value: '' }] }, 'conditions[0].value'],
  ['no values', { conditions: [{ key: 'provider', value: [] }] }, 'conditions[0].value'],
  ['a value of 513', { conditions: [{ key: 'provider', value: 'x'.repeat(513) }] }, 'conditions[0].value'],
  ['a value with U+0000', { conditions: [{ key: 'metadata.a', value: '\u0000' }] }, 'conditions[0].value'],
  ['101 values', { conditions: [{ key: 'provider', value: Array(101).fill('p') }] }, 'conditions[0].value'],
  [
    'an empty value to exclude',
    { conditions: [{ key: 'provider', value: '*', excludes: [''] }] },
    'conditions[0].excludes[0]',
  ],
  ['a key that is no UUID', { conditions: [{ key: 'api_key', value: [UUID, 'slc_x'] }] }, 'conditions[0].value[1]'],
  ['a wildcard inside a model', { conditions: [{ key: 'model', value: '@a/gpt-*' }] }, 'conditions[0].value'],
  ['an operator', { conditions: [{ key: 'provider', value: '*', operator: 'not' }] }, 'conditions[0].operator'],
];

/** What only a new policy says, and what an update must leave alone. */
const NEW_REFUSED: readonly Refused[] = [
  ['conditions missing', { conditions: undefined }, 'conditions'],
  ['groups missing', { group_by: undefined }, 'group_by'],
  ['no groups', { group_by: [] }, 'group_by'],
  ['11 groups', group(...Array.from({ length: 11 }, (_, i) => `metadata.g${i}`)), 'group_by'],
  ['a text as groups', { group_by: 'api_key' }, 'group_by'],
  ['an unknown group', group('colour'), 'group_by[0].key'],
  ['a group twice', group('api_key', 'api_key'), 'group_by[1].key'],
  ['a group with a value', { group_by: [{ key: 'api_key', value: '*' }] }, 'group_by[0].value'],
  ['type missing', { type: undefined }, 'type'],
  ['type null', { type: null }, 'type'],
  ['an unknown type', { type: 'money' }, 'type'],
  ['no workspace', { workspace_id: undefined }, 'workspace_id'],
  ['workspace null', { workspace_id: null }, 'workspace_id'],
  ['a workspace with a space', { workspace_id: 'a b' }, 'workspace_id'],
  ['an organisation that is no UUID', { organisation_id: 'alpha' }, 'organisation_id'],
  ['an unknown field', { colour: 'red' }, 'colour'],
  ['a status', { status: 'active' }, 'status'],
  ['an id', { id: UUID }, 'id'],
];

const FIXED: readonly Refused[] = [
  ['nothing', {}, null],
  ['a type', { type: 'tokens' }, 'type'],
  ['groups', group('api_key'), 'group_by'],
  ['a workspace', { workspace_id: 'x' }, 'workspace_id'],
  ['an organisation', { organisation_id: UUID }, 'organisation_id'],
  ['an unknown field', { colour: 'red' }, 'colour'],
  ['a status', { status: 'archived' }, 'status'],
];

const USAGE_TAKEN: readonly Taken[] = [
  ...BOTH_TAKEN,
  ...RESETS_TAKEN,
  [
    'every key',
    {
      conditions: [
        { key: 'api_key', value: UUID },
        { key: 'workspace_id', value: 'ws-any' },
        { key: 'organisation_id', value: UUID },
        { key: 'virtual_key', value: ['a', 'b'], excludes: 'c' },
        { key: 'provider', value: '*', excludes: ['openai'] },
        { key: 'config', value: 'pc-a' },
        { key: 'prompt', value: 'pp-a' },
        { key: 'model', value: ['@a/*', '@a/b', 'b'] },
        { key: 'metadata._user', value: '*' },
      ],
    },
  ],
  ['groups by the organisation', group('organisation_id')],
  ['type cost', { type: 'cost' }],
  ['type requests', { type: 'requests' }],
  ['a limit of 0', { credit_limit: 0 }],
  ['a limit of a micro-dollar', { credit_limit: 0.000001 }],
  ['a limit with a fraction', { credit_limit: 0.3 }],
  ['the largest limit', { credit_limit: 1e12, type: 'tokens' }],
  ['the largest limit of cost', { credit_limit: LARGEST_COST, type: 'cost' }],
  ['another writing of a limit', { credit_limit: raw('1.0e1') }, { credit_limit: 10 }],
  ['no threshold', { alert_threshold: null }],
  ['a threshold of 0', { alert_threshold: 0 }],
  ['a threshold just below', { credit_limit: 1, alert_threshold: 0.999999 }],
];

const USAGE_REFUSED: readonly Refused[] = [
  ...BOTH_REFUSED,
  ...RESETS_REFUSED,
  ...AMOUNTS_REFUSED,
  ['a threshold below a limit of 0', { credit_limit: 0, alert_threshold: 0 }, 'alert_threshold'],
  ['the kind of request', { conditions: [{ key: 'endpoint_type', value: 'embed' }] }, 'conditions[0].key'],
  ['an organisation that is a slug', { conditions: [{ key: 'organisation_id', value: 'a' }] }, 'conditions[0].value'],
];

const RATE_TAKEN: readonly Taken[] = [
  ...BOTH_TAKEN,
  ['a value of 1', { value: 1 }],
  ['the largest value', { value: 2 ** 53 - 1 }],
  ['another writing of a value', { value: raw('1.0e1') }, { value: 10 }],
  ['per hour', { unit: 'rph' }],
  ['per day', { unit: 'rpd' }],
  ['per week', { unit: 'rpw' }],
  ['kinds of requests', { conditions: [{ key: 'endpoint_type', value: ['chatComplete', 'embed'] }] }],
];

const RATE_REFUSED: readonly Refused[] = [
  ...BOTH_REFUSED,
  ['a value of 0', { value: 0 }, 'value'],
  ['a value of -0', { value: raw('-0') }, 'value'],
  ['a value of 1.5', { value: 1.5 }, 'value'],
  ['a value of -1', { value: -1 }, 'value'],
  ['a value of 2^53', { value: 2 ** 53 }, 'value'],
  ['an endless value', { value: raw('1e999') }, 'value'],
  ['a text as value', { value: '1' }, 'value'],
  ['null as value', { value: null }, 'value'],
  ['per second', { unit: 'rps' }, 'unit'],
  ['tpd', { unit: 'tpd' }, 'unit'],
  ['null as unit', { unit: null }, 'unit'],
  ['a unit in capitals', { unit: 'RPM' }, 'unit'],
  ['an unknown kind of request', { conditions: [{ key: 'endpoint_type', value: 'chat' }] }, 'conditions[0].value'],
  ['the organisation', { conditions: [{ key: 'organisation_id', value: UUID }] }, 'conditions[0].key'],
];

describe.each(['sqlite', 'postgres'] as const)('limits on %s', (engine) => {
  useAdmin(engine);

  describe.each([
    {
      path: '/policies/usage-limits',
      base: { type: 'tokens', credit_limit: 100 },
      taken: USAGE_TAKEN,
      refused: USAGE_REFUSED,
      missing: [['a limit missing', { credit_limit: undefined }, 'credit_limit'], ...NEW_COST_REFUSED] as Refused[],
      field: { credit_limit: 7 },
    },
    {
      path: '/policies/rate-limits',
      base: { type: 'requests', unit: 'rpm', value: 100 },
      taken: RATE_TAKEN,
      refused: RATE_REFUSED,
      missing: [
        ['a value missing', { value: undefined }, 'value'],
        ['a unit missing', { unit: undefined }, 'unit'],
        ['an unknown target', { target: 'agents' }, 'target'],
        ['a model for tools', { target: 'mcp_tools', conditions: [{ key: 'model', value: '*' }] }, 'conditions[0].key'],
        [
          'a group of models for tools',
          { target: 'mcp_tools', conditions: [{ key: 'mcp_tool', value: '*' }], ...group('model') },
          'group_by[0].key',
        ],
      ] as Refused[],
      field: { value: 7 },
    },
  ])('$path', ({ path, base, taken, refused, missing, field }) => {
    const body = () => ({
      ...base,
      conditions: [{ key: 'metadata._user', value: '*' }],
      ...group('metadata._user'),
      ...workspace(),
    });
    let policy = '';
    const current = async () => (await send('GET', `${path}/${policy}`)).body;

    beforeAll(async () => {
      policy = String((await done('POST', path, body())).id);
    });

    it.each(taken)('%s is taken and answered as given', async (_, fields, answered) => {
      const { id } = await done('POST', path, { ...body(), ...fields });
      expect(await done('GET', `${path}/${id}`)).toMatchObject({ ...fields, ...answered });
    });

    it.each(some(engine, [...refused, ...NEW_REFUSED, ...missing]))(
      'a new one with %s is refused',
      async (_, fields, param) => {
        await refuses(() => send('POST', path, { ...body(), ...fields }), param);
      },
    );

    it.each(taken.filter(([, fields]) => !('group_by' in fields || 'type' in fields)))(
      'an update to %s is taken',
      async (_, fields, answered) => {
        const { id } = await done('POST', path, body());
        expect(await done('PUT', `${path}/${id}`, fields)).toEqual({});
        expect(await done('GET', `${path}/${id}`)).toMatchObject({ ...fields, ...answered });
      },
    );

    it.each(some(engine, [...refused, ...FIXED]))(
      'an update with %s is refused and changes nothing',
      async (_, fields, param) => {
        const before = await current();
        await refuses(
          () =>
            send('PUT', `${path}/${policy}`, {
              description: 'changed',
              ...fields,
              ...(Object.keys(fields).length === 0 ? { description: undefined } : {}),
            }),
          param,
        );
        expect(await current()).toEqual(before);
      },
    );

    it.each<[string, () => string, string | null]>([
      ['no JSON', () => '{', null],
      ['a list', () => '[]', null],
      ['a text', () => '"x"', null],
      ['nothing', () => '', null],
      ['a field twice', () => `{"name":"a",${JSON.stringify(body()).slice(1, -1)},"name":"b"}`, 'name'],
      ['a prototype', () => `{"__proto__":{"name":"x"},${JSON.stringify(body()).slice(1)}`, '__proto__'],
      [
        'a prototype within',
        () => JSON.stringify(body()).replace('"value":"*"', '"value":"*","__proto__":{}'),
        'conditions[0] must not have a key named __proto__',
      ],
      ['NaN', () => `{"name":NaN}`, null],
    ])('%s as body is refused', async (_, text, param) => {
      const answer = await send('POST', path, undefined, { raw: text() });
      expect([answer.status, answer.body.error.code], answer.text).toEqual([400, 'AB01']);
      if (param !== null) expect(JSON.stringify(answer.body.error)).toContain(param);
    });

    it('a body of two megabytes is refused before it is read whole', async () => {
      const before = await stored();
      const answer = await send('POST', path, { ...body(), description: 'x'.repeat(2_000_000) }).catch(() => null);
      expect([413, undefined]).toContain(answer?.status);
      expect((await stored()).changes).toBe(before.changes);
    });

    it('the workspace is that of the key, or of the body by id or slug; never another one', async () => {
      const of = async (answer: Answer) => {
        expect(answer.status, answer.text).toBe(200);
        return (await done('GET', `${path}/${answer.body.id}`)).workspace_id;
      };
      const { workspace_id: _, ...unbound } = body();
      const { workspace_id: id, workspace_slug: slug, organisation_id, workspace_api_key: key } = admin.a;
      expect(await of(await send('POST', path, { ...unbound, workspace_id: slug }))).toBe(id);
      expect(await of(await send('POST', path, { ...unbound, workspace_id: id, organisation_id }))).toBe(id);
      const made = await send('POST', path, unbound, { key });
      if (made.status === 200) expect(await of(made)).toBe(id);
      for (const fields of [
        { workspace_id: admin.b.workspace_id },
        { workspace_id: admin.b.workspace_slug },
        { workspace_id: 'ws-nowhere' },
        { workspace_id: id, organisation_id: admin.b.organisation_id },
      ]) {
        const before = await stored();
        const answer = await send('POST', path, { ...unbound, ...fields });
        expect([403, 404], answer.text).toContain(answer.status);
        expect(answer.text).not.toContain(admin.b.organisation_id);
        expect((await stored()).changes).toBe(before.changes);
      }
    });

    it.each([
      ['page_size=0', 'page_size'],
      ['page_size=101', 'page_size'],
      ['page_size=1.5', 'page_size'],
      ['page_size=', 'page_size'],
      ['current_page=-1', 'current_page'],
      ['status=all', 'status'],
      ['status=', 'status'],
      ['type=money', 'type'],
      [`search=${'x'.repeat(256)}`, 'search'],
      ['colour=red', 'colour'],
      ['workspace_id=a%20b', 'workspace_id'],
      ['organisation_id=alpha', 'organisation_id'],
    ])('a list with %s is refused', async (query, param) => {
      const answer = await send('GET', `${path}?${query}`);
      expect([answer.status, answer.body.error?.param], answer.text).toEqual([400, param]);
    });

    it('a status that no policy has is refused when one is read', async () => {
      const answer = await send('GET', `${path}/${policy}?status=exhausted`);
      expect([answer.status, answer.body.error.param]).toEqual([400, 'status']);
      expect((await done('GET', `${path}/${policy}?status=active`)).id).toBe(policy);
      expect(await done('PUT', `${path}/${policy}`, field)).toEqual({});
    });
  });

  describe('/policies/usage-limits, one field at a time', () => {
    const made = async (fields: object) =>
      String(
        (
          await done('POST', '/policies/usage-limits', {
            ...workspace(),
            conditions: [{ key: 'api_key', value: '*' }],
            ...group('api_key'),
            type: 'cost',
            ...fields,
          })
        ).id,
      );

    it('a threshold stays below the limit, whichever side changes', async () => {
      const path = `/policies/usage-limits/${await made({ credit_limit: 10, alert_threshold: 5 })}`;
      await refuses(() => send('PUT', path, { credit_limit: 5 }), 'alert_threshold');
      await refuses(() => send('PUT', path, { alert_threshold: 10 }), 'alert_threshold');
      await done('PUT', path, { credit_limit: 20, alert_threshold: 10 });
      await done('PUT', path, { credit_limit: 1, alert_threshold: null });
      await refuses(() => send('PUT', path, { alert_threshold: 1 }), 'alert_threshold');
      expect(await done('GET', path)).toMatchObject({ credit_limit: 1, alert_threshold: null });
    });

    it('naming the other period switches to it, null ends it, and the next reset follows', async () => {
      const path = `/policies/usage-limits/${await made({ credit_limit: 10, periodic_reset: 'monthly' })}`;
      const next = async () => {
        const { periodic_reset, periodic_reset_days, next_usage_reset_at } = await done('GET', path);
        return [periodic_reset, periodic_reset_days, next_usage_reset_at];
      };
      expect(await next()).toEqual(['monthly', null, '2026-12-01T00:00:00.000Z']);
      await done('PUT', path, { periodic_reset_days: 3 });
      expect(await next()).toEqual([null, 3, '2026-11-25T00:00:00.000Z']);
      await done('PUT', path, { periodic_reset: 'weekly' });
      expect(await next()).toEqual(['weekly', null, TOMORROW]);
      await done('PUT', path, { periodic_reset: null, next_usage_reset_at: '2027-01-05T10:00:00Z' });
      expect(await next()).toEqual([null, null, '2027-01-05T00:00:00.000Z']);
      await done('PUT', path, { credit_limit: 11 });
      expect(await next()).toEqual([null, null, '2027-01-05T00:00:00.000Z']);
      await done('PUT', path, { periodic_reset_days: 1, next_usage_reset_at: '2027-02-01T00:00:00Z' });
      expect(await next()).toEqual([null, 1, '2027-02-01T00:00:00.000Z']);
      await done('PUT', path, { next_usage_reset_at: null });
      expect(await next()).toEqual([null, 1, TOMORROW]);
    });
  });
});
