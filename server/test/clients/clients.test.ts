/** The official clients, as anyone installs them, through a whole server: on the sandbox and on strict providers. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI, { toFile } from 'openai';
import { Portkey } from 'portkey-ai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ANTHROPIC_KEY, startAnthropicUpstream } from '../support/anthropic-upstream.ts';
import { OPENAI_KEY, startOpenAiUpstream } from '../support/openai-upstream.ts';
import { startServer, type TestServer } from '../support/server.ts';
import type { StrictUpstream } from '../support/strict-upstream.ts';

let server: TestServer;
let openaiUpstream: StrictUpstream;
let anthropicUpstream: StrictUpstream;
let openai: OpenAI;
let anthropic: Anthropic;

beforeAll(async () => {
  openaiUpstream = await startOpenAiUpstream();
  anthropicUpstream = await startAnthropicUpstream();
  server = await startServer({
    SLUICE_TRUSTED_HOSTS: `127.0.0.1:${openaiUpstream.port},127.0.0.1:${anthropicUpstream.port}`,
    SLUICE_HEADER_ALIASES: 'x-portkey-',
  });
  await server.provider({ id: 'openai', host: `${openaiUpstream.url}/v1`, key: OPENAI_KEY });
  await server.provider({ id: 'anthropic', host: `${anthropicUpstream.url}/v1`, key: ANTHROPIC_KEY });
  const apiKey = server.first.workspace_api_key;
  openai = new OpenAI({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0 });
  anthropic = new Anthropic({ apiKey, baseURL: server.url, maxRetries: 0 });
});

afterEach(() => {
  // A call the provider's definition does not know fails the test that made it, whatever the client saw.
  expect([...openaiUpstream.faults.splice(0), ...anthropicUpstream.faults.splice(0)]).toEqual([]);
});

afterAll(async () => {
  await server?.stop();
  await openaiUpstream?.stop();
  await anthropicUpstream?.stop();
});

const SCHEMA = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
  additionalProperties: false,
};
const HELLO = [{ role: 'user' as const, content: 'Grüße 🎉' }];
const FUNCTION = {
  type: 'function' as const,
  function: { name: 'get_weather', description: 'Weather of a city', parameters: SCHEMA, strict: true },
};
const TOOL = { name: 'get_weather', description: 'Weather of a city', input_schema: SCHEMA };
const FORMAT = { type: 'json_schema' as const, json_schema: { name: 'place', schema: SCHEMA, strict: true } };

/** Model names that reach a provider natively or by conversion, and the text its answer to `HELLO` holds. */
const CHAT_TARGETS: readonly (readonly [string, string, string])[] = [
  ['the sandbox', '@sandbox/echo', '@sandbox/gpt-4o'],
  ['an OpenAI provider', '@openai-test/gpt-4o', '@openai-test/gpt-4o'],
  ['an Anthropic provider', '@anthropic-test/claude-sonnet-4-5', '@anthropic-test/claude-sonnet-4-5'],
];

