/**
 * Every way out of a request: what it used is in the store of its limit exactly once, and nothing stays reserved.
 * The upstream is a fake one that also lies; faults come from the sandbox too.
 */
import type { ServerResponse } from 'node:http';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Books,
  booksOf,
  budgetKey,
  type Caller,
  eventually,
  settledBooks,
} from '../../../test/support/budgets.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../../../test/support/upstream.ts';

let server: TestServer;
let upstream: FakeUpstream;
let slug: string;

beforeAll(async () => {
  upstream = await startUpstream(byUser);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  slug = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
}, 60_000);

afterAll(async () => {
  await server.stop();
  await upstream.stop();
});

/** Answers of tests that run at once, by the `user` of their bodies. */
const answers = new Map<string, FakeUpstream['answer']>();
const byUser: FakeUpstream['answer'] = (request, response) => {
  const { user = '' } = JSON.parse(request.body.toString() || '{}') as { user?: string };
  const given = answers.get(user);
  return given === undefined ? sendJson(response, 200, { object: 'list', data: [] }) : given(request, response);
};

const messages = [{ role: 'user', content: 'Hello, Sluice' }];
const answer = (usage: unknown, model = 'gpt-4o') => ({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model,
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
  ...(usage === undefined ? {} : { usage }),
});
const piece = (content: string, more: object = {}) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'gpt-4o', choices: [{ index: 0, delta: { content }, finish_reason: null }], ...more })}\n\n`;
const usageEvent = (usage: unknown) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'gpt-4o', choices: [], usage })}\n\n`;
const DONE = 'data: [DONE]\n\n';

/** A key under a limit on tokens that is far away. */
const limited = (more: object = {}): Promise<Caller> =>
  budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 1_000_000, ...more } });

