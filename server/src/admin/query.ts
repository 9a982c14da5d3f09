import { SluiceError } from '../kernel/errors.ts';

/**
 * The query string of a request target as one string per name. Strict: a name given twice, a bad escape,
 * U+0000 or bytes that are not UTF-8 throw `validation`. The values of a name in `lists` are joined by commas. `+` is a space, as forms write it. `tags[key]=value` is the
 * other spelling of `tags` as JSON text and becomes it.
 */
export function parseQuery(target: string, lists: readonly string[] = []): Record<string, string> {
  const start = target.indexOf('?');
  const query: Record<string, string> = Object.create(null) as Record<string, string>;
  if (start === -1) return query;
  const tags: [string, string][] = [];
  for (const pair of target.slice(start + 1).split('&')) {
    if (pair === '') continue;
    const at = pair.indexOf('=');
    const name = decode(at === -1 ? pair : pair.slice(0, at));
    const value = decode(at === -1 ? '' : pair.slice(at + 1));
    const earlier = query[name];
    if (earlier !== undefined && lists.includes(name)) {
      query[name] = `${earlier},${value}`;
      continue;
    }
    if (earlier !== undefined) {
      throw new SluiceError('validation', `Send the query parameter ${printable(name)} once.`, {
        param: printable(name),
      });
    }
    query[name] = value;
    const tag = TAG.exec(name)?.[1];
    if (tag !== undefined) {
      delete query[name];
      tags.push([tag, value]);
    }
  }
  if (tags.length === 0) return query;
  const repeated = new Set(tags.map(([tag]) => tag)).size < tags.length;
  if (repeated || 'tags' in query) {
    throw new SluiceError('validation', 'Send each tag once, and tags in one spelling only.', { param: 'tags' });
  }
  query.tags = JSON.stringify(Object.fromEntries(tags));
  return query;
}

const TAG = /^tags\[([^[\]]{1,128})\]$/;

function decode(text: string): string {
  let value: string;
  try {
    value = decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new SluiceError('validation', 'The query string holds an invalid percent escape.');
  }
  if (value.includes('\0')) throw new SluiceError('validation', 'The query string must not contain U+0000.');
  return value;
}

const printable = (name: string): string => name.replace(/[^\x21-\x7e]/g, '?').slice(0, 64);
