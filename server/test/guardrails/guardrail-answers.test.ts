/** Guardrails over answers, through a whole server: what a client sees, what the provider was asked, what is counted. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { chatStream, chunk, completionStream, messageStream, responseStream, USAGE } from '../support/streams.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

/** Lists of a config, as the next requests name them. */
const next: { input: object[]; output: object[]; more: object } = { input: [], output: [], more: {} };
let upstream: FakeUpstream;
let server: TestServer;

beforeAll(async () => {
  upstream = await startUpstream(() => {});
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
  await server.provider({ id: 'anthropic', host: `${upstream.url}/v1` });
});

afterEach(() => {
  Object.assign(next, { input: [], output: [], more: {} });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const config = () => ({
  'x-gateway-config': JSON.stringify({
    ...(next.input.length > 0 ? { input_guardrails: next.input } : {}),
    ...(next.output.length > 0 ? { output_guardrails: next.output } : {}),
    ...next.more,
  }),
});
const call = (path: string, sent: unknown, headers: Record<string, string> = {}) =>
  server.call(path, sent, { ...config(), ...headers });
const callUntil = (signal: AbortSignal, sent: unknown) =>
  fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { ...config(), 'x-gateway-api-key': server.first.workspace_api_key, 'content-type': 'application/json' },
    body: JSON.stringify(sent),
    signal,
  });
const options = () => ({ apiKey: server.first.workspace_api_key, maxRetries: 0, defaultHeaders: config() });
const openai = () => new OpenAI({ ...options(), baseURL: `${server.url}/v1` });
const anthropic = () => new Anthropic({ ...options(), baseURL: server.url });
/** What the record says of guardrails. */
const recorded = async () => (await server.records())[0]?.guardrails;

const USED = { prompt_tokens: 9, completion_tokens: 5, total_tokens: 14 };
const answerOf = (content: string) =>
  `{ "id":"c1","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":${JSON.stringify(content)}},"finish_reason":"stop"}],"usage":${JSON.stringify(USED)},"x_big":12345678901234567890 }`;
const noSecret = (more: object = {}) => ({
  id: 'pg-words',
  deny: true,
  'default.contains': { words: ['secret'], operator: 'none' },
  ...more,
});
const redacting = { id: 'pg-pii', 'gateway.pii': { categories: ['EMAIL_ADDRESS'], redact: true } };
const body = (more: object = {}) => ({
  model: '@openai-test/gpt-4o',
  messages: [{ role: 'user', content: 'Hello' }],
  ...more,
});
const CLAUDE = { model: '@anthropic-test/claude', max_tokens: 9, messages: [{ role: 'user' as const, content: 'Hi' }] };
const LOOSE = { 'x-gateway-strict-open-ai-compliance': 'false' };

