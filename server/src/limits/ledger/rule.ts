/** The arithmetic of a bucket, for those who keep it and for those who ask what would have been. */

const PICO = 1_000_000;

/** Whether a bucket takes one more request: at the limit nothing more is admitted. */
export function admits(committed: number, limit: number): boolean {
  return committed < limit;
}

/** What a request that is admitted by the books reserves. One that may use more is alone in the last hundredth of a limit. */
export function grantOf(
  demand: { readonly amount: number; readonly bounded: boolean },
  limit: number,
  committed: number,
): number {
  const left = limit - committed;
  return !demand.bounded && left <= limit / 100 ? Math.max(demand.amount, left) : demand.amount;
}

/** Adds what a request used; picodollars are carried beside it. */
export function addUsed(
  count: { used: number; carry: number },
  done: { readonly used: number; readonly carry: number },
): void {
  const picos = count.carry + done.carry;
  const whole = Math.floor(picos / PICO);
  count.carry = picos - whole * PICO;
  count.used = Math.max(0, count.used + done.used + whole);
}
