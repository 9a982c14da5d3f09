/** Bodies, filters and answers of usage-limits policies. */
import { z } from 'zod';
import { ABOVE_LARGEST } from '../../../limits/ledger/limit-spec.ts';
import { isoDate, name, outageRule, text, unpricedRule } from '../../body-fields.ts';
import { isUuid, queryBoolean, tenantFields } from '../../fields.ts';
import { alertEmails, alertWebhookUrl } from '../../settings/alerts.ts';
import { usageForecastFields } from '../../usage-forecast.ts';
import { atLeastOne, conditions, conditionsAnswer, groupBy, groupByAnswer, unchangeable } from '../policy-fields.ts';

export const type = z.enum(['cost', 'tokens', 'requests']);
export const status = z.enum(['active', 'archived']);
/** Its type says how large it may be: `checkAmounts`. */
const amount = z.number().min(0);
const description = text(500).nullable().optional();

const more = {
  unpriced: unpricedRule.nullable().optional(),
  on_outage: outageRule.nullable().optional(),
  alert_emails: alertEmails.nullable().optional(),
  alert_webhook_url: alertWebhookUrl.nullable().optional(),
};

const resets = {
  periodic_reset: z
    .enum(['monthly', 'weekly'])
    .nullable()
    .optional()
    .describe('The 1st of a month, or Mondays, at 00:00 UTC. Without a period the limit is cumulative.'),
  periodic_reset_days: z
    .int()
    .min(1)
    .max(365)
    .nullable()
    .optional()
    .describe(
      'Every so many days. Not together with `periodic_reset`: in an update, the one that is sent replaces the other.',
    ),
  next_usage_reset_at: isoDate
    .nullable()
    .optional()
    .describe('The next reset, at 00:00 UTC of its day; later ones follow the period. Without a period, the only one.'),
};

export const createBody = z.strictObject({
  ...tenantFields,
  name: name.nullable().optional(),
  description,
  conditions,
  group_by: groupBy,
  type,
  credit_limit: amount.describe(`US dollars, tokens or requests; ${ABOVE_LARGEST}.`),
  alert_threshold: amount.nullable().optional(),
  ...resets,
  ...more,
});

export const updateBody = atLeastOne(
  z.strictObject({
    name: name.nullable().optional(),
    description,
    conditions: conditions.optional(),
    credit_limit: amount.optional(),
    alert_threshold: amount.nullable().optional(),
    ...resets,
    ...more,
    reset_usage_for_value: text(512, 1).optional().describe('Value key whose usage begins anew.'),
    type: unchangeable,
    group_by: unchangeable,
    workspace_id: unchangeable,
    organisation_id: unchangeable,
  }),
);

export type CreateBody = z.output<typeof createBody>;
export type UpdateBody = z.output<typeof updateBody>;

export const filters = z.object({
  status: status.default('active'),
  type: type.optional(),
  search: text(255).optional().describe('Part of the name.'),
  include_usage: queryBoolean.optional().describe('With what each counter of a policy has used.'),
});

const usage = z.object({
  current_usage: z.number(),
  status: z.enum(['active', 'exhausted']),
  is_threshold_alerts_sent: z.boolean(),
  is_exhausted_alerts_sent: z.boolean(),
  ...usageForecastFields,
});

export const answer = z.object({
  id: z.string(),
  name: z.string().nullable(),
  description: z.string().nullable(),
  conditions: conditionsAnswer,
  group_by: groupByAnswer,
  type,
  credit_limit: z.number(),
  alert_threshold: z.number().nullable(),
  periodic_reset: z.enum(['monthly', 'weekly']).nullable(),
  periodic_reset_days: z.int().nullable(),
  unpriced: unpricedRule.nullable(),
  on_outage: outageRule,
  alert_emails: z.array(z.string()),
  alert_webhook_url: z.string().nullable(),
  next_usage_reset_at: z.string().nullable(),
  last_reset_at: z.string().nullable(),
  status,
  workspace_id: z.string(),
  organisation_id: z.string(),
  created_at: z.string(),
  last_updated_at: z.string(),
  value_key_usage_map: z.record(z.string(), usage).optional(),
  object: z.literal('policy_usage_limits'),
});

export const entity = z.object({
  id: z.string(),
  value_key: z.string(),
  current_usage: z.number(),
  status: z.enum(['active', 'exhausted']),
  last_reset_at: z.string().nullable(),
  ...usageForecastFields,
});

export const entityId = (value: string): string | null => (isUuid(value) ? value.toLowerCase() : null);
