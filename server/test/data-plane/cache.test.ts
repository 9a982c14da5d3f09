/** Answers that are given again, through a whole server: what a client sees, what the provider was asked, what it cost. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { compose, type Running } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import type { FirstRun } from '../../src/first-run.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { actionsWith } from '../support/guardrails.ts';
import { migratedDatabase } from '../support/postgres.ts';
import { redisMissing, startRedis } from '../support/redis.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { chatStream } from '../support/streams.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

let upstream: FakeUpstream;
let server: TestServer;
let store: DatabaseSync;
/** Chat requests the provider has answered. */
let answered = 0;
/** How far the clock of requests is ahead, milliseconds. */
let ahead = 0;

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

const usual: FakeUpstream['answer'] = (request, response) => {
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

beforeAll(async () => {
  upstream = await startUpstream(usual);
  const clock = { ...systemClock, now: () => systemClock.now() + ahead };
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
  vectorless = false;
  ahead = 0;
});

afterAll(async () => {
  store?.close();
  await server?.stop();
  await upstream?.stop();
});

let questions = 0;
const ask = (content = `question ${++questions}`, more: object = {}) => ({
  model: '@openai-test/gpt-4o',
  messages: [{ role: 'user', content }],
  ...more,
});
const SIMPLE = { cache: { mode: 'simple' } };
const SEMANTIC = { cache: { mode: 'semantic' } };
const using = (config: object, headers: Record<string, string> = {}) => ({
  'x-gateway-config': JSON.stringify(config),
  ...headers,
});
/** Comes back when what the request taught is in the store: an answer does not wait for that. */
async function chat(body: object, config: object = SIMPLE, headers: Record<string, string> = {}): Promise<Response> {
  const before = questionsKept();
  const answer = await server.call('/chat/completions', body, using(config, headers));
  if (answer.status === 200 && status(answer) === 'SEMANTIC MISS' && !vectorless)
    await vi.waitFor(() => expect(questionsKept()).toBe(before + 1), { timeout: 15_000 });
  return answer;
}
/** No vectors can be had, so that no question is kept. */
let vectorless = false;
const questionsKept = () => Number(store.prepare('SELECT count(*) AS n FROM answer_vectors').get()?.n);
const status = (response: Response) => response.headers.get('x-gateway-cache-status');
const contentOf = async (response: Response) =>
  ((await response.json()) as { choices: { message: { content: string } }[] }).choices[0]?.message.content;

describe('the same request', () => {
  it('is answered from the cache, costs nothing, and says what was saved', async () => {
    const body = ask();
    const first = await chat(body);
    expect(status(first)).toBe('MISS');
    const text = await first.text();
    const second = await chat({ messages: body.messages, model: body.model });
    expect(status(second)).toBe('HIT');
    expect(await second.text()).toBe(text);
    expect(answered).toBe(1);
    expect(second.headers.get('x-gateway-cache-saved-cost')).toBe('0.00075');
    expect(second.headers.get('x-gateway-provider')).toBe('openai');
    const [hit, miss] = await server.records();
    expect(miss).toMatchObject({ cache_status: 'MISS', cost_micros: 750 });
    expect(hit).toMatchObject({
      cache_status: 'HIT',
      cost_micros: 0,
      usage: null,
      attempts: [],
      outcome: 'ok',
      model_answered: 'gpt-4o',
      cache: { saved_micros: 750, similarity: null },
    });
  });

  it('without a cache is asked anew each time', async () => {
    const body = ask();
    for (const expected of ['answer 1', 'answer 2']) {
      const answer = await server.call('/chat/completions', body);
      expect(status(answer)).toBe('DISABLED');
      expect(await contentOf(answer)).toBe(expected);
    }
  });

  it('as a stream is given again as a stream that the official client reads to its end', async () => {
    const client = new OpenAI({
      apiKey: server.first.workspace_api_key,
      baseURL: `${server.url}/v1`,
      maxRetries: 0,
      defaultHeaders: using(SIMPLE),
    });
    const body = ask();
    const seen: string[] = [];
    for (let i = 0; i < 2; i++) {
      let text = '';
      const stream = await client.chat.completions.create({ ...body, stream: true } as never);
      for await (const chunk of stream as unknown as AsyncIterable<OpenAI.ChatCompletionChunk>)
        text += chunk.choices[0]?.delta.content ?? '';
      seen.push(text);
    }
    expect(seen).toEqual(['answer 1', 'answer 1']);
    expect((await server.records())[0]).toMatchObject({ cache_status: 'HIT', stream: true, cost_micros: 0 });
    // An answer in one piece is another request.
    expect(status(await chat(body))).toBe('MISS');
  });

  it.each<[string, string, object]>([
    ['messages', '/messages', { max_tokens: 9 }],
    ['responses', '/responses', {}],
    ['embeddings', '/embeddings', {}],
  ])('of %s is answered from the cache', async (_name, path, more) => {
    const text = `question ${++questions}`;
    const said = path === '/messages' ? { messages: [{ role: 'user', content: text }] } : { input: text };
    const body = { model: '@openai-test/gpt-4o', ...said, ...more };
    if (path === '/responses') {
      upstream.answer = (_request, response) =>
        sendJson(
          response,
          200,
          JSON.stringify({
            id: 'r',
            object: 'response',
            status: 'completed',
            model: 'gpt-4o',
            output: [],
            usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 },
          }),
        );
    }
    const before = upstream.received.length;
    const first = await server.call(path, body, using(SIMPLE));
    const text1 = await first.text();
    const second = await server.call(path, body, using(SIMPLE));
    expect([status(first), status(second)]).toEqual(['MISS', 'HIT']);
    expect(await second.text()).toBe(text1);
    expect(upstream.received.length - before).toBe(1);
  });

  it('is asked anew and kept again when the caller forces it', async () => {
    const body = ask();
    await chat(body);
    const forced = await chat(body, SIMPLE, { 'x-gateway-cache-force-refresh': 'true' });
    expect(status(forced)).toBe('REFRESH');
    expect(await contentOf(forced)).toBe('answer 2');
    expect(await contentOf(await chat(body))).toBe('answer 2');
  });

  it('is neither looked for nor kept when the caller wants no traces', async () => {
    const body = ask();
    const off = { 'x-gateway-debug': 'false' };
    expect(status(await chat(body, SIMPLE, off))).toBe('DISABLED');
    expect(status(await chat(body))).toBe('MISS');
    expect(status(await chat(body, SIMPLE, off))).toBe('DISABLED');
  });

  it('can be told to have a cache by a header', async () => {
    const body = ask();
    const header = { 'x-gateway-cache': 'simple' };
    await server.call('/chat/completions', body, header);
    expect(status(await server.call('/chat/completions', body, header))).toBe('HIT');
    expect((await server.call('/chat/completions', body, { 'x-gateway-cache': 'often' })).status).toBe(400);
  });
});

