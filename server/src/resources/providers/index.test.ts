import { expect, it } from 'vitest';
import { ok, onBothStores, refused, unique } from '../../../test/support/accounts.ts';
import { systemClock } from '../../kernel/clock.ts';

onBothStores((on) => {
  const provider = (more: object = {}) => ({ name: unique('Prov'), integration_id: 'sandbox', ...more });

  it('create, get, update, list, delete', async () => {
    const slug = unique('prov');
    const limits = { usage_limits: { credit_limit: 10 }, rate_limits: { type: 'tokens', unit: 'rpw', value: 7 } };
    const tags = { team: slug };
    const created = ok(
      await on.post(
        '/providers',
        provider({ slug, note: 'n', expires_at: '2999-01-01T00:00:00+01:00', tags, ...limits }),
        on.mine,
      ),
    );
    expect(created).toEqual({ id: expect.any(String), slug });
    expect(ok(await on.get(`/providers/${slug}`, on.mine))).toMatchObject({
      ...created,
      note: 'n',
      status: 'active',
      integration_id: 'sandbox',
      workspace_id: on.api.a.workspace_id,
      usage_limits: { credit_limit: 10, type: 'cost', status: 'active', last_reset_at: null },
      rate_limits: [limits.rate_limits],
      expires_at: '2998-12-31T23:00:00.000Z',
      tags,
      last_reset_at: null,
      object: 'provider',
    });
    const list = ok(await on.get(`/providers?tags=${encodeURIComponent(JSON.stringify(tags))}`, on.mine));
    expect(list).toMatchObject({ object: 'list', total: 1, data: [{ slug }] });
    const changed = { name: 'N', note: null, expires_at: null, usage_limits: null, reset_usage: 1 };
    expect(ok(await on.put(`/providers/${slug}`, changed, on.mine))).toEqual(created);
    const shown = ok(await on.get(`/providers/${created.id}`, on.mine));
    expect(shown).toMatchObject({ name: 'N', note: null, expires_at: null, usage_limits: null, tags });
    expect(shown.last_reset_at).not.toBeNull();
    expect(ok(await on.del(`/providers/${slug}`, on.mine))).toEqual({});
    refused(await on.get(`/providers/${slug}`, on.mine), 404, 'AB08', null);
    ok(await on.post('/providers', provider({ slug }), on.mine));
  });

  it('an exhausted one becomes active with a reset, an expired one says so', async () => {
    const { id, slug } = ok(await on.post('/providers', provider({ usage_limits: { credit_limit: 1 } }), on.mine));
    await on.api.tables.systemWrite((tx) => tx.update('providers', { id }, { status: 'exhausted' }));
    expect(ok(await on.get(`/providers/${slug}`, on.mine))).toMatchObject({
      status: 'exhausted',
      usage_limits: { status: 'exhausted' },
    });
    ok(await on.put(`/providers/${slug}`, { reset_usage: true }, on.mine));
    expect(ok(await on.get(`/providers/${slug}`, on.mine)).status).toBe('active');
    ok(await on.put(`/providers/${slug}`, { expires_at: '2001-01-01T00:00:00Z' }, on.mine));
    expect(ok(await on.get(`/providers/${slug}`, on.mine)).status).toBe('expired');
  });

  it.each<[string, object, number, string, string]>([
    ['no name', { name: undefined }, 400, 'AB01', 'name'],
    ['no integration', { integration_id: undefined }, 400, 'AB01', 'integration_id'],
    ['an unknown integration', { integration_id: 'nope' }, 404, 'AB02', 'integration_id'],
    ['a taken slug', { slug: 'sandbox' }, 409, 'AB07', 'slug'],
    ['a reserved slug', { slug: 'models' }, 400, 'AB01', 'slug'],
    ['a slug with @', { slug: '@x' }, 400, 'AB01', 'slug'],
    ['a credit of zero', { usage_limits: { credit_limit: 0 } }, 400, 'AB01', 'usage_limits.credit_limit'],
    [
      'both resets',
      { usage_limits: { periodic_reset: 'weekly', periodic_reset_days: 3 } },
      400,
      'AB01',
      'usage_limits.periodic_reset_days',
    ],
    [
      'a reset in the past',
      { usage_limits: { next_usage_reset_at: '2001-01-01T00:00:00Z' } },
      400,
      'AB01',
      'usage_limits.next_usage_reset_at',
    ],
    [
      'a reset later today',
      {
        usage_limits: {
          next_usage_reset_at: `${new Date(systemClock.now()).toISOString().slice(0, 10)}T23:59:59.999Z`,
        },
      },
      400,
      'AB01',
      'usage_limits.next_usage_reset_at',
    ],
    [
      'an unknown unit',
      { rate_limits: [{ type: 'requests', unit: 'rpy', value: 1 }] },
      400,
      'AB01',
      'rate_limits[0].unit',
    ],
    ['a date without zone', { expires_at: '2030-01-01T00:00:00' }, 400, 'AB01', 'expires_at'],
    ['a day that does not exist', { expires_at: '2030-02-30T00:00:00Z' }, 400, 'AB01', 'expires_at'],
    [
      'a foreign mapping',
      { secret_mappings: [{ target_field: 'key', secret_reference_id: 'r' }] },
      404,
      'AB02',
      'secret_mappings[0].secret_reference_id',
    ],
  ])('create with %s is refused', async (_case, more, status, code, param) => {
    refused(await on.post('/providers', provider(more), on.mine), status, code, param);
  });

  it('the next reset of a usage limit is kept at its UTC midnight', async () => {
    const made = await on.post(
      '/providers',
      provider({ slug: 'reset', usage_limits: { next_usage_reset_at: '2999-05-20T15:00:00+02:00' } }),
      on.mine,
    );
    const { body } = await on.get(`/providers/${made.body.slug}`, on.mine);
    expect(body.usage_limits.next_usage_reset_at).toBe('2999-05-20T00:00:00.000Z');
  });

  it('an organisation key lists them per workspace', async () => {
    refused(await on.get('/providers'), 400, 'AB01', 'workspace_id');
    const { slug } = ok(await on.post('/providers', provider({ workspace_id: on.second.slug })));
    const list = ok(await on.get(`/providers?workspace_id=${on.second.id}`));
    expect(list.data.map((one: { slug: string }) => one.slug)).toContain(slug);
    refused(await on.get(`/providers/${slug}`, on.mine), 404, 'AB08', null);
    refused(await on.get(`/providers?workspace_id=${on.second.id}`, on.mine), 403, 'AB03', 'workspace_id');
  });
});
