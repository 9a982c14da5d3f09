/** Bodies, filters and answers of deployments. */
import { z } from 'zod';
import { customHost, name, slug, tags, text } from '../body-fields.ts';
import { queryList, reference, tenantFields } from '../fields.ts';

/** Workspaces, subjects and mappings in the settings of one deployment. */
const MAX_ENTRIES = 1000;
const MAX_CONFIG_CHARS = 65_536;

const flag = z.literal([0, 1]);
const type = z.enum(['production', 'non_production']);
const status = z.enum(['active', 'archived']);
const workspaceList = z.array(reference).max(MAX_ENTRIES);
const subject = text(255, 1);
const subjects = z.array(subject).max(MAX_ENTRIES);

const mapping = z.record(subject, reference).superRefine((value, context) => {
  if (Object.keys(value).length > MAX_ENTRIES) {
    context.addIssue({ code: 'custom', message: `must have at most ${MAX_ENTRIES} keys` });
  }
});

const deploymentConfig = z
  .record(z.string(), z.unknown())
  .refine((value) => JSON.stringify(value).length <= MAX_CONFIG_CHARS, {
    error: `must have at most ${MAX_CONFIG_CHARS} characters as JSON`,
  })
  .describe('Free form, not interpreted. It is shown as it was sent: keep secrets out of it.');

const settings = {
  gateway_base_url: customHost.nullable().optional().describe('Stored without a trailing slash or /v1.'),
  mcp_gateway_base_url: customHost.nullable().optional().describe('Stored without a trailing slash or /v1.'),
  is_dataservice_hosted: flag.optional(),
  is_playground_proxy_allowed: flag.optional(),
  allow_all_workspaces: flag
    .optional()
    .describe('1 where no workspaces are listed on create; 0 as soon as workspaces_allowed lists some.'),
  workspaces_allowed: workspaceList.optional().describe('Ids or slugs. An update adds to the stored ones.'),
  jwt_subs_allowed: subjects.optional().describe('Subjects of tokens. An update adds to the stored ones.'),
  jwt_sub_workspace_mapping: mapping.optional().describe('Subject of a token to id or slug of a workspace.'),
};

export const createBody = z.strictObject({
  ...tenantFields,
  name,
  slug: slug
    .min(1)
    .max(50)
    .refine((value) => value !== 'self', { error: 'must not be "self", which names the caller in paths' })
    .optional(),
  type: type.default('production'),
  deployment_config: deploymentConfig.nullable().optional(),
  is_default: flag.optional(),
  auth_settings: z.strictObject(settings).optional(),
  tags: tags.nullable().optional(),
});

export const updateBody = z.strictObject({
  name: name.optional(),
  type: type.optional(),
  status: status.optional(),
  deployment_config: deploymentConfig.nullable().optional(),
  is_default: flag.optional(),
  rotate_auth: z.boolean().optional().describe('Makes a new client_auth; the old one ends at once.'),
  override_existing: z
    .boolean()
    .optional()
    .describe('Lists and mappings in auth_settings replace the stored ones instead of being added to them.'),
  tags: tags.nullable().optional().describe('Replaces all tags; null removes them.'),
  auth_settings: z
    .strictObject({
      ...settings,
      remove_workspaces_allowed: workspaceList.optional(),
      remove_subs_allowed: subjects.optional().describe('Also removes them from jwt_sub_workspace_mapping.'),
    })
    .optional(),
});

export type CreateBody = z.output<typeof createBody>;
export type UpdateBody = z.output<typeof updateBody>;
export type Settings = NonNullable<UpdateBody['auth_settings']>;

export const filters = z.object({
  status: status.default('active'),
  type: type.optional(),
  workspace_slug: queryList(reference, 50)
    .optional()
    .describe('Those that serve one of these workspaces. Repeat it, or separate slugs by commas.'),
  search: text(255).optional().describe('Part of the name or slug.'),
  tags: z.string().max(8192).optional().describe('JSON object of strings, or `tags[key]=value`: all must match.'),
});
export type Filters = z.output<typeof filters>;

const fields = {
  id: z.string(),
  organisation_id: z.string(),
  name: z.string(),
  slug: z.string(),
  type,
  status,
  is_default: flag,
  connection_status: z.enum(['healthy', 'unhealthy', 'unknown']).describe('What the last ping found.'),
  source_type: z.enum(['manual', 'api', 'helm', 'managed']),
  tags: z.record(z.string(), z.string()).nullable(),
  created_by: z.string(),
  created_at: z.string(),
  last_updated_at: z.string(),
  last_synced_at: z.string().nullable().describe('Last call-back of the gateway.'),
  last_resynced_at: z.string().nullable(),
  object: z.literal('deployment'),
};

const credentials = z.object({ username: z.string(), password: z.string() });

export const item = z.object(fields);

export const detail = z.object({
  ...fields,
  auth_settings: z.object({
    gateway_base_url: z.string().nullable(),
    mcp_gateway_base_url: z.string().nullable(),
    is_dataservice_hosted: flag,
    is_playground_proxy_allowed: flag,
    allow_all_workspaces: flag,
    workspaces_allowed: z.array(z.string()).describe('Slugs.'),
    jwt_subs_allowed: z.array(z.string()),
    jwt_sub_workspace_mapping: z.record(z.string(), z.string()).describe('Subject to slug.'),
    private_link_endpoint: z.string().nullable(),
    use_private_link_proxy: flag,
    disable_gateway: flag,
  }),
  deployment_config: z.record(z.string(), z.unknown()).nullable(),
  workspaces: z.array(z.object({ id: z.string(), slug: z.string() })),
  credentials: credentials.optional().describe('Only with include_credentials=true; the password is masked.'),
  client_auth: z.string().describe('Masked.'),
});

export const created = z.object({
  id: z.string(),
  organisation_id: z.string(),
  client_auth: z.string().describe('Shown once.'),
  credentials: credentials.describe('The same secret as user name and password.'),
  object: z.literal('deployment'),
});

/** `client_auth` is there when it was rotated. */
export const updated = z.strictObject({
  client_auth: z.string().optional().describe('Only with rotate_auth; shown once.'),
});
