/**
 * A check that only this file knows: a line in the list of checks, and no other file touched. What the check says of itself is
 * all that validates, runs, streams, redacts and records it.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

vi.mock('../../src/guardrails/checks/index.ts', async (original) => {
  const { CHECKS } = await original<typeof import('../../src/guardrails/checks/index.ts')>();
  const { z } = await import('zod');
  const { ANY_TARGET, BOTH, check } = await import('../../src/guardrails/checks/support.ts');
  const noShouting = check({
    id: 'default.noShouting',
    phases: BOTH,
    targets: ANY_TARGET,
    parameters: z.strictObject({ most: z.int().min(0), hush: z.boolean().default(false) }),
    timeoutMs: null,
    mutates: false,
    redacts: ({ hush }) => hush,
    compile: ({ most, hush }) => ({
      lookBehind: hush ? null : most + 1,
      judge({ texts }) {
        const loud = texts.filter(({ text }) => (text.match(/!+/g) ?? []).some((marks) => marks.length > most));
        const replacements = hush ? loud.map(({ path, text }) => ({ path, text: text.replace(/!+/g, '.') })) : [];
        return { verdict: loud.length === 0, data: { loud: loud.length }, replacements };
      },
    }),
  });
  return { CHECKS: new Map([...CHECKS, [noShouting.id, noShouting]]) };
});

let upstream: FakeUpstream;
let server: TestServer;
let provider: string;
let said: readonly string[] = ['Fine.'];

beforeAll(async () => {
  upstream = await startUpstream(({ body }, response) => {
    const { stream } = JSON.parse(body.toString('utf8')) as { stream?: boolean };
    const choice = (more: object) => ({ choices: [{ index: 0, finish_reason: null, ...more }] });
    if (stream !== true) {
      sendJson(
        response,
        200,
        choice({ message: { role: 'assistant', content: said.join('') }, finish_reason: 'stop' }),
      );
      return;
    }
    const events = [
      ...said.map((content) => choice({ delta: { content } })),
      choice({ delta: {}, finish_reason: 'stop' }),
    ];
    sendEvents(response, [...events.map((event) => `data: ${JSON.stringify(event)}\n\n`), 'data: [DONE]\n\n']);
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  provider = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const save = (parameters: object, actions: object = {}) =>
  server.admin('POST', '/guardrails', {
    name: 'Quiet',
    workspace_id: server.first.workspace_id,
    checks: [{ id: 'default.noShouting', parameters }],
    actions: {
      deny: true,
      async: false,
      on_success: { feedback: { value: 5, weight: 1, metadata: '' } },
      on_fail: { feedback: { value: -5, weight: 1, metadata: '' } },
      ...actions,
    },
  });

const ask = (content: string, config: object, more: object = {}) =>
  server.call(
    '/chat/completions',
    { model: 'gpt-4o', messages: [{ role: 'user', content }], ...more },
    { 'x-gateway-config': JSON.stringify({ provider: `@${provider}`, ...config }) },
  );

const QUIET = { 'default.noShouting': { most: 2 }, deny: true };

describe('a check that is a line of the list of checks', () => {
  it('is saved in guardrails with the parameters that it allows, and a near miss of its name is told', async () => {
    expect((await save({ most: 2 })).status).toBe(200);
    const wrong = await save({ most: -1, loud: true });
    expect(wrong.status).toBe(400);
    expect(JSON.stringify(wrong.body)).toContain('checks[0].parameters');
    const config = { provider: `@${provider}`, input_guardrails: [{ 'default.noShoutin': { most: 2 } }] };
    const near = await server.admin('POST', '/configs', { name: 'c', config, workspace_id: server.first.workspace_id });
    expect([near.status, JSON.stringify(near.body)]).toEqual([400, expect.stringContaining('default.noShouting')]);
  });

  it('judges requests, answers and streams, by its name in a guardrail and written into a config', async () => {
    const slug = String((await save({ most: 2 })).body.slug);
    for (const entry of [slug, QUIET]) {
      said = ['Fine.'];
      const before = upstream.received.length;
      expect((await ask('Hello!!', { input_guardrails: [entry] })).status).toBe(200);
      expect((await ask('Hello!!!', { input_guardrails: [entry] })).status).toBe(446);
      expect(upstream.received).toHaveLength(before + 1);
      said = ['No!', '!', '!!'];
      expect((await ask('Hello', { output_guardrails: [entry] })).status).toBe(446);
      const stream = await (await ask('Hello', { output_guardrails: [entry] }, { stream: true })).text();
      expect(stream).not.toContain('"!!"');
    }
  });

  it('changes what is sent on where it redacts', async () => {
    said = ['Fine.'];
    const hush = { 'default.noShouting': { most: 0, hush: true }, deny: false };
    expect((await ask('Hello!!! You!', { input_guardrails: [hush] })).status).toBeLessThan(300);
    expect(upstream.received.at(-1)?.body.toString('utf8')).toContain('Hello. You.');
  });

  it('is recorded with what it found', async () => {
    said = ['Fine.'];
    await (await ask('Hello!!!', { input_guardrails: [QUIET] })).text();
    const [record] = await server.records();
    expect(record).toMatchObject({ outcome: 'refused' });
    expect(JSON.stringify(record)).toContain('default.noShouting');
  });

  it('is run by itself on what a caller sends', async () => {
    const guardrail = String((await save({ most: 2 })).body.slug);
    const send = (text: string) =>
      server.admin('POST', `/guardrails/${guardrail}/invoke`, { phase: 'input', text }, server.first.workspace_api_key);
    expect(await send('Hello!!')).toMatchObject({ status: 200, body: { verdict: true } });
    expect(await send('Hello!!!')).toMatchObject({ status: 200, body: { verdict: false } });
  });
});
