/** Stored secrets go only to the address that they were given for. */
import { describe, expect, it } from 'vitest';
import { CANARY, MASK, ok, onBothStores, refused, unique } from '../../../test/support/accounts.ts';
import { storableProviders } from '../../providers/accounts.ts';
import { allFields } from './configurations.ts';

describe('settings that say where calls go', () => {
  const SOUNDS = /host|url|endpoint|region|resource|account|project|cloud|auth_type|auth_mode|tenant|_scope/;
  /** They sound like an address, and are the value of a header, the name of a right, or a secret themselves. */
  const NO_ADDRESS = new Set([
    'openai_project',
    'oauth_scope',
    'amzn_sagemaker_target_container_hostname',
    'vertex_service_account_json',
  ]);

  it.each(storableProviders())('are marked as such at %s', (id) => {
    const marks = Object.entries(allFields(id)).map(([name, { address }]) => [name, address]);
    for (const [name, address] of marks) {
      expect([name, address]).toEqual([name, SOUNDS.test(String(name)) && !NO_ADDRESS.has(String(name))]);
    }
    expect(Object.values(allFields(id)).filter(({ host, address }) => host && !address)).toEqual([]);
  });
});

const EVIL = 'https://evil.example/v1';

/** Accounts of each way of signing in, and the change of address that would send their secrets elsewhere. */
const ACCOUNTS: readonly (readonly [string, object, Record<string, unknown>, Record<string, unknown>, string])[] = [
  ['openai', { key: CANARY }, {}, { custom_host: EVIL }, 'custom_host'],
  ['openai', { key: CANARY }, { custom_host: 'https://mine.example' }, {}, 'custom_host'],
  [
    'openai',
    { key: CANARY },
    {},
    { auth_type: 'oauthClientCredentials', oauth_token_endpoint: EVIL, oauth_client_id: 'i', oauth_client_secret: 's' },
    'auth_type',
  ],
  [
    'openai',
    {},
    {
      auth_type: 'oauthClientCredentials',
      oauth_token_endpoint: 'https://t.example/t',
      oauth_client_id: 'i',
      oauth_client_secret: CANARY,
    },
    { auth_type: 'oauthClientCredentials', oauth_token_endpoint: EVIL, oauth_client_id: 'i' },
    'oauth_token_endpoint',
  ],
  [
    'azure-ai',
    { key: CANARY },
    { azure_auth_mode: 'default', azure_foundry_url: 'https://r.services.ai.azure.com/models' },
    { azure_auth_mode: 'default', azure_foundry_url: EVIL },
    'azure_foundry_url',
  ],
  [
    'azure-openai',
    { key: CANARY },
    {
      azure_auth_mode: 'default',
      azure_resource_name: 'mine',
      azure_deployment_config: [{ azure_api_version: 'v1', azure_deployment_name: 'd', azure_model_slug: 'm' }],
    },
    {
      azure_auth_mode: 'default',
      azure_resource_name: 'evil',
      azure_deployment_config: [{ azure_api_version: 'v1', azure_deployment_name: 'd', azure_model_slug: 'm' }],
    },
    'azure_resource_name',
  ],
  [
    'bedrock',
    {},
    { aws_auth_type: 'accessKey', aws_region: 'eu-central-1', aws_access_key_id: 'A', aws_secret_access_key: CANARY },
    { aws_auth_type: 'accessKey', aws_region: 'eu-central-1', aws_s3_endpoint: EVIL },
    'aws_s3_endpoint',
  ],
  [
    'workers-ai',
    { key: CANARY },
    { workers_ai_account_id: 'a' },
    { workers_ai_account_id: 'b' },
    'workers_ai_account_id',
  ],
];

