import { expect, it } from 'vitest';
import { TestClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { CheckError, type CheckHttpClient, type Judgement, type Subject } from './check.ts';
import { actionsOf, compileGuardrail, compileInline, type GivenActions } from './compile.ts';
import type { Guardrail, GuardrailCheck, GuardrailResult, Outcome } from './guardrail.ts';
import { type RunOptions, runGuardrails } from './run.ts';

const clock = new TestClock();

function subject(...texts: string[]): Subject {
  return {
    phase: 'input',
    window: null,
    texts: texts.map((text, i) => ({ path: `messages[${i}].content`, role: 'user', text })),
    latest: () => texts.at(-1) ?? '',
    request: () => ({ messages: texts }),
    answer: () => undefined,
    callsTools: false,
    model: 'm',
    provider: 'p',
    requestType: 'chatComplete',
    streams: false,
    transformed: false,
    status: null,
    metadata: {},
    header: () => undefined,
  };
}

type Judging = (subject: Subject, outside: CheckHttpClient) => Judgement | Promise<Judgement>;
const PASS: Judgement = { verdict: true, data: null };
const FAIL: Judgement = { verdict: false, data: null };

function check(
  id: string,
  judge: Judging | null,
  own: Partial<GuardrailCheck> & { failOnError?: boolean } = {},
): GuardrailCheck {
  const { failOnError = false, ...rest } = own;
  return {
    id,
    phases: ['input', 'output'],
    mutates: true,
    redacts: false,
    common: { timeoutMs: null, failOnError, forwardHeaders: [], credentials: null },
    judge: judge === null ? null : { lookBehind: null, judge },
    ...rest,
  };
}

function guardrail(actions: GivenActions, ...checks: GuardrailCheck[]): Guardrail {
  return { id: 'g', slug: 'pg-g', name: 'g', target: 'llm', type: 'guardrail', actions: actionsOf(actions), checks };
}

const options = (more: Partial<RunOptions> = {}): RunOptions => ({
  clock,
  onAsync: () => undefined,
  outside: (signal) => ({ signal }) as CheckHttpClient,
  ...more,
});

/** Runs what is expected to need no promise. */
function now(list: Guardrail[], given: Subject = subject('a')): Outcome {
  const outcome = runGuardrails(list, given, options());
  if (outcome instanceof Promise) throw new Error('a promise where none is needed');
  return outcome;
}

const timed = (ms: number) => ({
  common: { timeoutMs: ms, failOnError: false, forwardHeaders: [], credentials: null },
});
const swap =
  (from: string, to: string): Judging =>
  ({ texts }) => ({
    ...PASS,
    replacements: texts
      .filter(({ text }) => text.includes(from))
      .map(({ path, text }) => ({ path, text: text.replaceAll(from, to) })),
  });

it.each([
  ['passes', {}, PASS, { denied: false, failed: false }],
  ['fails and denies', { deny: true }, FAIL, { denied: true, failed: false, soft: false }],
  ['fails and denies softly', { deny: true, soft_deny_200: true }, FAIL, { denied: true, soft: true }],
  ['fails and only says so', {}, FAIL, { denied: false, failed: true }],
])('a guardrail that %s says so without a promise', (_, actions, judgement, expected) => {
  expect(
    now([
      guardrail(
        actions,
        check('c', () => judgement),
      ),
    ]),
  ).toMatchObject(expected);
});

it('what a denying guardrail refused, no guardrail after it sees', () => {
  let seen = 0;
  const outcome = now([
    guardrail(
      { deny: true },
      check('c', () => FAIL),
    ),
    guardrail(
      {},
      check('spy', () => {
        seen++;
        return PASS;
      }),
    ),
  ]);
  expect(seen).toBe(0);
  expect(outcome.results.map(({ verdict, skipped }) => [verdict, skipped])).toEqual([
    [false, false],
    [true, true],
  ]);
});

it('a check that cannot be made ready fails, and denies where its guardrail does', () => {
  expect(now([guardrail({}, check('c', null))])).toMatchObject({ failed: true });
  const { denied, results } = now([guardrail({ deny: true }, check('c', null))]);
  expect(denied).toBe(true);
  expect(results[0]?.checks[0]).toMatchObject({ verdict: false, error: { name: 'NotReady' }, fail_on_error: true });
});

it.each([
  [{}, false, true],
  [{ on_error: 'deny' } as const, false, true],
  [{ on_error: 'allow' } as const, false, false],
  [{ on_error: 'allow' } as const, true, true],
  [{}, true, true],
])('an error under %j with failOnError %s denies: %s', async (actions, failOnError, denied) => {
  for (const judge of [
    () => {
      throw new CheckError('no');
    },
    () => Promise.reject(new SluiceError('upstream_unreachable', 'no')),
  ] as Judging[]) {
    const outcome = await runGuardrails(
      [guardrail({ ...actions, deny: true }, check('c', judge, { failOnError }))],
      subject('a'),
      options(),
    );
    expect(outcome.denied).toBe(denied);
    expect(outcome.results[0]?.checks[0]?.error?.message).toBe('no');
    expect(outcome.results[0]?.feedback?.metadata).toMatchObject({ erroredChecks: 'c' });
  }
});

it('the message of an unexpected error is not told: it may hold what was judged', () => {
  const outcome = now([
    guardrail(
      {},
      check('c', () => {
        throw new TypeError('secret text');
      }),
    ),
  ]);
  expect(outcome.results[0]?.checks[0]?.error).toEqual({
    name: 'TypeError',
    message: 'The check failed unexpectedly.',
  });
});

it('a check that does not end in time is an error, and its calls are ended', async () => {
  let signal: AbortSignal | undefined;
  const hangs: Judging = (_, outside) => {
    signal = outside.signal;
    return new Promise(() => undefined);
  };
  const running = runGuardrails(
    [guardrail({ deny: true, on_error: 'deny' }, check('c', hangs, timed(100)))],
    subject('a'),
    options(),
  );
  await clock.advance(99);
  expect(signal?.aborted).toBe(false);
  await clock.advance(1);
  expect(await running).toMatchObject({ denied: true, results: [{ checks: [{ error: { name: 'TimeoutError' } }] }] });
  expect(signal?.aborted).toBe(true);
});

it('checks run beside each other, or one after the other until one fails where that is asked for', async () => {
  for (const sequential of [false, true]) {
    const begun: string[] = [];
    const late = (id: string, judgement: Judgement) =>
      check(
        id,
        () => {
          begun.push(id);
          return new Promise((resolve) => clock.after(10, () => resolve(judgement)));
        },
        { mutates: false },
      );
    const running = runGuardrails(
      [guardrail({ sequential }, late('a', FAIL), late('b', PASS))],
      subject('x'),
      options(),
    );
    expect(begun).toEqual(sequential ? ['a'] : ['a', 'b']);
    await clock.advance(20);
    const outcome = await running;
    expect(outcome.results[0]?.checks.map(({ id }) => id)).toEqual(sequential ? ['a'] : ['a', 'b']);
    expect(outcome.failed).toBe(true);
  }
});

it('later checks and guardrails see what earlier ones made of the texts', () => {
  const seen: string[] = [];
  const spy = check('spy', ({ texts, latest }) => {
    seen.push(`${texts.map(({ text }) => text).join()}|${latest()}`);
    return PASS;
  });
  const outcome = now(
    [guardrail({}, check('one', swap('b', 'c')), spy), guardrail({}, spy, check('two', swap('c', 'd')))],
    subject('a', 'b'),
  );
  expect(seen).toEqual(['a,c|c', 'a,c|c']);
  expect(outcome.replacements).toEqual([{ path: 'messages[1].content', text: 'd' }]);
  expect(outcome.results.map(({ transformed }) => transformed)).toEqual([true, true]);
});

it('redactions that take time do not undo each other', async () => {
  const late =
    (judging: Judging): Judging =>
    (given) =>
      Promise.resolve().then(() => judging(given, {} as CheckHttpClient));
  const outcome = await runGuardrails(
    [
      guardrail(
        {},
        check('one', late(swap('b', '*'))),
        check('two', late(swap('a', '*'))),
        check('three', swap('c', '*')),
      ),
    ],
    subject('abc'),
    options(),
  );
  expect(outcome.replacements).toEqual([{ path: 'messages[0].content', text: '***' }]);
});

it.each([
  [false, 2],
  [true, 1],
])('hosted checks with redact %s ask %i services at once', async (redact, atOnce) => {
  let asked = 0;
  const hosted = (id: string, own: object) => ({
    id,
    is_enabled: true,
    parameters: { credentials: { apiKey: 'k' }, redact, ...own },
  });
  const checks = [hosted('lakera.guard', {}), hosted('panwPrismaAirs.intercept', { profileName: 'p' })];
  const stored = { id: 'g', slug: 'pg-g', name: 'g', target: 'llm' as const, actions: {}, checks };
  const outside = (signal: AbortSignal) => ({
    signal,
    call: () => {
      asked++;
      return new Promise<never>(() => undefined);
    },
  });
  void runGuardrails(
    [compileGuardrail(stored)],
    subject('a'),
    options({ outside: outside as unknown as RunOptions['outside'] }),
  );
  await new Promise((resolve) => setImmediate(resolve));
  expect(asked).toBe(atOnce);
});

it('webhooks run beside each other, and one whose change would undo another’s is asked again', async () => {
  const seen: unknown[] = [];
  const adds =
    (name: string): Judging =>
    async (given) => {
      const body = given.request() as object;
      seen.push([name, body]);
      await Promise.resolve();
      return { ...PASS, replaced: { ...body, [name]: 1 } };
    };
  const hook = (name: string) => check('default.webhook', adds(name), { replacesWhole: true });
  const outcome = await runGuardrails([guardrail({}, hook('a'), hook('b'))], subject('x'), {
    ...options(),
    view: (_, change) => ({ ...subject('x'), request: () => change?.replaced ?? {} }),
  });
  expect(seen).toEqual([
    ['a', {}],
    ['b', {}],
    ['b', { a: 1 }],
  ]);
  expect(outcome.replaced).toEqual({ a: 1, b: 1 });
});

it('a guardrail beside the request changes nothing and is told when it is done', async () => {
  const told: GuardrailResult[] = [];
  const late = check('c', () =>
    Promise.resolve({ ...FAIL, replacements: [{ path: 'messages[0].content', text: 'z' }] }),
  );
  const outcome = runGuardrails([guardrail({ async: true, deny: true }, late)], subject('a'), {
    ...options(),
    onAsync: (result) => told.push(result),
  });
  expect(outcome).toMatchObject({ denied: false, failed: false, results: [], replacements: [] });
  await Promise.resolve().then(() => new Promise((resolve) => setImmediate(resolve)));
  expect(told).toMatchObject([{ verdict: false, async: true, transformed: false }]);
});

it('a check of the other phase is skipped, and a guardrail without any other is', () => {
  const output = check('c', () => FAIL, { phases: ['output'] });
  expect(now([guardrail({ deny: true }, output)])).toMatchObject({ denied: false, results: [{ skipped: true }] });
  expect(
    now([
      guardrail(
        { deny: true },
        output,
        check('d', () => PASS),
      ),
    ]).results[0]?.checks,
  ).toHaveLength(1);
});

it('feedback is that of the verdict and names the checks that passed, failed and erred', () => {
  const raise = () => {
    throw new CheckError('x');
  };
  const on_fail = { feedback: { value: -2, weight: 0.5, metadata: { team: 'a' } } };
  const { results } = now([
    guardrail(
      { on_fail },
      check('a', () => PASS),
      check('b', () => FAIL),
      check('c', raise),
      check('d', () => PASS),
    ),
  ]);
  expect(results[0]?.feedback).toEqual({
    value: -2,
    weight: 0.5,
    metadata: { team: 'a', successfulChecks: 'a,d', failedChecks: 'b', erroredChecks: 'c' },
  });
  expect(
    now([
      guardrail(
        {},
        check('a', () => PASS),
      ),
    ]).results[0]?.feedback,
  ).toMatchObject({ value: 5, weight: 1 });
});

it('a stored guardrail leaves out disabled checks and keeps those it cannot read, which fail', () => {
  const made = compileGuardrail({
    id: 'i',
    slug: 'pg-i',
    name: 'n',
    target: 'llm',
    actions: { deny: true },
    checks: [
      { id: 'default.contains', is_enabled: false, parameters: { words: ['x'] } },
      { id: 'default.contains', is_enabled: true, parameters: { wrds: ['x'] } },
      { id: 'default.webhook', is_enabled: true, broken: true },
      { id: 'no.such', is_enabled: true },
    ],
  });
  expect(made.checks.map(({ id, judge }) => [id, judge])).toEqual([
    ['default.contains', null],
    ['default.webhook', null],
    ['no.such', null],
  ]);
  expect(now([made]).denied).toBe(true);
});

it('guardrails of a config are made of their short form and of raw hooks', () => {
  const short = compileInline(
    { deny: true, 'default.contains': { words: ['x'], operator: 'none' } },
    'input_guardrails[0]',
  );
  expect(short).toMatchObject({ slug: 'input_guardrails[0]', type: 'guardrail', actions: { deny: true } });
  expect(now([short], subject('a x')).denied).toBe(true);
  expect(now([short], subject('a y')).denied).toBe(false);
  const raw = compileInline(
    { type: 'mutator', id: 'mine', checks: [{ id: 'default.addPrefix', parameters: { prefix: '> ' } }] },
    'before_request_hooks[0]',
  );
  expect(raw).toMatchObject({ slug: 'mine', type: 'mutator' });
  expect(now([raw], subject('a')).replacements).toEqual([{ path: 'messages[0].content', text: '> a' }]);
});

it('a stored guardrail does what its actions say, and by default the safe thing', () => {
  const made = (actions: GivenActions) =>
    compileGuardrail({ id: 'g', slug: 'pg-g', name: 'g', target: 'llm', actions, checks: [] }).actions;
  expect(made({})).toMatchObject({
    deny: false,
    async: false,
    sequential: false,
    softDeny: false,
    onError: 'pass',
    messages: 'all',
    stream: 'incremental',
    logContent: 'withheld',
  });
  expect(made({ deny: true }).onError).toBe('fail');
  expect(made({ deny: true, on_error: 'allow' }).onError).toBe('pass');
  const all = { deny: true, async: true, sequential: true, soft_deny_200: true } as const;
  for (const messages of ['new', 'last'] as const)
    expect(made({ ...all, messages, stream: 'buffer' })).toMatchObject({
      deny: true,
      async: true,
      sequential: true,
      softDeny: true,
      messages,
      stream: 'buffer',
    });
});
