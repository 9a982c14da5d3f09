import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { messagesBody } from '../support/anthropic-upstream.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type StrictUpstream, sendStream, startStrictUpstream } from '../support/strict-upstream.ts';
import { sendJson } from '../support/upstream.ts';
import { AZURE_KEY } from '../support/upstreams/azure-inference.ts';

const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
const MESSAGE = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'claude-sonnet-4-5',
  content: [{ type: 'text', text: 'Hello from Claude' }],
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: { input_tokens: 3, output_tokens: 4 },
};
const events = (list: readonly { readonly type: string }[]) =>
  list.map((one) => `event: ${one.type}\ndata: ${JSON.stringify(one)}\n\n`);

/** A Foundry resource with its model inference and Anthropic APIs; each has its own way of carrying the key. */
const startResource = (): Promise<StrictUpstream> =>
  startStrictUpstream({
    routes: [
      {
        method: 'POST',
        path: /^\/models\/chat\/completions$/,
        query: ['api-version'],
        // Members beyond the API are allowed by the header that is checked.
        body: z.looseObject({
          model: z.string(),
          messages: z.array(z.looseObject({ role: z.enum(['system', 'user', 'assistant', 'tool']) })),
          max_completion_tokens: z.never().optional(),
        }),
        answer(body, response, request) {
          if (request.headers['api-key'] !== AZURE_KEY) throw new Error('api-key');
          if (request.headers['extra-parameters'] !== 'pass-through') throw new Error('extra-parameters');
          if (!request.path.endsWith('?api-version=2024-05-01-preview')) throw new Error('api-version');
          const head = { id: 'c', created: 1, model: body.model };
          if (body.stream !== true) {
            sendJson(response, 200, {
              ...head,
              object: 'chat.completion',
              choices: [{ index: 0, message: { role: 'assistant', content: 'Bonjour' }, finish_reason: 'stop' }],
              usage,
            });
            return;
          }
          const chunk = (delta: unknown, finish: string | null, more = {}) =>
            `data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }], ...more })}\n\n`;
          sendStream(response, [
            chunk({ role: 'assistant', content: 'Bon' }, null),
            chunk({ content: 'jour' }, 'stop', { usage }),
            'data: [DONE]\n\n',
          ]);
        },
      },
      {
        method: 'POST',
        path: /^\/models\/embeddings$/,
        query: ['api-version'],
        body: z.strictObject({
          model: z.string(),
          input: z.union([z.string(), z.array(z.string())]),
          encoding_format: z.string().optional(),
        }),
        answer: (body, response) =>
          sendJson(response, 200, {
            object: 'list',
            model: body.model,
            data: [{ object: 'embedding', index: 0, embedding: [1, 2] }],
            usage: { prompt_tokens: 2, total_tokens: 2 },
          }),
      },
      {
        method: 'POST',
        path: /^\/anthropic\/v1\/messages$/,
        body: messagesBody,
        answer(body, response, request) {
          if (request.headers['x-api-key'] !== AZURE_KEY) throw new Error('x-api-key');
          if (!/^(2023-06-01|2026-10-21)$/.test(String(request.headers['anthropic-version'])))
            throw new Error('anthropic-version');
          if (request.headers['api-key'] !== undefined) throw new Error('api-key');
          if (body.stream !== true) {
            sendJson(response, 200, MESSAGE);
            return;
          }
          sendStream(
            response,
            events([
              { type: 'message_start', message: { ...MESSAGE, content: [], stop_reason: null } } as { type: string },
              { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } } as { type: string },
              {
                type: 'content_block_delta',
                index: 0,
                delta: { type: 'text_delta', text: 'Hello from Claude' },
              } as { type: string },
              { type: 'content_block_stop', index: 0 } as { type: string },
              {
                type: 'message_delta',
                delta: { stop_reason: 'end_turn', stop_sequence: null },
                usage: { output_tokens: 4 },
              } as { type: string },
              { type: 'message_stop' },
            ]),
          );
        },
      },
      {
        method: 'POST',
        path: /^\/anthropic\/v1\/messages\/count_tokens$/,
        body: z.strictObject({ model: z.string(), messages: z.array(z.unknown()) }),
        answer: (_body, response) => sendJson(response, 200, { input_tokens: 7 }),
      },
    ],
    headers: {},
    optional: ['api-key', 'x-api-key', 'anthropic-version', 'extra-parameters'],
    error: (status, message) => ({ error: { code: String(status), message } }),
  });

let resource: StrictUpstream;
let server: TestServer;

