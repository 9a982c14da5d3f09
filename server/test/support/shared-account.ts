/** A server with two accounts that workspaces share, over an upstream that keeps files, batches and jobs. */
import type OpenAI from 'openai';
import { toFile } from 'openai';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { type ObjectServer, startObjectServer } from './object-server.ts';
import { type OpenAiObjects, startOpenAiObjects } from './upstreams/openai.ts';

export const ROWS = Array.from({ length: 12 }, (_, i) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: `Question ${i}` },
      { role: 'assistant', content: `Answer ${i}` },
    ],
  }),
).join('\n');
export const hyperparameters = { n_epochs: 3, learning_rate_multiplier: 0.5, batch_size: 8 };
export const method = { type: 'supervised', supervised: { hyperparameters } };
export const ONE = 'openai-shared-one';
export const TWO = 'openai-shared-two';
export const AT_ONE = { 'x-gateway-provider': `@${ONE}` };
export const AT_TWO = { 'x-gateway-provider': `@${TWO}` };

export let server: ObjectServer;
export let upstream: OpenAiObjects;
export let mine: OpenAI;

export const upload = (client = mine, purpose: 'fine-tune' | 'batch' = 'fine-tune', text = ROWS) =>
  toFile(Buffer.from(text), 'rows.jsonl').then((file) => client.files.create({ file, purpose }));

/** What the provider was asked while `run` ran, as `METHOD path`. */
export async function asked(run: () => Promise<unknown>): Promise<string[]> {
  const before = upstream.received.length;
  await run();
  return upstream.received.slice(before).map((one) => `${one.method} ${one.path}`);
}

export const jobBody = (training_file: string, more: object = {}) => ({
  model: 'gpt-4o-mini-2024-07-18',
  training_file,
  suffix: 'v1',
  method,
  ...more,
});

/** Starts the server and the upstream for the tests of a file. */
export function useSharedAccounts(): void {
  beforeAll(async () => {
    upstream = await startOpenAiObjects();
    server = await startObjectServer();
    await server.shared({ id: 'openai', host: upstream.base });
    await server.provider({ id: 'cohere', host: upstream.base });
    mine = server.first_.client(ONE);
  });
  afterAll(async () => {
    await server?.stop();
    await upstream?.stop();
  });
  afterEach(() => {
    expect(upstream.faults.splice(0)).toEqual([]);
  });
}
