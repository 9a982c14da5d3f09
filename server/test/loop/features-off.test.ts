// Own process: V8 counts the calls of every function in it.
/**
 * A feature that is off costs nothing: no function of it is called for a request, as V8 counts calls, also beside configs
 * that have everything on.
 */
import { Session } from 'node:inspector/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Step } from '../../src/llm/exchange.ts';
import { stepsFor } from '../../src/llm/pipeline.ts';
import { NONE } from '../../src/llm/plan.ts';
import type { Family } from '../../src/operations/operation.ts';
import { budgetKey } from '../support/budgets.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { chatStream } from '../support/streams.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

const OFF = { ...NONE, rateLimits: false, usageLimits: false, guardrails: false, route: false };
const names = (steps: readonly Step[]) => steps.map(({ name }) => name);
/** What is run between head and tail, for one target. */
const between = (family: Family, features: Partial<typeof OFF> = {}) => {
  const { request, target } = stepsFor(family, { ...OFF, ...features }, false);
  return [...names(request), ...names(target)];
};

describe('the steps of a request', () => {
  it('with nothing on are the call, and what makes it', () => {
    for (const family of ['chat', 'text', 'binary', 'read', 'proxy'] as const)
      expect(between(family)).toEqual(['tryOnlyTarget', 'buildTargetRequest', 'callTarget']);
    expect(names(stepsFor('chat', OFF, false).tail)).toEqual(['settle', 'record', 'releaseBodies', 'freeSlot']);
  });

  it.each([
    ['rateLimits', ['admit', 'tryOnlyTarget', 'buildTargetRequest', 'callTarget']],
    ['usageLimits', ['reserve', 'tryOnlyTarget', 'buildTargetRequest', 'callTarget']],
    ['guardrails', ['tryOnlyTarget', 'guard', 'buildTargetRequest', 'callTarget']],
    ['route', ['choose', 'tryTargets', 'buildTargetRequest', 'callTarget']],
    ['media', ['tryOnlyTarget', 'fetchMedia', 'buildTargetRequest', 'callTarget']],
    ['owners', ['tryOnlyTarget', 'buildTargetRequest', 'checkOwners', 'callTarget']],
    ['cache', ['tryOnlyTarget', 'buildTargetRequest', 'lookUpInCache', 'callTarget']],
  ] as const)('with %s are %j', (feature, steps) => {
    expect(between('chat', { [feature]: true })).toEqual(steps);
  });
});

interface Feature {
  readonly name: string;
  /** Where its code lies. */
  readonly code: RegExp;
  /** What puts it on. */
  readonly config: (provider: string) => object;
  /** It is the key's, and no matter of the config. */
  readonly limited?: boolean;
  /** It is the key's: bodies of its requests are kept. */
  readonly kept?: boolean;
  /** Only streams know it. */
  readonly streams?: boolean;
}

const FEATURES: readonly Feature[] = [
  {
    name: 'routing',
    code: /\/src\/llm\/(?:routing\/|steps\/route\.ts)/,
    config: (provider) => ({ strategy: { mode: 'fallback' }, targets: [{ provider }, { provider }] }),
  },
  {
    name: 'a cache',
    code: /\/src\/llm\/cache\//,
    config: (provider) => ({ provider, cache: { mode: 'simple' } }),
  },
  {
    name: 'hedging',
    code: /\/src\/llm\/(?:hedge|relay\/hedge-race)\.ts/,
    config: (provider) => ({ provider, hedge: { delay: 5000 } }),
  },
  {
    name: 'on_break',
    code: /\/src\/llm\/relay\/(?:delivered-prefix|stream-resume)\.ts/,
    config: (provider) => ({ provider, retry: { attempts: 1 }, stream: { on_break: 'continue' } }),
    streams: true,
  },
  {
    name: 'guardrails',
    code: /\/src\/(?:guardrails\/|llm\/guard\/|llm\/steps\/guard\.ts)/,
    config: (provider) => ({
      provider,
      input_guardrails: [{ 'default.contains': { words: ['nowhere'], operator: 'none' }, deny: true }],
      output_guardrails: [{ 'default.contains': { words: ['nowhere'], operator: 'none' }, deny: true }],
    }),
  },
  {
    name: 'limits',
    // What a request is for, `limit-class.ts`, says whether limits are asked.
    code: /\/src\/(?:limits\/(?!limit-class)|llm\/steps\/(?:admit|reserve)\.ts)/,
    config: (provider) => ({ provider }),
    limited: true,
  },
  {
    name: 'kept bodies',
    // Whether any are kept is asked of each request, by `begin.ts` and `keep.ts`.
    code: /\/src\/(?:llm\/bodies\/capture|gateway\/(?:body-log|part-writer)|telemetry\/bodies\/)/,
    config: (provider) => ({ provider }),
    kept: true,
  },
];