onBothStores((on) => {
  it.each(ACCOUNTS)(
    '%s %j %j: a change to %j needs the secrets again (%s)',
    async (id, given, before, after, field) => {
      const slug = unique('addr');
      ok(
        await on.post(
          '/integrations',
          { name: slug, slug, ai_provider_id: id, ...given, configurations: before },
          on.mine,
        ),
      );
      const path = `/integrations/${slug}`;
      const answer = await on.put(path, { configurations: after }, on.mine);
      refused(answer, 400, 'AB01', `configurations.${field}`);
      expect(answer.text).toContain('send its secrets again');
      // With nothing but other names it may stay as it is.
      const shown = ok(await on.get(path, on.mine)).configurations as Record<string, unknown>;
      const same = Object.fromEntries(Object.entries(shown).filter(([name]) => !name.startsWith('masked_')));
      ok(await on.put(path, { configurations: same }, on.mine));
      const secrets = Object.fromEntries(
        Object.keys(shown)
          .filter((name) => name.startsWith('masked_'))
          .map((name) => [name.slice('masked_'.length), 'another']),
      );
      ok(
        await on.put(
          path,
          { ...('key' in given ? { key: 'another' } : {}), configurations: { ...secrets, ...after } },
          on.mine,
        ),
      );
    },
  );

  it('a key that is removed in the same change needs no other', async () => {
    const slug = unique('gone');
    ok(await on.post('/integrations', { name: slug, slug, ai_provider_id: 'ollama', key: CANARY }, on.mine));
    ok(await on.put(`/integrations/${slug}`, { key: null, configurations: { custom_host: EVIL } }, on.mine));
    expect(ok(await on.get(`/integrations/${slug}`, on.mine))).toMatchObject({ masked_key: null });
    const openai = unique('needed');
    ok(await on.post('/integrations', { name: openai, slug: openai, ai_provider_id: 'openai', key: CANARY }, on.mine));
    refused(await on.put(`/integrations/${openai}`, { key: null }, on.mine), 400, 'AB01', 'key');
  });

  it('the values of custom headers are sealed, shown as masks, and kept where the mask comes back', async () => {
    const slug = unique('headers');
    const path = `/integrations/${slug}`;
    const headers = { authorization: `Bearer ${CANARY}`, 'X-Own': `${CANARY}-2` };
    ok(
      await on.post(
        '/integrations',
        { name: slug, slug, ai_provider_id: 'openai', key: 'sk-x', configurations: { custom_headers: headers } },
        on.mine,
      ),
    );
    const shown = ok(await on.get(path, on.mine)).configurations.custom_headers as Record<string, string>;
    expect(shown).toEqual({ authorization: expect.stringMatching(MASK), 'X-Own': expect.stringMatching(MASK) });
    const rows = await on.api.tables.systemRead((tx) => tx.list('integrations', {}));
    expect(JSON.stringify(rows)).not.toContain(CANARY);

    const custom_headers = { ...shown, 'x-own': 'new', authorization: shown.authorization };
    refused(
      await on.put(path, { configurations: { custom_headers: { ...shown, other: '*******00000000' } } }, on.mine),
      400,
      'AB01',
      'configurations.custom_headers.other',
    );
    delete (custom_headers as Record<string, unknown>)['X-Own'];
    ok(await on.put(path, { configurations: { custom_headers } }, on.mine));
    const open = async () => (await on.load()).providers.find((row) => row.row.slug === slug)?.open();
    expect((await open())?.customHeaders).toEqual({ authorization: `Bearer ${CANARY}`, 'x-own': 'new' });
    const mask = ok(await on.get(path, on.mine)).configurations.custom_headers.authorization;
    refused(
      await on.put(
        path,
        { key: 'again', configurations: { custom_host: EVIL, custom_headers: { authorization: mask } } },
        on.mine,
      ),
      400,
      'AB01',
      'configurations.custom_host',
    );
    ok(await on.put(path, { configurations: {} }, on.mine));
    expect(Object.keys((await open())?.customHeaders ?? {})).toEqual(['authorization', 'x-own']);
    ok(await on.put(path, { configurations: { custom_headers: null } }, on.mine));
    expect((await open())?.customHeaders).toEqual({});
    refused(
      await on.put(path, { configurations: { custom_headers: { cookie: 'a=b' } } }, on.mine),
      400,
      'AB01',
      'configurations.custom_headers.cookie',
    );
  });

  it('a model goes to a host of its integration, or brings a key', async () => {
    const slug = unique('hosts');
    const configurations = { custom_host: 'https://mine.example/v1' };
    ok(
      await on.post(
        '/integrations',
        { name: slug, slug, ai_provider_id: 'openai', key: CANARY, configurations },
        on.mine,
      ),
    );
    const put = (settings: object) =>
      on.put(
        `/integrations/${slug}/models`,
        { models: [{ slug: 'm', enabled: true, configurations: settings }] },
        on.mine,
      );
    const param = 'models[0].configurations.custom_host';
    refused(await put({ custom_host: EVIL }), 400, 'AB01', param);
    ok(await put({ custom_host: 'https://mine.example/v2' }));
    ok(await put({ custom_host: 'https://api.openai.com/v1' }));
    ok(await put({ custom_host: 'https://other.example', key: `${CANARY}-model`, custom_headers: { 'x-k': CANARY } }));
    const rows = await on.api.tables.systemRead((tx) => tx.list('integration_models', {}));
    expect(JSON.stringify(rows)).not.toContain(CANARY);
    const shown = ok(await on.get(`/integrations/${slug}/models`, on.mine)).models[0].configurations;
    expect(shown).toMatchObject({ masked_key: expect.stringMatching(MASK) });
    refused(await put({ custom_host: EVIL }), 400, 'AB01', param);
    refused(await put({ custom_host: EVIL, key: 'k', custom_headers: shown.custom_headers }), 400, 'AB01', param);
    refused(await put({ key: null, custom_host: 'https://other.example' }), 400, 'AB01', param);
    ok(await put({ custom_host: 'https://other.example', custom_headers: shown.custom_headers }));
    const row = (await on.load()).providers.find((one) => one.row.slug === slug);
    const model = row?.models[0];
    if (!row || !model) throw new Error('no model');
    expect(await row.openModel(model)).toEqual({ key: `${CANARY}-model`, custom_headers: { 'x-k': CANARY } });
  });

  const models = (slug: string, ...list: object[]) => on.put(`/integrations/${slug}/models`, { models: list }, on.mine);

  it('a key or a host of an integration that would send a key to another host of a model is refused, with its name', async () => {
    const slug = unique('moved');
    const path = `/integrations/${slug}`;
    const configurations = { custom_host: 'https://mine.example/v1' };
    const account = { name: slug, slug, ai_provider_id: 'openai', key: CANARY, configurations };
    ok(await on.post('/integrations', account, on.mine));
    const custom_host = 'https://mine.example/v2';
    ok(await models(slug, { slug: 'left-behind', enabled: true, configurations: { custom_host } }));
    ok(await models(slug, { slug: 'has-a-key', enabled: true, configurations: { custom_host: EVIL, key: 'own' } }));
    const move = { key: `${CANARY}-2`, configurations: { custom_host: 'https://new.example/v1' } };
    const answer = await on.put(path, move, on.mine);
    refused(answer, 400, 'AB01', 'key');
    expect(answer.text).toContain('left-behind');
    expect(answer.text).not.toContain('has-a-key');
    // With a key of its own the model keeps its host.
    ok(await models(slug, { slug: 'left-behind', enabled: true, configurations: { custom_host, key: 'model' } }));
    ok(await on.put(path, move, on.mine));
    ok(await on.put(path, { key: `${CANARY}-3` }, on.mine));
  });

  it('the host of a model that was saved while the integration had no key gets none that is added', async () => {
    const slug = unique('later');
    const path = `/integrations/${slug}`;
    const configurations = { custom_host: 'https://own.example/v1' };
    ok(await on.post('/integrations', { name: slug, slug, ai_provider_id: 'ollama', configurations }, on.mine));
    ok(await models(slug, { slug: 'old', enabled: true }));
    const [row] = await on.api.tables.systemRead((tx) => tx.list('integrations', { where: { slug } }));
    const { id: integration_id, organisation_id } = row ?? { id: '', organisation_id: '' };
    const host = (custom_host: string) =>
      on.api.tables.systemWrite((tx) =>
        tx.update(
          'integration_models',
          { integration_id, slug: 'old', organisation_id },
          { configurations: { custom_host } },
        ),
      );
    // Older versions let it be saved.
    await host(EVIL);
    for (const body of [
      { key: CANARY },
      { configurations: { ...configurations, custom_headers: { authorization: CANARY } } },
    ]) {
      const answer = await on.put(path, body, on.mine);
      refused(answer, 400, 'AB01', 'key' in body ? 'key' : 'configurations');
      expect(answer.text).toContain('(old)');
    }
    ok(await on.put(path, { name: 'another' }, on.mine));
    await host('https://own.example/v2');
    ok(await on.put(path, { key: CANARY }, on.mine));
    // One that gets the key already gets the next one.
    await host(EVIL);
    ok(await on.put(path, { key: `${CANARY}-2` }, on.mine));
  });
});
