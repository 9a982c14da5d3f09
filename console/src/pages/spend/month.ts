/** Months of UTC, as bills have them. */
import type { Range } from '../../shell/url-state.ts';

/** Milliseconds since the epoch at which the month of this time is over. */
export function endOfMonth(time: string): number {
  const at = new Date(time);
  return Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1);
}

/** The begin of the month before, as ISO 8601. */
export function monthBefore(time: string): string {
  const at = new Date(time);
  return new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - 1, 1)).toISOString();
}

/** What the whole month costs, in whole micro-dollars, when its rest goes like the range, which begins with the month. */
export function atThisPace(micros: number, { from, to }: Pick<Range, 'from' | 'to'>): bigint {
  const begin = Date.parse(from);
  const passed = BigInt(Math.max(1, Date.parse(to) - begin));
  return (BigInt(micros) * BigInt(endOfMonth(from) - begin)) / passed;
}
