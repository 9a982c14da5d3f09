/** The official clients through a whole server on strict fakes of the Gemini API and of Vertex AI. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI, { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import type { StrictUpstream } from '../support/strict-upstream.ts';
import { GEMINI_KEY, LOST, PIXEL, startGemini } from '../support/upstreams/gemini.ts';
import { startVertexModels, VERTEX_TOKEN } from '../support/upstreams/vertex-predict.ts';

let server: TestServer;
let gemini: StrictUpstream;
let vertex: StrictUpstream;
let openai: OpenAI;
let anthropic: Anthropic;

beforeAll(async () => {
  gemini = await startGemini();
  vertex = await startVertexModels();
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${gemini.port},127.0.0.1:${vertex.port}` });
  await server.provider({ id: 'google', host: `${gemini.url}/v1beta`, key: GEMINI_KEY, slug: 'gem' });
  await server.provider({
    id: 'vertex-ai',
    host: `${vertex.url}/v1`,
    key: VERTEX_TOKEN,
    slug: 'vertex',
    configurations: { vertex_auth_type: 'basic', vertex_region: 'us-central1', vertex_project_id: 'test-project' },
  });
  const apiKey = server.first.workspace_api_key;
  openai = new OpenAI({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0 });
  anthropic = new Anthropic({ apiKey, baseURL: server.url, maxRetries: 0 });
});

afterEach(() => {
  expect([...gemini.faults.splice(0), ...vertex.faults.splice(0)]).toEqual([]);
});

afterAll(async () => {
  await server?.stop();
  await gemini?.stop();
  await vertex?.stop();
});

const SCHEMA = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  type: 'object' as const,
  properties: { city: { type: 'string' as const }, kind: { const: 'now' } },
  required: ['city'],
  additionalProperties: false,
};
const FUNCTION = { type: 'function' as const, function: { name: 'get_weather', parameters: SCHEMA } };
const TOOL = { name: 'get_weather', input_schema: SCHEMA };
const HELLO = [{ role: 'user' as const, content: 'Grüße 🎉' }];
const SHOWN = { headers: { 'x-gateway-strict-open-ai-compliance': 'false' } };

interface Called {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
}

/** One round of tools in each caller's own words: asks, answers every call, and says what came of it. */
const ROUNDS: Readonly<
  Record<string, (model: string, prompt: string, stream: boolean) => Promise<{ calls: Called[]; text: string }>>
> = {
  async chat(model, prompt, stream) {
    const messages: OpenAI.ChatCompletionMessageParam[] = [
      { role: 'system', content: 'Use your tools.' },
      { role: 'user', content: prompt },
    ];
    const ask = async (): Promise<OpenAI.ChatCompletion> => {
      const body = { model, messages, tools: [FUNCTION] };
      return stream ? openai.chat.completions.stream(body).finalChatCompletion() : openai.chat.completions.create(body);
    };
    const first = (await ask()).choices[0];
    expect(first?.finish_reason).toBe('tool_calls');
    const calls = (first?.message.tool_calls ?? []).filter((call) => call.type === 'function');
    // As an application does that keeps what it was given; the client's helper adds `parsed_arguments` to it.
    const kept = calls.map(({ function: { name, arguments: args }, ...call }) => ({
      ...call,
      function: { name, arguments: args },
    }));
    messages.push(
      { role: 'assistant', content: first?.message.content ?? null, tool_calls: kept },
      ...calls.map((call) => ({ role: 'tool' as const, tool_call_id: call.id, content: 'sunny' })),
    );
    const second = (await ask()).choices[0];
    return {
      calls: calls.map(({ id, function: { name, arguments: args } }) => ({ id, name, input: JSON.parse(args) })),
      text: second?.message.content ?? '',
    };
  },
  async messages(model, prompt, stream) {
    const messages: Anthropic.MessageParam[] = [{ role: 'user', content: prompt }];
    const ask = async (): Promise<Anthropic.Message> => {
      const body = { model, max_tokens: 200, system: 'Use your tools.', messages, tools: [TOOL] };
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
  async responses(model, prompt, stream) {
    const input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: prompt }];
    const tools = [{ type: 'function' as const, name: 'get_weather', parameters: SCHEMA, strict: false }];
    const ask = async (): Promise<OpenAI.Responses.Response> => {
      const body = { model, instructions: 'Use your tools.', input, tools, store: false };
      return stream ? openai.responses.stream(body).finalResponse() : openai.responses.create(body);
    };
    const first = await ask();
    const calls = first.output.filter((item) => item.type === 'function_call');
    input.push(
      ...calls.map(({ parsed_arguments: _, ...call }: (typeof calls)[number] & { parsed_arguments?: unknown }) => call),
      ...calls.map(({ call_id }) => ({ type: 'function_call_output' as const, call_id, output: 'sunny' })),
    );
    const second = await ask();
    return {
      calls: calls.map(({ call_id, name, arguments: args }) => ({ id: call_id, name, input: JSON.parse(args) })),
      text: second.output_text,
    };
  },
};

