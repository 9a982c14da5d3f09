/** Models of Amazon Bedrock through a whole server, asked by the official clients and answered by a strict fake. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { awsEvent, awsException } from '../support/aws-frames.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { AWS_KEYS, BEDROCK_KEY, BEDROCK_REGION, type Fields } from '../support/upstreams/bedrock.ts';
import {
  type BedrockRuntime,
  blockStop,
  callFrames,
  claudeAnswer,
  claudeFrames,
  converseAnswer,
  type RuntimeCall,
  startBedrockRuntime,
  streamEnd,
  streamStart,
  textDelta,
  textFrames,
} from '../support/upstreams/bedrock-runtime.ts';

const NOVA = 'eu.amazon.nova-pro-v1:0';
const CLAUDE = 'eu.anthropic.claude-opus-4-1-20250805-v1:0';
const OLD_CLAUDE = 'anthropic.claude-3-5-sonnet-20240620-v1:0';
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const WEATHER = {
  type: 'function' as const,
  function: {
    name: 'weather',
    description: 'The weather of a place',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};

let server: TestServer;
let upstream: BedrockRuntime;
let openai: OpenAI;
let anthropic: Anthropic;

beforeAll(async () => {
  upstream = await startBedrockRuntime();
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  const keys = {
    aws_auth_type: 'accessKey',
    aws_region: BEDROCK_REGION,
    aws_access_key_id: AWS_KEYS.accessKeyId,
    aws_secret_access_key: AWS_KEYS.secretAccessKey,
  };
  await server.provider({ id: 'bedrock', host: upstream.url, key: null, slug: 'aws', configurations: keys });
  const apiKey = server.first.workspace_api_key;
  const defaultHeaders = { 'x-gateway-provider': '@aws' };
  openai = new OpenAI({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0, defaultHeaders });
  anthropic = new Anthropic({ apiKey, baseURL: server.url, maxRetries: 0, defaultHeaders });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});
beforeEach(() => {
  upstream.calls.length = 0;
  upstream.failure = null;
  upstream.reply = () => null;
  upstream.answerHeaders = {};
  upstream.slice = null;
  upstream.cut = false;
});
// A call the definition of the service does not know fails the test that made it, whatever the client saw.
afterEach(() => expect(upstream.faults.splice(0)).toEqual([]));

const last = (): RuntimeCall => {
  const call = upstream.calls.at(-1);
  if (call === undefined) throw new Error('nothing was called');
  return call;
};
const user = (content: string) => ({ role: 'user' as const, content });
const chat = (body: Fields, headers: Record<string, string> = {}) =>
  server.call(
    '/chat/completions',
    { model: NOVA, messages: [user('hi')], ...body },
    {
      'x-gateway-provider': '@aws',
      ...headers,
    },
  );
const errorOf = async (answer: Response): Promise<Fields> => ((await answer.json()) as { error: Fields }).error;

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

describe('embeddings, rerank, images and models', () => {
  it('embeds many texts with Titan, one in each call, in the order they were given', async () => {
    const texts = Array.from({ length: 30 }, (_, i) => `text ${i}`);
    upstream.reply = ({ body }) => ({
      embedding: [Number(String(body.inputText).slice(5)), 0.5],
      inputTextTokenCount: 2,
    });
    const model = 'amazon.titan-embed-text-v2:0';
    const { data, usage } = await openai.embeddings.create({ model, input: texts, dimensions: 256 });
    expect(data.map(({ index, embedding }) => [index, embedding[0]])).toEqual(texts.map((_, i) => [i, i]));
    expect(usage).toEqual({ prompt_tokens: 60, total_tokens: 60 });
    expect(upstream.calls.map(({ body }) => body.inputText).sort()).toEqual([...texts].sort());
    expect(upstream.calls.every(({ body }) => body.dimensions === 256)).toBe(true);
    expect((await server.records())[0]).toMatchObject({ usage: { input: 60 }, attempts: [{ status: 200 }] });
  });

  it('fails as a whole where one of many texts cannot be embedded, and can be tried again', async () => {
    upstream.reply = () => ({ embedding: [1], inputTextTokenCount: 2 });
    const slow = { status: 429, name: 'ThrottlingException', message: 'Too many requests' };
    upstream.failure = ({ body }) => (body.inputText === 'c' ? slow : null);
    const model = 'amazon.titan-embed-text-v2:0';
    const input = ['a', 'b', 'c', 'd'];
    await expect(openai.embeddings.create({ model, input })).rejects.toMatchObject({
      status: 429,
      message: expect.stringContaining('Too many requests'),
    });
    let failures = 0;
    upstream.failure = ({ body }) => (body.inputText === 'c' && failures++ === 0 ? slow : null);
    const again = await openai.embeddings.create({ model, input }, { headers: { 'x-gateway-retry-count': '1' } });
    expect(again.data).toHaveLength(4);
    upstream.failure = null;
    upstream.reply = ({ body }) =>
      body.inputText === 'b' ? { odd: true } : { embedding: [1], inputTextTokenCount: 2 };
    await expect(openai.embeddings.create({ model, input })).rejects.toMatchObject({ status: 502 });
    // The three that could be read have used two tokens each.
    const [record] = await server.records();
    expect(record).toMatchObject({ outcome: 'failed', usage: { input: 6, output: 0 } });
    expect(record?.cost_micros).toBeTypeOf('number');
  });

  it('books what had answered when one of many calls fails, beside the try that succeeds', async () => {
    let answered = 0;
    let tries = 0;
    // The second fails when the others have answered, and answers the next time.
    upstream.reply = ({ body }) => {
      if (body.inputText !== 'b' || ++tries > 1) {
        answered += 1;
        return { embedding: [1], inputTextTokenCount: 2 };
      }
      return new Promise((resolve) => {
        const look = () => (answered < 3 ? setTimeout(look, 5) : setTimeout(() => resolve({ odd: true }), 50));
        look();
      });
    };
    const model = 'amazon.titan-embed-text-v2:0';
    const config = JSON.stringify({ provider: '@aws', retry: { attempts: 1, on_status_codes: [502] } });
    const answer = await server.call(
      '/embeddings',
      { model, input: ['a', 'b', 'c', 'd'] },
      { 'x-gateway-config': config },
    );
    expect([answer.status, await answer.json()]).toMatchObject([200, { usage: { prompt_tokens: 8, total_tokens: 8 } }]);
    expect((await server.records())[0]).toMatchObject({
      outcome: 'ok',
      usage: { input: 14 },
      attempts: [{ cause: { kind: 'invalid_answer' } }, { status: 200 }],
    });
  });

  it('is over in time when one of many calls takes too long, and works the next time', async () => {
    const vector = { embedding: [1], inputTextTokenCount: 2 };
    upstream.reply = ({ body }) => (body.inputText === 'a' ? new Promise(() => undefined) : vector);
    const input = Array.from({ length: 12 }, (_, i) => (i < 4 ? 'a' : 'b'));
    const headers = { 'x-gateway-request-timeout': '300' };
    const body = { model: 'amazon.titan-embed-text-v2:0', input };
    const answer = await server.call('/embeddings', body, { 'x-gateway-provider': '@aws', ...headers });
    expect(answer.status).toBe(408);
    expect(upstream.calls.filter(({ body }) => body.inputText === 'a')).toHaveLength(4);
    upstream.reply = () => vector;
    expect((await openai.embeddings.create(body)).data).toHaveLength(12);
  });

  it('embeds with Titan, one text in a call, as floats or base64', async () => {
    upstream.reply = () => ({ embedding: [0.5, -0.25], inputTextTokenCount: 3 });
    const model = 'amazon.titan-embed-text-v2:0';
    const { data, usage } = await openai.embeddings.create({ model, input: 'hi', dimensions: 256 });
    expect(data[0]?.embedding).toEqual([0.5, -0.25]);
    expect(usage).toEqual({ prompt_tokens: 3, total_tokens: 3 });
    expect(last()).toMatchObject({ call: 'invoke', body: { inputText: 'hi', dimensions: 256 } });
    await openai.embeddings.create({ model, input: ['hi'], encoding_format: 'float' });
    expect(last().body).toEqual({ inputText: 'hi' });
    await expect(
      openai.embeddings.create({ model: 'amazon.titan-embed-text-v1', input: 'a', dimensions: 5 }),
    ).rejects.toMatchObject({ param: 'dimensions' });
    const records = await server.records();
    expect(records.find((one) => one.model_requested === model && one.status === 200)).toMatchObject({
      usage: { input: 3, output: 0 },
    });
  });

  it('embeds with Cohere, several texts at once, counted by the head of the answer', async () => {
    upstream.reply = () => ({ id: 'e', embeddings: { float: [[1], [2]] }, texts: ['a', 'b'], response_type: 'x' });
    upstream.answerHeaders = { 'x-amzn-bedrock-input-token-count': '8' };
    const body = { input: ['a', 'b'], input_type: 'search_query' };
    const four = await openai.embeddings.create({ model: 'eu.cohere.embed-v4:0', dimensions: 512, ...body });
    expect(last().body).toEqual({ texts: ['a', 'b'], input_type: 'search_query', output_dimension: 512 });
    expect(four.data.map(({ embedding, index }) => [index, embedding])).toEqual([
      [0, [1]],
      [1, [2]],
    ]);
    expect(four.usage.prompt_tokens).toBe(8);
    upstream.reply = () => ({ embeddings: [[1]] });
    await openai.embeddings.create({ model: 'cohere.embed-english-v3', input: 'a' });
    expect(last().body).toEqual({ texts: ['a'], input_type: 'search_document' });
  });

  it('embeds pictures with Titan and texts with Nova', async () => {
    upstream.reply = () => ({ embedding: [1], inputTextTokenCount: 2 });
    const image = { text: 'a dot', image: { base64: PIXEL } };
    const headers = { 'x-gateway-provider': '@aws' };
    const titan = { model: 'amazon.titan-embed-image-v1', input: image, dimensions: 384 };
    expect((await server.call('/embeddings', titan, headers)).status).toBe(200);
    expect(last().body).toEqual({
      inputText: 'a dot',
      inputImage: PIXEL,
      embeddingConfig: { outputEmbeddingLength: 384 },
    });
    upstream.reply = () => ({ embeddings: [{ embeddingType: 'TEXT', embedding: [3] }] });
    const nova = { model: 'amazon.nova-2-multimodal-embeddings-v1:0', input: 'a' };
    expect((await openai.embeddings.create(nova)).data[0]?.embedding).toEqual([3]);
  });

  it('reranks with the models of Cohere and Amazon', async () => {
    upstream.reply = () => ({ results: [{ index: 1, relevance_score: 0.9 }] });
    const headers = { 'x-gateway-provider': '@aws' };
    const body = { query: 'q', documents: ['a', { text: 'b', n: 1 }], top_n: 1, return_documents: true };
    const cohere = await server.call('/rerank', { model: 'cohere.rerank-v3-5:0', ...body }, headers);
    expect(last().body).toEqual({ query: 'q', documents: ['a', 'b'], top_n: 1, api_version: 2 });
    expect(await cohere.json()).toMatchObject({
      results: [{ index: 1, relevance_score: 0.9, document: { text: 'b', n: 1 } }],
      model: 'cohere.rerank-v3-5:0',
    });
    await server.call('/rerank', { model: 'amazon.rerank-v1:0', ...body }, headers);
    expect(last().body).toEqual({ query: 'q', documents: ['a', 'b'], top_n: 1 });
  });

  it('makes images with the models of Amazon and Stability', async () => {
    upstream.reply = () => ({ images: [PIXEL, PIXEL], error: null });
    const size = '1024x1024' as const;
    const canvas = { model: 'amazon.nova-canvas-v1:0', prompt: 'a dot', n: 2, size, quality: 'hd' as const };
    const made = await openai.images.generate(canvas);
    expect(made.data?.map(({ b64_json }) => b64_json)).toEqual([PIXEL, PIXEL]);
    expect(last().body).toEqual({
      taskType: 'TEXT_IMAGE',
      textToImageParams: { text: 'a dot' },
      imageGenerationConfig: { numberOfImages: 2, width: 1024, height: 1024, quality: 'premium' },
    });
    upstream.reply = () => ({ seeds: [1], finish_reasons: [null], images: [PIXEL] });
    await openai.images.generate({ model: 'stability.stable-image-core-v1:1', prompt: 'a dot', size: '1792x1024' });
    expect(last().body).toEqual({ prompt: 'a dot', aspect_ratio: '16:9' });
    await expect(
      openai.images.generate({ model: 'amazon.nova-canvas-v1:0', prompt: 'a', response_format: 'url' }),
    ).rejects.toMatchObject({ status: 400, param: 'response_format' });
    upstream.reply = () => ({ error: 'This request has been blocked by our content filters.' });
    await expect(openai.images.generate(canvas)).rejects.toMatchObject({ status: 502 });
  });

  it('lists the models and the inference profiles of the region, those the account may see, and tells of one', async () => {
    const summary = {
      modelArn: 'arn:aws:bedrock:eu-central-1::foundation-model/amazon.nova-pro-v1:0',
      modelId: 'amazon.nova-pro-v1:0',
      modelName: 'Nova Pro',
      providerName: 'Amazon',
      inferenceTypesSupported: ['INFERENCE_PROFILE'],
    };
    const system = { inferenceProfileId: NOVA, inferenceProfileName: 'EU Nova Pro', type: 'SYSTEM_DEFINED' };
    const arn = 'arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc123';
    const own = { inferenceProfileId: 'abc123', inferenceProfileArn: arn, type: 'APPLICATION' };
    upstream.reply = ({ call }) => {
      if (call === '/foundation-models') return { modelSummaries: [summary] };
      if (call.startsWith('/foundation-models/')) return { modelDetails: summary };
      if (call.endsWith('type=SYSTEM_DEFINED')) return { inferenceProfileSummaries: [system] };
      if (call.endsWith('type=APPLICATION')) return { inferenceProfileSummaries: [own], nextToken: 'more' };
      return { inferenceProfileId: NOVA, inferenceProfileName: 'EU Nova Pro', type: 'SYSTEM_DEFINED' };
    };
    const list = await openai.models.list();
    expect(list.data).toMatchObject([
      { id: 'amazon.nova-pro-v1:0', object: 'model', owned_by: 'Amazon' },
      { id: NOVA, object: 'model', owned_by: 'amazon' },
      { id: arn, object: 'model', owned_by: 'account' },
    ]);
    expect(list).toMatchObject({ body: { has_more: true } });
    const denied = { status: 403, name: 'AccessDeniedException', message: 'not allowed' };
    upstream.failure = ({ call }) => (call.startsWith('/inference-profiles') ? denied : null);
    const allowed = await openai.models.list();
    expect(allowed.data.map(({ id }) => id)).toEqual(['amazon.nova-pro-v1:0']);
    upstream.failure = ({ call }) => (call === '/foundation-models' ? denied : null);
    await expect(openai.models.list()).rejects.toMatchObject({ status: 403 });
    upstream.failure = ({ call }) => (call.includes('APPLICATION') ? { ...denied, status: 500 } : null);
    await expect(openai.models.list({ maxRetries: 0 })).rejects.toMatchObject({ status: 500 });
    upstream.failure = null;
    expect(await openai.models.retrieve('amazon.nova-pro-v1:0')).toMatchObject({ id: 'amazon.nova-pro-v1:0' });
    expect(await openai.models.retrieve(NOVA)).toMatchObject({ id: NOVA, inferenceProfileName: 'EU Nova Pro' });
    expect(last().call).toBe('/inference-profiles/eu.amazon.nova-pro-v1%3A0');
  });
});

describe('failures', () => {
  it.each([
    ['ThrottlingException', 429, 429, 'rate_limit_error', 'rate_limit_exceeded'],
    ['ModelNotReadyException', 429, 429, 'rate_limit_error', 'rate_limit_exceeded'],
    ['ServiceQuotaExceededException', 400, 429, 'rate_limit_error', 'insufficient_quota'],
    ['ValidationException', 400, 400, 'invalid_request_error', 'validation_exception'],
    ['AccessDeniedException', 403, 403, 'permission_error', null],
    ['ExpiredTokenException', 403, 403, 'authentication_error', 'invalid_api_key'],
    ['UnrecognizedClientException', 403, 403, 'authentication_error', 'invalid_api_key'],
    ['ResourceNotFoundException', 404, 404, 'not_found_error', 'model_not_found'],
    ['ModelTimeoutException', 408, 408, 'timeout_error', 'model_timeout_exception'],
    ['ModelErrorException', 424, 502, 'api_error', 'model_error'],
    ['InternalServerException', 500, 500, 'api_error', null],
    ['ServiceUnavailableException', 503, 503, 'api_error', null],
  ])('%s is told in the dialect of each caller', async (name, status, seen, type, code) => {
    upstream.failure = { status, name, message: 'The model cannot.' };
    const answer = await chat({ stream: true });
    expect(answer.status).toBe(seen);
    expect(await errorOf(answer)).toEqual({ message: 'The model cannot.', type, param: null, code });
    const create = { model: CLAUDE, max_tokens: 1, messages: [user('hi')] };
    await expect(anthropic.messages.create(create)).rejects.toMatchObject({
      status: seen,
      error: { type: 'error', error: { message: 'The model cannot.' } },
    });
  });

  it('an exception before any content is a failed attempt with its status, which a retry repairs', async () => {
    upstream.reply = () => [awsException('throttlingException', { message: 'Slow down' })];
    const refused = await chat({ stream: true });
    expect(refused.status).toBe(429);
    expect(await errorOf(refused)).toMatchObject({ message: 'Slow down', code: 'rate_limit_exceeded' });
    let tries = 0;
    upstream.reply = () => {
      tries += 1;
      return tries === 1 ? [awsException('serviceUnavailableException', { message: 'Later' })] : textFrames(['ok']);
    };
    const repaired = await chat({ stream: true }, { 'x-gateway-retry-count': '1' });
    expect(repaired.status).toBe(200);
    expect(await repaired.text()).toContain('"content":"ok"');
    expect(tries).toBe(2);
  });

  it('an exception after content ends the stream with an error in the dialect of the caller, and no end', async () => {
    const failing = [streamStart(), textDelta('a'), awsException('modelStreamErrorException', { message: 'It broke' })];
    upstream.reply = () => failing;
    const text = await (await chat({ stream: true })).text();
    expect(text).toContain('"content":"a"');
    expect(text).toContain('It broke');
    expect(text).not.toContain('[DONE]');
    expect(text).not.toContain('"finish_reason":"stop"');
    upstream.reply = () => [
      ...claudeFrames(['a']).slice(0, 3),
      awsException('internalServerException', { message: 'It broke' }),
    ];
    const stream = anthropic.messages.stream({ model: CLAUDE, max_tokens: 9, messages: [user('hi')] });
    await expect(stream.finalMessage()).rejects.toThrow(/It broke/);
    expect((await server.records())[0]).toMatchObject({ outcome: 'failed' });
  });

  it('a stream of a Claude model that breaks is gone on with where the config wants it, in chat and messages', async () => {
    const target = { provider: '@aws', override_params: { model: CLAUDE } };
    const config = { strategy: { mode: 'fallback' }, stream: { on_break: 'continue' }, targets: [target, target] };
    const headers = { 'x-gateway-config': JSON.stringify(config) };
    const broken = awsException('modelStreamErrorException', { message: 'It broke' });
    const body = { model: 'any', max_tokens: 50, stream: true, messages: [user('hi')] };
    upstream.reply = () =>
      upstream.calls.length === 1 ? [streamStart(), textDelta('Grü'), broken] : textFrames(['ße', ' 😀']);
    const chunks = (await (await server.call('/chat/completions', body, headers)).text())
      .split('\n\n')
      .filter((event) => event.startsWith('data: {'))
      .map((event) => JSON.parse(event.slice(6)));
    expect(chunks.map(({ choices }) => choices[0]?.delta?.content ?? '').join('')).toBe('Grüße 😀');
    expect(last().body.messages).toEqual([
      { role: 'user', content: [{ text: 'hi' }] },
      { role: 'assistant', content: [{ text: 'Grü' }] },
    ]);
    upstream.calls.length = 0;
    upstream.reply = () =>
      upstream.calls.length === 1 ? [...claudeFrames(['Grü']).slice(0, 3), broken] : claudeFrames(['ße', ' 😀']);
    const text = await (await server.call('/messages', body, headers)).text();
    const pieces = [...text.matchAll(/"text_delta","text":"([^"]*)"/g)].map(([, piece]) => piece);
    expect(pieces.join('')).toBe('Grüße 😀');
    expect(text.match(/event: message_stop/g)).toHaveLength(1);
    expect(text).not.toContain('It broke');
  });

  it.each([
    [NOVA, true],
    [`arn:aws:bedrock:eu-central-1:123456789012:inference-profile/${NOVA}`, true],
    ['eu.anthropic.claude-sonnet-4-5-20250929-v1:0', true],
    ['eu.anthropic.claude-opus-4-6-v1', false],
    ['eu.amazon.nova-2-lite-v1:0', false],
    ['mistral.mistral-large-2407-v1:0', false],
    [`arn:aws:bedrock:${BEDROCK_REGION}:123456789012:application-inference-profile/a1b2c3d4e5f6`, true],
  ])('a stream of another model is gone on with as the model takes it: %s', async (model, takes) => {
    const target = { provider: '@aws', override_params: { model } };
    const config = { strategy: { mode: 'fallback' }, stream: { on_break: 'continue' }, targets: [target, target] };
    const broken = awsException('modelStreamErrorException', { message: 'It broke' });
    upstream.reply = () =>
      upstream.calls.length === 1 ? [streamStart(), textDelta('Grü'), broken] : textFrames(['ße', ' 😀']);
    const body = { model: 'any', max_tokens: 50, stream: true, messages: [user('hi')] };
    const headers = { 'x-gateway-config': JSON.stringify(config), 'x-gateway-aws-bedrock-model': CLAUDE };
    const answer = await server.call('/chat/completions', body, headers);
    const text = await answer.text();
    expect(upstream.calls).toHaveLength(takes ? 2 : 1);
    if (takes)
      expect(last().body.messages).toMatchObject([{ role: 'user' }, { role: 'assistant', content: [{ text: 'Grü' }] }]);
    expect(text.includes('[DONE]')).toBe(takes);
    expect(text.includes('It broke')).toBe(!takes);
  });

  it.each([
    ['in the middle of a message', (frames: Buffer[]) => [Buffer.concat(frames).subarray(0, -30)]],
    ['between messages', (frames: Buffer[]) => frames.slice(0, 3)],
    ['before its usage', (frames: Buffer[]) => frames.slice(0, -1)],
  ])('a stream that ends %s never looks complete', async (_where, cut) => {
    upstream.reply = () => cut(textFrames(['a', 'b', 'c']));
    for (const broken of [false, true]) {
      upstream.cut = broken;
      const answer = await chat({ stream: true });
      const text = await answer.text();
      expect(text).not.toContain('[DONE]');
      expect(text).toContain('error');
    }
    upstream.cut = false;
    upstream.reply = () => cut(claudeFrames(['a', 'b', 'c']));
    const stream = anthropic.messages.stream({ model: CLAUDE, max_tokens: 9, messages: [user('hi')] });
    await expect(stream.finalMessage()).rejects.toThrow();
  });

  it('bytes that are no event stream are a failed attempt', async () => {
    upstream.reply = () => [Buffer.from('<html>Bad gateway, and more text</html>')];
    const answer = await chat({ stream: true });
    expect(answer.status).toBe(502);
    expect(await errorOf(answer)).toMatchObject({ code: 'upstream_invalid_response' });
  });
});

describe('accounts', () => {
  it('a Bedrock API key goes as a bearer token, from the caller or from a config', async () => {
    upstream.reply = () => converseAnswer([{ text: 'ok' }], 'end_turn');
    const own = {
      'x-gateway-provider': 'bedrock',
      'x-gateway-custom-host': upstream.url,
      'x-gateway-aws-region': BEDROCK_REGION,
      authorization: `Bearer ${BEDROCK_KEY}`,
    };
    const body = { model: NOVA, messages: [user('hi')] };
    expect((await server.call('/chat/completions', body, own)).status).toBe(200);
    expect(last().request.headers.authorization).toBe(`Bearer ${BEDROCK_KEY}`);
    const { accessKeyId, secretAccessKey } = AWS_KEYS;
    const config = JSON.stringify({
      provider: 'bedrock',
      custom_host: upstream.url,
      aws_region: BEDROCK_REGION,
      aws_access_key_id: accessKeyId,
      aws_secret_access_key: secretAccessKey,
    });
    expect((await server.call('/chat/completions', body, { 'x-gateway-config': config })).status).toBe(200);
    expect(last().request.headers.authorization).toMatch(/^AWS4-HMAC-SHA256 /);
    const { authorization: _key, ...headers } = own;
    const signed = await server.call('/chat/completions', body, {
      ...headers,
      'x-gateway-aws-access-key-id': accessKeyId,
      'x-gateway-aws-secret-access-key': secretAccessKey,
    });
    expect(signed.status).toBe(200);
  });

  it('a dry run shows the host of the runtime and of the control plane, and no credential', async () => {
    const own = {
      'x-gateway-provider': 'bedrock',
      'x-gateway-aws-region': BEDROCK_REGION,
      'x-gateway-aws-access-key-id': AWS_KEYS.accessKeyId,
      'x-gateway-aws-secret-access-key': AWS_KEYS.secretAccessKey,
      'x-gateway-dry-run': 'true',
    };
    const answer = await server.call('/chat/completions', { model: NOVA, messages: [user('hi')] }, own);
    const text = await answer.text();
    expect(JSON.parse(text).request).toMatchObject({
      url: `https://bedrock-runtime.${BEDROCK_REGION}.amazonaws.com/model/eu.amazon.nova-pro-v1%3A0/converse`,
      headers: { authorization: '***' },
    });
    expect(text).not.toContain(AWS_KEYS.secretAccessKey);
    const models = await fetch(`${server.url}/v1/models`, {
      headers: { 'x-gateway-api-key': server.first.workspace_api_key, ...own },
    });
    expect(await models.json()).toMatchObject({
      request: { url: `https://bedrock.${BEDROCK_REGION}.amazonaws.com/foundation-models` },
    });
  });

  it('an account without credential or region is told what is missing', async () => {
    const body = { model: NOVA, messages: [user('hi')] };
    const region = { 'x-gateway-provider': 'bedrock', 'x-gateway-aws-region': BEDROCK_REGION };
    const bare = await server.call('/chat/completions', body, region);
    expect(bare.status).toBe(400);
    expect(await bare.text()).toContain('no credential');
    const nowhere = await server.call('/chat/completions', body, { 'x-gateway-provider': 'bedrock' });
    expect(nowhere.status).toBe(400);
    expect(await nowhere.text()).toContain('aws_region');
  });
});
