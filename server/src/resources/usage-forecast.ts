/** What a counter of a usage limit says of the time to come. */
import { z } from 'zod';
import { burnAt, exhaustsAt } from '../limits/ledger/bucket-math.ts';
import { shownAmount } from '../limits/ledger/limit-spec.ts';
import type { Row } from '../store/schema.ts';
import { toIsoOrNull } from './body-fields.ts';

/** Amounts in US dollars, tokens or requests, as the limit is. */
export const usageForecastFields = {
  credit_limit: z.number(),
  remaining: z.number().describe('The unused part of the limit.'),
  reserved: z.number().describe('Held by requests that still run, and by nodes for those that come next.'),
  burn_rate: z.number().describe('Use per hour, over about the last hour: older use weighs less.'),
  exhausts_at: z
    .string()
    .nullable()
    .describe('When the limit is used up if use goes on like this; null when that is not before the next reset.'),
  next_usage_reset_at: z.string().nullable(),
  unpriced_requests: z.int().describe('Requests of this window whose price is not known.'),
};

export function usageForecast(bucket: Row<'usage_buckets'>, now: number) {
  const { type, used, credit_limit: limit } = bucket;
  return {
    credit_limit: shownAmount(type, limit),
    remaining: shownAmount(type, Math.max(0, limit - used)),
    reserved: shownAmount(type, bucket.reserved),
    burn_rate: shownAmount(type, burnAt(bucket, now)),
    exhausts_at: toIsoOrNull(exhaustsAt(bucket, now)),
    next_usage_reset_at: toIsoOrNull(bucket.resets_at),
    unpriced_requests: bucket.unpriced,
  };
}
