/** What is reserved for a request before it is sent, against what it really used (docs/decisions/2026-11-22-budgets.md). */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { budgetKey, type Caller } from '../../test/support/budgets.ts';
import { startServer, type TestServer } from '../../test/support/server.ts';
import { loadTokenizer } from '../operations/tokens.ts';

let server: TestServer;
let caller: Caller;

beforeAll(async () => {
  server = await startServer();
  caller = await budgetKey(server, { usage_limits: { type: 'tokens', credit_limit: 1_000_000_000 } });
  await loadTokenizer();
}, 60_000);

afterAll(() => server.stop());

interface Seen {
  readonly estimate: { readonly cost: number; readonly tokens: number; readonly bounded: boolean };
  readonly used: number;
  readonly cost: number;
  readonly status: number;
}

let asked = 0;

/** Sends every body at once and tells, in their order, what was reserved for each and what it used. */
async function send(
  bodies: readonly { path: string; body: object | string; headers?: Record<string, string> }[],
): Promise<Seen[]> {
  const first = asked;
  asked += bodies.length;
  await Promise.all(
    bodies.map(async ({ path, body, headers }, i) => {
      const answer = await server.call(path, body, {
        'x-gateway-api-key': caller.key,
        'x-gateway-trace-id': `estimate-${first + i}`,
        ...headers,
      });
      await answer.text();
    }),
  );
  const records = new Map((await server.records()).map((record) => [record.trace_id, record]));
  return bodies.map((_, i) => {
    const record = records.get(`estimate-${first + i}`);
    const usage = record?.usage as { input: number; output: number } | null;
    const limits = record?.limits as { estimate: Seen['estimate'] };
    return {
      estimate: limits.estimate,
      used: (usage?.input ?? 0) + (usage?.output ?? 0),
      cost: Number(record?.cost_micros ?? 0),
      status: Number(record?.status),
    };
  });
}

/** Text of every kind that encodings are bad at: digits, base64, rare scripts, emoji, control characters, long runs. */
const text = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 200 }),
  fc.string({ unit: 'binary', maxLength: 200 }),
  fc.base64String({ maxLength: 400 }),
  fc
    .array(fc.constantFrom('𝕏', '🏳️‍🌈', 'ꙮ', '\u0000', '\n', ' ', '"', '\\', '٣', '漢', 'a', '1'), { maxLength: 200 })
    .map((parts) => parts.join('')),
  fc.lorem({ maxCount: 40 }),
);
const maximum = fc.integer({ min: 1, max: 200 });
const model = fc.constantFrom('echo', 'lorem?tokens=300');

const tool = text.map((description) => ({
  type: 'function',
  function: {
    name: 'look_up',
    description,
    parameters: { type: 'object', properties: { q: { type: 'string', description } } },
  },
}));

const bodies = fc.oneof(
  fc
    .record({
      system: text,
      said: fc.array(text, { minLength: 1, maxLength: 4 }),
      max: maximum,
      n: fc.integer({ min: 1, max: 4 }),
      model,
      tools: fc.option(fc.array(tool, { minLength: 1, maxLength: 3 })),
      parts: fc.boolean(),
    })
    .map(({ system, said, max, n, model: name, tools, parts }) => ({
      path: '/chat/completions',
      body: {
        model: `@sandbox/${name}`,
        messages: [
          { role: 'system', content: system },
          ...said.map((one) => ({ role: 'user', content: parts ? [{ type: 'text', text: one }] : one })),
        ],
        max_completion_tokens: max,
        n,
        ...(tools === null ? {} : { tools }),
      },
    })),
  fc
    .record({
      prompt: fc.oneof(text, fc.array(text, { minLength: 1, maxLength: 4 })),
      max: maximum,
      n: fc.integer({ min: 1, max: 3 }),
      model,
    })
    .map(({ prompt, max, n, model: name }) => ({
      path: '/completions',
      body: { model: `@sandbox/${name}`, prompt, max_tokens: max, n },
    })),
  fc.record({ system: text, said: text, max: maximum, model }).map(({ system, said, max, model: name }) => ({
    path: '/messages',
    body: { model: `@sandbox/${name}`, system, messages: [{ role: 'user', content: said }], max_tokens: max },
  })),
  fc
    .record({ instructions: text, input: text, max: fc.integer({ min: 16, max: 200 }), model })
    .map(({ instructions, input, max, model: name }) => ({
      path: '/responses',
      body: { model: `@sandbox/${name}`, instructions, input, max_output_tokens: max },
    })),
  fc
    .array(text, { minLength: 1, maxLength: 5 })
    .map((input) => ({ path: '/embeddings', body: { model: '@sandbox/echo', input } })),
  fc.record({ query: text, documents: fc.array(text, { minLength: 1, maxLength: 5 }) }).map((more) => ({
    path: '/rerank',
    body: { model: '@sandbox/echo', ...more },
  })),
);

