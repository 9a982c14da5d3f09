/** Messages and Responses on Bedrock, by the official clients. */
import { describe, expect, it } from 'vitest';
import {
  anthropic,
  CLAUDE,
  last,
  NOVA,
  openai,
  PIXEL,
  server,
  upstream,
  useBedrock,
  user,
} from '../support/bedrock-runtime.ts';
import { claudeAnswer, claudeFrames, converseAnswer, textFrames } from '../support/upstreams/bedrock-runtime.ts';

useBedrock();

describe('messages and responses', () => {
  it('give a Claude model the call in its own words, and the answer as it is', async () => {
    const answer = claudeAnswer({
      content: [{ type: 'text', text: 'Grüße', citations: null }],
      container: null,
      odd: [1],
    });
    upstream.reply = () => answer;
    const message = await anthropic.beta.messages.create({
      model: CLAUDE,
      max_tokens: 100,
      system: [{ type: 'text', text: 'be brief', cache_control: { type: 'ephemeral' } }],
      messages: [{ role: 'user', content: 'hi' }],
      thinking: { type: 'enabled', budget_tokens: 1024 },
      metadata: { user_id: 'u' },
      service_tier: 'auto',
      betas: ['context-1m-2025-08-07'],
    });
    expect(message).toMatchObject(answer as object);
    expect(last()).toMatchObject({
      call: 'invoke',
      model: CLAUDE,
      body: {
        anthropic_version: 'bedrock-2023-05-31',
        anthropic_beta: ['context-1m-2025-08-07'],
        max_tokens: 100,
        system: [{ type: 'text', text: 'be brief', cache_control: { type: 'ephemeral' } }],
        thinking: { type: 'enabled', budget_tokens: 1024 },
        metadata: { user_id: 'u' },
      },
    });
  });

  it('stream the events of a Claude model as they are, whatever the pieces they come in', async () => {
    upstream.reply = () => claudeFrames(['Gr', 'üße']);
    for (const slice of [null, 1, 100]) {
      upstream.slice = slice;
      const stream = anthropic.messages.stream({
        model: CLAUDE,
        max_tokens: 100,
        messages: [{ role: 'user', content: 'hi' }],
      });
      const final = await stream.finalMessage();
      expect(final.content).toMatchObject([{ type: 'text', text: 'Grüße' }]);
      expect(final.usage).toMatchObject({ input_tokens: 9, cache_read_input_tokens: 4, output_tokens: 5 });
    }
    expect(last().call).toBe('invoke-with-response-stream');
    expect((await server.records())[0]).toMatchObject({
      usage: { input: 13, output: 5, cache_read: 4 },
      price: { source: 'genai-prices:aws/regional.anthropic.claude-opus-4-1-20250805-v1:0' },
    });
  });

  it('put a guardrail of Bedrock on a Claude model with the headers of InvokeModel', async () => {
    upstream.reply = () => claudeAnswer();
    const headers = { 'x-gateway-provider': '@aws' };
    const body = { model: CLAUDE, max_tokens: 10, messages: [user('hi')] };
    const guardrailConfig = { guardrailIdentifier: 'gr1abc', guardrailVersion: '2', trace: 'enabled' };
    const answer = await server.call('/messages', { ...body, guardrailConfig }, headers);
    expect(answer.status).toBe(200);
    expect(last().request.headers).toMatchObject({
      'x-amzn-bedrock-guardrailidentifier': 'gr1abc',
      'x-amzn-bedrock-guardrailversion': '2',
      'x-amzn-bedrock-trace': 'ENABLED',
    });
  });

  it('reach other models through Converse, tools and pictures included', async () => {
    upstream.reply = () =>
      converseAnswer(
        [{ text: 'Looking.' }, { toolUse: { toolUseId: 't1', name: 'weather', input: { city: 'Köln' } } }],
        'tool_use',
      );
    const tools = [{ name: 'weather', input_schema: { type: 'object' as const } }];
    const question = {
      role: 'user' as const,
      content: [
        { type: 'text' as const, text: 'weather?', cache_control: { type: 'ephemeral' as const } },
        { type: 'image' as const, source: { type: 'base64' as const, media_type: 'image/png' as const, data: PIXEL } },
      ],
    };
    const body = { model: NOVA, max_tokens: 100, top_k: 5, system: 'be brief', tools };
    const first = await anthropic.messages.create({ ...body, messages: [question] });
    expect(first).toMatchObject({
      stop_reason: 'tool_use',
      content: [
        { type: 'text', text: 'Looking.' },
        { type: 'tool_use', id: 't1', name: 'weather', input: { city: 'Köln' } },
      ],
      usage: { input_tokens: 11, output_tokens: 7 },
    });
    expect(last()).toMatchObject({
      call: 'converse',
      body: {
        system: [{ text: 'be brief' }],
        messages: [
          {
            content: [
              { text: 'weather?' },
              { cachePoint: { type: 'default' } },
              { image: { format: 'png', source: { bytes: PIXEL } } },
            ],
          },
        ],
        inferenceConfig: { maxTokens: 100 },
        additionalModelRequestFields: { inferenceConfig: { topK: 5 } },
      },
    });
    upstream.reply = () => textFrames(['Ra', 'in.']);
    const final = await anthropic.messages
      .stream({
        ...body,
        messages: [
          question,
          { role: 'assistant', content: first.content },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: 'rain' }] },
        ],
      })
      .finalMessage();
    expect(final).toMatchObject({
      content: [{ type: 'text', text: 'Rain.' }],
      stop_reason: 'end_turn',
      usage: { input_tokens: 11, output_tokens: 7 },
    });
  });

  it('answer callers of Responses, streamed and whole', async () => {
    upstream.reply = () => converseAnswer([{ text: 'Hello.' }], 'end_turn');
    const whole = await openai.responses.create({ model: NOVA, input: 'hi' });
    expect(whole.output_text).toBe('Hello.');
    upstream.reply = () => textFrames(['Hel', 'lo.']);
    const stream = openai.responses.stream({ model: CLAUDE, input: 'hi' });
    const final = await stream.finalResponse();
    expect(final.output_text).toBe('Hello.');
    expect(final.usage).toMatchObject({ input_tokens: 11, output_tokens: 7 });
  });

  it('count tokens, of a Claude model in its own words, under the id of the model and not of its profile', async () => {
    upstream.reply = () => ({ inputTokens: 42 });
    const request = { messages: [{ role: 'user' as const, content: 'hi' }], system: 'be brief' };
    expect(await anthropic.messages.countTokens({ model: CLAUDE, ...request })).toMatchObject({ input_tokens: 42 });
    expect(last()).toMatchObject({
      call: 'count-tokens',
      model: 'anthropic.claude-opus-4-1-20250805-v1:0',
      body: { anthropic_version: 'bedrock-2023-05-31', max_tokens: 1, system: 'be brief' },
    });
    await anthropic.messages.countTokens({ model: 'qwen.qwen3-32b-v1:0', ...request });
    expect(last().body).toEqual({
      messages: [{ role: 'user', content: [{ text: 'hi' }] }],
      system: [{ text: 'be brief' }],
    });
  });
});
