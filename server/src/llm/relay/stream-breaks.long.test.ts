/** Streams that break after their first content: what official clients make of those that another target went on with. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { budgetKey, type Caller, eventually, settledBooks } from '../../../test/support/budgets.ts';
import { type FaultyUpstream, PIECES, startFaulty } from '../../../test/support/faults.ts';
import { eventsOf } from '../../../test/support/local.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { chunk } from '../../../test/support/streams.ts';

const TEXT = PIECES.join('');
const TOOL = { tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'look', arguments: '' } }] };

interface Tokens {
  readonly input: number;
  readonly output: number;
}

let server: TestServer;
let upstream: FaultyUpstream;

beforeAll(async () => {
  upstream = await startFaulty((call, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    if (call.model.startsWith('tool')) response.write(chunk({ role: 'assistant', ...TOOL }));
    else response.write(chunk({ role: 'assistant', content: 'Water finds' }));
    setTimeout(() => response.destroy(), 30);
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
}, 60_000);

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const target = (provider: string, model: string, more: object = {}) => ({
  provider,
  api_key: 'sk-own',
  custom_host: `${upstream.url}/v1`,
  override_params: { model },
  ...more,
});
const fallback = (targets: object[], more: object = {}) => ({
  strategy: { mode: 'fallback' },
  stream: { on_break: 'continue' },
  targets,
  ...more,
});
const headers = (config: object) => ({ 'x-gateway-config': JSON.stringify(config) });
const openai = (config: object) =>
  new OpenAI({
    apiKey: server.first.workspace_api_key,
    baseURL: `${server.url}/v1`,
    maxRetries: 0,
    defaultHeaders: headers(config),
  });
const messages = [{ role: 'user' as const, content: 'Where to?' }];
const lastRecord = async () => (await server.records())[0] as { usage: Tokens; attempts: unknown[] };

/** A chat stream as it came. */
async function raw(config: object, more: object = {}, key?: string) {
  const answer = await server.call(
    '/chat/completions',
    { model: 'any', messages, stream: true, ...more },
    {
      ...headers(config),
      ...(key === undefined ? {} : { 'x-gateway-api-key': key }),
    },
  );
  const text = await answer.text();
  return { status: answer.status, text, events: eventsOf(text) };
}

describe('a stream that another target goes on with', () => {
  it('is one stream of chat: one id, one role, one text, one usage of all that was used', async () => {
    const config = fallback([target('openai', 'cut.x9.one'), target('groq', 'good.one')]);
    const { events } = await raw(config, { stream_options: { include_usage: true } });
    const chunks = events.filter(({ data }) => data !== '[DONE]').map(({ json }) => json);
    expect(new Set(chunks.map(({ id }) => id)).size).toBe(1);
    expect(chunks.filter(({ choices }) => choices[0]?.delta.role !== undefined)).toHaveLength(1);
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toBe(TEXT);
    expect(events.at(-1)?.data).toBe('[DONE]');
    const usages = chunks.filter(({ usage }) => usage != null);
    expect(usages).toHaveLength(1);
    const record = await lastRecord();
    expect(record).toMatchObject({
      outcome: 'ok',
      status: 200,
      provider: 'groq',
      model_answered: 'good.one',
      usage_estimated: true,
      attempts: [
        { target: 'config.targets[0]', provider: 'openai', status: 200, error: 'upstream_stream_cut' },
        { target: 'config.targets[1]', provider: 'groq', status: 200, error: null },
      ],
    });
    const { input, output } = record.usage;
    expect(usages[0].usage).toMatchObject({ prompt_tokens: input, completion_tokens: output });
    // What the second reports, and what had arrived of the first.
    expect(output).toBeGreaterThan(5);
    expect(input).toBeGreaterThan(9);
    const [, second] = upstream.calls.filter(({ model }) => model.endsWith('.one'));
    expect(second?.body.messages).toEqual([...messages, { role: 'assistant', content: 'Water finds' }]);
  });

  it('is one message for the client of Anthropic', async () => {
    const client = new Anthropic({
      apiKey: server.first.workspace_api_key,
      baseURL: server.url,
      maxRetries: 0,
      defaultHeaders: headers(fallback([target('openai', 'cut.x9.two'), target('anthropic', 'good.two')])),
    });
    const stream = client.messages.stream({ model: 'any', max_tokens: 50, messages });
    const starts: string[] = [];
    stream.on('streamEvent', ({ type }) => starts.push(type));
    const message = await stream.finalMessage();
    expect(message.content).toMatchObject([{ type: 'text', text: TEXT }]);
    expect(message.stop_reason).toBe('end_turn');
    expect(starts.filter((type) => type === 'message_start' || type === 'content_block_start')).toHaveLength(2);
    expect(starts.at(-1)).toBe('message_stop');
    const { output } = (await lastRecord()).usage;
    expect(message.usage.output_tokens).toBe(output);
  });

  it('is one response for the client of OpenAI, whatever shape goes on with it', async () => {
    for (const second of ['anthropic', 'mistral-ai']) {
      const client = openai(fallback([target('openai', `cut.x9.${second}`), target(second, `good.${second}`)]));
      const stream = client.responses.stream({ model: 'any', input: 'Where to?' });
      const seen: { type: string; sequence_number: number }[] = [];
      stream.on('event', (event) => seen.push(event as never));
      const response = await stream.finalResponse();
      expect(response.output_text, second).toBe(TEXT);
      expect(response.id).toBe('r');
      expect(seen.map(({ sequence_number }) => sequence_number)).toEqual(seen.map((_, i) => i));
      expect(seen.filter(({ type }) => type === 'response.created')).toHaveLength(1);
      expect(seen.find(({ type }) => type === 'response.output_text.done')).toMatchObject({ text: TEXT, item_id: 'i' });
    }
  });

  it('passes over a target that takes no beginning of an answer, and asks the one after it', async () => {
    const config = fallback([
      target('openai', 'cut.x9.three'),
      target('openai', 'good.three'),
      target('groq', 'good.3'),
    ]);
    const { text } = await raw(config);
    expect(upstream.callsOf('good.three')).toBe(0);
    expect(upstream.callsOf('good.3')).toBe(1);
    expect(text).toContain('[DONE]');
    expect((await lastRecord()).attempts).toHaveLength(2);
  });

  it('may break again, and again be gone on with', async () => {
    const config = fallback([
      target('openai', 'cut.x9.four'),
      target('groq', 'half.four'),
      target('groq', 'good.four'),
    ]);
    const { events } = await raw(config);
    expect(events.at(-1)?.data).toBe('[DONE]');
    expect((await lastRecord()).attempts).toHaveLength(3);
  });
});

