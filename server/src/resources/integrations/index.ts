/** Integrations: provider credentials of an organisation or of one workspace. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { slugify, uuidv7 } from '../../kernel/id.ts';
import type { Row } from '../../store/schema.ts';
import { maskOf, toIso } from '../body-fields.ts';
import { actorId, hasTags, type Patch, readTagsFilter } from '../common.ts';
import { defineResource } from '../define.ts';
import { queryBoolean } from '../fields.ts';
import { levelOf } from '../kinds/levels.ts';
import type { Call } from '../resource.ts';
import { mapsSecrets } from '../secret-references/find.ts';
import { resourceSpec } from '../spec.ts';
import { checkModelHosts } from './model-settings.ts';
import { modelActions } from './models.ts';
import { objectActions } from './objects.ts';
import { providerKinds } from './provider-kinds.ts';
import { checkAccount, checkUnused, createDefaultProvider, type Integration, LEVELS, visible } from './rules.ts';
import { createBody, detail, item, updateBody } from './schema.ts';
import { type AccountPlace, maskSettings, openSettings, sealKey, sealSettings } from './secrets.ts';
import { trial } from './trial.ts';
import { countWorkspaces, presentAccess, readPassthrough, workspaceActions } from './workspaces.ts';

const place = (row: string): AccountPlace => ({ table: 'integrations', column: 'secret_configurations', row });

function presentItem(row: Integration) {
  return {
    id: row.id,
    organisation_id: row.organisation_id,
    workspace_id: row.workspace_id,
    type: levelOf(row),
    ai_provider_id: row.ai_provider_id,
    name: row.name,
    slug: row.slug,
    description: row.description,
    status: row.status,
    tags: row.tags,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    object: 'integration' as const,
  };
}

async function presentDetail(row: Integration, call: Call) {
  const masked = await maskSettings(call.vault, call.tenant, place(row.id), row.secret_configurations);
  return {
    ...presentItem(row),
    masked_key: row.key === null ? null : maskOf(row.key),
    configurations: { ...row.configurations, ...masked },
    global_workspace_access_settings: presentAccess(
      row.global_workspace_access ?? { enabled: row.workspace_id === null },
    ),
    allow_all_models: row.allow_all_models,
    workspace_count: await countWorkspaces(call.tx, row),
    passthrough: { workspaces: row.passthrough ?? [] },
    secret_mappings: row.secret_mappings ?? [],
    pricing_adjustments: row.pricing_adjustments,
  };
}

/** Integrations that a filter on tags looks at: they are compared here, inside JSON. */
const MAX_TAGGED = 1_000;

