/** Callers of chat and Messages on models that speak the Responses API only: official clients through a whole server. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import type { StrictUpstream } from '../../test/support/strict-upstream.ts';
import { RESPONSES_KEY, startResponses } from '../../test/support/upstreams/openai-responses.ts';

let upstream: StrictUpstream;
let server: TestServer;
let openai: OpenAI;
let anthropic: Anthropic;

beforeAll(async () => {
  upstream = await startResponses();
  server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.0/8' });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1`, key: RESPONSES_KEY });
  const apiKey = server.first.workspace_api_key;
  openai = new OpenAI({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0 });
  anthropic = new Anthropic({ apiKey, baseURL: server.url, maxRetries: 0 });
});

afterEach(() => {
  // A call the provider's definition does not know fails the test that made it, whatever the client saw.
  expect(upstream.faults.splice(0)).toEqual([]);
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const PRO = '@openai-test/gpt-5-pro';
const SCHEMA = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
  additionalProperties: false,
};
const FUNCTION = {
  type: 'function' as const,
  function: { name: 'get_weather', description: 'Weather of a city', parameters: SCHEMA },
};
const TOOL = { name: 'get_weather', description: 'Weather of a city', input_schema: SCHEMA };
const says = (content: string) => [{ role: 'user' as const, content }];
const LOOSE = { headers: { 'x-gateway-strict-open-ai-compliance': 'false' } };
const last = async () => (await server.records())[0] ?? {};
const config = (value: object) => ({ 'x-gateway-config': JSON.stringify(value) });
/** As the response counts it. */
const USED = { input: 1000, output: 100, cache_read: 400, reasoning: 60 };

/** The same question as one answer and as a stream, as the client puts it together. */
const ask = (stream: boolean, body: OpenAI.ChatCompletionCreateParamsNonStreaming): Promise<OpenAI.ChatCompletion> =>
  stream
    ? openai.chat.completions
        .stream({ ...body, stream_options: { include_usage: true } } as never)
        .finalChatCompletion()
    : openai.chat.completions.create(body);

