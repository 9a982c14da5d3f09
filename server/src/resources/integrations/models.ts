/** Models of an integration: switched on and off, priced, and custom ones with their own host. */
import { z } from 'zod';
import type { Row } from '../../store/schema.ts';
import { text } from '../body-fields.ts';
import { emptyAnswer, itemAction } from '../define.ts';
import { queryList, tenantFields } from '../fields.ts';
import { childList } from '../kinds/child.ts';
import { upsert } from '../kinds/upsert.ts';
import type { AnyAction, Call } from '../resource.ts';
import type { ResourceSpec } from '../spec.ts';
import { presentModelSettings, sealModelSettings } from './model-settings.ts';
import { MODELS, type ModelsBody, modelAnswer, modelsBody } from './schema.ts';

type ModelRow = Row<'integration_models'>;
type Spec = ResourceSpec<'integrations'>;

async function present(row: ModelRow, call: Call) {
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

/** The model as it is to be: what the body leaves out stays, or gets its default. */
async function modelOf(
  call: Call,
  row: Row<'integrations'>,
  given: ModelsBody['models'][number],
  before: ModelRow | undefined,
  param: string,
): Promise<ModelRow> {
  const now = call.clock.now();
  return {
    organisation_id: row.organisation_id,
    integration_id: row.id,
    slug: given.slug,
    name: given.name ?? before?.name ?? null,
    description: given.description ?? before?.description ?? null,
    enabled: given.enabled,
    is_custom: given.is_custom ?? before?.is_custom ?? false,
    is_finetune: given.is_finetune ?? before?.is_finetune ?? false,
    base_model_slug: given.base_model_slug === undefined ? (before?.base_model_slug ?? null) : given.base_model_slug,
    pricing_config: given.pricing_config ?? before?.pricing_config ?? null,
    configurations: given.configurations
      ? await sealModelSettings(call, row, given.slug, given.configurations, before, param)
      : (before?.configurations ?? null),
    created_at: before?.created_at ?? now,
    last_updated_at: now,
  };
}

export function modelActions(spec: Spec): AnyAction[] {
  const shared = { path: '/models', alsoAt: ['/integration-models'] } as const;
  return [
    childList(spec, {
      ...shared,
      name: 'models',
      summary: 'List the models of an integration',
      table: 'integration_models',
      where: (row) => ({ integration_id: row.id }),
      orderBy: [['slug', 'asc']],
      item: modelAnswer,
      envelope: MODELS,
      present: (models, call) => Promise.all(models.map((model) => present(model, call))),
      beside: (row) => ({ allow_all_models: row.allow_all_models }),
    }),
    itemAction(spec, {
      ...shared,
      name: 'models.update',
      method: 'PUT',
      summary: 'Add or change models of an integration',
      description: 'Models that are not named stay as they are.',
      verb: 'update',
      body: modelsBody,
      response: emptyAnswer,
      audit: 'update',
      run: async (call, row) => {
        const { body, tx } = call;
        const known = await tx.list('integration_models', { where: { integration_id: row.id } });
        const old = new Map(known.map((model) => [model.slug, model]));
        const wanted: ModelRow[] = [];
        for (const [index, given] of body.models.entries()) {
          wanted.push(await modelOf(call, row, given, old.get(given.slug), `models[${index}].configurations`));
        }
        await upsert(tx, 'integration_models', ['integration_id', 'slug'], known, wanted, { others: 'stay' });
        const slugs = body.models.map((model) => model.slug);
        const where = { integration_id: row.id, slug: { in: slugs } };
        const { allow_all_models = row.allow_all_models } = body;
        if (body.allow_all_models !== undefined) {
          await tx.update('integrations', { id: row.id }, { allow_all_models, last_updated_at: call.clock.now() });
        }
        call.audit(row.id, {
          before: {
            models: known.filter((model) => slugs.includes(model.slug)),
            allow_all_models: row.allow_all_models,
          },
          after: { models: await tx.list('integration_models', { where }), allow_all_models },
        });
        return { patch: {}, answer: {} };
      },
    }),
    itemAction(spec, {
      ...shared,
      name: 'models.delete',
      method: 'DELETE',
      summary: 'Remove custom models of an integration',
      description: 'Models that are not custom stay: switch them off instead.',
      verb: 'update',
      query: z.strictObject({ ...tenantFields, slugs: queryList(text(255, 1).toLowerCase(), 1000) }),
      response: emptyAnswer,
      audit: { action: 'delete', resource: 'integrations' },
      run: async (call, row) => {
        const where = { integration_id: row.id, slug: { in: call.query.slugs }, is_custom: true };
        const models = await call.tx.list('integration_models', { where });
        await call.tx.remove('integration_models', where);
        call.audit(row.id, { before: { models }, after: { models: [] } });
        return { patch: {}, answer: {} };
      },
    }),
  ];
}
