import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import type { GuardrailState } from '../../gateway/guardrail-state.ts';
import type { Judge } from '../../guardrails/check.ts';
import { compileInline } from '../../guardrails/compile.ts';
import type { Guardrail } from '../../guardrails/guardrail.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import { TestClock } from '../../kernel/clock.ts';
import type { OperationId } from '../../operations/operation.ts';
import { StreamGate, streamModeOf } from './stream.ts';

const DONE = Buffer.from('data: [DONE]\n\n');

function chunk(text: string, index = 0): Buffer {
  return Buffer.from(`data: ${JSON.stringify({ choices: [{ index, delta: { content: text } }] })}\n\n`);
}

/** A gate in front of a client that keeps what it is sent. */
function gated(
  output: readonly Guardrail[],
  { strict = true, operation = 'chat' as OperationId, bodies = new BodyBudget(64 * 1024 * 1024) } = {},
) {
  const clock = new TestClock();
  const asynchronous: unknown[] = [];
  const guard = {
    input: [],
    output,
    before: [],
    after: [],
    failed: false,
    soft: false,
    outside: () => {
      throw new Error('no network here');
    },
    onAsync: (result: unknown) => asynchronous.push(result),
  } as unknown as GuardrailState;
  const x = testExchange({ operation, body: Buffer.from('{}') }, { clock, storeClock: clock, bodies });
  x.request.model = 'm';
  x.outcome.modelAnswered = 'm';
  x.attempt.stream = true;
  const sent: Buffer[] = [];
  const seen = { sent, guard, clock, asynchronous, ended: 'no' as 'no' | 'finished' | 'denied' | 'failed', pauses: 0 };
  const gate = new StreamGate(x, guard, strict, {
    send: (events) => void sent.push(...events),
    finish: (tail) => {
      sent.push(...tail);
      seen.ended = 'finished';
    },
    deny: () => {
      seen.ended = 'denied';
    },
    fail: (error) => {
      throw error;
    },
    pause: (on) => {
      seen.pauses += on ? 1 : -1;
    },
  });
  return { gate, seen };
}

/** What a client reads from the events, by choice. */
function readOf(events: readonly Buffer[]): string[] {
  const out: string[] = [];
  for (const event of events) {
    const data = event.toString('utf8').slice(6).trim();
    if (!data.startsWith('{')) continue;
    for (const { index, delta } of JSON.parse(data).choices) out[index] = (out[index] ?? '') + (delta.content ?? '');
  }
  return out;
}

const without = (words: readonly string[], more: object = {}): Guardrail =>
  compileInline({ deny: true, 'default.contains': { words, operator: 'none' }, ...more }, 'output_guardrails[0]');

/** As a stored guardrail may say it. */
function buffered(entry: Record<string, unknown>): Guardrail {
  const made = compileInline(entry, 'o');
  return { ...made, actions: { ...made.actions, stream: 'buffer' } };
}

