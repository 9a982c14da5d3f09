/** The query parameters that logs and analytics share: from texts of callers to conditions on columns. */
import { z } from 'zod';
import { bucketsOf, isZone, MAX_RANGE_MS } from '../../telemetry/buckets.ts';
import type { LogFilter, LogSelection } from '../../telemetry/log-query.ts';
import { isoDate, toMillis } from '../body-fields.ts';
import { queryBoolean, queryInteger, queryList, reference, tenantFields, uuid } from '../fields.ts';
import { checkMetadataSeen, namesMetadata, type Reach } from '../logs/reach.ts';

/** Values of one list. */
export const MOST_VALUES = 100;
/** Pairs of metadata. */
const MOST_PAIRS = 20;
const MOST_TOKENS = 1_000_000_000;
const MICROS_PER_CENT = 10_000;

const word = z.string().min(1, 'must not have empty values').max(255, 'must have values of at most 255 characters');
const words = queryList(word, MOST_VALUES).optional();
const tokens = queryInteger(0, MOST_TOKENS).optional();
const status = queryList(
  z.string().regex(/^[1-9][0-9]{2}$/, 'must list status codes, such as 200,429'),
  MOST_VALUES,
).optional();

/** A number in a query string, with at most 6 digits behind the point. */
function queryNumber(min: number, max: number) {
  const message = `must be a number from ${min} to ${max}`;
  return z
    .string()
    .regex(/^-?[0-9]{1,12}(?:\.[0-9]{1,6})?$/, message)
    .transform(Number)
    .refine((value) => value >= min && value <= max, { message })
    .meta({ type: 'number', minimum: min, maximum: max });
}

const cents = queryNumber(0, 100_000_000_000).optional();
const weighted = queryNumber(-10, 10).optional();

const modelPair = z
  .string()
  .regex(/^.{1,128}?__.{1,255}$/s, 'must list providers and models as provider__model')
  .transform((value) => {
    const at = value.indexOf('__');
    return { provider: value.slice(0, at), model: value.slice(at + 2) };
  });

const metadata = z
  .string()
  .max(16_384, 'must be at most 16384 characters')
  .transform((text, context) => {
    const pairs = pairsOf(text);
    if (typeof pairs !== 'string') return pairs;
    context.addIssue({ code: 'custom', message: pairs });
    return z.NEVER;
  })
  .meta({
    type: 'string',
    description: 'A JSON object: each key with a text, or a list of texts of which one must hold.',
  });

/** The pairs, or what is wrong with them. */
function pairsOf(text: string): (readonly [string, readonly string[]])[] | string {
  const shape = 'must be a JSON object of texts, such as {"_user":"ada"}';
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return shape;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return shape;
  const entries = Object.entries(value as Record<string, unknown>);
  if (entries.length > MOST_PAIRS) return `must have at most ${MOST_PAIRS} keys`;
  const pairs: [string, readonly string[]][] = [];
  for (const [key, given] of entries) {
    const values: unknown[] = Array.isArray(given) ? given : [given];
    if (key === '' || key.length > 128) return 'must have keys of 1 to 128 characters';
    if (values.length === 0 || values.length > MOST_VALUES) return `must have 1 to ${MOST_VALUES} values for each key`;
    if (!values.every((one) => typeof one === 'string')) return shape;
    pairs.push([key, values]);
  }
  return pairs;
}

/** Which workspace is read. */
export const placeFields = {
  ...tenantFields,
  workspace_slug: reference
    .optional()
    .describe(
      'UUID or slug, of an archived workspace too for owners, admins and organisation keys. Ignored where the credential is bound to a workspace.',
    ),
} as const;

/** What requests are chosen by; all of it must hold. */
export const filterFields = {
  total_units_min: tokens.describe('Tokens, input and output together.'),
  total_units_max: tokens,
  cost_min: cents.describe('Cents.'),
  cost_max: cents.describe('Cents.'),
  prompt_token_min: tokens,
  prompt_token_max: tokens,
  completion_token_min: tokens,
  completion_token_max: tokens,
  status_code: status,
  weighted_feedback_min: weighted.describe('Of value × weight of the feedback of the request.'),
  weighted_feedback_max: weighted,
  virtual_keys: words.describe('Slugs of stored providers and virtual keys.'),
  configs: words.describe('Slugs of configs.'),
  api_key_ids: queryList(uuid, MOST_VALUES).optional(),
  metadata: metadata.optional(),
  ai_org_model: queryList(modelPair, MOST_VALUES).optional().describe('`provider__model`, comma-separated.'),
  ai_model: words,
  trace_id: words,
  span_id: words,
  prompt_slug: words,
  cache_status: words,
  source: queryList(z.enum(['llm', 'mcp', 'a2a', 'custom']), 4)
    .optional()
    .describe('`llm`, `mcp`, `a2a`, `custom`; all when absent.'),
  outcome: queryList(z.enum(['ok', 'refused', 'failed', 'aborted']), 4).optional(),
  error_code: words,
  operation: words,
  user_ids: queryList(uuid, MOST_VALUES).optional(),
} as const;

export const rangeFields = {
  time_of_generation_min: isoDate.describe('From this time on, ISO 8601 with a zone.'),
  time_of_generation_max: isoDate.describe('Before this time.'),
} as const;

export const zoneField = {
  zone: z
    .string()
    .refine(isZone, 'must be the name of a time zone, such as Europe/Berlin')
    .optional()
    .describe('The time zone of days and weeks; UTC when absent. Weeks begin on Monday.'),
} as const;

