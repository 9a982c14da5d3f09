import { beforeAll, describe, expect, it } from 'vitest';
import {
  ANSWER,
  chat,
  DONE,
  STREAM,
  server,
  stored,
  upstream,
  useDataPlane,
  viaStored,
} from '../support/data-plane.ts';
import { sendEvents, sendJson } from '../support/upstream.ts';

useDataPlane();

const USAGE =
  'data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n\n';

const last = () => {
  const entry = upstream.received.at(-1);
  if (entry === undefined) throw new Error('the upstream received nothing');
  return entry;
};

describe('bytes', () => {
  it('the upstream receives the body byte for byte: key order, big integers, escapes, unknown fields', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, ANSWER);
    const body =
      '{ "zeta":1e400,\n "messages" : [{"content":"\\u0041\\/\\ud83c\\udf89","role":"user"}],"model":"gpt-4o", "n":12345678901234567890, "unknown":{"b":1,"a":2.50}}';
    const answer = await server.call('/chat/completions', body, viaStored());
    expect(answer.status).toBe(200);
    expect(last().body.toString('utf8')).toBe(body);
    expect(last().path).toBe('/v1/chat/completions');
    expect(last().headers.authorization).toBe('Bearer sk-stored');
    expect(await answer.text()).toBe(ANSWER);
  });

  it('only the model is spliced when it carries the provider slug', async () => {
    const body = `{"a": 1, "model" : "@${stored}/gpt-4o" ,"messages":[]}`;
    await (await server.call('/chat/completions', body)).text();
    expect(last().body.toString('utf8')).toBe('{"a": 1, "model" : "gpt-4o" ,"messages":[]}');
  });

  it('the usage option is spliced into a stream that lacks it, and its event is taken out of the answer', async () => {
    upstream.answer = (_request, response) => sendEvents(response, [...STREAM, USAGE, DONE]);
    const answer = await server.call('/chat/completions', chat({ stream: true }), viaStored());
    expect(await answer.text()).toBe([...STREAM, DONE].join(''));
    const sent = JSON.parse(last().body.toString('utf8')) as Record<string, unknown>;
    expect(sent).toEqual({ ...chat({ stream: true }), stream_options: { include_usage: true } });
    const [record] = await server.records();
    expect(record).toMatchObject({
      stream: true,
      status: 200,
      outcome: 'ok',
      usage_estimated: false,
      usage: { input: 7, output: 2 },
    });
  });

  it('a stream whose caller asked for usage passes unchanged, request and answer', async () => {
    const body = JSON.stringify(chat({ stream: true, stream_options: { include_usage: true } }));
    const answer = await server.call('/chat/completions', body, viaStored());
    expect(await answer.text()).toBe([...STREAM, USAGE, DONE].join(''));
    expect(last().body.toString('utf8')).toBe(body);
  });

  it('a stream split at every byte gives the same answer', async () => {
    const whole = Buffer.from([...STREAM, DONE].join(''));
    for (let at = 1; at < whole.length; at += 7) {
      upstream.answer = (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(whole.subarray(0, at));
        setImmediate(() => response.end(whole.subarray(at)));
      };
      const answer = await server.call(
        '/chat/completions',
        chat({ stream: true, stream_options: { include_usage: true } }),
        viaStored(),
      );
      expect(await answer.text(), `split at ${at}`).toBe(whole.toString('utf8'));
    }
  });

  it('a body of 3 MB and its answer of 3 MB pass whole', async () => {
    const big = 'x'.repeat(3_000_000);
    upstream.answer = (request, response) =>
      sendJson(
        response,
        200,
        `{"echo":${request.body.length},"text":"${big}","usage":{"prompt_tokens":1,"completion_tokens":5,"total_tokens":6}}`,
      );
    const answer = await server.call('/chat/completions', chat({ big }), viaStored());
    const body = (await answer.json()) as { text: string };
    expect(body.text.length).toBe(3_000_000);
    expect((await server.records())[0]).toMatchObject({ usage: { input: 1, output: 5 } });
  });

  it('multipart bodies pass byte for byte', async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, { text: 'heard' });
    const boundary = 'b0undary';
    const body = Buffer.concat([
      Buffer.from(
        `--${boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n`,
      ),
      Buffer.from([0, 255, 13, 10, 45, 45, 98]),
      Buffer.from(`\r\n--${boundary}--\r\n`),
    ]);
    const answer = await fetch(`${server.url}/v1/audio/transcriptions`, {
      method: 'POST',
      headers: {
        'x-gateway-api-key': server.first.workspace_api_key,
        ...viaStored(),
        'content-type': `multipart/form-data; boundary=${boundary}`,
      },
      body,
    });
    expect(await answer.json()).toEqual({ text: 'heard' });
    expect(last().body.equals(body)).toBe(true);
    expect((await server.records())[0]).toMatchObject({ operation: 'transcribe', model_requested: 'whisper-1' });
  });

  it('any other path and method passes through with query and body unchanged', async () => {
    upstream.answer = (request, response) => sendJson(response, 200, { method: request.method, path: request.path });
    const answer = await fetch(`${server.url}/v1/vector_stores/vs_1/files?limit=2&after=a%20b`, {
      headers: { 'x-gateway-api-key': server.first.workspace_api_key, ...viaStored() },
    });
    expect(await answer.json()).toEqual({ method: 'GET', path: '/v1/vector_stores/vs_1/files?limit=2&after=a%20b' });
    expect((await server.records())[0]).toMatchObject({ operation: 'proxy', status: 200 });
  });
});