function call(
  caller: Caller,
  body: object,
  options: { headers?: Record<string, string>; signal?: AbortSignal; path?: string } = {},
) {
  return fetch(`${server.url}/v1${options.path ?? '/chat/completions'}`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': caller.key, 'content-type': 'application/json', ...options.headers },
    body: JSON.stringify(body),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
}

const ask = (more: object = {}) => ({ model: `@${slug}/gpt-4o`, messages, max_tokens: 50, ...more });

/** Runs a request to its end, however it ends. */
async function run(caller: Caller, body: object, options: Parameters<typeof call>[2] = {}): Promise<number> {
  try {
    const response = await call(caller, body, options);
    await response.text().catch(() => '');
    return response.status;
  } catch {
    return 0;
  }
}

/** What the store says in the end, once the record of every request of the caller is there. */
async function after(caller: Caller, requests = 1): Promise<Books> {
  await eventually(
    async () => (await server.records()).filter((record) => record.api_key_id === caller.id).length,
    (count) => count >= requests,
  );
  return settledBooks(server, caller.id);
}

type Exit = [name: string, given: FakeUpstream['answer'], body: object, used: (tokens: number) => boolean];
const between = (low: number, high: number) => (tokens: number) => tokens >= low && tokens <= high;
const exactly = (count: number) => between(count, count);

describe('the end of a request', () => {
  it.concurrent.each<[string, object, (tokens: number) => boolean]>([
    ['answered', { model: '@sandbox/echo' }, between(2, 60)],
    ['streamed', { model: '@sandbox/echo', stream: true }, between(2, 60)],
    ['refused by the provider', { model: '@sandbox/error?status=400' }, exactly(0)],
    ['failed at the provider', { model: '@sandbox/error?status=500' }, exactly(0)],
    ['cut by the provider in mid-stream', { model: '@sandbox/cut?after_tokens=5', stream: true }, between(6, 60)],
    [
      'ended by the provider too early',
      { model: '@sandbox/cut?mode=end&after_tokens=5', stream: true },
      between(6, 60),
    ],
    ['broken JSON', { model: '@sandbox/malformed' }, between(0, 400)],
    ['a broken event', { model: '@sandbox/malformed?event=3', stream: true }, between(1, 400)],
    ['refused by Sluice: no such provider', { model: '@nowhere/model' }, exactly(0)],
    ['refused by Sluice: no such body', { model: '@sandbox/echo', stream: 'maybe' }, exactly(0)],
  ])('%s: counted once, nothing stays reserved', async (_name, body, good) => {
    const caller = await limited();
    await run(caller, { messages, max_tokens: 50, ...body });
    const books = await after(caller);
    expect(books.reserved).toBe(0);
    expect(books.used).toSatisfy(good);
  });

  const later = (response: ServerResponse, events: string[]) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(events.join(''));
  };
  it.concurrent.each<Exit>([
    [
      'usage that was told is taken',
      (_r, s) => sendJson(s, 200, answer({ prompt_tokens: 7, completion_tokens: 5 })),
      {},
      exactly(12),
    ],
    [
      'usage of a stream is taken',
      (_r, s) => sendEvents(s, [piece('a'), usageEvent({ prompt_tokens: 7, completion_tokens: 5 }), DONE]),
      { stream: true },
      exactly(12),
    ],
    [
      'a stream without usage counts its pieces and its question',
      (_r, s) => sendEvents(s, [piece('a'), piece('b'), piece('c'), DONE]),
      { stream: true },
      between(4, 60),
    ],
    [
      'a stream that tells usage and is cut then',
      (_r, s) => {
        later(s, [piece('a'), usageEvent({ prompt_tokens: 70, completion_tokens: 50 })]);
        setImmediate(() => s.destroy());
      },
      { stream: true },
      exactly(120),
    ],
    [
      'an answer without usage counts what arrived',
      (_r, s) => sendJson(s, 200, answer(undefined)),
      {},
      between(20, 200),
    ],
    ['an answer whose usage is null', (_r, s) => sendJson(s, 200, answer(null)), {}, between(20, 200)],
    ['an answer whose usage is empty', (_r, s) => sendJson(s, 200, answer({})), {}, between(20, 200)],
    [
      'negative usage',
      (_r, s) => sendJson(s, 200, answer({ prompt_tokens: -5, completion_tokens: -1000 })),
      {},
      between(20, 200),
    ],
    [
      'usage in texts',
      (_r, s) => sendJson(s, 200, answer({ prompt_tokens: '7', completion_tokens: '5' })),
      {},
      between(20, 200),
    ],
    [
      'usage beyond all reason',
      (_r, s) => sendJson(s, 200, answer({ prompt_tokens: 1e300, completion_tokens: 5 })),
      {},
      exactly(5),
    ],
    [
      'usage that is not a number',
      (_r, s) =>
        sendJson(s, 200, JSON.stringify(answer({ prompt_tokens: 7, completion_tokens: 5 })).replace('7', '1e999')),
      {},
      exactly(5),
    ],
    [
      'a fraction of a token',
      (_r, s) => sendJson(s, 200, answer({ prompt_tokens: 7.9, completion_tokens: 5 })),
      {},
      exactly(12),
    ],
    [
      'more cached tokens than tokens',
      (_r, s) =>
        sendJson(
          s,
          200,
          answer({ prompt_tokens: 7, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 1e9 } }),
        ),
      {},
      exactly(12),
    ],
    ['no answer at all', (_r, s) => void s.destroy(), {}, exactly(0)],
    ['an answer that is no JSON', (_r, s) => sendJson(s, 200, '<html>'), {}, between(0, 60)],
    [
      'an error with usage in it',
      (_r, s) =>
        sendJson(s, 429, { error: { message: 'slow down' }, usage: { prompt_tokens: 9, completion_tokens: 9 } }),
      {},
      exactly(0),
    ],
  ])('%s', async (name, given, body, good) => {
    answers.set(name, given);
    const caller = await limited();
    await run(caller, ask({ ...body, user: name }));
    const books = await after(caller);
    expect(books.reserved).toBe(0);
    expect(books.used).toSatisfy(good);
  });

  it.concurrent('the client leaves before anything came: nothing is known to be used', async () => {
    const abort = new AbortController();
    answers.set('one-0', () => abort.abort());
    const caller = await limited();
    await run(caller, ask({ user: 'one-0' }), { signal: abort.signal });
    expect(await after(caller)).toEqual({ used: 0, reserved: 0, unpriced: 0 });
  });

  it.concurrent('the client leaves in mid-stream: what arrived is counted', async () => {
    const abort = new AbortController();
    answers.set('one-1', (_request, response) =>
      later(
        response,
        Array.from({ length: 30 }, (_, i) => piece(`${i} `)),
      ),
    );
    const caller = await limited();
    const response = await call(caller, ask({ user: 'one-1', stream: true }), { signal: abort.signal });
    await response.body?.getReader().read();
    abort.abort();
    const books = await after(caller);
    expect(books.reserved).toBe(0);
    expect(books.used).toBeGreaterThanOrEqual(31);
    expect(books.used).toBeLessThan(120);
  });

  it.concurrent('the client leaves after usage was told: that is what counts', async () => {
    const abort = new AbortController();
    answers.set('one-2', (_request, response) =>
      later(response, [piece('a'), usageEvent({ prompt_tokens: 300, completion_tokens: 40 }), piece('b')]),
    );
    const caller = await limited();
    const response = await call(caller, ask({ user: 'one-2', stream: true, stream_options: { include_usage: true } }), {
      signal: abort.signal,
    });
    const reader = response.body?.getReader();
    for (let text = ''; !text.includes('"b"'); ) text += Buffer.from((await reader?.read())?.value ?? []).toString();
    abort.abort();
    expect(await after(caller)).toMatchObject({ used: 340, reserved: 0 });
  });

  it.concurrent('a time-out releases what was reserved', async () => {
    answers.set('one-3', () => {});
    const caller = await limited();
    const config = JSON.stringify({ provider: `@${slug}`, request_timeout: 40 });
    expect(
      await run(caller, { ...ask({ user: 'one-3' }), model: 'gpt-4o' }, { headers: { 'x-gateway-config': config } }),
    ).toBe(408);
    expect(await after(caller)).toMatchObject({ used: 0, reserved: 0 });
  });

  it.concurrent('a dry run and a request that only reads use nothing and hold nothing', async () => {
    const caller = await limited();
    expect(await run(caller, ask({ user: 'one-4' }), { headers: { 'x-gateway-dry-run': 'true' } })).toBe(200);
    await fetch(`${server.url}/v1/models`, {
      headers: { 'x-gateway-api-key': caller.key, 'x-gateway-provider': `@${slug}` },
    });
    expect(await after(caller, 2)).toEqual({ used: 0, reserved: 0, unpriced: 0 });
  });

  it.concurrent('every attempt counts: one that broke off after it had begun, and the one that answered', async () => {
    let tries = 0;
    answers.set('one-5', (_request, response) => {
      tries += 1;
      if (tries > 1) return sendJson(response, 200, answer({ prompt_tokens: 10, completion_tokens: 20 }));
      // Half an answer in one piece.
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 10_000 });
      response.write(JSON.stringify(answer(undefined)).padEnd(4_000), () => response.destroy());
    });
    const caller = await limited();
    const config = JSON.stringify({ provider: `@${slug}`, retry: { attempts: 2, on_status_codes: [502] } });
    expect(
      await run(caller, { ...ask({ user: 'one-5' }), model: 'gpt-4o' }, { headers: { 'x-gateway-config': config } }),
    ).toBe(200);
    const { used, reserved } = await after(caller);
    expect(tries).toBe(2);
    expect(reserved).toBe(0);
    expect(used).toBeGreaterThanOrEqual(1_030);
    const [record] = (await server.records()).filter(({ api_key_id: id }) => id === caller.id);
    const usage = record?.usage as { input: number; output: number } | undefined;
    expect((usage?.input ?? 0) + (usage?.output ?? 0)).toBe(used);
  });
});

