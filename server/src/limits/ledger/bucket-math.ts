/** The arithmetic of a bucket, for those who keep it and for those who ask what would have been. */

const PICO = 1_000_000;
/** Ten years: what lasts longer is not foreseen. */
const FAR = 315_360_000_000;

/** Whether a bucket takes one more request: at the limit nothing more is admitted. */
export function admits(committed: number, limit: number): boolean {
  return committed < limit;
}

/** What a request that is admitted by the store reserves. One that may use more is alone in the last hundredth of a limit. */
export function grantOf(
  charge: { readonly amount: number; readonly bounded: boolean },
  limit: number,
  committed: number,
): number {
  const left = limit - committed;
  return !charge.bounded && left <= limit / 100 ? Math.max(charge.amount, left) : charge.amount;
}

/** The picodollars beside what a request used: they never make it less than nothing, so sums in any order agree. */
export function carryOf({ used, carry }: { readonly used: number; readonly carry: number }): number {
  return Math.max(carry, -used * PICO);
}

/** Adds what a request used; picodollars are carried beside it. */
export function addUsed(
  count: { used: number; carry: number },
  done: { readonly used: number; readonly carry: number },
): void {
  const picos = count.carry + carryOf(done);
  const whole = Math.floor(picos / PICO);
  count.carry = picos - whole * PICO;
  count.used += done.used + whole;
}

const HOUR = 3_600_000;

/** What is used per hour at `now`: use of an hour ago weighs e times less than that of this moment. */
export function burnAt(
  { burn, burn_at: at }: { readonly burn: number; readonly burn_at: number },
  now: number,
): number {
  return burn === 0 ? 0 : Math.round(burn * Math.exp(-Math.max(0, now - at) / HOUR));
}

/** When a limit is used up if use goes on as now; null when it is already, or will not be before the window ends. */
export function exhaustsAt(
  bucket: {
    readonly used: number;
    readonly credit_limit: number;
    readonly resets_at: number | null;
    readonly burn: number;
    readonly burn_at: number;
  },
  now: number,
): number | null {
  const left = bucket.credit_limit - bucket.used;
  const burn = burnAt(bucket, now);
  if (left <= 0 || burn === 0) return null;
  const at = now + Math.ceil((left / burn) * HOUR);
  return at > now + FAR || (bucket.resets_at !== null && at >= bucket.resets_at) ? null : at;
}
