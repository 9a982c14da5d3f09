import { expect, it } from 'vitest';
import { CANARY, MASK, ok, onBothStores, refused, unique } from '../../../test/support/accounts.ts';

onBothStores((on) => {
  it('create answers the slug; settings are camel case, secrets masked, and stored under the integration names', async () => {
    const body = {
      name: unique('Azure'),
      provider: 'azure-openai',
      key: CANARY,
      resourceName: 'res',
      apiVersion: '2026-01-01',
      deploymentName: 'dep',
      note: 'n',
    };
    const created = ok(await on.post('/virtual-keys', body, on.mine));
    expect(created).toEqual({ slug: expect.stringMatching(/^azure-/) });
    const answer = await on.get(`/virtual-keys/${created.slug}`, on.mine);
    expect(ok(answer)).toMatchObject({
      ...created,
      provider: 'azure-openai',
      note: 'n',
      status: 'active',
      integration_id: null,
      masked_api_key: expect.stringMatching(MASK),
      model_config: {
        resourceName: 'res',
        azureAuthMode: 'default',
        deploymentConfig: [{ apiVersion: '2026-01-01', deploymentName: 'dep', is_default: true }],
      },
      object: 'virtual-key',
    });
    expect(answer.text).not.toContain(CANARY);
    const list = ok(await on.get('/virtual-keys?page_size=100', on.mine));
    const listed = list.data.find((one: { slug: string }) => one.slug === created.slug);
    expect(listed).toMatchObject({ provider: 'azure-openai', object: 'virtual-key' });
    expect(listed).not.toHaveProperty('model_config');
    const one = (await on.load()).virtualKeys.find((row) => row.row.slug === created.slug);
    const opened = await one?.open();
    expect(opened?.key?.reveal()).toBe(CANARY);
    expect(opened?.settings).toMatchObject({
      azure_resource_name: 'res',
      azure_deployment_config: [
        { azure_api_version: '2026-01-01', azure_deployment_name: 'dep', azure_model_slug: 'dep', is_default: true },
      ],
    });
    const next = [{ apiVersion: 'v2', deploymentName: 'd2', alias: 'gpt' }];
    expect(ok(await on.put(`/virtual-keys/${created.slug}`, { deploymentConfig: next, key: 'sk-2' }, on.mine))).toEqual(
      {},
    );
    expect(ok(await on.get(`/virtual-keys/${created.slug}`, on.mine)).model_config.deploymentConfig).toEqual(next);
    expect(ok(await on.del(`/virtual-keys/${created.slug}`, on.mine))).toEqual({});
    refused(await on.get(`/virtual-keys/${created.slug}`, on.mine), 404, 'AB08', null);
  });

  it('secret settings are sealed and shown as masks under their camel-case names', async () => {
    const body = {
      name: unique('Aws'),
      provider: 'bedrock',
      awsRegion: 'eu-west-1',
      awsAccessKeyId: 'AKIA',
      awsSecretAccessKey: CANARY,
    };
    const { slug } = ok(await on.post('/virtual-keys', body, on.mine));
    const shown = ok(await on.get(`/virtual-keys/${slug}`, on.mine));
    expect(shown.model_config).toEqual({
      awsAuthType: 'accessKey',
      awsRegion: 'eu-west-1',
      masked_awsAccessKeyId: expect.stringMatching(MASK),
      masked_awsSecretAccessKey: expect.stringMatching(MASK),
    });
    const opened = await (await on.load()).virtualKeys.find((row) => row.row.slug === slug)?.open();
    expect(opened?.settings).toMatchObject({ aws_access_key_id: 'AKIA', aws_secret_access_key: CANARY });
  });

  const openai = (more: object = {}) => ({ name: unique('VK'), provider: 'openai', key: CANARY, ...more });
  it.each<[string, object, number, string, string]>([
    ['no name', { name: undefined }, 400, 'AB01', 'name'],
    ['no provider', { provider: undefined }, 400, 'AB01', 'provider'],
    ['an unknown provider', { provider: 'nobody' }, 400, 'AB01', 'provider'],
    ['no key', { key: undefined }, 400, 'AB01', 'key'],
    ['a mask', { key: '*******0123abcd' }, 400, 'AB01', 'key'],
    ['a snake-case setting', { openai_organization: 'o' }, 400, 'AB01', 'openai_organization'],
    ['a setting of another provider', { awsRegion: 'r' }, 400, 'AB01', 'awsRegion'],
    ['a setting of the wrong type', { openaiOrganization: 1 }, 400, 'AB01', 'openaiOrganization'],
    ['a refused host', { custom_host: 'http://h' }, 400, 'AB01', 'custom_host'],
    [
      'a deployment without version',
      { provider: 'azure-openai', resourceName: 'r', deploymentConfig: [{ deploymentName: 'd' }] },
      400,
      'AB01',
      'deploymentConfig[0].apiVersion',
    ],
    ['no deployment', { provider: 'azure-openai', resourceName: 'r' }, 400, 'AB01', 'deploymentConfig'],
    [
      'a mapping of an integration',
      { secret_mappings: [{ target_field: 'configurations.x', secret_reference_id: 'r' }] },
      400,
      'AB01',
      'secret_mappings[0].target_field',
    ],
    [
      'an unknown reference',
      { secret_mappings: [{ target_field: 'model_config.awsRegion', secret_reference_id: 'r' }] },
      404,
      'AB02',
      'secret_mappings[0].secret_reference_id',
    ],
    ['a slug of a provider', { slug: 'sandbox' }, 409, 'AB07', 'slug'],
  ])('create with %s is refused', async (_case, more, status, code, param) => {
    refused(await on.post('/virtual-keys', openai(more), on.mine), status, code, param);
  });

  it('a provider cannot take the slug of a virtual key', async () => {
    const slug = unique('both');
    ok(await on.post('/virtual-keys', openai({ slug }), on.mine));
    refused(await on.post('/providers', { name: 'x', integration_id: 'sandbox', slug }, on.mine), 409, 'AB07', 'slug');
  });

  it('migration moves key and settings to an integration; the slug goes on working', async () => {
    const slug = unique('move');
    ok(
      await on.post(
        '/virtual-keys',
        openai({ slug, openaiProject: 'p', rate_limits: [{ type: 'requests', unit: 'rpd', value: 3 }] }),
        on.mine,
      ),
    );
    expect(ok(await on.post('/virtual-keys/migrate', { virtual_key_id: slug }, on.mine))).toEqual({});
    const rows = await on.load();
    expect(rows.virtualKeys.some((one) => one.row.slug === slug)).toBe(false);
    const moved = rows.providers.find((one) => one.row.slug === slug);
    expect(moved?.row.rate_limits).toEqual([{ type: 'requests', unit: 'rpd', value: 3 }]);
    const opened = await moved?.open();
    expect(opened?.key?.reveal()).toBe(CANARY);
    expect(opened?.settings).toEqual({ openai_project: 'p' });
    expect(ok(await on.get(`/virtual-keys/${slug}`, on.mine))).toMatchObject({
      integration_id: slug,
      masked_api_key: null,
    });
    refused(await on.post('/virtual-keys/migrate', { virtual_key_id: slug }, on.mine), 409, 'AB07', null);
    refused(await on.post('/virtual-keys/migrate', { virtual_key_id: 'nope' }, on.mine), 404, 'AB02', 'virtual_key_id');
  });
});