/** The same guardrail whose judge answers later. */
function late(guardrail: Guardrail): Guardrail {
  return {
    ...guardrail,
    checks: guardrail.checks.map((check) => {
      const { judge } = check;
      const slow: Judge | null =
        judge === null
          ? null
          : { lookBehind: judge.lookBehind, judge: async (subject, outside) => judge.judge(subject, outside) };
      return { ...check, judge: slow };
    }),
  };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

async function runThrough(
  given: Guardrail | readonly Guardrail[],
  events: readonly Buffer[],
  sizes: readonly number[],
) {
  const { gate, seen } = gated([given].flat());
  let at = 0;
  for (let i = 0; at < events.length; i++) {
    const size = sizes[i % sizes.length] ?? 1;
    gate.push(events.slice(at, at + size));
    at += size;
    if (seen.pauses > 0) await settled();
  }
  gate.end([DONE], false);
  for (let i = 0; i < 10 && seen.ended === 'no'; i++) await settled();
  return seen;
}

describe('a stream that is held back', () => {
  it('is held by as much as the longest of its guardrails looks back', async () => {
    const events = Array.from('well, abcdefgh', (letter) => chunk(letter));
    for (const list of [
      [without(['xy']), without(['abcdefgh'])],
      [without(['abcdefgh']), without(['xy'])],
    ]) {
      const seen = await runThrough(list, events, [1]);
      expect([seen.ended, ...readOf(seen.sent)]).toEqual(['denied', expect.not.stringContaining('a')]);
    }
  });

  it('is not refused for what looks like a card only where what is judged begins or ends', async () => {
    const cards = compileInline({ deny: true, 'gateway.pii': { categories: ['CREDIT_CARD'] } }, 'o');
    const card = '4111111111111111';
    const words = (length: number) => 'word '.repeat(500).slice(-length);
    const says = async (...pieces: string[]) =>
      (
        await runThrough(
          cards,
          pieces.map((piece) => chunk(piece)),
          [1],
        )
      ).ended;
    expect(await says(`${words(300)}${card}`, ` ${words(2_000)}`)).toBe('denied');
    // It goes on, with what comes later.
    expect(await says(`${words(300)}${card}`, `23 ${words(2_000)}`)).toBe('finished');
    // It began before, with what no window holds any more.
    for (let after = 1_000; after < 1_050; after += 1) {
      const said = `${words(300)}99${card} ${'word '.repeat(300).slice(0, after - card.length - 1)}`;
      expect(await says(said, words(2_000))).toBe('finished');
    }
  });

  it('shows nothing of a forbidden word whose letters stand far apart, with invisible characters between them', async () => {
    for (const invisible of ['\u200b', '\u00ad', '\ufe0f']) {
      const events = Array.from('so: forbidden', (letter) => [chunk(letter), chunk(invisible.repeat(700))]).flat();
      const seen = await runThrough(without(['forbidden']), events, [1]);
      expect(seen.ended).toBe('denied');
      expect(readOf(seen.sent).join('')).not.toContain('f');
    }
    const decomposed = Array.from('so: café'.normalize('NFD'), (letter) => chunk(letter));
    expect((await runThrough(without(['café']), decomposed, [1])).ended).toBe('denied');
  });

  const letters = (min: number, max: number) =>
    fc.array(fc.constantFrom('a', 'b', 'c', '😀'), { minLength: min, maxLength: max }).map((all) => all.join(''));
  const pieces = fc.array(fc.record({ text: letters(0, 4), index: fc.nat({ max: 1 }) }), { maxLength: 40 });
  const words = fc.array(letters(1, 5), { minLength: 1, maxLength: 3 });
  const sizes = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 });

  it('never shows any of a forbidden word, and else arrives whole and in order, however it is cut', async () => {
    await fc.assert(
      fc.asyncProperty(pieces, words, sizes, fc.boolean(), async (said, forbidden, cut, slow) => {
        const events = said.map(({ text, index }) => chunk(text, index));
        const guardrail = without(forbidden);
        const seen = await runThrough(slow ? late(guardrail) : guardrail, events, cut);
        const whole = readOf(events);
        const bad = whole.some((text) => forbidden.some((word) => text?.includes(word)));
        expect(seen.ended).toBe(bad ? 'denied' : 'finished');
        if (!bad) expect(seen.sent).toEqual([...events, DONE]);
        for (const [index, text] of readOf(seen.sent).entries()) {
          const all = whole[index] ?? '';
          const first = Math.min(...forbidden.map((word) => (all.includes(word) ? all.indexOf(word) : all.length)));
          expect(all.startsWith(text ?? '')).toBe(true);
          if (bad) expect((text ?? '').length).toBeLessThanOrEqual(first);
        }
        expect(seen.pauses).toBe(0);
      }),
      { numRuns: 300 },
    );
  });

  it('shows no character of personal data that is found, wherever the stream is cut', async () => {
    const card = '4242 4242 4242 4242';
    const text = `${'lorem ipsum '.repeat(120)}pay with ${card} now, ${'dolor sit amet '.repeat(120)}`;
    const guardrail = compileInline({ deny: true, 'gateway.pii': { categories: ['CREDIT_CARD'] } }, 'o');
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 20 }), async (cuts) => {
        const events: Buffer[] = [];
        for (let at = 0, i = 0; at < text.length; i++) {
          const size = cuts[i % cuts.length] ?? 1;
          events.push(chunk(text.slice(at, at + size)));
          at += size;
        }
        const seen = await runThrough(guardrail, events, [1]);
        expect(seen.ended).toBe('denied');
        expect(readOf(seen.sent)[0] ?? '').not.toContain('4242');
      }),
      { numRuns: 30 },
    );
  });

  it('sends what is judged while it runs, and the rest at the end', () => {
    const { gate, seen } = gated([without(['secret'])]);
    gate.push([chunk('Hello there, ')]);
    expect(readOf(seen.sent)).toEqual([]);
    gate.push([chunk('all is well'), chunk(' here!')]);
    // Of the last five characters each could begin the word, and a sixth could get an accent.
    expect(readOf(seen.sent)).toEqual(['Hello there, all is well']);
    gate.end([DONE], false);
    expect(readOf(seen.sent)).toEqual(['Hello there, all is well here!']);
    expect(seen.sent.at(-1)).toEqual(DONE);
  });

  it('of any length goes on: what was shown is held no more', async () => {
    const event = JSON.stringify({ choices: [{ index: 0, delta: { content: 'all is well, ' } }] });
    const large = Buffer.from(`data: ${event}${' '.repeat(1024 * 1024)}\n\n`);
    const seen = await runThrough(without(['secret']), Array(20).fill(large), [1]);
    expect([seen.ended, readOf(seen.sent)]).toEqual(['finished', ['all is well, '.repeat(20)]]);
  });

  it('finds a word that comes after long silence of its choice', () => {
    const { gate, seen } = gated([without(['secret'])]);
    gate.push([chunk('it is sec', 1)]);
    for (let i = 0; i < 50; i++) gate.push([chunk('la la la ', 0)]);
    gate.push([chunk('ret', 1)]);
    expect(seen.ended).toBe('denied');
    expect(readOf(seen.sent)[1] ?? '').not.toContain('sec');
  });

  it('says what it found without the text, and which guardrail it was', () => {
    const { gate, seen } = gated([without(['secret'], { id: 'pg-words' })]);
    gate.push([chunk('the sec'), chunk('ret is out')]);
    expect(seen.guard.after).toMatchObject([{ id: 'pg-words', verdict: false, deny: true }]);
    expect(JSON.stringify(seen.guard.after)).not.toContain('secret');
  });
});

