/** How a request was decided, as anybody with the right can read it afterwards. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { chatStream, responseStream } from '../../test/support/streams.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../../test/support/upstream.ts';

let upstream: FakeUpstream;
let server: TestServer;

beforeAll(async () => {
  upstream = await startUpstream((request, response) => {
    const { model, stream } = JSON.parse(request.body.toString()) as { model: string; stream?: boolean };
    if (request.path.endsWith('/responses')) {
      // The last event says that it failed, after some content and with what it used, or at once.
      const events = responseStream('Hi').slice(0, model === 'gpt-4o' ? 4 : 1);
      const usage = model === 'gpt-4o' ? { input_tokens: 100, output_tokens: 50, total_tokens: 150 } : null;
      const failed = { id: 'r', object: 'response', model, status: 'failed', output: [], usage };
      const error = { code: 'server_error', message: 'Lost a machine.' };
      const last = { type: 'response.failed', sequence_number: 9, response: { ...failed, error } };
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      return void response.end([...events, `event: response.failed\ndata: ${JSON.stringify(last)}\n\n`].join(''));
    }
    if (model === 'reset') return void response.destroy();
    if (model === 'silent') return;
    if (model === 'odd') return sendJson(response, 200, '{"half":');
    if (model === 'broken') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      return void response.end('data: {"error":{"message":"Broke down.","type":"server_error","code":"gpu_lost"}}\n\n');
    }
    if (stream) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      return void response.end(chatStream('Hi').join(''));
    }
    if (model === 'down') return sendJson(response, 503, '{"error":{"message":"no"}}');
    return sendJson(
      response,
      200,
      JSON.stringify({
        id: 'c1',
        object: 'chat.completion',
        created: 1,
        model,
        choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
        usage: { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 },
      }),
    );
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const account = { provider: '@openai-test' };
async function ask(config: object | string | null, more: object = {}) {
  const answer = await server.call(
    '/chat/completions',
    { model: 'gpt-4o', messages: [{ role: 'user', content: 'Hi' }], ...more },
    config === null ? {} : { 'x-gateway-config': typeof config === 'string' ? config : JSON.stringify(config) },
  );
  await answer.text();
  const [record] = await server.records();
  return record?.id as string;
}
const decision = async (id: string, key?: string) => server.admin('GET', `/logs/${id}/decision`, undefined, key);

describe('GET /logs/{id}/decision', () => {
  it('tells the targets that were tried and why, what was changed, and what it cost', async () => {
    const saved = await server.admin('POST', '/configs', {
      name: 'explained',
      workspace_id: server.first.workspace_id,
      config: {
        // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
        strategy: { mode: 'conditional', conditions: [{ query: { 'params.user': 'a' }, then: 'both' }], default: 'b' },
        targets: [
          { name: 'b', ...account },
          {
            name: 'both',
            strategy: { mode: 'fallback' },
            targets: [
              { ...account, override_params: { model: 'down' } },
              { ...account, default_params: { temperature: 0.5 }, drop_params: ['user'] },
            ],
          },
        ],
      },
    });
    expect(saved.status).toBe(200);
    const id = await ask(saved.body.slug as string, { user: 'a' });
    const { status, body } = await decision(id);
    expect(status).toBe(200);
    expect(body).toMatchObject({
      object: 'decision',
      request_id: id,
      operation: 'chat',
      config: { slug: saved.body.slug, version_id: saved.body.version_id },
      route: [
        { path: 'config', mode: 'conditional', chosen: 'config.targets[1]', why: /^conditions.0. matched$/ },
        {
          path: 'config.targets[1]',
          mode: 'fallback',
          chosen: 'config.targets[1].targets[1]',
          why: /^config.targets.1..targets.0. failed with status 503/,
        },
      ].map((one) => ({ ...one, why: expect.stringMatching(one.why) })),
      target: { path: 'config.targets[1].targets[1]', provider: 'openai', provider_slug: 'openai-test' },
      attempts: [
        { target: 'config.targets[1].targets[0]', status: 503, cause: { kind: 'status', message: 'no' } },
        { target: 'config.targets[1].targets[1]', status: 200, cause: null },
      ],
      fields_changed: { added: ['temperature'], dropped: ['user'], overridden: [] },
      converted_to: null,
      cache: { status: 'DISABLED' },
      price: { source: expect.stringContaining('gpt-4o'), rates: { input: 2.5, output: 10 } },
      cost_micros: 750,
      outcome: { status: 200, outcome: 'ok' },
    });
  });

  it.each<[string, object, object, boolean]>([
    ['a status', { override_params: { model: 'down' } }, { kind: 'status', message: 'no' }, false],
    [
      'a connection that is reset',
      { override_params: { model: 'reset' } },
      { kind: 'connection', code: 'upstream_unreachable' },
      false,
    ],
    [
      'a time-out of the request',
      { override_params: { model: 'silent' }, request_timeout: 50 },
      { kind: 'timeout', code: 'request_timeout' },
      false,
    ],
    [
      'a time-out of the first token',
      { override_params: { model: 'silent' }, timeouts: { first_token: 50 } },
      { kind: 'timeout', code: 'first_token_timeout' },
      true,
    ],
    [
      'an error inside a stream',
      { override_params: { model: 'broken' } },
      { kind: 'answer_error', code: 'gpu_lost', message: 'Broke down.' },
      true,
    ],
    [
      'an answer nobody can read',
      { override_params: { model: 'odd' } },
      { kind: 'invalid_answer', code: 'upstream_invalid_response' },
      false,
    ],
    ['a provider that is not there', { provider: '@nobody' }, { kind: 'target', code: 'bad_call' }, false],
    ['a prompt', { prompt_id: 'pp-x' }, { kind: 'target', code: 'unsupported_operation' }, false],
    [
      'a guardrail',
      { input_guardrails: [{ deny: true, 'default.regexMatch': { rule: 'Nope' } }] },
      { kind: 'guardrail', code: 'hooks_failed' },
      false,
    ],
  ])('tells why an attempt failed: %s', async (_title, more, cause, stream) => {
    const first = { ...account, ...more };
    const id = await ask({ strategy: { mode: 'fallback' }, targets: [first, account] }, stream ? { stream } : {});
    const { body } = await decision(id);
    expect(body.attempts).toMatchObject([
      { target: 'config.targets[0]', cause, began_ms: expect.any(Number) },
      { target: 'config.targets[1]', cause: null, status: 200 },
    ]);
    expect(body.outcome).toMatchObject({ status: 200, outcome: 'ok' });
  });

  it.each([
    ['gpt-4o', { input: 100, output: 50 }, 750],
    ['gpt-4o-mini', null, null],
  ])(
    'a Responses stream of %s that ends in its failure has failed, and cost what it says',
    async (model, usage, cost) => {
      const headers = { 'x-gateway-config': JSON.stringify(account) };
      const answer = await server.call('/responses', { model, input: 'Hi', stream: true }, headers);
      // It is passed on as it came: it tells its failure itself.
      expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('"response.failed"')]);
      const [record] = await server.records();
      const { body } = await decision(record?.id as string);
      expect(body).toMatchObject({
        outcome: { status: 200, outcome: 'failed', error_code: 'server_error', error_message: 'Lost a machine.' },
        attempts: [{ status: 200, cause: { kind: 'answer_error', code: 'server_error', message: 'Lost a machine.' } }],
        cost_micros: cost,
      });
      if (usage === null) expect(body.usage).toBeNull();
      else expect(body.usage).toMatchObject(usage);
    },
  );

  it('tells the limit that kept a target from being tried, and every limit that was asked', async () => {
    await server.provider({ id: 'openai', slug: 'tight', host: `${upstream.url}/v1` });
    const set = await server.admin('PUT', '/providers/tight', {
      rate_limits: [{ type: 'requests', unit: 'rpd', value: 1 }],
    });
    expect(set.status).toBe(200);
    const config = { strategy: { mode: 'fallback' }, targets: [{ provider: '@tight' }, account] };
    let body: Record<string, unknown> = {};
    for (let i = 0; i < 2; i++) ({ body } = await decision(await ask(config)));
    expect(body.attempts).toMatchObject([
      { target: 'config.targets[0]', cause: { kind: 'limit', code: '429' } },
      { target: 'config.targets[1]', cause: null },
    ]);
    const alone = await decision(await ask({ provider: '@tight' }));
    expect(alone.body).toMatchObject({
      rules: [{ kind: 'rate_limit', id: expect.stringMatching(/^provider:/), outcome: 'refused' }],
      outcome: { status: 429, outcome: 'refused' },
    });
  });

  it('tells when an attempt had a connection, its first byte, its first content and its end', async () => {
    const { body } = await decision(await ask(account, { stream: true }));
    const [one] = body.attempts as Record<string, number>[];
    const { began_ms: began, queued_ms: queued, connect_ms: connect } = one as Record<string, number>;
    const { first_byte_ms: byte, first_content_ms: content, duration_ms: end } = one as Record<string, number>;
    for (const value of [began, queued, connect]) expect(value).toBeGreaterThanOrEqual(0);
    expect(Number(queued) + Number(connect)).toBeLessThanOrEqual(Number(byte));
    expect(byte).toBeLessThanOrEqual(Number(content));
    expect(content).toBeLessThanOrEqual(Number(end));
    const whole = await decision(await ask(account));
    expect(whole.body.attempts).toMatchObject([{ first_byte_ms: expect.any(Number), first_content_ms: null }]);
  });

  it('tells how the targets stood: breakers, weights, and who was not chosen', async () => {
    const cb_config = { failure_threshold: 2, cooldown_interval: 30_000 };
    const down = { ...account, override_params: { model: 'down' } };
    const saved = await server.admin('POST', '/configs', {
      name: 'breaking',
      workspace_id: server.first.workspace_id,
      config: { strategy: { mode: 'fallback' }, cb_config, targets: [down, account] },
    });
    const slug = String(saved.body.slug);
    const first = await decision(await ask(slug));
    expect(first.body.targets).toMatchObject([
      { path: 'config.targets[0]', model: 'down', order: 1, why: null, breaker: { state: 'closed', failures: 0 } },
      { path: 'config.targets[1]', model: 'gpt-4o', provider: 'openai', provider_slug: 'openai-test', order: 2 },
    ]);
    await ask(slug);
    const last = await decision(await ask(slug));
    expect(last.body).toMatchObject({
      targets_total: 2,
      targets: [
        { path: 'config.targets[1]', order: 1, why: null },
        {
          path: 'config.targets[0]',
          order: null,
          why: 'breaker_open',
          breaker: { state: 'open', failures: 2, requests: 2 },
        },
      ],
      route: [{ chosen: 'config.targets[1]', left_out: ['config.targets[0]'] }],
      attempts: [{ target: 'config.targets[1]' }],
    });
    const sticky = { enabled: true, hash_fields: ['params.user'] };
    const balanced = {
      strategy: { mode: 'loadbalance', sticky },
      targets: [{ ...account, weight: 0 }, account, { ...account, weight: 1e-9 }],
    };
    const drawn = await decision(await ask(balanced, { user: 'a' }));
    expect(drawn.body).toMatchObject({
      targets: [
        { path: 'config.targets[1]', weight: 1, order: 1, why: null, breaker: null },
        { path: 'config.targets[2]', weight: 1e-9, order: null, why: 'not_drawn' },
      ],
      route: [{ mode: 'loadbalance', why: 'by hash_fields and weight 1' }],
    });
    expect((await decision(await ask(balanced, { user: 'a' }))).body.route).toMatchObject([{ why: 'by its session' }]);
  });

  it('tells fields by their paths and no values', async () => {
    const config = {
      ...account,
      override_params: {
        tools: [{ type: 'function', function: { name: 'f', strict: true } }],
        hidden: 'sk-hidden-value',
      },
      default_params: { temperature: 0.123456 },
      drop_params: ['tools[0].function.strict', 'metadata.note'],
    };
    const id = await ask(config, {
      tools: [{ type: 'function', function: { name: 'g' } }],
      metadata: { note: 'n', kept: 'k' },
    });
    const { body } = await decision(id);
    expect(body.fields_changed).toEqual({
      added: ['temperature', 'hidden'],
      dropped: ['metadata.note'],
      overridden: ['tools[0].function.name'],
    });
    expect(JSON.stringify(body)).not.toMatch(/sk-hidden-value|0\.123456/);
  });

  it('tells a refusal, and that there was no config', async () => {
    const id = await ask(null);
    expect((await decision(id)).body).toMatchObject({
      config: null,
      target: null,
      attempts: [],
      outcome: { status: 400, outcome: 'refused', error_message: expect.stringContaining('No provider is named') },
    });
  });

  it('is there as soon as the answer is', async () => {
    const answer = await server.call('/chat/completions', { model: '@openai-test/gpt-4o', messages: [] });
    await answer.text();
    const ids = (await server.records()).map(({ id }) => id as string);
    expect((await decision(ids[0] ?? '')).status).toBe(200);
  });

  it('tells nothing to whoever may not see it, and nothing about what is not there', async () => {
    const id = await ask({ ...account });
    const other = await server.admin('POST', '/admin/workspaces', { name: 'Other' });
    const key = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'other',
      workspace_id: other.body.id,
      scopes: ['logs.view'],
    });
    const foreign = await decision(id, key.body.key as string);
    const unknown = await decision('00000000-0000-7000-8000-000000000000', key.body.key as string);
    expect([foreign.status, unknown.status, (await decision('nope')).status]).toEqual([404, 404, 404]);
    expect({ ...foreign.body, request_id: null }).toEqual({ ...unknown.body, request_id: null });
    const blind = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'blind',
      workspace_id: server.first.workspace_id,
      scopes: ['configs.read'],
    });
    expect((await decision(id, blind.body.key as string)).status).toBe(403);
  });
});

type Json = Record<string, unknown>;
const isJson = (value: unknown): value is Json => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Paths of all keys that both have; those of what only one of them has anything in are told by their own path. */
function keysOf(value: unknown, other: unknown, path = ''): string[] {
  if (Array.isArray(value) && Array.isArray(other)) return keysOf(value[0], other[0], `${path}[]`);
  if (!isJson(value) || !isJson(other)) return [path];
  return Object.keys(value).flatMap((key) => keysOf(value[key], other[key], `${path}.${key}`));
}