describe.each([false, true])('the OpenAI client, stream: %s', (stream) => {
  it.each(['gpt-5-pro', 'o3-pro-2025-06-10', 'gpt-5.1-codex-max', 'codex-mini-latest', 'o4-mini-deep-research'])(
    'chats with %s, which has no chat completions',
    async (model) => {
      const answer = await ask(stream, { model: `@openai-test/${model}`, messages: says('Grüße 🎉') });
      expect(answer.choices[0]?.message.content).toBe('You said: Grüße 🎉');
      expect(answer.choices[0]?.finish_reason).toBe('stop');
      expect(answer.model).toBe(model);
      expect(answer.usage).toMatchObject({
        prompt_tokens: 1000,
        completion_tokens: 100,
        total_tokens: 1100,
        prompt_tokens_details: { cached_tokens: 400 },
        completion_tokens_details: { reasoning_tokens: 60 },
      });
      expect(upstream.received.at(-1)?.path).toBe('/v1/responses');
    },
  );

  it('is recorded and priced by what the response says it used', async () => {
    await ask(stream, { model: PRO, messages: says('Hi') });
    const record = await last();
    expect(record).toMatchObject({
      status: 200,
      outcome: 'ok',
      operation: 'chat',
      model_answered: 'gpt-5-pro',
      usage: USED,
    });
    const { rates } = record.price as { rates: Record<string, number> };
    const cached = rates.cache_read ?? rates.input ?? 0;
    expect(record.cost_micros).toBe(600 * (rates.input ?? 0) + 400 * cached + 100 * (rates.output ?? 0));
  });

  it('calls tools, in parallel, and sends their results back', async () => {
    const messages: OpenAI.ChatCompletionMessageParam[] = [
      { role: 'system', content: 'Use your tools.' },
      { role: 'user', content: 'Berlin and Ålesund' },
    ];
    const first = (await ask(stream, { model: PRO, messages, tools: [FUNCTION] })).choices[0];
    expect(first?.finish_reason).toBe('tool_calls');
    const calls = (first?.message.tool_calls ?? []).flatMap((call) => (call.type === 'function' ? [call] : []));
    expect(calls.map(({ id, function: fn }) => [id, fn.name, JSON.parse(fn.arguments)])).toEqual([
      ['call_1', 'get_weather', { city: 'Berlin' }],
      ['call_2', 'get_weather', { city: 'Ålesund' }],
    ]);
    const asked = calls.map(({ id, type, function: { name, arguments: args } }) => ({
      id,
      type,
      function: { name, arguments: args },
    }));
    messages.push({ role: 'assistant', content: null, tool_calls: asked });
    for (const { id } of asked) messages.push({ role: 'tool', tool_call_id: id, content: 'sunny' });
    const second = await ask(stream, { model: PRO, messages, tools: [FUNCTION], tool_choice: 'auto' });
    expect(second.choices[0]?.message.content).toBe('The tool says: sunny');
    const one = await ask(stream, {
      model: PRO,
      messages: messages.slice(0, 2),
      tools: [FUNCTION],
      tool_choice: { type: 'function', function: { name: 'get_weather' } },
      parallel_tool_calls: false,
    });
    expect(one.choices[0]?.message.tool_calls).toHaveLength(1);
  });

  it('takes images and files along, and follows a schema', async () => {
    const answer = await ask(stream, {
      model: PRO,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Where?' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA', detail: 'low' } },
            { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBE' } },
          ],
        },
      ],
      response_format: { type: 'json_schema', json_schema: { name: 'place', schema: SCHEMA, strict: true } },
      reasoning_effort: 'high',
    });
    expect(JSON.parse(answer.choices[0]?.message.content ?? '')).toEqual({ city: 'Berlin' });
    expect(upstream.last).toMatchObject({ reasoning: { effort: 'high' }, text: { format: { name: 'place' } } });
  });

  it.each([
    ['stop max_output_tokens', 'length'],
    ['stop content_filter', 'content_filter'],
  ])('is told why an answer ended early: %s', async (words, reason) => {
    const chunks: (string | null | undefined)[] = [];
    const body = { model: PRO, messages: says(words) };
    // The client's helper throws at these ends, which is its own way of telling them.
    if (stream) {
      for await (const chunk of await openai.chat.completions.create({ ...body, stream: true }))
        chunks.push(chunk.choices[0]?.finish_reason);
    } else chunks.push((await openai.chat.completions.create(body)).choices[0]?.finish_reason);
    expect(chunks.at(-1)).toBe(reason);
  });

  it('is told a refusal, and sources', async () => {
    const refused = await ask(stream, { model: PRO, messages: says('refuse this') });
    expect(refused.choices[0]?.message).toMatchObject({ refusal: 'I will not.' });
    const cited = await ask(stream, { model: PRO, messages: says('cite it') });
    expect(cited.choices[0]?.message).toMatchObject({
      annotations: [{ type: 'url_citation', url_citation: { url: 'https://a.example', end_index: 3 } }],
    });
  });

  it('is refused what cannot be expressed, by name and without a call, unless drop_params lists it', async () => {
    const calls = upstream.received.length;
    const body = { model: PRO, messages: says('Hi'), n: 2, seed: 1, stop: ['x'], stream: stream as false };
    await expect(openai.chat.completions.create(body)).rejects.toMatchObject({
      status: 400,
      param: 'n',
      code: 'unsupported_parameter',
    });
    expect(upstream.received).toHaveLength(calls);
    const headers = config({ drop_params: ['n', 'seed', 'stop'] });
    await openai.chat.completions.create(body, { headers });
    expect(upstream.received).toHaveLength(calls + 1);
    await expect(
      openai.chat.completions.create({ model: PRO, messages: says('Hi'), max_completion_tokens: 5 }),
    ).rejects.toMatchObject({ status: 400, param: 'max_completion_tokens' });
  });
});

