/**
 * What large events of a stream say of its end, its errors and its usage is seen wherever it is in them: events of every size
 * around the borders from which on they are searched as they arrive, and are not parsed.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sampled } from '../../../test/support/sampled.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { type FakeUpstream, startUpstream } from '../../../test/support/upstream.ts';

const KB = 1024;
const SIZES = [63, 64, 65, 127, 128, 129, 192, 1023, 1024, 1025, 3 * KB, 7 * KB].map((kb) => kb * KB);
const PLACES = ['first', 'middle', 'last'] as const;
type Place = (typeof PLACES)[number];
type Json = Record<string, unknown>;

interface Shape {
  readonly path: string;
  readonly provider: string;
  readonly body: Json;
  /** Says something. */
  readonly content: Json;
  /** The members of an event that say an error, the end, and usage. */
  readonly error: Json;
  readonly end: Json;
  readonly usage: Json;
  /** How the tokens of `usage` are recorded. */
  readonly stop: string;
}

const messages = [{ role: 'user', content: 'x' }];
const USED = { input: 11, output: 7 };
const SHAPES: Readonly<Record<string, Shape>> = {
  chat: {
    path: '/chat/completions',
    provider: 'openai',
    body: { messages, stream_options: { include_usage: true } },
    content: { id: 'c', object: 'chat.completion.chunk', choices: [{ index: 0, delta: { content: 'Hi' } }] },
    error: { error: { message: 'Overloaded.', type: 'server_error', code: 'overloaded' } },
    end: { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
    usage: { choices: [], usage: { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 } },
    stop: 'data: [DONE]\n\n',
  },
  messages: {
    path: '/messages',
    provider: 'anthropic',
    body: { messages, max_tokens: 10 },
    content: { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hi' } },
    error: { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded.' } },
    end: { type: 'message_stop' },
    usage: { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { input_tokens: 11, output_tokens: 7 } },
    stop: 'data: {"type":"message_stop"}\n\n',
  },
  responses: {
    path: '/responses',
    provider: 'openai',
    body: { input: 'x' },
    content: { type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: 'Hi' },
    error: { type: 'error', code: 'server_error', message: 'Overloaded.', param: null },
    end: { type: 'response.completed' },
    usage: { type: 'response.completed', usage: { input_tokens: 11, output_tokens: 7, total_tokens: 18 } },
    stop: '',
  },
};

const event = (data: string) => `data: ${data}\n\n`;

/** An event of about `bytes` whose members are at a place in it. */
function large(members: Json, bytes: number, place: Place): string {
  const fill = (share: number) => 'iVBORw0KGgo'.repeat(Math.ceil((bytes * share) / 11));
  const [before, behind] = { first: [0, 1], middle: [0.5, 0.5], last: [1, 0] }[place] as [number, number];
  const padded = {
    ...(before > 0 ? { a: fill(before) } : {}),
    ...members,
    ...(behind > 0 ? { z: fill(behind) } : {}),
  };
  return event(JSON.stringify(padded));
}

let server: TestServer;
let upstream: FakeUpstream;
/** What the provider streams, by model. */
const streams = new Map<string, string>();
let count = 0;

beforeAll(async () => {
  upstream = await startUpstream((request, response) => {
    const { model = /models\/([^:]+):/.exec(request.path)?.[1] ?? '' } = JSON.parse(request.body.toString()) as {
      model?: string;
    };
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(streams.get(model));
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
}, 60_000);

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

/** The answer to a stream of these events, by targets that follow each other; and its record. */
async function ask({ path, provider, body }: Shape, ...answers: string[]) {
  const targets = answers.map((answer) => {
    const model = `m${count++}`;
    streams.set(model, answer);
    return {
      provider,
      api_key: 'sk-own',
      custom_host: `${upstream.url}/v1`,
      override_params: { model },
    };
  });
  const config =
    targets.length === 1
      ? targets[0]
      : { strategy: { mode: 'fallback', on_status_codes: [429, 500, 502, 503, 529] }, targets };
  const answer = await server.call(
    path,
    { ...body, model: 'any', stream: true },
    { 'x-gateway-config': JSON.stringify(config) },
  );
  const text = await answer.text();
  const [record] = await server.records(1);
  return { status: answer.status, text, record: record as Json & { outcome: string; usage: Json | null } };
}

describe.each(Object.entries(SHAPES))('a stream of %s', (name, shape) => {
  const content = event(JSON.stringify(shape.content));
  const good = content + event(JSON.stringify(shape.usage)) + shape.stop;

  describe.each(sampled(SIZES, (bytes) => `${name} ${bytes}`, 2))('with an event of %i bytes', (bytes) => {
    it.each(PLACES)('that says an error %s in it fails, and another target takes over', async (place) => {
      const answer = await ask(shape, large(shape.error, bytes, place) + content + shape.stop, good);
      expect([answer.status, answer.text]).toEqual([200, good]);
    });

    it.each(PLACES)('that says an error %s in it behind content is recorded as failed', async (place) => {
      const failing = large(shape.error, bytes, place);
      const answer = await ask(shape, content + failing + shape.stop);
      expect(answer.text.startsWith(content)).toBe(true);
      expect(answer.text).toContain('Overloaded.');
      expect(answer.record.outcome).toBe('failed');
    });

    it.each(PLACES)('that says the end %s in it is whole', async (place) => {
      const whole = content + large(shape.end, bytes, place);
      const answer = await ask(shape, whole);
      expect(answer.text === whole, answer.text.slice(-300)).toBe(true);
      expect(answer.record.outcome).toBe('ok');
    });

    it.each(PLACES)('that says the usage %s in it is counted as that', async (place) => {
      const whole = content + large(shape.usage, bytes, place) + shape.stop;
      const answer = await ask(shape, whole);
      expect(answer.text.length).toBe(whole.length);
      expect(answer.record.usage).toMatchObject(USED);
    });

    it('that is no JSON is not shown, and another target takes over', async () => {
      const pad = 'x'.repeat(bytes / 2);
      const error = JSON.stringify(shape.error).slice(1, -1);
      for (const broken of [
        `{"a" "${pad}", ${error}, "z":"${pad}"}`,
        'x'.repeat(bytes),
        `{"a":"${'x'.repeat(bytes)}`,
        `[${'1,'.repeat(bytes / 2)}1]`,
      ]) {
        const answer = await ask(shape, event(broken) + content + shape.stop, good);
        expect([answer.status, answer.text]).toEqual([200, good]);
      }
    });

    it('that holds such words in a text goes on', async () => {
      const words = JSON.stringify({ ...shape.error, ...shape.end, ...shape.usage }).repeat(3);
      const half = 'x'.repeat(bytes / 2);
      const text = event(JSON.stringify({ ...shape.content, pad: half + words + half }));
      const whole = content + text + event(JSON.stringify(shape.usage)) + shape.stop;
      const answer = await ask(shape, whole);
      expect(answer.text === whole, answer.text.slice(-300)).toBe(true);
      expect(answer.record).toMatchObject({ outcome: 'ok', usage: USED });
    });
  });
});

describe('a picture of 5 MB in an event that is converted', () => {
  const data = 'iVBORw0KGgoAAAANSUhEUg+/'.repeat((5 * KB * KB) / 24);
  const url = `data:image/png;base64,${data}`;
  const painted = event(
    JSON.stringify({ ...SHAPES.chat?.content, choices: [{ index: 0, delta: { images: [{ image_url: { url } }] } }] }),
  );
  const stop = event(JSON.stringify({ id: 'c', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }));
  const dataOf = (text: string) =>
    text
      .split('\n')
      .filter((line) => line.startsWith('data: {'))
      .map((line) => JSON.parse(line.slice(6)) as Json & { choices?: { delta?: { images?: Json[] } }[] });

  it('is whole for a chat caller of Gemini', async () => {
    const part = (parts: Json[], more: Json = {}) =>
      event(JSON.stringify({ candidates: [{ index: 0, content: { role: 'model', parts }, ...more }] }));
    const answer = await ask(
      { ...(SHAPES.chat as Shape), provider: 'google' },
      part([{ inlineData: { mimeType: 'image/png', data } }]) + part([{ text: 'Done' }], { finishReason: 'STOP' }),
    );
    expect(answer.status, answer.text.slice(0, 300)).toBe(200);
    const images = dataOf(answer.text).flatMap(({ choices }) => choices?.[0]?.delta?.images ?? []);
    expect(images.length).toBe(1);
    expect(JSON.stringify(images[0]) === JSON.stringify({ type: 'image_url', image_url: { url } })).toBe(true);
  });

  it('is whole for a Responses caller, each time that the stream tells it', async () => {
    const shape = { ...(SHAPES.responses as Shape), provider: 'together-ai' };
    const answer = await ask(shape, `${painted}${stop}data: [DONE]\n\n`);
    expect(answer.status, answer.text.slice(0, 300)).toBe(200);
    const results = dataOf(answer.text).flatMap(({ type, item, response }) =>
      type === 'response.output_item.done'
        ? [item as Json]
        : type === 'response.completed'
          ? ((response as Json).output as Json[])
          : [],
    );
    expect(results.map(({ result }) => result === data)).toEqual([true, true]);
  });

  it('with more than 1.5 MiB of words is refused in words that say so', async () => {
    const long = event(
      JSON.stringify({ id: 'c', choices: [{ index: 0, delta: { content: 'word '.repeat(600_000) } }] }),
    );
    const answer = await ask({ ...(SHAPES.messages as Shape), provider: 'openai' }, long);
    expect([answer.status, answer.text]).toEqual([
      502,
      expect.stringContaining('more than 1.5 MiB beside its pictures'),
    ]);
  });
});