describe('a dry run', () => {
  const two = [
    { ...account, override_params: { model: 'gpt-4o-mini' } },
    { ...account, default_params: { top_p: 0.5 } },
  ];
  const session = { enabled: true, hash_fields: ['params.user'] };
  const CONFIGS: [string, object | null, boolean][] = [
    ['without a config', null, false],
    ['one target', { ...account, override_params: { temperature: 0 }, drop_params: ['user'] }, false],
    ['one target, saved', { ...account, default_params: { temperature: 0 } }, true],
    ['fallback', { strategy: { mode: 'fallback' }, targets: [{ provider: '@nobody' }, ...two] }, false],
    [
      'fallback, saved, with breakers',
      { strategy: { mode: 'fallback' }, cb_config: { failure_threshold: 1, cooldown_interval: 30_000 }, targets: two },
      true,
    ],
    ['load balancer with sessions', { strategy: { mode: 'loadbalance', sticky: session }, targets: two }, false],
    [
      'conditions',
      {
        // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
        strategy: { mode: 'conditional', conditions: [{ query: { 'params.user': 'a' }, then: 'y' }], default: 'x' },
        targets: [
          { ...two[0], name: 'x' },
          { ...two[1], name: 'y' },
        ],
      },
      false,
    ],
    [
      'guardrails',
      {
        ...account,
        input_guardrails: [{ 'default.regexMatch': { rule: 'Hi' } }],
        output_guardrails: [{ 'default.wordCount': { minWords: 0, maxWords: 9 } }],
      },
      false,
    ],
    ['another shape', { provider: '@anthropic-test' }, false],
  ];
  beforeAll(async () => {
    await server.provider({ id: 'anthropic', host: `${upstream.url}/v1` });
  });

  it.each(CONFIGS)('says in the same shape what holds for the request that follows: %s', async (name, config, save) => {
    let text = config === null ? undefined : JSON.stringify(config);
    if (save) {
      const body = { name, config, workspace_id: server.first.workspace_id };
      text = String((await server.admin('POST', '/configs', body)).body.slug);
    }
    const call = async (dry: boolean) => {
      const answer = await server.call(
        '/chat/completions',
        {
          model: config === null ? '@openai-test/gpt-4o' : 'gpt-4o',
          messages: [{ role: 'user', content: 'Hi' }],
          user: 'a',
        },
        {
          ...(text === undefined ? {} : { 'x-gateway-config': text }),
          ...(dry ? { 'x-gateway-dry-run': 'true' } : {}),
        },
      );
      return [answer.status, await answer.text()] as const;
    };
    const before = upstream.received.length;
    const [status, told] = await call(true);
    expect(status, told).toBe(200);
    expect(upstream.received).toHaveLength(before);
    const dry = JSON.parse(told) as Json;
    const kept = (await decision((await server.records())[0]?.id as string)).body;
    // The record of the dry run says the same, but for what only the answer can hold.
    expect({ ...kept, request: null, estimate: null, outcome: null }).toEqual({
      ...dry,
      request: null,
      estimate: null,
      outcome: null,
    });
    await call(false);
    const real = (await decision((await server.records())[0]?.id as string)).body as Json;
    expect(keysOf(dry, real).sort()).toEqual(keysOf(real, dry).sort());
    expect([dry.dry_run, real.dry_run]).toEqual([true, false]);
    const agreed = (one: Json) => {
      const {
        operation,
        caller,
        config: used,
        route,
        targets,
        targets_total,
        target,
        fields_changed,
        converted_to,
      } = one;
      const { requested, sent } = one.model as Json;
      const { input, output } = one.guardrails as Json;
      const rules = (one.rules as Json[]).map(({ kind, id }) => [kind, id]);
      const hash = (list: unknown) =>
        JSON.parse(JSON.stringify(list).replaceAll('by hash_fields and weight 1', 'by its session')) as unknown;
      return {
        operation,
        caller,
        used,
        route: hash(route),
        targets,
        targets_total,
        target,
        fields_changed,
        converted_to,
        requested,
        sent,
        input,
        output,
        rules,
      };
    };
    expect(agreed(real)).toEqual(agreed(dry));
    expect((real.price as Json | null)?.source ?? 'none').toBe((dry.price as Json | null)?.source ?? 'none');
    expect(dry.request).toMatchObject({ method: 'POST' });
    expect([real.request, real.estimate]).toEqual([null, null]);
    expect(told).not.toContain('sk-stored');
  });
});
