import type { Phase, Subject } from '../guardrails/check.ts';
import type { Outcome } from '../guardrails/guardrail.ts';
import { type RunOptions, runGuardrails } from '../guardrails/run.ts';
import type { Clock } from '../kernel/clock.ts';
import { denial } from './guardrail-denial.ts';
import type { GuardrailState } from './guardrail-state.ts';

/** What a run takes of its request. */
export interface Judging {
  readonly clock: Clock;
  /** Aborted when the caller leaves or the process stops; checks that call others end with it. */
  readonly signal: AbortSignal;
}

/** What runs of this request's guardrails are given. */
export function runOptions(state: GuardrailState, { clock, signal }: Judging): Omit<RunOptions, 'view'> {
  const { outside } = state;
  return {
    outside: (check) => outside(AbortSignal.any([check, signal])),
    clock,
    onAsync: state.onAsync,
  };
}

/**
 * Judges by the guardrails of a phase and notes what they say for the record. What they change is in the outcome, for
 * the plane to put in its place. Throws `guardrail_denied` when one denies.
 */
export async function judge(
  state: GuardrailState,
  phase: Phase,
  subject: Subject,
  judging: Judging,
  view?: RunOptions['view'],
): Promise<Outcome> {
  const options = { ...runOptions(state, judging), ...(view === undefined ? null : { view }) };
  const outcome = await runGuardrails(state[phase], subject, options);
  if (phase === 'input') state.before = outcome.results;
  else state.after = outcome.results;
  state.failed ||= outcome.failed;
  state.soft = outcome.soft;
  if (outcome.denied) throw denial(state);
  return outcome;
}
