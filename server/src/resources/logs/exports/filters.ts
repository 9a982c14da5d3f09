/** The filter of an export: the same conditions as a list of requests takes, as fields of a body. */
import { z } from 'zod';
import type { LogFilter, LogSelection } from '../../../telemetry/log-query.ts';
import { feedbackFilter } from '../../analytics/feedback-filter.ts';
import {
  checkBounds,
  checkRange,
  conditionsOf,
  filterFields,
  MOST_VALUES,
  REAL,
  selectionOf,
} from '../../analytics/filters.ts';
import { optionalRangeFields, rangeOf } from '../../analytics/range.ts';
import { reference } from '../../fields.ts';
import type { Call } from '../../resource.ts';
import type { Reach } from '../reach.ts';

/** Rows of the contract's one page. */
const PAGE_ROWS = 50_000;
const MOST_PAGES = 200;
const MOST_TEXT = 16_384;

/** How a list reads the same conditions: from texts. */
const asked = z
  .strictObject({ ...filterFields, ...optionalRangeFields })
  .superRefine(checkRange)
  .superRefine(checkBounds);

const NUMBERS = [
  'total_units_min',
  'total_units_max',
  'cost_min',
  'cost_max',
  'prompt_token_min',
  'prompt_token_max',
  'completion_token_min',
  'completion_token_max',
  'weighted_feedback_min',
  'weighted_feedback_max',
] as const satisfies readonly (keyof typeof filterFields)[];

const TEXTS = [
  'status_code',
  'virtual_keys',
  'configs',
  'api_key_ids',
  'ai_org_model',
  'ai_model',
  'trace_id',
  'span_id',
  'prompt_slug',
  'cache_status',
  'source',
  'outcome',
  'error_code',
  'operation',
  'user_ids',
] as const satisfies readonly (keyof typeof filterFields)[];

const number = z.number().optional();
const text = z.string().max(MOST_TEXT).optional();

function fieldsOf<N extends string, T extends z.ZodType>(names: readonly N[], type: T): Record<N, T> {
  return Object.fromEntries(names.map((name) => [name, described(name, type)])) as Record<N, T>;
}

function described<T extends z.ZodType>(name: string, type: T): T {
  const { description } = (filterFields as Record<string, z.ZodType>)[name] ?? {};
  return description === undefined ? type : type.describe(description);
}

const pairs = z.record(z.string(), z.union([z.string(), z.array(z.string()).max(MOST_VALUES)]));

/** As they are stored and answered; what they say is checked as in a query. */
export const exportFilters = z
  .strictObject({
    ...optionalRangeFields,
    ...fieldsOf(NUMBERS, number),
    ...fieldsOf(TEXTS, text),
    metadata: pairs.optional().describe('Each key with a text, or a list of texts of which one must hold.'),
    workspace_slug: reference.optional().describe('UUID or slug. No other workspace than that of the export.'),
    page_size: z.int().min(1).max(PAGE_ROWS).optional().describe(`Rows of a page; ${PAGE_ROWS} when absent.`),
    current_page: z.int().min(0).max(MOST_PAGES).optional().describe('0-indexed, oldest requests first.'),
  })
  .superRefine((value, context) => {
    for (const { path, message } of asked.safeParse(queryOf(value)).error?.issues ?? []) {
      context.addIssue({ code: 'custom', path: [...path], message });
    }
  });

const RATED: ReadonlySet<string> = new Set(['weighted_feedback_min', 'weighted_feedback_max']);
type Rated = 'weighted_feedback_min' | 'weighted_feedback_max';

/** Those conditions that a record meets or not by itself, at any time: feedback comes later. */
export const recordFilters = z
  .strictObject({
    ...fieldsOf(
      NUMBERS.filter((name): name is Exclude<(typeof NUMBERS)[number], Rated> => !RATED.has(name)),
      number,
    ),
    ...fieldsOf(TEXTS, text),
    metadata: pairs.optional().describe('Each key with a text, or a list of texts of which one must hold.'),
  })
  .superRefine((value, context) => {
    for (const { path, message } of asked.safeParse(queryOf(value)).error?.issues ?? []) {
      context.addIssue({ code: 'custom', path: [...path], message });
    }
  });

/** As conditions on columns. */
export const recordConditions = (filters: Readonly<Record<string, unknown>>): LogFilter[] =>
  conditionsOf(asked.parse(queryOf(filters)));

export type ExportFilters = z.output<typeof exportFilters>;

/** The filters as the parameters of a list. */
function queryOf(filters: Readonly<Record<string, unknown>>): Record<string, string> {
  const { workspace_slug: _slug, page_size: _size, current_page: _page, ...conditions } = filters;
  return Object.fromEntries(
    Object.entries(conditions)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [name, typeof value === 'object' ? JSON.stringify(value) : String(value)]),
  );
}

/** The rows of an export. */
export interface ChosenRows {
  readonly selection: LogSelection;
  /** Rows that are left out before the first. */
  readonly skip: number;
  readonly limit: number;
}

interface Chosen {
  readonly filters: Readonly<Record<string, unknown>>;
  /** Every row, in place of a page. */
  readonly whole: boolean;
}

/**
 * What an export reads, up to `now` where its filters have no end. Dry runs are in no export.
 *
 * @throws `forbidden` where the filters name what a setting keeps from the reader
 */
export async function chosenRows(
  call: Pick<Call, 'tx'>,
  reach: Reach,
  { filters, whole }: Chosen,
  given: { readonly now: number; readonly maxRows: number },
): Promise<ChosenRows> {
  const conditions = asked.parse(queryOf(filters));
  const asks = selectionOf(reach, rangeOf(conditions, given.now), conditionsOf(conditions), [REAL]);
  const rated = await feedbackFilter(call, reach, conditions, asks.from);
  const selection = { ...asks, where: [...asks.where, ...rated] };
  const { page_size: size = PAGE_ROWS, current_page: page = 0 } = filters as ExportFilters;
  return whole ? { selection, skip: 0, limit: given.maxRows } : { selection, skip: size * page, limit: size };
}