const spec = resourceSpec({
  refers: [mapsSecrets('integrations', 'integration')],
  name: 'integrations',
  tag: 'Integrations',
  table: 'integrations',
  path: '/integrations',
  param: 'slug',
  scopes: LEVELS.scopes,
  levels: LEVELS,
  tenant: 'organisation',
  object: 'integration',
  archives: true,
  visible,
  list: {
    query: z.object({
      type: z.enum(['workspace', 'organisation', 'all']).optional(),
      tags: z
        .string()
        .max(8192)
        .optional()
        .describe('JSON object of strings: all of them must match. Looks at the newest 1,000 integrations.'),
    }),
    where: async (call) => {
      const { type, tags } = call.query;
      const only = type === 'organisation' || type === 'workspace' ? type : null;
      const where = LEVELS.held(call, 'list', only);
      if (tags === undefined || tags === '' || where.id !== undefined) return where;
      const wanted = readTagsFilter(tags);
      const newest = {
        where: { ...where, status: 'active' },
        orderBy: [['created_at', 'desc']],
        limit: MAX_TAGGED,
      } as const;
      const rows = await call.tx.list('integrations', newest);
      return { ...where, id: { in: rows.filter((row) => hasTags(row.tags, wanted)).map((row) => row.id) } };
    },
    defaultPageSize: 100,
    maxPageSize: 1000,
    item,
    present: presentItem,
  },
  get: { query: z.object({ include_configurations: queryBoolean.optional() }) },
  detail,
  present: (row, call) => {
    if (call.query.include_configurations === true) {
      throw new SluiceError(
        'forbidden',
        'include_configurations=true opens secrets and is for the gateway itself; leave it out.',
      );
    }
    return presentDetail(row, call);
  },
  create: {
    body: createBody,
    response: z.object({
      id: z.string(),
      slug: z.string(),
      provider_slug: z
        .string()
        .nullable()
        .describe(
          'The provider that was made with it, as requests name it: `@slug`. Another slug than its own where that is taken.',
        ),
    }),
    run: async (call) => {
      const { body } = call;
      const workspaceId = await LEVELS.place(call);
      const checked = await checkAccount(call, workspaceId, {
        provider: body.ai_provider_id,
        configurations: body.configurations ?? {},
        mappings: body.secret_mappings,
        hasKey: body.key !== undefined,
      });
      const slug = body.slug ?? slugify(body.name);
      if ((await call.tx.count('integrations', { where: { slug, status: 'active' } })) > 0) {
        throw new SluiceError('conflict', `slug is taken: the organisation has an integration named ${slug}.`, {
          param: 'slug',
        });
      }
      const id = uuidv7(call.clock);
      const now = call.clock.now();
      const row: Row<'integrations'> = {
        id,
        organisation_id: call.tenant.organisationId,
        workspace_id: workspaceId,
        slug,
        name: body.name,
        description: body.description ?? null,
        ai_provider_id: body.ai_provider_id,
        status: 'active',
        key: body.key === undefined ? null : await sealKey(call.vault, call.tenant, place(id), body.key),
        configurations: checked.plain,
        secret_configurations: await sealSettings(call.vault, call.tenant, place(id), checked.secrets),
        secret_mappings: body.secret_mappings ?? null,
        pricing_adjustments: body.pricing_adjustments ?? null,
        allow_all_models: true,
        global_workspace_access: null,
        passthrough: await readPassthrough(call, workspaceId, body.passthrough),
        tags: body.tags ?? null,
        created_by: actorId(call.principal),
        created_at: now,
        last_updated_at: now,
      };
      return { row, answer: { id, slug, provider_slug: null } };
    },
    after: async (call, row) => {
      if (row.workspace_id === null || call.body.create_default_provider === false) return undefined;
      const slug = await createDefaultProvider(
        call,
        row,
        row.workspace_id,
        call.body.default_provider_slug,
        'default_provider_slug',
      );
      return { provider_slug: slug };
    },
  },
  update: {
    body: updateBody,
    response: z.strictObject({}),
    run: async (call, row) => {
      const { body } = call;
      const patch: Patch<'integrations'> = {};
      if (body.name !== undefined) patch.name = body.name;
      if (body.description !== undefined) patch.description = body.description;
      if (body.pricing_adjustments !== undefined) patch.pricing_adjustments = body.pricing_adjustments;
      if (body.tags !== undefined) patch.tags = body.tags;
      if (body.passthrough !== undefined) {
        patch.passthrough = await readPassthrough(call, row.workspace_id, body.passthrough);
      }
      if (body.key !== undefined) {
        patch.key = body.key === null ? null : await sealKey(call.vault, call.tenant, place(row.id), body.key);
      }
      const mapsAlready = (row.secret_mappings?.length ?? 0) > 0;
      if (
        body.configurations !== undefined ||
        body.secret_mappings !== undefined ||
        body.key === null ||
        (body.key !== undefined && mapsAlready)
      ) {
        const mappings = body.secret_mappings === undefined ? row.secret_mappings : body.secret_mappings;
        const kept = await openSettings(call.vault, call.tenant, place(row.id), row.secret_configurations);
        const checked = await checkAccount(call, row.workspace_id, {
          provider: row.ai_provider_id,
          configurations: body.configurations ?? row.configurations,
          mappings,
          hasKey: body.key === undefined ? row.key !== null : body.key !== null,
          stored: {
            plain: row.configurations,
            secrets: kept,
            sealed: row.secret_configurations,
            keyStays: row.key !== null && body.key === undefined,
          },
        });
        patch.secret_mappings = mappings;
        if (body.configurations !== undefined) {
          patch.configurations = checked.plain;
          patch.secret_configurations = await sealSettings(call.vault, call.tenant, place(row.id), checked.secrets);
        }
      }
      if (body.key !== undefined || body.configurations !== undefined) {
        await checkModelHosts(call, row, { ...row, ...patch }, body.key == null ? 'configurations' : 'key');
      }
      return { patch, answer: {} };
    },
  },
  remove: {
    query: z.object({
      force: queryBoolean.optional().describe('Delete it although providers use it: their requests fail then.'),
    }),
    check: async (call, row) => {
      if (call.query.force !== true) await checkUnused(call.tx, row);
    },
  },
});

export const integrations = defineResource({
  ...spec,
  actions: [...modelActions(spec), ...workspaceActions(spec), ...objectActions(spec), trial(spec), providerKinds],
});