const ROWS = Object.keys(ROUNDS).flatMap((caller) =>
  [false, true].flatMap((stream) =>
    ['@gem/gemini-3-pro-preview', '@gem/gemini-2.5-flash', '@vertex/google/gemini-3-pro-preview'].map(
      (model) => [caller, stream, model] as const,
    ),
  ),
);

describe('tools', () => {
  it.each(ROWS)('of a caller of %s (stream: %s) go through two turns with %s', async (caller, stream, model) => {
    const { calls, text } = (await ROUNDS[caller]?.(model, 'Weather in Berlin?', stream)) ?? { calls: [], text: '' };
    expect(calls).toEqual([{ id: expect.stringMatching(/^[\w-]+$/), name: 'get_weather', input: { city: 'Berlin' } }]);
    expect(text).toBe('The tool says: sunny');
    // Later models get back the signature they gave; the upstream refuses one that it did not.
    const upstream = model.startsWith('@gem') ? gemini : vertex;
    const sent = JSON.stringify(upstream.last);
    expect(sent.includes('thoughtSignature')).toBe(model.includes('gemini-3'));
    expect(sent).not.toContain(LOST);
  });

  it.each(Object.keys(ROUNDS))('called side by side by a caller of %s are answered side by side', async (caller) => {
    for (const stream of [false, true]) {
      const round = await ROUNDS[caller]?.('@gem/gemini-3-pro-preview', 'Weather twice', stream);
      expect(round?.calls.map(({ input }) => input)).toEqual([{ city: 'Berlin' }, { city: 'Paris' }]);
      expect(new Set(round?.calls.map(({ id }) => id)).size).toBe(2);
      expect(round?.text).toBe('The tool says: sunny');
    }
  });

  it('called by another model before are told as such', async () => {
    const call = { id: 'toolu_1', type: 'function' as const, function: { name: 'get_weather', arguments: '{}' } };
    const answer = await openai.chat.completions.create({
      model: '@gem/gemini-3-pro-preview',
      messages: [
        ...HELLO,
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: 'toolu_1', content: '{"degrees":21}' },
      ],
      tools: [FUNCTION],
    });
    expect(answer.choices[0]?.message.content).toBe('The tool says: {"degrees":21}');
    expect(JSON.stringify(gemini.last)).toContain(LOST);
  });

  it('are chosen as the caller says', async () => {
    for (const [choice, config] of [
      ['required', { mode: 'ANY' }],
      ['none', { mode: 'NONE' }],
      [
        { type: 'function', function: { name: 'get_weather' } },
        { mode: 'ANY', allowedFunctionNames: ['get_weather'] },
      ],
    ] as const) {
      await openai.chat.completions.create({
        model: '@gem/gemini-2.5-flash',
        messages: HELLO,
        tools: [FUNCTION],
        tool_choice: choice,
      });
      expect(gemini.last.toolConfig).toEqual({ functionCallingConfig: config });
    }
  });
});

it('go on with another provider, which is not shown what belongs to the first', async () => {
  const messages: Anthropic.MessageParam[] = [{ role: 'user', content: 'Weather in Berlin?' }];
  const asked = { max_tokens: 200, messages, tools: [TOOL] };
  const first = await anthropic.messages.create({ ...asked, model: '@gem/gemini-3-pro-preview' });
  expect(JSON.stringify(first.content)).toContain('thought_signature');
  const results = first.content.flatMap((block) =>
    block.type === 'tool_use' ? [{ type: 'tool_result' as const, tool_use_id: block.id, content: 'sunny' }] : [],
  );
  messages.push({ role: 'assistant', content: first.content }, { role: 'user', content: results });
  // Its upstream refuses fields that Messages does not have.
  const second = await anthropic.messages.create({ ...asked, model: '@vertex/claude-sonnet-4-5@20250929' });
  expect(second.content).toMatchObject([{ type: 'text', text: 'The tool says: sunny' }]);
});

