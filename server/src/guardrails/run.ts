/**
 * Runs guardrails. It owns what checks do not: order, time-outs, errors, and what one change means for whoever judges next.
 * Nothing is asynchronous unless a check is: no promise, no timer.
 */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import {
  CheckError,
  type CheckHttpClient,
  type Judgement,
  type MostRead,
  type Phase,
  type Replacement,
  type Subject,
} from './check.ts';
import type {
  Actions,
  CheckResult,
  GivenFeedback,
  Guardrail,
  GuardrailCheck,
  GuardrailResult,
  Outcome,
} from './guardrail.ts';

/** Makes what one check may use to call others; its calls end with `signal`. */
export type CheckHttpClientFactory = (signal: AbortSignal) => CheckHttpClient;

/** What guardrails have changed so far. */
export interface Change {
  /** Of the texts of `replaced`, or of what was given where that is undefined. */
  readonly replacements: readonly Replacement[];
  readonly replaced: unknown;
}

export interface RunOptions {
  readonly outside: CheckHttpClientFactory;
  readonly clock: Clock;
  /** Told of every guardrail that runs beside the request, at once or later; its result changes nothing. */
  readonly onAsync: (result: GuardrailResult) => void;
  /** Called when one of them begins: as often as `onAsync` will be. */
  readonly onBeside?: () => void;
  /**
   * The subject with the messages a guardrail looks at, after what was changed so far (null: nothing). Without it every
   * guardrail sees the subject that was given, with replaced texts in their places.
   */
  readonly view?: (messages: Actions['messages'], change: Change | null) => Subject;
}

/** Judges by each guardrail in turn. The first that denies ends it: those after it are skipped and see nothing. */
export function runGuardrails(
  list: readonly Guardrail[],
  subject: Subject,
  options: RunOptions,
): Outcome | Promise<Outcome> {
  return new Run(list, subject, options).go(0);
}

class Run {
  readonly #list: readonly Guardrail[];
  readonly #given: Subject;
  readonly #options: RunOptions;
  readonly #results: GuardrailResult[] = [];
  #change: Change | null = null;
  #denied: Guardrail | null = null;

  constructor(list: readonly Guardrail[], subject: Subject, options: RunOptions) {
    this.#list = list;
    this.#given = subject;
    this.#options = options;
  }

  go(from: number): Outcome | Promise<Outcome> {
    for (let i = from; i < this.#list.length; i++) {
      const guardrail = this.#list[i];
      if (guardrail === undefined) continue;
      const checks = applicable(guardrail, this.#given.phase);
      if (this.#denied !== null || checks.length === 0) {
        if (!guardrail.actions.async) this.#results.push(skipped(guardrail, this.#options.clock));
        continue;
      }
      const one = new GuardrailRun(guardrail, checks, this.#given, this.#change, this.#options);
      if (guardrail.actions.async) this.#options.onBeside?.();
      const result = one.go(0);
      if (guardrail.actions.async) {
        const { onAsync } = this.#options;
        if (result instanceof Promise) void result.then(onAsync);
        else onAsync(result);
      } else if (result instanceof Promise) {
        return result.then((value) => {
          this.#take(guardrail, one, value);
          return this.go(i + 1);
        });
      } else this.#take(guardrail, one, result);
    }
    return this.#outcome();
  }

  #take(guardrail: Guardrail, run: GuardrailRun, result: GuardrailResult): void {
    this.#results.push(result);
    this.#change = run.change;
    if (!result.verdict && guardrail.actions.deny) this.#denied = guardrail;
  }

  #outcome(): Outcome {
    return {
      phase: this.#given.phase,
      results: this.#results,
      denied: this.#denied !== null,
      failed: this.#denied === null && this.#results.some((result) => !result.verdict),
      soft: this.#denied?.actions.softDeny ?? false,
      replacements: this.#change?.replacements ?? [],
      replaced: this.#change?.replaced,
    };
  }
}

function applicable({ checks }: Guardrail, phase: Phase): readonly GuardrailCheck[] {
  return checks.every((check) => check.phases.includes(phase))
    ? checks
    : checks.filter((check) => check.phases.includes(phase));
}

interface Waiting {
  readonly check: GuardrailCheck;
  readonly at: number;
  /** The change it was started under. */
  readonly seen: Change | null;
  readonly judged: Promise<Judged>;
}

/** A check's judgement and how it came about. */
interface Judged {
  readonly judgement: Judgement | null;
  readonly error: CheckResult['error'];
  readonly began: number;
  readonly ended: number;
}

/** Checks of one guardrail. */
class GuardrailRun {
  readonly #guardrail: Guardrail;
  readonly #checks: readonly GuardrailCheck[];
  readonly #options: RunOptions;
  readonly #given: Subject;
  readonly #results: (CheckResult | undefined)[] = [];
  readonly #began: number;
  #subject: Subject | null = null;
  #waiting: Waiting[] = [];
  #transformed = false;
  #ended = false;
  change: Change | null;

