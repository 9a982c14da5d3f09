/** The official clients understand every answer of the sandbox. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI, { toFile } from 'openai';
import { describe, expect, it } from 'vitest';
import { call } from '../../../test/support/local.ts';
import { createLocal } from './local.ts';

const local = createLocal();

/** A `fetch` that reaches the sandbox. */
async function viaLocal(url: string | URL | Request, init?: RequestInit): Promise<Response> {
  const request = new Request(url, init);
  const { pathname, search } = new URL(request.url);
  const body = request.body === null ? undefined : Buffer.from(await request.arrayBuffer());
  const headers = [...request.headers].flat();
  const answer = await call(local, { method: request.method, path: pathname + search, body, headers });
  if (answer.error !== null) throw answer.error;
  return new Response(new Uint8Array(answer.bytes), { status: answer.status, headers: answer.headers });
}

const openai = new OpenAI({ apiKey: 'none', baseURL: 'http://in-process/v1', fetch: viaLocal, maxRetries: 0 });
const anthropic = new Anthropic({ apiKey: 'none', baseURL: 'http://in-process', fetch: viaLocal, maxRetries: 0 });

const weather = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const }, days: { type: 'integer' as const, minimum: 2 } },
  required: ['city', 'days'],
  additionalProperties: false,
};

describe('the official OpenAI client', () => {
  it('collects a streamed chat answer', async () => {
    const stream = openai.chat.completions.stream({
      model: 'echo',
      messages: [{ role: 'user', content: 'Grüße aus der Sandbox 🎉' }],
      stream_options: { include_usage: true },
    });
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]?.message.content).toBe('Grüße aus der Sandbox 🎉');
    expect(final.usage?.total_tokens).toBeGreaterThan(0);
  });

  it('collects streamed parallel tool calls with valid arguments', async () => {
    const tool = (name: string) => ({ type: 'function' as const, function: { name, parameters: weather } });
    const stream = openai.chat.completions.stream({
      model: 'gpt-4o',
      messages: [{ role: 'user', content: 'Call get_weather and get_tides' }],
      tools: [tool('get_weather'), tool('get_tides'), tool('get_news')],
    });
    const final = await stream.finalChatCompletion();
    const calls = final.choices[0]?.message.tool_calls ?? [];
    expect(calls.map((one) => one.type === 'function' && one.function.name)).toEqual(['get_weather', 'get_tides']);
    for (const one of calls) {
      if (one.type === 'function') expect(JSON.parse(one.function.arguments)).toEqual({ city: 'sandbox', days: 2 });
    }
    expect(final.choices[0]?.finish_reason).toBe('tool_calls');
  });

  it('collects a streamed response with reasoning and with tool calls', async () => {
    const stream = openai.responses.stream({ model: 'echo', input: 'One two three', reasoning: { summary: 'auto' } });
    const final = await stream.finalResponse();
    expect(final.output_text).toBe('One two three');
    expect(final.output.map((item) => item.type)).toEqual(['reasoning', 'message']);
    expect(final.usage?.output_tokens_details.reasoning_tokens).toBeGreaterThan(0);

    const called = await openai.responses
      .stream({
        model: 'echo',
        input: 'Use get_weather',
        tools: [{ type: 'function', name: 'get_weather', parameters: weather, strict: true }],
      })
      .finalResponse();
    expect(called.output).toMatchObject([
      { type: 'function_call', name: 'get_weather', arguments: '{"city":"sandbox","days":2}' },
    ]);
  });

  it('parses a structured response', async () => {
    const response = await openai.responses.create({
      model: 'echo',
      input: 'x',
      text: { format: { type: 'json_schema', name: 'weather', schema: weather, strict: true } },
    });
    expect(JSON.parse(response.output_text)).toEqual({ city: 'sandbox', days: 2 });
  });

  it('reads completions, plain and streamed', async () => {
    const plain = await openai.completions.create({ model: 'echo', prompt: ['first', 'second'], n: 2, max_tokens: 5 });
    expect(plain.choices.map((choice) => choice.text)).toEqual(['first', 'first', 'second', 'second']);
    const parts = [];
    for await (const chunk of await openai.completions.create({
      model: 'lorem?tokens=30',
      prompt: 'x',
      stream: true,
    })) {
      parts.push(chunk.choices[0]?.text ?? '');
    }
    expect(parts.join('')).toMatch(/^Lorem ipsum dolor/);
    const short = await openai.completions.create({ model: 'gpt-3.5-turbo-instruct', prompt: 'x' });
    expect(short.usage?.completion_tokens).toBe(16);
    expect(short.choices[0]?.finish_reason).toBe('length');
  });

  it('reads embeddings, which it asks for in base64', async () => {
    const { data, usage } = await openai.embeddings.create({
      model: 'embed',
      input: ['a cat', 'a dog'],
      dimensions: 64,
    });
    expect(data).toHaveLength(2);
    expect(data[0]?.embedding).toHaveLength(64);
    expect(usage.prompt_tokens).toBe(4);
  });

  it('reads moderations, models and images', async () => {
    const moderation = await openai.moderations.create({ input: ['how lovely', 'I will kill you'] });
    expect(moderation.results.map((result) => result.flagged)).toEqual([false, true]);
    expect(moderation.results[1]?.categories.violence).toBe(true);
    const names = [];
    for await (const model of openai.models.list()) names.push(model.id);
    expect(names).toContain('echo');
    expect((await openai.models.retrieve('slow?ttft_ms=5')).id).toBe('slow?ttft_ms=5');
    const file = await toFile(Buffer.from('not really a png'), 'in.png', { type: 'image/png' });
    const edited = await openai.images.edit({
      model: 'image',
      image: file,
      prompt: 'brighter',
      n: 2,
      response_format: 'b64_json',
    });
    expect(edited.data).toHaveLength(2);
    expect(
      Buffer.from(edited.data?.[0]?.b64_json ?? '', 'base64')
        .subarray(1, 4)
        .toString(),
    ).toBe('PNG');
    const varied = await openai.images.createVariation({ image: file });
    expect(varied.data?.[0]?.url).toMatch(/^data:image\/png;base64,/);
  });

  it('reads speech and transcriptions', async () => {
    const spoken = await openai.audio.speech.create({
      model: 'tts-1',
      voice: 'alloy',
      input: 'Hello',
      response_format: 'wav',
    });
    const bytes = Buffer.from(await spoken.arrayBuffer());
    expect(bytes.toString('latin1', 0, 4)).toBe('RIFF');
    expect(bytes.readUInt32LE(4)).toBe(bytes.length - 8);
    const file = await toFile(bytes, 'a.wav');
    const heard = await openai.audio.transcriptions.create({ model: 'whisper-1', file });
    expect(heard.text).toBe(`The sandbox received an audio file of ${bytes.length} bytes.`);
    const deltas = [];
    for await (const event of await openai.audio.transcriptions.create({
      model: 'gpt-4o-transcribe',
      file,
      stream: true,
    })) {
      if (event.type === 'transcript.text.delta') deltas.push(event.delta);
    }
    expect(deltas.join('')).toBe(heard.text);
    const translated = await openai.audio.translations.create({
      model: 'whisper-1',
      file,
      response_format: 'verbose_json',
    });
    expect(translated).toMatchObject({ task: 'translate', duration: 1 });
  });

  it('gets typed errors', async () => {
    await expect(
      openai.chat.completions.create({
        model: 'error?status=429&retry_after=2',
        messages: [{ role: 'user', content: 'x' }],
      }),
    ).rejects.toMatchObject({ status: 429, code: 'rate_limit_exceeded' });
    await expect(openai.responses.retrieve('resp_1')).rejects.toMatchObject({ status: 404 });
    await expect(openai.models.retrieve('gpt-4o')).rejects.toMatchObject({ status: 404, code: 'model_not_found' });
  });
});

