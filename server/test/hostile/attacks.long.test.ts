import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { exchange } from '../support/raw-exchange.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

/** What a hostile caller, tenant or provider may try, against a whole server. */

const ANSWER = {
  id: 'c',
  object: 'chat.completion',
  model: 'gpt-4o',
  choices: [],
  usage: { prompt_tokens: 1, completion_tokens: 1 },
};
const CANARY = 'sk-canary-0123456789abcdef';
const TOKEN = 'internal-canary-7777';

let upstream: FakeUpstream;
/** A host that the installation trusts for another purpose. */
let elsewhere: FakeUpstream;
let server: TestServer;
let stored: string;

const ordinary: FakeUpstream['answer'] = (_request, response) => sendJson(response, 200, ANSWER);

beforeAll(async () => {
  upstream = await startUpstream(ordinary);
  elsewhere = await startUpstream(ordinary);
  server = await startServer({
    SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port},127.0.0.1:${elsewhere.port}`,
    SLUICE_HEADER_ALIASES: 'x-portkey-',
  });
  stored = await server.provider({
    id: 'openai',
    host: `${upstream.url}/v1`,
    key: CANARY,
    configurations: { custom_headers: { 'x-internal-token': TOKEN, 'x-region': 'application/json' } },
  });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
  await elsewhere?.stop();
});

const chat = (extra: object = {}) => ({ model: 'gpt-4o', messages: [{ role: 'user', content: 'Hello' }], ...extra });
const viaStored = () => ({ 'x-gateway-provider': `@${stored}` });

async function ask(headers: Record<string, string>, extra: object = {}): Promise<{ status: number; all: string }> {
  const answer = await server.call('/chat/completions', chat(extra), headers);
  return { status: answer.status, all: JSON.stringify([...answer.headers]) + (await answer.text()) };
}

/** One GET with exactly this path. */
async function get(path: string, key: string): Promise<{ status: number; body: string }> {
  const bytes = Buffer.from(`GET ${path} HTTP/1.1\r\nhost: a\r\nx-gateway-api-key: ${key}\r\n\r\n`);
  const options = { method: 'GET', half: false, timeoutMs: 5000 };
  const { answer } = await exchange(Number(new URL(server.url).port), bytes, options);
  return { status: answer?.status ?? 0, body: answer?.body.toString('utf8') ?? '' };
}

describe('callers', () => {
  it('a header under an alias never changes where the requests of others go', async () => {
    upstream.answer = ordinary;
    const model = { model: 'asked-once-before' };
    await ask({ ...viaStored(), 'x-portkey-custom-host': `${elsewhere.url}/v1` }, model);
    const before = elsewhere.received.length;
    expect((await ask(viaStored(), model)).status).toBe(200);
    expect(elsewhere.received.length).toBe(before);
  });

  it('a stored credential goes to no other host, also not to one that the installation trusts', async () => {
    const before = elsewhere.received.length;
    const host = `${elsewhere.url}/v1`;
    const config = { provider: `@${stored}`, custom_host: host };
    const saved = await server.admin(
      'POST',
      '/configs',
      { name: 'sent elsewhere', config },
      server.first.workspace_api_key,
    );
    expect(saved.status).toBe(200);
    const ways: Record<string, string>[] = [
      { ...viaStored(), 'x-gateway-custom-host': host },
      { 'x-gateway-config': JSON.stringify(config) },
      { 'x-gateway-config': String(saved.body.slug) },
    ];
    for (const headers of ways) {
      const answer = await ask(headers);
      expect(answer).toMatchObject({ status: 400, all: expect.stringContaining('is not meant for') });
    }
    expect(elsewhere.received.length).toBe(before);
    expect((await ask({ ...viaStored(), 'x-gateway-custom-host': `${upstream.url}/v1` })).status).toBe(200);
  });

  it('a header under an alias counts although the same request was planned without it', async () => {
    expect((await ask(viaStored())).status).toBe(200);
    const refused = await ask({ ...viaStored(), 'x-portkey-custom-host': 'https://attacker.example/v1' });
    expect(refused.status).toBe(400);
  });

  it('a gateway key in a second header reaches no provider', async () => {
    const key = server.first.workspace_api_key;
    const own = { 'x-gateway-custom-host': `${upstream.url}/v1` };
    const before = upstream.received.length;
    for (const headers of [
      { ...own, 'x-gateway-provider': 'openai', authorization: `Bearer ${key}` },
      { ...own, 'x-gateway-provider': 'openai', 'x-api-key': key },
      {
        ...viaStored(),
        authorization: `Bearer ${key}`,
        'x-api-key': key,
        'x-other': `key=${key}`,
        'x-gateway-forward-headers': 'authorization,x-api-key,x-other',
      },
      {
        ...own,
        'x-gateway-provider': 'anthropic',
        'x-api-key': 'sk-of-the-caller',
        authorization: `Bearer ${key}`,
        'x-gateway-forward-headers': 'authorization',
      },
    ]) {
      await ask(headers);
    }
    const sent = upstream.received.slice(before).map((entry) => JSON.stringify(entry.headers));
    expect(sent).toHaveLength(2);
    expect(sent.filter((text) => text.includes('slc_'))).toEqual([]);
  });

  it('the credential of a saved config never leaves for a host that the request names', async () => {
    const made = await server.admin('POST', '/configs', {
      name: 'with a credential',
      workspace_id: server.first.workspace_id,
      config: { provider: 'openai', api_key: CANARY },
    });
    expect(made.status).toBe(200);
    const config = { 'x-gateway-config': String(made.body.slug) };
    const before = elsewhere.received.length;
    const answer = await ask({ ...config, 'x-gateway-custom-host': `${elsewhere.url}/v1` });
    expect(answer.status).toBe(400);
    expect(answer.all).toContain('x-gateway-custom-host');
    expect(elsewhere.received.length).toBe(before);
    const redirected = { 'x-gateway-huggingface-base-url': `${elsewhere.url}/v1` };
    const face = await server.admin('POST', '/configs', {
      name: 'with a movable host',
      workspace_id: server.first.workspace_id,
      config: { provider: 'huggingface', api_key: CANARY },
    });
    const shown = await ask({ 'x-gateway-config': String(face.body.slug), 'x-gateway-dry-run': 'true', ...redirected });
    expect(shown.status).toBe(200);
    expect(shown.all).toContain('https://router.huggingface.co/');
  });

  it('8.1 a giant model name is refused, and its record is small', async () => {
    const answer = await ask(viaStored(), { model: 'm'.repeat(3000) });
    expect(answer.status).toBe(400);
    expect(answer.all).toContain('model must have at most');
    const [record] = await server.records();
    expect(JSON.stringify(record).length).toBeLessThan(4000);
  });

  it.each([
    '/v1/%61pi-keys',
    '/v1/api%2Dkeys',
    '/%76%31/api-keys',
    '/v1/%6Fperator/organisations',
    '/v2/%63onfigs',
    '/v1/ch%61t/completions',
  ])('another spelling of a path is no way to its route: %s', async (path) => {
    const before = upstream.received.length;
    for (const key of [server.first.admin_api_key, server.first.workspace_api_key, server.first.operator_api_key]) {
      expect((await get(path, key)).status).toBe(400);
    }
    expect(upstream.received.length).toBe(before);
  });

  it('8.1 what large bodies took is free again when their requests are over, refused ones included', async () => {
    upstream.answer = ordinary;
    const large = await startServer({
      SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}`,
      SLUICE_MAX_BODY_BYTES: '8000000',
    });
    try {
      const headers = {
        'x-gateway-provider': `@${await large.provider({ id: 'openai', host: `${upstream.url}/v1` })}`,
      };
      const body = { model: 'gpt-4o', messages: [{ role: 'user', content: 'x'.repeat(7_000_000) }] };
      for (let i = 0; i < 3; i++) {
        expect((await large.call('/chat/completions', body, headers)).status).toBe(200);
        expect((await large.call('/chat/completions', body, { 'x-gateway-provider': '@none' })).status).toBe(400);
      }
      const health = await large.admin('GET', '/operator/health', undefined, large.first.operator_api_key);
      expect(health.body.body_bytes).toBe(0);
    } finally {
      await large.stop();
    }
  });

  it('refused writes of a key without scopes cannot fill the audit log faster than the limit allows', async () => {
    const small = await startServer({ SLUICE_ADMIN_REQUESTS_PER_MINUTE: '20' });
    try {
      const statuses = new Set<number>();
      for (let i = 0; i < 60; i++) {
        statuses.add((await small.admin('POST', '/admin/users/invites', {}, small.first.workspace_api_key)).status);
        statuses.add((await small.admin('DELETE', '/configs/none', undefined, small.first.workspace_api_key)).status);
      }
      expect(statuses.has(429)).toBe(true);
    } finally {
      await small.stop();
    }
  });
});

