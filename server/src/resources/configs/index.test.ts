import { describe, expect, it } from 'vitest';
import { CANARY, MASK, ok, onBothStores, refused } from '../../../test/support/accounts.ts';

onBothStores((on) => {
  const body = (config: unknown = { provider: '@sandbox' }) => ({ name: 'Testco', config });

  it('create answers ids, get answers what was saved, as an object', async () => {
    const config = { provider: 'openai', custom_host: 'https://h.example/v1', retry: { attempts: 2 } };
    const created = ok(await on.post('/configs', body(config), on.mine));
    expect(created).toEqual({
      id: expect.any(String),
      slug: expect.stringMatching(/^pc-testco-[0-9a-f]{6}$/),
      version_id: expect.any(String),
      object: 'config',
    });
    const shown = ok(await on.get(`/configs/${created.slug}`, on.mine));
    expect(shown).toEqual({
      ...created,
      name: 'Testco',
      organisation_id: on.api.a.organisation_id,
      workspace_id: on.api.a.workspace_id,
      is_default: 0,
      status: 'active',
      owner_id: expect.any(String),
      updated_by: null,
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      last_updated_at: expect.any(String),
      config,
      format: 'json',
      type: 'ORG_CONFIG',
    });
    const list = ok(await on.get('/configs?page_size=100', on.mine));
    const listed = list.data.find((one: { id: string }) => one.id === created.id);
    expect(listed).toMatchObject({ slug: created.slug, object: 'config' });
    expect(listed).not.toHaveProperty('config');
  });

  it('a config may come as JSON text, and duplicate keys in it are refused', async () => {
    const created = ok(await on.post('/configs', body('{"virtualKey":"a"}'), on.mine));
    expect(ok(await on.get(`/configs/${created.id}`, on.mine)).config).toEqual({ virtual_key: 'a' });
    refused(await on.post('/configs', body('{"retry":{},"retry":{}}'), on.mine), 400, 'AB01', 'config');
    refused(await on.post('/configs', body('nonsense'), on.mine), 400, 'AB01', 'config');
  });

  it('a config may name more guardrails and providers than one statement of the store takes', async () => {
    const many = (count: number, name: string) => Array.from({ length: count }, (_, i) => `${name}${i}`);
    const inner = (i: number, more: readonly object[]) => ({
      name: `t${i}`,
      strategy: { mode: 'fallback' },
      targets: more,
    });
    const spread = (of: (i: number) => object[]) => ({
      // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
      strategy: { mode: 'conditional', conditions: [{ query: {}, then: 't0' }], default: 't0' },
      targets: Array.from({ length: 800 }, (_, i) => inner(i, of(i))),
    });
    const guardrails = spread((i) => [{ provider: '@a', input_guardrails: many(45, `g${i}x`) }]);
    const at = 'config.targets[0].targets[0].input_guardrails[0]';
    refused(await on.post('/configs', body(guardrails), on.mine), 400, 'AB01', at);
    const providers = spread((i) => many(18, `@p${i}x`).map((provider) => ({ provider })));
    const saved = await on.post('/configs', body(providers), on.mine);
    expect(ok(saved).warnings).toHaveLength(100);
  });

  it.each<[string, unknown, number, string, string | null]>([
    ['no name', { config: {} }, 400, 'AB01', 'name'],
    ['an empty name', { name: '', config: {} }, 400, 'AB01', 'name'],
    ['no config', { name: 'x' }, 400, 'AB01', 'config'],
    ['an unknown field', { ...body(), colour: 1 }, 400, 'AB01', 'colour'],
    ['isDefault 2', { ...body(), isDefault: 2 }, 400, 'AB01', 'isDefault'],
    ['an incomplete config', body({}), 400, 'AB01', 'config'],
    ['an unknown key', body({ provider: '@a', x: 1 }), 400, 'AB01', 'config.x'],
    [
      'a bad target',
      body({ strategy: { mode: 'single' }, targets: [{ provider: '@a', retry: { attempts: 9 } }] }),
      400,
      'AB01',
      'config.targets[0].retry.attempts',
    ],
    [
      'an unknown input guardrail',
      body({ input_guardrails: [{ deny: true, 'default.wordCount': {} }, 'pg-x'] }),
      400,
      'AB01',
      'config.input_guardrails[1]',
    ],
    [
      'an unknown guardrail that a raw hook names',
      body({ before_request_hooks: [{ id: 'pg-x', deny: true }] }),
      400,
      'AB01',
      'config.before_request_hooks[0].id',
    ],
    [
      'an unknown output guardrail in a target',
      body({ strategy: { mode: 'single' }, targets: [{ output_guardrails: ['pg-x'] }] }),
      400,
      'AB01',
      'config.targets[0].output_guardrails[0]',
    ],
    ['a refused host', body({ provider: 'openai', custom_host: 'http://h' }), 400, 'AB01', 'config.custom_host'],
    [
      'a host with a query',
      body({ provider: 'openai', custom_host: 'https://h.example/v1?key=x' }),
      400,
      'AB01',
      'config.custom_host',
    ],
    ['a mask', body({ provider: 'openai', api_key: '*******deadbeef' }), 400, 'AB01', 'config.api_key'],
  ])('create with %s is refused', async (_case, input, status, code, param) => {
    refused(await on.post('/configs', input, on.mine), status, code, param);
  });

  it('an organisation key must name the workspace, and an unknown one is AB02', async () => {
    refused(await on.post('/configs', body()), 400, 'AB01', 'workspace_id');
    refused(await on.post('/configs', { ...body(), workspace_id: 'ws-nowhere' }), 404, 'AB02', 'workspace_id');
    const created = ok(await on.post('/configs', { ...body(), workspace_id: on.second.slug }));
    expect(ok(await on.get(`/configs/${created.slug}`)).workspace_id).toBe(on.second.id);
    refused(await on.get(`/configs/${created.slug}`, on.mine), 404, 'AB08', null);
    refused(await on.get(`/configs/${created.slug}`, on.api.b.admin_api_key), 404, 'AB08', null);
  });

  it('providers and virtual keys that do not exist may be named', async () => {
    ok(await on.post('/configs', body({ provider: '@not-yet' }), on.mine));
    ok(await on.post('/configs', body({ virtual_key: 'not-yet' }), on.mine));
  });

  it('every update of the config is a new version; versions list newest first and stay readable', async () => {
    const created = ok(await on.post('/configs', body({ provider: '@one' }), on.mine));
    const renamed = ok(await on.put(`/configs/${created.slug}`, { name: 'New' }, on.mine));
    expect(renamed).toEqual({ version_id: created.version_id });
    const { version_id } = ok(await on.put(`/configs/${created.slug}`, { config: { provider: '@two' } }, on.mine));
    expect(version_id).not.toBe(created.version_id);
    const shown = ok(await on.get(`/configs/${created.slug}`, on.mine));
    expect(shown).toMatchObject({ name: 'New', version_id, config: { provider: '@two' } });
    expect(shown.updated_by).not.toBeNull();
    const list = ok(await on.get(`/configs/${created.slug}/versions`, on.mine));
    expect(list).toMatchObject({ object: 'list', total: 2 });
    expect(list.data.map((one: { config: unknown }) => one.config)).toEqual([
      { provider: '@two' },
      { provider: '@one' },
    ]);
    const old = ok(await on.get(`/configs/${created.id}/versions/${created.version_id}`, on.mine));
    expect(old).toMatchObject({ config: { provider: '@one' }, version_id: created.version_id, format: 'json' });
    refused(await on.get(`/configs/${created.id}/versions/nope`, on.mine), 404, 'AB08', null);
    const { configs } = await on.load();
    const row = configs.find((one) => one.row.id === created.id);
    expect(await row?.open()).toEqual({ provider: '@two' });
  });

  it('a former version can be made the current one again, its credentials with it; no version is lost', async () => {
    const first = { provider: 'openai', api_key: CANARY, custom_host: 'https://h.example/v1' };
    const created = ok(await on.post('/configs', body(first), on.mine));
    ok(await on.put(`/configs/${created.slug}`, { config: { provider: '@two' } }, on.mine));
    const path = `/configs/${created.slug}/versions`;
    const { version_id } = ok(await on.post(`${path}/${created.version_id}/restore`, undefined, on.mine));
    const shown = ok(await on.get(`/configs/${created.slug}`, on.mine));
    expect(shown).toMatchObject({
      version_id,
      config: { provider: 'openai', masked_api_key: expect.stringMatching(MASK) },
    });
    const { data } = ok(await on.get(path, on.mine));
    expect(data.map((one: { config: { provider: string } }) => one.config.provider)).toEqual([
      'openai',
      '@two',
      'openai',
    ]);
    expect(new Set(data.map((one: { version_id: string }) => one.version_id)).size).toBe(3);
    refused(await on.post(`${path}/nope/restore`, undefined, on.mine), 404, 'AB08', null);
    ok(await on.del(`/configs/${created.slug}`, on.mine));
    refused(await on.post(`${path}/${version_id}/restore`, undefined, on.mine), 404, 'AB08', null);
  });

  it('a refused update changes nothing: neither version, nor name, nor what the data plane gets', async () => {
    const good = { provider: '@one', retry: { attempts: 1 } };
    const created = ok(await on.post('/configs', body(good), on.mine));
    const path = `/configs/${created.slug}`;
    const before = ok(await on.get(path, on.mine));
    const targets = [{ provider: '@two' }, { provider: '@three', retry: { attempts: 9 } }];
    for (const [config, param] of [
      [{ strategy: { mode: 'fallback' }, targets }, 'config.targets[1].retry.attempts'],
      [{ strategy: { mode: 'fallback' }, targets: [{ provider: '@two' }, {}] }, 'config.targets[1]'],
      [{ provider: '@two', input_guardrails: ['pg-nobody'] }, 'config.input_guardrails[0]'],
      [{ provider: '@two', colour: 1 }, 'config.colour'],
      ['{"provider":"@two"', 'config'],
    ] as const)
      refused(await on.put(path, { name: 'Changed', config }, on.mine), 400, 'AB01', param);
    refused(await on.put(path, { name: 'Changed', config: good, status: 'gone' }, on.mine), 400, 'AB01', 'status');
    expect(ok(await on.get(path, on.mine))).toEqual(before);
    expect(ok(await on.get(`${path}/versions`, on.mine)).total).toBe(1);
    const { configs } = await on.load();
    expect(await configs.find((one) => one.row.slug === created.slug)?.open()).toEqual(good);
  });

  it('updates that meet are versions one after the other, and the newest of them is the current one', async () => {
    const created = ok(await on.post('/configs', body({ provider: '@v0' }), on.mine));
    const path = `/configs/${created.slug}`;
    const config = (n: number) => (n % 4 === 3 ? { provider: '@bad', retry: { attempts: n } } : { provider: `@v${n}` });
    const many = Array.from({ length: 16 }, (_, i) => i + 7);
    const answers = await Promise.all([
      ...many.map((n) => on.put(path, { config: config(n) }, on.mine)),
      on.post(`${path}/versions/${created.version_id}/restore`, undefined, on.mine),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([...many.map((n) => (n % 4 === 3 ? 400 : 200)), 200]);
    const ids = answers.filter(({ status }) => status === 200).map((answer) => ok(answer).version_id);
    const list = ok(await on.get(`${path}/versions?page_size=100`, on.mine));
    const listed = list.data.map((one: { version_id: string }) => one.version_id);
    expect(list.total).toBe(14);
    expect(new Set(listed)).toEqual(new Set([created.version_id, ...ids]));
    expect(listed.at(-1)).toBe(created.version_id);
    const rows = await on.api.tables.systemRead((tx) =>
      tx.list('config_versions', { where: { config_id: created.id }, orderBy: [['number', 'desc']] }),
    );
    expect(rows.map(({ number }) => number)).toEqual(Array.from({ length: 14 }, (_, i) => 14 - i));
    const shown = ok(await on.get(path, on.mine));
    expect(shown.version_id).toBe(listed[0]);
    expect(shown.config).toEqual(list.data[0].config);
    const { configs } = await on.load();
    expect(await configs.find((one) => one.row.slug === created.slug)?.open()).toEqual(shown.config);
  });

  it('versions come in pages, and those of another config are not found', async () => {
    const [one, other] = [
      ok(await on.post('/configs', body({ provider: '@one' }), on.mine)),
      ok(await on.post('/configs', body({ provider: '@other' }), on.mine)),
    ];
    for (let n = 2; n <= 5; n++) ok(await on.put(`/configs/${one.slug}`, { config: { provider: `@n${n}` } }, on.mine));
    const pages: string[] = [];
    for (const page of [0, 1, 2]) {
      const list = ok(await on.get(`/configs/${one.slug}/versions?page_size=2&current_page=${page}`, on.mine));
      expect(list.total).toBe(5);
      pages.push(list.data.map((version: { config: { provider: string } }) => version.config.provider).join(' '));
    }
    expect(pages).toEqual(['@n5 @n4', '@n3 @n2', '@one']);
    for (const path of [
      `/configs/${one.slug}/versions/${other.version_id}`,
      `/configs/${other.slug}/versions/${one.version_id}`,
    ])
      refused(await on.get(path, on.mine), 404, 'AB08', null);
    refused(
      await on.post(`/configs/${one.slug}/versions/${other.version_id}/restore`, undefined, on.mine),
      404,
      'AB08',
      null,
    );
    expect(ok(await on.get(`/configs/${one.slug}`, on.mine)).config).toEqual({ provider: '@n5' });
  });

  it('a former version that names what is there no more is not brought back', async () => {
    const guardrail = ok(
      await on.post(
        '/guardrails',
        { name: 'gone', checks: [{ id: 'default.contains', parameters: { words: ['x'] } }] },
        on.mine,
      ),
    );
    const created = ok(await on.post('/configs', body({ input_guardrails: [guardrail.slug] }), on.mine));
    ok(await on.put(`/configs/${created.slug}`, { config: { provider: '@two' } }, on.mine));
    ok(await on.del(`/guardrails/${guardrail.slug}`, on.mine));
    const path = `/configs/${created.slug}/versions/${created.version_id}/restore`;
    refused(await on.post(path, undefined, on.mine), 400, 'AB01', 'config.input_guardrails[0]');
    expect(ok(await on.get(`/configs/${created.slug}`, on.mine)).config).toEqual({ provider: '@two' });
  });

  it.each([
    ['by its slug', (slug: string) => ({ input_guardrails: [slug] })],
    ['as the id of an entry', (slug: string) => ({ input_guardrails: [{ id: slug }] })],
    ['as the id of a raw hook', (slug: string) => ({ before_request_hooks: [{ id: slug, deny: true }] })],
  ])('a guardrail that a config names %s is not deleted', async (_how, config) => {
    const checks = [{ id: 'default.contains', parameters: { words: ['x'] } }];
    const guardrail = ok(await on.post('/guardrails', { name: 'kept', checks }, on.mine));
    const created = ok(await on.post('/configs', body(config(guardrail.slug)), on.mine));
    refused(await on.del(`/guardrails/${guardrail.slug}`, on.mine), 409, 'AB07', null);
    ok(await on.del(`/configs/${created.slug}`, on.mine));
    ok(await on.del(`/guardrails/${guardrail.slug}`, on.mine));
  });

  it('raw credentials are sealed at rest, masked in answers and opened for the data plane', async () => {
    const account = { type: 'service_account', private_key: CANARY };
    const config = {
      strategy: { mode: 'fallback' },
      targets: [
        { provider: 'openai', api_key: CANARY },
        { provider: 'vertex-ai', vertex_service_account_json: account },
      ],
    };
    const created = ok(await on.post('/configs', body(config), on.mine));
    const answer = await on.get(`/configs/${created.slug}`, on.mine);
    expect(answer.text).not.toContain(CANARY);
    expect(ok(answer).config.targets).toEqual([
      { provider: 'openai', masked_api_key: expect.stringMatching(MASK) },
      { provider: 'vertex-ai', masked_vertex_service_account_json: expect.stringMatching(MASK) },
    ]);
    const stored = await on.api.tables.systemRead((tx) => tx.find('config_versions', { id: created.version_id }));
    expect(JSON.stringify(stored)).not.toContain(CANARY);
    const { configs } = await on.load();
    expect(await configs.find((one) => one.row.id === created.id)?.open()).toEqual(config);
    const back = await on.put(`/configs/${created.slug}`, { config: ok(answer).config }, on.mine);
    refused(back, 400, 'AB01', 'config.targets[0].masked_api_key');
  });

  describe('secrets of checks that stand in a config', () => {
    const hook = (headers: object, webhookURL: unknown = 'https://hook.example/') => ({ webhookURL, headers });
    const config = (headers: object = { 'x-key': CANARY, 'x-team': `${CANARY}2` }, url?: string) => ({
      provider: '@sandbox',
      input_guardrails: [{ id: 'inline', deny: true, 'default.webhook': hook(headers, url) }],
      strategy: { mode: 'fallback' },
      targets: [
        {
          after_request_hooks: [
            { id: 'raw', checks: [{ id: 'lakera.guard', parameters: { credentials: { apiKey: CANARY } } }] },
          ],
        },
      ],
    });
    type Shown = ReturnType<typeof config>;
    const openedNow = async (slug: string) => {
      const { configs } = await on.load();
      return configs.find((one) => one.row.slug === slug)?.open();
    };

    it('are sealed at rest, masked in answers and versions, and opened for the data plane', async () => {
      const created = ok(await on.post('/configs', body(config()), on.mine));
      for (const path of ['', '/versions', `/versions/${created.version_id}`]) {
        const answer = await on.get(`/configs/${created.slug}${path}`, on.mine);
        expect(answer.text).toContain('x-key');
        expect(answer.text).not.toContain(CANARY);
      }
      const shown = ok(await on.get(`/configs/${created.slug}`, on.mine)).config as Shown;
      expect(shown.input_guardrails[0]?.['default.webhook']).toEqual(
        hook(
          { 'x-key': expect.stringMatching(MASK), 'x-team': expect.stringMatching(MASK) },
          expect.stringMatching(/^https:\/\/hook\.example\/\*{7}[0-9a-f]{8}$/),
        ),
      );
      expect(shown.targets[0]?.after_request_hooks[0]?.checks[0]?.parameters.credentials).toEqual({
        apiKey: expect.stringMatching(MASK),
      });
      const stored = await on.api.tables.systemRead((tx) => tx.find('config_versions', { id: created.version_id }));
      expect(JSON.stringify(stored)).not.toContain(CANARY);
      expect(await openedNow(created.slug)).toEqual(config());
    });

    it('are kept by their masks, wherever the check stands then', async () => {
      const created = ok(await on.post('/configs', body(config()), on.mine));
      const { config: shown } = ok(await on.get(`/configs/${created.slug}`, on.mine)) as { config: Shown };
      const first = { id: 'first', 'default.wordCount': {} };
      const moved = { ...shown, input_guardrails: [first, ...shown.input_guardrails] };
      ok(await on.put(`/configs/${created.slug}`, { config: moved }, on.mine));
      expect(await openedNow(created.slug)).toEqual({
        ...config(),
        input_guardrails: [first, ...config().input_guardrails],
      });
    });

    it.each([
      ['a mask of nothing', () => config({ 'x-key': '*******deadbeef' }), '.headers.x-key'],
      [
        'another address',
        ({ input_guardrails: [one] }: Shown) => config(one?.['default.webhook'].headers, 'https://other.example/'),
        '',
      ],
    ])('are not kept under %s', async (_, change, at) => {
      const created = ok(await on.post('/configs', body(config()), on.mine));
      const { config: shown } = ok(await on.get(`/configs/${created.slug}`, on.mine)) as { config: Shown };
      const answer = await on.put(`/configs/${created.slug}`, { config: change(shown) }, on.mine);
      refused(answer, 400, 'AB01', `config.input_guardrails[0].default.webhook${at}`);
      expect(await openedNow(created.slug)).toEqual(config());
    });

    it('that were stored before they were sealed are masked, opened, kept by their masks, and sealed when they are saved', async () => {
      const created = ok(await on.post('/configs', body(config()), on.mine));
      await on.api.tables.systemWrite((tx) =>
        tx.update('config_versions', { id: created.version_id }, { config: config() }),
      );
      const answer = await on.get(`/configs/${created.slug}`, on.mine);
      expect(answer.text).not.toContain(CANARY);
      const { config: shown } = ok(answer) as { config: Shown };
      const headers = shown.input_guardrails[0]?.['default.webhook'].headers as Record<string, string> | undefined;
      const first = headers?.['x-key'];
      const second = headers?.['x-team'];
      expect([first, second]).toEqual([expect.stringMatching(MASK), expect.stringMatching(MASK)]);
      expect(first).not.toBe(second);
      expect(await openedNow(created.slug)).toEqual(config());

      const elsewhere = config({ 'x-key': first }, 'https://other.example/');
      const refusal = await on.put(`/configs/${created.slug}`, { config: elsewhere }, on.mine);
      refused(refusal, 400, 'AB01', 'config.input_guardrails[0].default.webhook');
      const saved = ok(await on.put(`/configs/${created.slug}`, { config: shown }, on.mine));
      expect(await openedNow(created.slug)).toEqual(config());
      const stored = await on.api.tables.systemRead((tx) => tx.find('config_versions', { id: saved.version_id }));
      expect(JSON.stringify(stored)).not.toContain(CANARY);
    });

    it('that were sealed and are damaged do not pass for plain ones', async () => {
      const created = ok(await on.post('/configs', body(config()), on.mine));
      const damaged = config({ 'x-key': 'slc1.damaged' });
      await on.api.tables.systemWrite((tx) =>
        tx.update('config_versions', { id: created.version_id }, { config: damaged }),
      );
      await expect(openedNow(created.slug)).rejects.toThrow('cannot be opened');
    });

    it('may not be masks in a new config', async () => {
      const answer = await on.post('/configs', body(config({ 'x-key': '*******deadbeef' })), on.mine);
      refused(answer, 400, 'AB01', 'config.input_guardrails[0].default.webhook.headers.x-key');
    });
  });

  it('a credential in a config sent as text is masked in the audit log', async () => {
    const config = JSON.stringify({ provider: 'openai', api_key: CANARY, custom_host: 'https://h.example' });
    ok(await on.post('/configs', { name: 'Audited', config }, on.mine));
    const rows = await on.api.tables.systemRead((tx) => tx.list('audit_log'));
    const bodies = rows.map((row) => row.request_body ?? '').join('\n');
    expect(bodies).toContain('Audited');
    expect(bodies).toContain('h.example');
    expect(bodies).not.toContain(CANARY);
  });

  it('one default per workspace', async () => {
    const first = ok(await on.post('/configs', { ...body(), isDefault: 1 }, on.mine));
    const next = ok(await on.post('/configs', { ...body(), isDefault: 1 }, on.mine));
    expect(ok(await on.get(`/configs/${first.slug}`, on.mine)).is_default).toBe(0);
    expect(ok(await on.get(`/configs/${next.slug}`, on.mine)).is_default).toBe(1);
  });

  it('delete archives; an update to active brings it back; nothing else does', async () => {
    const { slug } = ok(await on.post('/configs', body(), on.mine));
    expect(ok(await on.del(`/configs/${slug}`, on.mine))).toEqual({});
    refused(await on.get(`/configs/${slug}`, on.mine), 404, 'AB08', null);
    refused(await on.put(`/configs/${slug}`, { name: 'x' }, on.mine), 404, 'AB08', null);
    expect((await on.load()).configs.some((one) => one.row.slug === slug)).toBe(false);
    ok(await on.put(`/configs/${slug}`, { status: 'active' }, on.mine));
    ok(await on.get(`/configs/${slug}`, on.mine));
  });

  it.each(['id', 'slug'] as const)('delete is 409 while the workspace names it by %s as its default', async (name) => {
    const created = ok(await on.post('/configs', { ...body(), workspace_id: on.second.id }));
    const defaults = (value: string | undefined) =>
      on.api.tables.systemWrite((tx) =>
        tx.update('workspaces', { id: on.second.id }, { defaults: { user_api_key_config: value } }),
      );
    await defaults(created[name]);
    refused(await on.del(`/configs/${created.slug}`), 409, 'AB07', null);
    refused(await on.put(`/configs/${created.slug}`, { status: 'archived' }), 409, 'AB07', null);
    await defaults(undefined);
    ok(await on.del(`/configs/${created.slug}`));
  });
});
