/** When the traffic of a place is worth an alert: rules over sums, without a store or a clock. */

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
/** The time that a budget of spend is for. */
export const BUDGET_MS = 30 * 24 * HOUR_MS;

/** An alert while a budget is used so many times as fast as it may be, in the long range and in the short one. */
export interface BurnRule {
  readonly hours: number;
  /** Ends the alert soon after its cause; null: the long range alone counts. */
  readonly shortMs: number | null;
  readonly times: number;
}

/** 2 % of a month's budget in an hour, 5 % in six hours, 10 % in three days. */
export const BURN_RULES: readonly BurnRule[] = [
  { hours: 1, shortMs: 5 * MINUTE_MS, times: 14.4 },
  { hours: 6, shortMs: 30 * MINUTE_MS, times: 6 },
  { hours: 72, shortMs: null, times: 1 },
];

/** Fewer failed requests in the long range are no alert: one of three is a third. */
export const LEAST_FAILED = 10;

/** What requests of a time come to. */
export interface TrafficSums {
  readonly requests: number;
  readonly failed: number;
  /** Micro-dollars. */
  readonly micros: number;
}

export const NO_TRAFFIC: TrafficSums = { requests: 0, failed: 0, micros: 0 };

/** How many times as fast as it may be a budget (micro-dollars in 30 days) is spent. */
export function spendRate({ micros }: TrafficSums, ms: number, budget: number): number {
  return micros / ((budget * ms) / BUDGET_MS);
}

/** How many times the share of requests (percent) that may fail has failed. */
export function errorRate({ requests, failed }: TrafficSums, budget: number): number {
  return requests === 0 ? 0 : failed / requests / (budget / 100);
}

/** The same hour of the week, in the weeks before. */
export const WEEKS = 4;
export const WEEK_HOURS = 168;
const MADS = 6;
const FLOOR_MICROS = 1_000_000;
const FLOOR_TIMES = 3;

/** An hour that costs more or less than it usually does. Amounts in micro-dollars. */
export interface Anomaly {
  readonly direction: 'above' | 'below';
  readonly usual: number;
}

/**
 * Compares an hour with the same hour of the weeks before: it is unusual when it is six median absolute deviations away, by a
 * dollar at least, and three times as much or a third.
 *
 * @param whole whether the hour is over: one that is not can only cost more yet
 */
export function anomalyOf(micros: number, before: readonly number[], whole: boolean): Anomaly | null {
  const usual = median(before);
  const far = MADS * median(before.map((one) => Math.abs(one - usual)));
  const away = Math.abs(micros - usual);
  if (away <= far || away < FLOOR_MICROS) return null;
  if (micros > usual) return micros >= FLOOR_TIMES * usual ? { direction: 'above', usual } : null;
  return whole && micros * FLOOR_TIMES <= usual ? { direction: 'below', usual } : null;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  const upper = sorted[Math.floor(middle)] ?? 0;
  return Number.isInteger(middle) ? (upper + (sorted[middle - 1] ?? 0)) / 2 : upper;
}
