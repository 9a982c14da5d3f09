import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import { deepFrozen } from '../../../test/support/frozen.ts';
import {
  contextOf,
  fixturesOf,
  type RequestCase,
  runAnswer,
  runEvents,
} from '../../../test/support/provider-fixtures.ts';
import { systemClock, TestClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { JsonScanError, scanJson } from '../../kernel/json-scan.ts';
import { silentLog } from '../../kernel/log.ts';
import { OPERATIONS, type OperationId } from '../../operations/operation.ts';
import { bindingFor } from '../../providers/binding.ts';
import { PROVIDERS } from '../../providers/catalog.ts';
import type { CallContext, Provider } from '../../providers/provider.ts';
import type { Exchange } from '../exchange.ts';
import { readAnswer } from '../relay/read-answer.ts';
import { type BodyOrder, makeBody, partsOf } from '../request-body.ts';
import { RequestBody } from '../state/body.ts';
import { WANTED } from '../steps/read-body.ts';
import type { Target } from '../target.ts';
import { isLargeBody, makeBodyOnThread, readAnswerOnThread, SharedPieces, scanOnThread } from './calls.ts';
import { SETTINGS } from './settings.ts';
import { LargeBodies, startThread } from './thread.ts';

const large = new LargeBodies(systemClock, silentLog);
afterAll(() => large.close());

interface ProviderFixture {
  readonly provider: Provider;
  readonly operation: OperationId;
  readonly name: string;
  readonly text: string;
}

/** Fixtures of every provider whose case begins with `kind`. */
function fixtures(kind: 'request' | 'answer' | 'stream'): ProviderFixture[] {
  const remote = [...PROVIDERS.values()].filter(({ local }) => local === undefined);
  return remote.flatMap((provider) =>
    fixturesOf(provider.id)
      .filter(({ operation, name }) => name.startsWith(kind) && Object.hasOwn(OPERATIONS, operation))
      .map(({ operation, name, in: text }) => ({
        provider,
        operation,
        name: `${provider.id} ${operation}.${name}`,
        text,
      })),
  );
}

/** As much of an exchange as a job asks for. */
function exchange(bodies = large, headers: Readonly<Record<string, string>> = {}): Exchange {
  return testExchange({ headers }, { large: bodies });
}
const targetOf = (provider: Provider) => ({ provider }) as unknown as Target;

function orderOf(operation: OperationId, body: Buffer, stream: boolean, more: Partial<BodyOrder> = {}): BodyOrder {
  return {
    operation,
    body: new RequestBody(body, null),
    scan: scanJson(body, WANTED),
    asked: 'm',
    deployment: false,
    stream,
    shaped: false,
    shaping: null,
    media: null,
    shown: null,
    prefill: null,
    explained: false,
    came: null,
    ...more,
  };
}

/** Everything a job can end in, in a form that can be compared. */
async function outcome(run: () => unknown): Promise<unknown> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof JsonScanError) return { scan: error.reason, offset: error.offset, message: error.message };
    if (!(error instanceof SluiceError)) throw error;
    const { kind, message, param, reason, provider } = error;
    return { refused: { kind, message, param, reason, provider } };
  }
}

/** What a request becomes in the event loop and in the thread. */
async function requests(provider: Provider, context: CallContext, given: RequestCase, order: BodyOrder) {
  const bound = bindingFor(provider, context.operation, context.model, context.credentials);
  if (bound === null) throw new Error(`${provider.id} does not serve ${context.operation}`);
  const told = (made: ReturnType<typeof makeBody>) => ({
    bytes: partsOf(made, order.body.bytes).map(String),
    changes: made.changes,
    headers: made.headers,
    stripUsage: made.stripUsage,
    fanOut: made.fanOut,
  });
  const x = exchange(large, given.headers);
  // All readers share the values of a body: a transform that changes them would change another's request.
  deepFrozen(order.body.value());
  const here = await outcome(() => told(makeBody(order, bound, { ...context })));
  const there = await outcome(async () =>
    told((await makeBodyOnThread(x, targetOf(provider), { ...context }, order, [])).made),
  );
  return { here, there };
}

