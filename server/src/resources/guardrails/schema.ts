/** Bodies, filters and answers of guardrails (api §7.1–7.4). */
import { z } from 'zod';
import { tenantFields } from '../fields.ts';
import { name, text } from '../shapes.ts';

export const target = z.enum(['llm', 'mcp_tools']);
export type Target = z.output<typeof target>;

const MAX_CHECKS = 100;

export const check = z.strictObject({
  id: z.string().min(1).max(255).describe('A check of the catalogue: `default.regexMatch`.'),
  name: z.string().max(255).optional(),
  is_enabled: z.boolean().optional(),
  parameters: z.record(z.string(), z.unknown()).optional(),
});
export type CheckInput = z.output<typeof check>;

const checks = z.array(check).min(1).max(MAX_CHECKS);

const feedback = (value: number) =>
  z.strictObject({
    feedback: z
      .strictObject({
        value: z.number().min(-10).max(10).default(value),
        weight: z.number().min(0).max(1).default(1),
        metadata: text(4096).default(''),
      })
      .prefault({}),
  });

export const actions = z
  .strictObject({
    deny: z.boolean().default(false).describe('A guardrail that fails refuses with 446; without it the answer is 246.'),
    async: z.boolean().default(false).describe('Runs beside the request: only the record tells its verdict.'),
    on_success: feedback(5).prefault({}),
    on_fail: feedback(-5).prefault({}),
    sequential: z.boolean().default(false).describe('One check after the other; the first that fails ends it.'),
    soft_deny_200: z.boolean().default(false).describe('A refusal is told as an ordinary answer with status 200.'),
    on_error: z
      .enum(['pass', 'fail'])
      .default('pass')
      .describe('What an error or time-out means for checks without `failOnError`.'),
    messages: z
      .enum(['all', 'new', 'last'])
      .default('all')
      .describe('Which messages of a request are looked at: all, those since the last answer, or the last.'),
    stream: z
      .enum(['incremental', 'buffer'])
      .default('incremental')
      .describe('Whether a stream is judged as it passes, by checks that can, or as a whole before it is shown.'),
  })
  .refine((given) => !(given.async && given.deny), {
    path: ['async'],
    message: 'cannot be combined with deny: what runs beside the request cannot refuse it',
  });

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
    actions: actions.optional(),
  })
  .refine((given) => given.name !== undefined || given.checks !== undefined || given.actions !== undefined, {
    path: [],
    message: 'must change something: send name, checks or actions',
  });

export type CreateBody = z.output<typeof createBody>;
export type UpdateBody = z.output<typeof updateBody>;

const MAX_IDS = 100;

export const filters = z.object({
  target: target.optional().describe('Both targets without it.'),
  ids: z
    .string()
    .max(30_000)
    .optional()
    .transform((list) => list?.split(',').map((one) => one.trim()))
    .refine((list) => list === undefined || list.length <= MAX_IDS, `must name at most ${MAX_IDS} guardrails`)
    .refine((list) => list === undefined || list.every((one) => /^[A-Za-z0-9_-]{1,255}$/.test(one)), {
      message: 'must be ids or slugs, separated by commas',
    })
    .describe('Ids or slugs, separated by commas.'),
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
  actions: z.looseObject({ deny: z.boolean() }),
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