  constructor(
    guardrail: Guardrail,
    checks: readonly GuardrailCheck[],
    given: Subject,
    change: Change | null,
    options: RunOptions,
  ) {
    this.#guardrail = guardrail;
    this.#checks = checks;
    this.#given = given;
    this.#options = options;
    this.#began = options.clock.monotonic();
    this.change = change;
  }

  go(from: number): GuardrailResult | Promise<GuardrailResult> {
    for (let i = from; i < this.#checks.length && !this.#ended; i++) {
      const check = this.#checks[i];
      if (check === undefined) continue;
      if (this.#mustWait(check)) return this.#settle().then(() => this.go(i));
      const judged = this.#judge(check);
      if (judged instanceof Promise) this.#waiting.push({ check, at: i, seen: this.change, judged });
      else this.#take(check, i, judged);
    }
    return this.#waiting.length > 0 ? this.#settle().then(() => this.#result()) : this.#result();
  }

  /**
   * In order where that is asked for. Otherwise a check waits only for one before it that may still take texts away which
   * nobody after it should see, and one that redacts for whatever may still change the texts. Webhooks run beside each
   * other: they have to be quick more often than they change anything.
   */
  #mustWait(check: GuardrailCheck): boolean {
    if (this.#waiting.length === 0) return false;
    if (this.#guardrail.actions.sequential) return true;
    return this.#waiting.some((one) => one.check.mutates && (!replacesAll(one.check) || redacts(check)));
  }

  async #settle(): Promise<void> {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { check, at, seen, judged } of waiting) {
      let said = await judged;
      // Two that ran beside each other both changed it: the later one judges again what the earlier one made of it.
      if (seen !== this.change && this.#changes(check, said.judgement)) said = await this.#judge(check);
      this.#take(check, at, said);
    }
  }

  #changes(check: GuardrailCheck, judgement: Judgement | null): boolean {
    return (
      check.mutates &&
      judgement !== null &&
      (judgement.replaced !== undefined || (judgement.replacements?.length ?? 0) > 0)
    );
  }

  #judge(check: GuardrailCheck): Judged | Promise<Judged> {
    const { clock } = this.#options;
    const began = clock.monotonic();
    const end = (judgement: Judgement | null, error: CheckResult['error']): Judged => ({
      judgement,
      error,
      began,
      ended: clock.monotonic(),
    });
    if (check.judge === null) return end(null, NOT_READY);
    const outside = new LateOutside(this.#options.outside, clock);
    try {
      const said = check.judge.judge(this.#view(), outside);
      if (!(said instanceof Promise)) return end(said, null);
      return limited(said, check.common.timeoutMs, outside, clock).then(
        (judgement) => end(judgement, null),
        (error: unknown) => end(null, told(error)),
      );
    } catch (error) {
      return end(null, told(error));
    }
  }

  #view(): Subject {
    if (this.#subject === null) {
      const { view } = this.#options;
      this.#subject =
        view !== undefined
          ? view(this.#guardrail.actions.messages, this.change)
          : this.change === null
            ? this.#given
            : withReplaced(this.#given, this.change);
    }
    return this.#subject;
  }

  #take(check: GuardrailCheck, at: number, { judgement, error, began, ended }: Judged): void {
    const { actions } = this.#guardrail;
    const failsOnError = check.judge === null || check.common.failOnError || actions.onError === 'fail';
    const verdict = judgement?.verdict ?? !failsOnError;
    const transformed = !actions.async && this.#changes(check, judgement);
    if (transformed && judgement !== null) {
      this.#transformed = true;
      this.#subject = null;
      this.change =
        judgement.replaced === undefined
          ? { replaced: this.change?.replaced, replacements: merged(this.change, judgement.replacements ?? []) }
          : { replaced: judgement.replaced, replacements: judgement.replacements ?? [] };
    }
    this.#results[at] = {
      id: check.id,
      verdict,
      data: judgement?.data ?? null,
      excerpts: judgement?.excerpts ?? [],
      execution_time: milliseconds(ended - began),
      transformed,
      created_at: this.#stamp(),
      log: null,
      error,
      fail_on_error: failsOnError,
    };
    if (!verdict && actions.sequential) this.#ended = true;
  }

  #result(): GuardrailResult {
    const { slug: id, type, actions } = this.#guardrail;
    const checks = this.#results.filter((result) => result !== undefined);
    const verdict = checks.every((check) => check.verdict);
    return {
      verdict,
      id,
      transformed: this.#transformed,
      checks,
      feedback: feedbackOf(actions, verdict, checks),
      execution_time: milliseconds(this.#options.clock.monotonic() - this.#began),
      async: actions.async,
      deny: actions.deny,
      skipped: false,
      type,
      created_at: this.#stamp(),
    };
  }

  #stamp(): string {
    return stamp(this.#options.clock.now());
  }
}

/** Redactions must see each other's work, or the later one would bring back what the earlier one took out. */
const redacts = (check: GuardrailCheck): boolean => check.mutates && !replacesAll(check);
const replacesAll = (check: GuardrailCheck): boolean => check.replacesWhole === true;

const NOT_READY = {
  name: 'NotReady',
  message: 'The check cannot be carried out: its parameters are not valid, or its secrets do not open.',
} as const;

