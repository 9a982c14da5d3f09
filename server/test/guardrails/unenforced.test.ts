/** What guardrails were asked for and cannot carry out, through a whole server: nothing goes out as if it had been done. */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { actionsWith } from '../support/guardrails.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { chatStream } from '../support/streams.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

type Json = Record<string, unknown>;

const ANSWER = {
  id: 'x',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-4o',
  choices: [{ index: 0, message: { role: 'assistant', content: 'someone@example.com' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
};
const SECRET = 'someone@example.com';
const REDACT = { id: 'no-mail', 'gateway.pii': { categories: ['EMAIL_ADDRESS'], redact: true } };

let upstream: FakeUpstream;
let hooks: FakeUpstream;
let server: TestServer;
let slug: string;

beforeAll(async () => {
  upstream = await startUpstream(() => undefined);
  hooks = await startUpstream(() => undefined);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port},127.0.0.1:${hooks.port}` });
  slug = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
});
afterAll(async () => {
  await server?.stop();
  await Promise.all([upstream?.stop(), hooks?.stop()]);
});
beforeEach(() => {
  upstream.received.length = 0;
  upstream.answer = (_request, response) => sendJson(response, 200, ANSWER);
});

const headers = (config: Json) => ({
  'x-gateway-api-key': server.first.workspace_api_key,
  'x-gateway-config': JSON.stringify({ provider: `@${slug}`, ...config }),
});
const chat = (content: unknown, more: Json = {}) => ({
  model: 'gpt-4o',
  messages: [{ role: 'user', content }],
  ...more,
});
const send = (body: unknown, config: Json, path = '/chat/completions') => server.call(path, body, headers(config));
const sendForm = (path: string, config: Json, fields: Record<string, string | Blob>) => {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  return fetch(`${server.url}/v1${path}`, { method: 'POST', headers: headers(config), body: form });
};
const SPEECH = { model: 'whisper-1', file: new Blob([new Uint8Array([1, 2, 3])], { type: 'audio/mpeg' }) };
const verdicts = async () => {
  const [record] = (await server.records()) as (Json & { guardrails: (Json & { checks: Json[] })[] })[];
  return record?.guardrails.map(({ slug: name, verdict, transformed, checks }) => [
    name,
    verdict,
    transformed,
    checks[0]?.error,
  ]);
};
/** A guardrail whose webhook gives another request, or answer, in place of the one it is told. */
const replacing = (side: 'request' | 'response', json: unknown, more: Json = {}): Json => {
  hooks.answer = (_request, response) =>
    sendJson(response, 200, { verdict: true, transformedData: { [side]: { json } } });
  return { id: 'replacer', 'default.webhook': { webhookURL: `${hooks.url}/` }, ...more };
};
const NOT_APPLIED = [['replacer', false, false, 'NotApplied']];

describe.each([false, true])('a change that cannot be sent, of a guardrail with deny %s', (deny) => {
  it.each([
    [
      'a form',
      () => sendForm('/audio/transcriptions', { input_guardrails: [replacing('request', {}, { deny })] }, SPEECH),
    ],
    [
      'nested deeper than any request may be',
      () => {
        const deep = JSON.parse(`${'['.repeat(500)}${']'.repeat(500)}`) as unknown;
        return send(chat(SECRET), { input_guardrails: [replacing('request', { ...chat('a'), deep }, { deny })] });
      },
    ],
  ])('refuses a request: %s', async (_, call) => {
    const answer = await call();
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({
      error: { code: 'guardrail_not_enforced', message: expect.stringContaining('replacer') },
    });
    expect(upstream.received).toEqual([]);
    expect(await verdicts()).toEqual(NOT_APPLIED);
  });

  it('withholds an answer that is no JSON', async () => {
    upstream.answer = (_request, response) =>
      void response.writeHead(200, { 'content-type': 'text/plain' }).end(SECRET);
    const config = { output_guardrails: [replacing('response', { text: 'a' }, { deny })] };
    const answer = await sendForm('/audio/transcriptions', config, { ...SPEECH, response_format: 'text' });
    expect(answer.status).toBe(446);
    expect(await answer.text()).not.toContain(SECRET);
    expect(await verdicts()).toEqual(NOT_APPLIED);
  });

  it('withholds a stream whose events cannot tell it', async () => {
    upstream.answer = (_request, response) => sendEvents(response, chatStream(SECRET));
    const choices = [0, 1].map((index) => ({ index, message: { role: 'assistant', content: 'a' } }));
    const config = { output_guardrails: [replacing('response', { ...ANSWER, choices }, { deny })] };
    const answer = await send(chat('a', { stream: true }), config);
    expect(answer.status).toBe(446);
    expect(await answer.text()).not.toContain(SECRET);
    expect(await verdicts()).toEqual(NOT_APPLIED);
  });
});

describe('what should be redacted and cannot be read', () => {
  const pdf = Buffer.from(`%PDF-1.7\n%\xe2\xe3\xcf\xd3\n\x00\xff`, 'latin1').toString('base64');
  const file = [{ type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` } }];
  const tokens = { model: 'text-embedding-3-small', input: [1, 2, 3] };

  it.each([
    ['a document', '/chat/completions', chat(file)],
    ['token ids', '/embeddings', tokens],
  ])('%s is refused before it is sent', async (_, path, body) => {
    const answer = await send(body, { input_guardrails: [REDACT] }, path);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({
      error: { code: 'guardrail_not_enforced', message: expect.stringMatching(/no-mail redacts/) },
    });
    expect(upstream.received).toEqual([]);
  });

  it('a file for a provider is refused', async () => {
    const lines = new Blob([`{"custom_id":"${SECRET}"}\n`]);
    const answer = await sendForm('/files', { input_guardrails: [REDACT] }, { purpose: 'batch', file: lines });
    expect([answer.status, await answer.text()]).toEqual([400, expect.stringContaining('no-mail')]);
    expect(upstream.received).toEqual([]);
  });

  it.each([
    ['only watches', { id: 'watch', 'gateway.pii': { categories: ['EMAIL_ADDRESS'] } }],
    ['runs beside the request', { ...REDACT, async: true }],
  ])('passes a guardrail that %s', async (_, guardrail) => {
    expect((await send(tokens, { input_guardrails: [guardrail] }, '/embeddings')).status).toBe(200);
    expect(upstream.received).toHaveLength(1);
  });
});

