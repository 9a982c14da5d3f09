/** What became of a request is only added to: an answer that another one takes the place of is kept, and nothing is taken back. */
// Own process: it adds a step to the pipeline.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { chatStream } from '../../../test/support/streams.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../../../test/support/upstream.ts';
import { type Row, TABLE } from '../pipeline.ts';
import type { LlmOutcome } from './outcome.ts';

const GROWING = new Set(['attemptCount', 'backoffMs', 'bytesIn', 'bytesOut', 'upstreamBytesIn', 'upstreamBytesOut']);
const UNSAID = new Set<unknown>([null, 0, false, 'ok', '']);
const takenBack: string[] = [];
const outcomes: LlmOutcome[] = [];

/** Notes what is written over with less than there was. */
const watched = (outcome: LlmOutcome): LlmOutcome =>
  new Proxy(outcome, {
    set(target, name, value, receiver) {
      const before: unknown = Reflect.get(target, name, receiver);
      const back = UNSAID.has(value) && !UNSAID.has(before);
      const less = GROWING.has(String(name)) && Number(value) < Number(before);
      const shorter =
        Array.isArray(before) &&
        (value as unknown[] | null)?.length !== undefined &&
        before.length > (value as unknown[]).length;
      if (back || less || shorter) takenBack.push(`${String(name)}: ${String(before)} → ${String(value)}`);
      return Reflect.set(target, name, value, receiver);
    },
  });

const watch: Row = {
  step: (x) => {
    outcomes.push(x.outcome);
    Object.assign(x, { outcome: watched(x.outcome) });
  },
  group: 'all',
  when: [],
};

const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
const chat = { id: 'c', object: 'chat.completion', created: 1, model: 'm-2026', usage };
const whole = {
  ...chat,
  choices: [{ index: 0, message: { role: 'assistant', content: 'fine' }, finish_reason: 'stop' }],
};

let upstream: FakeUpstream;
let server: TestServer;
let provider: string;

beforeAll(async () => {
  (TABLE.head as Row[]).unshift(watch);
  upstream = await startUpstream((_request, response) => sendJson(response, 200, whole));
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` }, { writeAccess: () => {} });
  provider = `@${await server.provider({ id: 'openai', host: `${upstream.url}/v1` })}`;
}, 60_000);

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const TWO = () => ({ targets: [{ provider }, { provider }] });
const CASES: readonly [title: string, config: () => object, answers: FakeUpstream['answer'][], stream: boolean][] = [
  [
    'an answer of status 200 that the config passes over',
    () => ({ strategy: { mode: 'fallback', on_status_codes: [200] }, ...TWO() }),
    [],
    false,
  ],
  [
    'a retry after a failure',
    () => ({ provider, retry: { attempts: 1, use_retry_after_headers: true } }),
    [
      (_request, response) => {
        response.setHeader('retry-after-ms', '1');
        sendJson(response, 429, { error: { message: 'busy' } });
      },
    ],
    false,
  ],
  [
    'a stream that breaks and is continued',
    () => ({ strategy: { mode: 'fallback' }, stream: { on_break: 'continue' }, ...TWO() }),
    [
      (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(chatStream('one').slice(0, 2).join(''), () => response.destroy());
      },
    ],
    true,
  ],
  [
    'a cached answer after a target that failed',
    () => ({ strategy: { mode: 'fallback' }, cache: { mode: 'simple' }, ...TWO() }),
    [(_request, response) => sendJson(response, 500, { error: { message: 'broken' } })],
    false,
  ],
];

it.each(CASES)('%s takes nothing back', async (_title, config, answers, stream) => {
  const left = [...answers];
  upstream.answer = (request, response) => {
    const next = left.shift();
    if (next !== undefined) return next(request, response);
    return stream ? sendEvents(response, chatStream('two')) : sendJson(response, 200, whole);
  };
  takenBack.length = 0;
  outcomes.length = 0;
  const messages = [{ role: 'user', content: 'hello' }];
  const headers = { 'x-gateway-config': JSON.stringify(config()) };
  const answer = await server.call('/chat/completions', { model: 'm', messages, stream }, headers);
  await answer.text();
  await server.records();
  expect(takenBack).toEqual([]);
  expect(outcomes).toHaveLength(1);
});

it('an answer that is passed over is kept with what it said, and is billed', async () => {
  upstream.answer = (_request, response) => sendJson(response, 200, whole);
  outcomes.length = 0;
  const config = { strategy: { mode: 'fallback', on_status_codes: [200] }, ...TWO() };
  const headers = { 'x-gateway-config': JSON.stringify(config) };
  await (await server.call('/chat/completions', { model: 'm', messages: [] }, headers)).text();
  const [outcome] = outcomes;
  expect(outcome?.passedOver?.map(({ status, modelAnswered }) => [status, modelAnswered])).toEqual([[200, 'm-2026']]);
  expect(outcome?.usage).toMatchObject({ input: 6, output: 2 });
  const [record] = await server.records();
  expect(record).toMatchObject({ status: 200, usage: { input: 6, output: 2 } });
});
