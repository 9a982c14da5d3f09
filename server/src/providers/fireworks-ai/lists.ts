import { isObject, type JsonObject } from '../../kernel/json.ts';
import { asArray } from '../../operations/convert/fields.ts';
import { tokenItems } from '../token-pages.ts';
import type { AdapterContext } from '../training.ts';
import { bearerHeaders, jsonRequest, sentObject, textOf, urlOf } from '../training-calls.ts';
import { controlPlane, shortId } from './place.ts';

/** Above this upstream silently answers this many. */
export const LARGEST_PAGE = 200;

export interface Listed {
  /** Id as callers know it. */
  readonly id: string;
  readonly raw: JsonObject;
}

/** Resources of one collection, newest first. Every parameter goes with each page token again. */
export function listed(collection: string, size: number, context: AdapterContext, prefix = ''): AsyncGenerator<Listed> {
  return tokenItems(async (pageToken) => {
    const url = urlOf(controlPlane(context), `/${collection}`, {
      pageSize: size,
      pageToken,
      orderBy: 'create_time desc',
    });
    const body = await sentObject(context, jsonRequest('GET', url, bearerHeaders(context)));
    const rows = asArray(body[collection]).filter(isObject);
    return {
      items: rows.map((raw) => ({ id: prefix + shortId(textOf(raw.name) ?? ''), raw })),
      next: textOf(body.nextPageToken),
    };
  });
}

const createdAt = (one: Listed): number => {
  const ms = Date.parse(textOf(one.raw.createTime) ?? '');
  return Number.isNaN(ms) ? 0 : ms;
};

/** Two lists as one, newest first. Items created in the same instant keep the order of the arguments. */
export async function* merged(first: AsyncGenerator<Listed>, second: AsyncGenerator<Listed>): AsyncGenerator<Listed> {
  try {
    let [a, b] = await Promise.all([first.next(), second.next()]);
    while (!a.done || !b.done) {
      if (b.done || (!a.done && createdAt(a.value) >= createdAt(b.value))) {
        if (a.done) return;
        yield a.value;
        a = await first.next();
      } else {
        yield b.value;
        b = await second.next();
      }
    }
  } finally {
    await Promise.all([first.return(undefined), second.return(undefined)]);
  }
}