const spaces = (text: string, length: number) => Buffer.from(text.trimEnd() + ' '.repeat(length));

describe('the thread for large bodies', () => {
  it('makes of the request of every fixture the bytes, headers and refusals that the event loop makes', async () => {
    const all = fixtures('request');
    expect(all.length).toBeGreaterThan(200);
    for (const { provider, operation, name, text } of all) {
      const given = JSON.parse(text) as RequestCase;
      if (given.body === undefined || given.form !== undefined) continue;
      const context = contextOf(operation, given);
      const order = orderOf(operation, Buffer.from(JSON.stringify(given.body)), context.stream, { explained: true });
      const { here, there } = await requests(provider, context, given, order);
      expect({ name, made: there }).toEqual({ name, made: here });
    }
  }, 60_000);

  it('reads every fixture of an answer as the event loop does', async () => {
    const all = fixtures('answer');
    expect(all.length).toBeGreaterThan(80);
    for (const { provider, operation, name, text } of all) {
      const { asked, answer } = JSON.parse(text) as { asked?: JsonObject; answer: JsonObject };
      const context = contextOf(operation, asked === undefined ? {} : { body: asked });
      const bound = bindingFor(provider, operation, context.model);
      if (bound === null) continue;
      const raw = Buffer.from(JSON.stringify(answer));
      const order = { operation, headers: [], creates: true };
      const pieces = new SharedPieces();
      pieces.add(raw);
      const here = await outcome(() => {
        const { bytes, ...read } = readAnswer({ ...order, raw }, bound, context);
        return { ...read, said: (bytes ?? raw).toString() };
      });
      const there = await outcome(
        () =>
          new Promise((resolve, reject) => {
            readAnswerOnThread(
              exchange(),
              targetOf(provider),
              context,
              null,
              { ...order, raw: pieces },
              (read, parts) => {
                if (read instanceof Error) reject(read);
                else resolve({ ...read, bytes: undefined, said: Buffer.concat(parts).toString() });
              },
            );
          }),
      );
      pieces.giveBack();
      expect({ name, read: there }).toEqual({ name, read: here });
    }
  }, 60_000);

  it.each([
    ['fits into the memory of the answer', { type: 'text', text: 'The weather is fine. '.repeat(250_000) }, true],
    [
      'is longer than that memory',
      {
        type: 'tool_use',
        id: 't',
        name: 'f',
        input: { k: '"\\'.repeat(520_000) },
      },
      false,
    ],
  ])('converts an answer of several pieces, whose result %s', async (_, block, fits) => {
    const provider = PROVIDERS.get('anthropic') as Provider;
    const answer = {
      id: 'm',
      type: 'message',
      role: 'assistant',
      model: 'm',
      content: [block],
      stop_reason: 'end_turn',
    };
    const raw = Buffer.from(JSON.stringify(answer));
    const context = contextOf('chat', { body: { model: 'm' } });
    const bound = bindingFor(provider, 'chat', 'm') as NonNullable<ReturnType<typeof bindingFor>>;
    const order = { operation: 'chat' as const, headers: [], creates: false };
    const pieces = new SharedPieces();
    pieces.add(raw);
    const here = readAnswer({ ...order, raw }, bound, context).bytes as Buffer;
    const { read, parts } = await new Promise<{ read: { bytes: Buffer | null }; parts: readonly Buffer[] }>(
      (resolve, reject) => {
        readAnswerOnThread(exchange(), targetOf(provider), context, null, { ...order, raw: pieces }, (read, parts) => {
          if (read instanceof Error) reject(read);
          else resolve({ read, parts });
        });
      },
    );
    expect(Buffer.concat(parts).equals(here)).toBe(true);
    expect(read.bytes === null).toBe(fits);
    pieces.giveBack();
  });

  it('makes the same bytes whatever the size, on both sides of the bound', async () => {
    const provider = PROVIDERS.get('openai');
    if (provider === undefined) throw new Error('no provider');
    const sizes = new Set<boolean>();
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 50 }),
      fc.constantFrom('é€', '\u2028', '\\n"', '\u0000'),
    );
    const number = fc.constantFrom('1e400', '12345678901234567890', '-0', '1.50', '0');
    await fc.assert(
      fc.asyncProperty(text, number, fc.integer({ min: 0, max: 900_000 }), async (unit, seed, length) => {
        const long = unit === '' ? '' : unit.repeat(Math.ceil(length / unit.length));
        const members = `"model":"m","max_tokens":9,"metadata":{"user_id":"u"},"temperature":1`;
        const messages = `[{"role":"user","content":${JSON.stringify(`a${long}`)}}]`;
        const body = Buffer.from(`{${members},"top_k":null,"messages":${messages}, "x_${length}":${seed}}`);
        const context = { ...contextOf('messages', { body: { model: 'm' } }), body: undefined } as CallContext;
        const order = orderOf('messages', body, false, { shaping: null });
        sizes.add(isLargeBody(order));
        const { here, there } = await requests(provider, context, {}, order);
        expect(there).toEqual(here);
      }),
      { numRuns: 25 },
    );
    expect([...sizes].sort()).toEqual([false, true]);
  }, 60_000);

  it('scans as the event loop does, and names the same faults', async () => {
    const texts = [
      '{"model":"m","stream":true}',
      '{}',
      '',
      '[1]',
      '{"a":1,"a":2}',
      '{"a":tru}',
      `{"a":"\u0001"}`,
      '{"a":1} 2',
    ];
    for (const text of texts) {
      const body = spaces(text, 2_000_000);
      const seen = (scan: ReturnType<typeof scanJson>) => [
        scan.get('model'),
        scan.get('stream'),
        scan.insertAt,
        scan.empty,
      ];
      const here = await outcome(() => seen(scanJson(body, WANTED)));
      expect(await outcome(async () => seen(await scanOnThread(exchange(), body, WANTED)))).toEqual(here);
    }
  });

  it('looks for texts, so that nobody searches 30 MB in the event loop', async () => {
    const holds = async (text: string) =>
      (await scanOnThread(exchange(), Buffer.from(`{"x":"${text}"}`), [], ['here', 'gone'])).texts;
    expect(await holds('is here')).toEqual(
      new Map([
        ['here', true],
        ['gone', false],
      ]),
    );
  });

  it('hands the headers over that a transform has looked at', async () => {
    const provider = PROVIDERS.get('bedrock');
    if (provider === undefined) throw new Error('no provider');
    const body = { model: 'anthropic.claude-3', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 9 };
    const given = { body, headers: { 'anthropic-beta': 'one' } };
    const context = contextOf('messages', given);
    const order = orderOf('messages', Buffer.from(JSON.stringify(body)), false);
    const seen: string[] = [];
    await makeBodyOnThread(exchange(large, given.headers), targetOf(provider), context, order, seen);
    expect(seen).toContain('anthropic-beta');
  });
});

