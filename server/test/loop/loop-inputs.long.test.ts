import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BODY, type LoopCase, type LoopServer, MB, SMALL, startLoopServer } from '../support/loop.ts';
import { sampled } from '../support/sampled.ts';

/** Milliseconds of CPU for which one turn of the event loop may last. */
const BAR = 20;

let loop: LoopServer;
beforeAll(async () => {
  loop = await startLoopServer();
}, 60_000);
afterAll(async () => loop?.stop());

/** What may take longer, and why. Nothing else may. */
const EXCEPTIONS: readonly (readonly [title: RegExp, ms: number, why: string])[] = [];
const barOf = (title: string): number => EXCEPTIONS.find(([which]) => which.test(title))?.[1] ?? BAR;

const CHAT = { path: '/chat/completions', slug: 'openai' } as const;
const fill = (unit: string, bytes: number): string => unit.repeat(Math.floor(bytes / unit.length));
const said = (unit: string, bytes = BODY): string =>
  `{"model":"m","messages":[{"role":"user","content":"${fill(unit, bytes)}"}],"max_tokens":9}`;
const parts = (count: number, unit: string): string =>
  `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[${Array(count).fill(`{"type":"text","text":"${unit}"}`).join(',')}]}]}`;
/** Requests that have much of something; a model is asked about each of them. */
const BODIES: Readonly<Record<string, string>> = {
  'one text': said('Lorem ipsum dolor sit amet, '),
  'one word': said('a'),
  digits: said('4111 1111 '),
  'other scripts': said('漢字é', BODY / 3),
  'many parts': parts(7_000, 'x'.repeat(4_400)),
  'a picture': `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,${fill('iVBORw0K', BODY)}"}}]}]}`,
};
const config = (value: object) => ({ 'x-gateway-config': JSON.stringify(value) });
const chunks = (text: string): Buffer[] => {
  const bytes = Buffer.from(text);
  return Array.from({ length: Math.ceil(bytes.length / MB) }, (_, i) => bytes.subarray(i * MB, (i + 1) * MB));
};
const ids = Array.from({ length: 20_000 }, (_, i) => `{"type":"input_file","file_id":"file-${i}"}`).join(',');

type Late = Omit<LoopCase, 'headers'> & { readonly headers?: () => Record<string, string> };
const cases: Late[] = [
  ...Object.entries(BODIES).flatMap(([what, body]): Late[] => [
    { title: `the sandbox is asked: ${what}`, path: '/chat/completions', body: body.replace('"m"', '"@sandbox/echo"') },
    { ...CHAT, title: `a dry run: ${what}`, body, headers: () => ({ 'x-gateway-dry-run': 'true' }) },
    { title: `a dry run, converted: ${what}`, slug: 'openai', body, headers: () => ({ 'x-gateway-dry-run': 'true' }) },
    { ...CHAT, title: `a simple cache: ${what}`, body, headers: () => config({ cache: { mode: 'simple' } }) },
    { ...CHAT, title: `a semantic cache: ${what}`, body, headers: () => config({ cache: { mode: 'semantic' } }) },
    { ...CHAT, title: `a shared account: ${what}`, slug: 'shared', body },
    { title: `a signed request: ${what}`, slug: 'bedrock', path: '/chat/completions', body },
  ]),
  {
    title: 'the sandbox answers 31 MB',
    path: '/chat/completions',
    body: `{"model":"@sandbox/lorem?bytes=${BODY}","messages":[{"role":"user","content":"Hi"}]}`,
  },
  {
    title: 'the sandbox streams 31 MB',
    path: '/chat/completions',
    body: `{"model":"@sandbox/lorem?bytes=${BODY}","stream":true,"messages":[{"role":"user","content":"Hi"}]}`,
  },
  {
    title: 'the sandbox embeds 31 MB',
    path: '/embeddings',
    body: `{"model":"@sandbox/echo","input":"${fill('word ', BODY)}"}`,
  },
  {
    title: 'the sandbox moderates 31 MB',
    path: '/moderations',
    body: `{"model":"@sandbox/echo","input":"${fill('word ', BODY)}"}`,
  },
  {
    title: 'a shared account: many ids',
    slug: 'shared',
    path: '/responses',
    body: `{"model":"m","input":[{"role":"user","content":[${ids}]}]}`,
  },
  {
    title: 'a shared account: a text and many ids',
    slug: 'shared',
    path: '/responses',
    body: `{"model":"m","instructions":"${fill('a', BODY - MB)}","input":[{"role":"user","content":[${ids.slice(0, 400_000).replace(/,[^,]*,[^,]*$/, '')}]}]}`,
  },
  {
    title: 'pictures that are fetched',
    slug: 'google',
    path: '/chat/completions',
    body: `{"model":"gemini","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"URL/picture"}}]}]}`,
    answer: (path) =>
      path.endsWith('/picture')
        ? { type: 'image/png', parts: Array<Buffer>(19).fill(Buffer.alloc(MB, 0x89)) }
        : { parts: ['{"candidates":[]}'] },
  },
  {
    title: 'pictures named beside 30 MB of text',
    slug: 'google',
    path: '/chat/completions',
    body: `{"model":"gemini","messages":[{"role":"user","content":[{"type":"text","text":"${fill('a', 29 * MB)}"},{"type":"image_url","image_url":{"url":"URL/picture"}}]}]}`,
    answer: (path) =>
      path.endsWith('/picture')
        ? { type: 'image/png', parts: [Buffer.alloc(MB, 0x89)] }
        : { parts: ['{"candidates":[]}'] },
  },
  ...['{"error":{"message":"', '{"a":"'].map(
    (begins): Late => ({
      ...CHAT,
      title: `an answer of 31 MB held whole: ${begins.slice(2, 4)}`,
      headers: () => ({}),
      answer: () => ({ parts: chunks(`${begins}${fill('a', BODY)}"${begins.includes('error') ? '}' : ''}}`) }),
    }),
  ),
  {
    ...CHAT,
    title: 'a failure of 31 MB',
    answer: () => ({ status: 400, parts: chunks(`{"error":{"message":"${fill('a', BODY)}"}}`) }),
  },
  {
    ...CHAT,
    title: 'an answer of 31 MB with many errors',
    answer: () => ({ parts: chunks(`{"x":[${fill('{"error":null},', BODY)}{}]}`) }),
  },
];

describe('the event loop is not held for longer than 20 ms, or a named exception, by', () => {
  it.each(sampled(cases, ({ title }) => title))(
    '$title',
    async (one) => {
      const body = typeof one.body === 'string' ? one.body.replace('URL', loop.upstream.url) : SMALL;
      const bar = barOf(one.title);
      expect(await loop.measured({ ...one, body, headers: one.headers?.() ?? {} }, bar)).toBeLessThan(bar);
    },
    180_000,
  );
});
