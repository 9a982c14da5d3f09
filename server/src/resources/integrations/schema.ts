/** Bodies and answers of integrations, their models and their workspaces. */
import { z } from 'zod';
import {
  atMostOneRateLimit,
  atMostOneUsageLimit,
  customHeaders,
  customHost,
  description,
  name,
  providerId,
  rateLimit,
  rateLimitAnswer,
  secretMappings,
  secretText,
  slug,
  tags,
  text,
  usageLimit,
  usageLimitAnswer,
} from '../body-fields.ts';
import { reference, tenantFields } from '../fields.ts';
import type { Envelope } from '../kinds/lists.ts';

/** Closed by provider and way of signing in: `configurations.ts`. */
const settings = z.record(z.string(), z.unknown());

const factor = z.number().min(0).max(1_000_000).nullable().optional();

/** What each token type's price is multiplied by. */
export const pricingAdjustments = z.strictObject({
  multiplier: z.strictObject({
    default: factor,
    request_token: factor,
    response_token: factor,
    cache_read_input_token: factor,
    cache_write_input_token: factor,
    cache_read_audio_input_token: factor,
    request_audio_token: factor,
    response_audio_token: factor,
    reasoning_token: factor,
    prediction_accepted_token: factor,
    prediction_rejected_token: factor,
    request_image_token: factor,
    response_image_token: factor,
    request_text_token: factor,
    response_text_token: factor,
    cache_read_image_input_token: factor,
    cache_read_text_input_token: factor,
    cache_write_text_input_token: factor,
    cache_write_image_input_token: factor,
    image: z.strictObject({ default: factor }).nullable().optional(),
    additional_units: z.record(text(128, 1), z.number().min(0).max(1_000_000)).nullable().optional(),
  }),
});

/** Opens an account that several workspaces share to requests that name objects without an owner. */
export const passthrough = z
  .strictObject({ workspaces: z.array(reference).max(1000) })
  .describe(
    'Workspaces (UUID or slug) that may pass any request through to the account, although others share it. They then reach every object in it. Only for integrations of the organisation; null or an empty list closes it.',
  );

/** An empty text means "choose one", as when the field is left out. */
const wantedSlug = z.union([slug, z.literal('')]).optional();

export const createBody = z.strictObject({
  ...tenantFields,
  name,
  slug: slug.optional(),
  ai_provider_id: providerId,
  key: secretText.optional(),
  description: description.optional(),
  configurations: settings.optional(),
  create_default_provider: z.boolean().optional(),
  default_provider_slug: wantedSlug,
  secret_mappings: secretMappings('configurations').optional(),
  pricing_adjustments: pricingAdjustments.nullable().optional(),
  tags: tags.optional(),
  passthrough: passthrough.nullable().optional(),
});

export const updateBody = z.strictObject({
  ...tenantFields,
  name: name.optional(),
  key: secretText.nullable().optional().describe('null removes the stored key.'),
  description: description.nullable().optional(),
  configurations: settings
    .optional()
    .describe(
      'Replaces the settings; secret ones that are left out stay as they are, null clears them. A change of where they go needs them again.',
    ),
  secret_mappings: secretMappings('configurations').nullable().optional(),
  pricing_adjustments: pricingAdjustments.nullable().optional(),
  tags: tags.nullable().optional(),
  passthrough: passthrough.nullable().optional(),
});

/** Settings of a model as a body gives them. */
export type ModelSettingsInput = NonNullable<z.output<typeof model>['configurations']>;
export type CreateBody = z.output<typeof createBody>;
export type UpdateBody = z.output<typeof updateBody>;

export const item = z.object({
  id: z.string(),
  organisation_id: z.string(),
  workspace_id: z.string().nullable(),
  type: z.enum(['workspace', 'organisation']),
  ai_provider_id: z.string(),
  name: z.string(),
  slug: z.string(),
  description: z.string().nullable(),
  status: z.enum(['active', 'archived']),
  tags: z.record(z.string(), z.string()).nullable(),
  created_at: z.string(),
  last_updated_at: z.string(),
  object: z.literal('integration'),
});

const access = z.object({
  enabled: z.boolean(),
  usage_limits: z.array(usageLimitAnswer),
  rate_limits: z.array(rateLimitAnswer),
});

