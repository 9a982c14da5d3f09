/** Guardrails of an organisation and of a workspace: who sees, lists, changes and deletes them. On both stores. */
import { describe, expect, it } from 'vitest';
import { ok, onBothStores, refused } from '../support/accounts.ts';
import { guardrailCalls, NOBODY } from '../support/guardrail-calls.ts';
import { actionsWith } from '../support/guardrails.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

onBothStores((on) => {
  const { inWorkspace, ofOrganisation, make, read, ids, keyWith } = guardrailCalls(on);

  describe('levels', () => {
    it('a workspace key makes guardrails of its workspace, an organisation key of either', async () => {
      const { workspace_id: _, ...bound } = inWorkspace();
      const mine = await make(bound, on.mine);
      expect(await read(mine.id)).toMatchObject({ workspace_id: on.api.a.workspace_id });
      const shared = await make(ofOrganisation());
      expect(await read(shared.id)).toMatchObject({ workspace_id: null });
      const second = await make(inWorkspace({ workspace_id: on.second.slug }));
      expect(await read(second.id)).toMatchObject({ workspace_id: on.second.id });
    });

    it('a workspace key sees, changes and deletes only what is of its workspace; the rest is not there', async () => {
      const shared = await make(ofOrganisation());
      const second = await make(inWorkspace({ workspace_id: on.second.id }));
      const own = await make();
      const seen = await ids('', on.mine);
      expect(seen).toContain(own.id);
      expect(seen).not.toContain(shared.id);
      expect(seen).not.toContain(second.id);
      for (const name of [shared.id, shared.slug, second.id, second.slug, NOBODY, 'pg-none']) {
        refused(await on.get(`/guardrails/${name}`, on.mine), 404, 'AB08', null);
        refused(await on.put(`/guardrails/${name}`, { name: 'x' }, on.mine), 404, 'AB08', null);
        refused(await on.del(`/guardrails/${name}`, on.mine), 404, 'AB08', null);
      }
      expect(await ids(`ids=${shared.id},${second.slug},${own.slug}`, on.mine)).toEqual([own.id]);
    });

    it('an organisation key lists both levels, and with workspace_id those of the workspace only', async () => {
      const shared = await make(ofOrganisation());
      const own = await make();
      const second = await make(inWorkspace({ workspace_id: on.second.id }));
      const all = await ids('');
      for (const { id } of [shared, own, second]) expect(all).toContain(id);
      for (const workspace of [on.api.a.workspace_id, on.api.a.workspace_slug]) {
        const some = await ids(`workspace_id=${workspace}`);
        expect(some).toContain(own.id);
        expect(some).not.toContain(shared.id);
        expect(some).not.toContain(second.id);
      }
      expect(await ids(`organisation_id=${on.api.a.organisation_id}`)).toEqual(all);
      refused(await on.get(`/guardrails?organisation_id=${on.api.b.organisation_id}`), 403, 'AB03', 'organisation_id');
      refused(await on.get('/guardrails?workspace_id=ws-none'), 404, 'AB02', 'workspace_id');
      refused(await on.get(`/guardrails?workspace_id=${on.second.id}`, on.mine), 403, 'AB03', 'workspace_id');
    });

    it('each level has scopes of its own, for a key of the organisation', async () => {
      const shared = await make(ofOrganisation());
      const own = await make();
      const verbs = ['create', 'read', 'update', 'delete', 'list'];
      const workspaces = await keyWith(
        verbs.map((verb) => `guardrails.${verb}`),
        'organisation',
      );
      const organisation = await keyWith(
        verbs.map((verb) => `organisation_guardrails.${verb}`),
        'organisation',
      );
      for (const [key, may, mayNot, body] of [
        [workspaces, own, shared, ofOrganisation()],
        [organisation, shared, own, inWorkspace()],
      ] as const) {
        ok(await on.get(`/guardrails/${may.id}`, key));
        ok(await on.put(`/guardrails/${may.id}`, { name: 'changed' }, key));
        const seen = await ids('', key);
        expect(seen).toContain(may.id);
        expect(seen).not.toContain(mayNot.id);
        for (const answer of [
          await on.get(`/guardrails/${mayNot.id}`, key),
          await on.put(`/guardrails/${mayNot.id}`, { name: 'changed' }, key),
          await on.del(`/guardrails/${mayNot.id}`, key),
          await on.post('/guardrails', body, key),
        ]) {
          expect([answer.status, answer.body.error.code]).toEqual([403, 'AB03']);
        }
      }
      // Naming a workspace asks for its level.
      ok(await on.get(`/guardrails?workspace_id=${on.api.a.workspace_id}`, workspaces));
      const listed = await on.get(`/guardrails?workspace_id=${on.api.a.workspace_id}`, organisation);
      expect([listed.status, listed.body.error?.code]).toEqual([403, 'AB03']);
    });

    it('each verb needs its scope: list never implies read', async () => {
      const { id } = await make();
      const list = await keyWith(['guardrails.list']);
      ok(await on.get('/guardrails', list));
      for (const answer of [
        await on.get(`/guardrails/${id}`, list),
        await on.put(`/guardrails/${id}`, { name: 'x' }, list),
        await on.del(`/guardrails/${id}`, list),
        await on.post('/guardrails', inWorkspace(), list),
      ]) {
        expect([answer.status, answer.body.error.code]).toEqual([403, 'AB03']);
      }
    });

    it('what another organisation has is as unknown as what nobody has', async () => {
      const foreign = ok(
        await on.post('/guardrails', { ...inWorkspace(), workspace_id: on.api.b.workspace_id }, on.api.b.admin_api_key),
      );
      const answers = [foreign.id, foreign.slug, NOBODY, 'pg-none', `guard_${foreign.id}`].map(async (name) => {
        const all = [
          await on.get(`/guardrails/${name}`),
          await on.put(`/guardrails/${name}`, { name: 'x' }),
          await on.del(`/guardrails/${name}`),
        ];
        return JSON.stringify(all.map(({ status, body }) => [status, body]));
      });
      expect(new Set(await Promise.all(answers)).size).toBe(1);
      expect(await ids(`ids=${foreign.id},${foreign.slug}`)).toEqual([]);
      expect(ok(await on.get(`/guardrails/${foreign.id}`, on.api.b.admin_api_key)).name).not.toBe('x');
      refused(
        await on.post('/guardrails', inWorkspace({ workspace_id: on.api.b.workspace_id })),
        404,
        'AB02',
        'workspace_id',
      );
      const { organisation_id } = on.api.b;
      refused(await on.post('/guardrails', ofOrganisation({ organisation_id })), 403, 'AB03', 'organisation_id');
    });
  });

  describe('the list', () => {
    it('has exactly the fields of a guardrail, in the list envelope, newest first', async () => {
      const first = await make();
      const second = await make();
      const answer = ok(await on.get(`/guardrails?ids=${first.id},${second.slug}`));
      expect(Object.keys(answer).sort()).toEqual(['data', 'object', 'total']);
      expect([answer.object, answer.total]).toEqual(['list', 2]);
      expect(answer.data.map((one: { id: string }) => one.id).sort()).toEqual([first.id, second.id].sort());
      for (const one of answer.data) {
        expect(one).toEqual({
          id: expect.stringMatching(UUID),
          name: expect.any(String),
          slug: expect.stringMatching(/^pg-/),
          organisation_id: expect.stringMatching(UUID),
          workspace_id: expect.stringMatching(UUID),
          target: 'llm',
          status: 'active',
          owner_id: expect.stringMatching(UUID),
          created_by: expect.stringMatching(UUID),
          updated_by: null,
          created_at: expect.stringMatching(TIME),
          last_updated_at: expect.stringMatching(TIME),
          object: 'guardrail',
        });
      }
    });

    it('has both targets where none is asked for', async () => {
      const llm = await make();
      const tools = await make(inWorkspace({ target: 'mcp_tools' }));
      const both = `ids=${llm.id},${tools.id}`;
      expect((await ids(both)).sort()).toEqual([llm.id, tools.id].sort());
      expect(await ids(`${both}&target=llm`)).toEqual([llm.id]);
      expect(await ids(`${both}&target=mcp_tools`)).toEqual([tools.id]);
      refused(await on.get('/guardrails?target=tools'), 400, 'AB01', 'target');
    });

    it('goes through its pages once each, counted from 0', async () => {
      const made = [];
      for (let i = 0; i < 5; i++) made.push((await make()).id);
      const wanted = `ids=${made.join()}`;
      const seen: string[] = [];
      for (let page = 0; page < 4; page++) {
        const answer = ok(await on.get(`/guardrails?${wanted}&page_size=2&current_page=${page}`));
        expect([answer.total, answer.data.length]).toEqual([5, [2, 2, 1, 0][page]]);
        seen.push(...answer.data.map((one: { id: string }) => one.id));
      }
      expect(seen.sort()).toEqual(made.sort());
    });

    it.each([
      ['page_size=0', 'page_size'],
      ['page_size=1001', 'page_size'],
      ['page_size=-1', 'page_size'],
      ['page_size=1.5', 'page_size'],
      ['page_size=ten', 'page_size'],
      ['page_size=', 'page_size'],
      ['current_page=-1', 'current_page'],
      ['current_page=1e3', 'current_page'],
      ['page=1', 'page'],
      ['status=active', 'status'],
      [`ids=${Array.from({ length: 101 }, (_, i) => `pg-${i}`).join()}`, 'ids'],
    ])('?%s is refused', async (query, param) => {
      refused(await on.get(`/guardrails?${query}`), 400, 'AB01', param);
    });

    it('takes page sizes of 1 and 1000, and 100 ids', async () => {
      await make();
      expect(ok(await on.get('/guardrails?page_size=1')).data).toHaveLength(1);
      ok(await on.get('/guardrails?page_size=1000&current_page=0'));
      const { id } = await make();
      const many = [id.toUpperCase(), ...Array.from({ length: 99 }, (_, i) => `pg-${i}`)];
      expect(await ids(`ids=${many.join()}`)).toEqual([id]);
    });

    it.each(['ids=', 'ids=a,,b', 'ids=a%20b', "ids='"])('?%s names nothing that could be one', async (query) => {
      const answer = await on.get(`/guardrails?${query}`);
      expect([answer.status, answer.body.error.code, answer.body.error.param]).toEqual([
        400,
        'AB01',
        expect.stringMatching(/^ids/),
      ]);
    });
  });

  describe('reading, changing, deleting', () => {
    it('one is named by id, in any case, by slug, and with the prefix of older descriptions', async () => {
      const { id, slug } = await make();
      for (const name of [id, id.toUpperCase(), slug, `guard_${id}`, `guard_${slug}`]) {
        expect(await read(name)).toMatchObject({ id, slug });
      }
      for (const name of ['guard_', `guard_guard_${id}`, slug.toUpperCase(), `${id}0`]) {
        refused(await on.get(`/guardrails/${name}`), 404, 'AB08', null);
      }
    });

    it('every change is a new version; what is left out stays', async () => {
      const made = await make(inWorkspace({ actions: actionsWith({ deny: true, sequential: true }) }));
      const seen = new Set([made.version_id]);
      const change = async (body: object) => {
        const answer = ok(await on.put(`/guardrails/${made.slug}`, body));
        expect(answer).toEqual({ id: made.id, slug: made.slug, version_id: expect.stringMatching(UUID) });
        expect(seen.has(answer.version_id)).toBe(false);
        seen.add(answer.version_id);
        const stored = await read(made.id);
        expect(stored.version_id).toBe(answer.version_id);
        return stored;
      };
      const before = await read(made.id);
      const renamed = await change({ name: 'Anders' });
      expect(renamed).toMatchObject({ name: 'Anders', checks: before.checks, actions: before.actions });
      expect(renamed).toMatchObject({ slug: made.slug, created_at: made.created_at, updated_by: made.created_by });
      const checks = [{ id: 'default.regexMatch', is_enabled: false, parameters: { rule: 'a' } }];
      expect(await change({ checks })).toMatchObject({ name: 'Anders', checks, actions: before.actions });
      const acting = await change({
        actions: actionsWith({ deny: true, soft_deny_200: true, on_fail: { feedback: { weight: 0 } } }),
      });
      expect(acting.actions).toEqual({
        ...before.actions,
        soft_deny_200: true,
        on_fail: { feedback: { value: -5, weight: 0, metadata: '' } },
      });
      expect(await change({ actions: actionsWith({ deny: false }) })).toMatchObject({
        checks,
        actions: { deny: false, sequential: true, soft_deny_200: true, on_error: 'allow' },
      });
      const versions = await on.api.tables.systemRead((tx) =>
        tx.list('guardrail_versions', { where: { guardrail_id: made.id }, orderBy: [['number', 'asc']] }),
      );
      expect(versions.map((one) => one.number)).toEqual([1, 2, 3, 4, 5]);
    });

    it('the target cannot be changed, and a body must change something', async () => {
      const { id, version_id } = await make();
      for (const target of ['llm', 'mcp_tools']) {
        refused(await on.put(`/guardrails/${id}`, { name: 'x', target }), 400, 'AB01', 'target');
      }
      refused(await on.put(`/guardrails/${id}`, {}), 400, 'AB01', null);
      refused(await on.put(`/guardrails/${id}`, { name: null }), 400, 'AB01', 'name');
      expect(await read(id)).toMatchObject({ version_id, target: 'llm' });
    });

    it('checks of an update are judged by the target that it has', async () => {
      const { id } = await make(inWorkspace({ target: 'mcp_tools' }));
      const checks = [{ id: 'default.modelWhitelist', parameters: { models: ['a'] } }];
      refused(await on.put(`/guardrails/${id}`, { checks }), 400, 'AB01', 'checks[0].id');
    });

    it('a deleted one is archived: it is gone from lists and paths, and its versions stay', async () => {
      const { id, slug } = await make();
      expect(ok(await on.del(`/guardrails/${slug}`))).toEqual({});
      for (const name of [id, slug]) {
        refused(await on.get(`/guardrails/${name}`), 404, 'AB08', null);
        refused(await on.put(`/guardrails/${name}`, { name: 'x' }), 404, 'AB08', null);
        refused(await on.del(`/guardrails/${name}`), 404, 'AB08', null);
      }
      expect(await ids(`ids=${id}`)).toEqual([]);
      const row = await on.api.tables.systemRead((tx) => tx.find('guardrails', { id }));
      expect(row?.status).toBe('archived');
    });

    it('create, change and delete are told to every node', async () => {
      const from = await on.api.tables.lastChange();
      const { id } = await make();
      ok(await on.put(`/guardrails/${id}`, { name: 'x' }));
      ok(await on.del(`/guardrails/${id}`));
      const told = (await on.api.tables.changesAfter(from, 100)).filter(({ entityId }) => entityId === id);
      expect(told.map(({ topic }) => topic)).toEqual(['guardrails', 'guardrails', 'guardrails']);
    });

    it('two changes at once: each is a version, or one is told to try again', async () => {
      const { id } = await make();
      const answers = await Promise.all(['a', 'b', 'c'].map((name) => on.put(`/guardrails/${id}`, { name })));
      const done = answers.filter(({ status }) => status === 200).length;
      for (const { status } of answers) expect([200, 409, 503]).toContain(status);
      const versions = await on.api.tables.systemRead((tx) =>
        tx.list('guardrail_versions', { where: { guardrail_id: id } }),
      );
      expect(new Set(versions.map((one) => one.number)).size).toBe(done + 1);
    });
  });
});