describe('chat', () => {
  it.each([
    '@gem/gemini-2.5-flash',
    '@gem/models/gemini-2.5-flash',
    '@vertex/gemini-2.5-flash',
    '@vertex/endpoints/1234',
  ])('is answered by %s, whole and as a stream, with what it used', async (model) => {
    const body = { model, messages: HELLO, max_completion_tokens: 50, temperature: 0.5, stop: ['END'], seed: 7 };
    const whole = await openai.chat.completions.create(body);
    const streamed = await openai.chat.completions
      .stream({ ...body, stream_options: { include_usage: true } })
      .finalChatCompletion();
    for (const answer of [whole, streamed]) {
      expect(answer.choices[0]).toMatchObject({ message: { content: 'You said: Grüße 🎉' }, finish_reason: 'stop' });
      expect(answer.usage).toMatchObject({
        prompt_tokens: 9,
        completion_tokens: 7,
        total_tokens: 16,
        prompt_tokens_details: { cached_tokens: 2 },
        completion_tokens_details: { reasoning_tokens: 3 },
      });
    }
    const upstream = model.startsWith('@gem') ? gemini : vertex;
    expect(upstream.last.generationConfig).toEqual({
      maxOutputTokens: 50,
      temperature: 0.5,
      stopSequences: ['END'],
      seed: 7,
    });
  });

  it('is recorded with the model that answered, its tokens and its price', async () => {
    for (const stream of [false, true]) {
      const body = { model: '@gem/gemini-2.5-flash', messages: HELLO, stream };
      const answer = await server.call('/chat/completions', body);
      expect(await answer.text()).toContain('Gr');
      const [record] = await server.records();
      expect(record).toMatchObject({ status: 200, provider: 'google', model_answered: 'gemini-2.5-flash' });
      expect(record?.usage).toMatchObject({ input: 9, output: 7, cache_read: 2, reasoning: 3 });
      expect(Number(record?.cost_micros)).toBeGreaterThan(0);
    }
  });

  it('makes several choices, with probabilities', async () => {
    const answer = await openai.chat.completions.create({
      model: '@gem/gemini-2.5-flash',
      messages: HELLO,
      n: 2,
      logprobs: true,
      top_logprobs: 1,
    });
    expect(answer.choices.map(({ index }) => index)).toEqual([0, 1]);
    expect(answer.choices[0]?.logprobs?.content?.[0]).toEqual({
      token: 'You',
      logprob: -0.5,
      bytes: [89, 111, 117],
      top_logprobs: [{ token: 'You', logprob: -0.5, bytes: [89, 111, 117] }],
    });
    const streamed = await openai.chat.completions
      .stream({ model: '@gem/gemini-2.5-flash', messages: HELLO, n: 2 })
      .finalChatCompletion();
    expect(streamed.choices.map(({ message }) => message.content)).toEqual(Array(2).fill('You said: Grüße 🎉'));
  });

  it('sends pictures, sound and files', async () => {
    const answer = await openai.chat.completions.create({
      model: '@gem/gemini-2.5-flash',
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'See ' },
            { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
            { type: 'image_url', image_url: { url: 'https://youtu.be/9hE5-98ZeCg' } },
            { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } },
            { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,AAAA' } },
          ],
        },
      ],
    });
    expect(answer.choices[0]?.message.content).toBe(
      'You said: See image/pnghttps://youtu.be/9hE5-98ZeCgaudio/wavapplication/pdf',
    );
  });

  it('keeps to a schema, for every kind of caller', async () => {
    const chat = await openai.chat.completions.create({
      model: '@gem/gemini-2.5-flash',
      messages: HELLO,
      response_format: { type: 'json_schema', json_schema: { name: 'place', schema: SCHEMA, strict: true } },
    });
    expect(chat.choices[0]?.message.content).toBe('{"city":"Berlin"}');
    expect(gemini.last.generationConfig).toEqual({
      responseMimeType: 'application/json',
      responseJsonSchema: {
        type: 'object',
        properties: { city: { type: 'string' }, kind: { enum: ['now'] } },
        required: ['city'],
        additionalProperties: false,
      },
    });
    const message = await anthropic.messages.create({
      model: '@gem/gemini-2.5-flash',
      max_tokens: 100,
      messages: HELLO,
      output_config: { format: { type: 'json_schema', schema: SCHEMA } },
    });
    expect(message.content).toEqual([{ type: 'text', text: '{"city":"Berlin"}' }]);
  });

  it.each([
    ['parallel_tool_calls', { tools: [FUNCTION], parallel_tool_calls: false }],
    ['logit_bias', { logit_bias: { 50256: -100 } }],
    ['prediction', { prediction: { type: 'content' as const, content: 'x' } }],
    ['reasoning_effort', { reasoning_effort: 'xhigh' as const }],
  ])('refuses %s by name, unless the config drops it', async (param, more) => {
    const body = { model: '@gem/gemini-2.5-flash', messages: HELLO, ...more };
    const calls = gemini.received.length;
    await expect(openai.chat.completions.create(body)).rejects.toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      param,
    });
    expect(gemini.received).toHaveLength(calls);
    const config = JSON.stringify({ provider: '@gem', drop_params: [param] });
    const dropped = await openai.chat.completions.create(
      { ...body, model: 'gemini-2.5-flash' },
      { headers: { 'x-gateway-config': config } },
    );
    expect(dropped.choices).toHaveLength(1);
  });

  it('paints in a conversation', async () => {
    const body = { model: '@gem/gemini-2.5-flash-image', messages: HELLO, modalities: ['text', 'image'] };
    const answer = await server.call('/chat/completions', body);
    const { choices } = (await answer.json()) as { choices: { message: unknown }[] };
    const images = [{ type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } }];
    expect(choices[0]?.message).toMatchObject({ content: '', images });
  });
});

