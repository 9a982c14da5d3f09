/** Virtual keys: the older form of a stored account, key and settings in one object of a workspace. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../kernel/id.ts';
import type { Row } from '../../store/schema.ts';
import { maskOf } from '../body-fields.ts';
import {
  actorId,
  checkMappings,
  claimSlug,
  findNamed,
  freeSlug,
  only,
  type Patch,
  refuse,
  refuseIssues,
  requireWorkspace,
  unknownReference,
} from '../common.ts';
import { defineResource } from '../define.ts';
import { queryBoolean } from '../fields.ts';
import { checkMappedAddresses, checkSettings, type StoredAccount } from '../integrations/configurations.ts';
import { checkProvider } from '../integrations/rules.ts';
import {
  type AccountPlace,
  maskSettings,
  openKey,
  openSettings,
  sealKey,
  sealSettings,
} from '../integrations/secrets.ts';
import { limitPatch, presentLimits, resets } from '../provider-limits.ts';
import { action, type Call } from '../resource.ts';
import { mapsSecrets } from '../secret-references/find.ts';
import { resourceSpec } from '../spec.ts';
import { followPatch, moveUsage, type UsageOf, usageOf } from '../usage-counters.ts';
import { createBody, detail, item, migrateBody, updateBody } from './schema.ts';
import { givenSettings, settingNames, shownName, shownPath, storedName, toShown, toStored } from './settings.ts';

type KeyRow = Row<'virtual_keys'>;

const place = (row: string): AccountPlace => ({ table: 'virtual_keys', column: 'secret_model_config', row });

function presentItem(row: KeyRow, integration: string | null, now: number, usage: UsageOf) {
  return {
    id: row.id,
    slug: row.slug,
    name: row.name,
    note: row.note,
    provider: row.ai_provider_id,
    workspace_id: row.workspace_id,
    integration_id: integration,
    ...presentLimits(row, now, usage),
    object: 'virtual-key' as const,
  };
}

async function presentAll(rows: readonly KeyRow[], call: Call) {
  const ids = [...new Set(rows.flatMap((row) => (row.integration_id === null ? [] : [row.integration_id])))];
  const integrations = ids.length === 0 ? [] : await call.tx.list('integrations', { where: { id: { in: ids } } });
  const slugs = new Map(integrations.map((row) => [row.id, row.slug]));
  const now = call.clock.now();
  const usage = await usageOf(call.tx, 'virtual-key', rows);
  return rows.map((row) =>
    presentItem(row, row.integration_id === null ? null : (slugs.get(row.integration_id) ?? null), now, usage),
  );
}

async function presentDetail(row: KeyRow, call: Call) {
  const shown = only(await presentAll([row], call));
  const masked = await maskSettings(call.vault, call.tenant, place(row.id), row.secret_model_config);
  const secrets = Object.entries(masked).map(([name, value]) => [
    name.startsWith('masked_') ? `masked_${shownName(name.slice('masked_'.length))}` : name,
    value,
  ]);
  return {
    ...shown,
    masked_api_key: row.key === null ? null : maskOf(row.key),
    model_config: { ...toShown(row.model_config), ...Object.fromEntries(secrets) },
    secret_mappings: row.secret_mappings ?? [],
  };
}

/** Checks an account's settings (stored names) with its mappings and key. Throws 400 under the caller's names. */
async function checkAccount(
  call: Call,
  provider: string,
  settings: Readonly<Record<string, unknown>>,
  more: { mappings: KeyRow['secret_mappings'] | undefined; hasKey: boolean; stored?: StoredAccount },
) {
  const workspaceId = call.tenant.workspaceId;
  const mapped = await checkMappings(call.tx, workspaceId, more.mappings, 'model_config', settingNames);
  const checked = checkSettings(provider, settings, {
    checkHost: call.checkHost,
    mapped: new Set([...mapped].map(storedName)),
    ...(more.stored ? { stored: more.stored } : {}),
  });
  if (!checked.ok) {
    throw refuseIssues(
      '',
      checked.issues.map((issue) => ({ ...issue, path: shownPath(issue.path) })),
    );
  }
  const fields = [...mapped].map(storedName);
  checkMappedAddresses(provider, fields, more.hasKey || Object.keys(checked.secrets).length > 0);
  if (checked.needsKey && !more.hasKey && !mapped.has('key')) throw refuse('key', 'is required with this provider');
  return checked;
}

