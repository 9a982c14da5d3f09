/** Models of an integration: switched on and off, priced, and custom ones with a host of their own. */
import { z } from 'zod';
import type { Row } from '../../store/schema.ts';
import { emptyAnswer, findRow } from '../define.ts';
import { queryList, tenantFields } from '../fields.ts';
import type { AnyAction, Call } from '../resource.ts';
import { text } from '../shapes.ts';
import { presentModelSettings, sealModelSettings } from './model-settings.ts';
import { levelOf, requireLevel, visible } from './rules.ts';
import { type ModelsBody, modelsAnswer, modelsBody } from './schema.ts';

const target = { table: 'integrations', param: 'slug', archives: true, visible } as const;

const shared = {
  path: '/integrations/:slug/models',
  aliases: ['/v1/integrations/:slug/integration-models', '/v2/integrations/:slug/integration-models'],
  tag: 'Integrations',
  auth: 'key_or_login',
  tenant: 'organisation',
  params: z.strictObject({ slug: z.string() }),
} as const;

const scopes = (verb: string) => [`organisation_integrations.${verb}`, `workspace_integrations.${verb}`];

type ModelRow = Row<'integration_models'>;
type PathCall<Q = unknown, B = unknown> = Call<Record<string, unknown>, Q, B>;

async function present(row: ModelRow, call: PathCall) {
  return {
    slug: row.slug,
    name: row.name ?? row.slug,
    description: row.description,
    enabled: row.enabled,
    is_custom: row.is_custom,
    is_finetune: row.is_finetune,
    base_model_slug: row.base_model_slug,
    pricing_config: row.pricing_config,
    configurations: await presentModelSettings(call.vault, call.tenant, row),
  };
}

export function modelActions(): AnyAction[] {
  return [
    {
      ...shared,
      id: 'integrations.models',
      method: 'GET',
      summary: 'List the models of an integration',
      scopes: scopes('read'),
      query: z.strictObject({ ...tenantFields }),
      body: null,
      response: modelsAnswer,
      writes: false,
      audit: null,
      run: async (call: PathCall) => {
        const row = await findRow(target, call, 'read');
        requireLevel(call, levelOf(row), 'read');
        const models = await call.tx.list('integration_models', {
          where: { integration_id: row.id },
          orderBy: [['slug', 'asc']],
        });
        return {
          total: models.length,
          models: await Promise.all(models.map((model) => present(model, call))),
          allow_all_models: row.allow_all_models,
        };
      },
    },
    {
      ...shared,
      id: 'integrations.models.update',
      method: 'PUT',
      summary: 'Add or change models of an integration',
      description: 'Models that are not named stay as they are.',
      scopes: scopes('update'),
      query: z.strictObject({ ...tenantFields }),
      body: modelsBody,
      response: emptyAnswer,
      writes: true,
      audit: { action: 'update', resource: 'integrations' },
      run: async (call: PathCall<unknown, ModelsBody>) => {
        const { body } = call;
        const row = await findRow(target, call, 'update');
        requireLevel(call, levelOf(row), 'update');
        const now = call.clock.now();
        const known = await call.tx.list('integration_models', { where: { integration_id: row.id } });
        const old = new Map(known.map((model) => [model.slug, model]));
        for (const [index, model] of body.models.entries()) {
          const before = old.get(model.slug);
          const next: ModelRow = {
            organisation_id: row.organisation_id,
            integration_id: row.id,
            slug: model.slug,
            name: model.name ?? before?.name ?? null,
            description: model.description ?? before?.description ?? null,
            enabled: model.enabled,
            is_custom: model.is_custom ?? before?.is_custom ?? false,
            is_finetune: model.is_finetune ?? before?.is_finetune ?? false,
            base_model_slug:
              model.base_model_slug === undefined ? (before?.base_model_slug ?? null) : model.base_model_slug,
            pricing_config: model.pricing_config ?? before?.pricing_config ?? null,
            configurations: model.configurations
              ? await sealModelSettings(
                  call,
                  row,
                  model.slug,
                  model.configurations,
                  before,
                  `models[${index}].configurations`,
                )
              : (before?.configurations ?? null),
            created_at: before?.created_at ?? now,
            last_updated_at: now,
          };
          if (!before) await call.tx.insert('integration_models', next);
          else await call.tx.update('integration_models', { integration_id: row.id, slug: model.slug }, next);
        }
        if (body.allow_all_models !== undefined) {
          await call.tx.update(
            'integrations',
            { id: row.id },
            { allow_all_models: body.allow_all_models, last_updated_at: now },
          );
        }
        const slugs = body.models.map((model) => model.slug);
        call.audited(row.id, {
          before: {
            models: known.filter((model) => slugs.includes(model.slug)),
            allow_all_models: row.allow_all_models,
          },
          after: {
            models: await call.tx.list('integration_models', {
              where: { integration_id: row.id, slug: { in: slugs } },
            }),
            allow_all_models: body.allow_all_models ?? row.allow_all_models,
          },
        });
        call.tx.changed({ workspaceId: row.workspace_id, topic: 'integrations', entityId: row.id });
        return {};
      },
    },
    {
      ...shared,
      id: 'integrations.models.delete',
      method: 'DELETE',
      summary: 'Remove custom models of an integration',
      description: 'Models that are not custom stay: switch them off instead.',
      scopes: scopes('update'),
      query: z.strictObject({ ...tenantFields, slugs: queryList(text(255, 1).toLowerCase(), 1000) }),
      body: null,
      response: emptyAnswer,
      writes: true,
      audit: { action: 'delete', resource: 'integrations' },
      run: async (call: PathCall<{ slugs: string[] }>) => {
        const row = await findRow(target, call, 'update');
        requireLevel(call, levelOf(row), 'update');
        const where = { integration_id: row.id, slug: { in: call.query.slugs }, is_custom: true };
        const models = await call.tx.list('integration_models', { where });
        await call.tx.remove('integration_models', where);
        call.audited(row.id, { before: { models }, after: { models: [] } });
        call.tx.changed({ workspaceId: row.workspace_id, topic: 'integrations', entityId: row.id });
        return {};
      },
    },
  ];
}
