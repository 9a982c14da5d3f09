/** How lists are cut into pages, and what stands around their items. */
import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import { queryInteger, uuid } from '../fields.ts';

/** Offset of the last row a list reaches: beyond it a page costs more than it is worth. */
const MAX_OFFSET = 10_000_000;

/**
 * `page`: `page_size` and `current_page`. `camel`: `pageSize` and `currentPage` beside them. `cursor`: `limit`, and `after`
 * with the id that the page before has ended with; newest first. `whole`: no pages.
 */
export type Paging = 'page' | 'camel' | 'cursor' | 'whole';

/** Rows of a page. */
export interface Slice {
  readonly limit?: number;
  readonly offset?: number;
  /** With `cursor`: the id that the page before has ended with. */
  readonly after?: string;
}

/** What a list says beside its items. */
export interface Listed {
  readonly data: readonly unknown[];
  /** With `page`, `camel` and `whole`. */
  readonly total: number;
  /** With `cursor`. */
  readonly hasMore: boolean;
}

/** What stands around the items of a list. */
export interface Envelope {
  schema(item: z.ZodType): z.ZodType;
  wrap(listed: Listed): unknown;
}

/** `{object: "list", total, data}` */
export const LIST: Envelope = {
  schema: (item) => listOf(item),
  wrap: ({ total, data }) => ({ object: 'list', total, data }),
};

/** `{object: "list", data, has_more}` */
export const HAS_MORE: Envelope = {
  schema: (item) => z.object({ object: z.literal('list'), data: z.array(item), has_more: z.boolean() }),
  wrap: ({ data, hasMore }) => ({ object: 'list', data, has_more: hasMore }),
};

/** The items alone. */
export const ARRAY: Envelope = {
  schema: (item) => z.array(item),
  wrap: ({ data }) => data,
};

/** The usual list envelope. */
export function listOf<T extends z.ZodType>(item: T) {
  return z.object({ object: z.literal('list'), total: z.int().min(0), data: z.array(item) });
}

/** Query parameters of a page. */
export function pageFields(maxPageSize: number, paging: Paging = 'page') {
  const size = queryInteger(1, maxPageSize).optional();
  const current = queryInteger(0, MAX_OFFSET).optional().describe('0-indexed.');
  const snake = { page_size: size, current_page: current };
  return paging === 'camel' ? { ...snake, pageSize: size, currentPage: current } : snake;
}

/** Query parameters of a list. */
export function pagingFields(paging: Paging, maxPageSize: number): Readonly<Record<string, z.ZodType>> {
  if (paging === 'whole') return {};
  if (paging !== 'cursor') return pageFields(maxPageSize, paging);
  return {
    limit: queryInteger(1, maxPageSize).optional(),
    after: uuid.optional().describe('The id that the page before has ended with.'),
  };
}

/** The rows that a validated query asks for. Throws 400 for a page that lies too far. */
export function sliceOf(paging: Paging, query: Readonly<Record<string, unknown>>, defaultPageSize: number): Slice {
  if (paging === 'whole') return {};
  if (paging !== 'cursor') return pageOf(query, defaultPageSize);
  const { limit, after } = query;
  return {
    limit: typeof limit === 'number' ? limit : defaultPageSize,
    ...(typeof after === 'string' ? { after } : {}),
  };
}

/** Limit and offset of the page that a validated query asks for. */
export function pageOf(
  query: Readonly<Record<string, unknown>>,
  defaultPageSize: number,
): { limit: number; offset: number } {
  const limit = numberOf(query, 'page_size', 'pageSize') ?? defaultPageSize;
  const current = numberOf(query, 'current_page', 'currentPage') ?? 0;
  if (limit * current > MAX_OFFSET) {
    throw new SluiceError('validation', `current_page times page_size must be at most ${MAX_OFFSET}.`, {
      param: 'current_page',
    });
  }
  return { limit, offset: limit * current };
}

function numberOf(query: Readonly<Record<string, unknown>>, name: string, camel: string): number | undefined {
  const [first, second] = [query[name], query[camel]];
  if (first !== undefined && second !== undefined && first !== second) {
    throw new SluiceError('validation', `Send ${name} or ${camel}, not both.`, { param: camel });
  }
  const value = first ?? second;
  return typeof value === 'number' ? value : undefined;
}