describe('another request is a miss', () => {
  const changes: [string, object, object, Record<string, string>][] = [
    ['by its words', { messages: [{ role: 'user', content: 'other words' }] }, SIMPLE, {}],
    ['by a parameter', { temperature: 0.5 }, SIMPLE, {}],
    ['by its model', { model: '@openai-test/gpt-4o-mini' }, SIMPLE, {}],
    ['by its metadata', {}, SIMPLE, { 'x-gateway-metadata': '{"team":"b"}' }],
    ['by its config', {}, { ...SIMPLE, override_params: { temperature: 0.1 } }, {}],
    ['by its namespace', {}, SIMPLE, { 'x-gateway-cache-namespace': 'b' }],
    ['by an option of the provider', {}, SIMPLE, { 'x-gateway-openai-organization': 'org-b' }],
    ['by a forwarded header', {}, SIMPLE, { 'x-gateway-forward-headers': 'x-tenant', 'x-tenant': 'b' }],
    ['by the form of its answer', {}, SIMPLE, { 'x-gateway-strict-open-ai-compliance': 'false' }],
  ];
  it.each(changes)('%s', async (_name, more, config, headers) => {
    const body = ask();
    await chat(body);
    expect(status(await chat({ ...body, ...more }, config, headers))).toBe('MISS');
    expect(status(await chat(body))).toBe('HIT');
  });

  it('by a namespace, when its metadata only look like one', async () => {
    const body = ask();
    await chat(body, SIMPLE, { 'x-gateway-metadata': '{"namespace":"team-a"}' });
    expect(status(await chat(body, SIMPLE, { 'x-gateway-cache-namespace': 'team-a' }))).toBe('MISS');
  });

  it('unless only metadata differ and a namespace stands in their place', async () => {
    const body = ask();
    const named = (team: string) => ({
      'x-gateway-cache-namespace': 'shared',
      'x-gateway-metadata': JSON.stringify({ team }),
    });
    await chat(body, SIMPLE, named('a'));
    expect(status(await chat(body, SIMPLE, named('b')))).toBe('HIT');
  });
});

