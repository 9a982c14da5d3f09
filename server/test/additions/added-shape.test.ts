/**
 * A wire shape that only this file knows, and an operation of it: a line in each of the two tables, and no other file
 * touched. What the shape says of itself is all that reads, counts, guards and refuses what is said in it.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { budgetKey } from '../support/budgets.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, type Received, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

vi.mock('../../src/operations/shapes/index.ts', async (original) => {
  const { SHAPES } = await original<typeof import('../../src/operations/shapes/index.ts')>();
  const { EventList, listOf, member, OutOfPlace } = await import('../../src/operations/shapes/assembler.ts');
  const { isSaid, UNKNOWN } = await import('../../src/operations/shapes/wire-shape.ts');
  const { tokenCount, tokens } = await import('../../src/operations/usage.ts');
  type Shape = import('../../src/operations/shapes/wire-shape.ts').WireShape;
  type Parts = Parameters<InstanceType<typeof EventList>['take']>[0];

  /** Events are `{line, of}`, the number of its stanza, and `{over}`. */
  class Stanzas extends EventList {
    override readonly sketch: Parts = { poem: [] };

    override take(event: Parts) {
      if (event.over !== undefined) return [];
      const { of: at, line } = event;
      if (typeof at !== 'number' || typeof line !== 'string') throw new OutOfPlace();
      const poem = listOf(this.sketch, 'poem');
      poem[at] = `${String(poem[at] ?? '')}${line}`;
      return [member(event, 'line', 'text', `poem[${at}]`, true)];
    }
  }

  const verses: Shape = {
    ...UNKNOWN,
    knowsEvents: true,
    member: 'poem',
    says: ({ line }) => isSaid(line),
    tellsEnd: ({ over }) => over !== undefined,
    usage: {
      read: ({ heard, sung }) =>
        tokens(tokenCount(heard), tokenCount(sung), {
          cache_read: 0,
          cache_write: 0,
          reasoning: 0,
          audio_input: 0,
          audio_output: 0,
        }),
      write: () => null,
    },
    estimate: (body, input, isText) => ({ input, output: body?.n === 2 ? 200 : 100, bounded: isText }),
    conversations: ['input'],
    answersSay: true,
    holdsMedia: false,
    answersPlainly: false,
    assembler: () => new Stanzas(),
    results: { event: (_head, results) => ({ event: 'judged', data: JSON.stringify(results) }) },
    answerOf: (head, text) => ({
      body: { poem: [text], singer: head.model },
      events: [
        { event: null, data: JSON.stringify({ of: 0, line: text }) },
        { event: null, data: '[DONE]' },
      ],
    }),
  };
  return { SHAPES: { ...SHAPES, verses } };
});

vi.mock('../../src/operations/table.ts', async (original) => {
  const { ROWS } = await original<typeof import('../../src/operations/table.ts')>();
  const sing = { ...ROWS.chat, shape: 'verses', path: '/verses', requestType: 'sing', title: 'Sing', deployed: false };
  return { ROWS: { ...ROWS, sing } };
});

const DENY = { 'default.contains': { words: ['secret'], operator: 'none' }, deny: true };
const LOOSE = { 'x-gateway-strict-open-ai-compliance': 'false' };

let upstream: FakeUpstream;
let server: TestServer;
let provider: string;
/** What is sung; each element is an event of a stream. */
let lines: readonly string[] = ['Once upon', ' a time'];

const usage = { heard: 5, sung: 3 };

function answer(request: Received, response: Parameters<FakeUpstream['answer']>[1]): void {
  const asked = JSON.parse(request.body.toString('utf8')) as { stream?: boolean };
  if (asked.stream !== true) {
    sendJson(response, 200, { model: 'bard', poem: [lines.join('')], usage });
    return;
  }
  const events = [...lines.map((line) => ({ of: 0, line })), { over: true, usage }];
  sendEvents(response, [...events.map((event) => `data: ${JSON.stringify(event)}\n\n`), 'data: [DONE]\n\n']);
}

beforeAll(async () => {
  upstream = await startUpstream(answer);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  provider = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
});

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const said = (...texts: readonly string[]) => texts.map((content) => ({ role: 'user', content }));

