/**
 * What limits may say: for each field the last value that is taken and answered as it
 * was given, and the first that is not: 400 with the path of the field, and nothing stored.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestClock } from '../../src/kernel/clock.ts';
import type { JsonValue } from '../../src/kernel/json.ts';
import { damaged, hostile } from '../hostile/fuzz-admin.ts';
import { type AdminHarness, type Answer, type Call, emptyTables, startAdmin } from '../support/admin.ts';

const NOON = Date.UTC(2026, 10, 22, 12);
const UUID = '0190c3c4-7e1a-7000-8000-000000000000';
const TODAY = '2026-11-22';
const TOMORROW = '2026-11-23T00:00:00.000Z';
/** What workspaces without limits of their own are given: no counter of its own stands behind it. */
const TEMPLATE = 'other workspaces of an integration';
/** In US dollars: 2^52 micro-dollars. */
const LARGEST_COST = 4_503_599_627;
const metadata = (count: number) => Array.from({ length: count }, (_, i) => ({ key: `metadata.m${i}`, value: 'a' }));
const group = (...keys: string[]) => ({ group_by: keys.map((key) => ({ key })) });

/** A number that `JSON.stringify` does not write like this. */
const raw = (text: string) => `\u2063raw:${text}`;
const written = (body: unknown): string => JSON.stringify(body).replace(/"\u2063raw:([^"]*)"/g, '$1');

type Taken = [title: string, fields: object, answered?: object];
type Refused = [title: string, fields: object, param: string | null];

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

const RESETS_TAKEN: readonly Taken[] = [
  ['monthly', { periodic_reset: 'monthly' }],
  ['weekly', { periodic_reset: 'weekly' }],
  ['null for both periods', { periodic_reset: null, periodic_reset_days: null }],
  ['a period and null for the other', { periodic_reset: 'weekly', periodic_reset_days: null }],
  ['1 day', { periodic_reset_days: 1 }],
  ['365 days', { periodic_reset_days: 365, periodic_reset: null }],
  ['tomorrow at midnight', { next_usage_reset_at: TOMORROW }],
  ['tomorrow, normalised', { next_usage_reset_at: '2026-11-23T23:59:59.999Z' }, { next_usage_reset_at: TOMORROW }],
  ['tomorrow, where it is', { next_usage_reset_at: '2026-11-24T01:00:00+09:00' }, { next_usage_reset_at: TOMORROW }],
  ['a leap day', { next_usage_reset_at: '2028-02-29T00:00:00.000Z', periodic_reset_days: 30 }],
  ['the last day', { next_usage_reset_at: '9999-12-31T00:00:00.000Z' }],
  ['no day', { next_usage_reset_at: null }],
];

