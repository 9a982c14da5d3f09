/** Usage-limits policies: what is answered, what an update does to what was counted, who sees it. On both engines. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdminHarness, type Answer, emptyTables, startAdmin } from '../../../test/support/admin.ts';
import { TestClock } from '../../kernel/clock.ts';
import { BucketTransaction } from '../../limits/ledger/bucket-transaction.ts';
import { usagePolicySpec } from '../../limits/policies/usage.ts';

const NOON = Date.UTC(2026, 10, 22, 12);
const NOBODY = '0190c3c4-7e1a-7000-8000-000000000000';

describe.each(['sqlite', 'postgres'] as const)('usage-limits policies on %s', (engine) => {
  let admin: AdminHarness;
  const clock = new TestClock(NOON);

  beforeAll(async () => {
    admin = await startAdmin(await emptyTables(engine, clock), { clock });
  });

  afterAll(async () => {
    await admin?.close();
    await admin?.tables.close();
  });

  const valid = () => ({
    name: 'Per user',
    conditions: [{ key: 'metadata._user', value: '*' }],
    group_by: [{ key: 'metadata._user' }],
    type: 'tokens',
    credit_limit: 100,
    alert_threshold: 50,
    periodic_reset: 'weekly',
    workspace_id: admin.a.workspace_id,
  });
  const path = '/v1/policies/usage-limits';
  const make = async (body: object = {}) => {
    const answer = await admin.call('POST', path, { body: { ...valid(), ...body } });
    expect(answer.status, answer.text).toBe(200);
    return String(answer.body.id);
  };
  const read = (id: string, query = '') => admin.call('GET', `${path}/${id}${query}`);
  const update = async (id: string, body: object) =>
    expect((await admin.call('PUT', `${path}/${id}`, { body })).body).toEqual({});
  const refused = (answer: Answer, param: string | null, status = 400, code = 'AB01') => {
    const { error } = answer.body;
    expect([answer.status, error?.code, error?.param], answer.text).toEqual([status, code, param]);
  };
  const missing = (answer: Answer) => refused(answer, null, 404, 'AB08');

  /** As if requests of this value had used so much. */
  const use = (id: string, value: string, used: number) =>
    admin.tables.systemWrite(async (tx) => {
      const policy = await tx.find('usage_policies', { id });
      if (policy === undefined) throw new Error(id);
      const key = `metadata._user:${value}`;
      const place = { organisationId: policy.organisation_id, workspaceId: policy.workspace_id };
      const now = clock.now();
      const transaction = await BucketTransaction.open(
        tx,
        place,
        { ...usagePolicySpec(policy), bucketKey: key, valueKey: key },
        clock,
        now,
      );
      const nothing = { lease: 'none', reserved: 0, carry: 0, requests: 1, unpriced: 0, giveBack: false };
      await transaction.settle(tx, { ...nothing, window: transaction.row.window_no, used });
      await transaction.close(tx, now);
    });
  const usage = async (id: string) => (await read(id, '?include_usage=true')).body.value_key_usage_map;
  const entities = async (id: string, query = '') => {
    const answer = await admin.call('GET', `${path}/${id}/entities${query}`);
    expect(answer.status, answer.text).toBe(200);
    return answer.body as { total: number; data: { id: string; value_key: string; current_usage: number }[] };
  };
  const state = (used: number, status: string, threshold: boolean, exhausted: boolean) =>
    expect.objectContaining({
      current_usage: used,
      status,
      is_threshold_alerts_sent: threshold,
      is_exhausted_alerts_sent: exhausted,
    });

  it.each(['v1', 'v2'])('one is made, read, changed and archived under /%s', async (version) => {
    const base = `/${version}/policies/usage-limits`;
    const created = await admin.call('POST', base, { body: valid() });
    expect([created.status, created.body]).toEqual([200, { id: expect.any(String), object: 'policy_usage_limits' }]);
    const one = `${base}/${created.body.id}`;
    expect((await admin.call('GET', one)).body).toMatchObject({
      ...valid(),
      id: created.body.id,
      description: null,
      periodic_reset_days: null,
      next_usage_reset_at: '2026-11-23T00:00:00.000Z',
      last_reset_at: null,
      status: 'active',
      organisation_id: admin.a.organisation_id,
      created_at: new Date(clock.now()).toISOString(),
      object: 'policy_usage_limits',
    });
    const body = { name: null, description: 'd', conditions: [{ key: 'provider', excludes: ['openai'] }] };
    expect((await admin.call('PUT', one, { body })).body).toEqual({});
    expect((await admin.call('GET', one)).body).toMatchObject({ ...body, credit_limit: 100, alert_threshold: 50 });
    expect((await admin.call('GET', one)).body).not.toHaveProperty('value_key_usage_map');
    expect((await admin.call('GET', `${one}?include_usage=true`)).body.value_key_usage_map).toEqual({});
    expect((await admin.call('GET', `${one}/entities`)).body).toMatchObject({ object: 'list', total: 0, data: [] });
    expect((await admin.call('DELETE', one)).body).toEqual({});
    missing(await admin.call('GET', one));
    missing(await admin.call('PUT', one, { body }));
    missing(await admin.call('DELETE', one));
    missing(await admin.call('GET', `${one}/entities`));
    missing(await admin.call('PUT', `${one}/entities/${NOBODY}/reset`));
    const archived = (await admin.call('GET', `${one}?status=archived`)).body;
    expect(archived).toMatchObject({ id: created.body.id, status: 'archived' });
  });

  it('a raised limit opens what is used up and clears both alerts; one that is still used up stays so', async () => {
    const id = await make();
    await use(id, 'alice', 100);
    await use(id, 'bob', 150);
    await use(id, 'carol', 60);
    const [alice, bob, carol] = ['alice', 'bob', 'carol'].map((name) => `metadata._user:${name}`) as [
      string,
      string,
      string,
    ];
    expect(await usage(id)).toEqual({
      [alice]: state(100, 'exhausted', true, true),
      [bob]: state(150, 'exhausted', true, true),
      [carol]: state(60, 'active', true, false),
    });
    await update(id, { credit_limit: 120, alert_threshold: 110 });
    expect(await usage(id)).toEqual({
      [alice]: state(100, 'active', false, false),
      // Told of again, as it is above the new limit too.
      [bob]: state(150, 'exhausted', true, true),
      [carol]: state(60, 'active', false, false),
    });
    await update(id, { credit_limit: 60, alert_threshold: 55 });
    expect((await usage(id))[carol]).toEqual(state(60, 'exhausted', true, true));
  });

  /** Counters like the one of the policy, older than it. */
  const copies = (id: string, count: number, status: 'active' | 'exhausted') =>
    admin.tables.systemWrite(async (tx) => {
      const row = await tx.find('usage_buckets', { owner_id: id });
      if (row === undefined) throw new Error(id);
      for (let i = 0; i < count; i++) {
        const value_key = `metadata._user:${i}`;
        const own = { id: `${id} ${i}`, bucket_key: value_key, value_key };
        await tx.insert('usage_buckets', { ...row, ...own, status, created_at: row.created_at - 1 });
      }
    });

  it('of very many values 1,000 follow a change at once, any other when it is used next', async () => {
    const id = await make();
    await use(id, 'alice', 100);
    await copies(id, 1000, 'exhausted');
    await update(id, { credit_limit: 200 });
    const { body } = await read(id, '/entities?search=_user:7&page_size=1');
    expect(body.data).toMatchObject([{ credit_limit: 200, status: 'active' }]);
    const alice = async () => (await read(id, '/entities?search=alice')).body.data;
    expect(await alice()).toMatchObject([{ credit_limit: 100, status: 'exhausted' }]);
    await use(id, 'alice', 1);
    expect(await alice()).toMatchObject([{ credit_limit: 200, status: 'active', current_usage: 101 }]);
  }, 60_000);

  it('of very many values those that are used up follow a change first', async () => {
    const id = await make();
    await use(id, 'alice', 100);
    await copies(id, 1000, 'active');
    await update(id, { credit_limit: 200 });
    const { body } = await read(id, '/entities?search=alice');
    expect(body.data).toMatchObject([{ credit_limit: 200, status: 'active' }]);
  }, 60_000);

  it('a new name changes no counter, however many there are; they show it with their next request', async () => {
    const id = await make();
    await use(id, 'alice', 10);
    const labels = async () =>
      (await admin.tables.systemRead((tx) => tx.list('usage_buckets', { where: { owner_id: id } }))).map(
        ({ label, last_updated_at }) => ({ label, last_updated_at }),
      );
    const before = await labels();
    await update(id, { name: 'Renamed' });
    expect(await labels()).toEqual(before);
    await use(id, 'alice', 1);
    expect(await labels()).toMatchObject([{ label: 'Renamed' }]);
  });

  it.each([
    ['raised', 90],
    ['taken away', null],
  ])('a threshold that is %s may be told of again, and nothing else changes', async (_, alert_threshold) => {
    const id = await make();
    await use(id, 'alice', 60);
    await update(id, { alert_threshold });
    expect(await usage(id)).toEqual({ 'metadata._user:alice': state(60, 'active', false, false) });
  });

  it('a lowered threshold is told of at once, a changed name of nothing', async () => {
    const id = await make();
    await use(id, 'alice', 40);
    await update(id, { alert_threshold: 30 });
    expect(await usage(id)).toEqual({ 'metadata._user:alice': state(40, 'active', true, false) });
    await update(id, { name: 'other' });
    expect(await usage(id)).toEqual({ 'metadata._user:alice': state(40, 'active', true, false) });
  });

  it('another cadence moves the reset of each counter, and keeps what it has counted', async () => {
    const id = await make();
    await use(id, 'alice', 40);
    await update(id, { periodic_reset_days: 10 });
    const buckets = await admin.tables.systemRead((tx) => tx.list('usage_buckets', { where: { owner_id: id } }));
    expect(buckets.map(({ resets_at, used }) => [resets_at, used])).toEqual([[Date.UTC(2026, 11, 2), 40]]);
    expect((await read(id)).body).toMatchObject({
      periodic_reset: null,
      periodic_reset_days: 10,
      next_usage_reset_at: '2026-12-02T00:00:00.000Z',
    });
  });

  it('entities are listed by status, value and page, with what they used', async () => {
    const id = await make();
    for (const [name, used] of [
      ['alice', 100],
      ['bob', 1],
      ['al_x', 2],
    ] as const) {
      await use(id, name, used);
      clock.jump(1);
    }
    const names = async (query: string) => (await entities(id, query)).data.map(({ value_key }) => value_key.slice(15));
    expect((await entities(id)).data[0]).toMatchObject({
      id: expect.any(String),
      value_key: 'metadata._user:alice',
      current_usage: 100,
      status: 'exhausted',
      last_reset_at: null,
    });
    expect(await names('')).toEqual(['alice', 'bob', 'al_x']);
    expect(await names('?status=exhausted')).toEqual(['alice']);
    expect(await names('?status=active')).toEqual(['bob', 'al_x']);
    expect(await names('?search=al_')).toEqual(['al_x']);
    expect(await names('?search=%25')).toEqual([]);
    expect([await names('?page_size=2'), await names('?page_size=2&current_page=1')]).toEqual([
      ['alice', 'bob'],
      ['al_x'],
    ]);
    expect((await entities(id, '?page_size=1&current_page=9')).total).toBe(3);
    for (const [query, param] of [
      ['status=archived', 'status'],
      ['page_size=0', 'page_size'],
      ['page_size=101', 'page_size'],
      ['current_page=-1', 'current_page'],
      ['colour=red', 'colour'],
    ] as const) {
      refused(await admin.call('GET', `${path}/${id}/entities?${query}`), param);
    }
    expect((await entities(id, '?page_size=100')).total).toBe(3);
  });

  it.each(['v1', 'v2'])(
    'one entity is reset under /%s: usage 0, active, alerts cleared, the others as they were',
    async (version) => {
      const id = await make();
      await use(id, 'alice', 100);
      await use(id, 'bob', 100);
      const [alice] = (await entities(id, '?search=alice')).data;
      const other = await make();
      const reset = (policy: string, entity: string, key?: string) =>
        admin.call('PUT', `/${version}/policies/usage-limits/${policy}/entities/${entity}/reset`, key ? { key } : {});
      missing(await reset(id, NOBODY));
      missing(await reset(id, 'alice'));
      missing(await reset(other, String(alice?.id)));
      missing(await reset(NOBODY, String(alice?.id)));
      missing(await reset(id, String(alice?.id), admin.b.admin_api_key));
      expect((await usage(id))['metadata._user:alice']).toEqual(state(100, 'exhausted', true, true));
      expect((await reset(id, String(alice?.id))).body).toEqual({});
      expect(await usage(id)).toEqual({
        'metadata._user:alice': state(0, 'active', false, false),
        'metadata._user:bob': state(100, 'exhausted', true, true),
      });
      expect((await entities(id, '?search=alice')).data[0]).toMatchObject({
        last_reset_at: new Date(clock.now()).toISOString(),
      });
    },
  );

  it('reset_usage_for_value begins the counter of a value anew; an unknown one is refused and nothing changes', async () => {
    const id = await make();
    await use(id, 'alice', 100);
    refused(
      await admin.call('PUT', `${path}/${id}`, {
        body: { name: 'changed', reset_usage_for_value: 'metadata._user:eve' },
      }),
      'reset_usage_for_value',
    );
    expect((await read(id)).body.name).toBe('Per user');
    await update(id, { reset_usage_for_value: 'metadata._user:alice' });
    expect(await usage(id)).toEqual({ 'metadata._user:alice': state(0, 'active', false, false) });
  });

  it('lists by workspace, type, status, name and page; archived ones only when asked for', async () => {
    const tag = `list ${engine}`;
    const tokens = await make({ name: `${tag} t` });
    const cost = await make({ name: `${tag} c`, type: 'cost' });
    const gone = await make({ name: `${tag} g` });
    await admin.call('DELETE', `${path}/${gone}`);
    const named = async (query: string) => {
      const answer = await admin.call('GET', `${path}?search=${encodeURIComponent(tag)}&${query}`);
      expect(answer.status, answer.text).toBe(200);
      return (answer.body.data as { id: string }[]).map(({ id }) => id).sort();
    };
    expect(await named('')).toEqual([tokens, cost].sort());
    expect(await named('type=cost')).toEqual([cost]);
    expect(await named('status=archived')).toEqual([gone]);
    expect(await named(`workspace_id=${admin.a.workspace_slug}`)).toEqual([tokens, cost].sort());
    expect(await named(`organisation_id=${admin.a.organisation_id}&page_size=1&current_page=1`)).toHaveLength(1);
    const elsewhere = await admin.call('POST', '/v1/admin/workspaces', { body: { name: `Other ${engine}` } });
    expect(await named(`workspace_id=${elsewhere.body.id}`)).toEqual([]);
  });

  it('another organisation neither sees nor changes a policy or what it has counted', async () => {
    const id = await make();
    await use(id, 'alice', 100);
    const [alice] = (await entities(id)).data;
    const key = admin.b.admin_api_key;
    missing(await admin.call('GET', `${path}/${id}`, { key }));
    missing(await admin.call('PUT', `${path}/${id}`, { key, body: { credit_limit: 1 } }));
    missing(await admin.call('DELETE', `${path}/${id}`, { key }));
    missing(await admin.call('GET', `${path}/${id}/entities`, { key }));
    missing(await admin.call('PUT', `${path}/${id}/entities/${alice?.id}/reset`, { key }));
    expect((await admin.call('GET', path, { key })).body).toMatchObject({ total: 0, data: [] });
    expect((await usage(id))['metadata._user:alice'].current_usage).toBe(100);
  });

  it('an archived workspace takes no policy', async () => {
    const made = await admin.call('POST', '/v1/admin/workspaces', { body: { name: `Archived ${engine}` } });
    const workspace_id = String(made.body.id);
    await make({ workspace_id });
    expect((await admin.call('DELETE', `/v1/admin/workspaces/${workspace_id}`)).status).toBe(200);
    const answer = await admin.call('POST', path, { body: { ...valid(), workspace_id } });
    expect([403, 404], answer.text).toContain(answer.status);
  });
});
