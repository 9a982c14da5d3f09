/**
 * Guardrails over requests, through a whole server: wherever one is attached, and whatever it comes to, seen by the client,
 * by the provider and in the record.
 */
import { describe, expect, it, vi } from 'vitest';
import {
  ANSWER,
  type Check,
  hooks,
  inline,
  type Json,
  lastRecord,
  pii,
  SECRET,
  send,
  server,
  slug,
  upstream,
  useGuarded,
  WORD,
  workspace,
} from '../support/guarded-requests.ts';
import { sendEvents, sendJson } from '../support/upstream.ts';

useGuarded();

const PATIENT = { timeout: 10_000, interval: 20 };
let count = 0;

async function done(method: string, path: string, body?: unknown): Promise<Json> {
  const answer = await server.admin(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
  return answer.body;
}

const chat = (content: unknown, more: Json = {}) => ({
  model: 'gpt-4o',
  messages: [
    { role: 'system', content: 'Be kind.' },
    { role: 'user', content },
  ],
  ...more,
});
const sent = () => upstream.received.map(({ body }) => JSON.parse(body.toString('utf8')) as Json);

interface Attached {
  readonly headers: Record<string, string>;
  /** What answers and records call it. */
  readonly name: string;
  detach(): Promise<unknown>;
}
type Attach = (checks: Check[], actions: Json) => Promise<Attached>;

const ACTIONS = { deny: false, async: false, on_success: {}, on_fail: {} };

async function create(checks: Check[], actions: Json, level: Json = { workspace_id: workspace }): Promise<string> {
  const body = { name: `g ${++count}`, checks, actions: { ...ACTIONS, ...actions }, ...level };
  return String((await done('POST', '/guardrails', body)).slug);
}

async function shown(headers: Record<string, string> = {}): Promise<string[]> {
  const answer = await send(chat('a'), { ...headers, 'x-gateway-dry-run': 'true' });
  const body = (await answer.json()) as { guardrails?: { input: string[] } };
  return body.guardrails?.input ?? [];
}
const inForce = (name: string, headers = {}) =>
  vi.waitFor(async () => expect(await shown(headers)).toContain(name), PATIENT);
const gone = (name: string) => vi.waitFor(async () => expect(await shown()).not.toContain(name), PATIENT);

async function byDefault(path: string, wrap: (list: string[]) => Json, name: string): Promise<Attached> {
  await done('PUT', path, wrap([name]));
  await inForce(name);
  return {
    headers: {},
    name,
    async detach() {
      await done('PUT', path, wrap([]));
      await gone(name);
    },
  };
}
const organisationDefault = (name: string) =>
  byDefault('/admin/organisation/defaults', (input_guardrails) => ({ input_guardrails }), name);

const PLACES: Record<string, Attach> = {
  async 'a saved config'(checks, actions) {
    const name = await create(checks, actions);
    const config = { provider: `@${slug}`, input_guardrails: [name] };
    const saved = await done('POST', '/configs', { name: `c ${++count}`, workspace_id: workspace, config });
    const headers = { 'x-gateway-config': String(saved.slug) };
    await vi.waitFor(
      async () => expect((await send(chat('a'), { ...headers, 'x-gateway-dry-run': 'true' })).status).toBe(200),
      PATIENT,
    );
    return { headers, name, detach: async () => undefined };
  },
  async 'a config in the request'(checks, actions) {
    const parts = Object.fromEntries(checks.map(({ id, parameters }) => [id, parameters]));
    const headers = inline({ input_guardrails: [{ id: 'mine', ...actions, ...parts }] });
    return { headers, name: 'mine', detach: async () => undefined };
  },
  async 'a raw hook'(checks, actions) {
    const hook = { type: 'guardrail', id: 'raw', checks, ...actions };
    return { headers: inline({ before_request_hooks: [hook] }), name: 'raw', detach: async () => undefined };
  },
  async 'the defaults of the workspace'(checks, actions) {
    const wrap = (input_guardrails: string[]) => ({ defaults: { input_guardrails } });
    return byDefault(`/admin/workspaces/${workspace}`, wrap, await create(checks, actions));
  },
  async 'the defaults of the organisation'(checks, actions) {
    return organisationDefault(await create(checks, actions, { organisation_id: server.first.organisation_id }));
  },
};
const hook = (path: string): Check => ({
  id: 'default.webhook',
  parameters: { webhookURL: `${hooks.url}${path}`, timeout: path === '/hangs' ? 60 : 10_000 },
});

describe.each(Object.entries(PLACES))('a guardrail of %s', (_, attach) => {
  it.each([
    ['denies', () => [pii(false)], { deny: true }, 446, { verdict: false }],
    ['monitors', () => [pii(false)], {}, 246, { verdict: false }],
    ['redacts', () => [pii(true)], { deny: true }, 200, { verdict: true, transformed: true }],
    ['times out and passes', () => [hook('/hangs')], {}, 200, { verdict: true }],
    ['times out and denies', () => [hook('/hangs')], { deny: true }, 446, { verdict: false }],
    ['meets a crash and passes', () => [hook('/crashes')], {}, 200, { verdict: true }],
    ['meets a crash and denies', () => [hook('/crashes')], { deny: true }, 446, { verdict: false }],
  ] as const)('%s', async (what, checks, actions, status, result) => {
    const attached = await attach(checks(), actions);
    try {
      const answer = await send(chat(`Write to ${SECRET} now`), attached.headers);
      const text = await answer.text();
      expect([answer.status, text]).toEqual([status, expect.any(String)]);
      expect(text).not.toContain(SECRET);
      if (status === 446) {
        expect(JSON.parse(text)).toMatchObject({
          error: { type: 'hooks_failed', code: null },
          hook_results: {
            before_request_hooks: [{ id: attached.name, verdict: false, deny: true }],
            after_request_hooks: [],
          },
        });
        expect(upstream.received).toEqual([]);
      } else {
        expect(JSON.parse(text)).not.toHaveProperty('hook_results');
        expect(sent()).toHaveLength(1);
        const wanted = what === 'redacts' ? expect.not.stringContaining(SECRET) : expect.stringContaining(SECRET);
        expect(JSON.stringify(sent()[0])).toEqual(wanted);
      }
      const record = await lastRecord();
      expect(record).toMatchObject({ status, guardrails: [{ slug: attached.name, phase: 'input', ...result }] });
      expect(JSON.stringify(record)).not.toContain(SECRET);
      const error = what.startsWith('times') ? 'TimeoutError' : what.startsWith('meets') ? 'CheckError' : null;
      const kinds = what.startsWith('times') || what.startsWith('meets') ? [] : ['EMAIL_ADDRESS'];
      expect(record.guardrails?.[0]?.checks[0]).toMatchObject({ error, kinds });
    } finally {
      await attached.detach();
    }
  });
});
const DIALECTS: Record<string, (stream: boolean) => Json> = {
  '/chat/completions': (stream) => chat('forbidden', { stream }),
  '/completions': (stream) => ({ model: 'gpt-4o', prompt: 'forbidden', stream }),
  '/messages': (stream) => ({
    model: 'gpt-4o',
    max_tokens: 9,
    messages: [{ role: 'user', content: 'forbidden' }],
    stream,
  }),
  '/responses': (stream) => ({ model: 'gpt-4o', input: 'forbidden', stream }),
};

describe.each(Object.entries(DIALECTS))('on %s', (path, body) => {
  it.each([false, true])('a refusal is an error before the first byte (stream: %s)', async (stream) => {
    const answer = await send(body(stream), inline({ input_guardrails: [WORD] }), path);
    expect([answer.status, answer.headers.get('content-type')]).toEqual([446, 'application/json']);
    expect(await answer.json()).toMatchObject({ hook_results: { before_request_hooks: [{ verdict: false }] } });
    expect(upstream.received).toEqual([]);
  });

  it.each([false, true])('a soft refusal is an ordinary answer (stream: %s)', async (stream) => {
    const name = await create([{ id: 'default.contains', parameters: WORD['default.contains'] }], {
      deny: true,
      soft_deny_200: true,
    });
    await vi.waitFor(
      async () => expect((await send(chat('a'), inline({ input_guardrails: [name] }))).status).toBe(200),
      PATIENT,
    );
    upstream.received.length = 0;
    const answer = await send(body(stream), inline({ input_guardrails: [name] }), path);
    const text = await answer.text();
    expect([answer.status, text]).toEqual([200, expect.stringContaining('denied by a guardrail')]);
    expect(answer.headers.get('content-type')).toBe(stream ? 'text/event-stream' : 'application/json');
    expect(text).not.toContain('"error":{');
    if (stream) expect(text).toMatch(/\[DONE\]|message_stop|response\.completed/);
    else expect(JSON.parse(text)).not.toHaveProperty('hook_results');
    expect(upstream.received).toEqual([]);
    expect(await lastRecord()).toMatchObject({ status: 200, outcome: 'refused', error_code: 'hooks_failed' });
  });

  it.each([false, true])('a soft refusal carries results where fields may be added (stream: %s)', async (stream) => {
    const config = inline({
      input_guardrails: [{ ...WORD, soft_deny_200: true }],
      strict_open_ai_compliance: false,
    });
    const answer = await send(body(stream), config, path);
    const text = await answer.text();
    const events = text.split('\n').flatMap((line) => (line.startsWith('data: {') ? [JSON.parse(line.slice(6))] : []));
    const told = stream ? events.slice(-2).map((event) => event.response ?? event) : [JSON.parse(text)];
    const results = { before_request_hooks: [{ verdict: false, deny: true }], after_request_hooks: [] };
    expect(told).toContainEqual(expect.objectContaining({ hook_results: expect.objectContaining({}) }));
    expect(told.find((one) => 'hook_results' in one)).toMatchObject({ hook_results: results });
    if (stream) expect(text.trimEnd().split('\n').at(-1)).toMatch(/\[DONE\]|message_stop|response\.completed/);
  });
});

describe('results of guardrails in answers', () => {
  it('stand beside the answer where the caller takes more than the published fields', async () => {
    const config = inline({ input_guardrails: [{ ...WORD, deny: false }], strict_open_ai_compliance: false });
    const answer = await send(chat('forbidden'), config);
    expect(answer.status).toBe(246);
    expect(await answer.json()).toMatchObject({
      choices: ANSWER.choices,
      hook_results: {
        before_request_hooks: [
          { verdict: false, feedback: { value: -5, metadata: { failedChecks: 'default.contains' } } },
        ],
      },
    });
  });

  it('of a request that only watched it are told by the status also where those of its answer pass', async () => {
    const config = { input_guardrails: [{ ...WORD, deny: false }], output_guardrails: [WORD] };
    expect((await send(chat('forbidden'), inline(config))).status).toBe(246);
    expect((await send(chat('a'), inline(config))).status).toBe(200);
  });

  it('of guardrails beside the request change nothing and stand in the record', async () => {
    const answer = await send(
      chat('forbidden'),
      inline({ input_guardrails: [{ ...WORD, id: 'beside', async: true }] }),
    );
    expect(answer.status).toBe(200);
    expect(await answer.json()).toEqual(ANSWER);
    expect(await lastRecord()).toMatchObject({
      guardrails: [{ slug: 'beside', async: true, verdict: false, phase: null }],
    });
  });
});

describe('what is judged', () => {
  it.each([
    [
      'an earlier message',
      chat('a', {
        messages: [
          { role: 'user', content: 'forbidden' },
          { role: 'assistant', content: 'a' },
          { role: 'user', content: 'b' },
        ],
      }),
    ],
    [
      'a second part',
      chat([
        { type: 'text', text: 'a' },
        { type: 'text', text: 'forbidden' },
      ]),
    ],
    ['an escaped form', '{"model":"gpt-4o","messages":[{"role":"user","content":"for\\u0062idden"}]}'],
  ])('the word in %s is found', async (_, body) => {
    expect((await send(body, inline({ input_guardrails: [WORD] }))).status).toBe(446);
  });

  it('is what a caller’s own config makes of the request, whether by parameters or by mutators', async () => {
    const name = await create(
      [{ id: 'default.contains', parameters: WORD['default.contains'] }],
      { deny: true },
      { organisation_id: server.first.organisation_id },
    );
    const attached = await organisationDefault(name);
    try {
      const hidden = { messages: [{ role: 'user', content: 'forbidden' }] };
      expect((await send(chat('a'), inline({ override_params: hidden }))).status).toBe(446);
      const prefix = { 'default.addPrefix': { prefix: 'forbidden ' } };
      for (const named of [{}, { input_guardrails: [name] }, { input_guardrails: [{ id: name }] }])
        expect((await send(chat('a'), inline({ ...named, input_mutators: [prefix] }))).status).toBe(446);
      expect((await send(chat('a'), inline({ input_mutators: [{ id: name }] }))).status).toBe(200);
      expect(
        (await send(chat('forbidden'), inline({ input_guardrails: [{ id: name, 'default.wordCount': {} }] }))).status,
      ).toBe(446);
    } finally {
      await attached.detach();
    }
  });

  it('of a redacted request is what a config then adds nothing back to', async () => {
    const messages = [{ role: 'user', content: `to ${SECRET}` }];
    const answer = await send(
      chat('a'),
      inline({
        override_params: { messages, temperature: 0 },
        input_guardrails: [{ 'gateway.pii': pii(true).parameters }],
      }),
    );
    expect(answer.status).toBe(200);
    expect(JSON.stringify(sent()[0])).not.toContain(SECRET);
    expect(sent()[0]).toMatchObject({ model: 'gpt-4o', temperature: 0 });
  });

  it('is sent on byte for byte where nothing was changed', async () => {
    const body = '{ "model":"gpt-4o",  "seed": 12345678901234567890, "messages":[{"role":"user","content":"a"}] }';
    await send(body, inline({ input_guardrails: [WORD, { 'gateway.pii': pii(true).parameters }] }));
    expect(upstream.received[0]?.body.toString('utf8')).toBe(body);
  });

  it('keeps its long numbers, its model and its streaming when texts or the whole body are replaced', async () => {
    hooks.answer = (_request, response) =>
      sendJson(response, 200, {
        verdict: true,
        transformedData: { request: { json: { ...chat('other'), model: 'o9', stream: true } } },
      });
    const check = { 'default.webhook': { webhookURL: `${hooks.url}/x` } };
    expect((await send(chat('a'), inline({ input_guardrails: [check] }))).status).toBe(200);
    expect(sent()[0]).toEqual(chat('other'));
    const long = `{"model":"gpt-4o","seed":12345678901234567890,"messages":[{"role":"user","content":"${SECRET}"}]}`;
    await send(long, inline({ input_guardrails: [{ 'gateway.pii': pii(true).parameters }] }));
    expect(upstream.received[1]?.body.toString('utf8')).toContain('12345678901234567890');
  });
});

describe('the order of guardrails', () => {
  it('is organisation, workspace, saved config, each once; exempt workspaces skip the organisation’s only', async () => {
    const level = { organisation_id: server.first.organisation_id };
    const check: Check[] = [{ id: 'default.wordCount', parameters: {} }];
    const [ofOrganisation, ofWorkspace, ofConfig] = [
      await create(check, {}, level),
      await create(check, {}),
      await create(check, {}),
    ];
    const config = { provider: `@${slug}`, input_guardrails: [ofConfig, ofWorkspace, ofOrganisation] };
    const saved = await done('POST', '/configs', { name: `c ${++count}`, workspace_id: workspace, config });
    const first = await organisationDefault(ofOrganisation);
    const wrap = (input_guardrails: string[]) => ({ defaults: { input_guardrails } });
    const second = await byDefault(`/admin/workspaces/${workspace}`, wrap, ofWorkspace);
    const exempt = (excluded: boolean) =>
      done('PUT', '/workspace-exclusions/input-guardrails', { workspaces: [{ workspace_id: workspace, excluded }] });
    try {
      const headers = { 'x-gateway-config': String(saved.slug) };
      expect(await shown(headers)).toEqual([ofOrganisation, ofWorkspace, ofConfig]);
      await exempt(true);
      await vi.waitFor(async () => expect(await shown()).toEqual([ofWorkspace]), PATIENT);
      expect(await shown(headers)).toEqual(
        [ofConfig, ofWorkspace, ofOrganisation].sort((a, b) => (a === ofWorkspace ? -1 : b === ofWorkspace ? 1 : 0)),
      );
    } finally {
      await exempt(false);
      await second.detach();
      await first.detach();
    }
  });
});

it('a refused request counts in no rate limit and costs nothing', async () => {
  const key = await done('POST', '/api-keys/workspace/service', {
    name: `k ${++count}`,
    workspace_id: workspace,
    scopes: ['completions.write'],
    rate_limits: [{ type: 'requests', unit: 'rpm', value: 1 }],
    usage_limits: { type: 'cost', credit_limit: 1 },
  });
  const call = (content: string) =>
    send(chat(content), { ...inline({ input_guardrails: [WORD] }), 'x-gateway-api-key': String(key.key) });
  for (let i = 0; i < 3; i++) expect((await call('forbidden')).status).toBe(446);
  expect(await lastRecord()).toMatchObject({ cost_micros: 0, usage: null, attempts: [] });
  expect((await call('a')).status).toBe(200);
  expect((await call('a')).status).toBe(429);
});

it('a dry run names the guardrails and asks none', async () => {
  const config = inline({ input_guardrails: [{ id: 'mine', 'default.webhook': { webhookURL: `${hooks.url}/x` } }] });
  expect(await shown(config)).toEqual(['mine']);
  expect(hooks.received).toEqual([]);
});

it('a retry on 446 does not ask again what the request itself was refused for', async () => {
  const retry = { attempts: 2, on_status_codes: [446] };
  expect((await send(chat('forbidden'), inline({ retry, input_guardrails: [WORD] }))).status).toBe(446);
  expect(upstream.received).toEqual([]);
});

it('a retry on 446 asks for another answer where the answer was refused', async () => {
  const answers = ['forbidden', 'fine'];
  upstream.answer = (_request, response) => {
    const message = { role: 'assistant', content: answers.shift() };
    sendJson(response, 200, { ...ANSWER, choices: [{ index: 0, message, finish_reason: 'stop' }] });
  };
  const retry = { attempts: 1, on_status_codes: [446] };
  const answer = await send(chat('a'), inline({ retry, output_guardrails: [WORD] }));
  expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('fine')]);
  expect(await lastRecord()).toMatchObject({ attempts: [{ error: 'hooks_failed' }, { error: null }] });
});

