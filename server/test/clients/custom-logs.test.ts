/** Requests that were sent elsewhere, through a whole server: what becomes of them as records. */
import { Portkey } from 'portkey-ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer({ SLUICE_HEADER_ALIASES: 'x-portkey-' });
});
afterAll(() => server?.stop());

type Entry = Record<string, Record<string, unknown>>;

/** An entry as a program writes it; `more` goes into its parts. */
function entry(more: Entry = {}): Entry {
  return {
    request: {
      url: 'https://user:word@api.openai.com/v1/chat/completions?key=canary-in-query',
      headers: { 'X-Gateway-Provider': 'openai', authorization: 'Bearer canary-in-header' },
      body: { model: 'gpt-4o', messages: [{ role: 'user', content: 'canary-in-prompt' }], stream: true },
      ...more.request,
    },
    response: {
      headers: { 'set-cookie': 'canary-in-cookie' },
      body: { model: 'gpt-4o-2024-11-20', usage: { prompt_tokens: 1_000, completion_tokens: 500 } },
      response_time: 420,
      ...more.response,
    },
    ...(more.metadata === undefined ? {} : { metadata: more.metadata }),
  };
}

const insert = (body: unknown, key = server.first.workspace_api_key) => server.admin('POST', '/logs', body, key);
const ofTrace = async (trace: string) => (await server.records()).filter(({ trace_id }) => trace_id === trace);

async function makeKey(scopes: readonly string[], more: object = {}): Promise<string> {
  const body = { name: 'k', scopes, workspace_id: server.first.workspace_id, ...more };
  const made = await server.admin('POST', '/api-keys/workspace/service', body);
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  return String(made.body.key);
}

