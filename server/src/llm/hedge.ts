/**
 * Hedged attempts: while nothing has come back after a while, the same request is sent once more, and what answers first is
 * taken. Each further call is reserved under the limits of the request before it begins, and what a call that was given up
 * has used is booked by estimate.
 */

import type { SluiceError } from '../kernel/errors.ts';
import type { WireControl, WireHandler } from '../kernel/wire.ts';
import type { UsageReservation } from '../limits/ledger/held-reservation.ts';
import type { LimitedEntity, Reservation } from '../limits/rate-limits.ts';
import { recordedAs } from '../operations/dialects/errors.ts';
import { NO_TOKENS } from '../operations/usage.ts';
import type { AttemptCause } from '../telemetry/record.ts';
import { causeOfError, rounded } from './attempt-cause.ts';
import { likelyInput } from './estimate.ts';
import type { Uses } from './exchange.ts';
import { type Hedge, Race } from './relay/hedge-race.ts';
import { reserveAnother } from './steps/reserve.ts';
import type { Target } from './target.ts';

/** What this file uses of an exchange. */
type Used = Uses<
  'attempt' | 'clientGone' | 'execution' | 'limits' | 'outcome' | 'request',
  'admission' | 'clock' | 'ledger' | 'outputEstimator' | 'pricer' | 'storeClock' | 'unpriced'
>;

const LOST: AttemptCause = { kind: 'hedge_lost', code: 'hedge_lost', message: 'Another call has answered first.' };

function causeOfLost(status: number | null, error: SluiceError | null, open: boolean): AttemptCause {
  if (open) return LOST;
  if (error !== null) return causeOfError(error);
  return { kind: 'status', code: null, message: `The provider answered with status ${status}.` };
}

const NOTHING = { cost: 0, carry: 0, tokens: 0, requests: 0, unpriced: 0 };

export class HedgedCall {
  readonly #x: Used;
  readonly #target: Target;
  readonly #holds: UsageReservation[] = [];
  /** Of the provider's own rate limits, one for each call in the order in which they were to begin. */
  readonly #rates: Reservation[] = [];
  #settled = false;
  readonly race: Race;

  constructor(
    x: Used,
    target: Target,
    hedge: Hedge,
    handler: WireHandler,
    call: (handler: WireHandler) => WireControl,
  ) {
    this.#x = x;
    this.#target = target;
    this.race = new Race({ clock: x.services.clock, hedge, handler, call, mayCall: () => this.#mayCall() });
  }

  /** The attempt is over: tells of the calls that were not taken, books what they used, gives back what was reserved. */
  settle(): void {
    if (this.#settled) return;
    this.#settled = true;
    const x = this.#x;
    const target = this.#target;
    const lost = this.race.lost();
    for (const { status, error, open, began, ms } of lost) {
      x.outcome.attempts.push({
        target: target.path,
        provider: target.provider.id,
        status,
        error: open ? 'hedge_lost' : error === null ? null : recordedAs(error),
        cause: causeOfLost(status, error, open),
        began_ms: rounded(began - x.request.started),
        duration_ms: rounded(ms),
      });
      if (!open) continue;
      // A stream that was given up before its first byte had written nothing yet; an answer in one piece most of it.
      const usage = {
        ...NO_TOKENS,
        input: x.outcome.answer.usage?.input || likelyInput(x),
        output: x.attempt.stream ? 0 : (x.outcome.answer.usage?.output ?? 0),
      };
      x.outcome.usageEstimated = true;
      x.outcome.spend({ usage, target, model: target.sends(x.request.model), answered: null });
    }
    for (const hold of this.#holds) hold.settle(NOTHING, () => {});
    // A call that was allowed and then not needed any more was none; tokens of all are booked with the request.
    for (const [i, rate] of this.#rates.entries()) {
      if (i < lost.length) rate.settle(0);
      else rate.release();
    }
  }

  /** No call begins that a limit refuses; the request itself goes on. */
  #mayCall(): boolean | Promise<boolean> {
    const x = this.#x;
    if (x.clientGone || this.#settled) return false;
    const limited = this.#target.stored?.rateLimits ?? [];
    return limited.length === 0 ? this.#mayUse() : this.#mayAsk(x.request.snapshot?.workspaceId ?? '', limited);
  }

  /** Its provider gets one call more, which counts in the provider's own rate limits; the request is still one in all others. */
  async #mayAsk(workspaceId: string, limited: readonly LimitedEntity[]): Promise<boolean> {
    const rate = await this.#x.services.admission.admit(workspaceId, limited);
    if (rate.refusal !== null) return false;
    if (!this.#settled && (await this.#mayUse())) {
      // The attempt may have ended while its budget was asked.
      if (!this.#settled) {
        this.#rates.push(rate);
        return true;
      }
    }
    rate.release();
    return false;
  }

  #mayUse(): boolean | Promise<boolean> {
    const x = this.#x;
    try {
      const held = reserveAnother(x);
      if (!(held instanceof Promise)) return this.#keep(held);
      return held.then(
        (hold) => this.#keep(hold),
        () => false,
      );
    } catch {
      return false;
    }
  }

  #keep(hold: UsageReservation | null | false): boolean {
    if (hold === null) return true;
    if (hold === false) return false;
    if (this.#settled) {
      hold.settle(NOTHING, () => {});
      return false;
    }
    this.#holds.push(hold);
    return true;
  }
}
