/** Times by which decisions about limits are put in order again later. */

let last = 0;
let within = 0;

/**
 * `now` (whole milliseconds) with a rising fraction: what this process stamps within one millisecond keeps its order.
 * After 999 stamps in a millisecond the fraction stays.
 */
export function orderingTimestamp(now: number): number {
  if (now !== last) {
    last = now;
    within = 0;
    return now;
  }
  if (within < 999) within += 1;
  return (now * 1000 + within) / 1000;
}