describe('providers', () => {
  const echo =
    (status: number, body: unknown): FakeUpstream['answer'] =>
    (request, response) => {
      for (const [name, value] of Object.entries(request.headers)) {
        if (!/^(host|connection|content-|transfer-)/.test(name)) response.setHeader(`x-echo-${name}`, String(value));
      }
      sendJson(response, status, body);
    };
  const failure = { error: { message: `Bad key ${CANARY}, token ${TOKEN}`, type: CANARY.repeat(1000), code: null } };

  it.each([
    [200, ANSWER],
    [302, failure],
    [400, failure],
    [401, { detail: `Bearer ${CANARY}` }],
    [429, `<html>${CANARY}</html>`],
    [500, failure],
    [200, failure],
  ] as const)('a provider that answers %s with what it was sent gives no credential away', async (status, body) => {
    upstream.answer = echo(status, body);
    const answer = await ask(viaStored());
    expect(answer.all).toContain('x-echo-accept');
    expect(answer.all).toContain('application/json');
    expect(answer.all).not.toContain(CANARY);
    expect(answer.all).not.toContain(TOKEN);
    const [record] = await server.records();
    expect(JSON.stringify(record)).not.toContain(CANARY);
    expect(JSON.stringify(record).length).toBeLessThan(4000);
  });

  it('an error event within a stream gives no credential away', async () => {
    upstream.answer = (_request, response) =>
      sendEvents(response, ['data: {"id":"1","choices":[]}\n\n', `data: ${JSON.stringify(failure)}\n\n`]);
    const answer = await ask(viaStored(), { stream: true });
    expect(answer.all).toContain('***');
    expect(answer.all).not.toContain(CANARY);
  });

  it('an error body without end is cut, and the caller gets the error', async () => {
    upstream.answer = (_request, response) => {
      response.writeHead(500, { 'content-type': 'application/json' });
      const more = () => {
        while (!response.destroyed && response.write('x'.repeat(65_536))) {
          // Until the gateway stops reading.
        }
      };
      response.on('drain', more);
      more();
    };
    const answer = await ask(viaStored());
    expect(answer.status).toBe(500);
  });

  it('8.1 a giant model name in an answer is passed on and not recorded', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, { ...ANSWER, model: 'm'.repeat(1_000_000) });
    const answer = await ask(viaStored());
    expect(answer.status).toBe(200);
    expect(answer.all.length).toBeGreaterThan(1_000_000);
    const [record] = await server.records();
    expect(record).toMatchObject({ model_answered: null, status: 200 });
  });

  it('an answer of nothing but brackets within brackets is no answer, whole or in a stream', async () => {
    const deep = `{"choices":${'['.repeat(200_000)}${']'.repeat(200_000)}}`;
    const body = { model: 'gpt-4o', max_tokens: 5, messages: [{ role: 'user', content: 'Hello' }] };
    upstream.answer = (_request, response) => sendJson(response, 200, deep);
    const whole = await server.call('/messages', body, viaStored());
    expect(whole.status).toBe(502);
    // It is JSON, and has more values than are converted.
    expect(await whole.text()).toContain('has too many values, to convert');
    upstream.answer = (_request, response) => sendEvents(response, [`data: ${deep}\n\n`, 'data: [DONE]\n\n']);
    const stream = await server.call('/messages', { ...body, stream: true }, viaStored());
    expect(await stream.text()).not.toContain('message_stop');
  });

  it('comments that keep a stream alive are not counted as tokens', async () => {
    upstream.answer = (_request, response) =>
      sendEvents(response, [
        ': processing\n\n'.repeat(500),
        '\n'.repeat(500),
        'data: {"choices":[{"delta":{"content":"x"}}]}\n\n',
        'data: [DONE]\n\n',
      ]);
    expect((await ask(viaStored(), { stream: true })).status).toBe(200);
    const [record] = await server.records();
    expect(Number((record?.usage as { output?: number } | null)?.output ?? 99)).toBeLessThan(5);
  });
});