describe('a stream that nothing can go on with ends with what broke it', () => {
  it.each<[string, () => object]>([
    ['the next target takes no beginning', () => fallback([target('openai', 'cut.x9.a'), target('openai', 'good.a')])],
    ['the next target refuses it', () => fallback([target('openai', 'cut.x9.b'), target('groq', 'good.picky-b')])],
    ['a tool call was shown', () => fallback([target('openai', 'tool.c'), target('groq', 'good.c')])],
    ['there is no next target', () => target('openai', 'cut.x9.d', { stream: { on_break: 'continue' } })],
    [
      'guardrails judge the answer, who would not see what was shown before',
      () =>
        fallback([target('openai', 'cut.x9.e'), target('groq', 'good.e')], {
          output_guardrails: [{ deny: true, 'default.contains': { words: ['never'], operator: 'none' } }],
        }),
    ],
  ])('%s', async (_title, config) => {
    const { status, events } = await raw(config());
    // Guardrails may not have let anything through yet.
    if (status !== 200) return expect(status).toBe(502);
    const last = events.at(-1);
    expect(last?.json.error).toMatchObject({ type: 'api_error', code: 'upstream_stream_cut' });
    expect(events.filter(({ data }) => data === '[DONE]')).toHaveLength(0);
    expect(await lastRecord()).toMatchObject({ status: 200, outcome: 'failed', error_code: 'upstream_stream_cut' });
  });
});

describe('a stream that waits for a safe point', () => {
  it('is shown from the first of its bounds on: a break after it is told', async () => {
    const stream = { on_break: 'restart', restart_within: { tokens: 1 } };
    const config = fallback([target('openai', 'cut.x9.f'), target('groq', 'good.f')], { stream });
    const { events } = await raw(config);
    expect(events.at(-1)?.json.error).toMatchObject({ code: 'upstream_stream_cut' });
  });

  it('starts anew before it, and only the second answer is seen', async () => {
    const stream = { on_break: 'restart', restart_within: { tokens: 50, ms: 60_000 } };
    const config = fallback([target('openai', 'stall.x9.g'), target('groq', 'good.g')], {
      stream,
      timeouts: { stream_idle: 200 },
    });
    const { events } = await raw(config);
    expect(events.map(({ json }) => json?.choices?.[0]?.delta.content ?? '').join('')).toBe(TEXT);
    expect(new Set(events.map(({ json }) => json?.model).filter(Boolean))).toEqual(new Set(['good.g']));
    expect((await lastRecord()).attempts).toMatchObject([{ error: 'upstream_idle_timeout' }, { error: null }]);
  });
});

describe('what a rescue used', () => {
  it('is booked for every attempt, at the price of each, and nothing stays reserved', async () => {
    const caller: Caller = await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 1_000_000 } });
    const config = fallback([target('openai', 'cut.x9.h'), target('groq', 'good.h')]);
    await raw(config, { max_tokens: 50 }, caller.key);
    const record = await eventually(
      async () => (await server.records()).find((one) => one.api_key_id === caller.id),
      (found) => found !== undefined,
    );
    const { input, output } = (record ?? (await lastRecord())).usage as Tokens;
    expect(await settledBooks(server, caller.id)).toMatchObject({ used: input + output, reserved: 0 });
    expect(input + output).toBeGreaterThan(14);
  });
});
