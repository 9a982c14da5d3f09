/** Cohere's v2 API through a whole server, asked by the official clients and answered by a strict fake. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import type { StrictUpstream } from '../support/strict-upstream.ts';
import { COHERE_KEY, startCohere } from '../support/upstreams/cohere.ts';

let server: TestServer;
let cohere: StrictUpstream;
let openai: OpenAI;
let anthropic: Anthropic;

beforeAll(async () => {
  cohere = await startCohere();
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${cohere.port}` });
  await server.provider({ id: 'cohere', host: cohere.url, key: COHERE_KEY, slug: 'co' });
  const apiKey = server.first.workspace_api_key;
  const defaultHeaders = { 'x-gateway-provider': '@co' };
  openai = new OpenAI({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0, defaultHeaders });
  anthropic = new Anthropic({ apiKey, baseURL: server.url, maxRetries: 0, defaultHeaders });
});
// What the published definition does not know fails the test that sent it, whatever the client saw.
afterEach(() => expect(cohere.faults.splice(0)).toEqual([]));
afterAll(async () => {
  await server?.stop();
  await cohere?.stop();
});

const MODEL = 'command-a-03-2025';
const HELLO = [{ role: 'user' as const, content: 'Grüße 🎉' }];
const SHOWN = { headers: { 'x-gateway-strict-open-ai-compliance': 'false' } };
const SCHEMA = { type: 'object' as const, properties: { city: { type: 'string' as const } }, required: ['city'] };
const FUNCTION = { type: 'function' as const, function: { name: 'get_weather', parameters: SCHEMA } };
const OTHER = { type: 'function' as const, function: { name: 'get_time' } };
const TOOL = { name: 'get_weather', input_schema: SCHEMA };
const PIXEL = 'data:image/png;base64,iVBORw0KGgo=';
const viaConfig = (config: Record<string, unknown>) => ({
  headers: { 'x-gateway-config': JSON.stringify({ provider: '@co', ...config }) },
});
const call = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  server.call(path, body, { 'x-gateway-provider': '@co', ...headers });
type Fields = Record<string, unknown>;
const jsonOf = async (answer: Response): Promise<Fields> => (await answer.json()) as Fields;

describe('chat', () => {
  it('is answered whole and as a stream, with the tokens that were read and written', async () => {
    const body = {
      model: MODEL,
      messages: [{ role: 'developer' as const, content: 'Be brief.' }, ...HELLO],
      max_completion_tokens: 50,
      temperature: 0.5,
      top_p: 0.9,
      stop: 'END',
      seed: 7,
      frequency_penalty: 0.5,
      presence_penalty: 0,
      user: 'u-1',
      metadata: { team: 'a' },
      service_tier: 'auto' as const,
    };
    const whole = await openai.chat.completions.create(body);
    const streamed = await openai.chat.completions
      .stream({ ...body, stream_options: { include_usage: true } })
      .finalChatCompletion();
    for (const answer of [whole, streamed]) {
      expect(answer.choices[0]).toMatchObject({ message: { content: 'You said: Grüße 🎉' }, finish_reason: 'stop' });
      expect(answer.model).toBe(MODEL);
      expect(answer.usage).toMatchObject({
        prompt_tokens: 70,
        completion_tokens: 9,
        total_tokens: 79,
        prompt_tokens_details: { cached_tokens: 64 },
      });
      expect(JSON.stringify(answer)).not.toContain('billed_units');
    }
    expect(cohere.last).toEqual({
      model: MODEL,
      stream: true,
      messages: [{ role: 'system', content: 'Be brief.' }, ...HELLO],
      max_tokens: 50,
      temperature: 0.5,
      p: 0.9,
      stop_sequences: ['END'],
      seed: 7,
      frequency_penalty: 0.5,
      presence_penalty: 0,
    });
  });

  it('is recorded with its tokens and its price, billed units or not', async () => {
    for (const stream of [false, true]) {
      const answer = await call('/chat/completions', { model: MODEL, messages: HELLO, stream });
      expect(await answer.text()).toContain('Gr');
      const [record] = await server.records();
      expect(record).toMatchObject({ status: 200, provider: 'cohere' });
      expect(record?.usage).toMatchObject({ input: 70, output: 9, cache_read: 64 });
      expect(Number(record?.cost_micros)).toBeGreaterThan(0);
    }
  });

  it('shows what is billed outside strict shape, in the usage of its own', async () => {
    const body = { model: MODEL, messages: HELLO };
    const billed_units = { input_tokens: 3, output_tokens: 4 };
    expect((await openai.chat.completions.create(body, SHOWN)).usage).toMatchObject({
      prompt_tokens: 70,
      billed_units,
    });
    const asked = { ...body, stream: true as const, stream_options: { include_usage: true } };
    const chunks = [];
    for await (const chunk of await openai.chat.completions.create(asked, SHOWN)) chunks.push(chunk);
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { prompt_tokens: 70, billed_units } });
  });

  it('keeps to a schema and writes JSON', async () => {
    const answer = await openai.chat.completions.create({
      model: MODEL,
      messages: HELLO,
      response_format: { type: 'json_schema', json_schema: { name: 'place', schema: SCHEMA } },
    });
    expect(answer.choices[0]?.message.content).toBe('{"city":"Berlin"}');
    expect(cohere.last.response_format).toEqual({ type: 'json_object', json_schema: SCHEMA });
    await openai.chat.completions.create({ model: MODEL, messages: HELLO, response_format: { type: 'json_object' } });
    expect(cohere.last.response_format).toEqual({ type: 'json_object' });
  });

  it('sends pictures', async () => {
    const answer = await openai.chat.completions.create({
      model: 'command-a-vision',
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'See ' },
            { type: 'image_url', image_url: { url: PIXEL, detail: 'low' } },
          ],
        },
      ],
    });
    expect(answer.choices[0]?.message.content).toBe('You said: See image_url');
  });

  it('tells probabilities, a text of several tokens as one', async () => {
    const body = { model: MODEL, messages: HELLO, logprobs: true };
    const entry = { token: 'You', logprob: -0.5, bytes: [89, 111, 117], top_logprobs: [] };
    const whole = await openai.chat.completions.create(body);
    expect(whole.choices[0]?.logprobs?.content).toEqual([
      entry,
      { ...entry, token: ' said', logprob: -0.75, bytes: [32, 115, 97, 105, 100] },
    ]);
    const streamed = await openai.chat.completions.stream(body).finalChatCompletion();
    expect(streamed.choices[0]?.logprobs?.content).toEqual([entry]);
  });

  it('reads documents, and shows what it cites outside strict shape', async () => {
    const body = {
      model: MODEL,
      messages: HELLO,
      documents: ['plain', { id: 'd', data: { title: 'T' } }],
      citation_options: { mode: 'ACCURATE' },
      safety_mode: 'STRICT',
      priority: 3,
    };
    const cited = [{ start: 0, end: 3, text: 'You', sources: [{ type: 'document', id: 'doc:0' }] }];
    const whole = await openai.chat.completions.create(body as never, SHOWN);
    expect(cohere.last).toMatchObject({ documents: body.documents, safety_mode: 'STRICT', priority: 3 });
    expect(whole.choices[0]).toMatchObject({ message: { citations: cited }, native_finish_reason: 'COMPLETE' });
    let found: unknown = null;
    const stream = await openai.chat.completions.create({ ...body, stream: true } as never, SHOWN);
    for await (const { choices } of stream as unknown as AsyncIterable<OpenAI.ChatCompletionChunk>) {
      found = (choices[0]?.delta as Fields | undefined)?.citations ?? found;
    }
    expect(found).toMatchObject(cited);
    const strict = await openai.chat.completions.create(body as never);
    expect(Object.keys(strict.choices[0]?.message ?? {}).sort()).toEqual(['content', 'refusal', 'role']);
  });

  it.each([
    ['COMPLETE', 'stop'],
    ['STOP_SEQUENCE', 'stop'],
    ['MAX_TOKENS', 'length'],
    ['SOMETHING_NEW', 'stop'],
  ])('that ends with %s finishes with %s', async (native, finish) => {
    const body = { model: `finish-${native}`, messages: HELLO };
    const whole = await openai.chat.completions.create(body);
    const streamed = await openai.chat.completions.stream(body).finalChatCompletion();
    expect([whole.choices[0]?.finish_reason, streamed.choices[0]?.finish_reason]).toEqual([finish, finish]);
  });

  it.each(['ERROR', 'TIMEOUT'])('that ends with %s is a failure, whole and as a stream', async (native) => {
    const body = { model: `finish-${native}`, messages: HELLO };
    await expect(openai.chat.completions.create(body)).rejects.toMatchObject({ status: 502 });
    const text = await (await call('/chat/completions', { ...body, stream: true })).text();
    expect(text).toContain('"error"');
    expect(text).not.toContain('[DONE]');
    if (native === 'ERROR') expect(text).toContain('the generation broke');
  });

  it.each([
    ['parallel_tool_calls', { tools: [FUNCTION], parallel_tool_calls: false }],
    ['logit_bias', { logit_bias: { 50256: -100 } }],
    ['top_logprobs', { logprobs: true, top_logprobs: 2 }],
    ['n', { n: 2 }],
    ['modalities', { modalities: ['text' as const, 'audio' as const] }],
    ['prediction', { prediction: { type: 'content' as const, content: 'x' } }],
    ['temperature', { temperature: 1.5 }],
    ['top_p', { top_p: 0 }],
    ['frequency_penalty', { frequency_penalty: -0.5 }],
    ['presence_penalty', { presence_penalty: 2 }],
    ['stop', { stop: ['1', '2', '3', '4', '5', '6'] }],
    ['reasoning_effort', { reasoning_effort: 'xhigh' as const }],
    ['service_tier', { service_tier: 'flex' as const }],
    ['response_format', { tools: [FUNCTION], response_format: { type: 'json_object' as const } }],
  ])('refuses %s that has no equivalent, by name, unless the config drops it', async (param, more) => {
    const body = { model: MODEL, messages: HELLO, ...more };
    const calls = cohere.received.length;
    await expect(openai.chat.completions.create(body)).rejects.toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      param,
    });
    expect(cohere.received).toHaveLength(calls);
    const dropped = await openai.chat.completions.create(body, viaConfig({ drop_params: [param] }));
    expect(dropped.choices).toHaveLength(1);
  });

  it('takes the neutral values of what it does not know', async () => {
    await openai.chat.completions.create({
      model: MODEL,
      messages: HELLO,
      n: 1,
      top_p: 1,
      top_logprobs: 0,
      logit_bias: {},
      modalities: ['text'],
      parallel_tool_calls: true,
    });
    expect(Object.keys(cohere.last).sort()).toEqual(['messages', 'model', 'stream']);
  });
});

interface Called {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
}

/** One round of tools in each caller's own words: asks, answers every call, and says what came of it. */
const ROUNDS: Readonly<
  Record<string, (prompt: string, stream: boolean) => Promise<{ calls: Called[]; text: string }>>