export const detail = item.extend({
  masked_key: z.string().nullable(),
  configurations: z.record(z.string(), z.unknown()).describe('Secret settings are shown as `masked_<name>`.'),
  global_workspace_access_settings: access,
  allow_all_models: z.boolean(),
  workspace_count: z.int(),
  passthrough: z
    .object({ workspaces: z.array(z.string()) })
    .describe('Ids of the workspaces that may pass any request through, although others share the account.'),
  secret_mappings: z.array(z.looseObject({})),
  pricing_adjustments: z.record(z.string(), z.unknown()).nullable(),
});

const price = z.strictObject({ price: z.number().min(0).max(1e9) });

const model = z
  .strictObject({
    // Model names are compared in lower case everywhere.
    slug: text(255, 1).toLowerCase(),
    name: text(255).optional(),
    description: description.optional(),
    enabled: z.boolean(),
    is_custom: z.boolean().nullable().optional(),
    is_finetune: z.boolean().nullable().optional(),
    base_model_slug: text(255, 1).nullable().optional(),
    configurations: z
      .strictObject({
        custom_host: customHost
          .optional()
          .describe(
            'A host of the integration, unless the model has a key: the key of the integration goes nowhere else.',
          ),
        custom_headers: customHeaders.optional(),
        key: secretText.nullable().optional().describe('Sent in place of the key of the integration; null removes it.'),
      })
      .refine((value) => Object.values(value).some((item) => item !== undefined), {
        message: 'must not be empty: give custom_host, custom_headers or key',
      })
      .optional(),
    pricing_config: z
      .strictObject({
        type: z.literal('static').optional(),
        pay_as_you_go: z.strictObject({ request_token: price.optional(), response_token: price.optional() }).optional(),
      })
      .optional()
      .describe('Prices in US cents per token.'),
  })
  .check((check) => {
    if (check.value.is_finetune === true && check.value.base_model_slug == null) {
      check.issues.push({
        code: 'custom',
        input: check.value,
        path: ['base_model_slug'],
        message: 'is required with is_finetune',
      });
    }
  });

export const modelsBody = z.strictObject({
  ...tenantFields,
  models: z
    .array(model)
    .max(5000)
    .check((check) => {
      const seen = new Set<string>();
      for (const [index, { slug: own }] of check.value.entries()) {
        if (seen.has(own)) {
          const message = `repeats the model ${own}`;
          check.issues.push({ code: 'custom', input: check.value, path: [index, 'slug'], message });
        }
        seen.add(own);
      }
    }),
  allow_all_models: z.boolean().optional(),
});

export type ModelsBody = z.output<typeof modelsBody>;

export const modelAnswer = z.object({
  slug: z.string(),
  name: z.string(),
  description: z.string().nullable(),
  enabled: z.boolean(),
  is_custom: z.boolean(),
  is_finetune: z.boolean(),
  base_model_slug: z.string().nullable(),
  pricing_config: z.record(z.string(), z.unknown()).nullable(),
  configurations: z.record(z.string(), z.unknown()).nullable(),
});

export const MODELS: Envelope = {
  schema: (item) => z.object({ total: z.int(), models: z.array(item), allow_all_models: z.boolean() }),
  wrap: ({ total, data }) => ({ total, models: data }),
};

export const workspacesBody = z.strictObject({
  organisation_id: tenantFields.organisation_id,
  workspaces: z
    .array(
      z.strictObject({
        id: reference,
        enabled: z.boolean(),
        usage_limits: atMostOneUsageLimit.nullable().optional(),
        rate_limits: atMostOneRateLimit.nullable().optional(),
        reset_usage: z.boolean().optional(),
        create_default_provider: z.boolean().optional(),
        default_provider_slug: wantedSlug,
      }),
    )
    .max(5000)
    .optional(),
  global_workspace_access: z
    .strictObject({
      enabled: z.boolean(),
      usage_limits: z.array(usageLimit).max(1).nullable().optional(),
      rate_limits: z.array(rateLimit).max(1).nullable().optional(),
    })
    .optional(),
  override_existing_workspace_access: z.boolean().optional(),
  create_default_provider: z.boolean().optional(),
  default_provider_slug: wantedSlug,
});

export type WorkspacesBody = z.output<typeof workspacesBody>;

export const workspaceAnswer = access.extend({ id: z.string(), slug: z.string() });

export const WORKSPACES: Envelope = {
  schema: (item) => z.object({ total: z.int(), workspaces: z.array(item) }),
  wrap: ({ total, data }) => ({ total, workspaces: data }),
};
