/** A guardrail ready to run, and what a run says. */
import type { CheckEntry, CompiledCheck } from './catalog.ts';
import type { Excerpt, Phase, Replacement, Target } from './check.ts';

export interface Feedback {
  readonly value: number;
  readonly weight: number;
  /** A text, or in configs an object. */
  readonly metadata: string | Readonly<Record<string, unknown>>;
}

/** Feedback as a run gives it: its metadata also tell which checks passed, failed and erred, ids separated by commas. */
export interface GivenFeedback {
  readonly value: number;
  readonly weight: number;
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** What follows from a verdict, with every default filled in. */
export interface Actions {
  readonly deny: boolean;
  readonly async: boolean;
  readonly sequential: boolean;
  readonly softDeny: boolean;
  readonly onSuccess: Feedback;
  readonly onFail: Feedback;
  /** For checks that cannot be carried out and say nothing themselves (`failOnError`). */
  readonly onError: 'pass' | 'fail';
  /** Which messages of a request are looked at. */
  readonly messages: 'all' | 'new' | 'last';
  readonly stream: 'incremental' | 'buffer';
  /** Whether the body of a request that it denies may be kept. */
  readonly logContent: 'withheld' | 'as_sent';
}

/** A check of a guardrail; `judge` is null where it could not be made ready, which counts as a check that fails. */
export interface GuardrailCheck extends Omit<CompiledCheck, 'judge' | 'entry'> {
  /** Absent where it could not be made ready. */
  readonly entry?: CheckEntry;
  readonly judge: CompiledCheck['judge'] | null;
}

export interface Guardrail {
  readonly id: string;
  readonly slug: string;
  readonly name: string;
  /** Of a stored guardrail, for the record. */
  readonly version?: string;
  readonly target: Target;
  /** `mutator` where it came from a list of mutators in a config. */
  readonly type: 'guardrail' | 'mutator';
  readonly actions: Actions;
  /** Enabled ones, in order. */
  readonly checks: readonly GuardrailCheck[];
}

/** One check of a run. */
export type CheckResult = {
  readonly id: string;
  readonly verdict: boolean;
  readonly data: Readonly<Record<string, unknown>> | null;
  readonly excerpts: readonly Excerpt[];
  /** Milliseconds. */
  readonly execution_time: number;
  readonly transformed: boolean;
  readonly created_at: string;
  readonly log: null;
  readonly error: { readonly name: string; readonly message: string } | null;
  readonly fail_on_error: boolean;
};

/** One guardrail of a run: what answers and records show. */
export interface GuardrailResult {
  readonly verdict: boolean;
  readonly id: string;
  readonly transformed: boolean;
  readonly checks: readonly CheckResult[];
  readonly feedback: GivenFeedback | null;
  readonly execution_time: number;
  readonly async: boolean;
  readonly deny: boolean;
  /** No check of it judges this phase, or a guardrail before it has denied. */
  readonly skipped: boolean;
  readonly type: 'guardrail' | 'mutator';
  readonly created_at: string;
}

/** What all guardrails of one phase come to. */
export interface Outcome {
  readonly phase: Phase;
  /** In the order in which they stand, synchronous ones only. */
  readonly results: readonly GuardrailResult[];
  /** A guardrail that denies has failed: 446. */
  readonly denied: boolean;
  /** Some guardrail has failed and none denies: 246. */
  readonly failed: boolean;
  /** The caller gets the refusal as an ordinary answer. */
  readonly soft: boolean;
  /** Texts to put in place of others, the last word for each path. */
  readonly replacements: readonly Replacement[];
  /** The whole request or answer in place of the one that was judged; undefined without. */
  readonly replaced: unknown;
}
