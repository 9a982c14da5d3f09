/** Where a conversation has pictures and files that it names by their addresses. */
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';

/** What was fetched, as data URLs by address; a long one as pieces of its bytes, in memory that threads share. */
export type Media = ReadonlyMap<string, string | readonly Uint8Array[]>;

const urlOf = (data: string | readonly Uint8Array[]): string =>
  typeof data === 'string' ? data : Buffer.concat(data).toString('latin1');

/** The addresses that the conversations of a body, which are in `lists`, name, each once, of those that `inlines` asks for. */
export function namedMedia(lists: readonly string[], body: JsonValue, inlines: (url: string) => boolean): string[] {
  if (!isObject(body)) return [];
  const named = new Set<string>();
  replaced(lists, body, (url) => {
    if (inlines(url)) named.add(url);
    return null;
  });
  return [...named];
}

/** The body with what was fetched in place of the addresses in its conversations. */
export function withMedia(
  lists: readonly string[],
  body: JsonObject,
  media: Media | null,
  inlines: (url: string) => boolean,
): JsonObject {
  if (media === null) return body;
  return replaced(lists, body, (url) => {
    const data = inlines(url) ? media.get(url) : undefined;
    return data === undefined ? null : urlOf(data);
  });
}

type Replace = (url: string) => string | null;

/** The conversation with its addresses replaced; only where media stand, so that arguments and results stay as they are. */
function replaced(lists: readonly string[], body: JsonObject, replace: Replace): JsonObject {
  let out = body;
  for (const name of lists) {
    const list = body[name];
    if (!Array.isArray(list)) continue;
    const next = list.map((message) => withParts(message, replace));
    if (next.some((message, i) => message !== list[i])) out = { ...out, [name]: next };
  }
  return out;
}

/** A message, a result of a tool, or an item: its parts are in `content` or, in results of Responses, in `output`. */
function withParts(holder: JsonValue, replace: Replace): JsonValue {
  if (!isObject(holder)) return holder;
  let next = holder;
  for (const name of ['content', 'output'] as const) {
    const parts = holder[name];
    if (!Array.isArray(parts)) continue;
    const made = parts.map((part) => partWith(part, replace));
    if (made.some((part, i) => part !== parts[i])) next = { ...next, [name]: made };
  }
  return next;
}

function partWith(part: JsonValue, replace: Replace): JsonValue {
  if (!isObject(part)) return part;
  const { type } = part;
  if (type === 'image_url' || type === 'video_url') {
    const given = part[type];
    const data = urlWith(isObject(given) ? given.url : given, replace);
    if (data === null) return part;
    return { ...part, [type]: isObject(given) ? { ...given, url: data } : data };
  }
  if (type === 'input_image') {
    const data = urlWith(part.image_url, replace);
    return data === null ? part : { ...part, image_url: data };
  }
  if (type === 'input_file') {
    const data = urlWith(part.file_url, replace);
    const { file_url: _url, ...rest } = part;
    return data === null ? part : { ...rest, file_data: data };
  }
  if (type === 'tool_result') return withParts(part, replace);
  const { source } = part;
  if ((type !== 'image' && type !== 'document') || !isObject(source) || source.type !== 'url') return part;
  const data = urlWith(source.url, replace);
  if (data === null) return part;
  const [head = '', content = ''] = data.slice('data:'.length).split(';base64,', 2);
  return { ...part, source: { type: 'base64', media_type: head, data: content } };
}

const urlWith = (url: JsonValue | undefined, replace: Replace): string | null =>
  typeof url === 'string' ? replace(url) : null;