/** 409: changing a migrated virtual key would change nothing, its provider serves the slug. */
function refuseMigrated(row: KeyRow): void {
  if (row.integration_id === null) return;
  throw new SluiceError('conflict', `This virtual key was migrated: change the provider ${row.slug} instead.`);
}

/**
 * Turns a virtual key into an integration of its workspace and a provider with the same slug, so that requests
 * that name it go on working. The virtual key stays in the list and points to the integration.
 */
const migrate = action({
  id: 'virtual_keys.migrate',
  method: 'POST',
  path: '/virtual-keys/migrate',
  summary: 'Turn a virtual key into an integration and a provider',
  tag: 'Virtual keys',
  auth: 'key_or_login',
  scopes: ['virtual_keys.update'],
  tenant: 'workspace_optional',
  params: null,
  query: null,
  body: migrateBody,
  response: z.strictObject({}),
  writes: true,
  audit: { action: 'manage', resource: 'virtual_keys' },
  run: async (call) => {
    const { tx, vault, tenant, body } = call;
    const row = await findNamed(tx, 'virtual_keys', body.virtual_key_id, { status: { not: 'archived' } });
    if (!row) throw unknownReference('virtual_key_id', 'virtual key');
    refuseMigrated(row);
    for (const scope of ['workspace_integrations.create', 'providers.create']) {
      if (!call.principal.scopes.has(scope)) {
        throw new SluiceError('forbidden', `This needs the scope ${scope}, which your credential does not have.`);
      }
    }
    const now = call.clock.now();
    const id = uuidv7(call.clock);
    call.audit(row.id, { before: { integration_id: null }, after: { integration_id: id } });
    const there: AccountPlace = { table: 'integrations', column: 'secret_configurations', row: id };
    const key = await openKey(vault, tenant, place(row.id), row.key);
    const secrets = await openSettings(vault, tenant, place(row.id), row.secret_model_config);
    const taken = (await tx.count('integrations', { where: { slug: row.slug, status: 'active' } })) > 0;
    await tx.insert('integrations', {
      id,
      organisation_id: row.organisation_id,
      workspace_id: row.workspace_id,
      slug: taken ? slugify(row.name) : row.slug,
      name: row.name,
      description: null,
      ai_provider_id: row.ai_provider_id,
      status: 'active',
      key: key === null ? null : await sealKey(vault, tenant, there, key.reveal()),
      configurations: row.model_config,
      secret_configurations: await sealSettings(vault, tenant, there, secrets),
      secret_mappings: integrationMappings(row.secret_mappings),
      pricing_adjustments: null,
      allow_all_models: true,
      global_workspace_access: null,
      passthrough: null,
      tags: row.tags,
      created_by: actorId(call.principal),
      created_at: now,
      last_updated_at: now,
    });
    const provider: Row<'providers'> = {
      id: uuidv7(call.clock),
      organisation_id: row.organisation_id,
      workspace_id: row.workspace_id,
      integration_id: id,
      slug: row.slug,
      name: row.name,
      note: row.note,
      status: row.status,
      usage_limits: row.usage_limits,
      rate_limits: row.rate_limits,
      expires_at: row.expires_at,
      tags: row.tags,
      secret_mappings: null,
      last_reset_at: row.last_reset_at,
      created_at: now,
      last_updated_at: now,
    };
    await tx.insert('providers', provider);
    await moveUsage(tx, { kind: 'virtual-key', id: row.id }, { kind: 'provider', id: provider.id });
    // The credentials have moved: two copies would be one too many to rotate.
    await tx.update(
      'virtual_keys',
      { id: row.id },
      { integration_id: id, key: null, secret_model_config: null, last_updated_at: now },
    );
    tx.changed({ workspaceId: row.workspace_id, topic: 'virtual_keys', entityId: row.id });
    tx.changed({ workspaceId: row.workspace_id, topic: 'providers', entityId: provider.id });
    return {};
  },
});

