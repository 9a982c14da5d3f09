/** What is kept of bodies, and under which switches: a real server, in whose files and journals what must not be there is looked for. */
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { ALL_FIELDS } from '../../src/providers/accounts.ts';
import { BODY_FLAGS, type BodyEnd, type BodyFrame, type BodyPart } from '../../src/telemetry/bodies/frame.ts';
import { filesWith, keptFrames } from '../support/kept-bodies.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { sendJson, startUpstream } from '../support/upstream.ts';

let server: TestServer;
let made = 0;
beforeAll(async () => {
  server = await startServer({ ORGANISATION_HEADERS_TO_MASK: 'x-tenant-pin', SLUICE_TRUSTED_HOSTS: '127.0.0.1' });
});
afterAll(() => server.stop());

const canary = () => `canary${++made}q${randomBytes(6).toString('hex')}`;
const setting = async (body: object) => {
  const { status } = await server.admin('PUT', '/v1/admin/organisation/settings', body);
  expect(status).toBe(200);
};

interface Kept {
  readonly status: number;
  readonly record: Record<string, unknown>;
  readonly end: BodyEnd | null;
  readonly texts: Readonly<Partial<Record<BodyPart, string>>>;
  /** Everything in the journal that is of this request. */
  readonly all: string;
}

/** Sends a request and looks at what is kept of it. */
async function kept(body: object, headers: Record<string, string> = {}, path = '/chat/completions'): Promise<Kept> {
  const answer = await server.call(path, body, headers);
  await answer.arrayBuffer();
  const id = answer.headers.get('x-gateway-request-id') ?? answer.headers.get('x-request-id') ?? '';
  const record = (await server.records()).find((one) => one.id === id) ?? {};
  const frames = await vi.waitFor(async () => {
    const found = (await keptFrames(server.dataDir)).filter((frame) => frame.id === id);
    if (record.body_chunk !== undefined && !found.some(({ kind }) => kind === 'end'))
      throw new Error('not written yet');
    return found;
  });
  const texts: Partial<Record<BodyPart, string>> = {};
  for (const frame of frames) {
    if (frame.kind === 'piece') texts[frame.part] = (texts[frame.part] ?? '') + frame.bytes.toString('utf8');
  }
  const end = frames.find((frame): frame is BodyFrame & { kind: 'end' } => frame.kind === 'end')?.end ?? null;
  const all = frames.map((frame) => (frame.kind === 'piece' ? frame.bytes.toString('utf8') : JSON.stringify(frame)));
  return { status: answer.status, record, end, texts, all: all.join('\n') };
}

const chat = (content: unknown, model = '@sandbox/echo', more: object = {}) => ({
  model,
  messages: [{ role: 'user', content }],
  ...more,
});
const FAILS = '@sandbox/error?status=500';
const inline = (config: object) => ({ 'x-gateway-config': JSON.stringify({ provider: 'sandbox', ...config }) });