describe('an answer that nobody can read', () => {
  const words = { 'default.contains': { words: ['forbidden'], operator: 'none' } };
  const GUARDRAILS = { denies: { id: 'd', deny: true, ...words }, redacts: REDACT, watches: { id: 'w', ...words } };

  it.each([
    ['denies', 400],
    ['redacts', 400],
    ['watches', 200],
  ] as const)('as sound: a guardrail that %s answers %i', async (which, expected) => {
    upstream.answer = (_request, response) =>
      void response.writeHead(200, { 'content-type': 'audio/mpeg' }).end(Buffer.from([1, 2, 3]));
    const body = { model: 'tts-1', voice: 'alloy', input: 'Hello' };
    const answer = await send(body, { output_guardrails: [GUARDRAILS[which]] }, '/audio/speech');
    expect(answer.status).toBe(expected);
    expect(upstream.received).toHaveLength(expected === 200 ? 1 : 0);
  });

  it.each([
    ['denies', 446],
    ['redacts', 446],
    ['watches', 200],
  ] as const)('as a binary file: a guardrail that %s answers %i', async (which, expected) => {
    upstream.answer = (_request, response) =>
      void response.writeHead(200, { 'content-type': 'application/pdf' }).end(Buffer.from([0x25, 0xff, 0xfe, 0x00]));
    const answer = await send({ a: 1 }, { output_guardrails: [GUARDRAILS[which]] }, '/reports/make');
    expect(answer.status).toBe(expected);
  });
});

it('a compressed answer is judged as the text that it stands for', async () => {
  upstream.answer = (_request, response) =>
    void response
      .writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' })
      .end(gzipSync(JSON.stringify(ANSWER)));
  for (const path of ['/chat/completions', '/reports/make']) {
    const answer = await send(chat('a'), { output_guardrails: [REDACT] }, path);
    expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('{{EMAIL_ADDRESS_1}}')]);
  }
});

it.each<Record<string, string>>([{}, { 'x-gateway-provider': 'gateway' }])(
  'rows to train on are refused by who denies, whoever keeps them (%j)',
  async (kept) => {
    const config = { input_guardrails: [{ ...REDACT, deny: true }] };
    const body = { model: 'gpt-4o', training_file: 'file-1' };
    const answer = await server.call('/fine_tuning/jobs', body, { ...headers(config), ...kept });
    expect([answer.status, await answer.json()]).toMatchObject([400, { error: { code: 'guardrail_not_enforced' } }]);
    expect(upstream.received).toEqual([]);
  },
);

