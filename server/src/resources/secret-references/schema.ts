/** Bodies, filters and answers of secret references. */
import { z } from 'zod';
import { description, name, slug, tags, text } from '../body-fields.ts';
import { organisationTenantFields, reference } from '../fields.ts';
import { authConfig, MANAGER_TYPES } from './managers.ts';

const MAX_WORKSPACES = 1000;

const managerType = z.enum(MANAGER_TYPES);
const secretPath = text(1024, 1).describe('Where the secret lies in the manager; its form depends on `manager_type`.');
const secretKey = text(255)
  .nullable()
  .describe('Picks one member of a secret that is a JSON object. A mapping may name another one.');
const workspaces = z.array(reference).min(1).max(MAX_WORKSPACES).describe('Ids or slugs.');

const access = {
  allow_all_workspaces: z
    .boolean()
    .optional()
    .describe('Default true; false as soon as allowed_workspaces lists some.'),
  allowed_workspaces: workspaces.optional(),
};

export const createBody = z.strictObject({
  ...organisationTenantFields,
  name,
  slug: slug.optional().describe('Made of the name when it is left out.'),
  description: description.nullable().optional(),
  manager_type: managerType,
  auth_config: authConfig
    .default({})
    .describe('How Sluice signs in to the manager. Answers show its secrets as masks.'),
  secret_path: secretPath,
  secret_key: secretKey.optional(),
  ...access,
  tags: tags.nullable().optional(),
});

export const updateBody = z
  .strictObject({
    name: name.optional(),
    description: description.nullable().optional(),
    auth_config: authConfig.optional().describe('Merged with what is stored; null clears a field.'),
    secret_path: secretPath.optional(),
    secret_key: secretKey.optional(),
    ...access,
    tags: tags.nullable().optional(),
  })
  .refine((body) => Object.values(body).some((value) => value !== undefined), {
    error: 'must change at least one field',
  });

export type CreateBody = z.output<typeof createBody>;
export type UpdateBody = z.output<typeof updateBody>;

export const filters = z.object({
  manager_type: managerType.optional(),
  tags: z
    .string()
    .max(8192)
    .optional()
    .describe('JSON object of strings: all of them must match. Looks at the newest 1,000 references.'),
  search: text(255, 1).optional().describe('Part of the name or slug.'),
});

const fields = {
  id: z.string(),
  organisation_id: z.string(),
  name: z.string(),
  slug: z.string(),
  description: z.string().nullable(),
  manager_type: managerType,
  secret_path: z.string(),
  secret_key: z.string().nullable(),
  allow_all_workspaces: z.boolean(),
  tags: z.record(z.string(), z.string()).nullable(),
  status: z.literal('ACTIVE'),
  created_by: z.string(),
  created_at: z.string(),
  last_updated_at: z.string(),
  object: z.literal('secret-reference'),
};

export const item = z.object(fields);

export const detail = z.object({
  ...fields,
  auth_config: z.record(z.string(), z.string()).describe('Secrets are masked: `masked_vault_token`.'),
  allowed_workspaces: z.array(z.string()).optional().describe('Slugs; only where the reference is restricted.'),
});

export const saved = z.object({ id: z.string(), slug: z.string(), object: z.literal('secret-reference') });

export const tested = z.object({
  ok: z.boolean().describe('Whether the secret could be read just now.'),
  problem: z.string().nullable().describe('The failure, and what to do about it.'),
  length: z.number().int().optional().describe('Characters of the secret, where it has 32 or more.'),
  object: z.literal('secret-reference-test'),
});