describe('thinking', () => {
  it('of as much as the caller asks for, told in the words of each generation', async () => {
    for (const [model, config] of [
      ['gemini-2.5-pro', { thinkingBudget: 8192 }],
      ['gemini-3-pro-preview', { thinkingLevel: 'MEDIUM' }],
    ] as const) {
      await openai.chat.completions.create({ model: `@gem/${model}`, messages: HELLO, reasoning_effort: 'medium' });
      expect(gemini.last.generationConfig).toEqual({ thinkingConfig: config });
    }
  });

  it('is shown to chat callers outside strict shape, and to nobody else', async () => {
    const body = { model: '@gem/gemini-2.5-pro', messages: HELLO, reasoning_effort: 'low' as const };
    const shown = (await openai.chat.completions.create(body, SHOWN)).choices[0];
    expect(shown?.message).toMatchObject({ content: 'You said: Grüße 🎉', reasoning_content: 'Let me think.' });
    expect(shown).toMatchObject({ native_finish_reason: 'STOP', safetyRatings: [{ probability: 'NEGLIGIBLE' }] });
    let thought = '';
    for await (const { choices } of await openai.chat.completions.create({ ...body, stream: true }, SHOWN)) {
      const delta = choices[0]?.delta as { reasoning_content?: string } | undefined;
      thought += delta?.reasoning_content ?? '';
    }
    expect(thought).toBe('Let me think.');
    const strict = (await openai.chat.completions.create(body)).choices[0];
    expect(Object.keys(strict?.message ?? {}).sort()).toEqual(['content', 'refusal', 'role']);
  });

  it.each([false, true])('is shown to callers of Messages who ask for it (stream: %s)', async (stream) => {
    const body = {
      model: '@gem/gemini-2.5-pro',
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
    expect(message.usage).toMatchObject({ input_tokens: 7, cache_read_input_tokens: 2, output_tokens: 7 });
    expect(gemini.last.generationConfig).toEqual({
      maxOutputTokens: 4000,
      thinkingConfig: { thinkingBudget: 3000, includeThoughts: true },
    });
  });

  it.each([false, true])('is summed up for callers of Responses who ask for it (stream: %s)', async (stream) => {
    const body = {
      model: '@gem/gemini-3-pro-preview',
      input: 'Grüße',
      reasoning: { effort: 'low' as const, summary: 'auto' as const },
    };
    const answer = stream ? await openai.responses.stream(body).finalResponse() : await openai.responses.create(body);
    expect(answer.output).toMatchObject([
      { type: 'reasoning', summary: [{ text: 'Let me think.' }] },
      { type: 'message', content: [{ text: 'You said: Grüße' }] },
    ]);
    expect(gemini.last.generationConfig).toEqual({ thinkingConfig: { thinkingLevel: 'LOW', includeThoughts: true } });
  });
});

describe('what Google does not let through', () => {
  it.each(['blocked prompt', 'unsafe'])('is told as filtered, in the words of each caller: %s', async (prompt) => {
    const messages = [{ role: 'user' as const, content: prompt }];
    const model = '@gem/gemini-2.5-flash';
    const chat = await openai.chat.completions.create({ model, messages });
    expect(chat.choices).toMatchObject([{ message: { content: '' }, finish_reason: 'content_filter' }]);
    const streamed = await openai.chat.completions.stream({ model, messages }).finalChatCompletion();
    expect(streamed.choices[0]?.finish_reason).toBe('content_filter');
    const message = await anthropic.messages.create({ model, max_tokens: 10, messages });
    expect(message).toMatchObject({ content: [], stop_reason: 'refusal' });
    expect((await anthropic.messages.stream({ model, max_tokens: 10, messages }).finalMessage()).stop_reason).toBe(
      'refusal',
    );
    const response = await openai.responses.create({ model, input: prompt });
    expect(response).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'content_filter' } });
  });

  it('is decided by the settings of the request', async () => {
    const safety_settings = [{ category: 'HARM_CATEGORY_HARASSMENT', threshold: 'BLOCK_NONE' }];
    const answer = await server.call('/chat/completions', {
      model: '@gem/gemini-2.5-flash',
      messages: HELLO,
      safety_settings,
    });
    expect(answer.status).toBe(200);
    expect(gemini.last.safetySettings).toEqual(safety_settings);
  });
});