describe.each(CHAT_TARGETS)('the OpenAI client on %s', (_title, model, toolModel) => {
  it('chats', async () => {
    const answer = await openai.chat.completions.create({ model, messages: HELLO, max_completion_tokens: 50 });
    expect(answer.object).toBe('chat.completion');
    expect(answer.choices[0]?.message.content).toContain('Grüße 🎉');
    expect(answer.choices[0]?.finish_reason).toBe('stop');
    if (model.startsWith('@anthropic')) {
      expect(anthropicUpstream.received.at(-1)?.headers['anthropic-version']).toBe('2023-06-01');
      expect(anthropicUpstream.last).toMatchObject({ model: 'claude-sonnet-4-5', max_tokens: 50 });
    }
    expect(answer.usage?.total_tokens).toBe(
      (answer.usage?.prompt_tokens ?? 0) + (answer.usage?.completion_tokens ?? 0),
    );
  });

  it('streams, with usage when it asks for it', async () => {
    const stream = openai.chat.completions.stream({ model, messages: HELLO, stream_options: { include_usage: true } });
    let pieces = 0;
    stream.on('content', () => {
      pieces += 1;
    });
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]?.message.content).toContain('Grüße 🎉');
    expect(final.choices[0]?.finish_reason).toBe('stop');
    expect(final.usage?.completion_tokens).toBeGreaterThan(0);
    expect(pieces).toBeGreaterThan(1);
  });

  it('is sent no usage event it did not ask for', async () => {
    for await (const chunk of await openai.chat.completions.create({ model, messages: HELLO, stream: true })) {
      expect(chunk.choices).toHaveLength(1);
      expect(chunk.usage ?? null).toBeNull();
    }
  });

  it.each([false, true])('calls a tool and sends its result back (stream: %s)', async (stream) => {
    const messages: OpenAI.ChatCompletionMessageParam[] = [
      { role: 'system', content: 'Use your tools.' },
      { role: 'user', content: 'Call get_weather for Berlin' },
    ];
    const ask = async (): Promise<OpenAI.ChatCompletion> => {
      const body = { model: toolModel, messages, tools: [FUNCTION], max_completion_tokens: 200 };
      return stream ? openai.chat.completions.stream(body).finalChatCompletion() : openai.chat.completions.create(body);
    };
    const first = (await ask()).choices[0];
    const call = first?.message.tool_calls?.[0];
    expect(first?.finish_reason).toBe('tool_calls');
    if (call?.type !== 'function') throw new Error(`no call: ${JSON.stringify(first)}`);
    expect(call.function.name).toBe('get_weather');
    expect(Object.keys(JSON.parse(call.function.arguments))).toEqual(['city']);
    // The client's streaming helper adds fields of its own to what it collects; only the wire's own go back.
    const { name, arguments: args } = call.function;
    const asked = { id: call.id, type: call.type, function: { name, arguments: args } };
    messages.push(
      { role: 'assistant', content: first?.message.content ?? null, tool_calls: [asked] },
      { role: 'tool', tool_call_id: call.id, content: 'sunny, 21 degrees' },
    );
    const second = (await ask()).choices[0];
    expect(second?.finish_reason).toBe('stop');
    expect(second?.message.content).toBeTruthy();
    if (model !== '@sandbox/echo') expect(second?.message.content).toBe('The tool says: sunny, 21 degrees');
  });

  it('gets structured output that fits the schema', async () => {
    const answer = await openai.chat.completions.parse({ model: toolModel, messages: HELLO, response_format: FORMAT });
    expect(typeof JSON.parse(answer.choices[0]?.message.content ?? '').city).toBe('string');
  });

  it('uses the Responses API, plain and streamed', async () => {
    const plain = await openai.responses.create({ model, input: 'Grüße', instructions: 'Be short.', store: false });
    expect(plain.status).toBe('completed');
    expect(plain.output_text).not.toBe('');
    expect(plain.usage?.output_tokens).toBeGreaterThan(0);
    const final = await openai.responses.stream({ model, input: HELLO, store: false }).finalResponse();
    expect(final.status).toBe('completed');
    expect(final.output_text).not.toBe('');
  });
});

const WIDE: readonly (readonly [string, string, string])[] = [
  ['the sandbox', '@sandbox', 'echo'],
  ['an OpenAI provider', '@openai-test', 'gpt-4o'],
];