describe('a guardrail that is stored and can no longer be carried out', () => {
  const PATIENT = { timeout: 10_000, interval: 20 };
  let count = 0;
  const done = async (method: string, path: string, body?: unknown): Promise<Json> => {
    const answer = await server.admin(method, path, body);
    if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  const create = (checks: Json[], deny: boolean) =>
    done('POST', '/guardrails', {
      name: `g ${++count}`,
      workspace_id: server.first.workspace_id,
      checks,
      actions: actionsWith({ deny }),
    });
  /** As another version of Sluice, another node or a hand may leave the store. */
  const inStore = async (sql: string, ...values: string[]): Promise<void> => {
    // Never waits in SQLite: a transaction of the server ends on this thread.
    const database = new DatabaseSync(join(server.dataDir, 'control.db'), { timeout: 0 });
    try {
      const statement = database.prepare(sql);
      const { changes } = await vi.waitFor(() => statement.run(...values), PATIENT);
      expect(changes).toBe(1);
    } finally {
      database.close();
    }
    // Whatever changes in a workspace makes its nodes read all of it again.
    await create([{ id: 'default.wordCount', parameters: {} }], false);
  };
  const saved = async (guardrail: string): Promise<Record<string, string>> => {
    const config = { provider: `@${slug}`, input_guardrails: [guardrail], output_guardrails: [guardrail] };
    const made = await done('POST', '/configs', {
      name: `c ${++count}`,
      workspace_id: server.first.workspace_id,
      config,
    });
    return { 'x-gateway-config': String(made.slug) };
  };
  const status = async (config: Record<string, string>) =>
    (await server.call('/chat/completions', chat('a'), config)).status;

  const HOOK = {
    id: 'default.webhook',
    parameters: { webhookURL: 'https://hook.example/', headers: { 'x-key': 'k' } },
  };
  const WORDS = { id: 'default.wordCount', parameters: {} };
  const swap = (from: string, to: string) =>
    `update guardrail_versions set checks = replace(checks, '${from}', '${to}') where id = ?`;

  it.each([
    ['whose check is known no more', WORDS, swap('default.wordCount', 'default.gone')],
    ['whose parameters are not valid any more', WORDS, swap('{}', '{"maxWords":"many"}')],
    ['whose secrets do not open', HOOK, swap('"sealed":"', '"sealed":"x')],
  ])('%s fails: it denies where it should, and says so where it should not', async (_, check, sql) => {
    for (const deny of [true, false]) {
      const made = await create([check], deny);
      const config = await saved(String(made.slug));
      await inStore(sql, String(made.version_id));
      await vi.waitFor(async () => expect(await status(config)).toBe(deny ? 446 : 246), PATIENT);
      expect((await server.records())[0]).toMatchObject({
        guardrails: [{ verdict: false, checks: [{ error: 'NotReady' }] }, ...(deny ? [] : [{ verdict: false }])],
      });
    }
  });

  it('that was archived while a config names it refuses whoever uses the config', async () => {
    const made = await create([WORDS], false);
    const config = await saved(String(made.slug));
    await vi.waitFor(async () => expect(await status(config)).toBe(200), PATIENT);
    await inStore("update guardrails set status = 'archived' where id = ?", String(made.id));
    await vi.waitFor(async () => expect(await status(config)).toBe(400), PATIENT);
    const answer = await server.call('/chat/completions', chat('a'), config);
    expect(await answer.text()).toContain(String(made.slug));
  });

  it('that is a default and is gone denies everything, also what has no text', async () => {
    const made = await create([WORDS], false);
    const path = `/admin/workspaces/${server.first.workspace_id}`;
    await done('PUT', path, { defaults: { input_guardrails: [made.slug] } });
    const plain = { 'x-gateway-provider': `@${slug}` };
    const list = () =>
      fetch(`${server.url}/v1/files`, { headers: { 'x-gateway-api-key': server.first.workspace_api_key, ...plain } });
    try {
      await inStore("update guardrails set status = 'archived' where id = ?", String(made.id));
      await vi.waitFor(async () => expect(await status(plain)).toBe(446), PATIENT);
      expect((await list()).status).toBe(446);
    } finally {
      await done('PUT', path, { defaults: { input_guardrails: [] } });
      await vi.waitFor(async () => expect(await status(plain)).toBe(200), PATIENT);
    }
  });
});