describe('an answer in one piece', () => {
  it('that is denied shows nothing of itself, and is counted and recorded', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf('the secret is out'));
    next.output = [noSecret()];
    const answer = await call('/chat/completions', body());
    const text = await answer.text();
    expect(answer.status).toBe(446);
    expect(text).not.toContain('secret');
    expect(JSON.parse(text)).toMatchObject({
      error: { type: 'hooks_failed', param: null, code: null },
      hook_results: { before_request_hooks: [], after_request_hooks: [{ id: 'pg-words', verdict: false, deny: true }] },
    });
    expect((await server.records())[0]).toMatchObject({
      status: 446,
      outcome: 'refused',
      error_code: 'hooks_failed',
      usage: { input: 9, output: 5 },
    });
    await expect(openai().chat.completions.create(body() as never)).rejects.toMatchObject({ status: 446 });
  });

  it('that is allowed comes byte for byte as the provider sent it', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf('all is well'));
    next.output = [noSecret(), redacting];
    const answer = await call('/chat/completions', body());
    expect(answer.status).toBe(200);
    expect(await answer.text()).toBe(answerOf('all is well'));
  });

  it('that fails without being denied has the status 246, and says why where fields may be added', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf('the secret is out'));
    next.output = [noSecret({ deny: false })];
    const strict = await call('/chat/completions', body());
    expect(strict.status).toBe(246);
    expect(await strict.text()).toBe(answerOf('the secret is out'));
    const loose = await call('/chat/completions', body(), LOOSE);
    expect(loose.status).toBe(246);
    const text = await loose.text();
    expect(text.startsWith(answerOf('the secret is out').slice(0, -2))).toBe(true);
    expect(JSON.parse(text).hook_results.after_request_hooks).toMatchObject([{ verdict: false, deny: false }]);
    expect((await server.records())[0]).toMatchObject({ status: 246, outcome: 'ok' });
  });

  it('that follows a request which failed a guardrail without being denied has the status 246', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf('fine'));
    next.input = [{ id: 'pg-in', 'default.contains': { words: ['Hello'], operator: 'none' } }];
    const answer = await call('/chat/completions', body(), LOOSE);
    expect(answer.status).toBe(246);
    expect(await answer.json()).toMatchObject({
      hook_results: { before_request_hooks: [{ id: 'pg-in', verdict: false }], after_request_hooks: [] },
    });
  });

  it('is sent with its texts redacted and all else as it was', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf('write to ann@example.com'));
    next.output = [redacting, noSecret()];
    const answer = await call('/chat/completions', body());
    const text = await answer.text();
    expect(answer.status).toBe(200);
    expect(text).not.toContain('ann@');
    expect(text).toContain('12345678901234567890');
    expect(JSON.parse(text).choices[0].message.content).toBe('write to {{EMAIL_ADDRESS_1}}');
  });

  it('is judged after a webhook has replaced it', async () => {
    const json = JSON.parse(answerOf('the secret is out'));
    const hook = { verdict: true, transformedData: { response: { json } } };
    upstream.answer = ({ path }, response) => sendJson(response, 200, path === '/hook' ? hook : answerOf('fine'));
    next.output = [{ id: 'pg-hook', 'default.webhook': { webhookURL: `${upstream.url}/hook` } }, noSecret()];
    expect((await call('/chat/completions', body())).status).toBe(446);
  });

  it('that cannot be read is refused by a guardrail that denies, and skipped by others', async () => {
    upstream.answer = (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end('{"choices": [cut');
    };
    next.output = [noSecret()];
    expect((await call('/chat/completions', body())).status).toBe(446);
    next.output = [noSecret({ deny: false })];
    const answer = await call('/chat/completions', body());
    expect([answer.status, await answer.text()]).toEqual([200, '{"choices": [cut']);
  });

  it('that a provider of another shape gave is judged as the caller would read it', async () => {
    upstream.answer = (_request, response) =>
      sendJson(response, 200, {
        id: 'm',
        type: 'message',
        role: 'assistant',
        model: 'claude',
        content: [{ type: 'text', text: 'the secret is out' }],
        stop_reason: 'end_turn',
        usage: { input_tokens: 3, output_tokens: 4 },
      });
    next.output = [noSecret()];
    const answer = await call('/chat/completions', body({ model: '@anthropic-test/claude', max_tokens: 9 }));
    expect(answer.status).toBe(446);
    expect((await server.records())[0]).toMatchObject({ usage: { input: 3, output: 4 } });
    await expect(anthropic().messages.create(CLAUDE)).rejects.toMatchObject({
      status: 446,
      error: { type: 'error', error: { type: 'hooks_failed' } },
    });
  });

  it('is asked for again after a refusal, where the config retries that status', async () => {
    let calls = 0;
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf(calls++ === 0 ? 'a secret' : 'fine'));
    next.output = [noSecret()];
    next.more = { provider: '@openai-test', retry: { attempts: 1, on_status_codes: [446] } };
    const answer = await call('/chat/completions', body());
    expect([answer.status, calls]).toEqual([200, 2]);
    expect(await answer.text()).toBe(answerOf('fine'));
    expect((await server.records())[0]).toMatchObject({ usage: { input: 18, output: 10 } });
  });

  it('is judged beside the request by asynchronous guardrails', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf('a secret'));
    next.output = [noSecret({ async: true })];
    expect((await call('/chat/completions', body())).status).toBe(200);
    expect(await recorded()).toMatchObject([{ slug: 'pg-words', verdict: false, async: true }]);
  });

  it('flows while asynchronous guardrails wait for its end', async () => {
    const text = answerOf(`a secret ${'x'.repeat(80_000)}`);
    let finish: () => void = () => {};
    upstream.answer = (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write(text.slice(0, 75_000));
      finish = () => response.end(text.slice(75_000));
    };
    next.output = [noSecret({ async: true })];
    const reader = (await call('/chat/completions', body())).body?.getReader();
    let read = Buffer.from((await reader?.read())?.value ?? []).toString();
    expect(read.length).toBeGreaterThan(0);
    finish();
    for (let part = await reader?.read(); part?.value; part = await reader?.read()) read += Buffer.from(part.value);
    expect(read).toBe(text);
    expect(await recorded()).toMatchObject([{ slug: 'pg-words', verdict: false, async: true }]);
  });

  it('is not waited for by a client that has left while it is judged, and neither is the check', async () => {
    let asked: () => void = () => {};
    let ended: () => void = () => {};
    const judging = new Promise<void>((resolve) => {
      asked = resolve;
    });
    const over = new Promise<void>((resolve) => {
      ended = resolve;
    });
    upstream.answer = ({ path }, response) => {
      if (path !== '/hook') return sendJson(response, 200, answerOf('fine'));
      response.on('close', () => ended());
      asked();
    };
    next.output = [{ deny: true, 'default.webhook': { webhookURL: `${upstream.url}/hook`, timeout: 60_000 } }];
    const abort = new AbortController();
    const answer = callUntil(abort.signal, body());
    const failed = expect(answer).rejects.toThrow();
    await judging;
    abort.abort();
    await failed;
    await over;
    expect((await server.records())[0]).toMatchObject({ outcome: 'aborted' });
  });

  it('of embeddings says nothing: guardrails of answers leave it alone', async () => {
    const vectors =
      '{"object":"list","data":[{"index":0,"embedding":[1]}],"model":"e","usage":{"prompt_tokens":1,"total_tokens":1}}';
    upstream.answer = (_request, response) => sendJson(response, 200, vectors);
    next.output = [{ deny: true, 'default.wordCount': { minWords: 5 } }];
    const answer = await call('/embeddings', { model: '@openai-test/e', input: 'x' });
    expect([answer.status, await answer.text()]).toEqual([200, vectors]);
  });
});

