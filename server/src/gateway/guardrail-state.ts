/** What guardrails have said of one request, whatever kind of traffic it is, and what they may use meanwhile. */
import type { Guardrail, GuardrailResult } from '../guardrails/guardrail.ts';
import type { CheckHttpClientFactory } from '../guardrails/run.ts';
import type { SluiceError } from '../kernel/errors.ts';
import type { JsonObject } from '../kernel/json.ts';
import type { GuardrailFacts } from '../telemetry/guardrail-facts.ts';
import type { LogRecord } from '../telemetry/record.ts';
import type { RecordDraft } from '../telemetry/recorder.ts';
import type { GatewayServices } from './services.ts';

/** Which guardrails judge a request, in the order in which they run. */
export interface GuardrailLists {
  readonly input: readonly Guardrail[];
  readonly output: readonly Guardrail[];
}

/** Whose request it is. */
export interface GuardedCaller {
  readonly id: string;
  readonly organisationId: string;
}

export class GuardrailState {
  /** In the order in which they run, asynchronous ones among them. */
  input: readonly Guardrail[];
  output: readonly Guardrail[];
  /** Results of synchronous guardrails, as answers show them. */
  before: readonly GuardrailResult[] = [];
  after: readonly GuardrailResult[] = [];
  /** A guardrail has failed that does not deny: 246. */
  failed = false;
  /** The caller gets the refusal as an ordinary answer. */
  soft = false;
  /** For files that Sluice keeps: the refusal of those that a provider wrote and nobody has judged. */
  unjudged: SluiceError | null = null;
  readonly outside: CheckHttpClientFactory;
  readonly #log: GatewayServices['log'];
  readonly #caller: GuardedCaller;
  /** Of targets before the one under way. */
  readonly #earlier = new Set<GuardrailResult>();
  readonly #all = new Set<Guardrail>();
  #beside: GuardrailResult[] = [];
  #recorded = false;
  readonly #feedback: GatewayServices['guardrailFeedback'];
  /** The record of the request, once it is written. */
  #record: RecordDraft | null = null;
  #gone: AbortController | null = null;

  constructor(
    services: Pick<GatewayServices, 'outside' | 'log' | 'guardrailFeedback'>,
    caller: GuardedCaller,
    lists: GuardrailLists,
  ) {
    this.#log = services.log;
    this.#feedback = services.guardrailFeedback;
    this.#caller = caller;
    this.input = lists.input;
    this.output = lists.output;
    this.outside = (signal) => {
      this.#gone ??= new AbortController();
      return services.outside(caller.organisationId)(AbortSignal.any([signal, this.#gone.signal]));
    };
  }

  /** Another target is tried: its guardrails, of which none has said anything yet. */
  turnTo(lists: GuardrailLists): void {
    for (const result of this.before) this.#earlier.add(result);
    for (const guardrail of [...this.input, ...this.output]) this.#all.add(guardrail);
    this.input = lists.input;
    this.output = lists.output;
    this.before = [];
    this.after = [];
    this.failed = false;
    this.soft = false;
  }

  /** Ends the calls of checks: no part waits for their results. */
  end(): void {
    this.#gone?.abort();
    // A further attempt has its own checks.
    this.#gone = null;
  }

  /** Those that run beside the request are part of its record when they are done by then, and of the log otherwise. */
  readonly onAsync = (result: GuardrailResult): void => {
    if (!this.#recorded) {
      this.#beside.push(result);
      return;
    }
    this.#give(result);
    const { id } = this.#caller;
    this.#log.info('a guardrail beside a request is done', { request_id: id, ...this.#factsOf(result, null) });
  };

  /** For the record; what comes after it goes to the log. */
  facts(): GuardrailFacts[] {
    this.#recorded = true;
    return [
      ...[...new Set([...this.#earlier, ...this.before])].map((result) => this.#factsOf(result, 'input')),
      ...this.after.map((result) => this.#factsOf(result, 'output')),
      ...this.#beside.map((result) => this.#factsOf(result, null)),
    ];
  }

  /** Something was changed in the request or its answer, for whichever target. */
  get hasRedacted(): boolean {
    return this.hasRedactedInput || this.after.some(({ transformed }) => transformed);
  }

  get hasRedactedInput(): boolean {
    return [...this.#earlier, ...this.before].some(({ transformed }) => transformed);
  }

  /** Guardrails that have denied the request or its answer. */
  denying(): Guardrail[] {
    const slugs = new Set(
      [...this.before, ...this.after].filter(({ verdict, deny }) => !verdict && deny).map(({ id }) => id),
    );
    return [...this.input, ...this.output].filter(({ slug }) => slugs.has(slug));
  }

  /** Gives the feedback of all that was said; that of guardrails which still run beside the request follows. */
  recorded(record: RecordDraft): void {
    if (record.dry_run) return;
    this.#record = record;
    for (const result of new Set([...this.#earlier, ...this.before, ...this.after, ...this.#beside]))
      this.#give(result);
  }

  #give({ id, feedback }: GuardrailResult): void {
    if (this.#record !== null && feedback !== null) this.#feedback.note(this.#record, id, feedback);
  }

  #factsOf(result: GuardrailResult, phase: 'input' | 'output' | null): GuardrailFacts {
    const guardrail = [...this.input, ...this.output, ...this.#all].find(({ slug }) => slug === result.id);
    return {
      slug: result.id,
      version: guardrail?.version ?? null,
      phase,
      verdict: result.verdict,
      deny: result.deny,
      async: result.async,
      transformed: result.transformed,
      skipped: result.skipped,
      ms: result.execution_time,
      checks: result.checks.map((check) => ({
        id: check.id,
        verdict: check.verdict,
        ms: check.execution_time,
        transformed: check.transformed,
        error: check.error?.name ?? null,
        kinds: [...new Set(check.excerpts.map(({ kind }) => kind))].slice(0, 20),
      })),
    };
  }
}

/** The results where what was changed cannot be put in its place: the checks that changed it have failed. */
export function withoutChange(results: readonly GuardrailResult[], why: string): GuardrailResult[] {
  const error = { name: 'NotApplied', message: why };
  return results.map((result) => {
    if (!result.transformed) return result;
    const checks = result.checks.map((check) =>
      check.transformed ? { ...check, verdict: false, transformed: false, error } : check,
    );
    return { ...result, verdict: false, transformed: false, feedback: null, checks };
  });
}

/** What answers show of guardrails. */
export function hookResults({ before, after }: Pick<GuardrailState, 'before' | 'after'>): JsonObject {
  return { before_request_hooks: before, after_request_hooks: after } as unknown as JsonObject;
}

/** Which guardrails judge a request, for its record. */
export function guardsOf({ input, output }: GuardrailLists): NonNullable<LogRecord['guards']> {
  return { input: input.map(slugOf), output: output.map(slugOf) };
}

const slugOf = ({ slug }: Guardrail): string => slug;