/** Org-wide callers read one workspace unless they say this. */
export const wholeField = {
  all_workspaces: queryBoolean
    .optional()
    .describe('`true`: all workspaces of the organisation, for credentials that are bound to none.'),
} as const;

const filters = z.strictObject(filterFields);
export type Filters = z.output<typeof filters>;

type Bounded = readonly [column: string, min: keyof Filters, max: keyof Filters, times: number];

const BOUNDED: readonly Bounded[] = [
  ['tokens_total', 'total_units_min', 'total_units_max', 1],
  ['cost_micros', 'cost_min', 'cost_max', MICROS_PER_CENT],
  ['tokens_in', 'prompt_token_min', 'prompt_token_max', 1],
  ['tokens_out', 'completion_token_min', 'completion_token_max', 1],
];

const LISTED: readonly (readonly [column: string, field: keyof Filters])[] = [
  ['provider_slug', 'virtual_keys'],
  ['config_slug', 'configs'],
  ['api_key_id', 'api_key_ids'],
  ['model', 'ai_model'],
  ['trace_id', 'trace_id'],
  ['span_id', 'span_id'],
  ['prompt_slug', 'prompt_slug'],
  ['cache_status', 'cache_status'],
  ['source', 'source'],
  ['outcome', 'outcome'],
  ['error_code', 'error_code'],
  ['operation', 'operation'],
  ['user_id', 'user_ids'],
];

/** The conditions of a query; those of feedback are for `feedbackFilter`. */
export function conditionsOf(asked: Filters): LogFilter[] {
  const where: LogFilter[] = [];
  for (const [column, low, high, times] of BOUNDED) {
    const [min, max] = [asked[low], asked[high]].map((value) =>
      typeof value === 'number' ? Math.round(value * times) : undefined,
    );
    if (min !== undefined || max !== undefined) {
      where.push({ column, ...(min === undefined ? {} : { min }), ...(max === undefined ? {} : { max }) });
    }
  }
  for (const [column, field] of LISTED) {
    const values = asked[field];
    if (Array.isArray(values)) where.push({ column, in: values.map(String) });
  }
  if (asked.status_code !== undefined) where.push(anyStatus(asked.status_code.map(Number)));
  for (const [key, values] of asked.metadata ?? []) where.push({ metadata: key, in: values });
  if (asked.ai_org_model !== undefined) {
    const pairs = asked.ai_org_model.map(({ provider, model }) => [
      { column: 'provider', in: [provider] },
      { column: 'model', in: [model] },
    ]);
    where.push({ anyOf: pairs });
  }
  return where;
}

const anyStatus = (codes: readonly number[]): LogFilter => ({
  anyOf: codes.map((code) => [{ column: 'status', min: code, max: code }]),
});

/** Requests that asked what would happen count nowhere. */
export const REAL: LogFilter = { column: 'dry_run', is: false };

/** Errors are answers with a status of 400 and above. */
export const IS_ERROR: LogFilter = { column: 'status', min: 400 };
export const IS_SUCCESS: LogFilter = { column: 'status', max: 399 };

export interface Range {
  readonly time_of_generation_min: string;
  readonly time_of_generation_max: string;
}

/** Reports a range that is empty or too long; for `superRefine`, so that the answer names all that is wrong. */
export function checkRange(asked: Partial<Range>, context: z.core.$RefinementCtx): void {
  const { time_of_generation_min: min, time_of_generation_max: max } = asked;
  if (min === undefined || max === undefined) return;
  const length = toMillis(max) - toMillis(min);
  const issue = (message: string) =>
    context.addIssue({ code: 'custom', path: ['time_of_generation_max'], message, input: max });
  if (length <= 0) issue('must be after time_of_generation_min');
  else if (length > MAX_RANGE_MS) issue('must be at most 400 days after time_of_generation_min');
}

/** Reports a minimum above its maximum; for `superRefine`. */
export function checkBounds(asked: Partial<Filters>, context: z.core.$RefinementCtx): void {
  for (const low of Object.keys(asked).filter((name) => name.endsWith('_min') && !name.startsWith('time_'))) {
    const high = low.replace(/_min$/, '_max');
    const [min, max] = [low, high].map((name) => (asked as Record<string, unknown>)[name]);
    if (typeof min === 'number' && typeof max === 'number' && min > max) {
      context.addIssue({ code: 'custom', path: [high], message: `must not be below ${low}`, input: max });
    }
  }
}

/**
 * The question that a query asks, of what its caller may read.
 *
 * @param asked conditions that the caller has written: those that name metadata are refused where it is hidden
 * @param own conditions of the route
 */
export function selectionOf(
  { scope, sight }: Reach,
  range: Range,
  asked: readonly LogFilter[],
  own: readonly LogFilter[] = [REAL],
): LogSelection {
  if (namesMetadata(asked)) checkMetadataSeen(sight, 'metadata');
  const [from, to] = [toMillis(range.time_of_generation_min), toMillis(range.time_of_generation_max)];
  return { scope, from, to, where: [...own, ...asked] };
}

/** How a range is cut, and the key by which a store groups by it. */
export function bucketKey(range: Range, zone = 'UTC') {
  const [from, to] = [toMillis(range.time_of_generation_min), toMillis(range.time_of_generation_max)];
  const buckets = bucketsOf({ from, to }, zone);
  return { buckets, key: { bounds: [...buckets.starts, buckets.end] } };
}