describe('the first-run organisation keeps bodies', () => {
  it('without the value of any header that brings a secret setting of a provider', async () => {
    const secrets = ALL_FIELDS.filter(([, { secret, request }]) => secret === true && request !== undefined);
    const headers = secrets.map(([name]) => [`x-gateway-${name.replaceAll('_', '-')}`, canary()] as const);
    expect(headers.map(([name]) => name)).toContain('x-gateway-vertex-service-account-json');
    const { end, all } = await kept(chat('hello'), Object.fromEntries(headers));
    expect(end).not.toBeNull();
    for (const [name, secret] of headers) expect(all, name).not.toContain(secret);
  });

  it('what was sent, what went to the provider and the answer are kept; equal bytes once', async () => {
    const secret = canary();
    const { record, end, texts } = await kept(chat(`hello ${secret}`));
    expect(record).toMatchObject({ body_slot: expect.any(Number), body_flags: 0 });
    expect(end).toMatchObject({ chunk: record.body_chunk, slot: record.body_slot, flags: 0 });
    expect(JSON.parse(texts.request ?? '')).toEqual(chat(`hello ${secret}`));
    expect(JSON.parse(texts.sent ?? '')).toMatchObject({ model: 'echo' });
    expect(JSON.parse(texts.answer ?? '').choices[0].message.content).toBe(`hello ${secret}`);
    expect(texts.came).toBeUndefined();
    expect(end?.parts.came).toMatchObject({ status: 200, same: 'answer' });
    expect(await filesWith(server.dataDir, secret)).toEqual([]);
  });

  it('a stream is kept as it passed, to its end', async () => {
    const { end, texts } = await kept(chat(canary(), '@sandbox/echo', { stream: true }));
    expect(texts.answer).toMatch(/^data: \{.*data: \[DONE\]\n\n$/s);
    expect(end?.parts.answer).toMatchObject({ status: 200, bytes: Buffer.byteLength(texts.answer ?? '') });
  });

  it('an answer that is converted is kept as it came, too', async () => {
    const key = canary();
    const told = {
      id: 'c',
      object: 'chat.completion',
      model: 'm',
      choices: [{ index: 0, message: { role: 'assistant', content: `key ${key}` }, finish_reason: 'stop' }],
    };
    const upstream = await startUpstream((_, response) => sendJson(response, 200, told));
    try {
      const slug = await server.provider({ id: 'openai', host: `${upstream.url}/v1`, key });
      const { texts, all } = await kept({ ...chat('hi', `@${slug}/m`), max_tokens: 10 }, {}, '/messages');
      expect(JSON.parse(texts.answer ?? '')).toMatchObject({ type: 'message' });
      expect(JSON.parse(texts.came ?? '')).toMatchObject({ object: 'chat.completion' });
      // An answer that repeats the key of the account.
      expect(all).not.toContain(key);
    } finally {
      await upstream.stop();
    }
  });

  it('an answer from the cache is kept, and nothing that was sent', async () => {
    const headers = inline({ cache: { mode: 'simple' } });
    const body = chat(canary(), 'echo');
    await kept(body, headers);
    const { record, end, texts } = await kept(body, headers);
    expect(record.cache_status).toBe('HIT');
    expect(texts.request).toBe(JSON.stringify(body));
    expect(JSON.parse(texts.answer ?? '')).toMatchObject({ object: 'chat.completion' });
    expect(end?.parts.sent).toBeUndefined();
  });

  it('pictures become their type, length and digest', async () => {
    const picture = Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), randomBytes(300_000)]);
    const url = `data:image/png;base64,${picture.toString('base64')}`;
    const { end, texts } = await kept(
      chat([
        { type: 'image_url', image_url: { url } },
        { type: 'text', text: 'what is behind it' },
      ]),
    );
    const digest = createHash('sha256').update(picture).digest('hex');
    expect(texts.request).toContain(`data:image/png;base64,[omitted image/png ${picture.length} ${digest}]"`);
    expect(texts.request).toContain('what is behind it');
    expect(end?.parts.request).toMatchObject({ omitted: 1 });
    expect(end?.parts.request?.truncated).toBeUndefined();
  });

  it('a longer text is cut, and says so', async () => {
    const { record, end, texts } = await kept(chat('many words '.repeat(40_000), '@sandbox/lorem'));
    expect(texts.request).toHaveLength(256 * 1024);
    expect(end?.parts.request).toMatchObject({ truncated: true });
    expect(end?.parts.request?.bytes).toBeGreaterThan(440_000);
    expect(record.body_chunk).toBe(end?.chunk);
  });

  it('no credential is kept, nor a header that is named as sensitive', async () => {
    const [one, two, three, four] = [canary(), canary(), canary(), canary()];
    const { all, end } = await kept(chat('hi'), {
      authorization: `Bearer ${one}`,
      'x-tenant-pin': two,
      'x-order': three,
      'x-gateway-sensitive-headers': 'X-Order, x-other',
      'x-gateway-forward-headers': 'x-order',
      'x-session-token': four,
      'x-plain': 'seen',
    });
    for (const secret of [one, two, three, four, server.first.workspace_api_key]) expect(all).not.toContain(secret);
    expect(end?.parts.request?.headers).toMatchObject({ 'x-plain': 'seen', 'x-order': '***', 'x-tenant-pin': '***' });
    expect(end?.parts.request?.headers).toMatchObject({ 'x-gateway-api-key': '***', authorization: '***' });
    expect(end?.parts.sent?.headers).toMatchObject({ 'x-order': '***' });
  });
});

