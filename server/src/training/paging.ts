/** Lists by the id of the last item seen: what the query may say, and pages over what a workspace owns. */
import { SluiceError } from '../kernel/errors.ts';
import type { Page, PageRequest } from '../operations/training.ts';
import type { ObjectAnswer } from '../runtime/object-call.ts';
import { json } from './answer.ts';
import { invalid } from './fields.ts';

/** Query parameters by name; one that is unknown or given twice is refused, for it would be ignored in silence. */
export function queryOf<N extends string>(query: URLSearchParams, known: readonly N[]): Partial<Record<N, string>> {
  const out: Partial<Record<N, string>> = {};
  for (const [name, value] of query) {
    const found = known.find((one) => one === name);
    const param = name.slice(0, 100);
    if (found === undefined) {
      throw invalid(
        param,
        `The query parameter ${JSON.stringify(param)} is not known here${known.length === 0 ? '' : `; known are ${known.join(', ')}`}.`,
      );
    }
    if (out[found] !== undefined) throw invalid(param, `${param} was given more than once.`);
    out[found] = value;
  }
  return out;
}

/** `after` and `limit`; `limit` from 1 to `max` in plain decimal digits. */
export function readPage(query: URLSearchParams, fallback: number, max = 100): PageRequest {
  const { after, limit } = queryOf(query, ['after', 'limit']);
  if (after === '') throw invalid('after', 'after must be the id of the last item of the page before.');
  return { after: after ?? null, limit: limit === undefined ? fallback : readLimit(limit, max) };
}

export function readLimit(text: string, max: number): number {
  const limit = Number(text);
  if (!/^\d{1,9}$/.test(text) || limit < 1 || limit > max) {
    throw invalid('limit', `limit must be a whole number from 1 to ${max}.`);
  }
  return limit;
}

/** 400 `AB01`: the cursor is no item of this list. */
export function unknownAfter(): SluiceError {
  return invalid('after', 'after names no item of this list.');
}

/** `{object, data, has_more}`, with `first_id` and `last_id` where the list has them. */
export function listAnswer<T extends { readonly id: string }>(page: Page<T>, ends: boolean): ObjectAnswer {
  const { data, has_more } = page;
  return json({
    object: 'list',
    data,
    ...(ends ? { first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null } : null),
    has_more,
  });
}

const UPSTREAM_PAGE = 100;

export interface OwnedWalk<T> {
  readonly page: PageRequest;
  /** One page of the provider's own list, newest first. */
  readonly list: (page: PageRequest) => Promise<Page<T>>;
  /** Which of these ids belong to the workspace. */
  readonly owned: (ids: readonly string[]) => Promise<ReadonlySet<string>>;
  /** How many of the workspace's may still come after the cursor, at most: nothing is asked beyond the last of them. */
  readonly remaining: number;
}

/**
 * A page of the provider's list with only what the workspace owns: its pages are walked until the page is full, the list
 * ends, or all the workspace owns was met. New items come in front, so a walk by `after` neither misses nor repeats one.
 */
export async function ownedPage<T extends { readonly id: string }>(walk: OwnedWalk<T>): Promise<Page<T>> {
  const { limit } = walk.page;
  const data: T[] = [];
  let { after } = walk.page;
  while (data.length < walk.remaining) {
    const upstream = await walk.list({ after, limit: UPSTREAM_PAGE });
    const owned = await walk.owned(upstream.data.map((one) => one.id));
    for (const one of upstream.data) {
      if (!owned.has(one.id)) continue;
      if (data.length === limit) return { data, has_more: true };
      data.push(one);
    }
    const last = upstream.data.at(-1);
    if (!upstream.has_more || last === undefined) break;
    if (last.id === after) {
      throw new SluiceError('upstream_invalid', "The provider's list does not go on after its own cursor.");
    }
    after = last.id;
  }
  return { data, has_more: false };
}
