import type { Guardrail, GuardrailResult } from '../../guardrails/guardrail.ts';
import type { RouteDecision, ScoredTarget } from '../../telemetry/decision-facts.ts';
import type { Searched } from '../routing/conditions.ts';
import type { BalanceNode, ConditionalNode, Leaf, Route, RouteNode } from '../routing/route.ts';
import type { Target } from '../target.ts';
import type { RequestBody } from './body.ts';

/** What a guardrail has said of a body. */
export interface GuardrailVerdict {
  /** Null for one that runs beside the request. */
  readonly result: GuardrailResult | null;
  /** Provider and model that it was asked with. */
  readonly asked: string;
}

/** A body, as the config of a target makes it, after the guardrails that have judged it. */
export interface JudgedBody {
  /** In the order in which they ran. */
  readonly list: readonly Guardrail[];
  readonly said: ReadonlyMap<Guardrail, GuardrailVerdict>;
  readonly denied: Guardrail | null;
  readonly body: RequestBody;
  /** The body is no longer the caller's. */
  readonly changed: boolean;
}

/** What a request with several targets knows of them so far. */
export interface RouteExecution {
  readonly route: Route;
  /** Of the config, for what is remembered of its targets. */
  readonly place: string;
  /** Where the breakers of its targets are kept for this request. */
  readonly breakers: string;
  /** Drawn once for a request. */
  readonly picks: Map<BalanceNode | ConditionalNode, RouteNode>;
  readonly targets: Map<Leaf, Target>;
  /** What guardrails said of bodies, by the shape of the target. */
  readonly judged: Map<string, JudgedBody>;
  /** The place of the target under way in the config. */
  path: string;
  /** Some target ran inside the process, and may still read the body. */
  local: boolean;
  /** How the targets stood when it was decided, for the record; null before. */
  scored: ScoredTarget[] | null;
  /** What was decided, for the record. */
  readonly decisions: RouteDecision[];
  readonly searched: Searched;
}
