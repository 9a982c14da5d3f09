import { describe, expect, it } from 'vitest';
import { call, eventsOf, type LocalAnswer } from '../../../test/support/local.ts';
import { TestClock } from '../../kernel/clock.ts';
import { createLocal } from './local.ts';

const local = createLocal();

/** The four generating operations, each with the same question. */
const SHAPES = [
  ['/chat/completions', (model: string) => ({ model, messages: [{ role: 'user', content: 'One two three' }] })],
  ['/completions', (model: string) => ({ model, prompt: 'One two three' })],
  [
    '/messages',
    (model: string) => ({ model, max_tokens: 4000, messages: [{ role: 'user', content: 'One two three' }] }),
  ],
  ['/responses', (model: string) => ({ model, input: 'One two three' })],
] as const;

const END = /\[DONE\]|message_stop|response\.completed|"finish_reason":"stop"/;

function deltaOf(json: Record<string, never> | undefined): string {
  if (json === undefined) return '';
  const event = json as {
    choices?: { delta?: { content?: string }; text?: string }[];
    delta?: string | { text?: string };
  };
  const [choice] = event.choices ?? [];
  if (choice !== undefined) return choice.delta?.content ?? choice.text ?? '';
  return typeof event.delta === 'string' ? event.delta : (event.delta?.text ?? '');
}

const streamed = (answer: LocalAnswer): string =>
  eventsOf(answer.text)
    .map((event) => deltaOf(event.json))
    .join('');

/** Lets the turns of the event loop pass that an answer without a pause may take. */
async function settle(): Promise<void> {
  for (let i = 0; i < 50; i++) await new Promise((resolve) => setImmediate(resolve));
}

describe.each(SHAPES)('on %s', (path, body) => {
  const ask = (model: string, more: object = {}) => call(local, { path, body: { ...body(model), ...more } });
  const stream = (model: string) => ask(model, { stream: true });

  it('echo answers what was said, plain and streamed, with and without the prefix', async () => {
    for (const model of ['echo', 'sandbox/echo']) {
      expect((await ask(model)).text).toContain('One two three');
      const answer = await stream(model);
      expect(streamed(answer)).toBe('One two three');
      expect(answer.text).toMatch(END);
    }
  });

  it('lorem answers exactly as many tokens as asked for', async () => {
    const { json } = await ask('lorem?tokens=57');
    expect(json.usage.completion_tokens ?? json.usage.output_tokens).toBe(57);
  });

  it('error answers the status, with Retry-After', async () => {
    for (const answer of [
      await ask('error?status=429&retry_after=2'),
      await stream('error?status=429&retry_after=2'),
    ]) {
      expect(answer.status).toBe(429);
      expect(answer.headers['retry-after']).toBe('2');
      expect(answer.json.error.message).toContain('429');
      if (path === '/messages')
        expect(answer.json).toMatchObject({ type: 'error', error: { type: 'rate_limit_error' } });
      else expect(answer.json.error).toMatchObject({ type: 'requests', code: 'rate_limit_exceeded', param: null });
    }
  });

  it('cut breaks the connection in mid-stream, after the asked number of tokens', async () => {
    const answer = await stream('cut?after_tokens=40');
    expect(answer.status).toBe(200);
    expect(answer.error?.kind).toBe('upstream_cut');
    expect(streamed(answer).split(/(?=[ .])/)).toHaveLength(40);
    expect(answer.text).not.toMatch(END);
  });

  it('cut with mode=end ends the stream without its end marker', async () => {
    const answer = await stream('cut?after_tokens=3&mode=end');
    expect(answer.ended).toBe(true);
    expect(streamed(answer)).toBe('Lorem ipsum dolor');
    expect(answer.text).not.toMatch(END);
  });

  it('cut breaks off a plain answer in the middle', async () => {
    const answer = await ask('cut');
    expect(answer.error?.kind).toBe('upstream_cut');
    expect(Number(answer.headers['content-length'])).toBeGreaterThan(answer.bytes.length);
    const ended = await ask('cut?mode=end');
    expect(ended.ended).toBe(true);
    expect(ended.json).toBeUndefined();
  });

  it('malformed sends one event that is no JSON and goes on', async () => {
    const answer = await stream('malformed?event=10');
    const events = eventsOf(answer.text);
    expect(events.flatMap((event, i) => (event.json === undefined && event.data !== '[DONE]' ? [i + 1] : []))).toEqual([
      10,
    ]);
    expect(answer.text).toMatch(END);
    expect((await ask('malformed')).json).toBeUndefined();
  });

  it('slow waits before the head and between tokens', async () => {
    const clock = new TestClock();
    let head = 0;
    let first = 0;
    const started = clock.now();
    const done = call(local, {
      path,
      body: { ...body('slow?ttft_ms=800&tokens_per_s=2'), stream: true },
      clock,
      onHead: () => {
        head = clock.now() - started;
      },
      onChunk: () => {
        first ||= clock.now() - started;
      },
    });
    await settle();
    expect(head).toBe(0);
    for (let i = 0; i < 30; i++) {
      await clock.advance(100);
      await settle();
    }
    const answer = await done;
    expect(head).toBe(800);
    expect(first).toBe(800);
    expect(clock.now() - started).toBeGreaterThanOrEqual(1800);
    expect(streamed(answer)).toBe('One two three');
  });

  it('stall goes silent for as long as asked and then ends properly', async () => {
    const clock = new TestClock();
    let ended = false;
    let got = '';
    const done = call(local, {
      path,
      body: { ...body('stall?after_tokens=2&ms=5000'), stream: true },
      clock,
      onChunk: (chunk) => {
        got += chunk;
      },
    }).then((answer) => {
      ended = true;
      return answer;
    });
    await settle();
    expect(got).toContain('ipsum');
    expect(got).not.toContain('dolor');
    await clock.advance(4999);
    await settle();
    expect(ended).toBe(false);
    await clock.advance(1);
    const answer = await done;
    expect(streamed(answer)).toMatch(/^Lorem ipsum dolor/);
    expect(answer.text).toMatch(END);
  });
});

