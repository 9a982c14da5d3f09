/** Bodies of the organisation's settings and of what a workspace sets for itself. */
import { z } from 'zod';
import { OVERRIDE_CATEGORIES, SECURITY_KEYS } from '../../auth/security-settings.ts';
import { alertSettings } from './alerts.ts';
import { authSettings } from './auth.ts';
import { metadataSchema } from './metadata.ts';

/** Fields of a log export that may be denied. */
export const EXPORT_FIELDS = [
  'id',
  'trace_id',
  'created_at',
  'request',
  'response',
  'ai_org',
  'ai_model',
  'req_units',
  'res_units',
  'total_units',
  'request_url',
  'cost',
  'cost_currency',
  'response_time',
  'response_status_code',
  'config',
  'prompt_slug',
  'metadata',
] as const;

const TEN_YEARS_SECONDS = 315_360_000;
/** Upper bound of the cache's age, seconds. */
const MAX_CACHE_AGE = 25_923_000;
const MAX_KEYS = 100_000;
const MOST_DAYS = 36_500;

const flag = z.literal([0, 1]);
const seconds = z.int().min(0).max(TEN_YEARS_SECONDS);

/** Days; `weekly` and `monthly` are other words for 7 and 30. */
const rotationPeriod = z
  .union([z.int().min(1).max(365), z.enum(['weekly', 'monthly'])])
  .transform((value) => (value === 'weekly' ? 7 : value === 'monthly' ? 30 : value))
  .meta({ description: 'Days from 1 to 365, or weekly (7) or monthly (30). Stored and answered as days.' });

/** What rules the user keys of a workspace. */
const userKeyFields = {
  user_api_key_auto_create: z.boolean().nullable().optional(),
  user_api_key_auto_create_scopes: z
    .array(z.string().max(128))
    .max(500)
    .nullable()
    .optional()
    .describe('Limits the scopes of auto-created keys; null for the default set of the role.'),
  user_api_key_rotation_period: rotationPeriod.nullable().optional(),
  user_api_key_ttl: seconds.nullable().optional().describe('Default life of a user key, seconds; 0 for none.'),
  user_api_key_max_ttl: seconds.nullable().optional().describe('Longest life of a user key, seconds; 0 for none.'),
  user_api_key_count: z
    .union([z.literal(-1), z.int().min(1).max(MAX_KEYS)])
    .nullable()
    .optional()
    .describe('Most user keys of one user in one workspace; -1 for any number.'),
  user_key_metadata: flag.nullable().optional(),
  user_key_metadata_override: flag.nullable().optional(),
  debug_log: flag
    .nullable()
    .optional()
    .describe('1: bodies of requests are kept in their logs. Default 0: only answers of requests that failed.'),
  debug_log_sample: z
    .number()
    .min(0)
    .max(1)
    .nullable()
    .optional()
    .describe('Of the traces whose bodies debug_log keeps, this share: 0 to 1. Default 1.'),
  bodies_days: z
    .int()
    .min(1)
    .max(MOST_DAYS)
    .nullable()
    .optional()
    .describe('Days that kept bodies stay, where that is fewer than SLUICE_BODIES_DAYS.'),
};

const deniedFields = z
  .array(z.enum(EXPORT_FIELDS))
  .max(EXPORT_FIELDS.length)
  .superRefine((value, context) => {
    for (const [index, field] of value.entries()) {
      if (value.indexOf(field) !== index) {
        context.addIssue({ code: 'custom', path: [index], message: `repeats ${field}` });
      }
    }
  });

const exportSettings = z.strictObject({ deniedFields: deniedFields.nullable().optional() });

const securityFields = Object.fromEntries(
  SECURITY_KEYS.map((key) => [key, z.boolean().nullable().optional()]),
) as Record<(typeof SECURITY_KEYS)[number], z.ZodOptional<z.ZodNullable<z.ZodBoolean>>>;

const overrides = Object.fromEntries(OVERRIDE_CATEGORIES.map((key) => [key, z.boolean().optional()])) as Record<
  (typeof OVERRIDE_CATEGORIES)[number],
  z.ZodOptional<z.ZodBoolean>
>;

/** `settings` of a workspace: each replaces the organisation's value, null falls back to it. */
export const workspaceSettings = z.strictObject({ ...userKeyFields, alerts: alertSettings.nullable().optional() });

/**
 * `security_settings` of a workspace: the switches and the two sections with their own object. Whether
 * the organisation lets the workspace set them is for `checkWorkspaceSecurity` to say.
 */
export const workspaceSecurity = z.strictObject({
  ...securityFields,
  export_settings: exportSettings.nullable().optional(),
  data_plane_security_settings: z
    .strictObject({ block_inline_config: z.boolean().nullable().optional() })
    .nullable()
    .optional(),
});

const gatewayUrl = z.string().min(1).max(2048);

/** The body of `PUT /admin/organisation/settings`, without the tenant fields. */
export const organisationSettings = z.strictObject({
  ...userKeyFields,
  default_workspace_user_api_key_auto_create: z
    .boolean()
    .nullable()
    .optional()
    .describe('Decides for the default workspace instead of user_api_key_auto_create.'),
  group_based_user_provisioning: z
    .boolean()
    .nullable()
    .optional()
    .describe('Users whom the directory has deactivated come back when it puts them into a group. Default false.'),
  security_settings: z.strictObject(securityFields).nullable().optional(),
  workspace_overrides: z
    .strictObject(overrides)
    .nullable()
    .optional()
    .describe('Categories that a workspace may set for itself.'),
  session_settings: z
    .strictObject({
      max_session_ttl: z
        .int()
        .min(900)
        .max(TEN_YEARS_SECONDS)
        .nullable()
        .optional()
        .describe('Seconds after signing in; older sessions must sign in again.'),
    })
    .nullable()
    .optional(),
  auth_settings: authSettings.nullable().optional(),
  export_settings: exportSettings.nullable().optional(),
  data_plane_security_settings: z
    .strictObject({ block_inline_config: z.boolean().optional().describe('Saved-only mode.') })
    .optional(),
  metadata_schemas: z
    .strictObject({ api_key: metadataSchema.nullable().optional(), workspace: metadataSchema.nullable().optional() })
    .nullable()
    .optional()
    .describe('JSON Schema (draft-07) of the metadata of API keys and workspaces.'),
  ai_gateway_url: gatewayUrl.nullable().optional().describe('Stored with one /v1 at its end.'),
  mcp_gateway_url: gatewayUrl.nullable().optional().describe('Stored without /v1.'),
  cache_max_age: z
    .int()
    .min(60)
    .max(MAX_CACHE_AGE)
    .nullable()
    .optional()
    .describe('Default and upper bound of the age of cached answers, seconds.'),
  alerts: alertSettings.nullable().optional(),
});

export type WorkspaceSettings = z.infer<typeof workspaceSettings>;
export type WorkspaceSecurity = z.infer<typeof workspaceSecurity>;
export type OrganisationSettings = z.infer<typeof organisationSettings>;