describe.each(WIDE)('the OpenAI client beyond chat on %s', (_title, slug, model) => {
  const client = () => openai.withOptions({ defaultHeaders: { 'x-gateway-provider': slug } });

  it('embeds, whole numbers and base64 alike', async () => {
    const plain = await client().embeddings.create({ model: 'e', input: ['a', 'b'], encoding_format: 'float' });
    const packed = await client().embeddings.create({ model: 'e', input: ['a', 'b'] });
    expect(plain.data).toHaveLength(2);
    expect(packed.data[1]?.embedding).toHaveLength(plain.data[1]?.embedding.length ?? -1);
    for (const [index, value] of (plain.data[0]?.embedding ?? []).entries())
      expect(packed.data[0]?.embedding[index]).toBeCloseTo(value, 5);
  });

  it('lists and reads models', async () => {
    const ids: string[] = [];
    for await (const one of client().models.list()) ids.push(one.id);
    expect(ids.length).toBeGreaterThan(0);
    expect((await client().models.retrieve(model)).id).toBe(model);
  });

  it('completes, moderates, draws and edits images', async () => {
    expect((await client().completions.create({ model: 'm', prompt: 'Hello' })).choices[0]?.text).toBeTruthy();
    expect((await client().moderations.create({ model: 'm', input: 'Hello' })).results[0]?.flagged).toBe(false);
    const drawn = await client().images.generate({ model: 'm', prompt: 'a cat', response_format: 'b64_json' });
    expect(drawn.data?.[0]?.b64_json).toBeTruthy();
    const image = await toFile(Buffer.from([0x89, 0x50, 0x4e, 0x47]), 'a.png', { type: 'image/png' });
    const edited = await client().images.edit({ model: 'm', image, prompt: 'a hat' });
    expect(edited.data?.[0]).toBeTruthy();
  });

  it('speaks and listens', async () => {
    const speech = await client().audio.speech.create({ model: 'm', voice: 'alloy', input: 'Hello' });
    expect((await speech.arrayBuffer()).byteLength).toBeGreaterThan(6);
    const file = () => toFile(Buffer.from([0, 255, 13, 10]), 'a.wav', { type: 'audio/wav' });
    expect((await client().audio.transcriptions.create({ model: 'm', file: await file() })).text).toBeTruthy();
    expect((await client().audio.translations.create({ model: 'm', file: await file() })).text).toBeTruthy();
  });
});

describe.each(CHAT_TARGETS)('the Anthropic client on %s', (_title, model, toolModel) => {
  it('sends a message, plain and streamed', async () => {
    const body = { model, max_tokens: 100, system: 'Be short.', messages: HELLO };
    const plain = await anthropic.messages.create(body);
    expect(plain).toMatchObject({ type: 'message', role: 'assistant', stop_reason: 'end_turn' });
    expect(plain.content[0]).toMatchObject({ type: 'text', text: expect.stringContaining('Grüße 🎉') });
    expect(plain.usage.output_tokens).toBeGreaterThan(0);
    const final = await anthropic.messages.stream(body).finalMessage();
    expect(final.content[0]).toMatchObject({ type: 'text', text: expect.stringContaining('Grüße 🎉') });
    expect(final.stop_reason).toBe('end_turn');
    expect(final.usage.output_tokens).toBeGreaterThan(0);
  });

  it.each([false, true])('calls a tool and sends its result back (stream: %s)', async (stream) => {
    const messages: Anthropic.MessageParam[] = [{ role: 'user', content: 'Call get_weather for Berlin' }];
    const ask = async (): Promise<Anthropic.Message> => {
      const body = { model: toolModel, max_tokens: 200, messages, tools: [TOOL] };
      return stream ? anthropic.messages.stream(body).finalMessage() : anthropic.messages.create(body);
    };
    const first = await ask();
    expect(first.stop_reason).toBe('tool_use');
    const call = first.content.find((block) => block.type === 'tool_use');
    if (call === undefined) throw new Error(`no call: ${JSON.stringify(first)}`);
    expect(call.name).toBe('get_weather');
    expect(Object.keys(call.input as object)).toEqual(['city']);
    messages.push(
      { role: 'assistant', content: first.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'sunny, 21 degrees' }] },
    );
    const second = await ask();
    expect(second.stop_reason).toBe('end_turn');
    if (model !== '@sandbox/echo')
      expect(second.content[0]).toMatchObject({ type: 'text', text: 'The tool says: sunny, 21 degrees' });
  });

  it('counts tokens, or is told that the provider cannot', async () => {
    if (model.startsWith('@openai-test')) {
      await expect(anthropic.messages.countTokens({ model, messages: HELLO })).rejects.toMatchObject({ status: 501 });
      return;
    }
    const counted = await anthropic.messages.countTokens({ model, messages: HELLO });
    expect(counted.input_tokens).toBeGreaterThan(0);
  });
});

