/** Where the objects of an OpenAI-like API live and how its calls sign in; shared by all that speak this shape. */
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { segment } from '../path.ts';
import type { AdapterAnswer, AdapterContext, AdapterRequest, PreparedCall } from '../training.ts';
import { type ErrorReader, jsonRequest, sent, sentObject, urlOf } from '../training-calls.ts';

export type Query = Readonly<Record<string, string | number | null | undefined>>;

export interface ObjectApi {
  /** Name of the provider in refusals. */
  readonly title: string;
  /** Headers that sign a call in, and the account's options. */
  headers(context: AdapterContext): string[] | Promise<string[]>;
  /** The same without asking anyone, for a dry run: a token that would have to be fetched stands as `***`. */
  plannedHeaders(context: AdapterContext): string[];
  /** Query of every call. */
  readonly query?: (context: AdapterContext) => Query;
  readonly error?: ErrorReader;
}

/** The URL of a path below the account's base. */
export function objectUrl(api: ObjectApi, context: AdapterContext, path: string, query: Query = {}): URL {
  return urlOf(context.base, path, { ...query, ...api.query?.(context) });
}

/** One path segment of an id a caller gave; dot segments would lead to another object. */
export function idSegment(id: string): string {
  if (id === '' || id === '.' || id === '..') {
    throw new SluiceError('invalid_request', 'The id of the object must not be empty or consist of dots.', {
      param: 'id',
    });
  }
  return segment(id);
}

/** Sends a JSON call and reads the object it answers. */
export async function object(
  api: ObjectApi,
  context: AdapterContext,
  method: AdapterRequest['method'],
  path: string,
  parts: { readonly query?: Query; readonly body?: JsonObject; readonly timeoutMs?: number } = {},
): Promise<JsonObject> {
  const url = objectUrl(api, context, path, parts.query);
  const request = jsonRequest(method, url, await api.headers(context), parts.body ?? null);
  return sentObject(
    context,
    parts.timeoutMs === undefined ? request : { ...request, timeoutMs: parts.timeoutMs },
    api.error,
  );
}

/** Sends a call without body whose answer is bytes. */
export async function bytes(api: ObjectApi, context: AdapterContext, path: string): Promise<AdapterAnswer> {
  const headers = [...(await api.headers(context)), 'accept', '*/*'];
  return sent(context, { method: 'GET', url: objectUrl(api, context, path), headers, body: null }, api.error);
}

/** The JSON call a create request becomes. */
export function planned(api: ObjectApi, context: AdapterContext, path: string, body: JsonObject): PreparedCall {
  const { method, url, headers } = jsonRequest(
    'POST',
    objectUrl(api, context, path),
    api.plannedHeaders(context),
    body,
  );
  return { method, url: url.href, headers, body };
}
