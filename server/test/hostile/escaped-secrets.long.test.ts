import type { ServerResponse } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

const KEY = 'sk-proj-ABCD/efgh+"ij';

/** Ways in which JSON writes the key. */
const SPELLINGS: readonly (readonly [string, string])[] = [
  ['as it is', JSON.stringify(KEY).slice(1, -1)],
  ['with an escaped slash', 'sk-proj-ABCD\\/efgh+\\"ij'],
  ['with one letter by its number', 'sk-proj-\\u0041BCD/efgh\\u002B\\u0022ij'],
  ['by numbers alone', [...KEY].map((char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`).join('')],
  ['in JSON inside of JSON', JSON.stringify('sk-proj-ABCD\\/efgh+\\"\\u0069j').slice(1, -1)],
];

/** Every dialect of callers, the stored provider, and the start of a stream in its shape with an error event after it. */
const openai = (said: string) =>
  `{"error":{"message":"${said}","type":"invalid_request_error","code":"invalid_api_key"}}`;
const anthropic = (said: string) => `{"type":"error","error":{"type":"authentication_error","message":"${said}"}}`;
const CHUNK =
  '{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}';
const STARTS = {
  chat: [`data: ${CHUNK}\n\n`],
  responses: [
    'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"Hi"}\n\n',
  ],
  anthropic: [
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}\n\n',
    'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n',
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}\n\n',
  ],
};
const failed = (said: string) =>
  `event: error\ndata: {"type":"error","code":"server_error","message":"${said}","param":null}\n\n`;

type Case = readonly [
  route: string,
  slug: string,
  body: (said: string) => string,
  start: string[],
  (s: string) => string,
];
const CASES: readonly Case[] = [
  ['/chat/completions', 'openai', openai, STARTS.chat, (said) => `data: ${openai(said)}\n\n`],
  ['/responses', 'openai', openai, STARTS.responses, failed],
  ['/messages', 'openai', openai, STARTS.chat, (said) => `data: ${openai(said)}\n\n`],
  [
    '/chat/completions',
    'anthropic',
    anthropic,
    STARTS.anthropic,
    (said) => `event: error\ndata: ${anthropic(said)}\n\n`,
  ],
  ['/responses', 'anthropic', anthropic, STARTS.anthropic, (said) => `event: error\ndata: ${anthropic(said)}\n\n`],
  ['/messages', 'anthropic', anthropic, STARTS.anthropic, (said) => `event: error\ndata: ${anthropic(said)}\n\n`],
];

let upstream: FakeUpstream;
let server: TestServer;

beforeAll(async () => {
  upstream = await startUpstream(() => {});
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  for (const id of ['openai', 'anthropic'])
    await server.provider({ id, host: `${upstream.url}/v1`, slug: id, key: KEY });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

async function ask(route: string, slug: string, stream: boolean): Promise<string> {
  const turns = [{ role: 'user', content: 'Hi' }];
  const body = {
    model: 'm',
    stream,
    ...(route === '/responses' ? { input: 'Hi', store: false } : { messages: turns }),
  };
  const more = route === '/messages' ? { max_tokens: 9 } : {};
  const answer = await server.call(route, { ...body, ...more }, { 'x-gateway-provider': `@${slug}` });
  return answer.text();
}

/** The text after every level of JSON escapes is undone. */
function opened(text: string): string {
  let out = text;
  for (let level = 0; level < 3; level += 1)
    out = out.replace(/\\(?:u([0-9a-fA-F]{4})|(["\\/]))/g, (_all, code?: string, char?: string) =>
      code === undefined ? (char ?? '') : String.fromCharCode(Number.parseInt(code, 16)),
    );
  return out;
}

async function expectHidden(answer: string): Promise<void> {
  expect(opened(answer)).toContain('Incorrect API key: ***.');
  expect(opened(answer)).not.toContain('efgh');
  const [record] = await server.records();
  expect(opened(JSON.stringify(record))).not.toContain('efgh');
}

describe.each(CASES)("%s at a provider of %s's shape", (route, slug, body, start, event) => {
  it.each(SPELLINGS)(
    "an error that quotes the provider's key %s shows it neither to the caller nor in the record",
    async (_name, key) => {
      upstream.answer = (_request, response) => sendJson(response, 401, body(`Incorrect API key: ${key}.`));
      const answer = await ask(route, slug, false);
      expect(() => JSON.parse(answer)).not.toThrow();
      await expectHidden(answer);
    },
  );

  it.each(SPELLINGS)('nor does an error event first in a stream, %s', async (_name, key) => {
    upstream.answer = (_request, response) => sendEvents(response, [event(`Incorrect API key: ${key}.`)]);
    await expectHidden(await ask(route, slug, true));
  });

  it.each(SPELLINGS)('nor does one after the first words, %s', async (_name, key) => {
    upstream.answer = (_request, response) => sendEvents(response, [...start, event(`Incorrect API key: ${key}.`)]);
    await expectHidden(await ask(route, slug, true));
  });
});

/** Answers with a status of success that tell of a failure inside, by the operation that is asked. */
const FAILED = (said: string) =>
  `{"id":"resp_1","object":"response","created_at":1,"status":"failed","error":{"code":"server_error","message":"${said}"},"model":"m","output":[],"usage":null,"metadata":{}}`;
const INSIDE: readonly (readonly [name: string, method: string, path: string, body: (said: string) => string])[] = [
  ['a failed response', 'POST', '/responses', FAILED],
  ['a failed response that is read later', 'GET', '/responses/resp_1', FAILED],
  ['a failed response that is passed through', 'POST', '/proxy/responses', FAILED],
  ['a chat with an error', 'POST', '/chat/completions', openai],
  [
    'a chat with an error beside its answer',
    'POST',
    '/chat/completions',
    (said) => `${openai(said).slice(0, -1)},"choices":[]}`,
  ],
  ['a chat that is passed through', 'POST', '/proxy/chat/completions', openai],
  ['a message with an error', 'POST', '/messages', openai],
  [
    'a job of the provider with an error',
    'GET',
    '/proxy/videos/v_1',
    (said) => `{"id":"v_1","status":"failed","error":{"message":"${said}"}}`,
  ],
  [
    'a job with its last error',
    'GET',
    '/proxy/threads/t/runs/r',
    (said) => `{"id":"r","last_error":{"message":"${said}"}}`,
  ],
];

/** Sends a body in parts, each when the one before has had the time to be passed on. */
async function sendSlowly(response: ServerResponse, body: string, parts: number, length: boolean): Promise<void> {
  const bytes = Buffer.from(body);
  response.writeHead(200, {
    'content-type': 'application/json',
    ...(length ? { 'content-length': bytes.length } : {}),
  });
  response.flushHeaders();
  const size = Math.ceil(bytes.length / parts);
  for (let at = 0; at < bytes.length; at += size) {
    await new Promise<void>((resolve) => setTimeout(resolve, at === 0 ? 300 : 20));
    response.write(bytes.subarray(at, at + size));
  }
  response.end();
}

/** Ways in which the bytes come: at once, after a pause, in parts, and behind so much that its begin was sent before. */
const ARRIVALS: Readonly<Record<string, (response: ServerResponse, body: string) => unknown>> = {
  'at once': (response, body) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(body);
  },
  'late, with its length': (response, body) => sendSlowly(response, body, 1, true),
  'in parts': (response, body) => sendSlowly(response, body, 3, false),
  'behind a long beginning': (response, body) =>
    sendSlowly(response, `{"instructions":"${'x'.repeat(100_000)}",${body.slice(1)}`, 2, true),
};

describe('an answer that began as a success', () => {
  const walk = Object.entries(ARRIVALS).flatMap(([how, send]) =>
    SPELLINGS.slice(0, 3).map(([spelling, key]) => [spelling, how, key, send] as const),
  );

  it.each(walk)('shows no key %s in any place of a failure that comes %s', async (_spelling, _how, key, send) => {
    upstream.answer = ({ headers }, response) => {
      const [, , , body] = INSIDE[Number(headers['x-case'])] ?? [];
      if (body !== undefined) void send(response, body(`Incorrect API key: ${key}.`));
    };
    const answers = INSIDE.map(async ([name, method, path], index) => {
      const turns = path.includes('responses')
        ? { input: 'Hi', store: false }
        : { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 9 };
      const answer = await fetch(`${server.url}/v1${path}`, {
        method,
        headers: {
          'x-gateway-api-key': server.first.workspace_api_key,
          'x-gateway-provider': '@openai',
          'content-type': 'application/json',
          'x-gateway-forward-headers': 'x-case',
          'x-case': String(index),
        },
        ...(method === 'GET' ? {} : { body: JSON.stringify({ model: 'm', ...turns }) }),
      });
      const text = await answer.text();
      expect(() => JSON.parse(text), name).not.toThrow();
      expect(opened(text), name).toContain('Incorrect API key: ***.');
      expect(opened(text), name).not.toContain('efgh');
    });
    await Promise.all(answers);
    expect(opened(JSON.stringify(await server.records()))).not.toContain('efgh');
  });

  it('that only mentions errors goes as it came', async () => {
    const body = JSON.stringify({
      id: 'c',
      choices: [{ message: { content: `{"error": "${KEY}"}` } }],
      error: null,
      is_error: false,
      usage: null,
    });
    upstream.answer = (_request, response) => void ARRIVALS['in parts']?.(response, body);
    expect(await ask('/chat/completions', 'openai', false)).toBe(body);
  });
});