> = {
  async chat(prompt, stream) {
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: prompt }];
    const ask = async (): Promise<OpenAI.ChatCompletion> => {
      const body = { model: MODEL, messages, tools: [FUNCTION] };
      return stream ? openai.chat.completions.stream(body).finalChatCompletion() : openai.chat.completions.create(body);
    };
    const first = (await ask()).choices[0];
    expect(first?.finish_reason).toBe('tool_calls');
    const calls = (first?.message.tool_calls ?? []).filter((one) => one.type === 'function');
    const kept = calls.map(({ id, type, function: { name, arguments: args } }) => ({
      id,
      type,
      function: { name, arguments: args },
    }));
    messages.push(
      { role: 'assistant', content: first?.message.content ?? null, tool_calls: kept },
      ...kept.map(({ id }) => ({ role: 'tool' as const, tool_call_id: id, content: 'sunny' })),
    );
    const second = (await ask()).choices[0];
    return {
      calls: kept.map(({ id, function: { name, arguments: args } }) => ({ id, name, input: JSON.parse(args) })),
      text: second?.message.content ?? '',
    };
  },
  async messages(prompt, stream) {
    const messages: Anthropic.MessageParam[] = [{ role: 'user', content: prompt }];
    const ask = async (): Promise<Anthropic.Message> => {
      const body = { model: MODEL, max_tokens: 200, system: 'Use your tools.', messages, tools: [TOOL] };
      return stream ? anthropic.messages.stream(body).finalMessage() : anthropic.messages.create(body);
    };
    const first = await ask();
    expect(first.stop_reason).toBe('tool_use');
    const calls = first.content.filter((block) => block.type === 'tool_use');
    messages.push(
      { role: 'assistant', content: first.content },
      {
        role: 'user',
        content: calls.map(({ id }) => ({ type: 'tool_result' as const, tool_use_id: id, content: 'sunny' })),
      },
    );
    const second = await ask();
    return {
      calls: calls.map(({ id, name, input }) => ({ id, name, input })),
      text: second.content.map((block) => (block.type === 'text' ? block.text : '')).join(''),
    };
  },
  async responses(prompt, stream) {
    const input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: prompt }];
    const tools = [{ type: 'function' as const, name: 'get_weather', parameters: SCHEMA, strict: false }];
    const ask = async (): Promise<OpenAI.Responses.Response> => {
      const body = { model: MODEL, input, tools, store: false };
      return stream ? openai.responses.stream(body).finalResponse() : openai.responses.create(body);
    };
    const calls = (await ask()).output.filter((item) => item.type === 'function_call');
    input.push(
      ...calls.map(({ parsed_arguments: _, ...one }: (typeof calls)[number] & { parsed_arguments?: unknown }) => one),
      ...calls.map(({ call_id }) => ({ type: 'function_call_output' as const, call_id, output: 'sunny' })),
    );
    return {
      calls: calls.map(({ call_id, name, arguments: args }) => ({ id: call_id, name, input: JSON.parse(args) })),
      text: (await ask()).output_text,
    };
  },
};

