import type { UsageLimitState, UsageReservation } from '../limits/ledger/ledger.ts';
import type { Quota, Reservation } from '../limits/rate-limits.ts';
import type { LimitFacts } from '../store/limit-types.ts';

/** What limits hold of one request, and what they have said of it. */
export class LimitState {
  /** Its place in the rate limits that have admitted it; null where none counts it. */
  rateReservation: Reservation | null = null;
  /** What is left of the rate limits that the request was counted in, or refused by. */
  quota: Quota | null = null;
  /** What is reserved under usage limits. */
  usageReservation: UsageReservation | null = null;
  /** What limits had to do with it, for the record; null while none was asked. */
  facts: LimitFacts | null = null;
  /** The usage limit that refused the request. */
  exhausted: UsageLimitState | null = null;

  /** The request is refused after all: only accepted requests count in rate limits, and those came first. */
  release(): void {
    if (this.rateReservation !== null) this.quota = this.rateReservation.release();
    this.rateReservation = null;
  }
}
