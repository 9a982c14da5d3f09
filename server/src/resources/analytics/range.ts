/** The range of time of a question that need not name one. */
import { MAX_RANGE_MS } from '../../telemetry/buckets.ts';
import { isoDate, toIso, toMillis } from '../body-fields.ts';
import type { Range } from './filters.ts';

export const optionalRangeFields = {
  time_of_generation_min: isoDate
    .optional()
    .describe('From this time on, ISO 8601 with a zone; 400 days before the end when absent.'),
  time_of_generation_max: isoDate.optional().describe('Before this time; now when absent.'),
} as const;

/** What is meant where a bound is absent: up to now, and 400 days. */
export function rangeOf(asked: { readonly [K in keyof Range]?: string | undefined }, now: number): Range {
  // The request that is recorded in this millisecond belongs to it, too.
  const max = asked.time_of_generation_max ?? toIso(now + 1);
  const min = asked.time_of_generation_min ?? toIso(Math.max(0, toMillis(max) - MAX_RANGE_MS));
  return { time_of_generation_min: min, time_of_generation_max: max };
}
