import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ok, onBothStores, unique } from '../../test/support/accounts.ts';

onBothStores((on) => {
  it('every write reaches the change feed with its workspace; an integration of the organisation concerns all', async () => {
    const since = await on.api.tables.lastChange();
    const slug = unique('feed');
    const config = ok(await on.post('/configs', { name: 'x', config: { provider: '@a' } }, on.mine));
    const shared = ok(await on.post('/integrations', { name: 'x', slug, ai_provider_id: 'openai', key: 'k' }));
    const provider = ok(await on.post('/providers', { name: 'x', slug, integration_id: slug }, on.mine));
    ok(await on.put(`/integrations/${slug}/models`, { models: [] }));
    const changes = await on.api.tables.changesAfter(since, 100);
    expect(changes.map(({ topic, entityId, workspaceId }) => [topic, entityId, workspaceId])).toEqual([
      ['configs', config.id, on.api.a.workspace_id],
      ['integrations', shared.id, null],
      ['providers', provider.id, on.api.a.workspace_id],
      ['integrations', shared.id, null],
    ]);
  });

  it('no body whatever gives a 5xx', async () => {
    const paths = ['/configs', '/integrations', '/providers', '/virtual-keys'];
    const field = fc.oneof(
      fc.jsonValue({ maxDepth: 3 }),
      fc.constantFrom<unknown>(
        'openai',
        'bedrock',
        'sandbox',
        {},
        [],
        null,

        -0,
        '\ud800',
        'a\u0000b',
        '*******00000000',
      ),
    );
    const names = [
      'name',
      'config',
      'ai_provider_id',
      'key',
      'configurations',
      'integration_id',
      'provider',
      'slug',
      'tags',
      'usage_limits',
      'rate_limits',
      'secret_mappings',
      'expires_at',
      'awsRegion',
      'pricing_adjustments',
      'workspace_id',
    ];
    const body = fc.dictionary(fc.constantFrom(...names), field, { maxKeys: 8 });
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...paths), body, async (path, content) => {
        const answer = await on.post(path, content, on.mine);
        expect(answer.status, answer.text).toBeLessThan(500);
      }),
      { numRuns: 300 },
    );
  });
});
