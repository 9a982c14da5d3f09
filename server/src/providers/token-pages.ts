/** Lists that upstream walks with opaque tokens and callers with the id of the last item. */
import { SluiceError } from '../kernel/errors.ts';
import type { Page, PageRequest } from '../operations/training.ts';
import { unknownAfter } from './training-calls.ts';

export interface TokenPage<T> {
  readonly items: readonly T[];
  readonly next: string | null;
}

/** Pages one request may read; without a bound a wrong `after` would walk the whole history of an account. */
const MAX_PAGES = 20;

/** How many items to ask for at once: one more than wanted tells whether there are more; `after` has to be found. */
export function pageSize(page: PageRequest, largest: number): number {
  return page.after === null ? Math.min(page.limit + 1, largest) : largest;
}

/** Every item in upstream's order, each id once although items were added in front while pages were read. */
export async function* tokenItems<T extends { readonly id: string }>(
  list: (token: string | null) => Promise<TokenPage<T>>,
): AsyncGenerator<T> {
  const seen = new Set<string>();
  let token: string | null = null;
  for (let page = 0; page < MAX_PAGES; page++) {
    const { items, next }: TokenPage<T> = await list(token);
    for (const item of items) {
      if (seen.has(item.id)) continue;
      seen.add(item.id);
      yield item;
    }
    if (next === null || next === '') return;
    token = next;
  }
  throw new SluiceError(
    'validation',
    `The list is too long to be walked to the object that "after" names: it was not among the newest.`,
    { param: 'after' },
  );
}

/** The items behind `after`. A list that does not hold it is a wrong request. */
export async function takePage<T extends { readonly id: string }>(
  items: AsyncIterable<T>,
  page: PageRequest,
): Promise<Page<T>> {
  const data: T[] = [];
  let found = page.after === null;
  for await (const item of items) {
    if (!found) {
      found = item.id === page.after;
      continue;
    }
    if (data.length === page.limit) return { data, has_more: true };
    data.push(item);
  }
  if (!found) throw unknownAfter();
  return { data, has_more: false };
}