describe('whose answers', () => {
  const threshold = { cache: { mode: 'semantic', threshold: 0 } };
  async function otherKey(): Promise<string> {
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: `key ${++questions}`,
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
    });
    expect(made.status).toBe(200);
    return made.body.key as string;
  }
  const as = (key: string, body: object, config: object) => chat(body, config, { 'x-gateway-api-key': key });

  it.each([
    ['simple', SIMPLE],
    ['semantic with a threshold of zero', threshold],
  ])('are those of one key: %s', async (_name, config) => {
    const body = ask(`weather ${++questions}`);
    await chat(body, config);
    expect(status(await chat(body, config))).toBe('HIT');
    const answer = await as(await otherKey(), body, config);
    expect(status(answer)).toMatch(/MISS$/);
    expect(await contentOf(answer)).toBe('answer 2');
  });

  it.each([
    ['simple', SIMPLE],
    ['semantic with a threshold of zero', threshold],
  ])('are those of one workspace and organisation: %s', async (_name, config) => {
    const made = await server.admin('POST', '/admin/workspaces', { name: `Other ${++questions}` });
    const workspace = made.body.id as string;
    const key = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'other',
      workspace_id: workspace,
      scopes: ['completions.write'],
    });
    const slug = `other-${questions}`;
    const integration = await server.admin('POST', '/integrations', {
      name: slug,
      slug,
      ai_provider_id: 'openai',
      key: 'sk-stored-credential',
      workspace_id: workspace,
      configurations: { custom_host: `${upstream.url}/v1` },
      default_provider_slug: slug,
    });
    expect([made.status, key.status, integration.status]).toEqual([200, 200, 200]);
    // One and the same account at the provider, and the same words: only the workspace differs.
    const account = { provider: 'openai', api_key: 'sk-same', custom_host: `${upstream.url}/v1` };
    const own = (embedding: string) => ({
      ...account,
      cache: {
        ...config.cache,
        ...('threshold' in config.cache ? { embedding: { provider: embedding, model: 'm' } } : {}),
      },
    });
    const body = { ...ask(`weather ${questions}`), model: 'gpt-4o' };
    await chat(body, own('@openai-test'));
    expect(status(await chat(body, own('@openai-test')))).toBe('HIT');
    const answer = await as(key.body.key as string, body, own(`@${slug}`));
    expect(status(answer)).toMatch(/MISS$/);
    expect(await contentOf(answer)).toBe('answer 2');
  });

  // Vectors are made by the same account for both, so that nothing else tells the requests apart.
  const alike = { cache: { ...threshold.cache, embedding: { provider: '@openai-test', model: 'm' } } };
  const both = [
    ['simple', SIMPLE],
    ['semantic with a threshold of zero', alike],
  ] as const;

  it.each(both)('are those of one account, and of one credential of it: %s', async (name, config) => {
    const slug = `second-${name.slice(0, 6)}`;
    await server.provider({ id: 'openai', host: `${upstream.url}/v1`, slug, key: 'sk-second' });
    const body = ask(`weather ${++questions}`);
    await chat(body, config);
    expect(status(await chat(body, config))).toBe('HIT');
    expect(status(await chat({ ...body, model: `@${slug}/gpt-4o` }, config))).toMatch(/MISS$/);
    expect(status(await chat({ ...body, model: `@${slug}/gpt-4o` }, config))).toBe('HIT');
    const rotated = await server.admin('PUT', `/integrations/${slug}-integration`, { key: 'sk-third' });
    expect(rotated.status).toBe(200);
    expect(status(await chat({ ...body, model: `@${slug}/gpt-4o` }, config))).toMatch(/MISS$/);
  });

  it.each(both)('are those of one credential that callers bring themselves: %s', async (_name, config) => {
    const own = { provider: 'openai', custom_host: `${upstream.url}/v1`, ...config };
    const body = { ...ask(`weather ${++questions}`), model: 'gpt-4o' };
    const call = async (key: string) => status(await chat(body, own, { authorization: `Bearer ${key}` }));
    expect(await call('sk-one')).toMatch(/MISS$/);
    expect(await call('sk-one')).toBe('HIT');
    expect(await call('sk-two')).toMatch(/MISS$/);
  });

  it.each(both)('are those of one version of a saved config: %s', async (_name, config) => {
    const saved = await server.admin('POST', '/configs', {
      name: `cached ${++questions}`,
      workspace_id: server.first.workspace_id,
      config,
    });
    const slug = saved.body.slug as string;
    const body = ask(`weather ${questions}`);
    const before = questionsKept();
    const call = async () => {
      const answer = await server.call('/chat/completions', body, { 'x-gateway-config': slug });
      await answer.text();
      return status(answer);
    };
    expect(await call()).toMatch(/MISS$/);
    if (config !== SIMPLE) await vi.waitFor(() => expect(questionsKept()).toBe(before + 1), { timeout: 15_000 });
    expect(await call()).toBe('HIT');
    // The same words, saved again.
    expect((await server.admin('PUT', `/configs/${slug}`, { config })).status).toBe(200);
    expect(await call()).toMatch(/MISS$/);
  });

  it('are those of one operation: what two callers want in their own shapes is asked of the provider in one', async () => {
    const said = ask();
    const asked: unknown[] = [];
    for (const [path, limit] of [
      ['/chat/completions', 'max_completion_tokens'],
      ['/messages', 'max_tokens'],
    ] as const) {
      const answer = await server.call(path, { ...said, [limit]: 9 }, using(SIMPLE));
      expect([answer.status, status(answer)]).toEqual([200, 'MISS']);
      expect(await answer.json()).toHaveProperty(path === '/messages' ? 'content' : 'choices');
      const { body: sent } = upstream.received.at(-1) as { body: Buffer };
      asked.push(JSON.parse(sent.toString('utf8')));
    }
    expect(asked[1]).toEqual(asked[0]);
  });
});

