/**
 * Rate limits on the data plane of a whole server: every operation against every kind of limit, generated from the table
 * of operations. An operation that is added is tried here without a line of its own.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../../test/support/upstream.ts';
import { OPERATIONS, type Operation, type OperationId } from '../operations/operation.ts';
import type { RateLimit } from '../store/schema.ts';

const USAGE = { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 };
const ANSWER = JSON.stringify({
  id: 'x',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-4o',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
  usage: USAGE,
});
/** What an upstream says of its own limits is passed on beside ours. */
const UPSTREAM_LIMIT = '4242';

/** Operations that OpenAI's API does not have, and who has them. */
const ELSEWHERE: Partial<Record<OperationId, string>> = { rerank: 'cohere', count_tokens: 'anthropic' };
const BASES = ['openai', 'anthropic', 'cohere'] as const;
/** How long a change may take to be heard of on a machine that does much else; what it takes otherwise is tested elsewhere. */
const PATIENT_MS = 10_000;

let upstream: FakeUpstream;
let server: TestServer;
const slugs: Record<string, string> = {};

beforeAll(async () => {
  upstream = await startUpstream((_request, response) => {
    response.writeHead(200, {
      'content-type': 'application/json',
      'x-ratelimit-limit-requests': UPSTREAM_LIMIT,
      // A gateway of the same make behind this one.
      'x-gateway-limit-requests-limit': UPSTREAM_LIMIT,
    });
    response.end(ANSWER);
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  for (const id of BASES) {
    const slug = `${id}-limited`;
    await done('POST', '/integrations', {
      name: slug,
      slug: `${slug}-integration`,
      ai_provider_id: id,
      key: 'sk-test',
      create_default_provider: false,
      configurations: { custom_host: `${upstream.url}/v1` },
    });
    await done('POST', '/providers', {
      name: slug,
      slug,
      integration_id: `${slug}-integration`,
      workspace_id: server.first.workspace_id,
    });
    slugs[id] = slug;
  }
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

async function done(method: string, path: string, body?: unknown): Promise<Record<string, unknown>> {
  const answer = await server.admin(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

const baseOf = (operation: Operation) => ELSEWHERE[operation.id] ?? 'openai';

interface Sent {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

async function send(operation: Operation, headers: Record<string, string>, more: object = {}): Promise<Sent> {
  const path = operation.path.replace(/:\w+/g, 'x-1').replace('/*', '/vector_stores/vs_1');
  const method = operation.method === 'ANY' ? 'POST' : operation.method;
  const form = new FormData();
  form.set('model', 'gpt-4o');
  form.set('purpose', 'batch');
  form.set('file', new Blob(['{"custom_id":"1"}\n']), 'lines.jsonl');
  const talk = { model: 'gpt-4o', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 5 };
  const fields = {
    model: 'gpt-4o',
    input: 'Hello',
    prompt: 'Hello',
    voice: 'alloy',
    input_file_id: 'file-1',
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
    training_file: 'file-1',
  };
  const ranked = { model: 'gpt-4o', query: 'Hello', documents: ['Hello'] };
  const talks = operation.family === 'chat' && operation.shape !== 'responses';
  const json = { ...(operation.shape === 'rerank' ? ranked : talks ? talk : fields), ...more };
  const multipart = operation.body === 'multipart' || operation.body === 'stream';
  const has = operation.body !== 'none' && operation.body !== 'optional';
  const answer = await fetch(`${server.url}/v1${path}`, {
    method,
    headers: {
      'x-gateway-api-key': server.first.workspace_api_key,
      'x-gateway-provider': `@${slugs[baseOf(operation)]}`,
      ...(has && !multipart ? { 'content-type': 'application/json' } : {}),
      ...headers,
    },
    ...(has ? { body: multipart ? form : JSON.stringify(json) } : {}),
  });
  return { status: answer.status, headers: answer.headers, text: await answer.text() };
}

/** Weeks, so that no window ends within a test. */
const weekly = (value: number, type: RateLimit['type'] = 'requests') => ({ type, unit: 'rpw', value });

interface Kind {
  /** Sets the limit that calls with these headers have; answers what the refusal calls it. */
  set(value: number): Promise<void>;
  clear(): Promise<void>;
  readonly headers: Record<string, string>;
  /** One counter for all providers, or one each. */
  readonly perProvider: boolean;
  readonly named: (operation: Operation) => string;
}

async function kinds(): Promise<Record<string, Kind>> {
  const { workspace_id } = server.first;
  const key = await done('POST', '/api-keys/workspace/service', {
    name: 'Limited key',
    workspace_id,
    scopes: ['completions.write', 'files.read', 'files.write'].slice(0, 1),
  });
  const forAll = async (run: (slug: string) => Promise<unknown>) => {
    for (const base of BASES) await run(slugs[base] ?? '');
  };
  let policy = '';
  return {
    key: {
      headers: { 'x-gateway-api-key': String(key.key) },
      perProvider: false,
      named: () => 'key Limited key',
      set: (value) => done('PUT', `/api-keys/${key.id}`, { rate_limits: [weekly(value)] }).then(() => undefined),
      clear: () => done('DELETE', `/api-keys/${key.id}`).then(() => undefined),
    },
    workspace: {
      headers: {},
      perProvider: false,
      named: () => 'workspace ',
      set: (value) =>
        done('PUT', `/admin/workspaces/${workspace_id}`, { rate_limits: [weekly(value)] }).then(() => undefined),
      clear: () => done('PUT', `/admin/workspaces/${workspace_id}`, { rate_limits: null }).then(() => undefined),
    },
    provider: {
      headers: {},
      perProvider: true,
      named: (operation) => `provider ${slugs[baseOf(operation)]}`,
      set: (value) => forAll((slug) => done('PUT', `/providers/${slug}`, { rate_limits: [weekly(value)] })),
      clear: () => forAll((slug) => done('PUT', `/providers/${slug}`, { rate_limits: null })),
    },
    integration: {
      headers: {},
      perProvider: true,
      named: (operation) => `integration ${slugs[baseOf(operation)]}-integration`,
      set: (value) =>
        forAll((slug) =>
          done('PUT', `/integrations/${slug}-integration/workspaces`, {
            workspaces: [
              { id: workspace_id, enabled: true, rate_limits: [weekly(value)], create_default_provider: false },
            ],
          }),
        ),
      clear: () =>
        forAll((slug) =>
          done('PUT', `/integrations/${slug}-integration/workspaces`, {
            workspaces: [{ id: workspace_id, enabled: true, rate_limits: null, create_default_provider: false }],
          }),
        ),
    },
    policy: {
      headers: { 'x-gateway-metadata': '{"team":"search"}' },
      perProvider: false,
      named: () => 'policy Per team for metadata.team:search',
      set: async (value) => {
        if (policy !== '') {
          await done('PUT', `/policies/rate-limits/${policy}`, { value });
          return;
        }
        const made = await done('POST', '/policies/rate-limits', {
          name: 'Per team',
          conditions: [{ key: 'metadata.team', value: '*' }],
          group_by: [{ key: 'metadata.team' }],
          workspace_id,
          ...weekly(value),
        });
        policy = String(made.id);
      },
      clear: () => done('DELETE', `/policies/rate-limits/${policy}`).then(() => undefined),
    },
  };
}

const ALL = Object.values(OPERATIONS);
const COUNTED = ALL.filter((operation) => operation.method !== 'GET');
const ELSEWHERE_ALL = COUNTED.filter((operation) => operation.id in ELSEWHERE);
const READS = ALL.filter((operation) => operation.method === 'GET');
const LIMITS = ['limit', 'remaining', 'reset'].map((name) => `x-gateway-limit-requests-${name}`);

describe.each(['key', 'workspace', 'provider', 'integration', 'policy'])('a limit of the %s', (name) => {
  let kind: Kind;
  const used = new Map<string, number>();
  const counterOf = (operation: Operation) => (kind.perProvider ? baseOf(operation) : 'all');
  const highest = () => Math.max(...used.values());

  beforeAll(async () => {
    const found = (await kinds())[name];
    if (found === undefined) throw new Error(name);
    kind = found;
    await kind.set(1_000);
  });

  afterAll(async () => {
    await kind.clear();
  });

  it.each(COUNTED.map((operation) => [operation.id, operation] as const))('counts %s', async (_, operation) => {
    const before = used.get(counterOf(operation)) ?? 0;
    const answer = await send(operation, kind.headers);
    expect([429, 501], answer.text).not.toContain(answer.status);
    used.set(counterOf(operation), before + 1);
    expect(LIMITS.map((header) => answer.headers.get(header))).toEqual([
      '1000',
      String(999 - before),
      expect.stringMatching(/^[1-9]\d{0,5}$/),
    ]);
  });

  it.each(READS.map((operation) => [operation.id, operation] as const))('leaves %s free', async (_, operation) => {
    const answer = await send(operation, kind.headers);
    expect(answer.status).not.toBe(429);
    expect(answer.headers.get('x-gateway-limit-requests-limit')).toBeNull();
  });

  it('that is lowered refuses every operation at once, and names itself; one that is raised admits', async () => {
    await kind.set(1);
    // A limit per provider is one write, and so one change to hear of, for each of them.
    for (const operation of kind.perProvider ? [OPERATIONS.chat, ...ELSEWHERE_ALL] : [OPERATIONS.chat]) {
      await vi.waitFor(async () => expect((await send(operation, kind.headers)).status).toBe(429), PATIENT_MS);
    }
    for (const operation of COUNTED.filter((one) => (used.get(counterOf(one)) ?? 0) >= 1)) {
      const { status, headers, text } = await send(operation, kind.headers);
      expect([operation.id, status]).toEqual([operation.id, 429]);
      expect(text).toContain(`Rate limit of ${kind.named(operation)}`);
      const reset = headers.get('x-gateway-limit-requests-reset');
      expect(headers.get('retry-after')).toBe(reset);
      expect(LIMITS.map((header) => headers.get(header))).toEqual(['1', '0', reset]);
    }
    for (const operation of READS) expect((await send(operation, kind.headers)).status).not.toBe(429);
    await kind.set(1_000);
    await vi.waitFor(async () => {
      const answer = await send(OPERATIONS.chat, kind.headers);
      expect(answer.status).toBe(200);
      // Nothing that was refused has been counted.
      expect(Number(answer.headers.get('x-gateway-limit-requests-remaining'))).toBeGreaterThanOrEqual(
        999 - highest() - 1,
      );
    }, PATIENT_MS);
  });
});

describe('policies on the data plane', () => {
  const make = async (body: object) =>
    String(
      (
        await done('POST', '/policies/rate-limits', {
          group_by: [{ key: 'metadata.who' }],
          workspace_id: server.first.workspace_id,
          type: 'requests',
          unit: 'rpw',
          value: 1,
          ...body,
        })
      ).id,
    );
  const as = (who: string, team: string) => ({ 'x-gateway-metadata': JSON.stringify({ who, team }) });

  it.each<[string, OperationId, object, boolean]>([
    ['a chat completion', 'chat', {}, false],
    ['a stream', 'chat', { stream: true }, true],
    ['a text completion', 'completions', {}, false],
    ['embeddings', 'embeddings', {}, false],
    ['a message, converted', 'messages', {}, false],
    ['a response', 'responses', {}, false],
  ])('tokens of %s are booked before its answer has ended', async (title, id, more, streams) => {
    const team = `tokens ${title}`;
    const policy = await make({ conditions: [{ key: 'metadata.team', value: team }], type: 'tokens', value: 10 });
    const [input, output] = id === 'embeddings' ? [7, 0] : [5, 2];
    const before = upstream.answer;
    upstream.answer = (_request, response) => {
      const usage =
        id === 'responses'
          ? { input_tokens: input, output_tokens: output, total_tokens: 7 }
          : { prompt_tokens: input, completion_tokens: output, total_tokens: 7 };
      if (!streams) return sendJson(response, 200, JSON.stringify({ ...JSON.parse(ANSWER), usage }));
      const event = (extra: object) =>
        `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'gpt-4o', choices: [], ...extra })}\n\n`;
      const choices = [{ index: 0, delta: { content: 'Hi' }, finish_reason: 'stop' }];
      return sendEvents(response, [event({ choices }), event({ usage }), 'data: [DONE]\n\n']);
    };
    const left: (string | null)[] = [];
    for (let i = 0; i < 2; i++) {
      const answer = await send(OPERATIONS[id], as('alice', team), more);
      expect(answer.status, answer.text).toBe(200);
      left.push(answer.headers.get('x-gateway-limit-tokens-remaining'));
    }
    const refused = await send(OPERATIONS[id], as('alice', team), more);
    upstream.answer = before;
    expect(left).toEqual(['10', '3']);
    expect([refused.status, refused.headers.get('x-gateway-limit-tokens-remaining')]).toEqual([429, '0']);
    expect((await send(OPERATIONS[id], as('bob', team), more)).status).toBe(200);
    await done('DELETE', `/policies/rate-limits/${policy}`);
  });

  it('the refusal is the caller’s own 429 body with Retry-After', async () => {
    const policy = await make({ name: 'Small', conditions: [{ key: 'metadata.team', value: 'body' }] });
    await send(OPERATIONS.chat, as('alice', 'body'));
    const { status, headers, text } = await send(OPERATIONS.chat, as('alice', 'body'));
    const seconds = Number(headers.get('retry-after'));
    expect([status, JSON.parse(text)]).toEqual([
      429,
      {
        error: {
          message: `Rate limit of policy Small for metadata.who:alice exceeded: 1 requests per week. Try again in ${seconds} s.`,
          type: 'rate_limit_exceeded',
          param: null,
          code: '429',
        },
      },
    ]);
    await done('DELETE', `/policies/rate-limits/${policy}`);
  });

  it('what the upstream says of its own limits is passed on beside ours', async () => {
    const policy = await make({ conditions: [{ key: 'metadata.team', value: 'beside' }], value: 9 });
    const { headers } = await send(OPERATIONS.chat, as('alice', 'beside'));
    expect(headers.get('x-ratelimit-limit-requests')).toBe(UPSTREAM_LIMIT);
    expect(headers.get('x-gateway-limit-requests-limit')).toBe('9');
    await done('DELETE', `/policies/rate-limits/${policy}`);
    expect(
      (await send(OPERATIONS.chat, as('alice', 'beside'))).headers.get('x-gateway-limit-requests-limit'),
    ).toBeNull();
  });

  it.each<[string, object, OperationId, OperationId]>([
    ['endpoint type', { key: 'endpoint_type', value: ['embed', 'createBatch'] }, 'embeddings', 'chat'],
    ['model', { key: 'model', value: '@openai-limited/gpt-4o' }, 'chat', 'rerank'],
    ['every model of a provider', { key: 'model', value: '@openai-limited/*' }, 'chat', 'rerank'],
    ['base provider', { key: 'provider', value: '*', excludes: 'openai' }, 'rerank', 'chat'],
    ['stored provider', { key: 'virtual_key', value: 'openai-limited' }, 'chat', 'rerank'],
  ])('a condition on the %s selects requests', async (title, condition, inside, outside) => {
    const team = `select ${title}`;
    const conditions = [{ key: 'metadata.team', value: team }, condition];
    const policy = await make({ conditions });
    const statuses = [];
    for (const id of [inside, inside, outside, outside])
      statuses.push((await send(OPERATIONS[id], as('a', team))).status);
    expect(statuses.map((status) => status === 429)).toEqual([false, true, false, false]);
    await done('DELETE', `/policies/rate-limits/${policy}`);
  });

  it('an API key and a config are conditions too, and a dry run is free', async () => {
    const config = String(
      (
        await done('POST', '/configs', {
          name: 'For limits',
          config: { provider: '@openai-limited' },
          workspace_id: server.first.workspace_id,
        })
      ).slug,
    );
    const policy = await make({
      conditions: [{ key: 'config', value: config }],
      group_by: [{ key: 'api_key' }, { key: 'config' }],
    });
    const call = (headers: Record<string, string> = {}) =>
      server.call('/chat/completions', { model: 'gpt-4o', messages: [] }, { 'x-gateway-config': config, ...headers });
    expect((await call({ 'x-gateway-dry-run': 'true' })).status).toBe(200);
    expect((await call()).status).toBe(200);
    const refused = await call();
    expect(refused.status).toBe(429);
    expect(await refused.text()).toMatch(new RegExp(`for api_key:[0-9a-f-]{36}-config:${config} exceeded`));
    expect((await send(OPERATIONS.chat, {})).status).toBe(200);
    await done('DELETE', `/policies/rate-limits/${policy}`);
  });
});