const ROUNDS = 3;
const REQUESTS = 8;
const configs = new Map<string, string>();
const session = new Session();
let upstream: FakeUpstream;
let server: TestServer;
let limitedKey: string;
let keptKey: string;
let provider: string;

beforeAll(async () => {
  upstream = await startUpstream((request, response) => {
    if (request.body.includes('"stream":true')) sendEvents(response, chatStream('one', ' two'));
    else {
      const message = { role: 'assistant', content: 'fine' };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
      sendJson(response, 200, { id: 'c', object: 'chat.completion', created: 1, model: 'gpt-4o', choices, usage });
    }
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` }, { writeAccess: () => {} });
  provider = `@${await server.provider({ id: 'openai', host: `${upstream.url}/v1` })}`;
  const { workspace_id } = server.first;
  const all = [{ name: 'off', config: () => ({ provider }) }, ...FEATURES];
  for (const { name, config } of all) {
    const { status, body } = await server.admin('POST', '/configs', { name, config: config(provider), workspace_id });
    if (status !== 200) throw new Error(JSON.stringify(body));
    configs.set(name, String(body.slug));
  }
  const limits = {
    rate_limits: [{ type: 'requests', unit: 'rpd', value: 100_000 }],
    usage_limits: { type: 'tokens', credit_limit: 1_000_000 },
  };
  limitedKey = (await budgetKey(server, limits)).key;
  expect((await server.admin('PUT', '/admin/organisation/settings', { debug_log: 0 })).status).toBe(200);
  const keeps = { name: 'k', scopes: ['completions.write'], workspace_id, defaults: { debug_log: 1 } };
  keptKey = String((await server.admin('POST', '/api-keys/workspace/service', keeps)).body.key);
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
}, 60_000);

afterAll(async () => {
  await session.post('Profiler.stopPreciseCoverage');
  session.disconnect();
  await server?.stop();
  await upstream?.stop();
});

async function ask(headers: Record<string, string>, stream: boolean): Promise<void> {
  const messages = [{ role: 'user', content: 'hello' }];
  const answer = await server.call('/chat/completions', { model: 'gpt-4o', messages, stream }, headers);
  expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining(stream ? '[DONE]' : 'fine')]);
}

/**
 * Functions that are called for each of some requests alike, `<file> <function>`. What the process does beside them now and
 * then is told apart by asking several times.
 */
async function calledBy(headers: Record<string, string>, stream: boolean): Promise<string[]> {
  for (let i = 0; i < 2; i++) await ask(headers, stream);
  const rounds: Set<string>[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await session.post('Profiler.takePreciseCoverage');
    for (let i = 0; i < REQUESTS; i++) await ask(headers, stream);
    const { result } = await session.post('Profiler.takePreciseCoverage');
    const called = new Set<string>();
    for (const { url, functions } of result) {
      const file = url.replace(/^.*(?=\/src\/)/, '');
      for (const { functionName, ranges } of functions) {
        // The runner of the tests reads what a module exports by a function without a name.
        const often = functionName !== '' && (ranges[0]?.count ?? 0) >= REQUESTS;
        if (often) called.add(`${file} ${functionName}`);
      }
    }
    rounds.push(called);
  }
  return [...(rounds[0] ?? [])].filter((one) => rounds.every((called) => called.has(one)));
}

describe.each([false, true])('a request (stream: %s)', (stream) => {
  it.each([
    ['under no config', () => ({ 'x-gateway-provider': provider })],
    ['under a config that has none of them', () => ({ 'x-gateway-config': configs.get('off') ?? '' })],
  ])('%s calls no function of any feature', async (_title, headers) => {
    const called = await calledBy(headers(), stream);
    // That calls are counted at all.
    expect(called).toContain('/src/llm/steps/try-only-target.ts tryOnlyTarget');
    for (const { name, code } of FEATURES) expect([name, called.filter((one) => code.test(one))]).toEqual([name, []]);
    // By its default it has lines of failures only.
    expect(called.filter((one) => one.startsWith('/src/telemetry/access-log.ts'))).toEqual([]);
  });

  it.each(FEATURES.filter(({ streams }) => stream || streams !== true))(
    'under a config with $name calls functions of it and of no other feature',
    async ({ name, limited, kept }) => {
      const headers = {
        'x-gateway-config': configs.get(name) ?? '',
        ...(limited === true ? { 'x-gateway-api-key': limitedKey } : {}),
        ...(kept === true ? { 'x-gateway-api-key': keptKey } : {}),
      };
      const called = await calledBy(headers, stream);
      for (const { name: other, code } of FEATURES) {
        const own = called.filter((one) => code.test(one));
        if (other === name) expect(own).not.toEqual([]);
        else expect([other, own]).toEqual([other, []]);
      }
    },
  );
});