describe('a request that was sent elsewhere', () => {
  it.each(['trace_id', 'span_id', 'parent_span_id', 'span_name'])(
    'is refused for a %s that is not safe to show, like that of a request',
    async (field) => {
      for (const bad of ['<script>\n', 'a\nb', 'a\u202eb', ...(field === 'span_name' ? [] : ['=cmd|calc!A1', 'a b'])]) {
        const answer = await insert(entry({ metadata: { [field]: bad } }));
        expect(answer, bad).toMatchObject({ status: 400, body: { error: { param: `metadata.${field}` } } });
      }
      expect((await insert(entry({ metadata: { [field]: 'step-1.a:b_c' } }))).status).toBe(200);
    },
  );

  it('becomes a record with its price, its names and none of its bodies', async () => {
    const metadata = { trace_id: 'one', span_id: 's', span_name: 'answer', parent_span_id: 'p', _user: 'ada' };
    expect(await insert(entry({ metadata }))).toEqual({ status: 200, body: { status: 'success' } });
    const [record, ...more] = await ofTrace('one');
    expect(more).toEqual([]);
    expect(record).toMatchObject({
      source: 'custom',
      operation: 'custom',
      workspace_id: server.first.workspace_id,
      method: 'POST',
      path: 'https://api.openai.com/v1/chat/completions',
      span_id: 's',
      span_name: 'answer',
      parent_span_id: 'p',
      provider: 'openai',
      provider_slug: null,
      model_requested: 'gpt-4o',
      model_answered: 'gpt-4o-2024-11-20',
      stream: true,
      status: 200,
      outcome: 'ok',
      usage: { input: 1_000, output: 500 },
      // 1,000 tokens at 2.50 dollars a million, 500 at 10.
      cost_micros: 7_500,
      latency_ms: 420,
      upstream_us: 420_000,
      metadata: { _user: 'ada' },
      dry_run: false,
    });
    expect(JSON.stringify(record)).not.toMatch(/canary|word/);
  });

  describe('has its bodies kept like one that went through Sluice', () => {
    const setting = async (body: object) =>
      expect((await server.admin('PUT', '/v1/admin/organisation/settings', body)).status).toBe(200);
    // biome-ignore lint/suspicious/noExplicitAny: an answer of the API
    const shown = async (trace: string, more: Entry = {}): Promise<any> => {
      expect((await insert(entry({ ...more, metadata: { trace_id: trace } }))).status).toBe(200);
      const [record] = await ofTrace(trace);
      // biome-ignore lint/suspicious/noExplicitAny: an answer of the API
      const read = async (): Promise<any> => (await server.admin('GET', `/logs/${String(record?.id)}`)).body;
      await expect.poll(async () => (await read()).bodies?.reason, { timeout: 20_000 }).not.toBe('pending');
      return read();
    };

    it('as they were sent, with credentials masked wherever they stand', async () => {
      const key = 'sk-canary-of-a-provider';
      const body = { usage: { prompt_tokens: 1_000, completion_tokens: 500 }, echo: `your key is ${key}` };
      const request = { ...entry().request, headers: { authorization: `Bearer ${key}`, 'x-order': '17' } };
      const log = await shown('kept', { request, response: { headers: { 'set-cookie': 'canary' }, body } });
      expect(log).toMatchObject({
        bodies: { kept: 'all', reason: null, truncated: false, omitted: 0 },
        request: { headers: { authorization: '***', 'x-order': '17' }, body: entry().request?.body },
        response: { headers: { 'set-cookie': '***' }, body: { usage: { prompt_tokens: 1_000 } } },
        finalUntransformedRequest: { url: 'https://api.openai.com/v1/chat/completions', method: 'POST' },
      });
      expect(log.response.body.echo).toBe(`your key is ${'*'.repeat(key.length)}`);
    });

    it('without pictures, and cut where they are too long', async () => {
      const url = `data:image/png;base64,${Buffer.alloc(9_000, 'x').toString('base64')}`;
      const body = { model: 'm', messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }] };
      const log = await shown('picture', { request: { body }, response: { body: { text: 'a b '.repeat(90_000) } } });
      expect(log.bodies).toMatchObject({ truncated: true, omitted: 1 });
      expect(log.response.body.text).toHaveLength(262_144);
    });

    it('not where a header or a setting says so, but for the answer of one that failed', async () => {
      const off = await shown('off', { request: { headers: { 'X-Portkey-Debug': 'false' } } });
      expect(off.bodies).toMatchObject({ kept: 'none', reason: 'off' });
      const quiet = await makeKey(['logs.write', 'completions.write'], { defaults: { debug_log: 0 } });
      expect((await insert(entry({ metadata: { trace_id: 'quiet' } }), quiet)).status).toBe(200);
      const failed = entry({ response: { status: 500, body: { error: 'why' } }, metadata: { trace_id: 'failed' } });
      expect((await insert(failed, quiet)).status).toBe(200);
      const read = async (trace: string) =>
        (await server.admin('GET', `/logs/${String((await ofTrace(trace))[0]?.id)}`)).body;
      expect((await read('quiet')).bodies).toMatchObject({ kept: 'none', reason: 'off' });
      await setting({ debug_log: 0 });
      expect((await shown('general')).bodies).toMatchObject({ kept: 'none', reason: 'off' });
      await setting({ debug_log: 1 });
      await expect
        .poll(async () => read('failed'), { timeout: 20_000 })
        .toMatchObject({ bodies: { kept: 'failed_answer', reason: null }, response: { body: { error: 'why' } } });
    });
  });

  it('is recorded once under its trace and span, however often it is sent, also at the same time', async () => {
    // The journal has all of them: the keeper leaves out what it knows.
    const listed = async () => (await server.admin('GET', '/logs?trace_id=again&total=true')).body.total;
    const metadata = { trace_id: 'again', span_id: 's' };
    const all = await Promise.all([1, 2, 3].map(() => insert([entry({ metadata }), entry({ metadata })])));
    expect(all.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(await listed()).toBe(1);
    await insert(entry({ metadata: { trace_id: 'again', span_id: 'other' } }));
    expect(await listed()).toBe(2);
  });

  it('has the prices of the stored provider that it names, by slug or as a virtual key', async () => {
    const integration = {
      name: 'n',
      slug: 'priced',
      ai_provider_id: 'openai',
      key: 'sk-x',
      pricing_adjustments: { multiplier: { default: 2 } },
    };
    const made = await server.admin('POST', '/integrations', integration);
    expect(made.status, JSON.stringify(made.body)).toBe(200);
    const workspaces = { workspaces: [{ id: server.first.workspace_id, enabled: true }] };
    expect((await server.admin('PUT', '/integrations/priced/workspaces', workspaces)).status).toBe(200);
    const slug = 'priced-here';
    const { workspace_id } = server.first;
    const provider = { name: 'p', slug, integration_id: 'priced', workspace_id };
    const stored = await server.admin('POST', '/providers', provider);
    expect(stored.status, JSON.stringify(stored.body)).toBe(200);
    const metadata = { trace_id: 'stored' };
    await insert([
      entry({ request: { headers: { 'x-gateway-provider': `@${slug}` } }, metadata }),
      entry({ request: { headers: { 'x-portkey-virtual-key': slug } }, metadata }),
      entry({ request: { headers: { 'x-gateway-provider': '@nobody' } }, metadata }),
    ]);
    const records = await ofTrace('stored');
    const shown = records.map(({ provider, provider_slug, cost_micros }) => [provider, provider_slug, cost_micros]);
    expect(shown.sort()).toEqual(
      [
        ['openai', slug, 15_000],
        ['openai', slug, 15_000],
        [null, 'nobody', null],
      ].sort(),
    );
  });

  it('has the metadata of its key and its workspace, as a request through Sluice has', async () => {
    const key = await makeKey(['logs.write', 'completions.write'], { defaults: { metadata: { team: 'red' } } });
    await insert(entry({ metadata: { trace_id: 'meta', team: 'blue', own: 'x' } }), key);
    expect(await ofTrace('meta')).toMatchObject([{ metadata: { team: 'red', own: 'x' } }]);
  });

  it('that failed keeps its status and the code of its error, and nothing else of it', async () => {
    const body = { error: { code: 'context_length_exceeded', message: 'canary-in-error' } };
    await insert(entry({ response: { status: 400, body }, metadata: { trace_id: 'failed' } }));
    const [record] = await ofTrace('failed');
    expect(record).toMatchObject({
      status: 400,
      outcome: 'failed',
      error_code: 'context_length_exceeded',
      error_message: null,
      usage: null,
      cost_micros: null,
    });
  });

  it('may have any JSON for bodies, whatever could not be stored', async () => {
    const odd = { content: 'a\u0000b', number: 2 ** 60, list: [[[1]]], model: 'x'.repeat(300), usage: 'none' };
    const entries = [odd, 'text', null, 7, [], {}].map((body) =>
      entry({ request: { body }, response: { body }, metadata: { trace_id: 'odd' } }),
    );
    expect((await insert(entries)).status).toBe(200);
    expect(await ofTrace('odd')).toMatchObject(entries.map(() => ({ model_requested: null, usage: null })));
  });

  it('comes from the official client', async () => {
    const client = new Portkey({ apiKey: server.first.workspace_api_key, baseURL: `${server.url}/v1` });
    const headers = { 'x-portkey-provider': 'openai' };
    const made = await client.logs.create(entry({ request: { headers }, metadata: { trace_id: 'client' } }));
    expect(made).toMatchObject({ status: 'success' });
    expect(await ofTrace('client')).toMatchObject([{ provider: 'openai', cost_micros: 7_500 }]);
  });
});

