/** Google's other operations, accounts and errors, by the official clients. */
import { toFile } from 'openai';
import { describe, expect, it } from 'vitest';
import {
  anthropic,
  gemini,
  HELLO,
  openai,
  ROUNDS,
  server,
  TOOL,
  useGoogle,
  vertex,
} from '../support/google-clients.ts';
import { startServer } from '../support/server.ts';
import { PIXEL } from '../support/upstreams/gemini.ts';
import { startVertexModels } from '../support/upstreams/vertex-predict.ts';

useGoogle();

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
