import { z } from 'zod';
import type { CheckHttpClient, Excerpt } from '../check.ts';
import { CheckError } from '../check.ts';
import { ANY_TARGET, check, not, OUTPUT, verdict } from './support.ts';

/** More than this in one answer is refused: each is a call. */
const MAX_URLS = 50;
const AT_ONCE = 8;
const TIMEOUT_MS = 3_000;

/** http(s) URLs in running text, without the punctuation that follows them there. */
function urlsIn(text: string): { readonly url: string; readonly start: number; readonly end: number }[] {
  const out = [];
  for (const match of text.matchAll(/\bhttps?:\/\/[^\s<>"'`{}|\\^[\]]{1,2000}/gi)) {
    const url = trimmed(match[0]);
    out.push({ url, start: match.index, end: match.index + url.length });
  }
  return out;
}

function trimmed(url: string): string {
  let end = url.length;
  let open = 0;
  for (const c of url) open += c === '(' ? 1 : c === ')' ? -1 : 0;
  for (; end > 0; end--) {
    const c = url[end - 1] ?? '';
    if (c === ')' && open < 0) open += 1;
    else if (!'.,;:!?*_~…。，、！？；：'.includes(c)) break;
  }
  return url.slice(0, end);
}

async function good(url: string, onlyDNS: boolean, outside: CheckHttpClient): Promise<boolean> {
  const parsed = URL.parse(url);
  if (parsed === null) return false;
  if (onlyDNS) return await outside.resolves(parsed.hostname);
  const ask = async (method: 'HEAD' | 'GET') =>
    (await outside.call({ url: parsed.href, method, headers: {}, body: null, timeoutMs: TIMEOUT_MS })).status;
  try {
    const status = await ask('HEAD');
    // Servers that do not know HEAD are asked the longer way; a redirect is an answer, and is not followed.
    const answer = status === 405 || status === 501 ? await ask('GET') : status;
    return answer >= 200 && answer < 400;
  } catch (error) {
    if (outside.signal.aborted) throw error;
    return false;
  }
}

/**
 * `default.validUrls`: every http(s) URL in all texts answers with 2xx or 3xx (`onlyDNS`: its host has an address that may
 * be called). A text without URLs passes. Each URL is asked once; more than 50 are an error of the check.
 */
export const validUrls = check({
  id: 'default.validUrls',
  phases: OUTPUT,
  targets: ANY_TARGET,
  parameters: z.strictObject({ onlyDNS: z.boolean().default(false), not }),
  timeoutMs: 10_000,
  mutates: false,
  canonical: true,
  compile: ({ onlyDNS, not: inverted }) => ({
    lookBehind: null,
    async judge(subject, outside) {
      const places = new Map<string, Excerpt>();
      for (const { path, text } of subject.texts)
        for (const { url, start, end } of urlsIn(text))
          if (!places.has(url)) places.set(url, { path, start, end, kind: 'URL' });
      if (places.size > MAX_URLS) throw new CheckError(`There are more than ${MAX_URLS} URLs; they are not asked.`);
      const waiting = [...places];
      const bad: Excerpt[] = [];
      await Promise.all(
        Array.from({ length: Math.min(AT_ONCE, waiting.length) }, async () => {
          for (let next = waiting.pop(); next !== undefined; next = waiting.pop())
            if (!(await good(next[0], onlyDNS, outside))) bad.push(next[1]);
        }),
      );
      return verdict(
        bad.length === 0,
        inverted,
        `${places.size} URLs, ${bad.length} not valid.`,
        { urls: places.size },
        bad,
      );
    },
  }),
});
