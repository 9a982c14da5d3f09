/** Bodies and answers of providers. */
import { z } from 'zod';
import {
  isoDate,
  name,
  rateLimitAnswer,
  rateLimitsOrOne,
  secretMappings,
  slug,
  tags,
  text,
  usageLimit,
  usageLimitAnswer,
} from '../body-fields.ts';
import { reference, tenantFields } from '../fields.ts';

export const note = text(1024).nullable();

/** What providers and virtual keys have in common on every write. */
export const limits = {
  usage_limits: usageLimit.nullable().optional(),
  rate_limits: rateLimitsOrOne.nullable().optional(),
  expires_at: isoDate.nullable().optional(),
  tags: tags.nullable().optional(),
};

/** `true` or 1 starts the usage anew: an exhausted object becomes active again. */
export const resetUsage = z
  .union([z.boolean(), z.literal(0), z.literal(1)])
  .nullable()
  .optional();

export const createBody = z.strictObject({
  ...tenantFields,
  name,
  integration_id: reference.describe('Slug or id of an integration that is open to the workspace.'),
  slug: slug.optional(),
  note: note.optional(),
  ...limits,
  secret_mappings: secretMappings('configurations').nullable().optional(),
});

export const updateBody = z.strictObject({
  ...tenantFields,
  name: name.optional(),
  note: note.optional(),
  ...limits,
  reset_usage: resetUsage,
});

export type CreateBody = z.output<typeof createBody>;
export type UpdateBody = z.output<typeof updateBody>;

export const answer = z.object({
  id: z.string(),
  slug: z.string(),
  name: z.string(),
  note: z.string().nullable(),
  status: z
    .enum(['active', 'exhausted', 'expired', 'archived', 'integration_archived'])
    .describe('`integration_archived`: its integration was deleted, so its requests are refused.'),
  integration_id: z.string().describe('Slug of the integration.'),
  workspace_id: z.string(),
  usage_limits: usageLimitAnswer.nullable(),
  rate_limits: z.array(rateLimitAnswer).nullable(),
  reset_usage: z.number().nullable(),
  expires_at: z.string().nullable(),
  tags: z.record(z.string(), z.string()).nullable(),
  created_at: z.string(),
  last_updated_at: z.string(),
  last_reset_at: z.string().nullable(),
  object: z.literal('provider'),
});

export const saved = z.object({ id: z.string(), slug: z.string() });

export const catalogueAnswer = z.object({
  object: z.literal('list'),
  total_count: z.int(),
  data: z.array(z.object({ id: z.string(), slug: z.string(), canonical_slug: z.string(), object: z.literal('model') })),
});