describe('errors', () => {
  it.each([false, true])(
    'reach callers with their status and the wait that Google names (stream: %s)',
    async (stream) => {
      const ask = (code: number) =>
        openai.chat.completions
          .create({ model: `@gem/error-${code}`, messages: HELLO, stream })
          .catch((error) => error);
      const limited = await ask(429);
      expect(limited).toMatchObject({ status: 429, code: 'rate_limit_exceeded', type: 'rate_limit_error' });
      expect(limited.headers.get('retry-after')).toBe('7');
      expect(await ask(503)).toMatchObject({ status: 503, type: 'overloaded_error', code: 'overloaded' });
      // A wrong key is a wrong credential, whatever Google calls it.
      expect(await ask(400)).toMatchObject({ status: 401, code: 'invalid_api_key' });
      expect(await ask(500)).toMatchObject({ status: 500, type: 'api_error' });
    },
  );

  it('are Anthropic errors to callers of Messages', async () => {
    const body = { model: '@gem/error-429', max_tokens: 10, messages: HELLO };
    await expect(anthropic.messages.create(body)).rejects.toMatchObject({
      status: 429,
      error: { type: 'error', error: { type: 'rate_limit_error', message: 'It is RESOURCE_EXHAUSTED.' } },
    });
  });

  it('in the middle of a stream, and streams that are cut, never look like an end', async () => {
    for (const [model, message] of [
      ['@gem/gemini-2.5-flash-broken', 'The service is currently unavailable.'],
      ['@gem/gemini-2.5-flash-cut', /cut|closed/],
    ] as const) {
      const chat = openai.chat.completions.stream({ model, messages: HELLO }).finalChatCompletion();
      await expect(chat).rejects.toThrow(message);
      const said = anthropic.messages.stream({ model, max_tokens: 10, messages: HELLO }).finalMessage();
      await expect(said).rejects.toThrow(message);
    }
  });
});

