// Own process: the steps of the one table of the process are wrapped.
/**
 * What requests go through, beside the table on the architecture page: the steps of the table are wrapped, which costs a
 * server nothing that does not run this file.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Exchange } from '../../src/llm/exchange.ts';
import { TABLE } from '../../src/llm/pipeline.ts';
import { budgetKey } from '../support/budgets.ts';
import { PAGE, type Part, rowsOf, tableOn } from '../support/pipeline-table.ts';
import { startServer, type TestServer } from '../support/server.ts';
import { chatStream } from '../support/streams.ts';
import { type FakeUpstream, sendEvents, sendJson, startUpstream } from '../support/upstream.ts';

const printed = rowsOf(tableOn(readFileSync(PAGE, 'utf8')).table);

interface Kind {
  /** Where `tryOnlyTarget` runs the target once: what its row conditions find in the plan. */
  readonly plan?: readonly string[];
  /** Of each of several targets that is tried. */
  readonly targets?: readonly (readonly string[])[];
  readonly group?: 'calls' | 'objects';
  readonly dryRun?: boolean;
  /** The step that ends the request: what comes after it, but for the tail, does not run. */
  readonly ends?: string;
  /** How many attempts had an answer that is no error; one. */
  readonly answers?: number;
}

/** The steps that the page lists for a request of this kind. */
function listed({ plan = [], targets, group = 'calls', dryRun = false, ends = '', answers = 1 }: Kind): string[] {
  const several = targets === undefined ? 'one target' : 'several targets';
  const dry = dryRun ? 'dry run' : 'no dry run';
  const rows = (part: Part, holds: readonly string[]) =>
    printed
      .filter((row) => row.part === part && (row.group === 'all' || row.group === group))
      .filter(({ when }) => when.every((name) => [...holds, several, dry].includes(name)))
      .map(({ step }) => step);
  const out: string[] = [];
  /** Whether the request ends there. */
  const upTo = (steps: readonly string[], after: (step: string) => boolean = () => false) =>
    steps.some((step) => {
      out.push(step);
      return step === ends || after(step);
    });
  const planned = !upTo(rows('head', []));
  if (planned)
    upTo(rows('request', plan), (step) => {
      if (step !== 'tryOnlyTarget' && step !== 'tryTargets') return false;
      const tried = targets ?? [plan];
      const answered = tried.length - answers;
      for (const [i, holds] of tried.entries())
        upTo(rows('target', holds), (one) => {
          if (one === 'callTarget' && i >= answered) out.push(...rows('answer', holds));
          return false;
        });
      return true;
    });
  out.push(...rows('tail', planned ? plan : []));
  return out;
}

const traces = new WeakMap<Exchange, string[]>();
let ended: (steps: readonly string[]) => void = () => {};

/** What a request went through, once its last step is done. */
async function traceOf(ask: () => Promise<number>, status: number): Promise<readonly string[]> {
  const trace = new Promise<readonly string[]>((resolve) => {
    ended = resolve;
  });
  expect(await ask()).toBe(status);
  return trace;
}

const seen = new Set<string>();
for (const rows of Object.values(TABLE))
  for (const row of rows as readonly unknown[] as { step: (x: Exchange, ...rest: unknown[]) => unknown }[]) {
    const { step } = row;
    row.step = (x, ...rest) => {
      const trace = traces.get(x) ?? [];
      traces.set(x, trace);
      trace.push(step.name);
      seen.add(step.name);
      const done = step(x, ...rest);
      if (step.name === 'freeSlot') ended(trace);
      return done;
    };
  }

let upstream: FakeUpstream;
let server: TestServer;
let openai: string;
let anthropic: string;
let google: string;
let down: string;

