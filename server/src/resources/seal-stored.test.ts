import { expect, it } from 'vitest';
import { CANARY, MASK, ok, onBothStores, unique } from '../../test/support/accounts.ts';
import { limitSpecWith } from '../../test/support/ledger-node.ts';
import { systemClock } from '../kernel/clock.ts';
import { silentLog } from '../kernel/log.ts';
import { BucketTransaction } from '../limits/ledger/bucket-transaction.ts';
import { sealStored } from './seal-stored.ts';
import { openUrl } from './secret-url.ts';

const HEADERS = { authorization: `Bearer ${CANARY}` };
const URL_WITH_TOKEN = `https://hooks.example/${CANARY}`;

onBothStores((on) => {
  it('what an older version stored in clear is sealed at the start, once, and works as before', async () => {
    const slug = unique('old');
    const account = { name: slug, slug, ai_provider_id: 'openai', key: 'sk-x' };
    const { id } = ok(await on.post('/integrations', account, on.mine));
    ok(await on.put(`/integrations/${slug}/models`, { models: [{ slug: 'm', enabled: true }] }, on.mine));
    ok(
      await on.post(
        '/virtual-keys',
        { name: `${slug}-vk`, slug: `${slug}-vk`, provider: 'openai', key: 'sk-y' },
        on.mine,
      ),
    );
    const policy = {
      name: slug,
      conditions: [{ key: 'api_key', value: '*' }],
      group_by: [{ key: 'api_key' }],
      type: 'tokens',
      credit_limit: 5,
    };
    const { id: policyId } = ok(await on.post('/policies/usage-limits', policy, on.mine));
    const check = {
      id: 'default.webhook',
      parameters: { webhookURL: 'https://hooks.example/x', headers: { 'x-a': 'b' } },
    };
    const { id: guardrailId, version_id } = ok(await on.post('/guardrails', { name: slug, checks: [check] }, on.mine));
    const config = { input_guardrails: [{ 'default.webhook': { webhookURL: 'https://hooks.example/x' } }] };
    const saved = ok(await on.post('/configs', { name: slug, config }, on.mine));
    const { organisation_id, workspace_id } = on.api.a;
    const { tables } = on.api;
    await tables.systemWrite(async (tx) => {
      await tx.update('integrations', { id, organisation_id }, { configurations: { custom_headers: HEADERS } });
      await tx.update(
        'integration_models',
        { integration_id: id, slug: 'm', organisation_id },
        { configurations: { custom_host: 'https://h.example', custom_headers: HEADERS } as object },
      );
      await tx.update(
        'virtual_keys',
        { slug: `${slug}-vk`, organisation_id },
        { model_config: { custom_headers: HEADERS } },
      );
      await tx.update('usage_policies', { id: policyId, organisation_id }, { alert_webhook_url: URL_WITH_TOKEN });
      const [version] = await tx.list('guardrail_versions', { where: { id: version_id } });
      const checks = (version?.checks ?? []).map(({ sealed: _, ...one }) => ({
        ...one,
        parameters: { webhookURL: URL_WITH_TOKEN },
      }));
      await tx.update('guardrail_versions', { id: version_id, organisation_id }, { checks });
      const inline = { input_guardrails: [{ 'default.webhook': { webhookURL: URL_WITH_TOKEN } }] };
      await tx.update('config_versions', { id: saved.version_id, organisation_id }, { config: inline });
      const spec = limitSpecWith({ ownerId: policyId, ownerKind: 'policy' });
      const place = { organisationId: organisation_id, workspaceId: workspace_id };
      const transaction = await BucketTransaction.open(tx, place, spec, systemClock, systemClock.now());
      await transaction.close(tx, systemClock.now());
      for (let i = 0; i < 201; i++) {
        await tx.insert('alert_deliveries', {
          id: `${slug} ${i}`,
          organisation_id,
          workspace_id,
          owner_kind: 'policy',
          owner_id: policyId,
          bucket_id: transaction.row.id,
          window_no: 0,
          kind: 'exhausted',
          channel: 'webhook',
          recipient: URL_WITH_TOKEN,
          body: {},
          tries: 0,
          next_at: null,
          delivered_at: null,
          last_error: null,
          created_at: 0,
        });
      }
      const settings = { block_inline_config: false, alerts: { webhook_url: URL_WITH_TOKEN } };
      await tx.update('organisations', { id: organisation_id }, { settings });
      await tx.update('workspaces', { id: workspace_id, organisation_id }, { settings });
    });

    await sealStored(tables, on.vault, silentLog);

    const tenant = { organisationId: organisation_id, workspaceId: null } as never;
    const stored = await tables.systemRead(async (tx) => ({
      integrations: await tx.list('integrations', {}),
      models: await tx.list('integration_models', {}),
      keys: await tx.list('virtual_keys', {}),
      policies: await tx.list('usage_policies', {}),
      deliveries: await tx.list('alert_deliveries', {}),
      guardrails: await tx.list('guardrail_versions', {}),
      configs: await tx.list('config_versions', {}),
      organisations: await tx.list('organisations', {}),
      workspaces: await tx.list('workspaces', {}),
    }));
    expect(JSON.stringify(stored)).not.toContain(CANARY);
    const [{ alert_webhook_url: url } = { alert_webhook_url: null }] = stored.policies.filter(
      (row) => row.id === policyId,
    );
    expect(await openUrl(on.vault, tenant, String(url))).toBe(URL_WITH_TOKEN);

    const rows = await on.load();
    const provider = rows.providers.find((row) => row.row.slug === slug);
    expect((await provider?.open())?.customHeaders).toEqual(HEADERS);
    const [model] = provider?.models ?? [];
    expect(model && (await provider?.openModel(model))).toEqual({ custom_headers: HEADERS });
    const guardrail = rows.guardrails.find((row) => row.row.id === guardrailId);
    const [stored0] = guardrail?.version.checks ?? [];
    if (!guardrail || !stored0) throw new Error('no guardrail');
    expect(await guardrail.open(stored0, 0)).toMatchObject({ webhookURL: URL_WITH_TOKEN });
    const shown = ok(await on.get(`/guardrails/${guardrailId}`, on.mine)).checks[0].parameters;
    expect(shown.webhookURL).toMatch(/^https:\/\/hooks\.example\/\*{7}[0-9a-f]{8}$/);
    const key = rows.virtualKeys.find((row) => row.row.slug === `${slug}-vk`);
    expect((await key?.open())?.customHeaders).toEqual(HEADERS);
    expect(ok(await on.get(`/integrations/${slug}`, on.mine)).configurations).toEqual({
      custom_headers: { authorization: expect.stringMatching(MASK) },
    });

    await sealStored(tables, on.vault, silentLog);
    expect(await tables.systemRead((tx) => tx.list('integrations', {}))).toEqual(stored.integrations);
  });

  it('a run that was cut is taken up by the next one', async () => {
    const { tables, a } = on.api;
    await tables.systemWrite(async (tx) => {
      await tx.remove('meta', { key: 'sealed_values' });
      await tx.update(
        'organisations',
        { id: a.organisation_id },
        { settings: { block_inline_config: false, alerts: { webhook_url: URL_WITH_TOKEN } } },
      );
    });
    const cut = { ...on.vault, ensureKey: async () => Promise.reject(new Error('cut')) };
    await expect(sealStored(tables, cut as never, silentLog)).rejects.toThrow('cut');
    await sealStored(tables, on.vault, silentLog);
    const rows = await tables.systemRead((tx) => tx.list('organisations', {}));
    expect(JSON.stringify(rows)).not.toContain(CANARY);
  });
});