const sing = (body: object, config: object = {}, headers: Record<string, string> = {}) =>
  server.call(
    '/verses',
    { model: 'bard', input: said('Sing.'), ...body },
    { 'x-gateway-config': JSON.stringify({ provider: `@${provider}`, ...config }), ...headers },
  );

describe('a shape that is a line of the table of shapes', () => {
  it('is read as it says: what an answer and a stream used is recorded', async () => {
    for (const stream of [false, true]) {
      const answered = await sing({ stream });
      expect([answered.status, await answered.text()]).toEqual([200, expect.stringContaining('Once upon')]);
      const [record] = await server.records();
      expect(record).toMatchObject({ operation: 'sing', outcome: 'ok', usage: { input: 5, output: 3 } });
    }
  });

  it('is estimated as it says, before anything was used', async () => {
    const caller = await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 1_000_000 } });
    const own = { 'x-gateway-api-key': caller.key };
    const reserved: number[] = [];
    for (const n of [1, 2]) {
      await (await sing({ n }, {}, own)).text();
      const [record] = await server.records();
      expect(record).toMatchObject({ limits: { estimate: { bounded: true, tokens: expect.any(Number) } } });
      const limits = record?.limits as { estimate: { tokens: number } } | undefined;
      reserved.push(limits?.estimate.tokens ?? 0);
    }
    const [one = 0, two = 0] = reserved;
    expect(one).toBeGreaterThan(100);
    expect(two - one).toBe(100);
  });

  it('has the conversation that it says: a guardrail of the last message looks at no other', async () => {
    const last = { input_guardrails: [{ ...DENY, messages: 'last' }] };
    expect((await sing({ input: said('a secret', 'Sing.') }, last)).status).toBe(200);
    expect((await sing({ input: said('Sing.', 'a secret') }, last)).status).toBe(446);
  });

  it('has streams that guardrails follow: a word over two events is found before it is shown', async () => {
    lines = ['Once upon a sec', 'ret time'];
    const shown = await (await sing({ stream: true }, { output_guardrails: [DENY] })).text();
    expect(shown).not.toContain('ret time');
    expect(shown).not.toContain('a sec');
    lines = ['Once upon', ' a time'];
    const passed = await sing({ stream: true }, { output_guardrails: [DENY] });
    expect([passed.status, await passed.text()]).toEqual([200, expect.stringContaining(' a time')]);
  });

  it('has the results of guardrails where it says', async () => {
    const events = await (await sing({ stream: true }, { output_guardrails: [DENY] }, LOOSE)).text();
    expect(events).toMatch(/event: judged\ndata: \{"hook_results":.*\n\n(?:data: .*\n\n)?data: \[DONE\]\n\n$/);
    const strict = await (await sing({ stream: true }, { output_guardrails: [DENY] })).text();
    expect(strict).not.toContain('hook_results');
  });

  it('is what a refusal is written in that is told as an ordinary answer', async () => {
    const soft = { input_guardrails: [{ ...DENY, soft_deny_200: true }] };
    const whole = await sing({ input: said('a secret') }, soft);
    expect([whole.status, await whole.json()]).toEqual([
      200,
      { poem: ['The request was denied by a guardrail.'], singer: 'bard' },
    ]);
    const stream = await sing({ input: said('a secret'), stream: true }, soft);
    expect([stream.status, await stream.text()]).toEqual([
      200,
      'data: {"of":0,"line":"The request was denied by a guardrail."}\n\ndata: [DONE]\n\n',
    ]);
  });

  it('needs the member that it names: an answer without it fails, and the next target is asked', async () => {
    const target = { provider: `@${provider}` };
    const targets = JSON.stringify({ strategy: { mode: 'fallback' }, targets: [target, target] });
    let asked = 0;
    upstream.answer = (request, response) => {
      asked += 1;
      if (asked === 1) sendJson(response, 200, { model: 'bard', usage });
      else answer(request, response);
    };
    const body = { model: 'bard', input: said('Sing.') };
    const answered = await server.call('/verses', body, { 'x-gateway-config': targets });
    upstream.answer = answer;
    expect([answered.status, asked]).toEqual([200, 2]);
    expect(await answered.json()).toMatchObject({ poem: ['Once upon a time'] });
  });
});