describe('tools', () => {
  it.each(Object.keys(ROUNDS).flatMap((caller) => [false, true].map((stream) => [caller, stream] as const)))(
    'of a caller of %s (stream: %s) go through two turns, one call or two, with arguments or without',
    async (caller, stream) => {
      for (const [prompt, inputs] of [
        ['Weather in Berlin?', [{ city: 'Berlin' }]],
        ['Weather twice', [{ city: 'Berlin' }, { city: 'Paris' }]],
        ['of nothing', [{}]],
      ] as const) {
        const round = await ROUNDS[caller]?.(prompt, stream);
        expect(round?.calls.map(({ input }) => input)).toEqual(inputs);
        expect(new Set(round?.calls.map(({ id }) => id)).size).toBe(inputs.length);
        expect(round?.text).toBe('The tool says: sunny');
      }
    },
  );

  it('are chosen as the caller says: what cannot be named is the only one there is', async () => {
    const tools = [FUNCTION, OTHER];
    const names = (): unknown[] =>
      ((cohere.last.tools ?? []) as { function: Fields }[]).map((one) => one.function.name);
    for (const [choice, wanted, left] of [
      ['auto', undefined, ['get_weather', 'get_time']],
      ['required', 'REQUIRED', ['get_weather', 'get_time']],
      ['none', 'NONE', ['get_weather', 'get_time']],
      [{ type: 'function', function: { name: 'get_time' } }, 'REQUIRED', ['get_time']],
    ] as const) {
      await openai.chat.completions.create({ model: MODEL, messages: HELLO, tools, tool_choice: choice });
      expect([cohere.last.tool_choice, names()]).toEqual([wanted, left]);
    }
    const absent = { type: 'function' as const, function: { name: 'get_lost' } };
    const body = { model: MODEL, messages: HELLO, tools, tool_choice: absent };
    await expect(openai.chat.completions.create(body)).rejects.toMatchObject({ status: 400, param: 'tool_choice' });
    const strict = { ...FUNCTION, function: { ...FUNCTION.function, strict: true } };
    await openai.chat.completions.create({ model: MODEL, messages: HELLO, tools: [strict] });
    expect(cohere.last.strict_tools).toBe(true);
  });

  it('come with their plan outside strict shape, which goes back as it came', async () => {
    const body = { model: MODEL, messages: HELLO, tools: [FUNCTION] };
    const plan = 'I will look at the weather.';
    const first = (await openai.chat.completions.create(body, SHOWN)).choices[0]?.message;
    expect(first).toMatchObject({ content: null, tool_plan: plan });
    const streamed = [];
    for await (const { choices } of await openai.chat.completions.create({ ...body, stream: true }, SHOWN)) {
      streamed.push((choices[0]?.delta as Fields | undefined)?.tool_plan ?? '');
    }
    expect(streamed.join('')).toBe(plan);
    const [made] = first?.tool_calls ?? [];
    const result = { role: 'tool' as const, tool_call_id: made?.id ?? '', content: 'sunny' };
    await openai.chat.completions.create({ ...body, messages: [...HELLO, first as never, result] });
    expect((cohere.last.messages as Fields[])[1]).toMatchObject({ role: 'assistant', tool_plan: plan });
    // What another model said before its calls is their plan here.
    const said = { role: 'assistant' as const, content: 'Let me see.', tool_calls: first?.tool_calls ?? [] };
    await openai.chat.completions.create({ ...body, messages: [...HELLO, said, result] });
    expect((cohere.last.messages as Fields[])[1]).not.toHaveProperty('content');
    expect((cohere.last.messages as Fields[])[1]).toMatchObject({ tool_plan: 'Let me see.' });
  });

  it('whose results belong to no call are refused before anything is sent', async () => {
    const messages = [...HELLO, { role: 'tool' as const, tool_call_id: 'gone', content: 'x' }];
    const calls = cohere.received.length;
    await expect(openai.chat.completions.create({ model: MODEL, messages })).rejects.toMatchObject({
      status: 400,
      param: 'messages[1].tool_call_id',
    });
    expect(cohere.received).toHaveLength(calls);
  });
});