describe('a stream that is held until its end', () => {
  const whole = compileInline({ deny: true, 'default.wordCount': { maxWords: 3 } }, 'o');

  it('sends nothing before the verdict, then everything', () => {
    const { gate, seen } = gated([whole]);
    const events = [chunk('one '), chunk('two')];
    gate.push(events);
    expect(seen.sent).toEqual([]);
    gate.end([DONE], false);
    expect(seen.sent).toEqual([...events, DONE]);
    expect(seen.guard.after).toMatchObject([{ verdict: true }]);
  });

  it('sends nothing of what is denied', () => {
    const { gate, seen } = gated([whole]);
    gate.push([chunk('one two three four')]);
    gate.end([DONE], false);
    expect(seen.sent).toEqual([]);
    expect(seen.ended).toBe('denied');
  });

  it('sends redacted text, whatever it was cut into', () => {
    const redact = compileInline({ 'gateway.pii': { categories: ['EMAIL_ADDRESS'], redact: true } }, 'o');
    const { gate, seen } = gated([redact]);
    gate.push([...'write to ann@example.com today'].map((letter) => chunk(letter)));
    gate.end([DONE], false);
    expect(readOf(seen.sent)).toEqual(['write to {{EMAIL_ADDRESS_1}} today']);
    expect(seen.guard.after).toMatchObject([{ verdict: true, transformed: true }]);
  });

  it('tells a waiting client every ten seconds that it lives, as a comment', async () => {
    const { gate, seen } = gated([whole]);
    gate.push([chunk('one')]);
    await seen.clock.advance(9_999);
    expect(seen.sent).toEqual([]);
    await seen.clock.advance(20_001);
    expect(seen.sent.map(String)).toEqual(Array(3).fill(': keep-alive\n\n'));
    gate.end([DONE], false);
    expect(seen.ended).toBe('finished');
    const sent = seen.sent.length;
    await seen.clock.advance(60_000);
    expect(seen.sent.length).toBe(sent);
  });

  it('ends when more would have to be kept than is allowed, where the guardrail denies', () => {
    const { gate, seen } = gated([whole]);
    const large = chunk('x'.repeat(1024 * 1024));
    for (let i = 0; i < 17; i++) gate.push([large]);
    expect(seen.ended).toBe('denied');
    expect(seen.sent).toEqual([]);
    expect(seen.guard.after).toMatchObject([{ verdict: false, checks: [{ error: { name: 'NotJudged' } }] }]);
  });

  it('is counted with all that requests hold, and ends where that is too much', () => {
    const bodies = new BodyBudget(2 * 1024 * 1024);
    const [one, two] = [gated([whole], { bodies }), gated([whole], { bodies })];
    const large = chunk('x'.repeat(300 * 1024));
    one.gate.push([chunk('one'), large]);
    expect(bodies.held).toBeGreaterThan(300 * 1024);
    two.gate.push([large]);
    expect([one.seen.ended, two.seen.ended]).toEqual(['no', 'denied']);
    one.gate.close();
    expect(bodies.held).toBe(0);
  });

  it('passes when more would have to be kept than is allowed, where it does not deny, and says that it was skipped', () => {
    const { gate, seen } = gated([buffered({ 'default.wordCount': { maxWords: 3 } })]);
    const large = chunk('x'.repeat(1024 * 1024));
    for (let i = 0; i < 20; i++) gate.push([large]);
    gate.end([DONE], false);
    expect(seen.ended).toBe('finished');
    expect(seen.sent.length).toBe(21);
    expect(seen.guard.after).toMatchObject([{ skipped: true, verdict: true }]);
  });
});

