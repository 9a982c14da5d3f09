/** What the address of a request says: some APIs take their words, and the names of models, there. */

import type { LlmRequest } from '../state/request.ts';
import { isPlain, isWord, memberPath } from './texts/names.ts';
import type { SaidPart } from './texts.ts';

/** Parameters that say how a call is carried out, and where a list goes on. */
const SETTINGS = new Set(
  'after alt api-version before beta cursor include limit offset order page page_size page_token pagesize pagetoken purpose stream version'.split(
    ' ',
  ),
);
const SETTING = /^[\w.:/+=~-]{0,256}$/;
const COUNT = /^(?:\d{1,6}|true|false)$/;
const NO_TEXTS: readonly SaidPart[] = [];

/**
 * Values of the query, and parts of a path that passes through, that are more than names. A single word is one where the
 * path passes through, and a setting where it does not: parameters of operations that are known say nothing.
 */
export function addressTexts({ operation, incoming: request }: LlmRequest): readonly SaidPart[] {
  const url = request.url ?? '';
  const proxy = operation.family === 'proxy';
  const at = url.indexOf('?');
  if (operation.family === 'job' || (at === -1 && !(proxy && url.includes('%')))) return NO_TEXTS;
  const out: SaidPart[] = [];
  const add = (path: string, text: string) => out.push({ path, role: null, text });
  if (proxy) {
    const segments = (at === -1 ? url : url.slice(0, at)).split('/');
    for (const [i, segment] of segments.entries()) {
      const text = decoded(segment);
      if (!isWord(text.replace(/^@/, ''), '')) add(`path[${i}]`, text);
    }
  }
  let position = 0;
  for (const [name, value] of new URLSearchParams(at === -1 ? '' : url.slice(at + 1))) {
    const path = memberPath('query', name, position++);
    if (!isPlain(name) && !SETTINGS.has(name)) add(`${path}#name`, name);
    const setting = SETTINGS.has(name.toLowerCase())
      ? SETTING.test(value)
      : proxy
        ? COUNT.test(value)
        : isWord(value, '');
    if (!setting && value !== '') add(path, value);
  }
  return out;
}

const MODEL = /\/(?:models?|ai\/run)\/([^:?]+)/;
const DEPLOYMENT = /\/(?:deployments|engines)\/([^/:?]+)/;
/** What follows the name of a model. */
const VERB =
  /(?:\/(?:invoke|converse|invoke-with-response-stream|converse-stream|predictions|predict|versions|chat|completions|embeddings|generate|v1))+\/?$/;

/** The model that the path of a request names which passes through; null where it names none. */
export function addressModel({ operation, incoming: request }: LlmRequest): string | null {
  if (operation.family !== 'proxy') return null;
  const path = (request.url ?? '').split('?', 1)[0] ?? '';
  const named = DEPLOYMENT.exec(path)?.[1] ?? MODEL.exec(path)?.[1]?.replace(VERB, '');
  return named === undefined || named === '' ? null : decoded(named);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