describe('a config with several targets', () => {
  const account = { provider: '@openai-test' };
  const config = (more: object = {}) => ({
    strategy: { mode: 'fallback' },
    targets: [{ ...account, override_params: { model: 'first' }, ...more }, account],
    cache: { mode: 'simple' },
  });

  it('keeps the answer of the target that gave it, and never that of one that failed', async () => {
    upstream.answer = (request, response) =>
      (JSON.parse(request.body.toString()) as { model: string }).model === 'first'
        ? sendJson(response, 503, '{"error":{"message":"down"}}')
        : usual(request, response);
    const body = { ...ask(), model: 'gpt-4o' };
    const first = await chat(body, config());
    expect([first.status, status(first)]).toEqual([200, 'MISS']);
    const before = upstream.received.length;
    // The first target is asked again: nothing is known of it.
    const second = await chat(body, config());
    expect([second.status, status(second)]).toEqual([200, 'HIT']);
    expect(await second.text()).toBe(await first.text());
    expect(upstream.received.length - before).toBe(1);
    upstream.answer = usual;
    expect(status(await chat(body, config()))).toBe('MISS');
  });

  it('gives an answer again only under the guardrails that judged it', async () => {
    const made = await server.admin('POST', '/guardrails', {
      name: `words ${++questions}`,
      workspace_id: server.first.workspace_id,
      checks: [{ id: 'default.contains', parameters: { words: ['secret'], operator: 'none' } }],
      actions: actionsWith({ deny: true }),
    });
    expect(made.status).toBe(200);
    const slug = made.body.slug as string;
    const guarded = { ...config({ output_guardrails: [slug] }), strategy: { mode: 'single' } };
    const body = { ...ask(), model: 'gpt-4o' };
    await chat(body, guarded);
    expect(status(await chat(body, guarded))).toBe('HIT');
    const changed = await server.admin('PUT', `/guardrails/${slug}`, {
      checks: [{ id: 'default.contains', parameters: { words: ['answer'], operator: 'none' } }],
    });
    expect(changed.status).toBe(200);
    expect((await chat(body, guarded)).status).toBe(446);
  });
});