describe('a stream whose guardrails do not deny', () => {
  const told = compileInline({ 'default.contains': { words: ['bad'], operator: 'none' } }, 'o');

  it('passes at once; what was found is told before the end marker, where fields may be added', () => {
    const { gate, seen } = gated([told], { strict: false });
    gate.push([chunk('too bad')]);
    expect(seen.sent.length).toBe(1);
    gate.end([DONE], false);
    const results = JSON.parse(String(seen.sent[1]).slice(6));
    expect(results).toMatchObject({
      object: 'chat.completion.chunk',
      choices: [],
      hook_results: { before_request_hooks: [], after_request_hooks: [{ verdict: false, deny: false }] },
    });
    expect(seen.sent[2]).toEqual(DONE);
  });

  it('adds nothing where the answer must be strictly compliant', () => {
    const { gate, seen } = gated([told]);
    gate.push([chunk('too bad')]);
    gate.end([DONE], false);
    expect(seen.sent).toEqual([chunk('too bad'), DONE]);
    expect(seen.guard.after).toMatchObject([{ verdict: false }]);
  });

  it('is judged after the end by asynchronous guardrails, for the record only', () => {
    const { gate, seen } = gated([{ ...told, actions: { ...told.actions, async: true, deny: true } }]);
    gate.push([chunk('too bad')]);
    expect(seen.sent.length).toBe(1);
    gate.end([DONE], false);
    expect(seen.ended).toBe('finished');
    expect(seen.guard.after).toEqual([]);
    expect(seen.asynchronous).toMatchObject([{ verdict: false, async: true }]);
  });
});

describe('how a guardrail judges streams', () => {
  const way = ({ stream, ...entry }: Record<string, unknown>) =>
    streamModeOf(
      (stream === 'buffer' ? buffered : (one: Record<string, unknown>) => compileInline(one, 'o'))({
        deny: true,
        ...entry,
      }),
    );
  it.each([
    ['window', { 'default.contains': { words: ['a'], operator: 'none' } }],
    ['hold', { 'default.contains': { words: ['a'], operator: 'all' } }],
    ['hold', { stream: 'buffer', 'default.contains': { words: ['a'], operator: 'none' } }],
    ['window', { 'gateway.pii': { categories: ['SSN'] } }],
    ['hold', { 'gateway.pii': { categories: ['SSN'], redact: true } }],
    ['hold', { deny: false, 'gateway.pii': { categories: ['SSN'], redact: true } }],
    ['inform', { deny: false, 'default.contains': { words: ['a'], operator: 'none' } }],
    ['hold', { deny: false, stream: 'buffer', 'default.wordCount': { maxWords: 1 } }],
    ['async', { async: true, 'default.wordCount': { maxWords: 1 } }],
    ['hold', { 'no.such': {} }],
  ])('%s: %j', (expected, entry) => {
    expect(way(entry)).toBe(expected);
  });
});