describe('a client that leaves', () => {
  it('is told so at once, and its body is not worked on', async () => {
    const posted: string[] = [];
    const bodies = new LargeBodies(systemClock, silentLog, () => ({
      post: ({ job }) => posted.push(job.kind),
      end: () => undefined,
    }));
    const x = exchange(bodies);
    const [first, second] = [scanOnThread(x, Buffer.from('{}'), []), scanOnThread(x, Buffer.from('{}'), [])];
    x.cancel?.(new SluiceError('client_closed', 'The client closed the connection.'));
    await expect(second).rejects.toMatchObject({ kind: 'client_closed' });
    expect(posted).toEqual(['scan']);
    await bodies.close();
    await expect(first).rejects.toMatchObject({ kind: 'out_of_service' });
    x.clientGone = true;
    await expect(scanOnThread(x, Buffer.from('{}'), [])).rejects.toMatchObject({ kind: 'client_closed' });
  });
});

describe('conversions of streams and answers', () => {
  it('read nothing of the request but the settings that come back from the thread', () => {
    const read = new Set<string>();
    const known = new Set<string>(SETTINGS);
    const watched = () =>
      new Proxy<JsonObject>({ model: 'm', stream: true } as JsonObject, {
        get: (target, name) => {
          if (typeof name === 'string') read.add(name);
          return Reflect.get(target, name) as unknown;
        },
      });
    for (const { provider, operation, text } of fixtures('stream')) {
      for (const caller of ['chat', 'messages', 'responses'] as const) {
        if (bindingFor(provider, caller)?.stream === undefined && caller !== operation) continue;
        try {
          runEvents(provider, caller, [Buffer.from(text)], watched());
        } catch {
          // A stream of another operation.
        }
      }
    }
    for (const { provider, operation, text } of fixtures('answer')) {
      for (const caller of ['chat', 'messages', 'responses'] as const) {
        if (caller !== operation && bindingFor(provider, caller)?.convert == null) continue;
        const { answer } = JSON.parse(text) as { answer: JsonObject };
        runAnswer(provider, caller, answer, watched());
      }
    }
    read.delete('model');
    read.delete('stream');
    expect([...read].filter((name) => !known.has(name))).toEqual([]);
    expect(read.size).toBeGreaterThan(5);
  });
});