function integrationMappings(mappings: KeyRow['secret_mappings']): KeyRow['secret_mappings'] {
  return (
    mappings?.map((mapping) => ({
      ...mapping,
      target_field:
        mapping.target_field === 'key'
          ? 'key'
          : `configurations.${storedName(mapping.target_field.slice('model_config.'.length))}`,
    })) ?? null
  );
}

const spec = resourceSpec({
  refers: [mapsSecrets('virtual_keys', 'virtual key')],
  name: 'virtual_keys',
  tag: 'Virtual keys',
  table: 'virtual_keys',
  path: '/virtual-keys',
  param: 'slug',
  scopes: ['virtual_keys'],
  tenant: 'workspace_optional',
  object: 'virtual-key',
  archives: true,
  list: {
    query: z.object({ return_last_used: queryBoolean.optional() }),
    defaultPageSize: 50,
    maxPageSize: 100,
    item,
    presentAll,
  },
  detail,
  present: presentDetail,
  create: {
    body: createBody,
    response: z.object({ slug: z.string() }),
    run: async (call) => {
      const { body, tx, vault, tenant } = call;
      const workspaceId = requireWorkspace(call);
      checkProvider('provider', body.provider);
      const checked = await checkAccount(call, body.provider, toStored(body.provider, body), {
        mappings: body.secret_mappings,
        hasKey: body.key !== undefined,
      });
      const slug = body.slug === undefined ? await freeSlug(tx, slugify(body.name)) : await claimSlug(tx, body.slug);
      const id = uuidv7(call.clock);
      const now = call.clock.now();
      const row: KeyRow = {
        id,
        organisation_id: tenant.organisationId,
        workspace_id: workspaceId,
        slug,
        name: body.name,
        note: body.note ?? null,
        ai_provider_id: body.provider,
        integration_id: null,
        status: 'active',
        key: body.key === undefined ? null : await sealKey(vault, tenant, place(id), body.key),
        model_config: checked.plain,
        secret_model_config: await sealSettings(vault, tenant, place(id), checked.secrets),
        secret_mappings: body.secret_mappings ?? null,
        usage_limits: null,
        rate_limits: null,
        expires_at: null,
        tags: null,
        last_reset_at: null,
        created_at: now,
        last_updated_at: now,
        ...limitPatch(body, 'active', now),
      };
      return { row, answer: { slug } };
    },
  },
  update: {
    body: updateBody,
    response: z.strictObject({}),
    run: async (call, row) => {
      const { body, vault, tenant } = call;
      refuseMigrated(row);
      const patch: Patch<'virtual_keys'> = limitPatch(body, row.status, call.clock.now());
      await followPatch(call, 'virtual-key', { ...row, label: row.slug }, patch, resets(body));
      if (body.name !== undefined) patch.name = body.name;
      if (body.note !== undefined) patch.note = body.note;
      if (body.key !== undefined) patch.key = await sealKey(vault, tenant, place(row.id), body.key);
      const given = givenSettings(body);
      const newKey = body.key !== undefined && (row.secret_mappings?.length ?? 0) > 0;
      if (Object.keys(given).length > 0 || body.secret_mappings !== undefined || newKey) {
        const settings = { ...row.model_config, ...given };
        const mappings = body.secret_mappings === undefined ? row.secret_mappings : body.secret_mappings;
        const checked = await checkAccount(call, row.ai_provider_id, settings, {
          mappings,
          hasKey: row.key !== null || body.key !== undefined,
          stored: {
            plain: row.model_config,
            secrets: await openSettings(vault, tenant, place(row.id), row.secret_model_config),
            sealed: row.secret_model_config,
            keyStays: row.key !== null && body.key === undefined,
          },
        });
        patch.model_config = checked.plain;
        patch.secret_mappings = mappings;
      }
      return { patch, answer: {} };
    },
  },
  remove: {},
  actions: [migrate],
});

export const virtualKeys = defineResource(spec);