describe('a switch that is off', () => {
  it('x-gateway-debug: false keeps nothing, not even the answer of a request that fails', async () => {
    for (const model of ['@sandbox/echo', FAILS]) {
      const { record, all } = await kept(chat(canary(), model), { 'x-gateway-debug': 'False' });
      expect(all).toBe('');
      expect(record.id).toEqual(expect.any(String));
      expect(record).not.toHaveProperty('body_chunk');
      expect(record).not.toHaveProperty('body_flags');
    }
  });

  it('a dry run keeps nothing: guardrails did not judge it', async () => {
    expect((await kept(chat(canary()), { 'x-gateway-dry-run': 'true' })).all).toBe('');
  });

  it('debug_log 0 keeps the answer of a request that fails, and nothing else', async () => {
    await setting({ debug_log: 0 });
    try {
      const secret = canary();
      expect((await kept(chat(secret))).all).toBe('');
      const { record, end, texts, all } = await kept(chat(secret, FAILS));
      expect(Object.keys(texts)).toEqual(['answer']);
      expect(JSON.parse(texts.answer ?? '')).toHaveProperty('error');
      expect(end?.parts).toEqual({ answer: { status: 500, bytes: expect.any(Number) } });
      expect(record.body_flags).toBe(BODY_FLAGS.answerOnly);
      expect(all).not.toContain(secret);
    } finally {
      await setting({ debug_log: 1 });
    }
  });

  it('debug_log of a key goes before that of its place', async () => {
    const made = await server.admin('POST', '/v1/api-keys/workspace/service', {
      name: 'quiet',
      workspace_id: server.first.workspace_id,
      scopes: ['completions.write'],
      defaults: { debug_log: 0 },
    });
    expect(made.status).toBe(200);
    const { all } = await kept(chat(canary()), { 'x-gateway-api-key': String(made.body.key) });
    expect(all).toBe('');
  });
});

describe('guardrails', () => {
  const address = () => `${canary()}@example.com`;
  const redacting = { 'gateway.pii': { categories: ['EMAIL_ADDRESS'], redact: true } };
  const denying = { 'gateway.pii': { categories: ['EMAIL_ADDRESS'] }, deny: true };

  it('what they take out of a request is in no stored form', async () => {
    const secret = address();
    const { record, texts, all } = await kept(chat(`to ${secret}`, 'echo'), inline({ input_guardrails: [redacting] }));
    expect(texts.request).toContain('EMAIL_ADDRESS_1');
    expect(Number(record.body_flags) & BODY_FLAGS.redacted).toBe(BODY_FLAGS.redacted);
    expect(all).not.toContain(secret);
  });

  it.each([false, true])('what they take out of an answer is in no stored form, stream %s', async (stream) => {
    const secret = address();
    const body = chat(`to ${secret}`, 'echo', { stream });
    const { texts, all } = await kept(body, inline({ output_guardrails: [redacting] }));
    expect(texts.answer).toContain('EMAIL_ADDRESS_1');
    expect(texts.came).toBeUndefined();
    expect(all.replace(texts.request ?? '', '').replace(texts.sent ?? '', '')).not.toContain(secret);
  });

  it.each([
    ['input', false],
    ['output', false],
    ['output', true],
  ])('a denial by the %s keeps no body, stream %s', async (phase, stream) => {
    const secret = address();
    const { record, end, all } = await kept(
      chat(`to ${secret}`, 'echo', { stream }),
      inline({ [`${phase}_guardrails`]: [denying] }),
    );
    expect(record.error_code).toBe('hooks_failed');
    expect(record.body_flags).toBe(BODY_FLAGS.withheld);
    expect(record).not.toHaveProperty('body_chunk');
    expect(end).toBeNull();
    expect(all).not.toContain(secret);
  });

  it('a denial keeps them where the guardrail says as_sent', async () => {
    const secret = address();
    const guard = { ...denying, log_content: 'as_sent' };
    const { texts, record } = await kept(chat(`to ${secret}`, 'echo'), inline({ input_guardrails: [guard] }));
    expect(record.outcome).toBe('refused');
    expect(texts.request).toContain(secret);
  });

  it('what is refused before they have judged is not kept', async () => {
    const secret = address();
    const body = chat(`to ${secret}`, 'echo', { stream: 'perhaps' });
    const { record, all } = await kept(body, inline({ input_guardrails: [redacting] }));
    expect(record.outcome).toBe('refused');
    expect(all).not.toContain(secret);
  });
});