describe('a bounded estimate', () => {
  it('is never below what the request used, in tokens and in money, whatever the text', async () => {
    let answered = 0;
    let priced = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(bodies, { minLength: 8, maxLength: 16 }), async (batch) => {
        for (const { estimate, used, cost, status } of await send(batch)) {
          expect(estimate.bounded).toBe(true);
          if (status !== 200) continue;
          expect(used).toBeLessThanOrEqual(estimate.tokens);
          expect(cost).toBeLessThanOrEqual(estimate.cost);
          answered += 1;
          priced += cost > 0 ? 1 : 0;
        }
      }),
      { numRuns: 12 },
    );
    expect(answered).toBeGreaterThan(60);
    expect(priced).toBeGreaterThan(30);
  }, 60_000);

  it('no text has more tokens than bytes, in the encodings that are public', async () => {
    const encodings = [
      await import('gpt-tokenizer/encoding/o200k_base'),
      await import('gpt-tokenizer/encoding/cl100k_base'),
    ];
    fc.assert(
      fc.property(text, (one) => {
        for (const { countTokens } of encodings) {
          expect(countTokens(one, { disallowedSpecial: new Set() })).toBeLessThanOrEqual(Buffer.byteLength(one));
        }
      }),
      { numRuns: 300 },
    );
  });

  it('counts every answer that is written, and every prompt', async () => {
    const chat = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 50 };
    const completion = { model: '@sandbox/echo', prompt: 'Hi', max_tokens: 50 };
    const [one, three, best, prompts, tokens, many] = await send([
      { path: '/chat/completions', body: chat },
      { path: '/chat/completions', body: { ...chat, n: 3 } },
      { path: '/completions', body: { ...completion, n: 2, best_of: 5 } },
      { path: '/completions', body: { ...completion, prompt: ['Hi', 'Hello', 'Hey'] } },
      { path: '/completions', body: { ...completion, prompt: [1, 2, 3] } },
      { path: '/chat/completions', body: { ...chat, max_tokens: 1_000_000, n: 3 } },
    ]);
    const input = (seen: Seen | undefined, output: number) => (seen?.estimate.tokens ?? 0) - output;
    expect(input(one, 50)).toBeLessThan(150);
    expect(input(three, 150)).toBeGreaterThan(0);
    expect(input(best, 250)).toBeGreaterThan(0);
    expect(input(prompts, 150)).toBeGreaterThan(0);
    expect(input(tokens, 50)).toBeLessThan(120);
    expect(input(many, 3_000_000)).toBeGreaterThan(0);
    expect([one, three, best, prompts, tokens, many].map((seen) => seen?.estimate.bounded)).toEqual(
      Array(6).fill(true),
    );
  });

  it('is of the body that the provider gets, not of the one the caller sent', async () => {
    const [seen] = await send([
      {
        path: '/chat/completions',
        body: { model: 'lorem?tokens=900', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 5 },
        headers: {
          'x-gateway-config': JSON.stringify({ provider: 'sandbox', override_params: { max_tokens: 700, n: 2 } }),
        },
      },
    ]);
    expect(seen?.status).toBe(200);
    expect(seen?.estimate).toMatchObject({ bounded: true });
    expect(seen?.used).toBeGreaterThan(1000);
    expect(seen?.estimate.tokens).toBeGreaterThanOrEqual(seen?.used ?? 0);
  });
});