describe('a stream past its estimate', () => {
  it('is not cut, and takes up the limit while it runs, so that others are refused', async () => {
    let go = () => {};
    const goOn = new Promise<void>((resolve) => {
      go = resolve;
    });
    upstream.answer = async (_request, response) => {
      later(
        response,
        Array.from({ length: 3_000 }, () => piece('x ')),
      );
      await goOn;
      response.end([piece('end'), DONE].join(''));
    };
    const caller = await limited({ credit_limit: 3_000 });
    const response = await call(caller, ask({ stream: true, max_tokens: undefined }));
    expect(response.status).toBe(200);
    const reader = response.body?.getReader();
    let text = '';
    while (text.length < 300_000) text += Buffer.from((await reader?.read())?.value ?? []).toString();
    const taken = await eventually(
      () => booksOf(server, caller.id).reserved,
      (reserved) => reserved >= 3_000,
    );
    expect(taken).toBeGreaterThanOrEqual(3_000);
    const refused = await call(caller, { model: '@sandbox/echo', messages, max_tokens: 5 });
    expect(refused.status).toBe(412);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await refused.text()).toContain('requests that still run have reserved');
    go();
    for (let part = await reader?.read(); part?.done === false; part = await reader?.read())
      text += Buffer.from(part.value).toString();
    expect(text.endsWith(DONE)).toBe(true);
    const books = await settledBooks(server, caller.id);
    expect(books.reserved).toBe(0);
    expect(books.used).toBeGreaterThanOrEqual(3_001);
  });

  const later = (response: ServerResponse, events: string[]) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(events.join(''));
  };
});