it('SLUICE_LOG_BODIES=never is above all: nothing is kept, and no journal is made', async () => {
  const never = await startServer({ SLUICE_LOG_BODIES: 'never' });
  try {
    const secret = canary();
    for (const model of ['@sandbox/echo', FAILS])
      await (await never.call('/chat/completions', chat(secret, model))).text();
    for (const record of await never.records()) expect(record).not.toHaveProperty('body_flags');
    expect(await keptFrames(never.dataDir)).toEqual([]);
    expect(await filesWith(never.dataDir, secret)).toEqual([]);
  } finally {
    await never.stop();
  }
});

describe('reading', () => {
  interface Shown {
    readonly request: Record<string, unknown>;
    readonly response: Record<string, unknown>;
    readonly bodies: Record<string, unknown>;
    readonly [name: string]: unknown;
  }
  const read = (id: unknown, key?: string) =>
    vi.waitFor(
      async () => {
        const { status, body } = await server.admin('GET', `/v1/logs/${id}`, undefined, key);
        expect(status).toBe(200);
        return body as unknown as Shown;
      },
      { timeout: 15_000 },
    );

  it('a log shows the bodies of its request soon after the answer', async () => {
    const { record } = await kept(chat('hello there'), { 'x-gateway-metadata': '{"team":"red"}' });
    const shown = await read(record.id);
    expect(shown.request).toMatchObject({ body: chat('hello there'), headers: { 'x-gateway-api-key': '***' } });
    expect(shown.response).toMatchObject({ body: { object: 'chat.completion' } });
    expect(shown.transformedRequest).toMatchObject({ body: { model: 'echo' }, method: 'POST' });
    expect(shown.originalResponse).toMatchObject({ status: 200, body: { object: 'chat.completion' } });
    expect(shown.bodies).toEqual({ kept: 'all', reason: null, truncated: false, redacted: false, omitted: 0 });
  });

  it('a stream is a list of events, and a picture says what it was', async () => {
    const picture = randomBytes(6_000).toString('base64');
    const content = [{ type: 'image_url', image_url: { url: `data:image/gif;base64,${picture}` } }];
    const { record } = await kept(
      chat([...content, { type: 'text', text: 'look' }], '@sandbox/lorem', { stream: true }),
    );
    const { request, response, bodies } = await read(record.id);
    expect(JSON.stringify(request.body)).toContain('{"omitted":true,"type":"image/gif","bytes":6000,"sha256":"');
    expect(response.body).toMatchObject({ events: expect.arrayContaining(['[DONE]']) });
    expect(bodies).toMatchObject({ omitted: 1 });
  });

  it('a log without bodies says why', async () => {
    const off = await kept(chat('hi'), { 'x-gateway-debug': 'false' });
    expect((await read(off.record.id)).bodies).toMatchObject({ kept: 'none', reason: 'off' });
    const guard = { 'default.contains': { words: ['hi'], operator: 'none' }, deny: true };
    const denied = await kept(chat('hi', 'echo'), inline({ input_guardrails: [guard] }));
    const shown = await read(denied.record.id);
    expect(shown.bodies).toMatchObject({ kept: 'none', reason: 'guardrail' });
    expect(shown.request).not.toHaveProperty('body');
  });

  it('a key without logs.view sees bodies of its requests only', async () => {
    const make = async (name: string) => {
      const { body } = await server.admin('POST', '/v1/api-keys/workspace/service', {
        name,
        workspace_id: server.first.workspace_id,
        scopes: ['completions.write'],
      });
      return String(body.key);
    };
    const [one, two] = [await make('one'), await make('two')];
    const { record } = await kept(chat('of one'), { 'x-gateway-api-key': one });
    expect((await read(record.id, one)).bodies).toMatchObject({ kept: 'all' });
    const others = await read(record.id, two);
    expect(others.bodies).toMatchObject({ kept: 'none', reason: 'hidden' });
    expect(JSON.stringify(others)).not.toContain('of one');
  });
});
