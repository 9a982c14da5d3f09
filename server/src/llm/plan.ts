import type { Operation } from '../operations/operation.ts';
import type { GuardPlan } from './guard/plan.ts';
import { type Demand, type Step, stepsFor } from './pipeline.ts';
import type { Target } from './target.ts';

/** What a request will go through, decided once per (config, target, operation) and memoised on the snapshot. */
export interface Plan {
  /** Null when Sluice itself answers, or when the request names its provider later (`gateway_options`). */
  readonly target: Target | null;
  readonly configSlug: string | null;
  /** Null without any guardrail. */
  readonly guard: GuardPlan | null;
  readonly steps: readonly Step[];
}

export function makePlan(
  operation: Operation,
  target: Target | null,
  configSlug: string | null,
  guard: GuardPlan | null,
  demand: Omit<Demand, 'guardrails'>,
): Plan {
  const steps = stepsFor(operation.family, { ...demand, guardrails: guard !== null });
  return { target, configSlug, guard, steps };
}
