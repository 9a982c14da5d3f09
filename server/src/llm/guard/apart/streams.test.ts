import { afterAll, describe, expect, it } from 'vitest';
import { testExchange } from '../../../../test/support/exchange.ts';
import { GuardrailState } from '../../../gateway/guardrail-state.ts';
import { compileInline } from '../../../guardrails/compile.ts';
import type { CheckHttpClientFactory } from '../../../guardrails/run.ts';
import { BodyBudget } from '../../../http/body-budget.ts';
import { systemClock } from '../../../kernel/clock.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { silentLog } from '../../../kernel/log.ts';
import { RequestBody } from '../../state/body.ts';
import { judgeStreamWindow } from '../judge-stream.ts';
import { judgedRequest } from '../judged-exchange.ts';
import { StreamGate } from '../stream.ts';
import { StreamTexts } from '../stream-texts.ts';
import { ReplacementError } from '../texts.ts';
import { GuardrailThread } from './thread.ts';
import { judgeStream, judgeWindow } from './where-judged.ts';

const thread = new GuardrailThread(systemClock, silentLog);
afterAll(() => thread.close());

const CARD = '4111 1111 1111 1111';
const DONE = Buffer.from('data: [DONE]\n\n');
const chunk = (delta: object): Buffer =>
  Buffer.from(`data: ${JSON.stringify({ id: 'c', model: 'm', choices: [{ index: 0, delta }] })}\n\n`);
const spoken = (...texts: string[]) => [...texts.map((content) => chunk({ content })), DONE];

/** A webhook that gives another answer in place of the one it judges. */
const NEW = '{"id":12345678901234567890,"choices":[{"index":0,"message":{"role":"assistant","content":"New"}}]}';
const outside: CheckHttpClientFactory = (signal) => ({
  signal,
  most: { bytes: 2 * 1024 * 1024, weight: 50_000 },
  owner: 'o',
  now: () => 0,
  resolves: async () => true,
  call: async () => ({
    status: 200,
    headers: {},
    body: Buffer.from(`{"verdict":true,"transformedData":{"response":{"json":${NEW}}}}`),
  }),
});

function exchange(entries: readonly object[], guardrails: Pick<GuardrailThread, 'run'> = thread) {
  const services = { bodies: new BodyBudget(1e9), log: silentLog, guardrails, outside: () => outside };
  const x = testExchange({}, services as never);
  x.attempt.body = new RequestBody(Buffer.from('{"model":"m"}'), null);
  x.attempt.stream = true;
  const list = entries.map((entry, i) => compileInline(entry as Record<string, unknown>, `g${i}`));
  const guard = new GuardrailState(x.services, x.request, { input: [], output: list });
  x.guard = guard;
  return { x, list, guard };
}

/** Without what differs from run to run. */
const plain = (value: unknown) =>
  JSON.parse(
    JSON.stringify(value, (key, one) =>
      /^(execution_time|created_at|ms)$/.test(key) ? 0 : key === 'replacements' || key === 'replaced' ? undefined : one,
    ),
  );

/** What is said of a stream whose texts have so many characters. */
async function said(events: readonly Buffer[], entries: readonly object[], textBytes: number, holds: boolean) {
  const { x, list, guard } = exchange(entries);
  const texts = new StreamTexts(x.request.operation);
  for (const event of events) texts.push(event);
  const held = holds ? { bytes: textBytes, events: events.slice(0, -1), tail: events.slice(-1) } : null;
  const request = judgedRequest(x);
  const ended = { request, textBytes, answer: () => texts.answer(), held };
  const { outcome, unreadable, changed } = await judgeStream(x, guard, list, ended);
  const made =
    changed instanceof ReplacementError
      ? changed.message
      : changed && { events: Buffer.concat(changed.events).toString(), tail: changed.tail.map(String) };
  return { outcome: plain(outcome), unreadable, made, beside: plain(guard.facts()) };
}