describe('thinking', () => {
  it('is of as much as the caller asks for', async () => {
    for (const [effort, thinking] of [
      ['none', { type: 'disabled' }],
      ['low', { type: 'enabled', token_budget: 1024 }],
      ['medium', { type: 'enabled', token_budget: 4096 }],
      ['high', { type: 'enabled' }],
    ] as const) {
      await openai.chat.completions.create({ model: MODEL, messages: HELLO, reasoning_effort: effort });
      expect(cohere.last.thinking).toEqual(thinking);
    }
  });

  it('is shown to chat callers outside strict shape, and goes back as it came', async () => {
    const body = { model: MODEL, messages: HELLO, reasoning_effort: 'high' as const };
    const shown = (await openai.chat.completions.create(body, SHOWN)).choices[0]?.message;
    expect(shown).toMatchObject({ content: 'You said: Grüße 🎉', reasoning_content: 'Let me think.' });
    await openai.chat.completions.create({ ...body, messages: [...HELLO, shown as never, ...HELLO] });
    expect((cohere.last.messages as Fields[])[1]).toEqual({
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'Let me think.' },
        { type: 'text', text: 'You said: Grüße 🎉' },
      ],
    });
    const strict = (await openai.chat.completions.create(body)).choices[0];
    expect(JSON.stringify(strict)).not.toContain('think');
  });

  it.each([false, true])('is shown to callers of Messages who ask for it (stream: %s)', async (stream) => {
    const body = {
      model: MODEL,
      max_tokens: 4000,
      messages: HELLO,
      thinking: { type: 'enabled' as const, budget_tokens: 3000 },
    };
    const message = stream
      ? await anthropic.messages.stream(body).finalMessage()
      : await anthropic.messages.create(body);
    expect(message.content).toMatchObject([
      { type: 'thinking', thinking: 'Let me think.' },
      { type: 'text', text: 'You said: Grüße 🎉' },
    ]);
    expect(message.usage).toMatchObject({ input_tokens: 6, cache_read_input_tokens: 64, output_tokens: 9 });
    expect(cohere.last).toMatchObject({ max_tokens: 4000, thinking: { type: 'enabled', token_budget: 3000 } });
  });
});