beforeAll(async () => {
  resource = await startResource();
  server = await startServer({ SLUICE_TRUSTED_HOSTS: '127.0.0.0/8' });
  for (const [slug, path, more] of [
    ['foundry', '/models', {}],
    ['claude', '/anthropic', { azure_deployment_name: 'claude-prod' }],
  ] as const) {
    const answer = await server.admin('POST', '/integrations', {
      name: slug,
      slug,
      ai_provider_id: 'azure-ai',
      key: AZURE_KEY,
      workspace_id: server.first.workspace_id,
      configurations: { azure_auth_mode: 'default', azure_foundry_url: resource.url + path, ...more },
    });
    expect(answer.status).toBe(200);
  }
});
afterAll(async () => {
  await server?.stop();
  await resource?.stop();
});
beforeEach(() => {
  resource.received.length = 0;
});
afterEach(() => expect(resource.faults.splice(0)).toEqual([]));

const client = () => new OpenAI({ apiKey: server.first.workspace_api_key, baseURL: `${server.url}/v1`, maxRetries: 0 });
const anthropic = () => new Anthropic({ apiKey: server.first.workspace_api_key, baseURL: server.url, maxRetries: 0 });
const HI = [{ role: 'user' as const, content: 'Hi' }];

describe('an account of Microsoft Foundry', () => {
  it('answers chats of any model at the inference API, under the names that it knows', async () => {
    const answer = await client().chat.completions.create({
      model: '@foundry/Mistral-Large-3',
      messages: [{ role: 'developer', content: 'be brief' }, ...HI],
      max_completion_tokens: 9,
    });
    expect(answer.choices[0]?.message.content).toBe('Bonjour');
    expect(resource.last).toEqual({
      model: 'Mistral-Large-3',
      messages: [{ role: 'system', content: 'be brief' }, ...HI],
      max_tokens: 9,
    });
  });

  it('streams, and counts the usage that comes with the last chunk', async () => {
    const stream = await client().chat.completions.create({ model: '@foundry/Llama-4', messages: HI, stream: true });
    let text = '';
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
    expect(text).toBe('Bonjour');
    const [record] = await server.records();
    expect(record).toMatchObject({ provider: 'azure-ai', usage: { input: 3, output: 2 } });
  });

  it('embeds', async () => {
    const answer = await client().embeddings.create({
      model: '@foundry/embed-v-4-0',
      input: 'Hi',
      encoding_format: 'float',
    });
    expect(answer.data[0]?.embedding).toEqual([1, 2]);
  });

  it('asks for Claude models at the Anthropic API, whatever the caller speaks', async () => {
    const message = await anthropic().messages.create({
      model: '@foundry/claude-sonnet-4-5',
      max_tokens: 9,
      messages: HI,
    });
    expect(message.content).toEqual(MESSAGE.content);
    const chat = await client().chat.completions.create({
      model: '@foundry/claude-sonnet-4-5',
      messages: HI,
      max_completion_tokens: 9,
    });
    expect(chat.choices[0]?.message.content).toBe('Hello from Claude');
    expect(chat.usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 4 });
    const final = await anthropic()
      .messages.stream({ model: '@foundry/claude-sonnet-4-5', max_tokens: 9, messages: HI })
      .finalMessage();
    expect(final.content).toMatchObject([{ type: 'text', text: 'Hello from Claude' }]);
    expect(resource.received.map(({ path }) => path)).toEqual(Array(3).fill('/anthropic/v1/messages'));
  });

  it('asks a deployment under its own name', async () => {
    await anthropic().messages.create({ model: '@claude/whatever', max_tokens: 9, messages: HI });
    expect(resource.last.model).toBe('claude-prod');
    const counted = await anthropic().messages.countTokens({ model: '@claude/whatever', messages: HI });
    expect(counted.input_tokens).toBe(7);
  });

  it('refuses what the API of the account has not, and calls nothing', async () => {
    const failure = await client()
      .embeddings.create({ model: '@claude/whatever', input: 'Hi' })
      .catch((error: unknown) => error);
    expect(failure).toMatchObject({ status: 501, code: 'unsupported_operation' });
    expect(resource.received).toEqual([]);
  });

  it('is refused clearly when its address has a query', async () => {
    const answer = await server.call(
      '/chat/completions',
      { model: 'm', messages: HI },
      {
        'x-gateway-provider': 'azure-ai',
        authorization: 'Bearer key',
        'x-gateway-azure-foundry-url': `${resource.url}/models?x=1`,
      },
    );
    expect(answer.status).toBe(400);
    expect(await answer.text()).toContain('azure_foundry_url');
    expect(resource.received).toEqual([]);
  });

  it('is the caller’s own by a header', async () => {
    const answer = await server.call(
      '/chat/completions',
      { model: 'm', messages: HI },
      {
        'x-gateway-provider': 'azure-ai',
        authorization: `Bearer ${AZURE_KEY}`,
        'x-gateway-azure-foundry-url': `${resource.url}/models`,
      },
    );
    expect(answer.status).toBe(200);
  });
});
