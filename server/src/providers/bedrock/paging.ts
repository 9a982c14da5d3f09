import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import type { Page, PageRequest } from '../../operations/training.ts';
import { unknownAfter } from '../training-calls.ts';

/** Upstream pages that are walked to find `after` among jobs of the same moment. */
const MAX_PAGES = 20;
const MAX_RESULTS = 1000;

/** A list of the provider that walks by token, newest first. */
export interface TokenList {
  /** The summaries of one page and the token of the next. `before`: only what was created before that time. */
  page(query: {
    readonly maxResults: string;
    readonly nextToken: string | null;
    readonly before: string | null;
  }): Promise<{ readonly rows: readonly JsonObject[]; readonly next: string | null }>;
  readonly arnOf: (row: JsonObject) => string | null;
  /** ARN and creation time (milliseconds) of the object `after` names; null when there is none. */
  find(after: string): Promise<{ readonly arn: string; readonly created: number } | null>;
}

/**
 * A page that Sluice makes by the id of the last item, without keeping any token: the list begins just after the
 * creation time of that item, and what comes before it in there is left out.
 */
export async function bridgedPage(list: TokenList, page: PageRequest): Promise<Page<JsonObject>> {
  let before: string | null = null;
  let past: string | null = null;
  if (page.after !== null) {
    const found = await list.find(page.after);
    if (found === null) throw unknownAfter();
    before = new Date(found.created + 1).toISOString();
    past = found.arn;
  }
  const data: JsonObject[] = [];
  let token: string | null = null;
  for (let pages = 0; ; pages++) {
    // One more than is missing, for the item `after` itself.
    const wanted = page.limit - data.length + (past === null ? 0 : 1);
    const { rows, next } = await list.page({
      maxResults: String(Math.min(wanted, MAX_RESULTS)),
      nextToken: token,
      before,
    });
    let left = 0;
    for (const row of rows) {
      if (past !== null) {
        if (list.arnOf(row) === past) past = null;
      } else if (data.length < page.limit) data.push(row);
      else left++;
    }
    if (left > 0 || (data.length >= page.limit && past === null)) return { data, has_more: left > 0 || next !== null };
    if (next === null) {
      // Deleted between the two calls: everything that is older follows it.
      return { data, has_more: false };
    }
    if (next === token) throw new SluiceError('upstream_invalid', 'The list of the provider repeats its page token.');
    if (past !== null && pages + 1 >= MAX_PAGES) throw unknownAfter();
    token = next;
  }
}
