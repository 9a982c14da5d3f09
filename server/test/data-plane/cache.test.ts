import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { compose, type Running } from '../../src/compose.ts';
import { loadConfig } from '../../src/config.ts';
import type { FirstRun } from '../../src/first-run.ts';
import { silentLog } from '../../src/kernel/log.ts';
import {
  answered,
  ask,
  chat,
  contentOf,
  SIMPLE,
  server,
  state,
  status,
  upstream,
  useCache,
  usual,
} from '../support/cached-answers.ts';
import { actionsWith } from '../support/guardrails.ts';
import { migratedDatabase } from '../support/postgres.ts';
import { redisMissing, startRedis } from '../support/redis.ts';
import { type FakeUpstream, sendJson } from '../support/upstream.ts';

useCache();

const SEMANTIC = { cache: { mode: 'semantic' } };

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
      name: `words ${++state.questions}`,
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
      name: `limited ${++state.questions}`,
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
    state.vectorless = true;
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
    state.ahead = 61_000;
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
