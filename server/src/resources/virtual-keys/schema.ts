/** Bodies and answers of virtual keys. */
import { z } from 'zod';
import {
  name,
  providerId,
  rateLimitAnswer,
  secretMappings,
  secretText,
  slug,
  usageLimitAnswer,
} from '../body-fields.ts';
import { reference, tenantFields, uuid } from '../fields.ts';
import { limits, note, resetUsage } from '../providers/schema.ts';
import { settingFields, updateFields } from './settings.ts';

const ownFields = z.strictObject({
  ...tenantFields,
  name,
  provider: providerId,
  slug: slug.optional(),
  key: secretText.optional(),
  note: note.optional(),
  ...limits,
  secret_mappings: secretMappings('model_config').nullable().optional(),
});

/** The provider's settings are beside the own fields, under their camel-case names. */
export type CreateBody = z.output<typeof ownFields> & Record<string, unknown>;

export const createBody = ownFields.extend(settingFields) as unknown as z.ZodType<CreateBody>;

const ownUpdates = z.strictObject({
  ...tenantFields,
  name: name.optional(),
  key: secretText.optional(),
  note: note.optional(),
  ...limits,
  secret_mappings: secretMappings('model_config').nullable().optional(),
  reset_usage: resetUsage,
});

export type UpdateBody = z.output<typeof ownUpdates> & Record<string, unknown>;

export const updateBody = ownUpdates.extend(updateFields) as unknown as z.ZodType<UpdateBody>;

export const migrateBody = z.strictObject({
  virtual_key_id: reference,
  organisation_id: uuid.optional(),
  workspace_id: tenantFields.workspace_id,
});

export type MigrateBody = z.output<typeof migrateBody>;

export const item = z.object({
  id: z.string(),
  slug: z.string(),
  name: z.string(),
  note: z.string().nullable(),
  provider: z.string(),
  status: z.enum(['active', 'exhausted', 'expired', 'archived']),
  workspace_id: z.string(),
  integration_id: z.string().nullable().describe('Slug of the integration, once the virtual key was migrated.'),
  usage_limits: usageLimitAnswer.nullable(),
  rate_limits: z.array(rateLimitAnswer).nullable(),
  reset_usage: z.number().nullable(),
  expires_at: z.string().nullable(),
  tags: z.record(z.string(), z.string()).nullable(),
  created_at: z.string(),
  last_updated_at: z.string(),
  last_reset_at: z.string().nullable(),
  object: z.literal('virtual-key'),
});

export const detail = item.extend({
  masked_api_key: z.string().nullable(),
  model_config: z.record(z.string(), z.unknown()).describe('Secret settings are shown as `masked_<name>`.'),
  secret_mappings: z.array(z.looseObject({})),
});
