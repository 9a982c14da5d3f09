/** The official clients through a whole server on strict fakes of the Gemini API and of Vertex AI. */
import type Anthropic from '@anthropic-ai/sdk';
import { describe, expect, it } from 'vitest';
import {
  anthropic,
  FUNCTION,
  gemini,
  HELLO,
  openai,
  ROUNDS,
  SCHEMA,
  server,
  TOOL,
  useGoogle,
  vertex,
} from '../support/google-clients.ts';
import { LOST, PIXEL } from '../support/upstreams/gemini.ts';

useGoogle();

const SHOWN = { headers: { 'x-gateway-strict-open-ai-compliance': 'false' } };

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
