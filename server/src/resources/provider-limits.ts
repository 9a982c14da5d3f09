/** The limits, dates and state that providers and virtual keys share: from a body to a row and back. */
import type { RateLimit, Row, UsageLimit } from '../store/schema.ts';
import { asList, toIso, toIsoOrNull, toMillis, usageLimitOf } from './body-fields.ts';
import { statusOf } from './common.ts';
import { presentUsage, type UsageOf } from './usage-counters.ts';

type Limited = Pick<
  Row<'providers'>,
  'usage_limits' | 'rate_limits' | 'expires_at' | 'tags' | 'status' | 'last_reset_at' | 'created_at' | 'last_updated_at'
>;

export interface LimitInput {
  readonly usage_limits?: UsageLimit | null | undefined;
  readonly rate_limits?: RateLimit | RateLimit[] | null | undefined;
  readonly expires_at?: string | null | undefined;
  readonly tags?: Record<string, string> | null | undefined;
  readonly reset_usage?: boolean | 0 | 1 | null | undefined;
}

/** The columns a body changes: what it leaves out stays, null clears. Throws 400 for a reset date in the past. */
export function limitPatch(input: LimitInput, status: Row<'providers'>['status'], now: number) {
  const patch: { -readonly [K in keyof Limited]?: Limited[K] } = {};
  if (input.usage_limits !== undefined) {
    patch.usage_limits = input.usage_limits && usageLimitOf(input.usage_limits, now, 'usage_limits');
  }
  if (input.rate_limits !== undefined) {
    patch.rate_limits = input.rate_limits === null ? null : asList<RateLimit>(input.rate_limits);
  }
  if (input.expires_at !== undefined) patch.expires_at = input.expires_at === null ? null : toMillis(input.expires_at);
  if (input.tags !== undefined) patch.tags = input.tags;
  if (resets(input)) {
    patch.last_reset_at = now;
    if (status === 'exhausted') patch.status = 'active';
  }
  return patch;
}

/** Whether a body asks to begin counting anew. */
export function resets(input: Pick<LimitInput, 'reset_usage'>): boolean {
  return input.reset_usage === true || input.reset_usage === 1;
}

/** The same columns as they are answered. */
export function presentLimits(row: Limited & { readonly id: string }, now: number, usage: UsageOf) {
  return {
    status: statusOf(row, now),
    usage_limits:
      row.usage_limits &&
      presentUsage(row.usage_limits, usage(row.id, row.usage_limits), {
        exhausted: row.status === 'exhausted',
        lastResetAt: row.last_reset_at,
      }),
    rate_limits: row.rate_limits,
    reset_usage: null,
    expires_at: toIsoOrNull(row.expires_at),
    tags: row.tags,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    last_reset_at: toIsoOrNull(row.last_reset_at),
  };
}