describe('credentials', () => {
  const own = (headers: Record<string, string>, body: object = chat()) =>
    fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  const key = () => ({ 'x-gateway-api-key': server.first.workspace_api_key });

  beforeAll(async () => {
    upstream.answer = (_request, response) => sendJson(response, 200, ANSWER);
    const virtual = await server.admin('POST', '/virtual-keys', {
      name: 'vk',
      provider: 'openai',
      key: 'sk-virtual',
      workspace_id: server.first.workspace_id,
      custom_host: `${upstream.url}/v1`,
    });
    expect(virtual, JSON.stringify(virtual)).toMatchObject({ status: 200 });
    virtualSlug = String(virtual.body.slug);
    const config = await server.admin('POST', '/configs', {
      name: 'single',
      workspace_id: server.first.workspace_id,
      config: { provider: `@${stored}`, override_params: { temperature: 0.5 } },
    });
    expect(config.status).toBe(200);
    configSlug = String(config.body.slug);
  });
  let virtualSlug = '';
  let configSlug = '';

  it('1: gateway key and virtual key', async () => {
    expect((await own({ ...key(), 'x-gateway-virtual-key': virtualSlug })).status).toBe(200);
    expect(last().headers.authorization).toBe('Bearer sk-virtual');
  });
  it('2 and 4: gateway key, provider token, provider and custom host', async () => {
    const answer = await own({
      ...key(),
      authorization: 'Bearer sk-mine',
      'x-gateway-provider': 'openai',
      'x-gateway-custom-host': `${upstream.url}/v1`,
    });
    expect(answer.status).toBe(200);
    expect(last().headers.authorization).toBe('Bearer sk-mine');
  });
  it('3: gateway key and config, whose parameters override the body', async () => {
    expect((await own({ ...key(), 'x-gateway-config': configSlug })).status).toBe(200);
    expect(JSON.parse(last().body.toString('utf8'))).toEqual(chat({ temperature: 0.5 }));
    const inline = JSON.stringify({ provider: `@${stored}`, drop_params: ['messages[0].name'] });
    expect(
      (
        await own(
          { ...key(), 'x-gateway-config': inline },
          { model: 'gpt-4o', messages: [{ role: 'user', name: 'x', content: 'Hello' }] },
        )
      ).status,
    ).toBe(200);
    expect(JSON.parse(last().body.toString('utf8'))).toEqual(chat());
  });
  it('3: a config that names only the sandbox needs no credential', async () => {
    const answer = await own({ ...key(), 'x-gateway-config': '{"provider":"sandbox"}' }, chat({ model: 'echo' }));
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({ system_fingerprint: 'sandbox' });
  });
  it('5: a provider slug in the header or in the model', async () => {
    expect((await own({ ...key(), 'x-gateway-provider': `@${stored}` })).status).toBe(200);
    expect((await own(key(), chat({ model: `@${stored}/gpt-4o` }))).status).toBe(200);
  });
  it('the gateway key may come as Authorization: Bearer, and in the headers of other gateways by alias', async () => {
    expect(
      (await own({ authorization: `Bearer ${server.first.workspace_api_key}`, 'x-gateway-provider': `@${stored}` }))
        .status,
    ).toBe(200);
    expect(
      (await own({ 'x-portkey-api-key': server.first.workspace_api_key, 'x-portkey-provider': `@${stored}` })).status,
    ).toBe(200);
  });

  it.each([
    ['nothing', {}, 'No provider is named'],
    ['only a provider name', { 'x-gateway-provider': 'openai' }, 'also needs Authorization'],
    ['only a provider token', { authorization: 'Bearer sk-mine' }, 'x-gateway-provider is missing'],
    ['only a custom host', { 'x-gateway-custom-host': 'https://example.com/v1' }, 'also needs x-gateway-provider'],
    ['an unknown provider', { 'x-gateway-provider': 'nope', authorization: 'Bearer sk' }, 'is not known'],
    ['an unknown slug', { 'x-gateway-provider': '@nope' }, 'exists in this workspace'],
    ['an unknown config', { 'x-gateway-config': 'pc-nope' }, 'exists in this workspace'],
    ['a config that is no JSON', { 'x-gateway-config': '{nope' }, 'not valid JSON'],
    [
      'a config with an unknown key',
      { 'x-gateway-config': '{"retry":{"attempts":1},"nope":1}' },
      ': nope is not a known key.',
    ],
    [
      'a config with two faults',
      { 'x-gateway-config': '{"retry":{"attempts":9},"nope":1}' },
      ': retry.attempts must be at most 5; see errors for the others.',
    ],
  ])('%s is refused with 400 that says what is missing', async (_title, headers, message) => {
    const before = upstream.received.length;
    const answer = await own({ ...key(), ...(headers as Record<string, string>) });
    expect(answer.status).toBe(400);
    const body = (await answer.json()) as { status: string; message: string };
    expect(body.status).toBe('failure');
    expect(body.message).toContain(message);
    expect(upstream.received.length).toBe(before);
  });

  it('a key whose default config was deleted is told so, and what to change', async () => {
    const workspace_id = server.first.workspace_id;
    const config = { retry: { attempts: 1 } };
    const { body: saved } = await server.admin('POST', '/configs', { name: 'c', workspace_id, config });
    const { body: made } = await server.admin('POST', '/api-keys/workspace/service', {
      name: 'k',
      workspace_id,
      scopes: ['completions.write'],
      defaults: { config_id: saved.slug },
    });
    await server.admin('DELETE', `/configs/${saved.slug}?workspace_id=${workspace_id}`);
    const headers = { 'x-gateway-api-key': String(made.key) };
    const answer = await server.call('/chat/completions', { model: '@sandbox/echo', messages: [] }, headers);
    expect(answer.status).toBe(400);
    expect(((await answer.json()) as { message: string }).message).toBe(
      `No config "${saved.slug}" exists in this workspace; it is the default of your API key: change defaults.config_id of the key.`,
    );
  });

  it('401 for a missing, malformed or unknown gateway key, 403 for an organisation key', async () => {
    for (const headers of [
      {},
      { 'x-gateway-api-key': 'nonsense' },
      { 'x-gateway-api-key': server.first.workspace_api_key.replace(/.$/, (last) => (last === '0' ? '1' : '0')) },
    ]) {
      const answer = await own(headers as Record<string, string>);
      expect(answer.status).toBe(401);
      expect(await answer.json()).toMatchObject({ error: { code: 'AB05' } });
    }
    const answer = await own({ 'x-gateway-api-key': server.first.admin_api_key });
    expect(answer.status).toBe(403);
    expect(await answer.json()).toMatchObject({ error: { code: 'AB03' } });
  });

  it.each(['sk-proj-abcdefghijklmnop', 'gsk_abcdefgh', 'AIzaSyAbCdEf'])(
    'a key of a provider in the place of a key of Sluice is recognised, and not repeated: %s',
    async (theirs) => {
      for (const [header, value] of [
        ['x-gateway-api-key', theirs],
        ['authorization', `Bearer ${theirs}`],
      ] as const) {
        const answer = await own({ [header]: value });
        const text = await answer.text();
        expect([answer.status, text]).toEqual([
          401,
          expect.stringMatching(
            /looks like the key of a provider \(it begins with \S+\)\. Send a key of Sluice as x-gateway-api-key/,
          ),
        ]);
        expect(text).not.toContain(theirs);
      }
      const other = await own({ 'x-gateway-api-key': 'nonsense' });
      expect(await other.text()).toContain('keys of Sluice begin with slc_. Check that');
    },
  );

  it('a stored credential never leaves for a host named by the request', async () => {
    const before = upstream.received.length;
    const answer = await own({
      ...key(),
      'x-gateway-provider': `@${stored}`,
      'x-gateway-custom-host': 'https://attacker.example.com/v1',
    });
    expect(answer.status).toBe(400);
    expect(upstream.received.length).toBe(before);
  });

  it('a private host is refused unless trusted', async () => {
    for (const host of [
      'http://127.0.0.1:1/v1',
      'http://169.254.169.254/',
      'http://10.0.0.1/v1',
      'http://[::1]:80/v1',
      'http://2130706433/',
    ]) {
      const answer = await own({
        ...key(),
        authorization: 'Bearer sk',
        'x-gateway-provider': 'openai',
        'x-gateway-custom-host': host,
      });
      expect(answer.status, host).toBe(400);
    }
  });

  it('nothing of the client reaches the provider but what is named', async () => {
    const answer = await own({
      ...key(),
      ...viaStored(),
      cookie: 'a=b',
      'x-secret-thing': '1',
      'x-wanted': 'yes',
      'x-forwarded-for': '1.2.3.4',
      'x-gateway-forward-headers': 'x-wanted, authorization, cookie',
      authorization: 'Bearer sk-other',
    });
    expect(answer.status).toBe(200);
    const { headers } = last();
    expect(headers['x-wanted']).toBe('yes');
    expect(headers.authorization).toBe('Bearer sk-stored');
    for (const name of ['cookie', 'x-secret-thing', 'x-forwarded-for', 'x-gateway-api-key', 'x-gateway-provider'])
      expect(headers[name], name).toBeUndefined();
  });
});
