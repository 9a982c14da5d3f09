/** A refusal by a guardrail tells the people who call, where their clients show it, which guardrail it was and what it found. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';

const CARD = '4111 1111 1111 1111';
const SENTENCE = 'The guardrail checks failed; see hook_results.';
const asked = [
  { role: 'user' as const, content: 'Hello' },
  { role: 'assistant' as const, content: 'Hello.' },
  { role: 'user' as const, content: `My card is ${CARD}.` },
];

let server: TestServer;
let openai: OpenAI;
let anthropic: Anthropic;
let slug: string;

beforeAll(async () => {
  server = await startServer();
  const apiKey = server.first.workspace_api_key;
  openai = new OpenAI({ apiKey, baseURL: `${server.url}/v1`, maxRetries: 0 });
  anthropic = new Anthropic({ apiKey, baseURL: server.url, maxRetries: 0 });
  const made = await server.admin('POST', '/guardrails', {
    name: 'No cards',
    workspace_id: server.first.workspace_id,
    checks: [{ id: 'gateway.pii', parameters: { categories: ['CREDIT_CARD'] } }],
    actions: { deny: true, async: false, on_success: {}, on_fail: {} },
  });
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  slug = String(made.body.slug);
});

afterAll(() => server?.stop());

const under = (config: object) => ({ headers: { 'x-gateway-config': JSON.stringify(config) } });

async function failure(call: PromiseLike<unknown>): Promise<Error & { status?: number }> {
  try {
    await call;
  } catch (error) {
    if (error instanceof Error) return error;
  }
  throw new Error('The call should have been refused.');
}

describe('the official clients show the guardrail, what it found and where', () => {
  const chat = (config: object, stream = false) =>
    failure(
      openai.chat.completions
        .create({ model: '@sandbox/echo', messages: asked, stream }, under(config))
        .then(async (answer) => {
          if (Symbol.asyncIterator in answer) for await (const _ of answer);
        }),
    );

  it.each([false, true])('in a request (OpenAI, stream: %s)', async (stream) => {
    const { message, status } = await chat({ input_guardrails: [slug] }, stream);
    expect(status).toBe(446);
    expect(message).toBe(`446 Blocked by guardrail "No cards": CREDIT_CARD found in messages[2]. ${SENTENCE}`);
  });

  it('in a request (Anthropic)', async () => {
    const body = { model: '@sandbox/echo', max_tokens: 50, messages: asked };
    const { message } = await failure(anthropic.messages.create(body, under({ input_guardrails: [slug] })));
    // This client shows the whole body.
    const told = JSON.parse(message.replace(/^446 /, '')) as { error: { message: string } };
    expect(told.error.message).toContain('Blocked by guardrail "No cards": CREDIT_CARD found in messages[2].');
  });

  it.each([false, true])('in an answer (stream: %s)', async (stream) => {
    const { message } = await chat({ output_guardrails: [slug] }, stream);
    expect(message).toContain('Blocked by guardrail "No cards": CREDIT_CARD found in the answer.');
    expect(message).not.toContain(CARD);
  });

  it.each([
    ['a forbidden word', { 'default.contains': { words: ['card'], operator: 'none' }, deny: true }, 'word 1 found in'],
    ['too many words', { 'default.wordCount': { minWords: 1, maxWords: 2 }, deny: true }, 'default.wordCount failed'],
    [
      'a check that cannot be carried out',
      { 'default.webhook': { webhookURL: 'https://webhook.example.com/' }, deny: true },
      'default.webhook could not be carried out',
    ],
  ])('for %s, and never what was found', async (_title, guardrail, why) => {
    const { message } = await chat({ input_guardrails: [guardrail] });
    expect(message).toContain('Blocked by guardrail "');
    expect(message).toContain(why);
    expect(message).toContain(SENTENCE);
    expect(message).not.toMatch(/4111|My card/);
  });
});
