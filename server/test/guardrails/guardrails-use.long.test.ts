/** Secrets of guardrails, where guardrails are attached, and the MCP servers that they watch. On both stores. */
import { describe, expect, it } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { openParameters } from '../../src/resources/guardrails/secrets.ts';
import { ok, onBothStores, refused, unique } from '../support/accounts.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const MASK = /^\*{7}[0-9a-f]{8}$/;
const NOBODY = '00000000-0000-7000-8000-00000000000b';
const SECRET = 'hush-7c41-canary';
const CONTAINS = { id: 'default.contains', parameters: { words: ['no'] } };
const DEFAULTS = '/admin/organisation/defaults';

onBothStores((on) => {
  const inWorkspace = (more: object = {}) => ({
    name: unique('Guard'),
    checks: [CONTAINS],
    workspace_id: on.api.a.workspace_id,
    ...more,
  });
  const ofOrganisation = (more: object = {}) => ({
    name: unique('Guard'),
    checks: [CONTAINS],
    organisation_id: on.api.a.organisation_id,
    ...more,
  });
  const make = async (body: object = inWorkspace(), key?: string) => ok(await on.post('/guardrails', body, key));
  const read = async (name: string, key?: string) => ok(await on.get(`/guardrails/${name}`, key));

  describe('secrets of checks', () => {
    const hook = (more: object = {}) => ({
      id: 'default.webhook',
      parameters: {
        webhookURL: 'https://hook.example/judge',
        headers: { 'x-key': SECRET, 'x-team': `${SECRET}-2` },
        ...more,
      },
    });
    /** What whoever runs the guardrail gets. */
    const opened = async (id: string) => {
      const tenant = systemTenant(on.api.a.organisation_id);
      return on.api.tables.read(tenant, async (tx) => {
        const row = await tx.find('guardrails', { id });
        const version = await tx.find('guardrail_versions', { id: row?.version_id ?? '' });
        const checks = version?.checks ?? [];
        return Promise.all(checks.map((check, i) => openParameters(on.vault, tenant, version?.id ?? '', i, check)));
      });
    };

    it('are shown as masks and nowhere else: not in answers, tables or audit rows', async () => {
      const checks = [hook({ credentials: { apiKey: `${SECRET}-3` } }), CONTAINS];
      const made = await on.post('/guardrails', inWorkspace({ checks }));
      const { id } = ok(made);
      const stored = await on.get(`/guardrails/${id}`);
      expect(ok(stored).checks[0]).toEqual({
        id: 'default.webhook',
        is_enabled: true,
        parameters: {
          webhookURL: expect.stringMatching(/^https:\/\/hook\.example\/\*{7}[0-9a-f]{8}$/),
          headers: { 'x-key': expect.stringMatching(MASK), 'x-team': expect.stringMatching(MASK) },
          credentials: { apiKey: expect.stringMatching(MASK) },
        },
      });
      const changed = await on.put(`/guardrails/${id}`, { checks: [hook()] });
      const removed = await on.del(`/guardrails/${id}`);
      for (const answer of [made, stored, changed, removed]) {
        ok(answer);
        expect(answer.text).not.toContain(SECRET);
      }
      const kept = await on.api.tables.systemRead(async (tx) => [
        await tx.list('guardrail_versions', { where: { guardrail_id: id } }),
        await tx.list('audit_log', { where: { resource_id: id } }),
      ]);
      expect(kept.map((rows) => rows.length)).toEqual([2, 3]);
      expect(JSON.stringify(kept)).not.toContain(SECRET);
      expect(JSON.stringify(kept[1])).not.toMatch(/slc1\./);
      expect(JSON.stringify(kept[1])).toContain('hook.example');
    });

    it('stay as they are where a check is sent back as it was shown, wherever it stands now', async () => {
      const { id } = await make(inWorkspace({ checks: [hook(), CONTAINS] }));
      const [shown] = (await read(id)).checks;
      ok(await on.put(`/guardrails/${id}`, { checks: [CONTAINS, CONTAINS, shown] }));
      expect((await opened(id))[2]).toEqual(hook().parameters);
      ok(await on.put(`/guardrails/${id}`, { name: 'Renamed' }));
      expect((await opened(id))[2]).toEqual(hook().parameters);
      const again = (await read(id)).checks[2];
      again.parameters.headers['x-key'] = 'another';
      delete again.parameters.headers['x-team'];
      ok(await on.put(`/guardrails/${id}`, { checks: [again] }));
      expect(await opened(id)).toEqual([{ ...hook().parameters, headers: { 'x-key': 'another' } }]);
    });

    it('are never overwritten by a mask, nor sent elsewhere by who knows only the mask', async () => {
      const { id, version_id } = await make(inWorkspace({ checks: [hook()] }));
      const [shown] = (await read(id)).checks;
      const { headers } = shown.parameters;
      const at = (parameters: object, more: object = {}) => ({
        checks: [{ ...shown, ...more, parameters: { ...shown.parameters, ...parameters } }],
      });
      const path = 'checks[0].parameters';
      for (const [body, param] of [
        [at({ headers: { 'x-key': '*******00000000' } }), `${path}.headers.x-key`],
        [at({ headers: { 'x-other': headers['x-key'] } }), `${path}.headers.x-other`],
        [at({ headers: { 'x-key': headers['x-team'] } }), `${path}.headers.x-key`],
        [at({ headers: {}, credentials: { 'x-key': headers['x-key'] } }), `${path}.credentials.x-key`],
        [at({ webhookURL: 'https://other.example/' }), path],
        [
          { checks: [{ id: 'default.log', parameters: { logURL: 'https://hook.example/judge', headers } }] },
          `${path}.headers.x-key`,
        ],
      ] as const) {
        refused(await on.put(`/guardrails/${id}`, body), 400, 'AB01', param);
      }
      refused(await on.post('/guardrails', inWorkspace({ checks: [shown] })), 400, 'AB01', `${path}.headers.x-key`);
      expect((await read(id)).version_id).toBe(version_id);
      expect(await opened(id)).toEqual([hook().parameters]);
    });
  });

  describe('where a guardrail is attached', () => {
    const over = (...targets: Record<string, unknown>[]): Record<string, unknown> => ({
      strategy: { mode: 'fallback' },
      targets: targets.map((one) => ('targets' in one ? one : { provider: '@main', ...one })),
    });
    const defaults = async (body: object) => ok(await on.put(DEFAULTS, body));
    const config = async (list: object, more: object = {}) =>
      on.post('/configs', { name: unique('config'), workspace_id: on.api.a.workspace_id, config: list, ...more });

    it('organisation defaults answer id and slug, in the order given, by id or slug', async () => {
      const [one, two] = [await make(ofOrganisation()), await make(ofOrganisation())];
      const wanted = {
        object: 'organisation-defaults',
        input_guardrails: [
          { id: two.id, slug: two.slug },
          { id: one.id, slug: one.slug },
        ],
        output_guardrails: [{ id: one.id, slug: one.slug }],
      };
      expect(
        await defaults({ input_guardrails: [two.slug, one.id.toUpperCase()], output_guardrails: [one.slug] }),
      ).toEqual(wanted);
      expect(ok(await on.get(DEFAULTS))).toEqual(wanted);
      expect(await defaults({ output_guardrails: [] })).toEqual({ ...wanted, output_guardrails: [] });
      expect(await defaults({})).toEqual({ ...wanted, output_guardrails: [] });
      await defaults({ input_guardrails: [] });
    });

    it('organisation defaults take only active guardrails of the organisation for calls of models', async () => {
      const good = await make(ofOrganisation());
      const archived = await make(ofOrganisation());
      ok(await on.del(`/guardrails/${archived.id}`));
      const foreign = ok(
        await on.post(
          '/guardrails',
          ofOrganisation({ organisation_id: on.api.b.organisation_id }),
          on.api.b.admin_api_key,
        ),
      );
      const names = [
        (await make()).id,
        (await make(ofOrganisation({ target: 'mcp_tools' }))).slug,
        archived.id,
        archived.slug,
        foreign.id,
        foreign.slug,
        good.slug.toUpperCase(),
        NOBODY,
        'pg-none',
        'constructor',
      ];
      await defaults({ input_guardrails: [good.id], output_guardrails: [] });
      for (const field of ['input_guardrails', 'output_guardrails']) {
        for (const name of names)
          refused(await on.put(DEFAULTS, { [field]: [good.id, name] }), 400, 'AB01', `${field}[1]`);
        refused(await on.put(DEFAULTS, { [field]: [good.id, good.slug] }), 400, 'AB01', `${field}[1]`);
        refused(await on.put(DEFAULTS, { [field]: null }), 400, 'AB01', field);
        refused(await on.put(DEFAULTS, { [field]: good.id }), 400, 'AB01', field);
        refused(await on.put(DEFAULTS, { [field]: [{ id: good.id }] }), 400, 'AB01', `${field}[0]`);
      }
      expect(ok(await on.get(DEFAULTS))).toMatchObject({
        input_guardrails: [{ id: good.id, slug: good.slug }],
        output_guardrails: [],
      });
      await defaults({ input_guardrails: [] });
    });

    it('workspace defaults and configs take those of the workspace and of the organisation', async () => {
      const [own, shared] = [await make(), await make(ofOrganisation())];
      const elsewhere = await make(inWorkspace({ workspace_id: on.second.id }));
      const tools = await make(inWorkspace({ target: 'mcp_tools' }));
      const archived = await make();
      ok(await on.del(`/guardrails/${archived.id}`));
      const path = `/admin/workspaces/${on.api.a.workspace_id}`;
      const good = [own.slug, shared.id];
      ok(await on.put(path, { defaults: { input_guardrails: good, output_guardrails: [shared.slug] } }));
      expect(ok(await on.get(path)).defaults).toMatchObject({ input_guardrails: good });
      ok(await config({ input_guardrails: good, ...over({ output_guardrails: [own.id.toUpperCase()] }) }));
      for (const name of [elsewhere.id, elsewhere.slug, tools.slug, archived.id, archived.slug, NOBODY, 'pg-none']) {
        for (const list of ['input_guardrails', 'output_guardrails']) {
          const named = { [list]: [own.slug, name] };
          refused(await on.put(path, { defaults: named }), 400, 'AB01', `defaults.${list}[1]`);
          refused(await config(named), 400, 'AB01', `config.${list}[1]`);
          refused(await config(over({}, named)), 400, 'AB01', `config.targets[1].${list}[1]`);
        }
      }
      ok(await on.put(path, { defaults: { input_guardrails: null, output_guardrails: null } }));
    });

    it('an exemption is of one direction, and of the organisation’s defaults only', async () => {
      const [shared, own] = [await make(ofOrganisation()), await make(inWorkspace({ workspace_id: on.second.id }))];
      const [everywhere, here] = [shared.id, own.id].map((id) => ({ input_guardrails: [id], output_guardrails: [id] }));
      const workspace = `/admin/workspaces/${on.second.id}`;
      const exempt = (excluded: boolean) =>
        on.put('/workspace-exclusions/input-guardrails', { workspaces: [{ workspace_id: on.second.id, excluded }] });
      await defaults(everywhere ?? {});
      ok(await on.put(workspace, { defaults: here }));
      ok(await exempt(true));
      const all = { organisation: [shared.id], workspace: [own.id] };
      expect((await on.load(on.second.id)).defaultGuardrails).toEqual({
        input: { ...all, organisation: [] },
        output: all,
      });
      ok(await exempt(false));
      expect((await on.load(on.second.id)).defaultGuardrails).toEqual({ input: all, output: all });
      ok(await on.put(workspace, { defaults: { input_guardrails: null, output_guardrails: null } }));
      await defaults({ input_guardrails: [], output_guardrails: [] });
    });

    it('exemptions stand beside the defaults and outlive their changes', async () => {
      const { id } = await make(ofOrganisation());
      const exclusions = '/workspace-exclusions/input-guardrails';
      await defaults({ input_guardrails: [id] });
      const workspaces = [{ workspace_id: on.second.slug, excluded: true }];
      ok(await on.put(exclusions, { workspaces, override_existing: true }));
      await defaults({ input_guardrails: [] });
      expect(ok(await on.get(exclusions))).toMatchObject({ total: 1, workspaces: [{ workspace_id: on.second.id }] });
      ok(await on.put(exclusions, { workspaces: [], override_existing: true }));
    });

    it('while it is used it cannot be deleted, and the answer says where', async () => {
      const workspace = `/admin/workspaces/${on.second.id}`;
      const free = async (id: string, told: RegExp, release: () => Promise<unknown>) => {
        const answer = await on.del(`/guardrails/${id}`);
        refused(answer, 409, 'AB07', null);
        expect(answer.body.error.message).toMatch(told);
        expect((await read(id)).status).toBe('active');
        await release();
        expect(ok(await on.del(`/guardrails/${id}`))).toEqual({});
      };
      const first = await make(ofOrganisation());
      await defaults({ output_guardrails: [first.slug] });
      await free(first.id, /default of the organisation Alpha/, () => defaults({ output_guardrails: [] }));

      for (const spell of [(one: { id: string }) => one.id.toUpperCase(), (one: { slug: string }) => one.slug]) {
        const second = await make(inWorkspace({ workspace_id: on.second.id }));
        ok(await on.put(workspace, { defaults: { input_guardrails: [spell(second)] } }));
        await free(second.id, /default of the workspace ws-second/, () =>
          on.put(workspace, { defaults: { input_guardrails: null } }),
        );
      }

      const third = await make();
      const made = ok(await config(over(over({ output_guardrails: [third.id.toUpperCase()] }))));
      await free(third.slug, new RegExp(`config ${made.slug}`), () => on.del(`/configs/${made.slug}`));

      const fourth = await make(ofOrganisation());
      const used = ok(await config({ input_guardrails: [fourth.slug] }));
      await free(fourth.id, new RegExp(`config ${used.slug}`), () =>
        on.put(`/configs/${used.slug}`, { config: { retry: { attempts: 1 } } }),
      );
    });

    it('a config that names a deleted guardrail cannot become active again', async () => {
      const { id, slug } = await make();
      const made = ok(await config({ input_guardrails: [slug] }));
      ok(await on.put(`/configs/${made.slug}`, { status: 'archived' }));
      ok(await on.del(`/guardrails/${id}`));
      const again = await on.put(`/configs/${made.slug}`, { status: 'active' });
      refused(again, 400, 'AB01', 'config.input_guardrails[0]');
      ok(await on.put(`/configs/${made.slug}`, { status: 'active', config: { retry: { attempts: 1 } } }));
    });
  });

  describe('MCP servers of a guardrail', () => {
    const server = (n: number) => `00000000-0000-7000-8000-0000000000${n}0`;
    const tool = (n: number) => `00000000-0000-7000-8000-000000000${n}00`;
    const tools = async (more: object = {}) => make(inWorkspace({ target: 'mcp_tools', ...more }));
    const list = async (id: string) => ok(await on.get(`/guardrails/${id}/mcp-servers`));
    const replace = (id: string, mcp_servers: object) => on.put(`/guardrails/${id}/mcp-servers`, { mcp_servers });
    const BOTH = ['beforeToolCall', 'afterToolCall'];

    it('are replaced as a whole, and what changed is counted', async () => {
      const { id, slug } = await tools();
      expect(await list(id)).toEqual([]);
      const first = ok(
        await replace(id, {
          [server(1)]: {},
          [server(2)]: { run_on: ['beforeToolCall'], capability_ids: [tool(1), tool(2), tool(1)] },
        }),
      );
      expect(first).toEqual({ changed: true, added: 2, updated: 0, removed: 0 });
      const stored = await list(slug);
      const mapping = { id: expect.stringMatching(UUID), guardrail_id: id };
      expect(stored).toHaveLength(2);
      expect(stored).toContainEqual({ ...mapping, mcp_server_id: server(1), run_on: BOTH, capability_ids: [] });
      expect(stored).toContainEqual({
        ...mapping,
        mcp_server_id: server(2),
        run_on: ['beforeToolCall'],
        capability_ids: [tool(1), tool(2)],
      });
      expect((await read(id)).mcp_server_mappings).toEqual(stored);
      expect(ok(await replace(slug, { [server(2)]: {}, [server(3)]: { run_on: ['output'] } }))).toEqual({
        changed: true,
        added: 1,
        updated: 1,
        removed: 1,
      });
      const after = await list(id);
      expect(after.map((one: { mcp_server_id: string }) => one.mcp_server_id).sort()).toEqual([server(2), server(3)]);
      expect(after).toContainEqual({ ...mapping, mcp_server_id: server(2), run_on: BOTH, capability_ids: [] });
      const same = { [server(2).toUpperCase()]: { run_on: BOTH }, [server(3)]: { run_on: ['afterToolCall'] } };
      expect(ok(await replace(id, same))).toEqual({ changed: false, added: 0, updated: 0, removed: 0 });
      expect(await list(id)).toEqual(after);
      expect(ok(await replace(id, {}))).toEqual({ changed: true, added: 0, updated: 0, removed: 2 });
      expect(await list(id)).toEqual([]);
    });

    it('one alone is added, changed where the body says so, and taken away', async () => {
      const { id, slug } = await tools();
      const path = (name: string) => `/guardrails/${name}/mcp-servers/${server(1)}`;
      const made = ok(await on.put(path(slug), { capability_ids: [tool(1)] }));
      expect(made).toEqual({ map_id: expect.stringMatching(UUID) });
      expect(ok(await on.put(path(`guard_${id}`), { run_on: ['input'] }))).toEqual(made);
      expect(await list(id)).toEqual([
        {
          id: made.map_id,
          guardrail_id: id,
          mcp_server_id: server(1),
          run_on: ['beforeToolCall'],
          capability_ids: [tool(1)],
        },
      ]);
      ok(await on.put(path(id), { mcp_integration_capability_ids: [] }));
      expect((await list(id))[0]).toMatchObject({ run_on: ['beforeToolCall'], capability_ids: [] });
      expect(ok(await on.del(path(slug).replace(server(1), server(1).toUpperCase())))).toEqual({});
      refused(await on.del(path(id)), 404, 'AB08', null);
      refused(await on.del(`/guardrails/${id}/mcp-servers/a-slug`), 404, 'AB08', null);
    });

    it('input and output are the older names of the phases, each told once', async () => {
      const { id } = await tools();
      ok(await replace(id, { [server(1)]: { run_on: ['output', 'afterToolCall', 'input'] } }));
      expect((await list(id))[0].run_on).toEqual(['afterToolCall', 'beforeToolCall']);
    });

    it.each<[string, unknown, string]>([
      ['no servers', {}, 'mcp_servers'],
      ['a list', { mcp_servers: [] }, 'mcp_servers'],
      ['null', { mcp_servers: null }, 'mcp_servers'],
      ['a server that is no UUID', { mcp_servers: { mine: {} } }, 'mcp_servers.mine'],
      ['an inherited name', { mcp_servers: { constructor: {} } }, 'mcp_servers.constructor'],
      ['a mapping of null', { mcp_servers: { [server(1)]: null } }, `mcp_servers.${server(1)}`],
      ['no phase', { mcp_servers: { [server(1)]: { run_on: [] } } }, `mcp_servers.${server(1)}.run_on`],
      ['a phase alone', { mcp_servers: { [server(1)]: { run_on: 'input' } } }, `mcp_servers.${server(1)}.run_on`],
      [
        'an unknown phase',
        { mcp_servers: { [server(1)]: { run_on: ['input', 'before'] } } },
        `mcp_servers.${server(1)}.run_on[1]`,
      ],
      [
        'a tool that is no UUID',
        { mcp_servers: { [server(1)]: { capability_ids: [tool(1), 'search'] } } },
        `mcp_servers.${server(1)}.capability_ids[1]`,
      ],
      [
        'tools under both names',
        { mcp_servers: { [server(1)]: { capability_ids: [], mcp_integration_capability_ids: [] } } },
        `mcp_servers.${server(1)}.mcp_integration_capability_ids`,
      ],
      ['an unknown field', { mcp_servers: { [server(1)]: { tools: [] } } }, `mcp_servers.${server(1)}.tools`],
    ])('%s is refused, and nothing changes', async (_title, body, param) => {
      const { id } = await tools();
      ok(await replace(id, { [server(5)]: {} }));
      const before = await list(id);
      const answer = await on.put(`/guardrails/${id}/mcp-servers`, body);
      expect([answer.status, answer.body.error.code]).toEqual([400, 'AB01']);
      // A UUID in a path is written with brackets or dots; both name the field.
      expect(answer.body.error.param.replaceAll(/\["([^"]*)"\]/g, '.$1')).toBe(param);
      expect(await list(id)).toEqual(before);
    });

    it('one server under two spellings is named twice', async () => {
      const { id } = await tools();
      const id1 = 'abcdef00-0000-7000-8000-000000000000';
      const answer = await replace(id, { [id1]: {}, [id1.toUpperCase()]: {} });
      expect([answer.status, answer.body.error.code]).toEqual([400, 'AB01']);
      expect(await list(id)).toEqual([]);
    });

    it('a guardrail of calls of models has none: 400 on every one of these routes', async () => {
      const { id, slug } = await make();
      for (const name of [id, slug]) {
        const path = `/guardrails/${name}/mcp-servers`;
        for (const answer of [
          await on.get(path),
          await replace(name, {}),
          await on.put(`${path}/${server(1)}`, {}),
          await on.del(`${path}/${server(1)}`),
        ]) {
          refused(answer, 400, 'AB01', 'guardrailId');
        }
      }
    });

    it('reading needs guardrails.read and writing guardrails.update, of the level of the guardrail', async () => {
      const { id } = await tools();
      const shared = await make(ofOrganisation({ target: 'mcp_tools' }));
      const reader = ok(
        await on.post('/api-keys/workspace/service', {
          name: unique('key'),
          scopes: ['guardrails.read', 'guardrails.create', 'guardrails.delete', 'guardrails.list'],
          workspace_id: on.api.a.workspace_id,
        }),
      ).key;
      const path = `/guardrails/${id}/mcp-servers`;
      ok(await on.get(path, reader));
      for (const answer of [
        await on.put(path, { mcp_servers: {} }, reader),
        await on.put(`${path}/${server(1)}`, {}, reader),
        await on.del(`${path}/${server(1)}`, reader),
      ]) {
        expect([answer.status, answer.body.error.code]).toEqual([403, 'AB03']);
      }
      refused(await on.get(`/guardrails/${shared.id}/mcp-servers`, on.mine), 404, 'AB08', null);
      for (const [level, other] of [
        ['guardrails', shared.id],
        ['organisation_guardrails', id],
      ]) {
        const scopes = ['read', 'update'].map((verb) => `${level}.${verb}`);
        const made = await on.post('/api-keys/organisation/service', { name: unique('key'), scopes });
        const servers = `/guardrails/${other}/mcp-servers`;
        for (const answer of [
          await on.get(servers, ok(made).key),
          await on.put(servers, { mcp_servers: {} }, ok(made).key),
          await on.put(`${servers}/${server(1)}`, {}, ok(made).key),
          await on.del(`${servers}/${server(1)}`, ok(made).key),
        ]) {
          expect([answer.status, answer.body.error.code]).toEqual([403, 'AB03']);
        }
      }
      refused(await on.get(path, on.api.b.admin_api_key), 404, 'AB08', null);
    });

    it('each write leaves one audit row with what stood before and after', async () => {
      const { id } = await tools();
      ok(await replace(id, { [server(1)]: {} }));
      ok(await on.put(`/guardrails/${id}/mcp-servers/${server(1)}`, { run_on: ['input'] }));
      ok(await on.del(`/guardrails/${id}/mcp-servers/${server(1)}`));
      const rows = await on.api.tables.systemRead((tx) =>
        tx.list('audit_log', { where: { resource_id: id }, orderBy: [['seq', 'asc']] }),
      );
      expect(rows.map(({ method, action }) => `${method} ${action}`)).toEqual([
        'POST create',
        'PUT update',
        'PUT update',
        'DELETE update',
      ]);
      const [, , changed, gone] = rows.map(({ before, after }) => [
        JSON.parse(before ?? 'null'),
        JSON.parse(after ?? 'null'),
      ]);
      expect(changed).toMatchObject([{ run_on: BOTH }, { run_on: ['beforeToolCall'] }]);
      expect(gone).toMatchObject([{ mcp_server_id: server(1) }, null]);
    });
  });
});
