/** How an administrator gives objects of a shared account to a workspace, and hands them over. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startWorld, type World } from './account.ts';

let world: World;

beforeAll(async () => {
  world = await startWorld();
}, 60_000);

afterAll(() => world?.stop());

const adopt = (body: object, slug = 'shared') =>
  world.server.admin('POST', `/integrations/${slug}/objects/adopt`, body);
const objects = async (query: string) => {
  const answer = await world.server.admin('GET', `/integrations/shared/objects?${query}`);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body as {
    total: number | null;
    data: { kind: string; id: string; workspace_id: string | null }[];
    after: string | null;
  };
};
const read = async (who: 'a' | 'b', path: string) =>
  (await world.call(world.keys[who], world.shared[who], 'GET', path)).status;

describe('objects that were not made through Sluice', () => {
  it('are listed by asking the provider', async () => {
    for (const [kind, id] of [
      ['file', 'file-old'],
      ['job', 'ftjob-old'],
      ['batch', 'batch_old'],
    ]) {
      expect(await objects(`unowned=true&kind=${kind}`)).toMatchObject({
        total: null,
        data: [{ kind, id, workspace_id: null }],
        after: null,
      });
    }
    const refused = await world.server.admin('GET', '/integrations/shared/objects?unowned=true&kind=response');
    expect(refused).toMatchObject({ status: 400, body: { error: { param: 'kind' } } });
  });

  it('are given to a workspace: a plan says which and changes nothing, then they are its own and nobody else’s', async () => {
    const body = { workspace: 'b', kinds: ['file', 'job', 'batch'], all: true };
    const expected = {
      object: 'adoption',
      workspace_id: world.workspaces.b,
      objects: [
        { kind: 'file', id: 'file-old', from: null },
        { kind: 'job', id: 'ftjob-old', from: null },
        { kind: 'batch', id: 'batch_old', from: null },
      ],
      unchanged: 0,
      more: false,
    };
    expect(await adopt({ ...body, plan: true })).toEqual({ status: 200, body: { ...expected, plan: true } });
    expect(await read('b', '/files/file-old')).toBe(404);
    expect(await adopt(body)).toEqual({ status: 200, body: { ...expected, plan: false } });
    for (const path of [
      '/files/file-old',
      '/files/file-old/content',
      '/fine_tuning/jobs/ftjob-old',
      '/batches/batch_old',
    ]) {
      expect([path, await read('b', path), await read('a', path)]).toEqual([path, 200, 404]);
    }
    expect(await objects(`workspace=${world.workspaces.b}&kind=file`)).toMatchObject({
      total: 1,
      data: [{ id: 'file-old' }],
    });
    expect(await objects('unowned=true&kind=file')).toMatchObject({ data: [] });
    const span = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z';
    expect(JSON.stringify((await world.server.admin('GET', `/audit-logs?${span}`)).body)).toContain('file-old');
  });

  it('are given by their ids, whatever kind they are', async () => {
    expect(await read('a', '/responses/resp_old')).toBe(404);
    const body = { workspace: world.workspaces.a, kinds: ['response'], ids: ['resp_old', 'resp_older'] };
    expect(await adopt(body)).toMatchObject({
      status: 200,
      body: { objects: [{ id: 'resp_old' }, { id: 'resp_older' }] },
    });
    expect([await read('a', '/responses/resp_old'), await read('b', '/responses/resp_old')]).toEqual([200, 404]);
    expect(await adopt(body)).toMatchObject({ status: 200, body: { objects: [], unchanged: 2 } });
  });
});

describe('objects of a workspace', () => {
  it('are taken only by naming the workspace that has them, and are then the other one’s', async () => {
    const ids = { kinds: ['response'], ids: ['resp_mine'] };
    await adopt({ workspace: 'b', ...ids });
    expect(await adopt({ workspace: world.workspaces.a, ...ids })).toMatchObject({
      status: 409,
      body: { error: { param: 'from' } },
    });
    const handed = await adopt({ workspace: world.workspaces.a, ...ids, from: 'b' });
    expect(handed).toMatchObject({ status: 200, body: { objects: [{ id: 'resp_mine', from: world.workspaces.b }] } });
    expect([await read('a', '/responses/resp_mine'), await read('b', '/responses/resp_mine')]).toEqual([200, 404]);
  });

  it('all of a kind are handed over', async () => {
    await adopt({ workspace: 'b', kinds: ['container'], ids: ['c1', 'c2'] });
    const body = { workspace: world.workspaces.a, kinds: ['container'], all: true, from: 'b' };
    expect(await adopt(body)).toMatchObject({ status: 200, body: { objects: [{ id: 'c1' }, { id: 'c2' }] } });
    expect(await objects('workspace=b&kind=container')).toMatchObject({ total: 0 });
  });
});

describe('handing over', () => {
  it('moves only what the named workspace owns', async () => {
    const body = { workspace: world.workspaces.a, kinds: ['response'], ids: ['resp_of_nobody'], from: 'b' };
    expect(await adopt(body)).toMatchObject({ status: 400, body: { error: { param: 'ids' } } });
  });

  it('takes a thousand objects at once, and says that there are more', async () => {
    const ids = Array.from({ length: 1_001 }, (_, i) => `vs_${i}`);
    const kinds = ['vector_store'];
    await adopt({ workspace: 'b', kinds, ids: ids.slice(0, 1_000) });
    await adopt({ workspace: 'b', kinds, ids: ids.slice(1_000) });
    const body = { workspace: world.workspaces.a, kinds, all: true, from: 'b' };
    const [first, second] = [await adopt(body), await adopt(body)];
    expect([first.body.more, (first.body.objects as object[]).length]).toEqual([true, 1_000]);
    expect([second.body.more, (second.body.objects as object[]).length]).toEqual([false, 1]);
  });

  it('works for a workspace that was archived', async () => {
    const { server } = world;
    const gone = (await server.admin('POST', '/admin/workspaces', { name: 'Gone', slug: 'gone' })).body.id as string;
    const entries = { workspaces: [{ id: gone, enabled: true, create_default_provider: false }] };
    expect((await server.admin('PUT', '/integrations/shared/workspaces', entries)).status).toBe(200);
    const ids = { kinds: ['container'], ids: ['c_gone'] };
    expect((await adopt({ workspace: gone, ...ids })).status).toBe(200);
    expect((await server.admin('DELETE', `/admin/workspaces/${gone}`, { name: 'Gone' })).status).toBe(200);
    expect(await adopt({ workspace: 'b', ...ids, from: gone })).toMatchObject({
      status: 200,
      body: { objects: [{ id: 'c_gone', from: gone }] },
    });
  });

  it('is not for an integration of one workspace, which owns all that is there', async () => {
    const workspace_id = world.workspaces.a;
    const own = { name: 'Own', slug: 'own', ai_provider_id: 'openai', key: 'sk-own', workspace_id };
    expect((await world.server.admin('POST', '/integrations', own)).status).toBe(200);
    const answer = await adopt({ workspace: workspace_id, kinds: ['file'], ids: ['x'] }, 'own');
    expect(answer.status).toBe(400);
    expect(JSON.stringify(answer.body)).toContain('belongs to one workspace');
  });
});

it.each<[string, object, number, string]>([
  ['neither ids nor all', { workspace: 'b', kinds: ['file'] }, 400, 'ids'],
  ['both', { workspace: 'b', kinds: ['file'], ids: ['x'], all: true }, 400, 'ids'],
  ['ids of several kinds', { workspace: 'b', kinds: ['file', 'job'], ids: ['x'] }, 400, 'kinds'],
  ['all of what no provider lists', { workspace: 'b', kinds: ['response'], all: true }, 400, 'kinds'],
  ['an unknown workspace', { workspace: 'nobody', kinds: ['file'], ids: ['x'] }, 404, 'workspace'],
])('is refused: %s', async (_title, body, status, param) => {
  expect(await adopt(body)).toMatchObject({ status, body: { error: { param } } });
});

it('a workspace that cannot use the account gets nothing of it', async () => {
  const answer = await adopt({ workspace: 'b', kinds: ['file'], ids: ['x'] }, 'alone');
  expect(answer).toMatchObject({ status: 400, body: { error: { param: 'workspace' } } });
});
