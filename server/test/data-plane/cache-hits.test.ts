/** Which requests share an answer in the cache, and whose answers they are. */
import OpenAI from 'openai';
import { describe, expect, it, vi } from 'vitest';
import {
  answered,
  ask,
  chat,
  contentOf,
  questionsKept,
  SIMPLE,
  server,
  state,
  status,
  upstream,
  useCache,
  using,
} from '../support/cached-answers.ts';
import { sendJson } from '../support/upstream.ts';

useCache();

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
    const text = `question ${++state.questions}`;
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
      name: `key ${++state.questions}`,
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
    const body = ask(`weather ${++state.questions}`);
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
    const made = await server.admin('POST', '/admin/workspaces', { name: `Other ${++state.questions}` });
    const workspace = made.body.id as string;
    const key = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'other',
      workspace_id: workspace,
      scopes: ['completions.write'],
    });
    const slug = `other-${state.questions}`;
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
    const body = { ...ask(`weather ${state.questions}`), model: 'gpt-4o' };
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
    const body = ask(`weather ${++state.questions}`);
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
    const body = { ...ask(`weather ${++state.questions}`), model: 'gpt-4o' };
    const call = async (key: string) => status(await chat(body, own, { authorization: `Bearer ${key}` }));
    expect(await call('sk-one')).toMatch(/MISS$/);
    expect(await call('sk-one')).toBe('HIT');
    expect(await call('sk-two')).toMatch(/MISS$/);
  });

  it.each(both)('are those of one version of a saved config: %s', async (_name, config) => {
    const saved = await server.admin('POST', '/configs', {
      name: `cached ${++state.questions}`,
      workspace_id: server.first.workspace_id,
      config,
    });
    const slug = saved.body.slug as string;
    const body = ask(`weather ${state.questions}`);
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
