/**
 * The body of a request is parsed at most once, whatever looks into it: guardrails, shaping, conversion, the cache, the estimate
 * of usage limits, and every target of a fallback. A request that nothing looks into is not parsed at all.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { budgetKey } from '../../../test/support/budgets.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from '../../../test/support/upstream.ts';

/** A word of the body that is in no answer: who parses a text with it parses the body. */
const MARK = 'xylophone';
const parse = JSON.parse;
const parsed: string[] = [];

const answers: Readonly<Record<string, object>> = {
  '/chat/completions': {
    id: 'c',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices: [{ index: 0, message: { role: 'assistant', content: 'fine' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
  },
  '/messages': {
    id: 'm',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content: [{ type: 'text', text: 'fine' }],
    stop_reason: 'end_turn',
    stop_sequence: null,
    usage: { input_tokens: 3, output_tokens: 1 },
  },
  '/responses': {
    id: 'resp_1',
    object: 'response',
    created_at: 1,
    model: 'm',
    status: 'completed',
    output: [
      {
        type: 'message',
        id: 'i',
        role: 'assistant',
        status: 'completed',
        content: [{ type: 'output_text', text: 'fine', annotations: [] }],
      },
    ],
    usage: { input_tokens: 3, output_tokens: 1, total_tokens: 4 },
  },
  '/embeddings': {
    object: 'list',
    model: 'm',
    data: [{ object: 'embedding', index: 0, embedding: [1, 0] }],
    usage: { prompt_tokens: 3, total_tokens: 3 },
  },
};

let upstream: FakeUpstream;
let server: TestServer;
let openai: string;
let anthropic: string;
let limited: string;
/** Answers of the upstream that come before one that succeeds. */
let failures = 0;

const answer = ({ path }: Received) => answers[path.replace(/^\/v1/, '')] ?? {};

beforeAll(async () => {
  upstream = await startUpstream((request, response) => {
    if (failures === 0) return sendJson(response, 200, answer(request));
    failures -= 1;
    response.setHeader('retry-after-ms', '1');
    sendJson(response, 429, { error: { message: 'busy', type: 'rate_limit_error' } });
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` }, { writeAccess: () => {} });
  openai = `@${await server.provider({ id: 'openai', host: `${upstream.url}/v1` })}`;
  anthropic = `@${await server.provider({ id: 'anthropic', host: `${upstream.url}/v1` })}`;
  limited = (await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 1_000_000 } })).key;
  vi.spyOn(JSON, 'parse').mockImplementation((text: string, ...rest) => {
    if (String(text).includes(MARK)) parsed.push(String(text));
    return parse(text, ...rest) as unknown;
  });
}, 60_000);

afterAll(async () => {
  vi.restoreAllMocks();
  await server?.stop();
  await upstream?.stop();
});

beforeEach(() => {
  failures = 0;
});

const GUARDS = {
  input_guardrails: [{ 'default.contains': { words: ['nowhere'], operator: 'none' }, deny: true }],
  output_guardrails: [{ 'default.contains': { words: ['nowhere'], operator: 'none' }, deny: true }],
};
const message = { role: 'user', content: MARK };

const REQUESTS = {
  chat: { path: '/chat/completions', body: { model: 'm', max_tokens: 10, seed: 1, messages: [message] } },
  messages: { path: '/messages', body: { model: 'm', max_tokens: 10, top_k: 1, messages: [message] } },
  responses: { path: '/responses', body: { model: 'm', max_output_tokens: 10, seed: 1, input: MARK } },
  embeddings: { path: '/embeddings', body: { model: 'm', input: MARK, seed: 1 } },
} as const;
type Name = keyof typeof REQUESTS;
const NAMES = Object.keys(REQUESTS) as Name[];

/** How often the body is parsed. */
async function parses(name: Name, headers: Record<string, string>): Promise<number> {
  const { path, body } = REQUESTS[name];
  parsed.length = 0;
  const given = await server.call(path, { ...body, user: crypto.randomUUID() }, headers);
  expect([given.status, await given.text()]).toEqual([200, expect.stringMatching(/fine|embedding/)]);
  return parsed.length;
}

const account = (name: Name) => (name === 'messages' ? anthropic : openai);
const config = (value: object) => ({ 'x-gateway-config': JSON.stringify(value) });

describe.each(NAMES)('the body of %s', (name) => {
  it('that passes to its provider as it came is not parsed', async () => {
    expect(await parses(name, { 'x-gateway-provider': account(name) })).toBe(0);
    expect(await parses(name, config({ provider: account(name), override_params: { user: 'u' } }))).toBe(0);
  });

  it('is parsed once by guardrails, parameters, cache, usage limits and conditions together', async () => {
    const target = {
      provider: account(name),
      name: 'x',
      override_params: { user: 'u' },
      drop_params: ['seed', 'top_k'],
    };
    // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
    const conditions = [{ query: { 'params.model': 'm' }, then: 'x' }];
    const whole = {
      strategy: { mode: 'conditional', conditions, default: 'x' },
      targets: [target],
      cache: { mode: 'simple' },
    };
    const headers = { ...config({ ...whole, ...GUARDS }), 'x-gateway-api-key': limited };
    expect(await parses(name, headers)).toBe(1);
  });

  it('that only the cache and guardrails look into, is parsed once', async () => {
    expect(await parses(name, config({ provider: account(name), cache: { mode: 'simple' }, ...GUARDS }))).toBe(1);
  });

  it('is parsed once for all targets of a fallback, their retries and limits', async () => {
    failures = 3;
    const target = {
      provider: account(name),
      retry: { attempts: 1, use_retry_after_headers: true },
      drop_params: ['seed', 'top_k'],
      ...GUARDS,
    };
    const targets = [target, { ...target, override_params: { user: 'u' } }];
    const headers = config({ strategy: { mode: 'fallback' }, targets, cache: { mode: 'simple' } });
    expect(await parses(name, { ...headers, 'x-gateway-api-key': limited })).toBe(1);
    expect(failures).toBe(0);
  });
});

it('a body that is converted for another provider is parsed once, guardrails and a cache notwithstanding', async () => {
  const drop_params = ['seed', 'top_k', 'user'];
  const converted = (provider: string) => config({ provider, drop_params, cache: { mode: 'simple' }, ...GUARDS });
  expect(await parses('chat', converted(anthropic))).toBe(1);
  expect(await parses('messages', converted(openai))).toBe(1);
  expect(await parses('responses', converted(anthropic))).toBe(1);
});

it('a body that a guardrail has changed is parsed once more at most', async () => {
  const input_guardrails = [{ 'default.addPrefix': { prefix: 'Say: ' } }];
  const target = { provider: openai, drop_params: ['seed'], input_guardrails };
  const headers = { ...config({ ...target, cache: { mode: 'simple' } }), 'x-gateway-api-key': limited };
  expect(await parses('chat', headers)).toBe(2);
  expect(upstream.received.at(-1)?.body.toString()).toContain(`Say: ${MARK}`);
});
