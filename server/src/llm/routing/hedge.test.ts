/** Hedged requests: another call while the first is silent, the first useful answer, and who pays for the rest. */
import type { ServerResponse } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { budgetKey, eventually, settledBooks } from '../../../test/support/budgets.ts';
import { type Call, type FaultyUpstream, PIECES, startFaulty, streamed, whole } from '../../../test/support/faults.ts';
import { startServer, type TestServer } from '../../../test/support/server.ts';
import { sendJson } from '../../../test/support/upstream.ts';

const TEXT = PIECES.join('');

interface Tokens {
  readonly input: number;
  readonly output: number;
}

let server: TestServer;
let upstream: FaultyUpstream;
/** What the n-th call of a model does; silent when there is nothing. */
const scripts = new Map<string, readonly ((call: Call, response: ServerResponse) => void)[]>();

beforeAll(async () => {
  upstream = await startFaulty((call, response) => {
    scripts.get(call.model)?.[upstream.callsOf(call.model) - 1]?.(call, response);
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
}, 60_000);

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const silent = () => {};
const answers = ({ model, stream }: Call, response: ServerResponse) => {
  if (!stream) return sendJson(response, 200, whole('chat', model, TEXT));
  const { start, content, end } = streamed('chat', model, PIECES);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.end([...start, ...content, ...end].join(''));
};
const later = (ms: number) => (call: Call, response: ServerResponse) => {
  setTimeout(() => answers(call, response), ms);
};
const fails = (_call: Call, response: ServerResponse) =>
  sendJson(response, 500, { error: { message: 'broken', type: 'api_error', code: null } });

async function ask(
  model: string,
  script: readonly ((call: Call, response: ServerResponse) => void)[],
  {
    hedge = { delay: 100 },
    stream = false,
    key,
    more = {},
  }: { hedge?: object; stream?: boolean; key?: string; more?: object } = {},
) {
  scripts.set(model, script);
  const config = {
    provider: 'openai',
    api_key: 'sk-own',
    custom_host: `${upstream.url}/v1`,
    override_params: { model },
    hedge,
    ...more,
  };
  const body = { model: 'any', messages: [{ role: 'user', content: 'Where to?' }], max_tokens: 20 };
  const answer = await server.call('/chat/completions', stream ? { ...body, stream } : body, {
    'x-gateway-config': JSON.stringify(config),
    ...(key === undefined ? {} : { 'x-gateway-api-key': key }),
  });
  const text = await answer.text();
  const [record] = await server.records();
  return {
    status: answer.status,
    text,
    headers: answer.headers,
    record: record as { usage: Tokens; attempts: unknown[] },
  };
}

describe('a call that is silent', () => {
  it.each([false, true])('is made once more, and what answers first is taken (stream: %s)', async (stream) => {
    const { status, text, record, headers } = await ask(`h1-${stream}`, [silent, answers], { stream });
    expect(status).toBe(200);
    expect(text).toContain('way.');
    expect(upstream.callsOf(`h1-${stream}`)).toBe(2);
    expect(record).toMatchObject({
      outcome: 'ok',
      usage_estimated: true,
      attempts: [
        { status: null, error: 'hedge_lost' },
        { status: 200, error: null },
      ],
    });
    // The second is no retry of the first.
    expect(headers.get('x-gateway-retry-attempt-count')).toBe('0');
    expect(
      await eventually(
        () => upstream.pending,
        (pending) => pending === 0,
      ),
    ).toBe(0);
  });

  it('wins all the same when it answers before the other', async () => {
    const { status, record } = await ask('h2', [later(250), silent]);
    expect(status).toBe(200);
    expect(record).toMatchObject({ attempts: [{ error: 'hedge_lost' }, { status: 200, error: null }] });
  });

  it('is made as often as the config allows, and no more', async () => {
    const { status } = await ask('h3', [silent, silent, answers], { hedge: { delay: 50, max: 2 } });
    expect(status).toBe(200);
    expect(upstream.callsOf('h3')).toBe(3);
    const alone = await ask('h4', [silent, silent, answers], {
      hedge: { delay: 50 },
      more: { request_timeout: 2_000 },
    });
    expect(alone.status).toBe(408);
    expect(upstream.callsOf('h4')).toBe(2);
    expect(
      await eventually(
        () => upstream.pending,
        (pending) => pending === 0,
      ),
    ).toBe(0);
  });

  it('is not given up for another that fails', async () => {
    let failed: () => void = () => {};
    const after = new Promise<void>((resolve) => {
      failed = resolve;
    });
    const { status, record } = await ask('h5', [
      (call, response) => void after.then(() => later(100)(call, response)),
      (call, response) => {
        response.on('finish', failed);
        fails(call, response);
      },
    ]);
    expect(status).toBe(200);
    expect(record).toMatchObject({
      attempts: [
        { status: 500, error: null },
        { status: 200, error: null },
      ],
    });
  });

  it('has the error of the last when all fail', async () => {
    const { status, text } = await ask('h6', [
      (call, response) => void setTimeout(() => fails(call, response), 200),
      fails,
    ]);
    expect(status).toBe(500);
    expect(text).toContain('broken');
  });
});

describe('a call that answers in time', () => {
  it('is the only one', async () => {
    const { record } = await ask('h7', [answers], { hedge: { delay: 5_000 } });
    expect(upstream.callsOf('h7')).toBe(1);
    expect(record).toMatchObject({ usage_estimated: false, attempts: [{ status: 200 }] });
  });

  it('is the only one too when it answers with a failure: that is for retries', async () => {
    const { status } = await ask('h8', [fails], { hedge: { delay: 5_000 } });
    expect(status).toBe(500);
    expect(upstream.callsOf('h8')).toBe(1);
  });
});

describe('limits', () => {
  it('a second call is reserved before it begins, its use is booked, and nothing stays reserved', async () => {
    const caller = await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 100_000 } });
    const { status, record } = await ask('h9', [silent, answers], { key: caller.key });
    expect(status).toBe(200);
    const { input, output } = record.usage;
    // Twice what was asked, and at least twice the answer that one of them gave in one piece.
    expect(input).toBeGreaterThan(9);
    expect(output).toBe(10);
    expect(await settledBooks(server, caller.id)).toMatchObject({ used: input + output, reserved: 0 });
  });

  it.each([
    [1, 1],
    [2, 2],
  ])(
    'a provider that takes %d a day is called %d times: a second call counts in its own rate limit',
    async (value, calls) => {
      const slug = `rated-${value}`;
      await server.provider({ id: 'openai', slug, host: `${upstream.url}/v1` });
      const rate_limits = [{ type: 'requests', unit: 'rpd', value }];
      expect((await server.admin('PUT', `/providers/${slug}`, { rate_limits })).status).toBe(200);
      const account = { provider: `@${slug}`, api_key: undefined, custom_host: undefined };
      const { status } = await ask(slug, [later(400), answers], { more: account });
      expect([status, upstream.callsOf(slug)]).toEqual([200, calls]);
      // Either way nothing is left of its day.
      expect((await ask(slug, [answers, answers, answers], { more: account })).status).toBe(429);
      expect(upstream.callsOf(slug)).toBe(calls);
    },
  );

  it('a call that answers in time counts once in the rate limit of its provider', async () => {
    await server.provider({ id: 'openai', slug: 'rated', host: `${upstream.url}/v1` });
    const rate_limits = [{ type: 'requests', unit: 'rpd', value: 3 }];
    expect((await server.admin('PUT', '/providers/rated', { rate_limits })).status).toBe(200);
    const more = { provider: '@rated', api_key: undefined, custom_host: undefined };
    for (let i = 0; i < 3; i++)
      expect((await ask(`rated-quick-${i}`, [answers], { more, hedge: { delay: 5_000 } })).status).toBe(200);
    expect((await ask('rated-quick-3', [answers], { more })).status).toBe(429);
  });

  it('no second call begins that the limit has no room for', async () => {
    // What one call reserves fits, what two reserve does not.
    const caller = await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 200 } });
    const { status, record } = await ask('h10', [later(400), answers], { key: caller.key });
    expect(status).toBe(200);
    expect(upstream.callsOf('h10')).toBe(1);
    expect(record.attempts).toHaveLength(1);
    expect((await settledBooks(server, caller.id)).reserved).toBe(0);
  });
});
