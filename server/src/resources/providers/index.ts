/** Providers: an integration as one workspace uses it, named `@slug` in requests. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../kernel/id.ts';
import type { Row } from '../../store/schema.ts';
import {
  checkMappings,
  claimSlug,
  findNamed,
  freeSlug,
  hasTags,
  only,
  type Patch,
  readTagsFilter,
  requireWorkspace,
  unknownReference,
} from '../common.ts';
import { defineResource } from '../define.ts';
import { queryBoolean, tenantFields } from '../fields.ts';
import { checkMappedAddresses, fieldNames } from '../integrations/configurations.ts';
import { limitPatch, presentLimits, resets } from '../provider-limits.ts';
import { action, type Call } from '../resource.ts';
import { isOpenTo, loadProviders } from '../runtime-rows.ts';
import { mapsSecrets } from '../secret-references/find.ts';
import { resourceSpec } from '../spec.ts';
import { followPatch, type UsageOf, usageOf } from '../usage-counters.ts';
import { answer, catalogueAnswer, createBody, saved, updateBody } from './schema.ts';

type ProviderRow = Row<'providers'>;
type AnyCall = Call<never, never, never> | Call;

function present(row: ProviderRow, integration: Row<'integrations'> | undefined, now: number, usage: UsageOf) {
  return {
    id: row.id,
    slug: row.slug,
    name: row.name,
    note: row.note,
    integration_id: integration?.slug ?? '',
    workspace_id: row.workspace_id,
    ...presentLimits(row, now, usage),
    ...(integration?.status === 'archived' ? { status: 'integration_archived' as const } : {}),
    object: 'provider' as const,
  };
}

async function presentAll(rows: readonly ProviderRow[], call: Call) {
  const ids = [...new Set(rows.map((row) => row.integration_id))];
  const integrations = ids.length === 0 ? [] : await call.tx.list('integrations', { where: { id: { in: ids } } });
  const known = new Map(integrations.map((row) => [row.id, row]));
  const usage = await usageOf(call.tx, 'provider', rows);
  return rows.map((row) => present(row, known.get(row.integration_id), call.clock.now(), usage));
}

/** An active integration that the workspace may use. Throws 404 `AB02`, the same for one that does not exist. */
async function usableIntegration(call: AnyCall, workspaceId: string, name: string): Promise<Row<'integrations'>> {
  const found = await findNamed(call.tx, 'integrations', name, { status: 'active' });
  const own = found
    ? await call.tx.find('integration_workspaces', { integration_id: found.id, workspace_id: workspaceId })
    : undefined;
  const mine = found && (found.workspace_id === null || found.workspace_id === workspaceId);
  if (!found || !mine || !isOpenTo(found, own ?? null)) throw unknownReference('integration_id', 'integration');
  return found;
}

/** `GET /providers/models`: the models that are named on the workspace's integrations. */
const catalogue = action({
  id: 'providers.models',
  method: 'GET',
  path: '/providers/models',
  summary: 'List the models of all providers',
  description: 'Models that are enabled on the integrations. Those that an integration allows unnamed are not listed.',
  tag: 'Providers',
  auth: 'key_or_login',
  scopes: ['providers.list'],
  tenant: 'workspace',
  params: null,
  query: z.strictObject({ ...tenantFields }),
  body: null,
  response: catalogueAnswer,
  writes: false,
  audit: null,
  run: async (call) => {
    const usable = await loadProviders(call.tx, requireWorkspace(call));
    const data = usable
      .flatMap(({ row, models }) =>
        models
          .filter((model) => model.enabled)
          .map((model) => ({
            id: `@${row.slug}/${model.slug}`,
            slug: model.slug,
            canonical_slug: model.base_model_slug ?? model.slug,
            object: 'model' as const,
          })),
      )
      .sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
    return { object: 'list' as const, total_count: data.length, data };
  },
});

const spec = resourceSpec({
  refers: [mapsSecrets('providers', 'provider')],
  name: 'providers',
  tag: 'Providers',
  table: 'providers',
  path: '/providers',
  param: 'slug',
  scopes: ['providers'],
  tenant: 'workspace',
  object: 'provider',
  archives: true,
  list: {
    query: z.object({
      tags: z.string().max(8192).optional().describe('JSON object of strings: all of them must match.'),
      return_last_used: queryBoolean.optional(),
    }),
    where: async (call) => {
      const { tags } = call.query;
      if (tags === undefined || tags === '') return {};
      const wanted = readTagsFilter(tags);
      const here = { workspace_id: requireWorkspace(call), status: { not: 'archived' } } as const;
      const rows = await call.tx.list('providers', { where: here });
      return { id: { in: rows.filter((row) => hasTags(row.tags, wanted)).map((row) => row.id) } };
    },
    defaultPageSize: 50,
    maxPageSize: 100,
    item: answer,
    presentAll,
  },
  get: { query: z.object({ include_configurations: queryBoolean.optional() }) },
  detail: answer,
  present: async (row, call) => {
    if (call.query.include_configurations === true) {
      throw new SluiceError('forbidden', 'include_configurations=true is for the gateway itself; leave it out.');
    }
    return only(await presentAll([row], call));
  },
  create: {
    body: createBody,
    response: saved,
    run: async (call) => {
      const { body, tx } = call;
      const workspaceId = requireWorkspace(call);
      const integration = await usableIntegration(call, workspaceId, body.integration_id);
      const slug = body.slug === undefined ? await freeSlug(tx, slugify(body.name)) : await claimSlug(tx, body.slug);
      const fields = fieldNames(integration.ai_provider_id);
      const mapped = await checkMappings(tx, workspaceId, body.secret_mappings, 'configurations', fields);
      // The rest of the account is the integration's, whose secrets go where that says.
      checkMappedAddresses(integration.ai_provider_id, mapped, true);
      const now = call.clock.now();
      const row: ProviderRow = {
        id: uuidv7(call.clock),
        organisation_id: call.tenant.organisationId,
        workspace_id: workspaceId,
        integration_id: integration.id,
        slug,
        name: body.name,
        note: body.note ?? null,
        status: 'active',
        usage_limits: null,
        rate_limits: null,
        expires_at: null,
        tags: null,
        secret_mappings: body.secret_mappings ?? null,
        last_reset_at: null,
        created_at: now,
        last_updated_at: now,
        ...limitPatch(body, 'active', now),
      };
      return { row, answer: { id: row.id, slug } };
    },
  },
  update: {
    body: updateBody,
    response: saved,
    run: async (call, row) => {
      const patch: Patch<'providers'> = limitPatch(call.body, row.status, call.clock.now());
      if (call.body.name !== undefined) patch.name = call.body.name;
      if (call.body.note !== undefined) patch.note = call.body.note;
      await followPatch(call, 'provider', { ...row, label: row.slug }, patch, resets(call.body));
      return { patch, answer: { id: row.id, slug: row.slug } };
    },
  },
  remove: {},
  actions: [catalogue],
});

export const providers = defineResource(spec);