beforeAll(async () => {
  upstream = await startUpstream(({ path, body }, response) => {
    if (path.startsWith('/down/')) return sendJson(response, 503, { error: { message: 'down', type: 'server_error' } });
    if (body.includes('"stream":true')) {
      if (!body.includes('endless')) return sendEvents(response, chatStream('one', ' two'));
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(chatStream('one').slice(0, 2).join(''));
    } else if (path.endsWith('/messages')) {
      const content = [{ type: 'text', text: 'fine' }];
      const usage = { input_tokens: 3, output_tokens: 1 };
      const said = { id: 'm', type: 'message', role: 'assistant', model: 'claude-sonnet-4-5', content, usage };
      sendJson(response, 200, { ...said, stop_reason: 'end_turn', stop_sequence: null });
    } else {
      const message = { role: 'assistant', content: 'fine' };
      const usage = { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      sendJson(response, 200, { id: 'c', object: 'chat.completion', created: 1, model: 'gpt-4o', choices, usage });
    }
  });
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  openai = `@${await server.provider({ id: 'openai', host: `${upstream.url}/v1` })}`;
  anthropic = `@${await server.provider({ id: 'anthropic', host: `${upstream.url}/v1` })}`;
  google = `@${await server.provider({ id: 'google', host: `${upstream.url}/v1beta` })}`;
  down = `@${await server.provider({ id: 'openai', host: `${upstream.url}/down/v1`, slug: 'down' })}`;
}, 60_000);

afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const CHAT = { model: 'gpt-4o', max_tokens: 16, messages: [{ role: 'user', content: 'hello' }] };
const under = (config: object) => ({ 'x-gateway-config': JSON.stringify(config) });
const words = (words: string[]) => ({ 'default.contains': { words, operator: 'none' }, deny: true });

/** Asks, reads all of the answer, and says its status. */
async function chat(headers: Record<string, string>, body: object = CHAT): Promise<number> {
  const answer = await server.call('/chat/completions', body, headers);
  await answer.text();
  return answer.status;
}

it('a chat passed through', async () => {
  const trace = await traceOf(() => chat({ 'x-gateway-provider': openai }), 200);
  expect(trace).toEqual(listed({}));
  // As the page has it today, in words: a reader of this file need not open it.
  expect(trace).toEqual(
    `authenticate takeSlot pinSnapshot requireSavedConfig readRequestBody resolve
     tryOnlyTarget buildTargetRequest callTarget
     settle record releaseBodies freeSlot`.split(/\s+/),
  );
});

it('a chat converted for a provider of another shape', async () => {
  const body = { ...CHAT, model: 'claude-sonnet-4-5' };
  expect(await traceOf(() => chat({ 'x-gateway-provider': anthropic }, body), 200)).toEqual(listed({}));
});

it('a stream', async () => {
  const body = { ...CHAT, stream: true };
  expect(await traceOf(() => chat({ 'x-gateway-provider': openai }, body), 200)).toEqual(listed({}));
});

it('an answer that a cache keeps, and then gives', async () => {
  const headers = under({ provider: openai, cache: { mode: 'simple' } });
  const plan = ['cache'];
  expect(await traceOf(() => chat(headers), 200)).toEqual(listed({ plan }));
  expect(await traceOf(() => chat(headers), 200)).toEqual(listed({ plan, ends: 'lookUpInCache' }));
});

it('a fallback over two targets, each under its own guardrails', async () => {
  const judged = { input_guardrails: [words(['nowhere'])], output_guardrails: [words(['nowhere'])] };
  const targets = [{ provider: down, ...judged }, { provider: openai }];
  const trace = await traceOf(() => chat(under({ strategy: { mode: 'fallback' }, targets })), 200);
  // Some target may have a cache, and objects with owners.
  const plan = ['cache', 'media', 'owned objects'];
  expect(trace).toEqual(listed({ plan, targets: [['guardrails'], ['guardrails']], answers: 1 }));
});

it('a request that an input guardrail denies', async () => {
  const headers = under({ provider: openai, input_guardrails: [words(['hello'])] });
  expect(await traceOf(() => chat(headers), 446)).toEqual(listed({ plan: ['guardrails'], ends: 'guard' }));
});

it.each([false, true])('a request whose answer an output guardrail denies (stream: %s)', async (stream) => {
  const headers = under({ provider: openai, output_guardrails: [words(['fine', 'two'])] });
  expect(await traceOf(() => chat(headers, { ...CHAT, stream }), 446)).toEqual(listed({ plan: ['guardrails'] }));
});

it('a request under rate limits and usage limits, and one that a rate limit refuses', async () => {
  const limits = {
    rate_limits: [{ type: 'requests', unit: 'rpd', value: 1 }],
    usage_limits: { type: 'tokens', credit_limit: 1_000_000 },
  };
  const { key } = await budgetKey(server, limits);
  const headers = { 'x-gateway-provider': openai, 'x-gateway-api-key': key };
  const plan = ['rate limits', 'usage limits'];
  expect(await traceOf(() => chat(headers), 200)).toEqual(listed({ plan }));
  expect(await traceOf(() => chat(headers), 429)).toEqual(listed({ plan, ends: 'admit' }));
});

it('a request without a credential', async () => {
  const ask = async () => {
    const answer = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body: '{}' });
    await answer.text();
    return answer.status;
  };
  expect(await traceOf(ask, 401)).toEqual(listed({ ends: 'authenticate' }));
});