describe('a thread that fails', () => {
  const SCAN = { job: { kind: 'scan', body: new Uint8Array(Buffer.from('{}')), wanted: [] }, memory: [] } as const;
  const path = (code: string) => new URL(`data:text/javascript,${encodeURIComponent(code)}`);
  const run = (bodies: LargeBodies) =>
    new Promise((resolve) => {
      bodies.run('o', SCAN, resolve);
    });
  const ONCE = `
    import { parentPort } from 'node:worker_threads';
    parentPort.on('message', ({ wanted }) => {
      if (wanted.length === 0) process.exit(3);
      parentPort.postMessage({ done: 'again' });
    });`;

  it('answers what broke it with an error, and what comes next is done by another', async () => {
    const bodies = new LargeBodies(systemClock, silentLog, startThread(systemClock, silentLog, path(ONCE)));
    const failed = run(bodies);
    const next = new Promise((resolve) => {
      bodies.run('p', { ...SCAN, job: { ...SCAN.job, wanted: ['a'] } }, resolve);
    });
    expect(await failed).toMatchObject({ kind: 'out_of_service', retryAfter: 1 });
    expect(await next).toBe('again');
    await bodies.close();
  });

  it('is ended when a body takes too long', async () => {
    const clock = new TestClock(0);
    const silent = `import { parentPort } from 'node:worker_threads'; parentPort.on('message', () => {});`;
    const bodies = new LargeBodies(clock, silentLog, startThread(clock, silentLog, path(silent)));
    const failed = run(bodies);
    clock.advance(29_999);
    clock.advance(1);
    expect(await failed).toMatchObject({ kind: 'out_of_service', detail: 'a large body took longer than 30 s' });
    await bodies.close();
  });

  it('leaves nobody waiting when the server stops', async () => {
    const silent = `import { parentPort } from 'node:worker_threads'; parentPort.on('message', () => {});`;
    const bodies = new LargeBodies(systemClock, silentLog, startThread(systemClock, silentLog, path(silent)));
    const all = [run(bodies), run(bodies)];
    await bodies.close();
    for (const one of await Promise.all(all)) expect(one).toMatchObject({ kind: 'out_of_service' });
  });

  it('does not do what was dropped before its turn', async () => {
    const posted: string[] = [];
    const answers: ((reply: { done: never }) => void)[] = [];
    const bodies = new LargeBodies(systemClock, silentLog, (answered) => {
      answers.push(answered as never);
      return { post: ({ job }) => posted.push(job.kind === 'scan' ? String(job.wanted) : ''), end: () => undefined };
    });
    const job = (name: string) => ({ ...SCAN, job: { ...SCAN.job, wanted: [name] } });
    const settled: string[] = [];
    const drop = ['1', '2', '3'].map((name) => bodies.run('o', job(name), () => settled.push(name)));
    drop[1]?.();
    drop[0]?.();
    answers[0]?.({ done: {} as never });
    answers[0]?.({ done: {} as never });
    expect(posted).toEqual(['1', '3']);
    expect(settled).toEqual(['3']);
    await bodies.close();
  });
});
