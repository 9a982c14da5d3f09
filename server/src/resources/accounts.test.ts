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
});
