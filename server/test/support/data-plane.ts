/** A server with a stored account, over an upstream that answers chat. */
import { afterAll, beforeAll } from 'vitest';
import { startServer, type TestServer } from './server.ts';
import { type FakeUpstream, sendJson, startUpstream } from './upstream.ts';

export const ANSWER =
  '{"id":"chatcmpl-1","object":"chat.completion","created":1767225600,"model":"gpt-4o-2024-08-06","choices":[{"index":0,"message":{"role":"assistant","content":"caf\\u00e9 \\/ na\\u00efve"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}},"x_unknown":{"big":12345678901234567890}}';

const chunk = (delta: string, finish: string | null = null) =>
  `data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o","choices":[{"index":0,"delta":${delta},"finish_reason":${finish === null ? 'null' : `"${finish}"`}}]}\n\n`;
export const DONE = 'data: [DONE]\n\n';
export const STREAM = [
  chunk('{"role":"assistant","content":"one "}'),
  chunk('{"content":"zwei – 三 🎉"}'),
  chunk('{}', 'stop'),
];

export let upstream: FakeUpstream;
export let server: TestServer;
export let stored: string;
export const chat = (extra: object = {}) => ({
  model: 'gpt-4o',
  messages: [{ role: 'user', content: 'Hello' }],
  ...extra,
});
export const viaStored = () => ({ 'x-gateway-provider': `@${stored}` });

/** Starts the server and the upstream for the tests of a file. */
export function useDataPlane(): void {
  beforeAll(async () => {
    upstream = await startUpstream((_request, response) => sendJson(response, 200, ANSWER));
    server = await startServer({
      SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}`,
      SLUICE_HEADER_ALIASES: 'x-portkey-',
    });
    stored = await server.provider({ id: 'openai', host: `${upstream.url}/v1`, key: 'sk-stored' });
  });

  afterAll(async () => {
    await server?.stop();
    await upstream?.stop();
  });
}