const DIALECTS = [
  ['chat', '/chat/completions', body({ stream: true }), chatStream],
  ['completions', '/completions', { model: '@openai-test/m', prompt: 'Hi', stream: true }, completionStream],
  [
    'messages',
    '/messages',
    { model: '@anthropic-test/claude', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }], stream: true },
    messageStream,
  ],
  ['responses', '/responses', { model: '@openai-test/m', input: 'Hi', stream: true }, responseStream],
] as const;

/** Sends events, each byte by itself where `bytes`, and ends. */
function streamOf(events: readonly string[], bytes = false): void {
  upstream.answer = async (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const all = Buffer.from(events.join(''));
    if (bytes) for (const byte of all) response.write(Buffer.from([byte]));
    else for (const event of events) response.write(event);
    response.end();
  };
}

const LONG = 'once upon a time there was a long and harmless story, '.repeat(4).split(/(?<= )/);

describe.each(DIALECTS)('a stream of %s', (_name, path, request, make) => {
  const words = (more: object = {}) => noSecret(more);
  const whole = { id: 'pg-count', deny: true, 'default.wordCount': { maxWords: 100 } };

  it.each([
    ['held back', words()],
    ['held until its end', whole],
    ['only watched', words({ deny: false })],
  ])('%s and allowed arrives byte for byte', async (_title, guardrail) => {
    const events = make(...LONG);
    for (const bytes of [false, true]) {
      streamOf(events, bytes);
      next.output = [guardrail];
      const answer = await call(path, request);
      expect(answer.status).toBe(200);
      const received = await answer.text();
      // Usage that nobody asked for is taken out of chat streams.
      expect(received).toBe(events.filter((event) => event !== USAGE).join(''));
    }
    expect((await server.records())[0]).toMatchObject({ outcome: 'ok', usage: { input: 9, output: 5 } });
  });

  it('that is denied ends with an error in its dialect, without the forbidden word or an end marker', async () => {
    streamOf(make(...LONG, 'the se', 'cr', 'et is out'), true);
    next.output = [words()];
    const answer = await call(path, request);
    expect(answer.status).toBe(200);
    const text = await answer.text();
    expect(text).toContain('harmless');
    expect(text).not.toMatch(/the se|secret|\[DONE\]|message_stop|response\.completed/);
    const last = text.trim().split('\n').at(-1)?.slice(6) ?? '';
    expect(last).toContain('"hooks_failed"');
    expect(JSON.parse(last).hook_results.after_request_hooks).toMatchObject([{ id: 'pg-words', verdict: false }]);
    const [record] = await server.records();
    expect(record).toMatchObject({ outcome: 'refused', error_code: 'hooks_failed', status: 200 });
    expect(record?.usage).not.toBeNull();
  });

  it.each([
    ['before anything was shown', words()],
    ['at its end', { id: 'pg-count', deny: true, 'default.wordCount': { maxWords: 2 } }],
  ])('that is denied %s has the status 446', async (_title, guardrail) => {
    streamOf(make('the secret ', 'is out'));
    next.output = [guardrail];
    const answer = await call(path, request);
    expect(answer.status).toBe(446);
    const text = await answer.text();
    expect(text).not.toContain('secret');
    expect(JSON.parse(text)).toMatchObject({ error: { type: 'hooks_failed' } });
  });

  it('is redacted everywhere it says what is redacted', async () => {
    streamOf(make('write to ann', '@exam', 'ple.com', ' today'));
    next.output = [redacting];
    const answer = await call(path, request);
    expect(answer.status).toBe(200);
    const text = await answer.text();
    expect(text).toContain('{{EMAIL_ADDRESS_1}}');
    expect(text).not.toMatch(/@exam|ple\.com|to ann/);
  });

  it('tells results with its end, where fields may be added', async () => {
    streamOf(make('the secret', ' is out'));
    next.output = [words({ deny: false })];
    const answer = await call(path, request, LOOSE);
    const events = (await answer.text()).trim().split('\n\n');
    expect(answer.status).toBe(200);
    // Clients of Responses fail on an event that they do not know: there the last one tells them.
    const told = events.at(path === '/responses' ? -1 : -2) ?? '';
    const { hook_results, response = { hook_results } } = JSON.parse(told.slice(told.indexOf('{')));
    expect(response.hook_results).toMatchObject({ after_request_hooks: [{ id: 'pg-words', verdict: false }] });
    expect(told.startsWith('event: hook_results\n')).toBe(path === '/messages');
    expect(events.join().split('hook_results').length).toBe(path === '/messages' ? 4 : 2);
  });
});