describe('a stream', () => {
  it.each(['-cut', '-ended', '-broken'])(
    'that breaks (%s) ends in an error, for every kind of caller',
    async (kind) => {
      const model = `command${kind}`;
      const chat = await (await call('/chat/completions', { model, messages: HELLO, stream: true })).text();
      expect(chat).toContain('You');
      expect(chat).toContain('"error"');
      expect(chat).not.toContain('[DONE]');
      expect(chat).not.toContain('"finish_reason":"stop"');
      const [record] = await server.records();
      expect(Number((record?.usage as Fields | undefined)?.output)).toBeGreaterThan(0);
      await expect(
        anthropic.messages.stream({ model, max_tokens: 50, messages: HELLO }).finalMessage(),
      ).rejects.toThrow();
      const responses = await (await call('/responses', { model, input: 'Hi', stream: true })).text();
      expect(responses).not.toContain('response.completed');
    },
  );
});

describe('errors', () => {
  it.each([
    ['error-400', 400, 'It is 400.', null],
    ['error-401', 401, 'It is 401.', 'invalid_api_key'],
    ['error-404', 404, 'It is 404.', null],
    ['error-422', 400, 'It is 422.', null],
    ['error-429', 429, 'It is 429.', 'rate_limit_exceeded'],
    ['error-498', 401, 'invalid api token', 'invalid_api_key'],
    ['error-498-blocked', 400, 'the input was blocked', 'content_filter'],
    ['error-499', 499, 'It is 499.', 'cancelled'],
    ['error-500', 500, 'It is 500.', null],
    ['error-503', 503, 'It is 503.', null],
  ])('%s is told as %i with the message of the provider', async (model, status, message, code) => {
    for (const [path, body] of [
      ['/chat/completions', { messages: HELLO }],
      ['/embeddings', { input: 'x' }],
      ['/rerank', { query: 'q', documents: ['a'] }],
    ] as const) {
      const answer = await call(path, { model, ...body });
      expect([answer.status, await jsonOf(answer)]).toMatchObject([status, { error: { message, code } }]);
    }
    await expect(anthropic.messages.create({ model, max_tokens: 9, messages: HELLO })).rejects.toMatchObject({
      status,
    });
  });
});