/** Its own errors a check writes for people to read; what else is thrown may hold anything. */
function told(error: unknown): { name: string; message: string } {
  if (error instanceof CheckError || error instanceof SluiceError || error instanceof TimedOut)
    return { name: error.name, message: error.message.slice(0, 500) };
  return { name: error instanceof Error ? error.name : 'Error', message: 'The check failed unexpectedly.' };
}

class TimedOut extends Error {
  constructor(ms: number) {
    super(`The check did not end within ${ms} ms.`);
    this.name = 'TimeoutError';
  }
}

function limited(said: Promise<Judgement>, ms: number | null, outside: LateOutside, clock: Clock): Promise<Judgement> {
  if (ms === null) return said;
  return new Promise((resolve, reject) => {
    const cancel = clock.after(ms, () => {
      reject(new TimedOut(ms));
      outside.abort(new TimedOut(ms));
    });
    said.then(
      (judgement) => {
        cancel();
        resolve(judgement);
      },
      (error: unknown) => {
        cancel();
        reject(error);
      },
    );
  });
}

/** Made when a check calls out: most do not, and an abort signal for each would be most of what they cost. */
class LateOutside implements CheckHttpClient {
  readonly #factory: CheckHttpClientFactory;
  readonly #clock: Clock;
  #controller: AbortController | null = null;
  #made: CheckHttpClient | null = null;

  constructor(factory: CheckHttpClientFactory, clock: Clock) {
    this.#factory = factory;
    this.#clock = clock;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    return this.#controller.signal;
  }

  get most(): MostRead {
    this.#made ??= this.#factory(this.signal);
    return this.#made.most;
  }

  get owner(): string {
    this.#made ??= this.#factory(this.signal);
    return this.#made.owner;
  }

  call(request: Parameters<CheckHttpClient['call']>[0]): ReturnType<CheckHttpClient['call']> {
    this.#made ??= this.#factory(this.signal);
    return this.#made.call(request);
  }

  resolves(host: string): Promise<boolean> {
    this.#made ??= this.#factory(this.signal);
    return this.#made.resolves(host);
  }

  now(): number {
    return this.#clock.now();
  }

  abort(reason: Error): void {
    this.#controller ??= new AbortController();
    this.#controller.abort(reason);
  }
}

/** The last word for each path. */
function merged(change: Change | null, later: readonly Replacement[]): readonly Replacement[] {
  if (change === null || change.replacements.length === 0) return later;
  const byPath = new Map(change.replacements.map((one) => [one.path, one]));
  for (const one of later) byPath.set(one.path, one);
  return [...byPath.values()];
}

/** The subject with its texts replaced. What the texts were taken from cannot be changed here. */
function withReplaced(given: Subject, { replacements }: Change): Subject {
  const byPath = new Map(replacements.map(({ path, text }) => [path, text]));
  const texts = given.texts.map((part) => {
    const text = byPath.get(part.path);
    return text === undefined ? part : { ...part, text };
  });
  const latest = () => {
    // Its parts are the last ones, as many as make up its length.
    let rest = given.latest().length + 1;
    let from = given.texts.length;
    while (from > 0 && rest > 0) rest -= (given.texts[--from]?.text.length ?? 0) + 1;
    return texts
      .slice(from)
      .map(({ text }) => text)
      .join('\n');
  };
  return {
    phase: given.phase,
    window: given.window,
    texts,
    latest,
    request: () => given.request(),
    answer: () => given.answer(),
    callsTools: given.callsTools,
    model: given.model,
    provider: given.provider,
    requestType: given.requestType,
    streams: given.streams,
    transformed: true,
    status: given.status,
    metadata: given.metadata,
    header: (name) => given.header(name),
  };
}

function feedbackOf(actions: Actions, verdict: boolean, checks: readonly CheckResult[]): GivenFeedback {
  const { value, weight, metadata } = verdict ? actions.onSuccess : actions.onFail;
  const ids = (which: (check: CheckResult) => boolean): string =>
    checks
      .filter(which)
      .map(({ id }) => id)
      .join(',');
  return {
    value,
    weight,
    metadata: {
      ...(typeof metadata === 'string' ? (metadata === '' ? null : { metadata }) : metadata),
      successfulChecks: ids((check) => check.verdict && check.error === null),
      failedChecks: ids((check) => !check.verdict),
      erroredChecks: ids((check) => check.error !== null),
    },
  };
}

function skipped({ slug: id, type, actions }: Guardrail, clock: Clock): GuardrailResult {
  return {
    verdict: true,
    id,
    transformed: false,
    checks: [],
    feedback: null,
    execution_time: 0,
    async: actions.async,
    deny: actions.deny,
    skipped: true,
    type,
    created_at: stamp(clock.now()),
  };
}

let stamped = { at: Number.NaN, text: '' };

/** Results of one millisecond share one text: making it is a good part of what a check costs. */
function stamp(at: number): string {
  if (stamped.at !== at) stamped = { at, text: new Date(at).toISOString() };
  return stamped.text;
}

const milliseconds = (ms: number): number => Math.round(ms * 1000) / 1000;