describe('the official clients', () => {
  const read = async (stream: AsyncIterable<OpenAI.ChatCompletionChunk>) => {
    let text = '';
    try {
      for await (const part of stream) text += part.choices[0]?.delta.content ?? '';
    } catch (error) {
      return { text, error: error as InstanceType<typeof OpenAI.APIError> };
    }
    return { text, error: null };
  };

  it('of OpenAI reads a held, a denied and a redacted stream', async () => {
    streamOf(chatStream(...LONG));
    next.output = [noSecret()];
    const ask = () => openai().chat.completions.create({ ...body(), stream: true } as never) as never;
    expect(await read(await ask())).toEqual({ text: LONG.join(''), error: null });
    streamOf(chatStream(...LONG, 'a secret'));
    const denied = await read(await ask());
    expect(LONG.join('').startsWith(denied.text)).toBe(true);
    expect(denied.error).toMatchObject({ type: 'hooks_failed' });
    streamOf(chatStream('write to ann', '@example.com'));
    next.output = [redacting];
    expect(await read(await ask())).toEqual({ text: 'write to {{EMAIL_ADDRESS_1}}', error: null });
  });

  it('of Anthropic reads a held, a denied and a redacted stream', async () => {
    const ask = () => anthropic().messages.stream(CLAUDE);
    streamOf(messageStream(...LONG));
    next.output = [noSecret()];
    expect(await ask().finalText()).toBe(LONG.join(''));
    streamOf(messageStream(...LONG, 'a secret'));
    await expect(ask().finalText()).rejects.toThrow(/hooks_failed/);
    streamOf(messageStream('write to ann', '@example.com'));
    next.output = [redacting];
    expect(await ask().finalText()).toBe('write to {{EMAIL_ADDRESS_1}}');
  });

  it('of OpenAI reads held and redacted responses', async () => {
    streamOf(responseStream('write to ann', '@example.com'));
    next.output = [redacting];
    const stream = openai().responses.stream({ model: '@openai-test/m', input: 'Hi' });
    expect((await stream.finalResponse()).output_text).toBe('write to {{EMAIL_ADDRESS_1}}');
  });

  it('read streams with results and with comments that keep them alive', async () => {
    const alive = (events: readonly string[]) => events.flatMap((event) => [': keep-alive\n\n', event]);
    next.output = [noSecret({ deny: false })];
    streamOf(alive(chatStream('a secret')));
    const stream = openai().chat.completions.stream(body({ stream: true }) as never, { headers: LOOSE });
    expect((await stream.finalChatCompletion()).choices[0]?.message.content).toBe('a secret');
    streamOf(alive(messageStream('a secret')));
    const messages = anthropic().messages.stream(CLAUDE, { headers: LOOSE });
    expect(await messages.finalText()).toBe('a secret');
    streamOf(alive(responseStream('a secret')));
    const responses = openai().responses.stream({ model: '@openai-test/m', input: 'Hi' }, { headers: LOOSE });
    expect((await responses.finalResponse()).output_text).toBe('a secret');
  });
});