describe('the OpenAI client', () => {
  it('sees reasoning outside strict shape, and sends it back with the calls it led to', async () => {
    const body = {
      model: PRO,
      messages: says('Berlin'),
      tools: [FUNCTION],
      reasoning_effort: 'high' as const,
      thinking: { type: 'adaptive' },
    };
    const shown = (await openai.chat.completions.create(body, LOOSE)).choices[0]?.message;
    const block = { type: 'reasoning', id: 'rs_1', encrypted_content: 'gAAA' };
    expect(shown).toMatchObject({ reasoning_content: 'I should think.', content_blocks: [block] });
    const messages = [
      ...body.messages,
      shown as OpenAI.ChatCompletionMessageParam,
      { role: 'tool' as const, tool_call_id: 'call_1', content: 'sunny' },
    ];
    const second = await openai.chat.completions.create({ ...body, messages }, LOOSE);
    expect(second.choices[0]?.message.content).toBe('The tool says: sunny');
    expect((upstream.last.input as { type: string }[]).map(({ type }) => type)).toEqual([
      'message',
      'reasoning',
      'function_call',
      'function_call_output',
    ]);
    const strict = (await openai.chat.completions.create({ model: PRO, messages: says('Hi') })).choices[0]?.message;
    expect(Object.keys(strict ?? {})).toEqual(['role', 'content', 'refusal']);
  });

  it.each([
    ['status 429', 429, null],
    ['fail rate_limit_exceeded', 429, 'rate_limit_exceeded'],
    ['fail invalid_prompt', 400, 'invalid_prompt'],
    ['fail server_error', 502, 'server_error'],
  ])('is told how it failed: %s', async (words, status, code) => {
    const failed = await openai.chat.completions.create({ model: PRO, messages: says(words) }).catch((error) => error);
    expect(failed).toMatchObject({ status, ...(code === null ? {} : { code }) });
    expect(failed.message).toContain(words.split(' ')[1]);
    expect(await last()).toMatchObject({ status, outcome: 'failed', usage: null });
  });

  it('never sees the credential that a failed response repeats', async () => {
    const body = { model: PRO, messages: says(`fail ${RESPONSES_KEY}`) };
    const failed = await openai.chat.completions.create(body).catch((error) => error);
    expect(failed).toMatchObject({ status: 502 });
    expect(JSON.stringify([failed, failed.message])).not.toContain(RESPONSES_KEY);
    const text = await (await server.call('/chat/completions', { ...body, stream: true })).text();
    expect(text).toContain('It broke');
    expect(text).not.toContain(RESPONSES_KEY);
  });

  it('gets the answer of the next try where a response failed, streamed or not', async () => {
    const targets = [
      { provider: '@openai-test', override_params: { messages: says('fail server_error') } },
      { provider: '@openai-test' },
    ];
    const headers = config({ strategy: { mode: 'fallback' }, targets });
    const body = { model: 'gpt-5-pro', messages: says('Hi') };
    const plain = await openai.chat.completions.create(body, { headers });
    expect(plain.choices[0]?.message.content).toBe('You said: Hi');
    const streamed = await openai.chat.completions.stream(body, { headers }).finalChatCompletion();
    expect(streamed.choices[0]?.message.content).toBe('You said: Hi');
    expect(await last()).toMatchObject({ status: 200, outcome: 'ok', usage: USED });
    expect(((await last()).attempts as unknown[]).length).toBe(2);
  });

  it.each(['cut', 'break server_error'])('is never given a part of a stream for the whole: %s', async (words) => {
    const pieces: string[] = [];
    const run = async (): Promise<void> => {
      const stream = await openai.chat.completions.create({ model: PRO, messages: says(words), stream: true });
      for await (const chunk of stream) pieces.push(chunk.choices[0]?.delta.content ?? '');
    };
    await expect(run()).rejects.toThrow();
    expect(pieces.join('')).toBe('You said: ');
    expect(await last()).toMatchObject({ outcome: 'failed', usage_estimated: true });
  });

  it('is served by the conversion only where the model needs it', async () => {
    const failed = await openai.chat.completions
      .create({ model: '@openai-test/gpt-4o', messages: says('Hi'), n: 2 })
      .catch((error) => error);
    // Other models are asked as they were before: here the server answers for all of them that it has no chat.
    expect(failed.status).toBe(404);
    expect(upstream.received.at(-1)?.path).toBe('/v1/chat/completions');
  });

  it('is judged by guardrails as on any other provider, in one piece and as a stream', async () => {
    const words = { id: 'pg-words', deny: true, 'default.contains': { words: ['secret'], operator: 'none' } };
    const headers = config({ output_guardrails: [words] });
    const body = { model: PRO, messages: says('a secret') };
    await expect(openai.chat.completions.create(body, { headers })).rejects.toMatchObject({ status: 446 });
    const streamed = openai.chat.completions.stream(body, { headers }).finalChatCompletion();
    await expect(streamed).rejects.toThrow();
    const pii = { id: 'pg-pii', 'gateway.pii': { categories: ['EMAIL_ADDRESS'], redact: true } };
    const mail = { model: PRO, messages: says('ann@example.com') };
    const redacted = config({ output_guardrails: [pii] });
    const plain = await openai.chat.completions.create(mail, { headers: redacted });
    expect(plain.choices[0]?.message.content).toBe('You said: {{EMAIL_ADDRESS_1}}');
    const stream = await openai.chat.completions.stream(mail, { headers: redacted }).finalChatCompletion();
    expect(stream.choices[0]?.message.content).toBe('You said: {{EMAIL_ADDRESS_1}}');
  });

  it('finds in the decision that its request was converted', async () => {
    await openai.chat.completions.create(
      { model: 'gpt-5-pro', messages: says('Hi') },
      { headers: config({ provider: '@openai-test' }) },
    );
    const { body } = await server.admin('GET', `/logs/${String((await last()).id)}/decision`);
    expect(JSON.stringify(body)).toContain('"responses"');
  });
});

