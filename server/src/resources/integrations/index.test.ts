import { expect, it } from 'vitest';
import { CANARY, MASK, ok, onBothStores, refused, unique } from '../../../test/support/accounts.ts';

onBothStores((on) => {
  const openai = (more: object = {}) => ({ name: unique('Open AI'), ai_provider_id: 'openai', key: CANARY, ...more });

  it('create, get and list: the key is masked and comes back from nowhere', async () => {
    const tags = { team: unique('t') };
    const created = ok(await on.post('/integrations', openai({ slug: unique('oa'), description: 'd', tags })));
    expect(created).toEqual({
      id: expect.any(String),
      slug: expect.stringMatching(/^oa-/),
      provider_slug: null,
    });
    const answer = await on.get(`/integrations/${created.slug}`);
    expect(ok(answer)).toMatchObject({
      id: created.id,
      slug: created.slug,
      organisation_id: on.api.a.organisation_id,
      workspace_id: null,
      type: 'organisation',
      ai_provider_id: 'openai',
      description: 'd',
      status: 'active',
      masked_key: expect.stringMatching(MASK),
      configurations: {},
      allow_all_models: true,
      workspace_count: 2,
      secret_mappings: [],
      pricing_adjustments: null,
      global_workspace_access_settings: { enabled: true, usage_limits: [], rate_limits: [] },
      tags,
      object: 'integration',
    });
    expect(answer.text).not.toContain(CANARY);
    const stored = await on.api.tables.systemRead((tx) => tx.find('integrations', { id: created.id }));
    expect(stored?.key).toMatch(/^slc1\./);
    const byTag = ok(await on.get(`/integrations?tags=${encodeURIComponent(JSON.stringify(tags))}`));
    expect(byTag).toMatchObject({ total: 1, data: [{ id: created.id }] });
    expect(byTag.data[0]).not.toHaveProperty('configurations');
    expect(ok(await on.get(`/integrations?tags[team]=${tags.team}`)).total).toBe(1);
    expect(ok(await on.get(`/integrations?tags[team]=${tags.team}&tags[x]=y`)).total).toBe(0);
    refused(await on.get('/integrations?tags[a]=b&tags[a]=c'), 400, 'AB01', 'tags');
    refused(await on.get('/integrations?tags=x'), 400, 'AB01', 'tags');
    refused(await on.get(`/integrations/${created.slug}?include_configurations=true`), 403, 'AB03', null);
    refused(await on.get(`/integrations/${created.slug}`, on.api.b.admin_api_key), 404, 'AB08', null);
  });

  it.each<[string, object, number, string, string]>([
    ['no name', { name: undefined }, 400, 'AB01', 'name'],
    ['an unknown provider', { ai_provider_id: 'nobody' }, 400, 'AB01', 'ai_provider_id'],
    ['no key', { key: undefined }, 400, 'AB01', 'key'],
    ['a mask as key', { key: '*******0123abcd' }, 400, 'AB01', 'key'],
    ['a masked field', { masked_key: 'x' }, 400, 'AB01', 'masked_key'],
    ['a masked setting', { configurations: { masked_x: 'y' } }, 400, 'AB01', 'configurations.masked_x'],
    ['a slug with a space', { slug: 'a b' }, 400, 'AB01', 'slug'],
    ['an unknown setting', { configurations: { colour: 1 } }, 400, 'AB01', 'configurations.colour'],
    [
      'a setting of the wrong type',
      { configurations: { openai_organization: 1 } },
      400,
      'AB01',
      'configurations.openai_organization',
    ],
    ['a refused host', { configurations: { custom_host: 'http://h' } }, 400, 'AB01', 'configurations.custom_host'],
    [
      'a header that is no text',
      { configurations: { custom_headers: { a: 1 } } },
      400,
      'AB01',
      'configurations.custom_headers.a',
    ],
    [
      'a framing header',
      { configurations: { custom_headers: { Host: 'x' } } },
      400,
      'AB01',
      'configurations.custom_headers.Host',
    ],
    [
      'a session',
      { configurations: { custom_headers: { Cookie: 'a=b' } } },
      400,
      'AB01',
      'configurations.custom_headers.Cookie',
    ],
    [
      'a header that opens a metadata service',
      { configurations: { custom_headers: { 'Metadata-Flavor': 'x' } } },
      400,
      'AB01',
      'configurations.custom_headers.Metadata-Flavor',
    ],
    [
      'an unknown way of signing in',
      { configurations: { auth_type: 'magic' } },
      400,
      'AB01',
      'configurations.auth_type',
    ],
    [
      'OAuth without its secret',
      {
        configurations: {
          auth_type: 'oauthClientCredentials',
          oauth_token_endpoint: 'https://t',
          oauth_client_id: 'i',
        },
      },
      400,
      'AB01',
      'configurations.oauth_client_secret',
    ],
    [
      'OAuth fields without OAuth',
      { configurations: { oauth_client_id: 'i' } },
      400,
      'AB01',
      'configurations.oauth_client_id',
    ],
    [
      'a price factor below zero',
      { pricing_adjustments: { multiplier: { default: -1 } } },
      400,
      'AB01',
      'pricing_adjustments.multiplier.default',
    ],
    [
      'an unknown price factor',
      { pricing_adjustments: { multiplier: { x: 1 } } },
      400,
      'AB01',
      'pricing_adjustments.multiplier.x',
    ],
    ['pricing without multiplier', { pricing_adjustments: {} }, 400, 'AB01', 'pricing_adjustments.multiplier'],
    ['tags that are no text', { tags: { a: 1 } }, 400, 'AB01', 'tags.a'],
    [
      'a mapping to no field',
      { secret_mappings: [{ target_field: 'configurations.nope', secret_reference_id: 'r' }] },
      400,
      'AB01',
      'secret_mappings[0].target_field',
    ],
    [
      'a mapping of a virtual key',
      { secret_mappings: [{ target_field: 'model_config.x', secret_reference_id: 'r' }] },
      400,
      'AB01',
      'secret_mappings[0].target_field',
    ],
    [
      'two mappings of one field',
      {
        secret_mappings: [
          { target_field: 'key', secret_reference_id: 'r' },
          { target_field: 'key', secret_reference_id: 's' },
        ],
      },
      400,
      'AB01',
      'secret_mappings[1].target_field',
    ],
    [
      'a mapping to an unknown reference',
      { key: undefined, secret_mappings: [{ target_field: 'key', secret_reference_id: 'r' }] },
      404,
      'AB02',
      'secret_mappings[0].secret_reference_id',
    ],
    ['an unknown workspace', { workspace_id: 'ws-x' }, 404, 'AB02', 'workspace_id'],
  ])('create with %s is refused', async (_case, more, status, code, param) => {
    refused(await on.post('/integrations', openai(more)), status, code, param);
  });

  const aws = { aws_region: 'eu-west-1' };
  const azure = {
    azure_resource_name: 'r',
    azure_deployment_config: [{ azure_api_version: 'v', azure_deployment_name: 'd', azure_model_slug: 'm' }],
  };
  it.each<[string, string, object, string | undefined, Record<string, string>]>([
    [
      'bedrock',
      'accessKey',
      { ...aws, aws_auth_type: 'accessKey', aws_access_key_id: 'AKIA', aws_secret_access_key: CANARY },
      undefined,
      { aws_access_key_id: 'AKIA', aws_secret_access_key: CANARY },
    ],
    [
      'bedrock',
      'assumedRole',
      { ...aws, aws_auth_type: 'assumedRole', aws_role_arn: 'arn:aws:iam::1:role/x' },
      undefined,
      {},
    ],
    ['bedrock', 'serviceRole', { ...aws, aws_auth_type: 'serviceRole' }, undefined, {}],
    ['sagemaker', 'apiKey', { ...aws, aws_auth_type: 'apiKey', amzn_sagemaker_target_model: 'm' }, CANARY, {}],
    ['azure-openai', 'default', { ...azure, azure_auth_mode: 'default' }, CANARY, {}],
    [
      'azure-openai',
      'entra',
      {
        ...azure,
        azure_auth_mode: 'entra',
        azure_entra_tenant_id: 't',
        azure_entra_client_id: 'c',
        azure_entra_client_secret: CANARY,
      },
      undefined,
      { azure_entra_client_secret: CANARY },
    ],
    [
      'azure-openai',
      'entraFederated',
      { ...azure, azure_auth_mode: 'entraFederated', azure_entra_tenant_id: 't', azure_entra_client_id: 'c' },
      undefined,
      {},
    ],
    ['azure-ai', 'managed', { azure_foundry_url: 'https://f', azure_auth_mode: 'managed' }, undefined, {}],
    ['vertex-ai', 'basic', { vertex_auth_type: 'basic', vertex_region: 'r', vertex_project_id: 'p' }, CANARY, {}],
    ['vertex-ai', 'wif', { vertex_auth_type: 'wif', vertex_region: 'r', vertex_project_id: 'p' }, undefined, {}],
    ['workers-ai', 'key', { workers_ai_account_id: 'a' }, CANARY, {}],
    ['cortex', 'key', { snowflake_account: 'a' }, CANARY, {}],
    [
      'groq',
      'OAuth',
      {
        auth_type: 'oauthClientCredentials',
        oauth_token_endpoint: 'https://t',
        oauth_client_id: 'i',
        oauth_client_secret: CANARY,
      },
      undefined,
      { oauth_client_secret: CANARY },
    ],
  ])(
    '%s with %s stores what it needs, and shows secrets only as masks',
    async (provider, _type, configurations, key, secrets) => {
      const slug = unique('acct');
      ok(
        await on.post('/integrations', {
          name: slug,
          slug,
          ai_provider_id: provider,
          configurations,
          ...(key ? { key } : {}),
        }),
      );
      const answer = await on.get(`/integrations/${slug}`);
      const plain = Object.fromEntries(Object.entries(configurations).filter(([name]) => !(name in secrets)));
      const masks = Object.fromEntries(
        Object.keys(secrets).map((name) => [`masked_${name}`, expect.stringMatching(MASK)]),
      );
      expect(ok(answer).configurations).toEqual({ ...plain, ...masks });
      for (const value of [CANARY, ...Object.values(secrets)]) expect(answer.text).not.toContain(value);
      const stored = await on.api.tables.systemRead((tx) => tx.list('integrations', { where: { slug } }));
      for (const value of [CANARY, ...Object.values(secrets)]) expect(JSON.stringify(stored)).not.toContain(value);
      ok(await on.post('/providers', { name: slug, integration_id: slug, slug }, on.mine));
      const one = (await on.load()).providers.find((row) => row.row.slug === slug);
      const opened = await one?.open();
      expect(opened?.key?.reveal() ?? null).toBe(key ?? null);
      expect(opened?.settings).toEqual({ ...plain, ...secrets });
    },
  );

  it('with a missing selector, region or deployment the field is named', async () => {
    const create = (ai_provider_id: string, configurations: object) =>
      on.post('/integrations', { name: 'x', ai_provider_id, key: 'k', configurations });
    refused(await create('bedrock', aws), 400, 'AB01', 'configurations.aws_auth_type');
    refused(await create('bedrock', { aws_auth_type: 'serviceRole' }), 400, 'AB01', 'configurations.aws_region');
    refused(
      await create('bedrock', { aws_auth_type: 'serviceRole', aws_region: 'evil.example/' }),
      400,
      'AB01',
      'configurations.aws_region',
    );
    refused(
      await create('azure-openai', { ...azure, azure_auth_mode: 'default', azure_deployment_config: [] }),
      400,
      'AB01',
      'configurations.azure_deployment_config',
    );
    const long = [{ azure_api_version: 'v'.repeat(31), azure_deployment_name: 'd', azure_model_slug: 'm' }];
    refused(
      await create('azure-openai', { ...azure, azure_auth_mode: 'default', azure_deployment_config: long }),
      400,
      'AB01',
      'configurations.azure_deployment_config[0].azure_api_version',
    );
    refused(
      await create('vertex-ai', { vertex_region: 'r', vertex_auth_type: 'serviceAccount' }),
      400,
      'AB01',
      'configurations.vertex_service_account_json',
    );
  });

  it('a slug is taken until its integration is archived', async () => {
    const slug = unique('slug');
    ok(await on.post('/integrations', openai({ slug })));
    refused(await on.post('/integrations', openai({ slug })), 409, 'AB07', 'slug');
    expect(ok(await on.del(`/integrations/${slug}`))).toEqual({});
    refused(await on.get(`/integrations/${slug}`), 404, 'AB08', null);
    ok(await on.post('/integrations', openai({ slug })));
  });

  it('an update without the secret keeps it, with null it is cleared, with a mask it is refused', async () => {
    const slug = unique('oauth');
    const settings = { auth_type: 'oauthClientCredentials', oauth_token_endpoint: 'https://t', oauth_client_id: 'i' };
    ok(await on.post('/integrations', openai({ slug, configurations: { ...settings, oauth_client_secret: CANARY } })));
    ok(await on.post('/providers', { name: slug, integration_id: slug, slug }, on.mine));
    const opened = async () => (await on.load()).providers.find((row) => row.row.slug === slug)?.open();
    const shown = ok(await on.get(`/integrations/${slug}`));
    refused(
      await on.put(`/integrations/${slug}`, { configurations: shown.configurations }),
      400,
      'AB01',
      'configurations.masked_oauth_client_secret',
    );
    refused(
      await on.put(`/integrations/${slug}`, {
        configurations: { ...settings, oauth_client_secret: shown.configurations.masked_oauth_client_secret },
      }),
      400,
      'AB01',
      'configurations.oauth_client_secret',
    );
    refused(await on.put(`/integrations/${slug}`, { key: shown.masked_key }), 400, 'AB01', 'key');
    expect(ok(await on.put(`/integrations/${slug}`, { configurations: { ...settings, oauth_scope: 's' } }))).toEqual(
      {},
    );
    expect((await opened())?.settings).toEqual({ ...settings, oauth_scope: 's', oauth_client_secret: CANARY });
    refused(
      await on.put(`/integrations/${slug}`, { configurations: { ...settings, oauth_client_secret: null } }),
      400,
      'AB01',
      'configurations.oauth_client_secret',
    );
    ok(await on.put(`/integrations/${slug}`, { configurations: {}, key: 'sk-new' }));
    expect(await opened()).toMatchObject({ settings: {} });
    expect((await opened())?.key?.reveal()).toBe('sk-new');
  });

  it('update changes what is named, null clears, and custom host and headers reach the data plane', async () => {
    const slug = unique('upd');
    ok(
      await on.post(
        '/integrations',
        openai({ slug, tags: { a: 'b' }, pricing_adjustments: { multiplier: { default: 2 } } }),
      ),
    );
    ok(await on.post('/providers', { name: slug, integration_id: slug, slug }, on.mine));
    const configurations = {
      custom_host: 'https://h.example/v1',
      custom_headers: { 'x-a': 'b' },
      openai_project: 'p',
    };
    ok(
      await on.put(`/integrations/${slug}`, {
        name: 'N',
        description: 'D',
        key: CANARY,
        configurations,
        pricing_adjustments: null,
        tags: null,
      }),
    );
    expect(ok(await on.get(`/integrations/${slug}`))).toMatchObject({
      name: 'N',
      description: 'D',
      tags: null,
      pricing_adjustments: null,
      configurations: { ...configurations, custom_headers: { 'x-a': expect.stringMatching(MASK) } },
    });
    const one = (await on.load()).providers.find((row) => row.row.slug === slug);
    expect(await one?.open()).toMatchObject({
      customHost: 'https://h.example/v1',
      customHeaders: { 'x-a': 'b' },
      settings: { openai_project: 'p' },
    });
    refused(await on.put(`/integrations/${slug}`, { ai_provider_id: 'groq' }), 400, 'AB01', 'ai_provider_id');
  });

  it('a workspace-scoped one gets a default provider, on request with a slug of its own', async () => {
    const slug = unique('own');
    ok(await on.post('/integrations', openai({ slug }), on.mine));
    expect(ok(await on.get(`/integrations/${slug}`, on.mine))).toMatchObject({
      type: 'workspace',
      workspace_id: on.api.a.workspace_id,
      workspace_count: 1,
    });
    expect(ok(await on.get(`/providers/${slug}`, on.mine))).toMatchObject({ slug, integration_id: slug });
    const [other, wanted] = [unique('own'), unique('wanted')];
    ok(
      await on.post(
        '/integrations',
        openai({ slug: other, workspace_id: on.second.id, default_provider_slug: wanted }),
      ),
    );
    expect(ok(await on.get(`/providers/${wanted}?workspace_id=${on.second.slug}`))).toMatchObject({
      integration_id: other,
    });
    refused(
      await on.post('/integrations', openai({ default_provider_slug: slug }), on.mine),
      400,
      'AB01',
      'default_provider_slug',
    );
    const none = unique('none');
    ok(await on.post('/integrations', openai({ slug: none, create_default_provider: false }), on.mine));
    refused(await on.get(`/providers/${none}`, on.mine), 404, 'AB08', null);
  });

  it('a workspace key lists organisation integrations open to it, and may neither read nor change them', async () => {
    const slug = unique('org');
    ok(await on.post('/integrations', openai({ slug })));
    const slugs = async (query = '') =>
      ok(await on.get(`/integrations?page_size=1000${query}`, on.mine)).data.map((one: { slug: string }) => one.slug);
    expect(await slugs()).toContain(slug);
    expect(await slugs('&type=organisation')).toContain(slug);
    expect(await slugs('&type=workspace')).not.toContain(slug);
    refused(await on.get(`/integrations/${slug}`, on.mine), 403, 'AB03', null);
    refused(await on.put(`/integrations/${slug}`, { name: 'x' }, on.mine), 403, 'AB03', null);
    refused(await on.del(`/integrations/${slug}`, on.mine), 403, 'AB03', null);
    refused(await on.put(`/integrations/${slug}/models`, { models: [] }, on.mine), 403, 'AB03', null);
    refused(await on.put(`/integrations/${slug}/workspaces`, {}, on.mine), 403, 'AB03', null);
    const theirs = unique('theirs');
    ok(await on.post('/integrations', openai({ slug: theirs, workspace_id: on.second.id })));
    refused(await on.get(`/integrations/${theirs}`, on.mine), 404, 'AB08', null);
    expect(await slugs()).not.toContain(theirs);
  });

  it('an archived integration stops its providers', async () => {
    const slug = unique('gone');
    ok(await on.post('/integrations', openai({ slug }), on.mine));
    expect((await on.load()).providers.some((one) => one.row.slug === slug)).toBe(true);
    refused(await on.del(`/integrations/${slug}`, on.mine), 409, 'AB07', null);
    ok(await on.del(`/integrations/${slug}?force=true`, on.mine));
    expect((await on.load()).providers.some((one) => one.row.slug === slug)).toBe(false);
  });
});
