/** Bodies and answers of feedback. */
import { z } from 'zod';
import type { Row } from '../../store/schema.ts';
import { MICROS } from '../../telemetry/feedback.ts';
import { text, toIso } from '../body-fields.ts';

/** Items of one body. */
const MAX_ITEMS = 100;
const MAX_KEYS = 64;
const MAX_METADATA_CHARS = 16_384;

const value = z.int().min(-10).max(10);
const weight = z.number().min(0).max(1).describe('How much it counts; kept to six decimals.');
const metadata = z
  .record(text(128, 1), z.unknown())
  .superRefine((given, context) => {
    const problem =
      Object.keys(given).length > MAX_KEYS
        ? `must have at most ${MAX_KEYS} keys`
        : JSON.stringify(given).length > MAX_METADATA_CHARS
          ? `must have at most ${MAX_METADATA_CHARS} characters as JSON`
          : null;
    if (problem !== null) context.addIssue({ code: 'custom', message: problem });
  })
  .describe(`At most ${MAX_KEYS} keys of any JSON, ${MAX_METADATA_CHARS} characters together.`);

const item = z
  .strictObject({
    trace_id: text(255, 1).describe('As in the header `x-gateway-trace-id`; without one, the id of the request.'),
    value: value.describe('From -10, bad, to 10, good.'),
    weight: weight.optional().meta({ default: 1 }),
    metadata: metadata.nullish(),
  })
  .meta({ title: 'FeedbackCreate' });
export type Item = z.output<typeof item>;

export const createBody = z.union([item, z.array(item).min(1).max(MAX_ITEMS)]);

export const updateBody = z.strictObject({
  value: value.describe('From -10, bad, to 10, good.'),
  weight: weight.optional(),
  metadata: metadata.nullish().describe('Replaces the metadata; null clears it.'),
});

export const written = z.object({
  status: z.literal('success'),
  message: z.string(),
  feedback_ids: z.array(z.string()).describe('In the order of the items.'),
  matched: z
    .array(z.boolean())
    .describe('For each item, whether the workspace has a request of its trace. False: its model is not known.'),
});

export const feedbackItem = z.object({
  id: z.string(),
  object: z.literal('feedback'),
  workspace_id: z.string(),
  trace_id: z.string(),
  value: z.int(),
  weight: z.number(),
  metadata: z.record(z.string(), z.unknown()).nullable(),
  source: z.enum(['api', 'guardrail']),
  api_key_id: z.string().nullable().describe('Who gave it, or sent the request that a guardrail judged.'),
  ai_model: z.string().nullable(),
  provider: z.string().nullable(),
  config_slug: z.string().nullable(),
  matched: z.boolean(),
  created_at: z.string(),
  last_updated_at: z.string(),
});

/** @param shown whether the caller may see metadata */
export function present(row: Row<'feedback'>, shown: boolean): z.output<typeof feedbackItem> {
  const { organisation_id: _organisation, user_id: _user, weighted_micros: _product, weight_micros, ...rest } = row;
  return {
    ...rest,
    object: 'feedback',
    weight: weight_micros / MICROS,
    metadata: shown ? rest.metadata : null,
    created_at: toIso(rest.created_at),
    last_updated_at: toIso(rest.last_updated_at),
  };
}