describe('the Portkey client, by SLUICE_HEADER_ALIASES', () => {
  const portkey = (options: object = {}) =>
    new Portkey({ apiKey: server.first.workspace_api_key, baseURL: `${server.url}/v1`, ...options });

  it.each(['@sandbox/echo', '@openai-test/gpt-4o', '@anthropic-test/claude-sonnet-4-5'])(
    'chats and streams with %s',
    async (model) => {
      const answer = await portkey().chat.completions.create({ model, messages: HELLO, max_tokens: 50 });
      expect(answer.choices[0]?.message?.content).toContain('Grüße 🎉');
      const stream = await portkey().chat.completions.create({ model, messages: HELLO, max_tokens: 50, stream: true });
      let said = '';
      for await (const chunk of stream) said += chunk.choices[0]?.delta?.content ?? '';
      expect(said).toContain('Grüße 🎉');
    },
  );

  it('names provider, trace, metadata and config in its own headers', async () => {
    const client = portkey({
      traceID: 'trace-portkey',
      metadata: { team: 'search' },
      config: { provider: '@openai-test', override_params: { temperature: 0.5 } },
    });
    const answer = await client.chat.completions.create({ model: 'gpt-4o', messages: HELLO });
    expect(answer.choices[0]?.message?.content).toContain('Grüße');
    expect(openaiUpstream.last).toMatchObject({ temperature: 0.5 });
    expect((await server.records())[0]).toMatchObject({ trace_id: 'trace-portkey', metadata: { team: 'search' } });
    const named = portkey({ provider: '@openai-test' });
    expect((await named.embeddings.create({ model: 'e', input: 'a' })).data).toHaveLength(1);
    expect((await named.models.list()).data).toHaveLength(1);
  });
});

describe('the Portkey client’s administration', () => {
  it('makes, reads, changes and deletes workspaces and their members', async () => {
    const { workspaces } = new Portkey({ apiKey: server.first.admin_api_key, baseURL: `${server.url}/v1` }).admin;
    const made = await workspaces.create({
      name: '🚀 Search',
      description: 'd',
      defaults: { metadata: { team: 's' } },
    });
    const workspaceId = String(made.slug);
    expect(await workspaces.retrieve({ workspaceId })).toMatchObject({ id: made.id, name: '🚀 Search' });
    expect((await workspaces.list({ page_size: 10, current_page: 0 })).total).toBe(2);
    await workspaces.update({ workspaceId, name: 'Search' });
    const userId = server.first.user_id;
    await workspaces.users.create({ workspaceId, users: [{ id: userId, role: 'member' }] });
    await workspaces.users.update({ workspaceId, userId, role: 'manager' });
    expect(await workspaces.users.retrieve({ workspaceId, userId })).toMatchObject({
      role: 'manager',
      org_role: 'owner',
    });
    expect((await workspaces.users.list({ workspaceId, role: 'manager' })).total).toBe(1);
    await workspaces.users.delete({ workspaceId, userId });
    expect((await workspaces.users.list({ workspaceId })).total).toBe(0);
    await workspaces.delete({ workspaceId });
    expect((await workspaces.list({})).total).toBe(1);
  });

  it('makes, reads, changes and deletes API keys of every type', async () => {
    const { apiKeys } = new Portkey({ apiKey: server.first.admin_api_key, baseURL: `${server.url}/v1` });
    const { workspace_slug: workspace_id, user_id } = server.first;
    for (const { type, kind, rest } of [
      { type: 'organisation', kind: 'service', rest: { scopes: ['workspaces.list'] } },
      { type: 'workspace', kind: 'service', rest: { scopes: ['completions.write'], workspace_id } },
      { type: 'workspace', kind: 'user', rest: { scopes: ['completions.write'], workspace_id, user_id } },
    ]) {
      const made = await apiKeys.create({ type, 'sub-type': kind, name: 'k', ...rest });
      const id = String(made.id);
      await apiKeys.update({ id, name: 'renamed' });
      expect(await apiKeys.retrieve({ id })).toMatchObject({ name: 'renamed', type: `${type}-${kind}` });
      expect((await apiKeys.list({ workspace_id, page_size: 100 })).data?.some((key) => key.id === id)).toBe(
        type === 'workspace',
      );
      await apiKeys.delete({ id });
      await expect(apiKeys.retrieve({ id })).rejects.toMatchObject({ status: 404 });
    }
  });
});

