/** Guardrails of requests that several targets are tried for: who judges what for which target, and what the next one is sent. */
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import { actionsWith } from '../support/guardrails.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendJson, startUpstream } from '../support/upstream.ts';

type Json = Record<string, unknown>;
type Facts = Json & { readonly slug: string };

const MAIL = 'someone@example.com';
let a: FakeUpstream;
let b: FakeUpstream;
let hooks: FakeUpstream;
let server: TestServer;

const says =
  (content: string): FakeUpstream['answer'] =>
  (_request, response) =>
    sendJson(response, 200, {
      id: 'x',
      object: 'chat.completion',
      created: 1,
      model: 'gpt-4o',
      choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
    });
const down: FakeUpstream['answer'] = (_request, response) => sendJson(response, 503, { error: { message: 'down' } });

beforeAll(async () => {
  [a, b, hooks] = [await startUpstream(down), await startUpstream(says('b')), await startUpstream(() => undefined)];
  const hosts = [a, b, hooks].map(({ port }) => `127.0.0.1:${port}`);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: hosts.join(',') });
  await server.provider({ id: 'openai', slug: 'a', host: `${a.url}/v1` });
  await server.provider({ id: 'openai', slug: 'b', host: `${b.url}/v1` });
});
afterAll(async () => {
  await server?.stop();
  await Promise.all([a, b, hooks].map((one) => one?.stop()));
});
beforeEach(() => {
  for (const one of [a, b, hooks]) one.received.length = 0;
  a.answer = down;
  b.answer = says('b');
  hooks.answer = (_request, response) => sendJson(response, 200, { verdict: true });
});

/** Of the target `@a` first, then of `@b`; `above` is for both. */
async function send(content: string, above: Json, ofA: Json = {}, ofB: Json = {}) {
  const answer = await ask(content, above, ofA, ofB);
  await answer.text();
  const [record] = (await server.records()) as (Json & { guardrails?: Facts[] })[];
  return { status: answer.status, judged: (record?.guardrails ?? []).map(({ slug, verdict }) => [slug, verdict]) };
}

function ask(content: string, above: Json, ofA: Json, ofB: Json, more: Record<string, string> = {}) {
  const config = {
    ...above,
    strategy: { mode: 'fallback', on_status_codes: [446, 503] },
    targets: [
      { provider: '@a', ...ofA },
      { provider: '@b', ...ofB },
    ],
  };
  return server.call(
    '/chat/completions',
    { model: 'gpt-4o', messages: [{ role: 'user', content }] },
    { 'x-gateway-config': JSON.stringify(config), ...more },
  );
}
const sent = ({ received }: FakeUpstream) => received.map(({ body }) => body.toString('utf8'));

/** Where it is named twice it is known to be the same. */
async function stored(id: string, parameters: Json): Promise<string> {
  const { body } = await server.admin('POST', '/guardrails', {
    name: id,
    workspace_id: server.first.workspace_id,
    checks: [{ id, parameters }],
    actions: actionsWith({ deny: true }),
  });
  return String(body.slug);
}

const word = (id: string, deny: boolean) => ({
  id,
  deny,
  'default.contains': { words: ['forbidden'], operator: 'none' },
});
const asks = () => ({ id: 'asks', deny: true, 'default.webhook': { webhookURL: `${hooks.url}/` } });
const REDACTS = { id: 'no-mail', 'gateway.pii': { categories: ['EMAIL_ADDRESS'], redact: true } };

it('a target without guardrails is not judged by those of the target before it, and the record has what they said', async () => {
  const ofA = { input_guardrails: [word('of-a', true)] };
  expect(await send('forbidden', {}, ofA)).toEqual({ status: 200, judged: [['of-a', false]] });
  expect([sent(a), sent(b)]).toEqual([[], [expect.stringContaining('forbidden')]]);
  b.answer = says('forbidden');
  expect((await send('hello', {}, { output_guardrails: [word('of-a', true)] })).status).toBe(200);
});

it('a guardrail of the next target only watches for that target what it says', async () => {
  const watch = (id: string) => ({ input_guardrails: [word(id, false)] });
  expect((await send('forbidden', {}, watch('of-a'))).status).toBe(200);
  expect((await send('forbidden', {}, {}, watch('of-b'))).status).toBe(246);
});

it('an answer shows what the guardrails of the target said that gave it, the record all', async () => {
  const [ofA, ofB] = ['of-a', 'of-b'].map((id) => ({ input_guardrails: [word(id, id === 'of-a')] }));
  const loose = { 'x-gateway-strict-open-ai-compliance': 'false' };
  const answer = await ask('forbidden', {}, ofA ?? {}, ofB ?? {}, loose);
  expect(await answer.json()).toMatchObject({
    hook_results: { before_request_hooks: [{ id: 'of-b', verdict: false }], after_request_hooks: [] },
  });
  expect((await server.records())[0]).toMatchObject({ guardrails: [{ slug: 'of-a' }, { slug: 'of-b' }] });
});

it('a guardrail of both judges the same request once, and what it refused for one it refuses for the other', async () => {
  const both = { input_guardrails: [asks()] };
  expect(await send('hello', both)).toEqual({ status: 200, judged: [['asks', true]] });
  expect(hooks.received).toHaveLength(1);
  hooks.answer = (_request, response) => sendJson(response, 200, { verdict: false });
  expect(await send('hello', both)).toEqual({ status: 446, judged: [['asks', false]] });
  expect(hooks.received).toHaveLength(2);
  expect(sent(b)).toHaveLength(1);
});

it('what both redact is redacted for the next target, too, and what only the first does is not', async () => {
  expect((await send(MAIL, { input_guardrails: [REDACTS] })).status).toBe(200);
  expect([...sent(a), ...sent(b)].filter((body) => body.includes(MAIL))).toEqual([]);
  expect((await send(MAIL, {}, { input_guardrails: [REDACTS] })).status).toBe(200);
  expect(sent(b).at(-1)).toContain(MAIL);
});

it('after a redaction that only the first target has, the guardrails of the next see what was there', async () => {
  const redacts = await stored('gateway.pii', { categories: ['EMAIL_ADDRESS'], redact: true });
  const mail = await stored('default.contains', { words: ['example.com'], operator: 'none' });
  const once = () => send(MAIL, {}, { input_guardrails: [redacts, mail] }, { input_guardrails: [mail] });
  await vi.waitFor(async () => expect((await once()).status).not.toBe(400), { timeout: 10_000, interval: 20 });
  for (const one of [a, b]) one.received.length = 0;
  expect((await once()).status).toBe(446);
  expect(sent(a)).toHaveLength(1);
  expect(sent(b)).toEqual([]);
});

it('a check of the model judges the model of each target', async () => {
  const only = { id: 'only', deny: true, 'default.modelWhitelist': { models: ['gpt-4o'] } };
  const ofB = { override_params: { model: 'gpt-secret' } };
  expect((await send('hello', { input_guardrails: [only] }, {}, ofB)).status).toBe(446);
  expect(sent(a)).toHaveLength(1);
  expect(sent(b)).toEqual([]);
});