const PII = { 'gateway.pii': { categories: ['CREDIT_CARD'], redact: true } };
const CONTAINS = { 'default.contains': { words: ['card'], operator: 'none' } };
const LISTS: Readonly<Record<string, readonly object[]>> = {
  'that redacts': [PII],
  'that denies': [{ ...CONTAINS, deny: true, soft_deny_200: true }],
  'that only watches': [CONTAINS],
  'beside the request': [{ ...CONTAINS, async: true }],
  'that asks a webhook': [{ 'default.webhook': { webhookURL: 'https://hook.example/' } }],
  'of several, one after the other': [PII, { 'default.regexMatch': { rule: '4111', not: true }, deny: true }, CONTAINS],
};
const STREAMS = [
  spoken('My card ', 'is ', CARD, '.'),
  spoken('Nothing ', 'to see, ', 'é漢字'),
  spoken(),
  spoken('a'.repeat(70_000), ' card ', '\ud83d', '\ude00'.repeat(40_000)),
  [chunk({ tool_calls: [{ index: 0, function: { name: 'f', arguments: `{"a":"${CARD}"}` } }] }), DONE],
  [
    chunk({ content: 'odd', n: 0 }),
    Buffer.from('data: {"choices":[{"index":0,"delta":{"content":"a \\ud800"}}]}\n\n'),
    DONE,
  ],
];

describe('a guardrail over a stream', () => {
  it.each(Object.entries(LISTS))('%s says the same of large streams as of small ones', async (_, list) => {
    let results = 0;
    for (const stream of STREAMS)
      for (const holds of [true, false]) {
        const small = await said(stream, list, 10, holds);
        // What was sent cannot be changed.
        expect(await said(stream, list, 1e6, holds)).toEqual(small);
        results += small.outcome.results.length + small.beside.length;
      }
    expect(results).toBeGreaterThan(STREAMS.length);
  });

  it('in windows says the same of large pieces as of small ones', async () => {
    for (const word of ['never', 'card']) {
      const { x, list, guard } = exchange([{ 'default.contains': { words: [word], operator: 'none' }, deny: true }]);
      const given = {
        request: judgedRequest(x),
        texts: [
          { path: 'choices[0].message.content', role: 'assistant' as const, text: `${'a '.repeat(100_000)}card` },
        ],
        window: { starts: true, ends: false },
        callsTools: () => false,
        options: { outside, clock: systemClock, onAsync: () => undefined },
      };
      const apart = judgeWindow(x, guard, list, given);
      expect(apart).toBeInstanceOf(Promise);
      const outcome = await judgeStreamWindow(list, given);
      expect(plain(await apart)).toEqual(plain(outcome));
      expect(outcome.denied).toBe(word === 'card');
    }
  });
});

/** All that the client of a stream is sent, and how that ends. */
function streamed(entries: readonly object[], events: readonly Buffer[], guardrails?: Pick<GuardrailThread, 'run'>) {
  const { x, guard } = exchange(entries, guardrails);
  return new Promise<{ text: string; ended: string; after: unknown }>((resolve) => {
    const sent: Buffer[] = [];
    const end = (ended: string) => {
      gate.close();
      resolve({ text: Buffer.concat(sent).toString(), ended, after: plain(guard.after) });
    };
    const gate = new StreamGate(x, guard, true, {
      send: (more) => void sent.push(...more),
      finish(tail) {
        sent.push(...tail);
        end('finished');
      },
      deny: () => end('denied'),
      fail: (error) => end(String(error)),
      pause: () => undefined,
    });
    gate.push(events.slice(0, -1));
    gate.end(events.slice(-1), false);
  });
}

describe('a large stream', () => {
  const large = spoken(...Array<string>(4_000).fill('So many words that say nothing at all, '), `on ${CARD}.`);
  const broken = { run: () => Promise.reject(new SluiceError('out_of_service', 'The thread failed.')) };

  it('arrives with what was redacted, and its end', async () => {
    const { text, ended } = await streamed([PII], large);
    expect(ended).toBe('finished');
    expect(text).toContain('nothing at all, ');
    expect(text).not.toContain(CARD);
    expect(text.endsWith(DONE.toString())).toBe(true);
    expect(text.split('\n\n').length).toBe(large.length + 1);
  });

  it('is refused by a guardrail that denies, and nothing of it is shown', async () => {
    const hold = { 'default.wordCount': { maxWords: 9 }, deny: true };
    expect(await streamed([hold], large)).toMatchObject({ text: '', ended: 'denied', after: [{ verdict: false }] });
  });

  it('comes to its end where the thread fails and its guardrails only watch', async () => {
    const watch = { 'default.wordCount': { maxWords: 9 } };
    const { ended, text, after } = await streamed([watch], large, broken);
    expect([ended, text]).toEqual(['finished', Buffer.concat(large).toString()]);
    expect(after).toMatchObject([{ skipped: true }]);
  });

  it('fails where the thread fails and a guardrail denies', async () => {
    const deny = { 'default.wordCount': { maxWords: 9 }, deny: true };
    expect(await streamed([deny], large, broken)).toMatchObject({ text: '', ended: expect.stringMatching(/failed/) });
  });
});