describe('the official Anthropic client', () => {
  it('collects a streamed message with thinking', async () => {
    const final = await anthropic.messages
      .stream({
        model: 'echo',
        max_tokens: 2000,
        thinking: { type: 'enabled', budget_tokens: 1024 },
        messages: [{ role: 'user', content: 'Hello there' }],
      })
      .finalMessage();
    expect(final.content.map((block) => block.type)).toEqual(['thinking', 'text']);
    expect(final.content[1]).toMatchObject({ type: 'text', text: 'Hello there' });
    expect(final.stop_reason).toBe('end_turn');
    expect(final).toMatchObject({ system_fingerprint: 'sandbox' });
  });

  it('collects a streamed tool call, and text after its result', async () => {
    const tools = [{ name: 'get_weather', input_schema: weather }];
    const first = await anthropic.messages
      .stream({ model: 'echo', max_tokens: 500, tools, messages: [{ role: 'user', content: 'weather?' }] })
      .finalMessage();
    const [block] = first.content;
    expect(block).toMatchObject({ type: 'tool_use', name: 'get_weather', input: { city: 'sandbox', days: 2 } });
    expect(first.stop_reason).toBe('tool_use');
    if (block?.type !== 'tool_use') throw new Error('no tool call');
    const second = await anthropic.messages.create({
      model: 'echo',
      max_tokens: 500,
      tools,
      messages: [
        { role: 'user', content: 'weather?' },
        { role: 'assistant', content: first.content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: block.id, content: 'sunny' }] },
      ],
    });
    expect(second.content).toMatchObject([{ type: 'text', text: 'weather?' }]);
  });

  it('counts tokens as the answer does', async () => {
    const messages = [{ role: 'user' as const, content: 'How many tokens are these?' }];
    const counted = await anthropic.messages.countTokens({ model: 'echo', system: 'Be brief.', messages });
    const answered = await anthropic.messages.create({ model: 'echo', system: 'Be brief.', messages, max_tokens: 100 });
    expect(answered.usage.input_tokens).toBe(counted.input_tokens);
  });

  it('gets typed errors', async () => {
    await expect(
      anthropic.messages.create({
        model: 'error?status=529',
        max_tokens: 5,
        messages: [{ role: 'user', content: 'x' }],
      }),
    ).rejects.toMatchObject({ status: 529, error: { error: { type: 'overloaded_error' } } });
  });
});