const said = [{ role: 'user', content: 'Hi' }];
const chat = { model: '@sandbox/echo', messages: said, max_tokens: 5 };
const part = (content: object) => ({ ...chat, messages: [{ role: 'user', content: [content] }] });
const respond = { model: '@sandbox/echo', input: 'Hi', max_output_tokens: 16 };

describe('a request is not taken for bounded', () => {
  it.each<[string, string, object | string]>([
    ['without a maximum', '/chat/completions', { ...chat, max_tokens: undefined }],
    ['with a maximum of null', '/chat/completions', { ...chat, max_tokens: null }],
    ['with a maximum below 1', '/chat/completions', { ...chat, max_tokens: -1 }],
    ['with a maximum in a text', '/chat/completions', { ...chat, max_tokens: '5' }],
    ['with a maximum nobody reaches', '/chat/completions', { ...chat, max_tokens: 2_000_000 }],
    ['with choices in a text', '/chat/completions', { ...chat, n: '50' }],
    [
      'with a picture',
      '/chat/completions',
      part({ type: 'image_url', image_url: { url: 'https://example.com/a.png' } }),
    ],
    [
      'with a picture spelled in escapes',
      '/chat/completions',
      JSON.stringify(part({ type: 'image_url', image_url: { url: 'https://example.com/a.png' } })).replace(
        '"image_url",',
        '"image\\u005furl",',
      ),
    ],
    ['with sound', '/chat/completions', part({ type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } })],
    ['with a file', '/chat/completions', part({ type: 'file', file: { file_id: 'file-1' } })],
    ['with search', '/chat/completions', { ...chat, web_search_options: {} }],
    [
      'with a picture in a tool result',
      '/messages',
      {
        ...chat,
        messages: [
          {
            role: 'user',
            content: [
              {
                type: 'tool_result',
                tool_use_id: 't',
                content: [{ type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } }],
              },
            ],
          },
        ],
      },
    ],
    [
      'with a tool the provider runs',
      '/messages',
      { ...chat, tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
    ],
    ['that goes on from a stored answer', '/responses', { ...respond, previous_response_id: 'resp_1' }],
    ['with a stored prompt', '/responses', { ...respond, prompt: { id: 'pmpt_1' } }],
    ['with a stored item', '/responses', { ...respond, input: [{ id: 'msg_1' }] }],
    ['with stored reasoning', '/responses', { ...respond, input: [{ type: 'reasoning', id: 'rs_1', summary: [] }] }],
    ['with a search tool', '/responses', { ...respond, tools: [{ type: 'web_search' }] }],
    ['with pictures to embed', '/embeddings', { model: '@sandbox/echo', input: [{ image: 'AAAA' }] }],
    ['that makes pictures', '/images/generations', { model: '@sandbox/echo', prompt: 'a cat', n: 2 }],
    ['that speaks', '/audio/speech', { model: '@sandbox/echo', input: 'Hello', voice: 'alloy' }],
    [
      'that is too large to look at',
      '/chat/completions',
      { ...chat, messages: [{ role: 'user', content: 'a '.repeat(150_000) }] },
    ],
  ])('%s', async (_name, path, body) => {
    const [seen] = await send([{ path, body }]);
    expect(seen?.estimate.bounded).toBe(false);
    expect(seen?.estimate.tokens).toBeGreaterThan(0);
  });

  it('and pictures in its body do not count by their bytes', async () => {
    const url = `data:image/png;base64,${'A'.repeat(2_000_000)}`;
    const [seen] = await send([{ path: '/chat/completions', body: part({ type: 'image_url', image_url: { url } }) }]);
    expect(seen?.estimate.tokens).toBeLessThan(20_000);
  });
});

describe('what costs nothing', () => {
  it.each<[string, object]>([
    ['/moderations', { model: '@sandbox/echo', input: 'Hi' }],
    ['/messages/count_tokens', { model: '@sandbox/echo', messages: said }],
  ])('%s reserves no tokens', async (path, body) => {
    const [seen] = await send([{ path, body }]);
    expect(seen?.estimate).toEqual({ cost: 0, tokens: 0, bounded: true });
  });
});
