import { afterAll, describe, expect, it } from 'vitest';
import { testExchange } from '../../../../test/support/exchange.ts';
import { GuardrailState } from '../../../gateway/guardrail-state.ts';
import { CheckError, type CheckHttpClient } from '../../../guardrails/check.ts';
import { compileInline } from '../../../guardrails/compile.ts';
import type { GuardrailResult } from '../../../guardrails/guardrail.ts';
import type { CheckHttpClientFactory } from '../../../guardrails/run.ts';
import { BodyBudget } from '../../../http/body-budget.ts';
import { systemClock, TestClock } from '../../../kernel/clock.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { scanJson } from '../../../kernel/json-scan.ts';
import { silentLog } from '../../../kernel/log.ts';
import { RequestBody } from '../../state/body.ts';
import { WANTED } from '../../steps/read-body.ts';
import { ReplacementError } from '../texts.ts';
import type { FromThread, ToThread } from './messages.ts';
import { GuardrailThread } from './thread.ts';
import { judgeAnswer, judgeInput } from './where-judged.ts';

const thread = new GuardrailThread(systemClock, silentLog);
afterAll(() => thread.close());

/** White space that makes a body large, and says nothing. */
const ROOM = ' '.repeat(200_000);
const chat = (content: unknown) => JSON.stringify({ model: 'm', messages: [{ role: 'user', content }] });
const answered = (content: unknown) =>
  JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }] });

type Say = (request: Parameters<CheckHttpClient['call']>[0], signal: AbortSignal) => Promise<string>;
const verdict: Say = async () => '{"verdict":true,"data":{"n":12345678901234567890}}';
const outsideOf =
  (say: Say): CheckHttpClientFactory =>
  (signal) => ({
    signal,
    most: { bytes: 2 * 1024 * 1024, weight: 50_000 },
    owner: 'o',
    now: () => 0,
    resolves: async (host) => host === 'known.example',
    call: async (request) => ({ status: 200, headers: {}, body: Buffer.from(await say(request, signal)) }),
  });

function exchange(body: string, entries: readonly object[], say = verdict, guardrails = thread) {
  const services = { bodies: new BodyBudget(1e9), log: silentLog, guardrails, outside: () => outsideOf(say) };
  const x = testExchange(
    { body: Buffer.from(body), headers: { 'content-type': 'application/json' } },
    services as never,
  );
  x.attempt.body = new RequestBody(Buffer.from(body), scanJson(Buffer.from(body), WANTED));
  const list = entries.map((entry, i) => compileInline(entry as Record<string, unknown>, `g${i}`));
  const guard = new GuardrailState(x.services, x.request, { input: list, output: list });
  x.guard = guard;
  return { x, list, guard };
}

/** Results without what differs from run to run. */
const plain = (results: readonly GuardrailResult[]) =>
  JSON.parse(JSON.stringify(results, (key, value) => (/^(execution_time|created_at)$/.test(key) ? 0 : value)));

async function request(body: string, entries: readonly object[], say = verdict) {
  const { x, list, guard } = exchange(body, entries, say);
  try {
    const said = await judgeInput(x, guard, list, 'texts');
    if (said === null) return null;
    const { outcome, changed } = said;
    const { results, denied, failed, soft } = outcome;
    const made =
      changed instanceof ReplacementError
        ? changed.message
        : changed && [changed.bytes.toString().trim(), changed.json, changed.scan?.get('model')?.kind];
    return { results: plain(results), denied, failed, soft, made };
  } catch (error) {
    return String(error);
  }
}

