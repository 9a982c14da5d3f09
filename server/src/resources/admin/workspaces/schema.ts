/** Bodies, queries and answers of workspaces. */
import { z } from 'zod';
import {
  defaultMetadata,
  description,
  name,
  rateLimitAnswer,
  rateLimits,
  slug as slugText,
  text,
  usageLimitAnswer,
  usageLimits,
} from '../../body-fields.ts';
import { isUuid, queryBoolean, queryList, reference, tenantFields, uuid } from '../../fields.ts';
import { workspaceSecurity, workspaceSettings } from '../../settings/schema.ts';
import { memberAnswer } from './members-schema.ts';

const guardrails = z
  .array(reference)
  .max(100)
  .superRefine((value, context) => {
    for (const [index, entry] of value.entries()) {
      if (value.indexOf(entry) !== index) {
        context.addIssue({ code: 'custom', path: [index], message: 'repeats a guardrail' });
      }
    }
  })
  .describe('Slugs or ids of guardrails that run on every request of the workspace.');

const defaults = z.strictObject({
  metadata: defaultMetadata.nullable().optional(),
  input_guardrails: guardrails.nullable().optional(),
  output_guardrails: guardrails.nullable().optional(),
  user_api_key_config: reference
    .nullable()
    .optional()
    .describe('Id or slug of a config of this workspace, given to user keys that name none. Answered as the slug.'),
});

/** Every limit that holds is checked by every request. */
const MAX_USAGE_LIMITS = 10;
const MAX_USERS = 100;

const slug = slugText
  .min(1)
  .refine((value) => !isUuid(value), { error: 'must not have the form of a UUID: paths take either' });

const shared = {
  description: description.nullable().optional(),
  icon: text(64).nullable().optional(),
  defaults: defaults.nullable().optional(),
  usage_limits: usageLimits(MAX_USAGE_LIMITS).nullable().optional(),
  rate_limits: rateLimits.nullable().optional(),
};

const organisation = { organisation_id: tenantFields.organisation_id };

export const createBody = z.strictObject({
  ...organisation,
  name,
  slug: slug.optional().describe('Made from the name when omitted.'),
  ...shared,
  users: z
    .array(uuid)
    .max(MAX_USERS)
    .superRefine((value, context) => {
      for (const [index, id] of value.entries()) {
        if (value.indexOf(id) !== index) context.addIssue({ code: 'custom', path: [index], message: 'repeats a user' });
      }
    })
    .optional()
    .describe('Ids of users of the organisation who become members.'),
});

export const updateBody = z.strictObject({
  ...organisation,
  name: name.optional(),
  ...shared,
  settings: workspaceSettings
    .nullable()
    .optional()
    .describe('Each replaces the organisation’s value; null inherits it.'),
  security_settings: workspaceSecurity
    .nullable()
    .optional()
    .describe('Only categories that the organisation has opened to its workspaces.'),
  reset_usage: z.boolean().optional().describe('True starts every usage limit anew.'),
});

export const removeBody = z.strictObject({
  ...organisation,
  name: z.string().max(1024).optional().describe('Must be the name of the workspace, as a second look.'),
  force_delete: z.boolean().optional().describe('Removes the resources of the workspace too, and frees their slugs.'),
});

export type CreateBody = z.output<typeof createBody>;
export type UpdateBody = z.output<typeof updateBody>;
export type RemoveBody = z.output<typeof removeBody>;

const nameFormat = z
  .enum(['display', 'plain'])
  .optional()
  .describe('plain leaves out the emoji that the name begins with; default display.');

export const listQuery = z.object({
  name: z.string().max(255).optional().describe('Part of the name, case-sensitive.'),
  exact_name: z.string().max(255).optional(),
  status: queryList(z.enum(['active', 'archived']), 2)
    .optional()
    .describe('Comma-separated; archived for owners, admins and organisation keys only. Default active.'),
  name_format: nameFormat,
});

export const getQuery = z.object({
  name_format: nameFormat,
  include_usage: queryBoolean.optional(),
  usage_id: text(255, 1).optional(),
});

export const writeQuery = z.strictObject(organisation);

const time = z.iso.datetime();

export const workspaceItem = z.object({
  object: z.literal('workspace'),
  id: z.string(),
  slug: z.string(),
  name: z.string(),
  icon: z.string().nullable(),
  description: z.string().nullable(),
  is_default: z.union([z.literal(0), z.literal(1)]),
  status: z.enum(['active', 'archived']),
  defaults: z
    .object({
      metadata: z.record(z.string(), z.string()).optional(),
      input_guardrails: z.array(z.string()).optional(),
      output_guardrails: z.array(z.string()).optional(),
      user_api_key_config: z.string().nullable().describe('Slug of the config.'),
    })
    .nullable(),
  usage_limits: z.array(usageLimitAnswer).nullable(),
  rate_limits: z.array(rateLimitAnswer).nullable(),
  security_settings: z.record(z.string(), z.unknown()).describe('Settings of the workspace itself.'),
  settings: z.record(z.string(), z.unknown()).describe('Settings of the workspace itself.'),
  scim_source_id: z.string().nullable(),
  created_at: time,
  last_updated_at: time,
});

export const workspaceDetail = workspaceItem.extend({
  organisation_id: z.string(),
  created_by: z.string().nullable(),
  creation_source: z.enum(['ui', 'api', 'auto']).nullable(),
  last_reset_at: time.nullable(),
  users: z.array(memberAnswer).optional().describe('For callers that may list the members (workspace_users.list).'),
});
