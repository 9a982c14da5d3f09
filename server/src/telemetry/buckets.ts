/**
 * How a range of time is cut for a graph. Every instant of the range lies in exactly one bucket, also on the days on which
 * clocks change. Times are milliseconds since the epoch UTC; a range includes its `from` and not its `to`.
 */

export type BucketWidth = 'minute' | 'hour' | 'day' | 'week';

export interface TimeRange {
  readonly from: number;
  readonly to: number;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** The longest range of one graph: 400 days. */
export const MAX_RANGE_MS = 400 * DAY_MS;
/** The first Monday of the epoch: 5 January 1970. */
const FIRST_MONDAY = 4 * DAY_MS;

/** Up to 1 hour: minutes; up to 3 days: hours; up to 90 days: days; else weeks. */
export function bucketWidth({ from, to }: TimeRange): BucketWidth {
  const length = to - from;
  if (length <= HOUR_MS) return 'minute';
  if (length <= 3 * DAY_MS) return 'hour';
  return length <= 90 * DAY_MS ? 'day' : 'week';
}

/** The buckets of a range, in order and without a gap. */
export interface Buckets {
  readonly width: BucketWidth;
  readonly range: TimeRange;
  /** Where each begins, by the clock and not by the range: the first may begin before `range.from`. */
  readonly starts: readonly number[];
  /** Where the last one ends; not before `range.to`. */
  readonly end: number;
  /**
   * The widest step that divides all of `starts`: rows whose `floor(time / stepMs)` is the same lie in the same bucket, so
   * a store may add them up by that number, and `bucketAt(buckets, number * stepMs)` finds their bucket.
   */
  readonly stepMs: number;
}

/**
 * Cuts a range of at most `MAX_RANGE_MS`. Days and weeks are those of the zone, weeks begin on Monday; minutes and hours
 * are those of UTC. A range without length has no buckets.
 *
 * @param zone an IANA name, as `Europe/Berlin`; one that is unknown throws `RangeError` (see `isZone`)
 */
export function bucketsOf(range: TimeRange, zone = 'UTC'): Buckets {
  const width = bucketWidth(range);
  const edges = range.to > range.from ? edgesOf(range, width, offsetsOf(zone)) : [range.from];
  const starts = edges.slice(0, -1);
  return { width, range, starts, end: edges.at(-1) ?? range.from, stepMs: edges.reduce(divisor, 0) };
}

/** Index of the bucket that a time lies in; -1 before the first one and after the last. */
export function bucketAt({ starts, end }: Buckets, time: number): number {
  if (time >= end) return -1;
  let low = 0;
  let high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((starts[middle] ?? end) <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** One value for each bucket: sums of what `items` say of their times, and `empty()` where there are none. Items outside are left out. */
export function fillBuckets<T, S>(
  buckets: Buckets,
  items: Iterable<T>,
  timeOf: (item: T) => number,
  empty: () => S,
  add: (sum: S, item: T) => S,
): S[] {
  const sums = buckets.starts.map(empty);
  for (const item of items) {
    const index = bucketAt(buckets, timeOf(item));
    const sum = sums[index];
    if (sum !== undefined) sums[index] = add(sum, item);
  }
  return sums;
}

/** An average as answers show it: the whole number of the contract, 0 where nothing was counted, beside the value itself, null there. */
export function averageOf(total: number, count: number): { readonly rounded: number; readonly exact: number | null } {
  if (count === 0) return { rounded: 0, exact: null };
  const exact = total / count;
  // Half up; never -0, which JSON would show as 0 and a comparison would not.
  return { rounded: Math.floor(exact + 0.5) + 0, exact: exact + 0 };
}

/** Whether this is the name of a time zone that `bucketsOf` knows. Offsets as `+02:00` are none: they know no change of clocks. */
export function isZone(name: string): boolean {
  if (!/^[A-Za-z][A-Za-z0-9_+/-]{0,63}$/.test(name)) return false;
  try {
    offsetsOf(name);
    return true;
  } catch {
    return false;
  }
}

/** Milliseconds to add to UTC for the time that clocks of the zone show. */
type Offsets = (time: number) => number;

function edgesOf({ from, to }: TimeRange, width: BucketWidth, offsetAt: Offsets): number[] {
  const [step, origin, local] =
    width === 'minute'
      ? [MINUTE_MS, 0, false]
      : width === 'hour'
        ? [HOUR_MS, 0, false]
        : width === 'day'
          ? [DAY_MS, 0, true]
          : [7 * DAY_MS, FIRST_MONDAY, true];
  const edge = (clock: number): number => (local ? firstInstant(clock, offsetAt) : clock);
  const shown = local ? from + offsetAt(from) : from;
  // A clock that was put back shows a time that an earlier midnight is behind: one step earlier is never too late.
  let clock = origin + Math.floor((shown - origin) / step) * step - (local ? step : 0);
  while (edge(clock + step) <= from) clock += step;
  const edges = [edge(clock)];
  while ((edges.at(-1) ?? to) < to) {
    clock += step;
    const next = edge(clock);
    // A day that a zone skipped, when it crossed the date line, has no bucket.
    if (next > (edges.at(-1) ?? next)) edges.push(next);
  }
  return edges;
}

/** Clocks of all zones are within these of UTC, and 2 hours more for those that change in between. */
const MOST_BEHIND_MS = 14 * HOUR_MS;
const MOST_AHEAD_MS = 18 * HOUR_MS;

/** The first instant at which clocks show `clock` or later. */
function firstInstant(clock: number, offsetAt: Offsets): number {
  let before = clock - MOST_AHEAD_MS;
  let after = clock + MOST_BEHIND_MS;
  const former = offsetAt(before);
  const latter = offsetAt(after);
  if (former === latter) return clock - former;
  // Clocks change once in between, at `after`.
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (offsetAt(middle) === former) before = middle;
    else after = middle;
  }
  return clock - former < after ? clock - former : Math.max(after, clock - latter);
}

const FORMATS = new Map<string, Offsets>();
/** More than there are zones; names differ in case. */
const MOST_FORMATS = 1_000;

/** Throws `RangeError` for a zone that is unknown. */
function offsetsOf(zone: string): Offsets {
  const known = FORMATS.get(zone);
  if (known !== undefined) return known;
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: zone,
    calendar: 'gregory',
    numberingSystem: 'latn',
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  });
  const offsets: Offsets = (time) => {
    const whole = Math.floor(time / 1000) * 1000;
    const part = { year: 0, month: 1, day: 1, hour: 0, minute: 0, second: 0 };
    for (const { type, value } of format.formatToParts(whole))
      if (type in part) part[type as keyof typeof part] = Number(value);
    return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second) - whole;
  };
  if (FORMATS.size >= MOST_FORMATS) FORMATS.clear();
  FORMATS.set(zone, offsets);
  return offsets;
}

/** Greatest common divisor; of 0 and a number, that number. */
function divisor(one: number, other: number): number {
  return other === 0 ? Math.abs(one) : divisor(other, one % other);
}