describe('embeddings', () => {
  it('come as floats and as the client decodes them, with what they cost', async () => {
    const asked = { model: 'embed-v4.0', input: ['a 3', 'b 5'], dimensions: 256 };
    for (const format of ['float', undefined] as const) {
      const answer = await openai.embeddings.create({ ...asked, ...(format ? { encoding_format: format } : null) });
      expect(answer.data.map(({ embedding }) => [...embedding])).toEqual([
        [3, 0.5],
        [5, 0.5],
      ]);
      expect(answer).toMatchObject({
        object: 'list',
        model: 'embed-v4.0',
        usage: { prompt_tokens: 2, total_tokens: 2 },
      });
      expect(cohere.last).toMatchObject({ input_type: 'search_document', output_dimension: 256 });
    }
    const [record] = await server.records();
    expect(record?.usage).toMatchObject({ input: 2, output: 0 });
  });

  it('of more texts than one call takes come in order, as one answer', async () => {
    const input = Array.from({ length: 200 }, (_, at) => `text ${at}`);
    const calls = cohere.received.length;
    const answer = await openai.embeddings.create({ model: 'embed-v4.0', input });
    expect(cohere.received).toHaveLength(calls + 3);
    expect(answer.data.map(({ index, embedding }) => [index, embedding[0]])).toEqual(input.map((_, at) => [at, at]));
    expect(answer.usage.prompt_tokens).toBe(200);
    const [record] = await server.records();
    expect(record?.usage).toMatchObject({ input: 200 });
  });

  it('are of pictures and of other kinds of numbers too', async () => {
    const answer = await call('/embeddings', { model: 'embed-v4.0', images: [PIXEL], embedding_types: ['int8'] });
    expect(await jsonOf(answer)).toMatchObject({ data: [{ index: 0, embedding: [64, -3] }] });
    expect(cohere.last).toMatchObject({ input_type: 'image', images: [PIXEL] });
    const query = await call('/embeddings', {
      model: 'embed-v4.0',
      input: 'q',
      input_type: 'search_query',
      truncate: 'END',
    });
    expect(query.status).toBe(200);
    expect(cohere.last).toMatchObject({ input_type: 'search_query', truncate: 'END' });
  });

  it.each([
    ['input[0]', { input: [1, 2, 3] }],
    ['embedding_types', { input: 'x', embedding_types: ['float', 'int8'] }],
    ['input', { input: 'x', images: [PIXEL] }],
    ['input', {}],
    ['late_chunking', { input: 'x', late_chunking: true }],
  ])('refuse %s', async (param, body) => {
    const answer = await call('/embeddings', { model: 'embed-v4.0', ...body });
    expect([answer.status, await jsonOf(answer)]).toMatchObject([400, { error: { param } }]);
  });
});