async function answer(body: string, entries: readonly object[], say = verdict) {
  const { x, guard } = exchange(chat('Hi'), entries, say);
  guard.before = [];
  const given = {
    status: 200,
    headers: ['content-type', 'application/json'],
    strict: false,
    secrets: ['sk-secret-key'],
  };
  const out = await judgeAnswer(x, guard, { ...given, body: [Buffer.from(body)] });
  const text = out === null ? null : Buffer.concat(out).toString();
  const body_ =
    text === null ? null : JSON.parse(text.replace(/"(execution_time|created_at)":("[^"]*"|[\d.]+)/g, '"$1":0'));
  return { body: body_, after: plain(guard.after), failed: guard.failed, soft: guard.soft };
}

const CARD = '4111 1111 1111 1111';
const LISTS: Readonly<Record<string, readonly object[]>> = {
  'that redacts': [{ 'gateway.pii': { categories: ['CREDIT_CARD'], redact: true } }],
  'that denies': [{ 'default.contains': { words: ['card'], operator: 'none' }, deny: true, soft_deny_200: true }],
  'that only watches': [{ 'default.wordCount': { maxWords: 1 } }],
  'of several, one after the other': [
    { 'gateway.pii': { categories: ['CREDIT_CARD'], redact: true } },
    { 'default.regexMatch': { rule: '4111', not: true }, deny: true },
    { 'default.addPrefix': { prefix: 'Be brief.' } },
  ],
  'that asks a webhook': [{ 'default.webhook': { webhookURL: 'https://hook.example/' } }],
  'whose check is not valid': [{ 'default.regexMatch': { rule: '(' }, deny: true }],
  'for hosts': [{ 'default.validUrls': { onlyDNS: true } }],
};
const TEXTS = [`My card is ${CARD}.`, 'Nothing to see at https://known.example/', '', [{ type: 'text', text: CARD }]];

describe('a guardrail', () => {
  it.each(Object.entries(LISTS))('%s says the same of large requests and answers as of small ones', async (_, list) => {
    for (const text of TEXTS) {
      const [small, large] = [chat(text), chat(text) + ROOM];
      expect(await request(large, list)).toEqual(await request(small, list));
      expect(await answer(answered(text) + ROOM, list)).toEqual(await answer(answered(text), list));
    }
  });

  it('that must read what cannot be read refuses a large request, too', async () => {
    const list = [{ 'default.contains': { words: ['a'], operator: 'none' }, deny: true }];
    const file = chat([{ type: 'file', file: { file_id: 'file-1' } }]);
    expect(await request(file + ROOM, list)).toMatch(/cannot look at messages/);
    expect(await request(file + ROOM, list)).toBe(await request(file, list));
  });

  it('that asks others gets their answers, and their errors in their words', async () => {
    const list = [{ 'default.webhook': { webhookURL: 'https://hook.example/' } }];
    const bodies: string[] = [];
    const replaced = JSON.stringify({ verdict: true, transformedData: { request: { json: JSON.parse(chat('New')) } } });
    const said = await request(chat('Old') + ROOM, list, async ({ body }) => {
      bodies.push(Buffer.from(body ?? '').toString());
      return replaced;
    });
    expect(JSON.parse(bodies[0] ?? '')).toMatchObject({ request: { text: 'Old' }, eventType: 'beforeRequestHook' });
    expect(said).toMatchObject({ made: [chat('New'), true, 'string'] });
    const failed = await request(chat('Old') + ROOM, list, () => Promise.reject(new CheckError('It is closed.')));
    expect(failed).toMatchObject({
      results: [{ checks: [{ error: { name: 'CheckError', message: 'It is closed.' } }] }],
    });
  });

  it('reads less of what a webhook answers to a small request, and says so', async () => {
    const list = [{ 'default.webhook': { webhookURL: 'https://hook.example/' } }];
    const bounds: unknown[] = [];
    const heavy = `{"verdict":true,"data":[${'[],'.repeat(20_000)}[]]}`;
    const say: Say = async ({ maxBytes }) => {
      bounds.push(maxBytes);
      return heavy;
    };
    const message = 'The webhook answered with JSON that has more values, or is nested deeper, than is read.';
    expect(await request(chat('Hi'), list, say)).toMatchObject({ results: [{ checks: [{ error: { message } }] }] });
    expect(await request(chat('Hi') + ROOM, list, say)).toMatchObject({ results: [{ checks: [{ error: null }] }] });
    expect(bounds).toEqual([2 * 1024 * 1024, 16 * 1024 * 1024]);
  });

  it('beside the request tells its result when the request is gone on', async () => {
    let release: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const late: Say = async () => {
      await gate;
      return '{"verdict":false}';
    };
    const list = [{ 'default.webhook': { webhookURL: 'https://hook.example/' }, async: true }];
    const { x, list: made, guard } = exchange(chat('Hi') + ROOM, list, late);
    expect(await judgeInput(x, guard, made, 'texts')).toMatchObject({ outcome: { results: [] }, changed: null });
    expect(guard.facts()).toEqual([]);
    const told = new Promise((resolve) =>
      Object.assign(x.services.log, { info: (_: string, facts: object) => resolve(facts) }),
    );
    release();
    expect(await told).toMatchObject({ slug: 'g0', verdict: false });
  });

  it('takes a secret out of a large answer that tells of an error', async () => {
    const text = `{"error_detail":{"error":"key sk-secret-key"},"choices":[]}${ROOM}`;
    const list = [{ 'default.wordCount': { maxWords: 100 } }];
    expect(JSON.stringify((await answer(text, list)).body)).toContain('key ***');
  });
});

describe('the thread', () => {
  const order = {
    of: 'request',
    request: {},
    body: new Uint8Array(),
    guardrails: [],
    view: 'texts',
    dryRun: false,
  } as never;
  const posted = () => ({ order, memory: [], drops: [] as (() => void)[] });
  const host = (say = verdict, over = false) => ({
    outside: outsideOf(say),
    onAsync: () => undefined,
    over: () => over,
  });
  const judged = { of: 'request', outcome: null, changed: null, refused: null } as const;

  /** A thread by hand. */
  function byHand(clock = new TestClock(0)) {
    const sent: ToThread[] = [];
    let tell: (message: FromThread) => void = () => undefined;
    let fail: (error: Error) => void = () => undefined;
    let ended = 0;
    const made = new GuardrailThread(clock, silentLog, (told, failed) => {
      tell = told;
      fail = failed;
      return { post: (message) => sent.push(message), end: () => ended++ };
    });
    const runs = () => sent.flatMap((message) => (message.kind === 'run' ? [message.id] : []));
    return {
      thread: made,
      sent,
      runs,
      tell: (message: FromThread) => tell(message),
      fail: (e: Error) => fail(e),
      ended: () => ended,
    };
  }

  it('takes the next request of an organisation while one waits for a webhook', async () => {
    const { thread: one, runs, tell } = byHand();
    const first = one.run(
      'o',
      posted(),
      host(() => new Promise(() => undefined)),
    );
    const second = one.run('o', posted(), host());
    expect(runs()).toEqual([0]);
    const request = { url: 'https://hook.example/', method: 'POST', headers: {}, body: null } as const;
    tell({ kind: 'call', id: 0, call: 0, request });
    expect(runs()).toEqual([0, 1]);
    tell({ kind: 'judged', id: 1, judged });
    expect(await second).toEqual(judged);
    tell({ kind: 'judged', id: 0, judged });
    expect(await first).toEqual(judged);
    await one.close();
  });

  it('that is silent for thirty seconds is ended, its requests get 503, and another takes the next', async () => {
    const clock = new TestClock(0);
    const { thread: one, runs, tell, ended } = byHand(clock);
    let dropped = 0;
    const lent = { ...posted(), drops: [() => void dropped++] };
    const failed = one.run('o', lent, host()).catch((error: unknown) => error);
    clock.advance(10_000);
    tell({ kind: 'pong' });
    for (let i = 0; i < 3; i++) clock.advance(10_000);
    expect(await failed).toMatchObject({ kind: 'out_of_service', retryAfter: 1 });
    expect([ended(), dropped]).toEqual([1, 1]);
    const next = one.run('o', posted(), host());
    expect(runs()).toEqual([0, 1]);
    tell({ kind: 'judged', id: 1, judged });
    expect(await next).toEqual(judged);
    await one.close();
  });

  it('that breaks leaves nobody waiting, nor does a server that stops', async () => {
    const { thread: one, fail } = byHand();
    const broken = [one.run('o', posted(), host()), one.run('o', posted(), host())].map((run) => run.catch(String));
    fail(new Error('out of memory'));
    expect(await broken[0]).toMatch(/guardrails judge it failed/);
    await one.close();
    expect(await broken[1]).toMatch(/failed|stopping/);
  });

  it('lends memory until the last guardrail beside the request is done', async () => {
    const { thread: one, tell } = byHand();
    let dropped = 0;
    const run = one.run('o', { ...posted(), drops: [() => void dropped++] }, host());
    tell({ kind: 'judged', id: 0, judged });
    await run;
    expect(dropped).toBe(0);
    tell({ kind: 'ended', id: 0 });
    expect(dropped).toBe(1);
    await one.close();
    expect(dropped).toBe(1);
  });

  it('is not given what nobody waits for any more', async () => {
    const { thread: one, runs } = byHand();
    await expect(one.run('o', posted(), host(verdict, true))).rejects.toBeInstanceOf(SluiceError);
    expect(runs()).toEqual([]);
    await one.close();
  });
});
