import { describe, expect, it } from 'vitest';
import { CANARY, MASK, ok, onBothStores, refused, unique } from '../../../test/support/accounts.ts';

onBothStores((on) => {
  describe('models of an integration', () => {
    it.each(['models', 'integration-models'])(
      'are kept under /%s: upsert, list, and delete of custom ones',
      async (path) => {
        const slug = unique('mod');
        ok(await on.post('/integrations', { name: slug, slug, ai_provider_id: 'openai', key: CANARY }, on.mine));
        const base = `/integrations/${slug}/${path}`;
        const mask = expect.stringMatching(MASK);
        const mine = {
          slug: 'My-Model',
          enabled: true,
          is_custom: true,
          configurations: { custom_host: 'https://m.example', custom_headers: { 'x-m': '1' }, key: CANARY },
          pricing_config: {
            type: 'static',
            pay_as_you_go: { request_token: { price: 0.1 }, response_token: { price: 0.2 } },
          },
        };
        expect(
          ok(
            await on.put(base, { models: [mine, { slug: 'gpt-x', enabled: false }], allow_all_models: false }, on.mine),
          ),
        ).toEqual({});
        ok(await on.put(base, { models: [{ slug: 'gpt-x', enabled: true }] }, on.mine));
        const list = ok(await on.get(base, on.mine));
        expect(list).toMatchObject({ total: 2, allow_all_models: false });
        expect(list.models).toEqual([
          expect.objectContaining({ slug: 'gpt-x', enabled: true, is_custom: false }),
          expect.objectContaining({
            ...mine,
            slug: 'my-model',
            name: 'my-model',
            configurations: { custom_host: 'https://m.example', custom_headers: { 'x-m': mask }, masked_key: mask },
          }),
        ]);
        const one = (await on.load()).providers.find((row) => row.row.slug === slug);
        expect(one?.models.map((model) => model.slug)).toEqual(['gpt-x', 'my-model']);
        const catalogue = ok(await on.get('/providers/models', on.mine));
        expect(catalogue.data).toContainEqual({
          id: `@${slug}/my-model`,
          slug: 'my-model',
          canonical_slug: 'my-model',
          object: 'model',
        });
        ok(await on.del(`${base}?slugs=my-model,gpt-x`, on.mine));
        expect(ok(await on.get(base, on.mine)).models.map((model: { slug: string }) => model.slug)).toEqual(['gpt-x']);
        refused(await on.del(base, on.mine), 400, 'AB01', 'slugs');
      },
    );

    it.each<[string, object, string]>([
      ['no slug', { enabled: true }, 'models[0].slug'],
      ['no enabled', { slug: 'm' }, 'models[0].enabled'],
      ['a fine-tune without base', { slug: 'm', enabled: true, is_finetune: true }, 'models[0].base_model_slug'],
      ['empty settings', { slug: 'm', enabled: true, configurations: {} }, 'models[0].configurations'],
      [
        'a refused host',
        { slug: 'm', enabled: true, configurations: { custom_host: 'http://h' } },
        'models[0].configurations.custom_host',
      ],
      [
        'a header that is no text',
        { slug: 'm', enabled: true, configurations: { custom_headers: { a: 1 } } },
        'models[0].configurations.custom_headers.a',
      ],
      [
        'a price below zero',
        { slug: 'm', enabled: true, pricing_config: { pay_as_you_go: { request_token: { price: -1 } } } },
        'models[0].pricing_config.pay_as_you_go.request_token.price',
      ],
      ['an unknown key', { slug: 'm', enabled: true, x: 1 }, 'models[0].x'],
    ])('%s is refused', async (_case, model, param) => {
      const slug = unique('bad');
      ok(await on.post('/integrations', { name: slug, slug, ai_provider_id: 'openai', key: CANARY }, on.mine));
      refused(await on.put(`/integrations/${slug}/models`, { models: [model] }, on.mine), 400, 'AB01', param);
    });
  });

  describe('workspaces of an integration', () => {
    const integration = async () => {
      const slug = unique('shared');
      ok(await on.post('/integrations', { name: slug, slug, ai_provider_id: 'openai', key: CANARY }));
      return slug;
    };

    it('access is a list once it was set: enabled workspaces get a provider, the others none', async () => {
      const slug = await integration();
      const limits = {
        usage_limits: [{ credit_limit: 10, alert_threshold: 5 }],
        rate_limits: [{ type: 'requests', unit: 'rpm', value: 5 }],
      };
      const entry = { id: on.api.a.workspace_slug, enabled: true, ...limits };
      expect(ok(await on.put(`/integrations/${slug}/workspaces`, { workspaces: [entry] }))).toEqual({});
      expect(ok(await on.get(`/integrations/${slug}/workspaces`))).toEqual({
        total: 1,
        workspaces: [
          {
            ...entry,
            id: on.api.a.workspace_id,
            slug: on.api.a.workspace_slug,
            usage_limits: [
              { ...limits.usage_limits[0], type: 'cost', current_usage: 0, status: 'active', last_reset_at: null },
            ],
          },
        ],
      });
      expect(ok(await on.get(`/integrations/${slug}`))).toMatchObject({
        workspace_count: 1,
        global_workspace_access_settings: { enabled: false },
      });
      const mine = (await on.load()).providers.find((one) => one.integration.slug === slug);
      expect(mine?.row.slug).toBe(slug);
      expect(mine?.access).toMatchObject(limits);
      refused(
        await on.post('/providers', { name: 'x', integration_id: slug, workspace_id: on.second.id }),
        404,
        'AB02',
        'integration_id',
      );
      ok(
        await on.put(`/integrations/${slug}/workspaces`, {
          workspaces: [{ id: on.api.a.workspace_id, enabled: false }],
        }),
      );
      expect((await on.load()).providers.some((one) => one.integration.slug === slug)).toBe(false);
    });

    it('global access opens the rest; the override flag replaces the list', async () => {
      const slug = await integration();
      ok(await on.put(`/integrations/${slug}/workspaces`, { workspaces: [{ id: on.second.id, enabled: true }] }));
      ok(
        await on.put(`/integrations/${slug}/workspaces`, {
          workspaces: [],
          override_existing_workspace_access: true,
          global_workspace_access: { enabled: true },
        }),
      );
      expect(ok(await on.get(`/integrations/${slug}/workspaces`)).total).toBe(0);
      expect(ok(await on.get(`/integrations/${slug}`)).workspace_count).toBe(2);
      ok(await on.post('/providers', { name: 'x', integration_id: slug }, on.mine));
      const rate_limits = [{ type: 'requests', unit: 'rph', value: 9 }];
      const access = { global_workspace_access: { enabled: true, rate_limits } };
      ok(await on.put(`/integrations/${slug}/workspaces`, access));
      const one = (await on.load()).providers.find((row) => row.integration.slug === slug);
      expect(one?.access).toMatchObject({ usage_limits: null, rate_limits });
    });

    it('a default provider slug that is taken is 400, and none is made when not wanted', async () => {
      const slug = await integration();
      const entry = { id: on.second.id, enabled: true };
      refused(
        await on.put(`/integrations/${slug}/workspaces`, {
          workspaces: [{ ...entry, default_provider_slug: 'sandbox' }],
        }),
        400,
        'AB01',
        'workspaces[0].default_provider_slug',
      );
      refused(
        await on.put(`/integrations/${slug}/workspaces`, { workspaces: [entry], default_provider_slug: 'sandbox' }),
        400,
        'AB01',
        'default_provider_slug',
      );
      ok(await on.put(`/integrations/${slug}/workspaces`, { workspaces: [entry], create_default_provider: false }));
      expect((await on.load(on.second.id)).providers.some((one) => one.integration.slug === slug)).toBe(false);
    });

    it.each<[string, object, number, string, string]>([
      ['an unknown workspace', { workspaces: [{ id: 'ws-x', enabled: true }] }, 404, 'AB02', 'workspaces[0].id'],
      ['no enabled', { workspaces: [{ id: 'ws-second' }] }, 400, 'AB01', 'workspaces[0].enabled'],
      [
        'a workspace twice',
        {
          workspaces: [
            { id: 'ws-second', enabled: true },
            { id: 'ws-second', enabled: false },
          ],
        },
        400,
        'AB01',
        'workspaces[1].id',
      ],
      [
        'two usage limits',
        { workspaces: [{ id: 'ws-second', enabled: true, usage_limits: [{}, {}] }] },
        400,
        'AB01',
        'workspaces[0].usage_limits',
      ],
      [
        'an alert above the limit',
        { workspaces: [{ id: 'ws-second', enabled: true, usage_limits: [{ credit_limit: 1, alert_threshold: 1 }] }] },
        400,
        'AB01',
        'workspaces[0].usage_limits[0].alert_threshold',
      ],
      [
        'global access without enabled',
        { global_workspace_access: {} },
        400,
        'AB01',
        'global_workspace_access.enabled',
      ],
      ['an unknown key', { x: 1 }, 400, 'AB01', 'x'],
    ])('%s is refused', async (_case, body, status, code, param) => {
      refused(await on.put(`/integrations/${await integration()}/workspaces`, body), status, code, param);
    });

    it('a workspace-scoped integration has no list', async () => {
      const slug = unique('scoped');
      ok(
        await on.post('/integrations', {
          name: slug,
          slug,
          ai_provider_id: 'openai',
          key: CANARY,
          workspace_id: on.second.id,
        }),
      );
      refused(await on.put(`/integrations/${slug}/workspaces`, {}), 400, 'AB01', 'workspaces');
    });
  });
});