describe('rerank', () => {
  it('ranks texts and objects, and gives the documents back to who asks for them', async () => {
    const documents = ['a', { title: 'T', text: 'b' }];
    const asked = { model: 'rerank-v3.5', query: 'q', documents, top_n: 2, max_tokens_per_doc: 100 };
    const plain = await jsonOf(await call('/rerank', asked));
    expect(plain).toMatchObject({ object: 'list', model: 'rerank-v3.5', usage: { search_units: 1 } });
    expect(JSON.stringify(plain.results)).not.toContain('document');
    expect(cohere.last).toMatchObject({ documents: ['a', 'b'], top_n: 2, max_tokens_per_doc: 100 });
    const shown = await jsonOf(await call('/rerank', { ...asked, return_documents: true, rank_fields: ['title'] }));
    expect(shown.results).toMatchObject([
      { index: 1, document: { title: 'T', text: 'b' } },
      { index: 0, document: { text: 'a' } },
    ]);
    expect(cohere.last.documents).toEqual(['a', '{"title":"T"}']);
  });

  it.each([
    ['documents', { query: 'q', documents: [] }],
    ['query', { documents: ['a'] }],
    ['truncation', { query: 'q', documents: ['a'], truncation: true }],
  ])('refuses %s', async (param, body) => {
    const answer = await call('/rerank', { model: 'rerank-v3.5', ...body });
    expect([answer.status, await jsonOf(answer)]).toMatchObject([400, { error: { param } }]);
  });
});

it('lists its models, all of them, and tells of one', async () => {
  const listed = await openai.models.list();
  expect(listed.data).toMatchObject([{ id: MODEL, object: 'model', owned_by: 'cohere' }]);
  expect(cohere.received.at(-1)?.path).toBe('/v1/models?page_size=1000');
  expect(await openai.models.retrieve(MODEL)).toMatchObject({ id: MODEL, context_length: 256000 });
});

it('is told the name of the client', async () => {
  await openai.chat.completions.create({ model: MODEL, messages: HELLO }, { headers: { 'x-client-name': 'my app' } });
  expect(cohere.received.at(-1)?.headers['x-client-name']).toBe('my app');
});

it('is passed what has no operation here, on its own paths', async () => {
  const answer = await call('/proxy/v1/tokenize', { text: 'ab', model: MODEL });
  expect([answer.status, await jsonOf(answer)]).toMatchObject([200, { tokens: [1, 2] }]);
});
