/** How long arguments of tools of 30 MB, and the rows of data sets, hold the event loop. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BODY, type LoopCase, type LoopServer, MB, startLoopServer } from '../support/loop.ts';
import { sampled } from '../support/sampled.ts';

/** Milliseconds of CPU for which one turn of the event loop may last. */
const BAR = 20;

let loop: LoopServer;
beforeAll(async () => {
  loop = await startLoopServer();
}, 60_000);
afterAll(async () => loop?.stop());

const fill = (unit: string, bytes: number): string => unit.repeat(Math.max(1, Math.floor(bytes / unit.length)));
const times = (count: number, make: (i: number) => string): string =>
  Array.from({ length: count }, (_, i) => make(i)).join('');

/** What a model says that a tool is to be called with, in about so many bytes of its own JSON. */
const ARGUMENTS: Readonly<Record<string, (bytes: number) => string>> = {
  'a text': (bytes) => `{"a":"${fill('a', bytes)}"}`,
  'a text of other scripts': (bytes) => `{"a":"${fill('漢é', bytes / 5)}"}`,
  'a text of quotes': (bytes) => `{"a":"${fill('\\"', bytes)}"}`,
  'many members': (bytes) => `{${fill('"k":1,', bytes)}"z":1}`,
  'many lists': (bytes) => `{"a":[${fill('[],', bytes)}[]]}`,
  nesting: (bytes) => `{"a":${fill('[', bytes / 2)}${fill(']', bytes / 2)}}`,
};
/** Half of what may be sent: written as a text, quotes are two bytes. */
const written = (text: string): string => JSON.stringify(text);

const TURN = '{"role":"user","content":"Hi"}';
const chatCalls = (text: string): string =>
  `{"model":"m","max_tokens":9,"messages":[${TURN},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":${written(text)}}}]},{"role":"tool","tool_call_id":"c","content":"1"}]}`;
const messagesCalls = (text: string): string =>
  `{"model":"m","max_tokens":9,"messages":[${TURN},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":${text}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"1"}]}]}`;
const responsesCalls = (text: string): string =>
  `{"model":"m","input":[${TURN},{"type":"function_call","call_id":"c","name":"f","arguments":${written(text)}},{"type":"function_call_output","call_id":"c","output":"1"}]}`;

/** Who is asked by which path, and whether the provider speaks it. */
const WAYS: readonly (readonly [path: string, body: (text: string) => string, slugs: readonly string[]])[] = [
  ['/chat/completions', chatCalls, ['openai', 'anthropic', 'google', 'bedrock', 'cohere']],
  ['/messages', messagesCalls, ['anthropic', 'openai', 'google']],
  ['/responses', responsesCalls, ['openai', 'anthropic', 'groq']],
];
type Late = Omit<LoopCase, 'body'> & { readonly body: () => string };
const REQUESTS: Late[] = WAYS.flatMap(([path, body, slugs]) =>
  Object.entries(ARGUMENTS).flatMap(([what, make]) =>
    slugs.flatMap((slug) =>
      [0.6, 0.009].map(
        (share): Late => ({
          title: `arguments in ${path} to ${slug}, ${share > 0.1 ? 'large' : 'heavy'}: ${what}`,
          path,
          slug,
          body: () => body(make(BODY * (what === 'a text' && share > 0.1 ? 0.98 : share))),
        }),
      ),
    ),
  ),
);

const STREAM = (slug: string, path: string) => ({
  slug,
  path,
  body: `{"model":"m","max_tokens":9,"stream":true,${path === '/responses' ? '"input":"Hi"' : `"messages":[${TURN}]`}}`,
});
const ASKED = (slug: string, path: string) => ({
  ...STREAM(slug, path),
  body: STREAM(slug, path).body.replace('"stream":true,', ''),
});
const event = (data: string): string => `data: ${data}\n\n`;
const chatAnswer = (text: string): string =>
  `{"id":"c","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":${written(text)}}}]},"finish_reason":"tool_calls"}]}`;
const messagesAnswer = (text: string): string =>
  `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"tool_use","id":"c","name":"f","input":${text}}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":1}}`;
const chatDelta = (text: string): string =>
  event(
    `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":${written(text)}}}]}}]}`,
  );
