/** A server whose guardrails judge requests, with an upstream and webhooks. */
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { startServer, type TestServer } from './server.ts';
import { type FakeUpstream, sendJson, startUpstream } from './upstream.ts';

export type Json = Record<string, unknown>;

export const ANSWER = {
  id: 'x',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-4o',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
};
export const SECRET = 'someone@example.com';

export let upstream: FakeUpstream;
export let hooks: FakeUpstream;
export let server: TestServer;
export let slug: string;
export let workspace: string;
export const send = (body: unknown, headers: Record<string, string> = {}, path = '/chat/completions') =>
  server.call(path, body, { 'x-gateway-provider': `@${slug}`, ...headers });
export const inline = (config: Json) => ({ 'x-gateway-config': JSON.stringify({ provider: `@${slug}`, ...config }) });
export const lastRecord = async () =>
  (await server.records())[0] as Json & { guardrails?: (Json & { checks: Json[] })[] };
export type Check = { id: string; parameters: Json };

export const pii = (redact: boolean): Check => ({
  id: 'gateway.pii',
  parameters: { categories: ['EMAIL_ADDRESS'], redact },
});

export const WORD = { deny: true, 'default.contains': { words: ['forbidden'], operator: 'none' } };

/** Starts the server and both upstreams for the tests of a file. */
export function useGuarded(): void {
  beforeAll(async () => {
    upstream = await startUpstream((_request, response) => sendJson(response, 200, ANSWER));
    hooks = await startUpstream(() => undefined);
    server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port},127.0.0.1:${hooks.port}` });
    slug = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
    workspace = server.first.workspace_id;
  });
  afterAll(async () => {
    await server?.stop();
    await Promise.all([upstream?.stop(), hooks?.stop()]);
  });
  beforeEach(() => {
    upstream.received.length = 0;
    hooks.received.length = 0;
    upstream.answer = (_request, response) => sendJson(response, 200, ANSWER);
    hooks.answer = (request, response) => {
      if (request.path === '/hangs') return;
      if (request.path === '/crashes') sendJson(response, 500, {});
      else sendJson(response, 200, { verdict: true });
    };
  });
}
