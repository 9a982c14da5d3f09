import { canonically } from '../../src/guardrails/canonical.ts';
import { readChecks } from '../../src/guardrails/catalog.ts';
import type { CheckHttpClient, Common, Judgement, Subject, Target, TextPart } from '../../src/guardrails/check.ts';
import { CHECKS } from '../../src/guardrails/checks/index.ts';
import { atOnce } from '../../src/kernel/turns.ts';
import { issuesOf } from '../../src/resources/issues.ts';

export type SubjectParts = Partial<Omit<Subject, 'header' | 'latest' | 'request' | 'answer' | 'texts'>> & {
  readonly texts?: readonly (string | TextPart)[];
  readonly latest?: string;
  readonly request?: unknown;
  readonly answer?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
};

/** A subject as the engine makes one, of as little as a test wants to say. */
export function subjectOf(parts: SubjectParts | string): Subject {
  const given: SubjectParts = typeof parts === 'string' ? { texts: [parts] } : parts;
  const texts = (given.texts ?? []).map((part, i) =>
    typeof part === 'string' ? { path: `messages[${i}].content`, role: 'user' as const, text: part } : part,
  );
  return {
    phase: 'output',
    window: null,
    callsTools: false,
    model: 'gpt-5',
    provider: 'openai',
    requestType: 'chatComplete',
    streams: false,
    transformed: false,
    status: 200,
    metadata: {},
    ...given,
    texts,
    latest: () => given.latest ?? texts.map(({ text }) => text).join('\n'),
    request: () => given.request,
    answer: () => given.answer,
    header: (name) => (Object.hasOwn(given.headers ?? {}, name) ? given.headers?.[name] : undefined),
  };
}

export type Answer = { status?: number; headers?: Record<string, string>; body?: string | Buffer | object } | Error;
export type Call = Parameters<CheckHttpClient['call']>[0];

/** The outside as a function of the call; what it was asked is kept. */
export function outsideOf(
  answers: (call: Call) => Answer = () => new Error('no network here'),
  more: Partial<CheckHttpClient> = {},
): CheckHttpClient & { readonly calls: Call[] } {
  const calls: Call[] = [];
  return {
    calls,
    most: { bytes: 2 * 1024 * 1024, weight: 50_000 },
    owner: 'o',
    signal: new AbortController().signal,
    now: () => Date.UTC(2026, 0, 1),
    resolves: async () => true,
    async call(request) {
      calls.push(request);
      const answer = answers(request);
      if (answer instanceof Error) throw answer;
      const { status = 200, headers = {}, body = '' } = answer;
      const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
      return { status, headers, body: bytes };
    },
    ...more,
  };
}

/** Problems of one check's parameters as `path: message`; empty when they are accepted. */
export function problems(id: string, parameters: unknown, target: Target = 'llm'): string[] {
  const parsed = atOnce(readChecks(target, [{ id, parameters }]));
  return parsed.success ? [] : issuesOf(parsed.error).map(({ path, message }) => `${path}: ${message}`);
}

export const common = (more: Partial<Common> = {}): Common => ({
  timeoutMs: null,
  failOnError: false,
  forwardHeaders: [],
  credentials: null,
  ...more,
});

/** The judge of a check with parameters as they are sent; throws for those that are refused. */
export function judgeOf(id: string, parameters: Readonly<Record<string, unknown>> = {}, shared = common()) {
  const wrong = problems(id, parameters);
  const check = CHECKS.get(id);
  if (wrong.length > 0 || check === undefined) throw new Error(`${id}: ${wrong.join('; ')}`);
  const judge = check.compile(check.parameters.parse(parameters), shared);
  return check.canonical === true ? canonically(judge) : judge;
}

/** Judges once. */
export async function judged(
  id: string,
  parameters: Readonly<Record<string, unknown>>,
  subject: SubjectParts | string,
  outside: CheckHttpClient = outsideOf(),
): Promise<Judgement> {
  return judgeOf(id, parameters).judge(subjectOf(subject), outside);
}

/** The verdict of a stream that arrives in pieces, judged as the engine does it: windows with `lookBehind` before each piece. */
export async function streamed(
  id: string,
  parameters: Readonly<Record<string, unknown>>,
  pieces: readonly string[],
): Promise<boolean> {
  const judge = judgeOf(id, parameters);
  const { lookBehind } = judge;
  if (lookBehind === null) throw new Error(`${id} judges whole answers only`);
  let seen = '';
  let ok = true;
  for (const [i, piece] of pieces.entries()) {
    const before = lookBehind === 0 ? '' : seen.slice(-lookBehind);
    const window = { starts: before.length === seen.length, ends: i === pieces.length - 1 };
    const { verdict } = await judge.judge(subjectOf({ texts: [before + piece], window }), outsideOf());
    ok &&= verdict;
    seen += piece;
  }
  return ok;
}

/** The actions that a guardrail's body must name, and others. */
export const actionsWith = (more: Readonly<Record<string, unknown>> = {}) => ({
  deny: false,
  async: false,
  on_success: {},
  on_fail: {},
  ...more,
});