describe('error?times=N', () => {
  const body = { model: 'error?status=503&times=2', messages: [{ role: 'user', content: 'x' }] };

  it('fails the first N calls of an organisation and model text, then answers', async () => {
    const own = createLocal();
    const statuses = async (organisationId: string, model: string) => {
      const out = [];
      for (let i = 0; i < 4; i++) out.push((await call(own, { organisationId, body: { ...body, model } })).status);
      return out;
    };
    expect(await statuses('org-a', body.model)).toEqual([503, 503, 200, 200]);
    expect(await statuses('org-b', body.model)).toEqual([503, 503, 200, 200]);
    expect(await statuses('org-a', `${body.model}&id=other`)).toEqual([503, 503, 200, 200]);
  });

  it('remembers a bounded number of models', async () => {
    const own = createLocal();
    const ask = async (id: number) => (await call(own, { body: { ...body, model: `error?times=1&id=${id}` } })).status;
    expect(await ask(0)).toBe(500);
    expect(await ask(0)).toBe(200);
    for (let id = 1; id <= 10_000; id++) await ask(id);
    expect(await ask(0)).toBe(500);
  });
});

describe('flap', () => {
  it('is up and down by the clock', async () => {
    const clock = new TestClock(600_000_000);
    const ask = () =>
      call(local, { clock, body: { model: 'flap?down_ms=60000', messages: [{ role: 'user', content: 'x' }] } });
    expect((await ask()).status).toBe(200);
    clock.jump(60_000);
    const down = await ask();
    expect(down.status).toBe(503);
    expect(down.headers['retry-after']).toBe('60');
    clock.jump(60_000);
    expect((await ask()).status).toBe(200);
  });
});

describe('parameters of behaviours', () => {
  it.each([
    ['slow?ttft_ms=-1', 'ttft_ms must be a whole number from 0 to 3600000'],
    ['slow?speed=1', 'unknown parameter "speed"; it knows ttft_ms, tokens_per_s, tokens'],
    ['error?status=200', 'status must be a whole number from 400 to 599'],
    ['error?times=1.5', 'times must be a whole number'],
    ['error?status=500&status=501', 'status is given twice'],
    ['cut?mode=maybe', 'mode must be error or end'],
    ['lorem?tokens=1&bytes=1', 'give tokens or bytes, not both'],
    ['lorem?bytes=268435457', 'bytes must be a whole number from 1 to 268435456'],
    ['lorem?toString=1', 'unknown parameter "toString"'],
    ['stall?ms=1e9', 'ms must be a whole number'],
  ])('%s is refused with what is allowed', async (model, message) => {
    const answer = await call(local, { body: { model, messages: [{ role: 'user', content: 'x' }] } });
    expect(answer.status).toBe(400);
    expect(answer.json.error).toMatchObject({ type: 'invalid_request_error', param: 'model' });
    expect(answer.json.error.message).toContain(message);
  });

  it('a question mark in the name of another model means nothing', async () => {
    const answer = await call(local, { body: { model: 'gpt?x=1', messages: [{ role: 'user', content: 'x' }] } });
    expect(answer.json).toMatchObject({ model: 'gpt?x=1' });
  });
});

describe('other operations', () => {
  it('fail and wait as asked too', async () => {
    const own = createLocal();
    expect((await call(own, { path: '/embeddings', body: { model: 'error?status=503', input: 'x' } })).status).toBe(
      503,
    );
    const clock = new TestClock();
    let done = false;
    const answer = call(own, { path: '/embeddings', clock, body: { model: 'slow?ttft_ms=100', input: 'x' } }).then(
      (a) => {
        done = true;
        return a;
      },
    );
    await settle();
    expect(done).toBe(false);
    await clock.advance(100);
    expect((await answer).status).toBe(200);
    expect((await call(own, { path: '/moderations', body: { model: 'malformed', input: 'x' } })).json).toBeUndefined();
  });
});
