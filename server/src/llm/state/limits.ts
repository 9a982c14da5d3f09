import { LimitState } from '../../gateway/limit-state.ts';
import type { UsageReservation } from '../../limits/ledger/ledger.ts';
import type { LimitSpec } from '../../limits/ledger/limit-spec.ts';
import type { LimitedEntity, Quota, Reservation } from '../../limits/rate-limits.ts';
import type { Price } from '../../pricing/price.ts';
import type { Target } from '../target.ts';

/** What a request may use at most, or will most likely use. */
export interface Estimate {
  /** Tokens. */
  readonly input: number;
  readonly output: number;
  /** Whether it cannot become more. */
  readonly bounded: boolean;
  /** Of the model as it was asked for; null when none is known. */
  readonly price: Price | null;
  /** Nothing is charged for it, by whatever model. */
  readonly free: boolean;
}

/** What was reserved for a request that runs. */
export interface Reserved {
  readonly estimate: Estimate;
  /** The price of its model, or those that its limits set for it. */
  readonly prices: readonly Price[];
}

/** What one target of several is counted in by itself. */
export interface TargetLimits {
  readonly target: Target;
  rateReservation: Reservation | null;
  usageReservation: UsageReservation | null;
  /** Counters of policies that this target counts the request in. */
  readonly counts: string[];
  /** How much of `outcome.spent` there was before it. */
  readonly spentBefore: number;
}

/** What limits hold of a request with several targets, over all of them. */
export class SharedLimits {
  /** What is left of limits that are not a target's own. */
  quota: Quota | null = null;
  /** Counters of policies that ask for targets and have counted the request already. */
  readonly counted = new Set<string>();
  /** By targets that are done with: micro-dollars and tokens. */
  readonly used = { cost: 0, tokens: 0 };
  /** Bookings on their way to the journal. */
  readonly settling: Promise<void>[] = [];
}

/** What limits hold of a request to a model. */
export class LlmLimits extends LimitState {
  /** What was reserved for, to reserve more when it becomes more. */
  reserved: Reserved | null = null;
  /** Of requests with several targets; null for all others. */
  shared: SharedLimits | null = null;
  /** What the target under way is counted in by itself; null for requests with one target. */
  targetLimits: TargetLimits | null = null;
  /** The rate limits and the usage limits that the request was asked under, or would be were it no dry run. */
  rateLimits: readonly LimitedEntity[] = NO_LIMITS;
  usageLimits: readonly LimitSpec[] = NO_LIMITS;
  /** Those that only the target under way has; its request has several. */
  targetRateLimits: readonly LimitedEntity[] = NO_LIMITS;
  targetUsageLimits: readonly LimitSpec[] = NO_LIMITS;

  /** Another target is tried. */
  turnToTarget(): void {
    this.exhausted = null;
    this.targetRateLimits = NO_LIMITS;
    this.targetUsageLimits = NO_LIMITS;
  }
}

const NO_LIMITS: readonly never[] = [];

/** The limits that a request was asked under, for its record: `rate_limit policy:<id>`, in the order in which they were asked. */
export function appliedLimits(limits: LlmLimits): string[] {
  const rate = ({ kind, id, policy }: LimitedEntity) => `rate_limit ${kind}:${policy?.id ?? id}`;
  const usage = ({ ownerKind, ownerId }: LimitSpec) => `usage_limit ${ownerKind}:${ownerId}`;
  return [
    ...limits.rateLimits.map(rate),
    ...limits.targetRateLimits.map(rate),
    ...limits.usageLimits.map(usage),
    ...limits.targetUsageLimits.map(usage),
  ];
}