describe('under limits', () => {
  it('an answer from the cache counts as a request, and uses no tokens and no money', async () => {
    const made = await server.admin('POST', '/api-keys/workspace/service', {
      name: `limited ${++questions}`,
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
      usage_limits: { credit_limit: 1, type: 'cost' },
    });
    expect(made.status).toBe(200);
    const key = made.body.key as string;
    const body = { ...ask(), max_tokens: 50 };
    const call = async () => {
      const answer = await chat(body, SIMPLE, { 'x-gateway-api-key': key });
      await answer.text();
      return [status(answer), answer.headers.get('x-gateway-limit-usage-cost-remaining')];
    };
    const [, before] = await call();
    const [first] = await server.records();
    expect(first).toMatchObject({ cost_micros: 750, limits: { used: { cost: 750, tokens: 150, requests: 1 } } });
    const [hit, left] = await call();
    expect(hit).toBe('HIT');
    // The first answer told what its estimate left; the second one what the truth did, and reserved again.
    expect(Number(left)).toBeLessThanOrEqual(Number(before));
    const [second] = await server.records();
    expect(second).toMatchObject({ cost_micros: 0, limits: { used: { cost: 0, tokens: 0, requests: 1 } } });
  });
});

describe('an answer is not kept', () => {
  it.each<[string, FakeUpstream['answer']]>([
    ['when it is a failure', (_request, response) => sendJson(response, 500, '{"error":{"message":"no"}}')],
    [
      'when it is an error with a status of success',
      (_request, response) => sendJson(response, 200, '{"error":{"message":"no","type":"server_error"}}'),
    ],
    [
      'when it was cut',
      (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write('data: {"id":"c","choices":[{"index":0,"delta":{"content":"half"}}]}\n\n');
        setImmediate(() => response.destroy());
      },
    ],
  ])('%s', async (_name, answer) => {
    upstream.answer = answer;
    const body = ask(undefined, _name.includes('cut') ? { stream: true } : {});
    await chat(body)
      .then((response) => response.text())
      .catch(() => undefined);
    upstream.answer = usual;
    const next = await chat(body);
    expect(status(next)).toBe('MISS');
    await next.text();
  });

  it('when a guardrail denied it', async () => {
    const config = {
      ...SIMPLE,
      output_guardrails: [{ id: 'pg', deny: true, 'default.contains': { words: ['answer'], operator: 'none' } }],
    };
    const body = ask();
    expect((await chat(body, config)).status).toBe(446);
    expect((await chat(body, config)).status).toBe(446);
    expect(answered).toBe(2);
  });
});

