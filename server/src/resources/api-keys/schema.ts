/** Bodies and answers of API keys. */
import { z } from 'zod';
import {
  defaultMetadata,
  description,
  isoDate,
  name,
  rateLimitAnswer,
  rateLimits,
  usageLimit,
} from '../body-fields.ts';
import { reference, tenantFields, uuid } from '../fields.ts';
import { alertEmails } from '../settings/alerts.ts';

export const MIN_TRANSITION_MS = 1_800_000;
const MAX_TRANSITION_MS = 366 * 86_400_000;

const defaults = z.strictObject({
  metadata: defaultMetadata.nullable().optional(),
  config_id: reference.nullable().optional().describe('Id or slug of a config that the key may see.'),
  allow_config_override: z.boolean().optional().describe('Default true.'),
  debug_log: z
    .literal([0, 1])
    .nullable()
    .optional()
    .describe('1: bodies of its requests are kept in their logs, 0: they are not. Null: as its workspace says.'),
});

const transition = z.int().min(MIN_TRANSITION_MS).max(MAX_TRANSITION_MS);

/** When a key's secret rotates; what needs the time is in `rules.ts`. */
const rotationPolicy = z
  .strictObject({
    rotation_period: z.enum(['weekly', 'monthly']).nullable().optional(),
    rotation_period_days: z.int().min(1).max(365).nullable().optional(),
    next_rotation_at: isoDate.nullable().optional().describe('Normalised to UTC midnight.'),
    key_transition_period_ms: transition
      .optional()
      .describe('How long the old key stays valid; default 1800000 (30 minutes).'),
  })
  .check((check) => {
    const { rotation_period, rotation_period_days, next_rotation_at } = check.value;
    if (rotation_period != null && rotation_period_days != null) {
      check.issues.push({
        code: 'custom',
        input: check.value,
        path: ['rotation_period_days'],
        message: 'cannot be combined with rotation_period: give one of the two',
      });
    }
    if (rotation_period == null && rotation_period_days == null && next_rotation_at == null) {
      const message = 'needs one of rotation_period, rotation_period_days and next_rotation_at';
      check.issues.push({ code: 'custom', input: check.value, message });
    }
  });

const shared = {
  description: description.nullable().optional(),
  rate_limits: rateLimits.nullable().optional(),
  usage_limits: usageLimit.nullable().optional(),
  defaults: defaults.nullable().optional(),
  alert_emails: alertEmails.nullable().optional(),
  expires_at: isoDate.nullable().optional(),
  rotation_policy: rotationPolicy.nullable().optional(),
};

const scopes = z.array(z.string().max(128)).max(500).describe('Scopes of the key; none above the caller’s own.');

export const createBody = z.strictObject({
  ...tenantFields,
  name,
  user_id: uuid.optional().describe('Owner of a user key: a member of the workspace.'),
  scopes,
  ...shared,
});

export const updateBody = z.strictObject({
  ...tenantFields,
  name: name.optional(),
  scopes: scopes.optional(),
  reset_usage: z.boolean().optional().describe('True sets usage to 0 and an exhausted key to active.'),
  ...shared,
});

/** Rotation of a key, as it is answered. */
export const rotateBody = z.strictObject({
  ...tenantFields,
  key_transition_period_ms: transition
    .optional()
    .describe('How long the old key stays valid; that of the rotation policy when omitted, else 1800000 (30 minutes).'),
});

export type RotateBody = z.infer<typeof rotateBody>;
export type CreateBody = z.infer<typeof createBody>;
export type UpdateBody = z.infer<typeof updateBody>;

export const createAnswer = z.object({
  id: z.string(),
  key: z.string().describe('The whole key. Shown once.'),
  object: z.literal('api-key'),
});

const time = z.iso.datetime();

export const rotateAnswer = z.object({
  id: z.string(),
  key: z.string().describe('The whole new key. Shown once.'),
  key_transition_expires_at: time.nullable().describe('The previous key is valid until then; null once it has ended.'),
  object: z.literal('api-key'),
});

export const keyAnswer = z.object({
  object: z.literal('api-key'),
  id: z.string(),
  key: z.string().describe('Masked.'),
  name: z.string(),
  description: z.string().nullable(),
  type: z.enum(['organisation-service', 'workspace-service', 'workspace-user']),
  organisation_id: z.string(),
  workspace_id: z.string().nullable(),
  user_id: z.string().nullable(),
  status: z.enum(['active', 'exhausted', 'expired', 'archived']),
  creation_mode: z.enum(['ui', 'api', 'auto']),
  scopes: z.array(z.string()),
  rate_limits: z.array(rateLimitAnswer),
  usage_limits: z.looseObject({ status: z.enum(['active', 'exhausted']) }).nullable(),
  defaults: z
    .object({
      metadata: z.record(z.string(), z.string()).optional(),
      config_id: z.string().optional(),
      allow_config_override: z.boolean(),
      debug_log: z.literal([0, 1]).optional(),
    })
    .nullable(),
  alert_emails: z.array(z.string()),
  expires_at: time.nullable(),
  expiry_enforced: z.union([z.literal(0), z.literal(1)]).describe('1 when a longest life of user keys rules this key.'),
  rotation_policy: z
    .object({
      rotation_period: z.string().nullable(),
      rotation_period_days: z.int().nullable(),
      next_rotation_at: time.nullable(),
      key_transition_period_ms: z.int(),
      status: z.literal('ACTIVE'),
    })
    .nullable(),
  last_rotated_at: time.nullable(),
  key_transition_expires_at: time.nullable().describe('During a rotation: when the previous secret ends.'),
  uncollected_key: z
    .boolean()
    .describe('True after an automatic rotation until somebody collects the new key with the rotate operation.'),
  last_reset_at: time.nullable(),
  next_usage_reset_at: z.string().nullable(),
  created_at: time,
  last_updated_at: time,
});

export const keyDetail = keyAnswer.extend({
  guardrail_exclusions: z
    .object({ input: z.boolean(), output: z.boolean() })
    .describe('Whether the workspace is exempt from the default guardrails of the organisation.'),
});