describe('the Anthropic client', () => {
  const body = (content: string, more: object = {}): Anthropic.MessageCreateParamsNonStreaming => ({
    model: PRO,
    max_tokens: 4000,
    messages: says(content),
    ...more,
  });
  const send = (stream: boolean, params: Anthropic.MessageCreateParamsNonStreaming): Promise<Anthropic.Message> =>
    stream ? anthropic.messages.stream(params).finalMessage() : anthropic.messages.create(params);

  it.each([false, true])('talks, with thinking and every count of tokens (stream: %s)', async (stream) => {
    const thinking = { type: 'enabled', budget_tokens: 2000 } as const;
    const answer = await send(stream, body('Grüße 🎉', { system: 'Be kind.', thinking }));
    expect(answer.content).toMatchObject([
      { type: 'thinking', thinking: 'I should think.' },
      { type: 'text', text: 'You said: Grüße 🎉' },
    ]);
    expect(answer.stop_reason).toBe('end_turn');
    expect(answer.usage).toMatchObject({ input_tokens: 600, cache_read_input_tokens: 400, output_tokens: 100 });
    expect(upstream.last).toMatchObject({ reasoning: { effort: 'low', summary: 'auto' }, max_output_tokens: 4000 });
    expect(await last()).toMatchObject({ outcome: 'ok', operation: 'messages', usage: USED });
  });

  it.each([false, true])('calls tools and sends their results back (stream: %s)', async (stream) => {
    const first = await send(stream, body('Berlin and Ålesund', { tools: [TOOL] }));
    expect(first.stop_reason).toBe('tool_use');
    expect(first.content).toMatchObject([
      { type: 'tool_use', id: 'call_1', input: { city: 'Berlin' } },
      { type: 'tool_use', id: 'call_2', input: { city: 'Ålesund' } },
    ]);
    const results = ['call_1', 'call_2'].map((id) => ({
      type: 'tool_result' as const,
      tool_use_id: id,
      content: 'sunny',
    }));
    const messages = [
      ...says('Berlin and Ålesund'),
      { role: 'assistant' as const, content: first.content },
      { role: 'user' as const, content: results },
    ];
    const second = await send(stream, body('', { messages, tools: [TOOL] }));
    expect(second.content).toMatchObject([{ type: 'text', text: 'The tool says: sunny' }]);
  });

  it.each([false, true])('thinks on with what it has thought before its calls (stream: %s)', async (stream) => {
    const thinking = { type: 'enabled', budget_tokens: 2000 } as const;
    const first = await send(stream, body('Berlin', { tools: [TOOL], thinking }));
    expect(first.content.map(({ type }) => type)).toEqual(['thinking', 'tool_use']);
    const result = { type: 'tool_result' as const, tool_use_id: 'call_1', content: 'sunny' };
    const messages = [
      ...says('Berlin'),
      { role: 'assistant' as const, content: first.content },
      { role: 'user' as const, content: [result] },
    ];
    await send(stream, body('', { messages, tools: [TOOL], thinking }));
    expect((upstream.last.input as object[]).slice(1, 3)).toMatchObject([
      {
        type: 'reasoning',
        id: 'rs_1',
        summary: [{ type: 'summary_text', text: 'I should think.' }],
        encrypted_content: 'gAAA',
      },
      { type: 'function_call', call_id: 'call_1' },
    ]);
  });

  it('is told what failed, in its own dialect, before and inside a stream', async () => {
    await expect(anthropic.messages.create(body('fail rate_limit_exceeded'))).rejects.toMatchObject({
      status: 429,
      error: { type: 'error', error: { type: 'rate_limit_error' } },
    });
    for (const words of ['cut', 'break rate_limit_exceeded'])
      await expect(anthropic.messages.stream(body(words)).finalMessage()).rejects.toThrow();
    await expect(anthropic.messages.create(body('Hi', { stop_sequences: ['x'] }))).rejects.toMatchObject({
      status: 400,
      error: { error: { message: expect.stringContaining('"stop_sequences"') } },
    });
    expect(await send(false, body('stop max_output_tokens'))).toMatchObject({ stop_reason: 'max_tokens' });
    expect(await send(false, body('refuse this'))).toMatchObject({ stop_reason: 'refusal' });
  });
});
