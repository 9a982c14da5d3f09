/** A server with an account at a strict Bedrock, and clients that call it, for the suites of Bedrock's operations. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest';
import { startServer, type TestServer } from './server.ts';
import { AWS_KEYS, BEDROCK_REGION, type Fields } from './upstreams/bedrock.ts';
import { type BedrockRuntime, type RuntimeCall, startBedrockRuntime } from './upstreams/bedrock-runtime.ts';

export const NOVA = 'eu.amazon.nova-pro-v1:0';
export const CLAUDE = 'eu.anthropic.claude-opus-4-1-20250805-v1:0';
export const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

export let server: TestServer;
export let upstream: BedrockRuntime;
export let openai: OpenAI;
export let anthropic: Anthropic;

export const last = (): RuntimeCall => {
  const call = upstream.calls.at(-1);
  if (call === undefined) throw new Error('nothing was called');
  return call;
};
export const user = (content: string) => ({ role: 'user' as const, content });
export const chat = (body: Fields, headers: Record<string, string> = {}) =>
  server.call(
    '/chat/completions',
    { model: NOVA, messages: [user('hi')], ...body },
    {
      'x-gateway-provider': '@aws',
      ...headers,
    },
  );
export const errorOf = async (answer: Response): Promise<Fields> => ((await answer.json()) as { error: Fields }).error;

/** Starts the server and the upstream for the tests of a file. */
export function useBedrock(): void {
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
}