describe('a similar question', () => {
  it('is answered with the answer to the first, and the record says how similar they are', async () => {
    const first = await chat(ask('what about the weather in Rome?'), SEMANTIC);
    expect(status(first)).toBe('SEMANTIC MISS');
    const second = await chat(ask('how is the weather over there today?'), SEMANTIC);
    expect(status(second)).toBe('SEMANTIC HIT');
    expect(await contentOf(second)).toBe('answer 1');
    const records = await server.records();
    const hit = records.find(({ cache_status }) => cache_status === 'SEMANTIC HIT');
    // Both may be written in one millisecond.
    const embedded = records.find(({ parent_span_id }) => parent_span_id === hit?.span_id);
    expect(hit).toMatchObject({ cost_micros: 0, operation: 'chat' });
    expect(hit).toMatchObject({ cache: { similarity: expect.closeTo(1, 1) } });
    expect(embedded).toMatchObject({ operation: 'embeddings', outcome: 'ok' });
  });

  it('about something else is asked', async () => {
    await chat(ask('a word about money please'), SEMANTIC);
    const other = await chat(ask('a word about cooking please'), SEMANTIC);
    expect(status(other)).toBe('SEMANTIC MISS');
    expect(await contentOf(other)).toBe('answer 2');
  });

  it('is compared without the system prompt, unless the config says so', async () => {
    const body = (system: string, text: string) => ({
      model: '@openai-test/gpt-4o',
      messages: [
        { role: 'system', content: system },
        { role: 'user', content: text },
      ],
      seed: 5,
    });
    await chat(body('be kind', 'my money is gone'), SEMANTIC);
    expect(status(await chat(body('be short', 'all my money went'), SEMANTIC))).toBe('SEMANTIC HIT');
    const match = { cache: { mode: 'semantic', system: 'match' } };
    await chat(body('be kind', 'my money is gone'), match);
    expect(status(await chat(body('be short', 'all my money went'), match))).toBe('SEMANTIC MISS');
    expect(status(await chat(body('be kind', 'all my money left'), match))).toBe('SEMANTIC HIT');
  });

  it('must have the same parameters', async () => {
    await chat(ask('the weather, warm or cold?', { top_p: 0.5 }), SEMANTIC);
    expect(status(await chat(ask('is the weather cold or warm?', { top_p: 0.6 }), SEMANTIC))).toBe('SEMANTIC MISS');
  });

  it('is not looked for in long conversations, nor where there is more than text', async () => {
    const many = Array.from({ length: 5 }, (_, i) => ({
      role: i % 2 === 0 ? 'user' : 'assistant',
      content: 'weather',
    }));
    const image = [
      { type: 'text', text: 'weather' },
      { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
    ];
    expect(status(await chat({ ...ask(), messages: many }, SEMANTIC))).toBe('MISS');
    expect(status(await chat({ ...ask(), messages: [{ role: 'user', content: image }] }, SEMANTIC))).toBe('MISS');
  });

  it('is asked like any other when no vector can be had', async () => {
    vectorless = true;
    upstream.answer = (request, response) =>
      request.path.endsWith('/embeddings')
        ? sendJson(response, 500, '{"error":{"message":"no"}}')
        : usual(request, response);
    const answer = await chat(ask('the weather again'), SEMANTIC);
    expect([answer.status, status(answer)]).toEqual([200, 'SEMANTIC MISS']);
  });

  it('is compared by the provider and model that the config names', async () => {
    const config = {
      cache: { mode: 'semantic', embedding: { provider: '@openai-test', model: 'text-embedding-3-large' } },
    };
    await chat(ask('cooking rice'), config);
    const sent = upstream.received.findLast(({ path }) => path.endsWith('/embeddings'));
    expect(JSON.parse(sent?.body.toString() ?? '{}')).toMatchObject({
      model: 'text-embedding-3-large',
      input: 'cooking rice',
    });
  });
});

describe('the age of an answer', () => {
  it('is bounded by the organisation', async () => {
    const saved = await server.admin('PUT', '/admin/organisation/settings', { cache_max_age: 60 });
    expect(saved.status).toBe(200);
    const body = ask();
    await chat(body);
    const hit = await chat(body);
    expect(status(hit)).toBe('HIT');
    expect(hit.headers.get('age')).toBe('0');
    await server.admin('PUT', '/admin/organisation/settings', { cache_max_age: null });
  });

  it('is judged when it is given again: a bound that came later holds for what was kept before', async () => {
    const body = ask();
    await chat(body);
    ahead = 61_000;
    const hit = await chat(body);
    expect([status(hit), hit.headers.get('age')]).toEqual(['HIT', '61']);
    expect((await server.admin('PUT', '/admin/organisation/settings', { cache_max_age: 60 })).status).toBe(200);
    expect(status(await chat(body))).toBe('MISS');
    await server.admin('PUT', '/admin/organisation/settings', { cache_max_age: null });
  });

  it.each([59, 7_776_001, 1.5, '60'])('of %s seconds is refused', async (max_age) => {
    const refused = await server.admin('POST', '/configs', {
      name: 'wrong',
      workspace_id: server.first.workspace_id,
      config: { cache: { mode: 'simple', max_age } },
    });
    expect(refused.status).toBe(400);
    expect(JSON.stringify(refused.body)).toContain('cache.max_age');
  });
});

describe.skipIf(redisMissing !== null)(`several nodes${redisMissing === null ? '' : ` (${redisMissing})`}`, () => {
  it('share their answers through Redis, where nobody can read them', async () => {
    const redis = await startRedis();
    const dirs: string[] = [];
    const nodes: Running[] = [];
    const database = await migratedDatabase();
    try {
      const masterKey = randomBytes(32).toString('base64');
      for (let i = 0; i < 2; i++) {
        const dir = await mkdtemp(join(tmpdir(), 'sluice-node-'));
        dirs.push(dir);
        const env = {
          SLUICE_DATABASE_URL: database,
          SLUICE_REDIS_URL: redis.url,
          SLUICE_MASTER_KEY: masterKey,
          SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}`,
          SLUICE_DATA_DIR: dir,
          SLUICE_PORT: '0',
          BLOCK_INLINE_CONFIG: 'false',
        };
        nodes.push(await compose(loadConfig([], env, dir), silentLog));
      }
      const first = JSON.parse(await readFile(join(dirs[0] ?? '', 'first-run.json'), 'utf8')) as FirstRun;
      const body = { model: 'sandbox', messages: [{ role: 'user', content: 'Say hello' }] };
      const call = (node: Running | undefined) =>
        fetch(`${node?.url}/v1/chat/completions`, {
          method: 'POST',
          headers: {
            'x-gateway-api-key': first.workspace_api_key,
            'x-gateway-provider': '@sandbox',
            'x-gateway-cache': 'simple',
            'content-type': 'application/json',
          },
          body: JSON.stringify(body),
        });
      const made = await call(nodes[0]);
      const text = await made.text();
      expect([made.status, status(made)]).toEqual([200, 'MISS']);
      await vi.waitFor(async () => expect(await redis.client.keys('*answer:*')).toHaveLength(1), { timeout: 15_000 });
      const again = await call(nodes[1]);
      expect(status(again)).toBe('HIT');
      expect(await again.text()).toBe(text);
      const [place] = await redis.client.keys('*answer:*');
      const kept = await redis.client.getBuffer(place ?? '');
      expect(kept?.includes('choices')).toBe(false);
      // Bytes that somebody else put there are a miss.
      await redis.client.set(place ?? '', 'not an answer');
      expect(status(await call(nodes[1]))).toBe('MISS');
    } finally {
      for (const node of nodes) await node.stop({ noticeMs: 0, drainMs: 500 });
      await redis.close();
      for (const dir of dirs) await rm(dir, { recursive: true, force: true });
    }
  });
});