describe('embeddings, pictures, models and counting', () => {
  it('embed texts, as numbers and as the client asks for them', async () => {
    for (const encoding_format of [undefined, 'float' as const]) {
      const answer = await openai.embeddings.create({
        model: '@gem/gemini-embedding-001',
        input: ['a', 'b'],
        dimensions: 2,
        ...(encoding_format ? { encoding_format } : null),
      });
      expect(answer.data.map(({ embedding }) => [...embedding])).toEqual([
        [0, 0.5],
        [1, 0.5],
      ]);
      expect(answer.usage.prompt_tokens).toBe(7);
    }
    const tokens = openai.embeddings.create({ model: '@gem/gemini-embedding-001', input: [[1, 2]] });
    await expect(tokens).rejects.toMatchObject({ status: 400, param: 'input[0]' });
  });

  it('embed on Vertex AI by each model in its own way', async () => {
    const embed = async (model: string, input: unknown) => {
      const answer = await server.call('/embeddings', { model: `@vertex/${model}`, input });
      const body = (await answer.json()) as { data: { embedding: number[] }[]; usage: { prompt_tokens: number } };
      return { vectors: body.data.map(({ embedding }) => embedding), tokens: body.usage.prompt_tokens };
    };
    expect(await embed('text-embedding-005', ['a', 'b'])).toEqual({
      vectors: [
        [0, 0.5],
        [1, 0.5],
      ],
      tokens: 8,
    });
    expect((await server.records())[0]?.usage).toMatchObject({ input: 8 });
    expect(await embed('gemini-embedding-2', 'a')).toEqual({ vectors: [[0.25, 0.5]], tokens: 3 });
    const many = Array(3).fill([0.25, 0.5]);
    expect(await embed('gemini-embedding-2', ['a', 'b', 'c'])).toEqual({ vectors: many, tokens: 9 });
    expect((await server.records())[0]?.usage).toMatchObject({ input: 9 });
    const picture = { image: { url: `data:image/png;base64,${PIXEL}` } };
    expect((await embed('multimodalembedding@001', ['a', picture])).vectors).toEqual([
      [3, 4],
      [1, 2],
    ]);
  });

  it.each(['@gem/imagen-4.0-generate-001', '@vertex/imagen-4.0-generate-001', '@gem/gemini-2.5-flash-image'])(
    'paint with %s',
    async (model) => {
      const answer = await openai.images.generate({ model, prompt: 'A cat', size: '1024x1024' });
      expect(answer.data).toEqual([{ b64_json: PIXEL }]);
      await expect(openai.images.generate({ model, prompt: 'unsafe' })).rejects.toMatchObject({
        status: 400,
        code: 'content_filter',
      });
      const url = openai.images.generate({ model, prompt: 'A cat', response_format: 'url' });
      await expect(url).rejects.toMatchObject({ status: 400, param: 'response_format' });
    },
  );

  it.each(['@vertex/imagen-3.0-capability-001', '@gem/gemini-2.5-flash-image', '@vertex/gemini-2.5-flash-image'])(
    'edit pictures with %s',
    async (model) => {
      const upstream = model.startsWith('@gem') ? gemini : vertex;
      const image = async (name: string) => toFile(Buffer.from(PIXEL, 'base64'), name, { type: 'image/png' });
      const answer = await openai.images.edit({
        model,
        prompt: 'Add a hat',
        image: await image('a.png'),
        size: '1024x1024',
      });
      expect(answer.data).toEqual([{ b64_json: PIXEL }]);
      const two = [await image('a.png'), await image('b.png')];
      expect((await openai.images.edit({ model, prompt: 'Both', image: two })).data).toHaveLength(1);
      expect(String(upstream.received.at(-1)?.body).split(PIXEL)).toHaveLength(3);
      const calls = upstream.received.length;
      const masked = openai.images.edit({
        model,
        prompt: 'Add a hat',
        image: await image('a.png'),
        mask: await image('m.png'),
      });
      await expect(masked).rejects.toMatchObject({ status: 400, param: 'mask' });
      const filtered = openai.images.edit({ model, prompt: 'unsafe', image: await image('a.png') });
      await expect(filtered).rejects.toMatchObject({ status: 400, code: 'content_filter' });
      expect(upstream.received).toHaveLength(calls + 1);
    },
  );

  it('list models, and count tokens for callers of Messages', async () => {
    const models = await openai.models.list({ headers: { 'x-gateway-provider': '@gem' } });
    expect(models.data).toMatchObject([{ id: 'gemini-2.5-flash', object: 'model', owned_by: 'google' }]);
    const one = await openai.models.retrieve('gemini-2.5-flash', { headers: { 'x-gateway-provider': '@gem' } });
    expect(one.id).toBe('gemini-2.5-flash');
    const { data } = await openai.models.list({ headers: { 'x-gateway-provider': '@vertex' } });
    expect(data).toMatchObject([
      { id: 'gemini-2.5-flash', object: 'model', owned_by: 'google' },
      { id: 'claude-sonnet-4-5@20250929', object: 'model', owned_by: 'anthropic' },
    ]);
    const claude = await openai.models.retrieve('claude-sonnet-4-5@20250929', {
      headers: { 'x-gateway-provider': '@vertex' },
    });
    expect(claude).toMatchObject({ id: 'claude-sonnet-4-5@20250929', owned_by: 'anthropic' });
    for (const [model, count] of [
      ['@gem/gemini-2.5-flash', 11],
      ['@vertex/gemini-2.5-flash', 11],
      ['@vertex/claude-sonnet-4-5@20250929', 9],
    ] as const) {
      const asked = { model, system: 'Be brief.', messages: HELLO, tools: [TOOL] };
      expect((await anthropic.messages.countTokens(asked)).input_tokens).toBe(count);
    }
  });
});