describe('a retry on 446', () => {
  const says = (content: string) => (_request: unknown, response: Parameters<typeof sendJson>[0]) =>
    sendJson(response, 200, {
      ...ANSWER,
      choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
    });

  it('judges each answer, charges each, and refuses when the last one fails too', async () => {
    upstream.answer = says('forbidden');
    const retry = { attempts: 1, on_status_codes: [446] };
    const answer = await send(chat('a'), inline({ retry, output_guardrails: [WORD] }));
    expect(answer.status).toBe(446);
    expect(await lastRecord()).toMatchObject({
      attempts: [{ error: 'hooks_failed' }, { error: 'hooks_failed' }],
      usage: { input: 10, output: 4 },
    });
  });

  it('is not made unless the config names 446', async () => {
    upstream.answer = says('forbidden');
    expect((await send(chat('a'), inline({ retry: { attempts: 2 }, output_guardrails: [WORD] }))).status).toBe(446);
    expect(upstream.received).toHaveLength(1);
  });

  it('is made of a stream of which nothing was shown', async () => {
    const streams = ['forbidden', 'fine'];
    upstream.answer = (_request, response) =>
      sendEvents(response, [
        `data: {"choices":[{"index":0,"delta":{"content":"${streams.shift()}"},"finish_reason":"stop"}]}\n\n`,
        'data: [DONE]\n\n',
      ]);
    const config = { retry: { attempts: 1, on_status_codes: [446] }, output_guardrails: [WORD] };
    const answer = await send(chat('a', { stream: true }), inline(config));
    expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('fine')]);
  });
});

it('a stream starts when its request has passed', async () => {
  upstream.answer = (_request, response) =>
    sendEvents(response, [
      'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n',
      'data: [DONE]\n\n',
    ]);
  const answer = await send(chat('a', { stream: true }), inline({ input_guardrails: [WORD] }));
  expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('[DONE]')]);
});

it('a client that leaves while a guardrail waits ends its calls', async () => {
  const abort = new AbortController();
  const config = inline({
    input_guardrails: [{ 'default.webhook': { webhookURL: `${hooks.url}/hangs`, timeout: 60_000 } }],
  });
  const call = fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': server.first.workspace_api_key, 'content-type': 'application/json', ...config },
    body: JSON.stringify(chat('a')),
    signal: abort.signal,
  });
  await vi.waitFor(() => expect(hooks.received).toHaveLength(1), PATIENT);
  abort.abort();
  await expect(call).rejects.toThrow();
  await vi.waitFor(async () => expect(await lastRecord()).toMatchObject({ status: 499, outcome: 'aborted' }), PATIENT);
  await vi.waitFor(() => expect(hooks.open).toBe(0), PATIENT);
});