describe('a stream', () => {
  it('that a provider of another shape gave is judged as the caller would read it', async () => {
    const ask = body({ model: '@anthropic-test/claude', max_tokens: 9, stream: true });
    next.output = [noSecret()];
    streamOf(messageStream(...LONG, 'the se', 'cret'), true);
    const denied = await (await call('/chat/completions', ask)).text();
    expect(denied).toContain('harmless');
    expect(denied).toContain('"hooks_failed"');
    expect(denied).not.toMatch(/the se|\[DONE\]/);
    streamOf(messageStream(...LONG), true);
    const guarded = await (await call('/chat/completions', ask)).text();
    const plain = await (await server.call('/chat/completions', ask)).text();
    const same = (text: string) => text.replaceAll(/"(?:created|id)":[^,]+,/g, '');
    expect(same(guarded)).toBe(same(plain));
  });

  it('is judged whole by a webhook, which may change what it says', async () => {
    let asked: Record<string, Record<string, unknown>> = {};
    const events = chatStream('hello ', 'world');
    upstream.answer = (request, response) => {
      if (request.path === '/hook') {
        asked = JSON.parse(request.body.toString('utf8'));
        const json = structuredClone(asked.response?.json) as { choices: { message: { content: string } }[] };
        for (const choice of json.choices) choice.message.content = 'changed';
        sendJson(response, 200, { verdict: true, transformedData: { response: { json } } });
      } else sendEvents(response, events);
    };
    next.output = [{ deny: true, 'default.webhook': { webhookURL: `${upstream.url}/hook` } }];
    const text = await (await call('/chat/completions', body({ stream: true }))).text();
    expect(asked).toMatchObject({ response: { text: 'hello world' }, eventType: 'afterRequestHook' });
    expect(text).toContain('"content":"changed"');
    expect(text).not.toMatch(/hello|world/);
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  it('that follows a request which failed a guardrail without being denied has the status 246', async () => {
    next.input = [{ id: 'pg-in', 'default.contains': { words: ['Hello'], operator: 'none' } }];
    streamOf(chatStream('fine'));
    expect((await call('/chat/completions', body({ stream: true }))).status).toBe(246);
  });

  it('whose events nobody can read is refused by a guardrail that denies', async () => {
    next.output = [noSecret()];
    streamOf(['data: {"choices": secret\n\n', 'data: [DONE]\n\n']);
    const answer = await call('/chat/completions', body({ stream: true }));
    expect(answer.status).toBe(446);
    expect(await answer.text()).not.toContain('"choices"');
  });

  it('that says it is something else is not taken for text', async () => {
    next.output = [noSecret()];
    upstream.answer = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.end(chatStream('the sec', 'ret').join(''));
    };
    expect((await call('/chat/completions', body({ stream: true }))).status).toBe(446);
  });
});

describe('what a stored guardrail may say besides', () => {
  const stored = async (actions: object, checks: object[]) => {
    const made = await server.admin('POST', '/guardrails', {
      name: 'Stored',
      workspace_id: server.first.workspace_id,
      checks,
      actions: {
        deny: true,
        async: false,
        on_success: { feedback: { value: 5, weight: 1, metadata: '' } },
        on_fail: { feedback: { value: -5, weight: 1, metadata: '' } },
        ...actions,
      },
    });
    expect(made.status).toBe(200);
    return String(made.body.slug);
  };
  const words = [{ id: 'default.contains', parameters: { words: ['secret'], operator: 'none' } }];

  it('a refusal told as an ordinary answer, in one piece and as a stream', async () => {
    next.more = { output_guardrails: [await stored({ soft_deny_200: true }, words)] };
    upstream.answer = (_request, response) => sendJson(response, 200, answerOf('the secret is out'));
    const answer = await openai().chat.completions.create(body() as never);
    expect(answer.choices[0]?.message.content).toContain('denied');
    expect((await server.records())[0]).toMatchObject({ status: 200, outcome: 'refused', usage: { output: 5 } });
    streamOf(chatStream('the se', 'cret'));
    const stream = openai().chat.completions.stream(body({ stream: true }) as never);
    const told = (await stream.finalChatCompletion()).choices[0]?.message.content ?? '';
    expect(told).toContain('denied');
    expect(told).not.toContain('the se');
  });

  it('to hold a stream that could be judged as it runs: then it is shown whole or not at all', async () => {
    next.more = { output_guardrails: [await stored({ stream: 'buffer' }, words)] };
    streamOf(chatStream(...LONG, 'the secret'));
    expect((await call('/chat/completions', body({ stream: true }))).status).toBe(446);
    streamOf(chatStream(...LONG));
    const answer = await call('/chat/completions', body({ stream: true }));
    expect(await answer.text()).toBe(
      chatStream(...LONG)
        .filter((event) => event !== USAGE)
        .join(''),
    );
  });

  it('to hold a stream without denying it: then its status says what was found', async () => {
    next.more = { output_guardrails: [await stored({ stream: 'buffer', deny: false }, words)] };
    streamOf(chatStream('the secret'));
    const answer = await call('/chat/completions', body({ stream: true }));
    expect(answer.status).toBe(246);
    expect(await answer.text()).toContain('the secret');
  });
});

describe('what a stream says beside its text', () => {
  it.each([
    ['a second choice', [chunk({ content: 'fine' }), chunk({ content: 'a sec' }, 1), chunk({ content: 'ret' }, 1)]],
    [
      'the arguments of a tool call',
      [
        chunk({
          tool_calls: [{ index: 0, id: 't', type: 'function', function: { name: 'f', arguments: '{"a":"sec' } }],
        }),
        chunk({ tool_calls: [{ index: 0, function: { arguments: 'ret"}' } }] }),
      ],
    ],
    ['reasoning', [chunk({ reasoning_content: 'a sec' }), chunk({ reasoning_content: 'ret' })]],
    ['a refusal', [chunk({ refusal: 'a sec' }), chunk({ refusal: 'ret' })]],
  ])('is judged too: %s', async (_title, events) => {
    streamOf([...events, chunk({}, 0, 'stop'), 'data: [DONE]\n\n']);
    next.output = [noSecret()];
    const answer = await call('/chat/completions', body({ stream: true }));
    expect(answer.status).toBe(446);
    expect(await answer.text()).not.toMatch(/a sec|"sec/);
  });

  it('the end of a Responses stream is judged where it says more than the stream did', async () => {
    const events = responseStream('fine');
    streamOf([...events.slice(0, -1), (events.at(-1) ?? '').replaceAll('"text":"fine"', '"text":"fine secret"')]);
    next.output = [noSecret()];
    const answer = await call('/responses', { model: '@openai-test/m', input: 'Hi', stream: true });
    expect(await answer.text()).not.toContain('fine secret');
  });
});

describe('a stream that is held', () => {
  it('and whose client leaves closes the upstream, and what was used is counted', async () => {
    let closed: () => void = () => {};
    const gone = new Promise<void>((resolve) => {
      closed = resolve;
    });
    let begun: () => void = () => {};
    const sent = new Promise<void>((resolve) => {
      begun = resolve;
    });
    upstream.answer = (_request, response) => {
      response.on('close', () => closed());
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (let i = 0; i < 20; i++) response.write(chunk({ content: 'word ' }));
      begun();
    };
    next.output = [{ deny: true, 'default.wordCount': { maxWords: 100 } }];
    const abort = new AbortController();
    const call = callUntil(abort.signal, body({ stream: true }));
    const failed = expect(call).rejects.toThrow();
    await sent;
    abort.abort();
    await failed;
    await gone;
    expect((await server.records())[0]).toMatchObject({ outcome: 'aborted', usage_estimated: true });
  });

  it('and cut by the provider shows nothing of what was not judged', async () => {
    upstream.answer = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(chunk({ content: 'the sec' }), () => response.destroy());
    };
    next.output = [{ deny: true, 'default.wordCount': { maxWords: 100 } }];
    const answer = await call('/chat/completions', body({ stream: true }));
    expect(answer.status).toBe(502);
    expect(await answer.text()).not.toContain('the sec');
  });

  it('of an operation whose streams cannot be judged is refused', async () => {
    streamOf([`data: {"type":"image_generation.partial_image","b64_json":"AA"}\n\n`]);
    next.output = [noSecret()];
    const before = upstream.received.length;
    const answer = await call('/images/generations', { model: '@openai-test/i', prompt: 'x', stream: true });
    expect([answer.status, upstream.received.length]).toEqual([400, before]);
  });
});