describe('other makers on Vertex AI', () => {
  it.each(['@vertex/claude-sonnet-4-5@20250929', '@vertex/anthropic/claude-sonnet-4-5@20250929'])(
    'serve %s to every caller, whole and as a stream',
    async (model) => {
      const asked = { model, max_tokens: 50, messages: HELLO };
      const message = await anthropic.beta.messages.create({ ...asked, betas: ['context-1m-2025-08-07'] });
      expect(message.content).toMatchObject([{ type: 'text', text: 'You said: Grüße 🎉' }]);
      expect(vertex.received.at(-1)?.headers['anthropic-beta']).toBe('context-1m-2025-08-07');
      expect(vertex.received.at(-1)?.path).toBe(
        '/v1/projects/test-project/locations/us-central1/publishers/anthropic/models/claude-sonnet-4-5@20250929:rawPredict',
      );
      const streamed = await anthropic.messages.stream(asked).finalMessage();
      expect(streamed.content).toMatchObject([{ type: 'text', text: 'You said: Grüße 🎉' }]);
      for (const caller of ['chat', 'responses'] as const) {
        for (const stream of [false, true]) {
          const round = await ROUNDS[caller]?.(model, 'Weather in Berlin?', stream);
          expect(round).toMatchObject({ calls: [{ input: { city: 'Berlin' } }], text: 'The tool says: sunny' });
        }
      }
    },
  );

  it.each([
    ['@vertex/mistralai/mistral-small-2503', 'mistral-small-2503'],
    ['@vertex/codestral-2', 'codestral-2'],
    ['@vertex/meta/llama-3.3-70b-instruct-maas', 'meta/llama-3.3-70b-instruct-maas'],
  ])('serve %s in its own form', async (model, name) => {
    const body = { model, messages: HELLO, max_completion_tokens: 20 };
    expect((await openai.chat.completions.create(body)).choices[0]?.message.content).toBe(`I am ${name}`);
    const streamed = await openai.chat.completions.stream(body).finalChatCompletion();
    expect(streamed.choices[0]?.message.content).toBe(`I am ${name}`);
    const message = await anthropic.messages.create({ model, max_tokens: 20, messages: HELLO });
    expect(message.content).toMatchObject([{ text: `I am ${name}` }]);
  });
});

describe('an account on Vertex AI', () => {
  it('passes on how its capacity is to be used', async () => {
    const headers = { 'x-vertex-ai-llm-request-type': 'shared' };
    await openai.chat.completions.create({ model: '@vertex/gemini-2.5-flash', messages: HELLO }, { headers });
    expect(vertex.received.at(-1)?.headers).toMatchObject(headers);
  });

  it('signs in with an API key where it has one, also without a project', async () => {
    const key = 'AIzaSyKeyOfNobody';
    const express = await startVertexModels(key);
    const other = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${express.port}` });
    try {
      const answer = await fetch(`${other.url}/v1/chat/completions`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'x-gateway-api-key': other.first.workspace_api_key,
          'x-gateway-provider': 'vertex-ai',
          'x-gateway-custom-host': `${express.url}/v1`,
          authorization: `Bearer ${key}`,
        },
        body: JSON.stringify({ model: 'gemini-2.5-flash', messages: HELLO }),
      });
      expect(answer.status).toBe(200);
      expect(express.received[0]?.path).toBe('/v1/publishers/google/models/gemini-2.5-flash:generateContent');
      expect(express.faults).toEqual([]);
    } finally {
      await other.stop();
      await express.stop();
    }
  });

  it('answers 400 for a model name that would leave its path', async () => {
    for (const model of ['../../../other', 'gemini/../x', 'a:b']) {
      const refused = openai.chat.completions.create({ model: `@vertex/google/${model}`, messages: HELLO });
      await expect(refused).rejects.toMatchObject({ status: 400, param: 'model' });
    }
  });
});