describe('models without a known price', () => {
  const told = { prompt_tokens: 1_000_000, completion_tokens: 500_000 };
  const unknown = { model: 'nobody-knows-1' };
  const cost = (unpriced?: unknown) =>
    budgetKey(server, {
      usage_limits: { type: 'cost', credit_limit: 1000, ...(unpriced === undefined ? {} : { unpriced }) },
    });
  const paid = (caller: Caller) => call(caller, { ...ask(), model: `@${slug}/${unknown.model}` });
  beforeAll(() => {
    upstream.answer = (_request, response) => sendJson(response, 200, answer(told, unknown.model));
  });

  it('are served and counted as unpriced where nothing else is said', async () => {
    const caller = await cost();
    expect((await paid(caller)).status).toBe(200);
    expect(await after(caller)).toEqual({ used: 0, reserved: 0, unpriced: 1 });
  });

  it('are refused where the limit says so, before anything is called', async () => {
    const caller = await cost('deny');
    const before = upstream.received.length;
    const response = await paid(caller);
    expect(response.status).toBe(412);
    const { error } = (await response.json()) as { error: { message: string } };
    expect(error).toMatchObject({ type: 'usage_limit_exceeded', code: '412' });
    expect(error.message).toContain('API key limited refuses models without a known price');
    expect(error.message).toContain('openai/nobody-knows-1');
    expect(upstream.received.length).toBe(before);
    expect(await after(caller)).toEqual({ used: 0, reserved: 0, unpriced: 0 });
    expect((await call(caller, { model: '@sandbox/echo', messages, max_tokens: 5 })).status).toBe(200);
  });

  it('are charged at the price that the limit sets, which the record names beside an unknown cost', async () => {
    const caller = await cost({ input: 2, output: 10.5 });
    expect((await paid(caller)).status).toBe(200);
    expect(await after(caller)).toEqual({ used: 2_000_000 + 5_250_000, reserved: 0, unpriced: 0 });
    const [record] = (await server.records()).filter(({ api_key_id: id }) => id === caller.id);
    expect(record).toMatchObject({
      cost_micros: null,
      price: { source: 'usage-limit', rates: { input: 2, output: 10.5 } },
    });
  });

  it('are priced when the answer names a model whose price is known', async () => {
    upstream.answer = (_request, response) =>
      sendJson(response, 200, answer({ prompt_tokens: 1000, completion_tokens: 1000 }, 'gpt-4o'));
    const caller = await cost();
    expect((await paid(caller)).status).toBe(200);
    const books = await after(caller);
    expect(books.used).toBeGreaterThan(0);
    expect(books.unpriced).toBe(0);
  });

  it('follow SLUICE_UNPRICED where the limit has no rule', async () => {
    const strict = await startServer({ SLUICE_UNPRICED: 'deny', SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
    try {
      const other = await strict.provider({ id: 'openai', host: `${upstream.url}/v1` });
      const send = async (unpriced?: string) => {
        const { key } = await budgetKey(strict, {
          usage_limits: { type: 'cost', credit_limit: 1, ...(unpriced === undefined ? {} : { unpriced }) },
        });
        return (
          await strict.call(
            '/chat/completions',
            { model: `@${other}/nobody-knows-1`, messages, max_tokens: 5 },
            { 'x-gateway-api-key': key },
          )
        ).status;
      };
      expect(await send()).toBe(412);
      expect(await send('serve')).toBe(200);
    } finally {
      await strict.stop();
    }
  });
});

describe('what a refusal and an answer tell', () => {
  it('the limit, what is used, what is left, when it resets, and how long to wait', async () => {
    const caller = await budgetKey(server, {
      usage_limits: { type: 'tokens', credit_limit: 10, periodic_reset: 'monthly' },
    });
    const echo = { model: '@sandbox/echo', messages, max_tokens: 50 };
    const first = await call(caller, echo);
    expect(first.status).toBe(200);
    expect(first.headers.get('x-gateway-limit-usage-tokens-limit')).toBe('10');
    expect(first.headers.get('x-gateway-limit-usage-tokens-remaining')).toMatch(/^\d+$/);
    expect(Number(first.headers.get('x-gateway-limit-usage-tokens-reset'))).toBeGreaterThan(0);
    await after(caller);
    const refused = await eventually(
      () => call(caller, echo),
      ({ status }) => status === 412,
    );
    expect(refused.status).toBe(412);
    expect(refused.headers.get('x-gateway-limit-usage-tokens-remaining')).toBe('0');
    const { error } = (await refused.json()) as { error: { message: string } };
    expect(error.message).toMatch(
      /^The usage limit of API key limited is used up: \d+ of 10 tokens\. It resets on 1 [A-Z][a-z]+ \d{4}, 00:00 UTC\.$/,
    );
    const wait = refused.headers.get('retry-after');
    const reset = Number(refused.headers.get('x-gateway-limit-usage-tokens-reset'));
    expect(wait).toBe(reset <= 86_400 ? String(reset) : null);
  });

  it("money in dollars with the decimals it has, and OpenAI's own client reads the refusal", async () => {
    const caller = await budgetKey(server, { usage_limits: { type: 'cost', credit_limit: 1 } });
    const client = new OpenAI({
      apiKey: 'unused',
      baseURL: `${server.url}/v1`,
      maxRetries: 0,
      defaultHeaders: { 'x-gateway-api-key': caller.key },
    });
    const create = (more: object = {}) =>
      client.chat.completions.create({
        model: `@${slug}/gpt-4o`,
        messages: [{ role: 'user', content: 'Hi' }],
        max_tokens: 100,
        ...more,
      });
    upstream.answer = (_request, response) =>
      sendJson(response, 200, answer({ prompt_tokens: 100, completion_tokens: 100 }));
    const { response } = await create().withResponse();
    expect(response.headers.get('x-gateway-limit-usage-cost-limit')).toBe('1');
    // What the request itself has reserved and used is told by the next answer.
    expect(response.headers.get('x-gateway-limit-usage-cost-remaining')).toBe('1');
    expect(response.headers.get('x-gateway-limit-usage-cost-reset')).toBeNull();
    upstream.answer = (_request, answering) =>
      sendJson(answering, 200, answer({ prompt_tokens: 1_000_000, completion_tokens: 100_000 }));
    await create();
    await after(caller, 2);
    await expect(create()).rejects.toMatchObject({
      status: 412,
      type: 'usage_limit_exceeded',
      message: expect.stringMatching(/API key limited is used up: \$3\.5\d* of \$1\./),
    });
  });

  it('a request that a usage limit refuses takes nothing from rate limits', async () => {
    const caller = await budgetKey(server, {
      usage_limits: { type: 'tokens', credit_limit: 1 },
      rate_limits: [{ type: 'requests', unit: 'rpd', value: 3 }],
    });
    const echo = { model: '@sandbox/echo', messages, max_tokens: 5 };
    const first = await call(caller, echo);
    expect(first.headers.get('x-gateway-limit-requests-remaining')).toBe('2');
    await after(caller);
    for (let i = 0; i < 6; i++) {
      const refused = await call(caller, echo);
      expect(refused.status).toBe(412);
      expect(refused.headers.get('x-gateway-limit-requests-remaining')).toBe('2');
    }
  });

  it('what only reads takes nothing from any limit, also where it is passed through; what it costs otherwise does', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, { object: 'list', data: [] });
    const caller = await budgetKey(server, {
      usage_limits: { type: 'tokens', credit_limit: 1_000_000 },
      rate_limits: [{ type: 'requests', unit: 'rpd', value: 2 }],
    });
    const pass = (method: string) =>
      fetch(`${server.url}/v1/proxy/assistants`, {
        method,
        headers: {
          'x-gateway-api-key': caller.key,
          'x-gateway-provider': `@${slug}`,
          ...(method === 'GET' ? {} : { 'content-type': 'application/json' }),
        },
        ...(method === 'GET' ? {} : { body: '{}' }),
      });
    for (let i = 0; i < 4; i++) {
      const read = await pass('GET');
      expect([read.status, read.headers.get('x-gateway-limit-requests-remaining')]).toEqual([200, null]);
    }
    const written = await pass('POST');
    expect([written.status, written.headers.get('x-gateway-limit-requests-remaining')]).toEqual([200, '1']);
    expect((await pass('GET')).headers.get('x-gateway-limit-requests-remaining')).toBeNull();
  });

  it('and so does one that cannot be built for its provider', async () => {
    const caller = await budgetKey(server, { rate_limits: [{ type: 'requests', unit: 'rpd', value: 2 }] });
    for (let i = 0; i < 4; i++) {
      const refused = await call(
        caller,
        { model: '@sandbox/echo', messages, max_tokens: 5 },
        { headers: { 'x-gateway-forward-headers': 'x-gateway-forward-headers' } },
      );
      expect(refused.status).toBe(400);
    }
    expect((await call(caller, { model: '@sandbox/echo', messages, max_tokens: 5 })).status).toBe(200);
  });
});
