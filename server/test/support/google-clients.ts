/** A server with accounts at Google AI and Vertex AI, and clients that call it. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { startServer, type TestServer } from './server.ts';
import type { StrictUpstream } from './strict-upstream.ts';
import { GEMINI_KEY, startGemini } from './upstreams/gemini.ts';
import { startVertexModels, VERTEX_TOKEN } from './upstreams/vertex-predict.ts';

export let server: TestServer;
export let gemini: StrictUpstream;
export let vertex: StrictUpstream;
export let openai: OpenAI;
export let anthropic: Anthropic;

export const SCHEMA = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  type: 'object' as const,
  properties: { city: { type: 'string' as const }, kind: { const: 'now' } },
  required: ['city'],
  additionalProperties: false,
};
export const FUNCTION = { type: 'function' as const, function: { name: 'get_weather', parameters: SCHEMA } };
export const TOOL = { name: 'get_weather', input_schema: SCHEMA };
export const HELLO = [{ role: 'user' as const, content: 'Grüße 🎉' }];

interface Called {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
}

/** One round of tools in each caller's own words: asks, answers every call, and says what came of it. */
export const ROUNDS: Readonly<
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

/** Starts the server and both upstreams for the tests of a file. */
export function useGoogle(): void {
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
}