it('a dry run', async () => {
  const headers = { ...under({ provider: openai, cache: { mode: 'simple' } }), 'x-gateway-dry-run': 'true' };
  expect(await traceOf(() => chat(headers), 200)).toEqual(listed({ plan: ['cache'], dryRun: true }));
});

it('the upload of a file', async () => {
  const form = new FormData();
  form.append('purpose', 'batch');
  form.append('file', new Blob(['{}\n']), 'lines.jsonl');
  const ask = async () => {
    const headers = { 'x-gateway-api-key': server.first.workspace_api_key, 'x-gateway-provider': '@sandbox' };
    const answer = await fetch(`${server.url}/v1/files`, { method: 'POST', headers, body: form });
    await answer.text();
    return answer.status;
  };
  expect(await traceOf(ask, 200)).toEqual(listed({ group: 'objects' }));
});

it('a stream whose client leaves', async () => {
  const leaving = new AbortController();
  const ask = async () => {
    const headers = {
      'x-gateway-api-key': server.first.workspace_api_key,
      'x-gateway-provider': openai,
      'content-type': 'application/json',
    };
    const body = JSON.stringify({ ...CHAT, stream: true, messages: [{ role: 'user', content: 'endless' }] });
    const answer = await fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers,
      body,
      signal: leaving.signal,
    });
    await answer.body?.getReader().read();
    leaving.abort();
    return answer.status;
  };
  expect(await traceOf(ask, 200)).toEqual(listed({}));
});

it('a response, which may have an owner', async () => {
  const ask = async () => {
    const body = { model: 'gpt-4o', input: 'hello' };
    const answer = await server.call('/responses', body, { 'x-gateway-provider': openai });
    await answer.text();
    return answer.status;
  };
  expect(await traceOf(ask, 200)).toEqual(listed({ plan: ['owned objects'] }));
});

it('a dry run of a chat to a provider that reads no addresses of pictures', async () => {
  const headers = { 'x-gateway-provider': google, 'x-gateway-dry-run': 'true' };
  const body = { ...CHAT, model: 'gemini-2.5-flash' };
  expect(await traceOf(() => chat(headers, body), 200)).toEqual(listed({ plan: ['media'], dryRun: true }));
});

it('a dry run over two targets', async () => {
  const targets = [{ provider: openai }, { provider: down }];
  const headers = { ...under({ strategy: { mode: 'fallback' }, targets }), 'x-gateway-dry-run': 'true' };
  const kind = { plan: ['cache', 'media', 'owned objects'], targets: [[]], dryRun: true };
  expect(await traceOf(() => chat(headers), 200)).toEqual(listed(kind));
});

it('a fallback over two targets that policies count', async () => {
  const { workspace_id } = server.first;
  const policy = { conditions: [{ key: 'provider', value: '*' }], group_by: [{ key: 'provider' }], workspace_id };
  const made = await Promise.all([
    server.admin('POST', '/policies/rate-limits', { ...policy, type: 'requests', unit: 'rpd', value: 100 }),
    server.admin('POST', '/policies/usage-limits', { ...policy, type: 'tokens', credit_limit: 1_000_000 }),
  ]);
  expect(made.map(({ status }) => status)).toEqual([200, 200]);
  const targets = [{ provider: down }, { provider: openai }];
  const trace = await traceOf(() => chat(under({ strategy: { mode: 'fallback' }, targets })), 200);
  const limits = ['rate limits', 'usage limits'];
  const plan = ['cache', 'media', 'owned objects', ...limits];
  expect(trace).toEqual(listed({ plan, targets: [limits, limits] }));
});

it('every row of the table was run by some request here', () => {
  expect(printed.map(({ step }) => step).filter((step) => !seen.has(step))).toEqual([]);
});