const messagesDelta = (text: string): string =>
  event(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":${written(text)}}}`);
const MESSAGE = [
  '{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}',
  '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}',
].map(event);

/** Pieces of one tool's arguments: as many as make 31 MB. */
const pieces = (delta: (text: string) => string, bytes: number): string[] => {
  const one = delta(fill('ab"', bytes));
  const mb = one.repeat(Math.max(1, Math.floor(MB / one.length)));
  return Array<string>(Math.max(1, Math.floor(BODY / mb.length))).fill(mb);
};
const PROVIDERS = [
  ['/chat/completions', 'openai', chatAnswer, chatDelta, []],
  ['/messages', 'openai', chatAnswer, chatDelta, []],
  ['/responses', 'groq', chatAnswer, chatDelta, []],
  ['/messages', 'anthropic', messagesAnswer, messagesDelta, MESSAGE],
  ['/chat/completions', 'anthropic', messagesAnswer, messagesDelta, MESSAGE],
  ['/responses', 'anthropic', messagesAnswer, messagesDelta, MESSAGE],
] as const;
const ANSWERS: LoopCase[] = PROVIDERS.flatMap(([path, slug, answer, delta, begin]) => [
  ...Object.entries(ARGUMENTS).flatMap(([what, make]) =>
    [7, 0.2].map(
      (mb): LoopCase => ({
        title: `arguments of ${mb} MB in the answer of ${slug} to ${path}: ${what}`,
        ...ASKED(slug, path),
        answer: () => ({ parts: [answer(make(mb * MB))] }),
      }),
    ),
  ),
  ...[30, 3_000, 300_000].map(
    (bytes): LoopCase => ({
      title: `arguments of 31 MB in events of ${bytes} bytes of ${slug} to ${path}`,
      ...STREAM(slug, path),
      answer: () => ({ type: 'text/event-stream', parts: [...begin, ...pieces(delta, bytes)] }),
    }),
  ),
]);

const row = (content: string): string =>
  `{"messages":[{"role":"user","content":"${content}"},{"role":"assistant","content":"Yes"}]}\n`;
const count = (bytes: number) => Math.floor(bytes / row('000000').length);
/** The rows of a data set. */
const ROWS: Readonly<Record<string, () => string>> = {
  'many rows': () => times(count(BODY), (i) => row(String(i).padStart(6, '0'))),
  'one row of 30 MB': () => row(fill('word ', 30 * MB)),
  'a row longer than may be': () => row(fill('a', 34 * MB)),
  'rows of many turns': () =>
    times(
      20,
      (i) =>
        `{"messages":[${fill('{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"},', 1.4 * MB)}{"role":"user","content":"${i}"},{"role":"assistant","content":"Yes"}]}\n`,
    ),
  'rows of many values': () => times(20, (i) => `{"messages":[],"x${i}":[${fill('[],', 1.4 * MB)}[]]}\n`),
  'rows of nesting': () => times(20, () => `{"messages":${fill('[', 0.7 * MB)}${fill(']', 0.7 * MB)}}\n`),
  // A thread takes 8 µs for each.
  'rows that are no JSON': () => fill('nothing\n', MB),
  'the same row again and again': () => fill(row('Hi'), BODY),
  'calls of tools of 1 MB': () =>
    times(
      25,
      (i) =>
        `{"messages":[{"role":"user","content":"${i}"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":${written(`{"a":"${fill('\\"b', MB / 2)}"}`)}}}]}]}\n`,
    ),
};
const field = (name: string, value: string, more = ''): string =>
  `--B\r\ncontent-disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`;
const upload = (text: string): string =>
  `${field('purpose', 'fine-tune')}${field('file', text, '; filename="rows.jsonl"')}--B--\r\n`;
const FORM = { 'content-type': 'multipart/form-data; boundary=B' };
const TO = ['gateway', '@sandbox', '@openai'];

/** Uploads the rows; the id of the file. */
async function kept(what: string, provider: string): Promise<string> {
  const answer = await fetch(`${loop.url}/v1/files`, {
    method: 'POST',
    headers: { ...FORM, 'x-gateway-api-key': loop.key, 'x-gateway-provider': provider },
    body: upload(ROWS[what]?.() ?? ''),
  });
  const { id } = (await answer.json()) as { id?: string };
  return id ?? 'none';
}
const jobOf = (file: string): string =>
  `{"model":"echo","training_file":"${file}","suffix":"v1","method":{"type":"supervised","supervised":{"hyperparameters":{"n_epochs":1,"learning_rate_multiplier":1,"batch_size":1}}},"gateway_options":{"x-gateway-virtual-key":"sandbox"}}`;

const within = async (one: LoopCase): Promise<void> => {
  expect(await loop.measured(one, BAR)).toBeLessThan(BAR);
};

describe('the event loop is not held for longer than 20 ms by', () => {
  it.each(sampled(REQUESTS, ({ title }) => title, 5))('$title', (one) => within({ ...one, body: one.body() }), 120_000);
  it.each(sampled(ANSWERS, ({ title }) => title, 5))('$title', within, 120_000);

  describe.each(Object.keys(ROWS))('a data set: %s,', (what) => {
    it.each(TO)(
      'that is uploaded to %s',
      async (provider) => {
        const body = upload(ROWS[what]?.() ?? '');
        await within({
          title: `${what} to ${provider}`,
          path: '/files',
          headers: { ...FORM, 'x-gateway-provider': provider },
          body,
        });
      },
      120_000,
    );

    it.each([
      ['checked for a job at Sluice', 'gateway', { 'x-gateway-provider': 'gateway', 'x-gateway-dry-run': 'true' }],
      ['begun to be trained on at the sandbox', '@sandbox', { 'x-gateway-provider': '@sandbox' }],
    ] as const)(
      'that is %s',
      async (title, provider, headers) => {
        const body = jobOf(await kept(what, provider));
        await within({ title: `${what}, ${title}`, path: '/fine_tuning/jobs', headers, body });
      },
      120_000,
    );
  });
});
