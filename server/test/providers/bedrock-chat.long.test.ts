/** Models of Amazon Bedrock through a whole server, asked by the official clients and answered by a strict fake. */
import { describe, expect, it } from 'vitest';
import { awsEvent } from '../support/aws-frames.ts';
import {
  CLAUDE,
  chat,
  errorOf,
  last,
  NOVA,
  openai,
  PIXEL,
  server,
  upstream,
  useBedrock,
  user,
} from '../support/bedrock-runtime.ts';
import { BEDROCK_REGION, type Fields } from '../support/upstreams/bedrock.ts';
import {
  blockStop,
  callFrames,
  claudeFrames,
  converseAnswer,
  streamEnd,
  streamStart,
  textDelta,
  textFrames,
} from '../support/upstreams/bedrock-runtime.ts';

useBedrock();

const OLD_CLAUDE = 'anthropic.claude-3-5-sonnet-20240620-v1:0';
const WEATHER = {
  type: 'function' as const,
  function: {
    name: 'weather',
    description: 'The weather of a place',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

describe('chat over Converse', () => {
  it('answers, with the usage of the cache counted in and the model in the path encoded', async () => {
    upstream.reply = () =>
      converseAnswer([{ text: 'Grüße ' }, { text: '😀' }], 'end_turn', {
        usage: {
          inputTokens: 11,
          outputTokens: 7,
          totalTokens: 118,
          cacheReadInputTokens: 90,
          cacheWriteInputTokens: 10,
        },
      });
    const { data, response } = await openai.chat.completions
      .create({
        model: NOVA,
        messages: [{ role: 'system', content: 'be brief' }, user('hi')],
        max_completion_tokens: 50,
        temperature: 0.5,
        top_p: 0.9,
        stop: ['END'],
        metadata: { team: 'a' },
      })
      .withResponse();
    expect(last()).toMatchObject({
      call: 'converse',
      model: NOVA,
      body: {
        system: [{ text: 'be brief' }],
        messages: [{ role: 'user', content: [{ text: 'hi' }] }],
        inferenceConfig: { maxTokens: 50, temperature: 0.5, topP: 0.9, stopSequences: ['END'] },
        requestMetadata: { team: 'a' },
      },
    });
    expect(last().request.path).toBe('/model/eu.amazon.nova-pro-v1%3A0/converse');
    expect(data.choices).toEqual([
      {
        index: 0,
        message: { role: 'assistant', content: 'Grüße 😀', refusal: null },
        logprobs: null,
        finish_reason: 'stop',
      },
    ]);
    expect(data).toMatchObject({ object: 'chat.completion', model: NOVA });
    expect(data.usage).toMatchObject({
      prompt_tokens: 111,
      completion_tokens: 7,
      total_tokens: 118,
      prompt_tokens_details: { cached_tokens: 90, cache_write_tokens: 10 },
    });
    expect(data.id).toMatch(/^chatcmpl-.+/);
    expect(response.headers.get('x-gateway-provider')).toBe('bedrock');
    const [record] = await server.records();
    expect(record).toMatchObject({
      provider: 'bedrock',
      model_requested: NOVA,
      usage: { input: 111, output: 7, cache_read: 90, cache_write: 10 },
      price: { source: 'genai-prices:aws/amazon.nova-pro-v1:0' },
    });
  });

  it('streams binary messages as chunks, whatever the pieces they come in', async () => {
    upstream.reply = () => textFrames(['Gr', 'üß', 'e 😀'], 'max_tokens', { cacheReadInputTokens: 5 });
    for (const slice of [null, 1, 7, 4096]) {
      upstream.slice = slice;
      const stream = await openai.chat.completions.create({
        model: NOVA,
        messages: [user('hi')],
        stream: true,
        stream_options: { include_usage: true },
      });
      const chunks = [];
      for await (const chunk of stream) chunks.push(chunk);
      expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('')).toBe('Grüße 😀');
      expect(
        chunks.filter(({ choices }) => choices[0]?.finish_reason).map(({ choices }) => choices[0]?.finish_reason),
      ).toEqual(['length']);
      expect(chunks.at(-1)?.usage).toMatchObject({ prompt_tokens: 16, completion_tokens: 7 });
      expect(new Set(chunks.map(({ id }) => id)).size).toBe(1);
    }
    expect(last().call).toBe('converse-stream');
    expect(last().request.headers.accept).toBe('application/vnd.amazon.eventstream');
  });

  it('leaves the usage chunk out where nobody asked, and records the usage', async () => {
    upstream.reply = () => textFrames(['a']);
    const answer = await chat({ stream: true });
    const text = await answer.text();
    expect(answer.headers.get('content-type')).toContain('text/event-stream');
    expect(text).not.toContain('"usage"');
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
    expect((await server.records())[0]).toMatchObject({ stream: true, usage: { input: 11, output: 7 } });
  });

  it('carries a round of tools there and back', async () => {
    upstream.reply = () =>
      converseAnswer(
        [
          { text: 'Looking.' },
          { toolUse: { toolUseId: 'tooluse_1', name: 'weather', input: { city: 'Köln' } } },
          { toolUse: { toolUseId: 'tooluse_2', name: 'weather', input: {} } },
        ],
        'tool_use',
      );
    const first = await openai.chat.completions.create({
      model: NOVA,
      messages: [user('weather?')],
      tools: [WEATHER],
      tool_choice: 'required',
    });
    expect(last().body.toolConfig).toEqual({
      tools: [
        {
          toolSpec: {
            name: 'weather',
            description: 'The weather of a place',
            inputSchema: { json: WEATHER.function.parameters },
          },
        },
      ],
      toolChoice: { any: {} },
    });
    const message = first.choices[0]?.message;
    expect(first.choices[0]?.finish_reason).toBe('tool_calls');
    expect(message?.tool_calls?.map((call) => (call.type === 'function' ? call.function.arguments : ''))).toEqual([
      '{"city":"Köln"}',
      '{}',
    ]);
    upstream.reply = () => converseAnswer([{ text: 'Rain.' }], 'end_turn');
    if (message === undefined) throw new Error('no message');
    await openai.chat.completions.create({
      model: NOVA,
      messages: [
        user('weather?'),
        message,
        { role: 'tool', tool_call_id: 'tooluse_1', content: 'rain' },
        { role: 'tool', tool_call_id: 'tooluse_2', content: [{ type: 'text', text: 'sun' }] },
        user('and?'),
      ],
    });
    expect(last().body).toMatchObject({
      messages: [
        { role: 'user', content: [{ text: 'weather?' }] },
        {
          role: 'assistant',
          content: [
            { text: 'Looking.' },
            { toolUse: { toolUseId: 'tooluse_1', name: 'weather', input: { city: 'Köln' } } },
            { toolUse: { toolUseId: 'tooluse_2', name: 'weather', input: {} } },
          ],
        },
        {
          role: 'user',
          content: [
            { toolResult: { toolUseId: 'tooluse_1', content: [{ text: 'rain' }] } },
            { toolResult: { toolUseId: 'tooluse_2', content: [{ text: 'sun' }] } },
            { text: 'and?' },
          ],
        },
      ],
      // History with calls needs a list of tools.
      toolConfig: { tools: [{ toolSpec: { name: 'weather', inputSchema: { json: { type: 'object' } } } }] },
    });
  });

  it('streams calls with indexes of their own, each with its arguments whole', async () => {
    upstream.reply = () => [
      streamStart(),
      textDelta('Looking.'),
      blockStop(0),
      ...callFrames(1, 'tooluse_1', 'weather', ['', '{"ci', 'ty":"Köln"}']),
      ...callFrames(2, 'tooluse_2', 'weather', []),
      ...streamEnd('tool_use'),
    ];
    const stream = openai.chat.completions.stream({ model: NOVA, messages: [user('weather?')], tools: [WEATHER] });
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      message: {
        content: 'Looking.',
        tool_calls: [
          { id: 'tooluse_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Köln"}' } },
          { id: 'tooluse_2', type: 'function', function: { name: 'weather', arguments: '{}' } },
        ],
      },
    });
  });

  it('sends images, documents, videos and sounds in the blocks of Converse', async () => {
    upstream.reply = () => converseAnswer([{ text: 'seen' }], 'end_turn');
    const pdf = Buffer.from('%PDF-1.7').toString('base64');
    const file = (filename: string, file_data: string) => ({ type: 'file', file: { filename, file_data } });
    const answer = await chat({
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'what is this?' },
            { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
            { type: 'image_url', image_url: { url: 's3://bucket/a.jpg' } },
            file('Bericht_2026 (1).pdf', `data:application/pdf;base64,${pdf}`),
            file('Bericht_2026 (1).pdf', `data:application/pdf;base64,${pdf}`),
            file('notes.md', `data:application/octet-stream;base64,${pdf}`),
            { type: 'video_url', video_url: { url: 's3://bucket/a.mp4' } },
            { type: 'input_audio', input_audio: { data: pdf, format: 'wav' } },
          ],
        },
      ],
    });
    expect(answer.status).toBe(200);
    expect((last().body.messages as Fields[])[0]).toEqual({
      role: 'user',
      content: [
        { text: 'what is this?' },
        { image: { format: 'png', source: { bytes: PIXEL } } },
        { image: { format: 'jpeg', source: { s3Location: { uri: 's3://bucket/a.jpg' } } } },
        { document: { format: 'pdf', name: 'Bericht 2026 (1)', source: { bytes: pdf } } },
        { document: { format: 'pdf', name: 'Bericht 2026 (1) 2', source: { bytes: pdf } } },
        { document: { format: 'md', name: 'notes', source: { bytes: pdf } } },
        { video: { format: 'mp4', source: { s3Location: { uri: 's3://bucket/a.mp4' } } } },
        { audio: { format: 'wav', source: { bytes: pdf } } },
      ],
    });
  });

  it('marks what may be cached where the caller marked it', async () => {
    upstream.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
    const cache_control = { type: 'ephemeral' };
    await chat({
      messages: [
        { role: 'system', content: [{ type: 'text', text: 'long', cache_control: { type: 'ephemeral', ttl: '1h' } }] },
        { role: 'user', content: [{ type: 'text', text: 'also long', cache_control }] },
      ],
      tools: [{ ...WEATHER, cache_control }],
    });
    expect(last().body).toMatchObject({
      system: [{ text: 'long' }, { cachePoint: { type: 'default', ttl: '1h' } }],
      messages: [{ content: [{ text: 'also long' }, { cachePoint: { type: 'default' } }] }],
      toolConfig: { tools: [{ toolSpec: { name: 'weather' } }, { cachePoint: { type: 'default' } }] },
    });
  });

  it('thinks with a Claude model, shows it outside strict shape and takes it back with its signature', async () => {
    const reasoning = [
      { reasoningContent: { reasoningText: { text: 'Hm.', signature: 'c2ln' } } },
      { reasoningContent: { redactedContent: 'c2VjcmV0' } },
      { text: 'Done.' },
    ];
    upstream.reply = () => converseAnswer(reasoning, 'end_turn');
    const thinking = { type: 'enabled', budget_tokens: 2000 };
    const answer = await chat(
      { model: CLAUDE, thinking, max_tokens: 4000 },
      {
        'x-gateway-strict-open-ai-compliance': 'false',
        'anthropic-beta': 'interleaved-thinking-2025-05-14',
      },
    );
    expect(last().body.additionalModelRequestFields).toEqual({
      thinking,
      anthropic_beta: ['interleaved-thinking-2025-05-14'],
    });
    const { message } = ((await answer.json()) as { choices: [{ message: Fields }] }).choices[0];
    expect(message).toMatchObject({
      content: 'Done.',
      reasoning_content: 'Hm.',
      content_blocks: [
        { type: 'thinking', thinking: 'Hm.', signature: 'c2ln' },
        { type: 'redacted_thinking', data: 'c2VjcmV0' },
      ],
    });
    await chat({ model: CLAUDE, messages: [user('hi'), message, user('more')], thinking, max_tokens: 4000 });
    expect((last().body.messages as Fields[])[1]).toEqual({ role: 'assistant', content: reasoning });
    const strict = await chat({ model: CLAUDE });
    expect(await strict.text()).not.toContain('Hm.');
  });

  it('streams thinking outside strict shape, and not within it', async () => {
    const thought = (value: Fields) =>
      awsEvent('contentBlockDelta', { contentBlockIndex: 0, delta: { reasoningContent: value } });
    upstream.reply = () => [
      streamStart(),
      thought({ text: 'H' }),
      thought({ text: 'm.' }),
      thought({ signature: 'c2ln' }),
      blockStop(0),
      textDelta('Done.', 1),
      blockStop(1),
      ...streamEnd('end_turn'),
    ];
    const shown = await chat({ model: CLAUDE, stream: true }, { 'x-gateway-strict-open-ai-compliance': 'false' });
    const deltas = (await shown.text())
      .split('\n\n')
      .filter((event) => event.startsWith('data: {'))
      .flatMap((event) => JSON.parse(event.slice(6)).choices.map(({ delta }: Fields) => delta as Fields));
    expect(deltas.map((delta) => delta.reasoning_content ?? '').join('')).toBe('Hm.');
    expect(deltas.flatMap((delta) => (delta.content_blocks as Fields[] | undefined) ?? [])).toEqual([
      { index: 0, content_block: { type: 'thinking', thinking: '', signature: '' } },
      { index: 0, delta: { type: 'thinking_delta', thinking: 'H' } },
      { index: 0, delta: { type: 'thinking_delta', thinking: 'm.' } },
      { index: 0, delta: { type: 'signature_delta', signature: 'c2ln' } },
    ]);
    expect(await (await chat({ model: CLAUDE, stream: true })).text()).not.toContain('Hm');
  });

  it('says how hard to think in the words of each model', async () => {
    upstream.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
    const sent = async (model: string, effort: string, more: Fields = {}): Promise<unknown> => {
      await chat({ model, reasoning_effort: effort, ...more });
      return last().body.additionalModelRequestFields;
    };
    expect(await sent('global.anthropic.claude-opus-4-8', 'minimal')).toEqual({ output_config: { effort: 'low' } });
    expect(await sent('us.anthropic.claude-sonnet-4-20250514-v1:0', 'medium')).toEqual({
      thinking: { type: 'enabled', budget_tokens: 4096 },
    });
    expect(await sent('us.anthropic.claude-sonnet-4-20250514-v1:0', 'high', { max_tokens: 3000 })).toEqual({
      thinking: { type: 'enabled', budget_tokens: 2999 },
    });
    expect(await sent('openai.gpt-oss-120b-1:0', 'high')).toEqual({ reasoning_effort: 'high' });
    expect(await sent('us.amazon.nova-2-lite-v1:0', 'high')).toEqual({
      reasoningConfig: { type: 'enabled', maxReasoningEffort: 'high' },
    });
    const refused = await chat({ model: 'meta.llama3-3-70b-instruct-v1:0', reasoning_effort: 'high' });
    expect(refused.status).toBe(400);
    expect(await errorOf(refused)).toMatchObject({ code: 'unsupported_parameter', param: 'reasoning_effort' });
  });

  it('asks for a schema where the model knows formats, and by one function where it does not', async () => {
    const schema = {
      type: 'object',
      properties: { a: { type: 'number' } },
      required: ['a'],
      additionalProperties: false,
    };
    const response_format = { type: 'json_schema' as const, json_schema: { name: 'answer', schema, strict: true } };
    upstream.reply = () => converseAnswer([{ text: '{"a":1}' }], 'end_turn');
    await openai.chat.completions.create({ model: CLAUDE, messages: [user('hi')], response_format });
    expect(last().body.outputConfig).toEqual({
      textFormat: {
        type: 'json_schema',
        structure: { jsonSchema: { schema: JSON.stringify(schema), name: 'answer' } },
      },
    });
    const name = 'json_output_answer';
    upstream.reply = () => converseAnswer([{ toolUse: { toolUseId: 't', name, input: { a: 1 } } }], 'tool_use');
    const whole = await openai.chat.completions.create({ model: OLD_CLAUDE, messages: [user('hi')], response_format });
    expect(last().body.toolConfig).toEqual({
      tools: [{ toolSpec: { name, inputSchema: { json: schema } } }],
      toolChoice: { tool: { name } },
    });
    expect(whole.choices[0]).toMatchObject({ finish_reason: 'stop', message: { content: '{"a":1}' } });
    expect(whole.choices[0]?.message.tool_calls).toBeUndefined();
    upstream.reply = () => [streamStart(), ...callFrames(0, 't', name, ['{"a"', ':1}']), ...streamEnd('tool_use')];
    const streamed = await openai.chat.completions
      .stream({ model: OLD_CLAUDE, messages: [user('hi')], response_format })
      .finalChatCompletion();
    expect(streamed.choices[0]).toMatchObject({ finish_reason: 'stop', message: { content: '{"a":1}' } });
  });

  it('puts a guardrail of Bedrock on the call, from the body or from headers, and shows its trace', async () => {
    const trace = { guardrail: { inputAssessment: { gr1: { topicPolicy: { topics: [] } } } } };
    upstream.reply = () => converseAnswer([{ text: 'Blocked.' }], 'guardrail_intervened', { trace });
    const guardrailConfig = { guardrailIdentifier: 'gr1abc', guardrailVersion: '2', trace: 'enabled' };
    const answer = await chat({ guardrailConfig }, { 'x-gateway-strict-open-ai-compliance': 'false' });
    expect(last().body.guardrailConfig).toEqual(guardrailConfig);
    expect(await answer.json()).toMatchObject({
      choices: [{ finish_reason: 'content_filter', message: { content: 'Blocked.' } }],
      trace,
    });
    const snake = { guardrail_identifier: 'gr1abc', guardrail_version: 'DRAFT', stream_processing_mode: 'async' };
    upstream.reply = () => textFrames(['Blocked.'], 'guardrail_intervened');
    await (await chat({ guardrail_config: snake, stream: true })).text();
    expect(last().body.guardrailConfig).toEqual({
      guardrailIdentifier: 'gr1abc',
      guardrailVersion: 'DRAFT',
      streamProcessingMode: 'async',
    });
    upstream.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
    await chat(
      {},
      {
        'x-amzn-bedrock-guardrailidentifier': 'gr1abc',
        'x-amzn-bedrock-guardrailversion': '3',
        'x-amzn-bedrock-trace': 'ENABLED',
      },
    );
    expect(last().body.guardrailConfig).toEqual({
      guardrailIdentifier: 'gr1abc',
      guardrailVersion: '3',
      trace: 'enabled',
    });
    const half = await chat({ guardrailConfig: { guardrailIdentifier: 'gr1abc' } });
    expect(half.status).toBe(400);
    expect(await errorOf(half)).toMatchObject({ param: 'guardrailConfig' });
  });

  it('puts the guardrail of a config on every call, which callers cannot take off', async () => {
    const guardrailConfig = { guardrailIdentifier: 'gr1abc', guardrailVersion: '2', trace: 'enabled' };
    const config = JSON.stringify({ provider: '@aws', override_params: { guardrailConfig } });
    for (const stream of [false, true]) {
      upstream.reply = () => (stream ? textFrames(['ok']) : converseAnswer([{ text: 'ok' }], 'end_turn'));
      const asked = { stream, guardrailConfig: { guardrailIdentifier: 'other', guardrailVersion: '1' } };
      const answer = await chat(asked, { 'x-gateway-config': config });
      expect(answer.status).toBe(200);
      await answer.text();
      expect(last().body.guardrailConfig).toEqual(guardrailConfig);
    }
    upstream.reply = () => claudeFrames(['ok']);
    const body = { model: CLAUDE, max_tokens: 9, stream: true, messages: [user('hi')] };
    await (await server.call('/messages', body, { 'x-gateway-config': config })).text();
    expect(last().request.headers).toMatchObject({
      'x-amzn-bedrock-guardrailidentifier': 'gr1abc',
      'x-amzn-bedrock-guardrailversion': '2',
      'x-amzn-bedrock-trace': 'ENABLED',
    });
  });

  it.each(['us.', 'us-gov.', 'eu.', 'apac.', 'jp.', 'global.'])(
    'knows the model behind a profile of %s',
    async (place) => {
      upstream.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
      const model = `${place}anthropic.claude-sonnet-4-5-20250929-v1:0`;
      for (const name of [model, `arn:aws:bedrock:${BEDROCK_REGION}:123456789012:inference-profile/${model}`]) {
        expect((await chat({ model: name, reasoning_effort: 'low', max_tokens: 2000 })).status).toBe(200);
        expect(last().model).toBe(name);
        expect(last().body.additionalModelRequestFields).toMatchObject({ thinking: { type: 'enabled' } });
      }
    },
  );

  it('passes what the model knows under its own names, latency and tiers', async () => {
    upstream.reply = () =>
      converseAnswer([{ text: 'ok' }], 'end_turn', {
        serviceTier: { type: 'flex' },
        performanceConfig: { latency: 'optimized' },
      });
    const answer = await chat({
      top_k: 5,
      additionalModelRequestFields: { inferenceConfig: { x: 1 }, other: true },
      additionalModelResponseFieldPaths: ['/stop_sequence'],
      performanceConfig: { latency: 'optimized' },
      service_tier: 'flex',
    });
    expect(last().body).toMatchObject({
      additionalModelRequestFields: { inferenceConfig: { topK: 5, x: 1 }, other: true },
      additionalModelResponseFieldPaths: ['/stop_sequence'],
      performanceConfig: { latency: 'optimized' },
      serviceTier: { type: 'flex' },
    });
    expect(await answer.json()).toMatchObject({ service_tier: 'flex' });
  });

  it('reaches profiles and ARNs in one segment of the path', async () => {
    upstream.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
    const profile = `arn:aws:bedrock:${BEDROCK_REGION}:123456789012:application-inference-profile/a1b2c3d4e5f6`;
    for (const model of [profile, `arn:aws:bedrock:${BEDROCK_REGION}::foundation-model/amazon.nova-pro-v1:0`]) {
      expect((await chat({ model })).status).toBe(200);
      expect(last().model).toBe(model);
      expect(last().request.path).not.toContain('inference-profile/');
    }
    // Who hides a Claude model behind an ARN can say so.
    const named = { 'x-gateway-provider': '@aws', 'x-gateway-aws-bedrock-model': CLAUDE };
    await chat({ model: profile, reasoning_effort: 'low' }, named);
    expect(last().body.additionalModelRequestFields).toEqual({ thinking: { type: 'enabled', budget_tokens: 1024 } });
    const message = { model: profile, messages: [user('hi')] };
    upstream.reply = () => claudeFrames(['ok']);
    const told = await server.call('/messages', { ...message, max_tokens: 9, stream: true }, named);
    expect(await told.text()).toContain('message_stop');
    expect(last()).toMatchObject({ call: 'invoke-with-response-stream', model: profile });
    // Counting refuses profiles.
    upstream.reply = () => ({ inputTokens: 7 });
    const counted = await server.call('/messages/count_tokens', message, named);
    expect(await counted.json()).toEqual({ input_tokens: 7 });
    expect(last().model).toBe(CLAUDE.replace('eu.', ''));
  });

  it.each([
    ['n', { n: 2 }],
    ['seed', { seed: 1 }],
    ['logprobs', { logprobs: true }],
    ['logit_bias', { logit_bias: { '1': 1 } }],
    ['presence_penalty', { presence_penalty: 1 }],
    ['temperature', { temperature: 1.5 }],
    ['parallel_tool_calls', { parallel_tool_calls: false, tools: [WEATHER] }],
    ['response_format', { response_format: { type: 'json_object' } }],
    [
      'messages[0].content[0].image_url.url',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'gs://bucket/a.png' } }] }] },
    ],
    [
      'messages[0].content[0].file.file_id',
      { messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: 'file-1' } }] }] },
    ],
  ] as const)('refuses %s by name and calls nothing', async (param, body) => {
    const answer = await chat(body as Fields);
    expect(answer.status).toBe(400);
    expect(await errorOf(answer)).toMatchObject({ code: 'unsupported_parameter', param });
    expect(upstream.calls).toEqual([]);
  });

  it('is never answered from the cache of calls with other guardrails, vectors of Bedrock included', async () => {
    upstream.reply = ({ call }) =>
      call === 'invoke' ? { embedding: [1, 0], inputTextTokenCount: 2 } : converseAnswer([{ text: 'ok' }], 'end_turn');
    const embedding = { provider: '@aws', model: 'amazon.titan-embed-text-v2:0' };
    const config = JSON.stringify({ provider: '@aws', cache: { mode: 'semantic', threshold: 0, embedding } });
    const ask = async (headers: Record<string, string> = {}): Promise<string | null> => {
      const body = { model: NOVA, messages: [user('does it mean the same?')] };
      const answer = await server.call('/chat/completions', body, { 'x-gateway-config': config, ...headers });
      expect(answer.status).toBe(200);
      await answer.text();
      return answer.headers.get('x-gateway-cache-status');
    };
    const guarded = { 'x-amzn-bedrock-guardrailidentifier': 'gr1', 'x-amzn-bedrock-guardrailversion': '1' };
    expect(await ask()).toContain('MISS');
    await expect.poll(() => ask()).toContain('HIT');
    expect(await ask(guarded)).toContain('MISS');
    await expect.poll(() => ask(guarded)).toContain('HIT');
    expect(await ask({ ...guarded, 'x-amzn-bedrock-guardrailversion': '2' })).toContain('MISS');
  });

  it('leaves out what drop_params lists', async () => {
    upstream.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
    const config = JSON.stringify({ provider: '@aws', drop_params: ['seed', 'n'] });
    const answer = await server.call(
      '/chat/completions',
      { model: NOVA, messages: [user('hi')], seed: 1, n: 2 },
      { 'x-gateway-config': config },
    );
    expect(answer.status).toBe(200);
    expect(last().body).toEqual({ messages: [{ role: 'user', content: [{ text: 'hi' }] }] });
  });
});
