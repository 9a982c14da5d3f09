/** Native paths of providers that pass on an account that several workspaces share. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PROVIDERS } from '../../src/providers/catalog.ts';
import { requestedObjects } from '../../src/runtime/requested-objects.ts';
import { startWorld, type World } from './account.ts';

const listed = [...PROVIDERS.values()].flatMap(({ id, statelessPaths = [] }) =>
  statelessPaths.map((path) => [id, path] as const),
);

describe('a path that a provider lists as stateless', () => {
  it.each(listed)('of %s is open at that provider, in any case, and closed elsewhere: %s', (id, own) => {
    const [method = '', path = ''] = own.split(' ');
    const asked = `/${path.replaceAll('*', 'one')}`;
    const { statelessPaths } = PROVIDERS.get(id) ?? {};
    expect(path).toMatch(/^[^/A-Z].*[^/]$/);
    for (const written of [asked, asked.toUpperCase(), `${asked}?a=b`]) {
      expect(requestedObjects(method, written, statelessPaths)).toEqual({ kind: 'open' });
    }
    expect(requestedObjects(method, asked)).toEqual({ kind: 'closed' });
    for (const other of [`${asked}/more/more`, `/more/more${asked}`]) {
      expect(requestedObjects(method, other, statelessPaths)).toEqual({ kind: 'closed' });
    }
    expect(requestedObjects('DELETE', asked, statelessPaths)).not.toEqual({ kind: 'open' });
  });

  it.each(listed)('of %s names nothing that accounts keep: %s', (_id, own) => {
    expect(own).not.toMatch(/file|batch|job|agent|assistant|thread|conversation|librar|dataset|store|connector|cache/);
    expect(own).not.toMatch(/^DELETE|^PUT|^PATCH/);
  });
});

describe('at an account of Cohere that two workspaces share', () => {
  let world: World;

  beforeAll(async () => {
    world = await startWorld();
    const { admin } = world.server;
    const workspaces = [world.workspaces.a, world.workspaces.b];
    const configurations = { custom_host: world.upstream.url };
    await admin('POST', '/integrations', {
      name: 'co',
      slug: 'co',
      ai_provider_id: 'cohere',
      key: 'stored',
      configurations,
    });
    const entries = workspaces.map((id) => ({ id, enabled: true, create_default_provider: false }));
    await admin('PUT', '/integrations/co/workspaces', { workspaces: entries });
    for (const [index, workspace_id] of workspaces.entries())
      await admin('POST', '/providers', { name: 'co', slug: `co-${index}`, integration_id: 'co', workspace_id });
  }, 60_000);

  afterAll(() => world?.stop());

  it('texts are tokenized below /proxy, and data sets, connectors and conversations stay closed', async () => {
    const call = (method: string, path: string, body?: unknown) =>
      world.call(world.keys.b, 'co-1', method, `/proxy${path}`, body);
    const tokens = await call('POST', '/v1/tokenize', { model: 'command-a-03-2025', text: 'x' });
    expect(tokens, tokens.text).toMatchObject({ status: 200, sent: 1 });
    expect(await call('GET', '/v1/datasets')).toMatchObject({ status: 403, sent: 0 });
    expect(await call('GET', '/v1/connectors')).toMatchObject({ status: 403, sent: 0 });
    expect(await call('POST', '/v1/chat', { message: 'x', conversation_id: 'c' })).toMatchObject({
      status: 403,
      sent: 0,
    });
  });

  it.each([
    ['cachedContent', { cachedContent: 'cachedContents/1' }],
    ['fileSearchStoreNames', { tools: [{ fileSearch: { fileSearchStoreNames: ['fileSearchStores/1'] } }] }],
    ['vertexRagStore', { tools: [{ retrieval: { vertexRagStore: { ragResources: [] } } }] }],
  ])('a body with %s is refused: who owns it is not known', async (field, body) => {
    const answer = await world.call(world.keys.b, 'co-1', 'POST', '/proxy/models/m:generateContent', body);
    expect(answer, answer.text).toMatchObject({ status: 403, sent: 0 });
    expect(answer.text).toContain(field);
  });
});
