import { LimitState } from '../../gateway/limit-state.ts';
import type { Reserved } from '../estimate.ts';
import type { Leg } from '../routing/leg.ts';

/** What limits hold of a request to a model. */
export class LlmLimits extends LimitState {
  /** What was reserved for, to reserve more when it becomes more. */
  reserved: Reserved | null = null;
  /** What the target under way is counted in by itself; null for requests with one target. */
  leg: Leg | null = null;
}