const RESETS_REFUSED: readonly Refused[] = [
  ['daily', { periodic_reset: 'daily' }, 'periodic_reset'],
  ['an empty period', { periodic_reset: '' }, 'periodic_reset'],
  ['0 days', { periodic_reset_days: 0 }, 'periodic_reset_days'],
  ['366 days', { periodic_reset_days: 366 }, 'periodic_reset_days'],
  ['1.5 days', { periodic_reset_days: 1.5 }, 'periodic_reset_days'],
  ['-1 day', { periodic_reset_days: -1 }, 'periodic_reset_days'],
  ['a text of days', { periodic_reset_days: '7' }, 'periodic_reset_days'],
  ['both periods', { periodic_reset: 'weekly', periodic_reset_days: 7 }, 'periodic_reset_days'],
  ['yesterday', { next_usage_reset_at: '2026-11-21T23:59:59Z' }, 'next_usage_reset_at'],
  ['later today, whose midnight is past', { next_usage_reset_at: `${TODAY}T23:00:00Z` }, 'next_usage_reset_at'],
  ['a day without zone', { next_usage_reset_at: '2027-01-01T00:00:00' }, 'next_usage_reset_at'],
  ['a day without time', { next_usage_reset_at: '2027-01-01' }, 'next_usage_reset_at'],
  ['30 February', { next_usage_reset_at: '2027-02-30T00:00:00Z' }, 'next_usage_reset_at'],
  ['29 February of another year', { next_usage_reset_at: '2027-02-29T00:00:00Z' }, 'next_usage_reset_at'],
  ['a time stamp', { next_usage_reset_at: 1_800_000_000_000 }, 'next_usage_reset_at'],
  ['the year 10000', { next_usage_reset_at: '+010000-01-01T00:00:00Z' }, 'next_usage_reset_at'],
  ['an empty day', { next_usage_reset_at: '' }, 'next_usage_reset_at'],
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

const AMOUNTS_REFUSED: readonly Refused[] = [
  ['a limit below 0', { credit_limit: -0.01 }, 'credit_limit'],
  ['a limit above the largest', { credit_limit: 1e12 + 1 }, 'credit_limit'],
  ['a threshold above the largest', { credit_limit: 5, alert_threshold: 1e12 + 1 }, 'alert_threshold'],
  ['a limit of 2^53', { credit_limit: 2 ** 53 }, 'credit_limit'],
  ['a limit of 1e21', { credit_limit: 1e21 }, 'credit_limit'],
  ['an endless limit', { credit_limit: raw('1e999') }, 'credit_limit'],
  ['an endless limit below 0', { credit_limit: raw('-1e999') }, 'credit_limit'],
  ['a text as limit', { credit_limit: '10' }, 'credit_limit'],
  ['NaN as text', { credit_limit: 'NaN' }, 'credit_limit'],
  ['null as limit', { credit_limit: null }, 'credit_limit'],
  ['a list as limit', { credit_limit: [10] }, 'credit_limit'],
  ['a threshold below 0', { alert_threshold: -1 }, 'alert_threshold'],
  ['a threshold as text', { alert_threshold: '1' }, 'alert_threshold'],
  ['a threshold at the limit', { credit_limit: 10, alert_threshold: 10 }, 'alert_threshold'],
  ['a threshold above the limit', { credit_limit: 10, alert_threshold: 11 }, 'alert_threshold'],
];

const NEW_COST_REFUSED: readonly Refused[] = [
  ['more cost than counters hold', { credit_limit: LARGEST_COST + 1, type: 'cost' }, 'credit_limit'],
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
  /** Bodies are judged before a store is asked, so the second one is given some of them only. */
  const some = <T extends unknown[]>(rows: readonly T[], share = 1): T[] =>
    rows.filter((_, index) => index % (engine === 'sqlite' ? share : 8) === 0);
  let admin: AdminHarness;

  beforeAll(async () => {
    const clock = new TestClock(NOON);
    admin = await startAdmin(await emptyTables(engine, clock), { clock });
  });

  afterAll(async () => {
    await admin?.close();
    await admin?.tables.close();
  });

  const send = (method: string, path: string, body?: unknown, more: Call = {}) =>
    admin.call(method, `/v1${path}`, { ...(body === undefined ? {} : { raw: written(body) }), ...more });
  const done = async (method: string, path: string, body?: unknown) => {
    const answer = await send(method, path, body);
    expect(answer.status, answer.text).toBe(200);
    return answer.body;
  };

  /** Every write is in the change feed; what a refused one leaves is its audit row. */
  const stored = async () => ({
    changes: await admin.tables.lastChange(),
    audit: await admin.tables.systemRead((tx) => tx.count('audit_log')),
  });

  /** The call is refused with the path of the field; what is left of it is the audit row of the refusal. */
  async function refuses(call: () => Promise<Answer>, param: string | null): Promise<void> {
    const before = await stored();
    const answer = await call();
    const { code, param: named } = answer.body.error ?? {};
    expect([answer.status, code, named], answer.text).toEqual([400, 'AB01', param]);
    expect(await stored()).toEqual({ changes: before.changes, audit: before.audit + 1 });
  }

  const workspace = () => ({ workspace_id: admin.a.workspace_id });

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

    it.each(some([...refused, ...NEW_REFUSED, ...missing]))(
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

    it.each(some([...refused, ...FIXED]))(
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

    it.each(some(LIMIT_TAKEN, share))('%s is taken and answered as given', async (_, fields, answered) => {
      const before = await surface.create(usage(fields));
      expect(before.status, before.text).toBe(200);
      const changed = await surface.update(usage(fields));
      expect(changed.status, changed.text).toBe(200);
      const [shown] = [(await surface.read()).usage_limits].flat();
      if (name !== TEMPLATE) expect(shown).toHaveProperty('type', (fields as { type?: string }).type ?? 'cost');
      expect(shown).toMatchObject(JSON.parse(JSON.stringify({ credit_limit: 100, ...fields, ...answered })));
    });

    it.each(some(LIMIT_REFUSED, share))('%s is refused', async (_, fields, param) => {
      const before = await surface.read();
      await refuses(() => surface.create(usage(fields)), at(String(param)));
      await refuses(() => surface.update(usage(fields)), at(String(param)));
      expect(await surface.read()).toEqual(before);
    });

    it.each(some(RATES_TAKEN, share))('a rate limit of %s is taken', async (_, fields) => {
      const rate_limits = [{ type: 'requests', unit: 'rpm', value: 5, ...fields }];
      const changed = await surface.update({ rate_limits });
      expect(changed.status, changed.text).toBe(200);
      expect((await surface.read()).rate_limits).toEqual(rate_limits);
    });

    it.each(some(RATES_REFUSED, share))('a rate limit of %s is refused', async (_, fields, param) => {
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