const keys = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`k${n}`, n]));

describe('entries that are refused', () => {
  it('because they are no JSON, or too large, are all named, too', async () => {
    const good = JSON.stringify(entry());
    const large = JSON.stringify(entry({ request: { body: 'x'.repeat(1_048_577) } }));
    const answer = await fetch(`${server.url}/v1/logs`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': server.first.workspace_api_key, 'content-type': 'application/json' },
      body: `[${good},{"a":1,"a":2},${good},${large},{"a":nothing}]`,
    });
    const { errors } = (await answer.json()) as { errors: { param: string; message: string }[] };
    expect([answer.status, errors.map(({ param }) => param)]).toEqual([400, ['[1]', '[3]', '[4]']]);
    expect(errors[2]?.message).toMatch(/^\[4\].* byte [0-9]{7}\)\.$/);
  });

  it('are all named by their place, and none of the list is recorded', async () => {
    const metadata = { trace_id: 'refused' };
    const { status, body } = await insert([
      entry({ metadata }),
      entry({ request: { url: '' }, metadata }),
      { request: { url: 'x' }, response: { body: {} } },
      entry({ response: { status: 99, response_time: -1 }, metadata }),
      entry({ metadata: { ...metadata, team: 'x'.repeat(129) } }),
      entry({ request: { headers: { a: 1 } }, metadata }),
      { ...entry({ metadata }), extra: 1 },
    ]);
    expect(status).toBe(400);
    expect((body.errors as { param: string }[]).map(({ param }) => param).sort()).toEqual([
      '[1].request.url',
      '[2].request.body',
      '[3].response.response_time',
      '[3].response.status',
      '[4].metadata.team',
      '[5].request.headers.a',
      '[6].extra',
    ]);
    expect(await ofTrace('refused')).toEqual([]);
  });

  it.each<[string, () => unknown, string | null]>([
    ['no entry', () => [], null],
    ['more than 100', () => Array.from({ length: 101 }, () => entry()), null],
    [
      'too many keys',
      () => entry({ metadata: Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`k${n}`, 'v'])) }),
      'metadata',
    ],
    ['a key that is too long', () => entry({ metadata: { ['k'.repeat(129)]: 'v' } }), 'metadata'],
    ['a value that is no text', () => [entry(), entry({ metadata: { n: 1 } })], '[1].metadata.n'],
    ['a text that cannot be stored', () => [entry(), entry({ metadata: { n: 'a\u0000' } })], '[1].metadata.n'],
    ['an entry with too many keys', () => [entry(), entry({ request: { body: keys(20_001) } })], '[1]'],
    ['an entry above 1 MB', () => [entry(), entry({ request: { body: 'x'.repeat(1_048_577) } })], '[1]'],
    ['a single entry above 1 MB', () => entry({ request: { body: 'x'.repeat(1_048_577) } }), null],
  ])('%s', async (_title, make, param) => {
    const { status, body } = await insert(make());
    expect([status, (body.error as { param: string }).param], JSON.stringify(body)).toEqual([400, param]);
  });

  it('with the metadata of the key and the workspace together have at most 64 keys', async () => {
    const defaults = { metadata: Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`own${n}`, 'v'])) };
    const key = await makeKey(['logs.write', 'completions.write'], { defaults });
    const metadata = { trace_id: 'many', ...Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`k${n}`, 'v'])) };
    const { status, body } = await insert([entry(), entry({ metadata })], key);
    expect([status, (body.error as { param: string }).param]).toEqual([400, '[1].metadata']);
    expect(await ofTrace('many')).toEqual([]);
  });

  it.each(['[{"request":1]', '[{},{"a":1,"a":2}]', '[{}', '{"request":{}'])('%s is no JSON', async (raw) => {
    const answer = await fetch(`${server.url}/v1/logs`, {
      method: 'POST',
      headers: { 'x-gateway-api-key': server.first.workspace_api_key, 'content-type': 'application/json' },
      body: raw,
    });
    const { error } = (await answer.json()) as { error: { code: string; message: string } };
    expect([answer.status, error.code]).toEqual([400, 'AB01']);
    expect(error.message).toMatch(/byte [0-9]+|required/);
  });

  it.each([
    ['logs.write', 403],
    ['completions.write', 403],
    ['logs.view', 403],
    ['logs.write,completions.write', 200],
  ])('a key with %s gets %s', async (scopes, status) => {
    const key = await makeKey(scopes.split(','));
    expect((await insert(entry(), key)).status).toBe(status);
    expect((await insert(entry(), server.first.admin_api_key)).status).toBe(403);
  });

  it('100 of almost 1 MB each are recorded', async () => {
    const body = { model: 'gpt-4o', text: 'x'.repeat(1_000_000) };
    const entries = Array.from({ length: 100 }, (_, n) =>
      entry({ request: { body }, metadata: { trace_id: 'large', span_id: String(n) } }),
    );
    expect((await insert(entries)).status).toBe(200);
    expect(await ofTrace('large')).toHaveLength(100);
  }, 60_000);
});
