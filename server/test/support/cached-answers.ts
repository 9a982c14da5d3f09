/** A server that caches answers, over an upstream that counts its calls. */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { startServer, type TestServer } from './server.ts';
import { chatStream } from './streams.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from './upstream.ts';

export let upstream: FakeUpstream;
export let server: TestServer;
let store: DatabaseSync;
/** Chat requests the provider has answered. */
export let answered = 0;
/** What tests change: how far the clock of requests is ahead (milliseconds), whether answers have no vector, questions so far. */
export const state = { ahead: 0, vectorless: false, questions: 0 };

const completion = (content: string, model = 'gpt-4o') =>
  JSON.stringify({
    id: 'c1',
    object: 'chat.completion',
    created: 1,
    model,
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 },
  });

/** Vectors by what a text is about: its first word. */
const TOPICS = ['weather', 'money', 'cooking'];
function vector(text: string): number[] {
  const at = TOPICS.findIndex((topic) => text.includes(topic));
  return [0, 1, 2].map((i) => (i === at ? 1 : 0.01 * (text.length % 7)));
}

export const usual: FakeUpstream['answer'] = (request, response) => {
  const body = JSON.parse(request.body.toString()) as { input?: string; stream?: boolean };
  if (request.path.endsWith('/embeddings')) {
    sendJson(
      response,
      200,
      JSON.stringify({
        object: 'list',
        data: [{ object: 'embedding', index: 0, embedding: vector(body.input ?? '') }],
        model: 'text-embedding-3-small',
        usage: { prompt_tokens: 3, total_tokens: 3 },
      }),
    );
    return;
  }
  answered += 1;
  if (body.stream === true) sendEvents(response, chatStream(`answer ${answered}`));
  else sendJson(response, 200, completion(`answer ${answered}`));
};

export const ask = (content = `question ${++state.questions}`, more: object = {}) => ({
  model: '@openai-test/gpt-4o',
  messages: [{ role: 'user', content }],
  ...more,
});
export const SIMPLE = { cache: { mode: 'simple' } };
export const using = (config: object, headers: Record<string, string> = {}) => ({
  'x-gateway-config': JSON.stringify(config),
  ...headers,
});
/** Comes back when what the request taught is in the store: an answer does not wait for that. */
export async function chat(
  body: object,
  config: object = SIMPLE,
  headers: Record<string, string> = {},
): Promise<Response> {
  const before = questionsKept();
  const answer = await server.call('/chat/completions', body, using(config, headers));
  if (answer.status === 200 && status(answer) === 'SEMANTIC MISS' && !state.vectorless)
    await vi.waitFor(() => expect(questionsKept()).toBe(before + 1), { timeout: 15_000 });
  return answer;
}
/** No vectors can be had, so that no question is kept. */
export const questionsKept = () => Number(store.prepare('SELECT count(*) AS n FROM answer_vectors').get()?.n);
export const status = (response: Response) => response.headers.get('x-gateway-cache-status');
export const contentOf = async (response: Response) =>
  ((await response.json()) as { choices: { message: { content: string } }[] }).choices[0]?.message.content;

/** Starts the server and the upstream for the tests of a file. */
export function useCache(): void {
  beforeAll(async () => {
    upstream = await startUpstream(usual);
    const clock = { ...systemClock, now: () => systemClock.now() + state.ahead };
    server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` }, { clock });
    await server.admin('PUT', '/admin/organisation/settings', {
      data_plane_security_settings: { block_inline_config: false },
    });
    await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
    store = new DatabaseSync(join(server.dataDir, 'control.db'), { readOnly: true });
  });

  beforeEach(() => {
    answered = 0;
  });

  afterEach(() => {
    upstream.answer = usual;
    state.vectorless = false;
    state.ahead = 0;
  });

  afterAll(async () => {
    store?.close();
    await server?.stop();
    await upstream?.stop();
  });
}
