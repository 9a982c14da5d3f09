/** Bodies, filters and answers of guardrails. */
import { z } from 'zod';
import { checkEntry, MAX_CHECKS } from '../../guardrails/catalog.ts';
import type { GuardrailActions } from '../../store/schema.ts';
import { name, text } from '../body-fields.ts';
import { queryList, reference, tenantFields } from '../fields.ts';

export const target = z.enum(['llm', 'mcp_tools']);
export type Target = z.output<typeof target>;

export type CheckInput = z.output<typeof checkEntry>;

/** Ids and parameters are judged once the target is known. */
const checks = z.array(checkEntry).min(1).max(MAX_CHECKS);

const feedback = (value: number) =>
  z.strictObject({
    value: z.number().min(-10).max(10).optional().meta({ default: value }),
    weight: z.number().min(0).max(1).optional().meta({ default: 1 }),
    metadata: text(4096).optional().meta({ default: '' }),
  });
const outcome = (value: number) => z.strictObject({ feedback: feedback(value).optional() });

const choice = <const T extends readonly [string, ...string[]]>(
  values: T,
  fallback: T[number] | undefined,
  description: string,
) =>
  z
    .enum(values)
    .optional()
    .meta({ ...(fallback === undefined ? {} : { default: fallback }), description });
const flag = (description: string) => z.boolean().optional().meta({ default: false, description });

/**
 * Four are required wherever `actions` is sent, as published: a guardrail never denies, or lets pass, by a forgotten field. What
 * else is left out has its default when a guardrail is made, and stays as it is in an update.
 */
const actions = z.strictObject({
  deny: z.boolean().describe('A guardrail that fails refuses with 446; without it the answer is 246.'),
  async: z
    .boolean()
    .describe('Runs in parallel to the request: only the record shows its verdict, and `deny` has no effect.'),
  on_success: outcome(5),
  on_fail: outcome(-5),
  sequential: flag('One check after the other; the first that fails ends it.'),
  soft_deny_200: flag('Returns a refusal as a normal answer with status 200.'),
  on_error: choice(
    ['allow', 'deny'],
    undefined,
    'Whether a check that cannot be carried out counts as failed. Default: `deny` where the guardrail denies, else `allow`. A check with `failOnError` counts as failed in any case.',
  ),
  messages: choice(
    ['all', 'new', 'last'],
    'all',
    'Which messages of a request are looked at: all, those since the last answer, or the last.',
  ),
  stream: choice(
    ['incremental', 'buffer'],
    'incremental',
    'Whether a stream is judged as it passes, by checks that can, or as a whole before it is shown.',
  ),
  log_content: choice(
    ['withheld', 'as_sent'],
    'withheld',
    'Whether logs that keep bodies keep that of a request which the guardrail denies.',
  ),
});
type GivenActions = z.output<typeof actions>;

const DEFAULTS = {
  deny: false,
  async: false,
  on_success: { feedback: { value: 5, weight: 1, metadata: '' } },
  on_fail: { feedback: { value: -5, weight: 1, metadata: '' } },
  sequential: false,
  soft_deny_200: false,
  messages: 'all',
  stream: 'incremental',
  log_content: 'withheld',
} as const satisfies GuardrailActions;

/** `given` over what stood before, or over the defaults. */
export function mergeActions(before: GuardrailActions | null, given: GivenActions | undefined) {
  const base = { ...DEFAULTS, ...before };
  const told = (name: 'on_success' | 'on_fail') => ({
    feedback: { ...DEFAULTS[name].feedback, ...base[name].feedback, ...given?.[name]?.feedback },
  });
  return { ...base, ...given, on_success: told('on_success'), on_fail: told('on_fail') };
}

export function presentActions(stored: GuardrailActions) {
  return { on_error: stored.deny ? ('deny' as const) : ('allow' as const), ...mergeActions(stored, undefined) };
}

export const createBody = z.strictObject({
  ...tenantFields,
  name,
  target: target.optional().describe('`llm` (default), or `mcp_tools` for calls of MCP tools; cannot be changed.'),
  checks,
  actions: actions.optional(),
});

export const updateBody = z
  .strictObject({
    ...tenantFields,
    name: name.optional(),
    checks: checks.optional().describe('Replaces the list. A secret sent as it was shown, masked, stays as it is.'),
    actions: actions.optional().describe('Fields that are not required keep their values where they are left out.'),
  })
  .refine((given) => given.name !== undefined || given.checks !== undefined || given.actions !== undefined, {
    path: [],
    message: 'must change something: send name, checks or actions',
  });

export type CreateBody = z.output<typeof createBody>;
export type UpdateBody = z.output<typeof updateBody>;

export const filters = z.object({
  target: target.optional().describe('Both targets without it.'),
  ids: queryList(reference, 100).optional(),
});

export const item = z.object({
  id: z.string(),
  name: z.string(),
  slug: z.string(),
  organisation_id: z.string(),
  workspace_id: z.string().nullable(),
  target,
  status: z.enum(['active', 'archived']),
  owner_id: z.string(),
  created_by: z.string(),
  updated_by: z.string().nullable(),
  created_at: z.string(),
  last_updated_at: z.string(),
  object: z.literal('guardrail'),
});

const shownFeedback = z.object({
  feedback: z.object({ value: z.number(), weight: z.number(), metadata: z.string() }),
});

const shownActions = z.object({
  deny: z.boolean(),
  async: z.boolean(),
  on_success: shownFeedback,
  on_fail: shownFeedback,
  sequential: z.boolean(),
  soft_deny_200: z.boolean(),
  on_error: z.enum(['allow', 'deny']),
  messages: z.enum(['all', 'new', 'last']),
  stream: z.enum(['incremental', 'buffer']),
  log_content: z.enum(['withheld', 'as_sent']),
});

const shownCheck = z.object({
  id: z.string(),
  name: z.string().optional(),
  is_enabled: z.boolean(),
  parameters: z.record(z.string(), z.unknown()),
});

export const phases = z.enum(['beforeToolCall', 'afterToolCall']);

export const mapping = z.object({
  id: z.string(),
  guardrail_id: z.string(),
  mcp_server_id: z.string(),
  run_on: z.array(phases),
  capability_ids: z.array(z.string()),
});

export const detail = item.extend({
  checks: z.array(shownCheck),
  actions: shownActions,
  version_id: z.string(),
  mcp_server_mappings: z.array(mapping).optional(),
});

export const created = z.object({
  id: z.string(),
  slug: z.string(),
  version_id: z.string(),
  created_at: z.string(),
  created_by: z.string(),
});
export const updated = z.object({ id: z.string(), slug: z.string(), version_id: z.string() });
