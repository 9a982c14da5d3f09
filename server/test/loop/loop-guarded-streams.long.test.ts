import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Answered, type LoopCase, type LoopServer, MB, SMALL, startLoopServer } from '../support/loop.ts';
import { sampled } from '../support/sampled.ts';

/** Milliseconds of CPU for which one turn of the event loop may last. */
const BAR = 20;
/** Nearly the most of a stream that guardrails hold back, and of what a webhook may answer. */
const MOST = 15 * MB;

let loop: LoopServer;
beforeAll(async () => {
  loop = await startLoopServer();
}, 60_000);
afterAll(async () => loop?.stop());

type Case = Omit<LoopCase, 'headers'> & { readonly config: object };

const CHAT = { path: '/chat/completions', slug: 'openai' } as const;
const STREAMED = SMALL.replace('{', '{"stream":true,');
const HEAD = '{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":';
const event = (delta: string, end = 'null'): string => `data: ${HEAD}${delta},"finish_reason":${end}}]}\n\n`;
const content = (text: string): string => event(`{"role":"assistant","content":"${text}"}`);

/** A stream of about `bytes`, in events of `size`. */
function streamOf(bytes: number, size: number, text = 'Lorem ipsum dolor sit amet, '): readonly Buffer[] {
  const one = Buffer.from(content(text.repeat(Math.ceil(size / text.length)).slice(0, size)));
  const each = Math.max(1, Math.floor((256 * 1024) / one.length));
  const part = Buffer.concat(Array(each).fill(one));
  const parts = Array<Buffer>(Math.floor(bytes / part.length)).fill(part);
  return [...parts, Buffer.from(`${event('{}', '"stop"')}data: [DONE]\n\n`)];
}

const LARGE_EVENTS = streamOf(MOST, 64 * 1024);
const OTHERS: Readonly<Record<string, readonly Buffer[]>> = {
  'small events': streamOf(MOST, 200),
  /** One event may have 8 MB. */
  'two events': streamOf(MOST, 7 * MB),
  'card numbers': streamOf(MOST, 4_200, '4111 1111 1111 1111, '),
};

const HOOK = { 'default.webhook': { webhookURL: 'URL/webhook' } };
const SCHEMA = { schema: { type: 'object', properties: { a: { type: 'string' } } } };
/** What judges a stream: held back or judged in windows where it denies, judged at its end where it does not. */
const CHECKS: Readonly<Record<string, object>> = {
  contains: { 'default.contains': { words: ['never found'], operator: 'none' } },
  regexMatch: { 'default.regexMatch': { rule: 'never (found|seen)[0-9]+$', not: true } },
  pii: { 'gateway.pii': { categories: ['CREDIT_CARD', 'EMAIL_ADDRESS'] } },
  jsonSchema: { 'default.jsonSchema': SCHEMA },
  wordCount: { 'default.wordCount': { maxWords: 999_999_999 } },
  webhook: HOOK,
};
const WAYS: Readonly<Record<string, object>> = {
  'held back': { deny: true, stream: 'buffer' },
  'in windows': { deny: true },
  'at its end': {},
  beside: { async: true },
};

const replaced = `{"verdict":true,"transformedData":{"response":{"json":{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"${'New text, '.repeat(100_000)}"},"finish_reason":"stop"}]}}}}`;

const cases: Case[] = [];
function stream(title: string, parts: readonly Buffer[], guardrail: object, hook = '{"verdict":true}'): void {
  const answer = (path: string): Answered =>
    path.endsWith('/chat/completions') ? { type: 'text/event-stream', parts } : { parts: [hook] };
  const config = { output_guardrails: [guardrail] };
  cases.push({ ...CHAT, title: `a stream of ${title}`, body: STREAMED, config, answer });
}
for (const [way, actions] of Object.entries(WAYS))
  for (const [id, check] of Object.entries(CHECKS))
    stream(`large events, ${way}: ${id}`, LARGE_EVENTS, { ...check, ...actions });
for (const [what, parts] of Object.entries(OTHERS))
  for (const [way, actions] of Object.entries(WAYS))
    stream(`${what}, ${way}`, parts, { ...CHECKS.contains, ...actions });
for (const [what, parts] of Object.entries({ 'large events': LARGE_EVENTS, ...OTHERS })) {
  stream(`${what}, redacted`, parts, { 'gateway.pii': { categories: ['CREDIT_CARD'], redact: true } });
  stream(`${what}, replaced by a webhook`, parts, HOOK, replaced);
}

const keys = (count: number): string => Array.from({ length: count }, (_, i) => `"k${i}":1`).join(',');
const text = (bytes: number): string => `"${'Lorem ipsum dolor sit amet, '.repeat(bytes / 28)}"`;
/** What a webhook answers about a small request, of about the size. */
const ANSWERS: Readonly<Record<string, (bytes: number) => string>> = {
  'one text as data': (bytes) => `{"verdict":true,"data":${text(bytes)}}`,
  'keys as data': (bytes) => `{"verdict":true,"data":{${keys(bytes / 11)}}}`,
  'nothing that is JSON': (bytes) => text(bytes).slice(0, -1),
  'brackets as data': (bytes) => `{"verdict":true,"data":[${'[],'.repeat(bytes / 3)}[]]}`,
  'a body of one text': (bytes) =>
    `{"verdict":true,"transformedData":{"SIDE":{"json":{"model":"m","messages":[{"role":"user","content":${text(bytes)}}],"choices":[{"index":0,"message":{"role":"assistant","content":${text(9)}}}]}}}}`,
  'a body of many members': (bytes) =>
    `{"verdict":true,"transformedData":{"SIDE":{"json":{"model":"m","metadata":{${keys(bytes / 11)}},"messages":[{"role":"user","content":"Hi"}],"choices":[]}}}}`,
  'a body of many texts': (bytes) =>
    `{"verdict":true,"transformedData":{"SIDE":{"json":{"model":"m","messages":[${Array(Math.ceil(bytes / 32))
      .fill('{"role":"user","content":"Hello"}')
      .join(',')}],"choices":[]}}}}`,
};
const SIZES: Readonly<Record<string, number>> = {
  '40 KB': 40_000,
  '300 KB': 300_000,
  '1.9 MB': 1.9 * MB,
  '15 MB': MOST,
};
for (const [what, make] of Object.entries(ANSWERS))
  for (const [size, bytes] of Object.entries(SIZES))
    for (const phase of ['input', 'output'] as const) {
      const hook = make(bytes).replace('SIDE', phase === 'input' ? 'request' : 'response');
      const said = `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}`;
      const answer = (path: string): Answered => ({ parts: [path.endsWith('/chat/completions') ? said : hook] });
      const config = { [`${phase}_guardrails`]: [HOOK] };
      cases.push({ ...CHAT, title: `a webhook (${phase}) that answers ${size}, ${what}`, body: SMALL, config, answer });
    }

describe('the event loop is not held for longer than 20 ms by', () => {
  it.each(sampled(cases, ({ title }) => title, 5))(
    '$title',
    async ({ config, ...one }) => {
      const headers = { 'x-gateway-config': JSON.stringify(config).replaceAll('URL/', `${loop.upstream.url}/`) };
      expect(await loop.measured({ ...one, headers }, BAR)).toBeLessThan(BAR);
    },
    180_000,
  );
});