describe('errors are the client’s own classes', () => {
  const ask = (model: string) => openai.chat.completions.create({ model, messages: HELLO });
  const say = (model: string) => anthropic.messages.create({ model, max_tokens: 10, messages: HELLO });

  it('401 for an unknown key', async () => {
    const wrong = { apiKey: 'nonsense' };
    await expect(openai.withOptions(wrong).models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
    const call = anthropic.withOptions(wrong).messages.create({ model: 'm', max_tokens: 1, messages: HELLO });
    await expect(call).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
  });

  it('400 for a call that names no provider, and for one the provider refuses', async () => {
    await expect(ask('gpt-4o')).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    await expect(say('gpt-4o')).rejects.toBeInstanceOf(Anthropic.BadRequestError);
    for (const model of ['@openai-test/status-400', '@anthropic-test/status-400']) {
      await expect(ask(model), model).rejects.toBeInstanceOf(OpenAI.BadRequestError);
      await expect(ask(model), model).rejects.toMatchObject({ error: { message: 'Told to answer 400.' } });
      await expect(say(model), model).rejects.toBeInstanceOf(Anthropic.BadRequestError);
      await expect(say(model), model).rejects.toMatchObject({ error: { error: { message: 'Told to answer 400.' } } });
    }
  });

  it('429 with the time to wait', async () => {
    for (const model of [
      '@openai-test/status-429',
      '@anthropic-test/status-429',
      '@sandbox/error?status=429&retry_after=7',
    ]) {
      const fromOpenAi = await ask(model).catch((error: unknown) => error);
      if (!(fromOpenAi instanceof OpenAI.RateLimitError)) throw fromOpenAi;
      expect(fromOpenAi.headers.get('retry-after'), model).toBe('7');
      const fromAnthropic = await say(model).catch((error: unknown) => error);
      if (!(fromAnthropic instanceof Anthropic.RateLimitError)) throw fromAnthropic;
      expect(fromAnthropic.headers.get('retry-after'), model).toBe('7');
    }
  });

  it('408 when the time allowed for an answer is over', async () => {
    const headers = { 'x-gateway-request-timeout': '30' };
    const slow = '@sandbox/slow?ttft_ms=60000';
    const call = openai.chat.completions.create({ model: slow, messages: HELLO }, { headers });
    await expect(call).rejects.toMatchObject({ status: 408 });
    const other = anthropic.messages.create({ model: slow, max_tokens: 10, messages: HELLO }, { headers });
    await expect(other).rejects.toMatchObject({ status: 408 });
  });

  it('502 for a provider that sends nonsense, 5xx of a provider as it is', async () => {
    await expect(ask('@sandbox/cut?after_tokens=0&mode=error')).rejects.toMatchObject({ status: 502 });
    await expect(ask('@openai-test/status-500')).rejects.toBeInstanceOf(OpenAI.InternalServerError);
    await expect(say('@anthropic-test/status-529')).rejects.toMatchObject({ status: 529 });
  });

  it.each([
    '@openai-test/cut',
    '@anthropic-test/cut',
    '@sandbox/cut?after_tokens=3&mode=error',
    '@sandbox/cut?after_tokens=3&mode=end',
  ])('a stream that breaks off raises and is never a clean end: %s', async (model) => {
    const chat = async () => {
      const stream = await openai.chat.completions.create({
        model,
        messages: [{ role: 'user', content: 'one two three four five six' }],
        stream: true,
      });
      for await (const chunk of stream) expect(chunk.choices[0]?.finish_reason ?? null).toBeNull();
    };
    await expect(chat()).rejects.toBeInstanceOf(OpenAI.APIError);
    const message = anthropic.messages.stream({
      model,
      max_tokens: 50,
      messages: [{ role: 'user', content: 'one two three four five six' }],
    });
    await expect(message.finalMessage()).rejects.toBeInstanceOf(Anthropic.AnthropicError);
    const response = async () => {
      for await (const event of await openai.responses.create({
        model,
        input: 'one two three four five six',
        stream: true,
      }))
        expect(event.type).not.toBe('response.completed');
    };
    await expect(response()).rejects.toBeInstanceOf(OpenAI.APIError);
  });
});
