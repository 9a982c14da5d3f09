/** What a usage limit demands, whoever it belongs to, and when its windows turn. */
import type { LimitOwner, LimitType, Row, UnpricedRule, UsageLimit } from '../../store/schema.ts';

/** One limit for one value, as the owner's row says now. Amounts in micro-dollars, tokens or requests. */
export interface LimitSpec {
  readonly ownerKind: LimitOwner;
  readonly ownerId: string;
  /** Tells the buckets of an owner apart. */
  readonly bucketKey: string;
  /** The same for people: `metadata._user:alice`. */
  readonly valueKey: string;
  /** Readable name of the owner, for refusals. */
  readonly label: string;
  readonly type: LimitType;
  readonly limit: number;
  readonly alert: number | null;
  /** `monthly`, `weekly`, `days:<n>`, or null. */
  readonly period: string | null;
  /** A reset that the owner set, milliseconds since the epoch; null: the next one of the period. */
  readonly resetsAt: number | null;
  /** For `cost`: what to do with a request of unknown price; null: the installation's rule. */
  readonly unpriced: UnpricedRule | null;
  readonly onOutage: 'refuse' | 'serve';
  /** When the owner's row was last changed: a node with an older spec does not bring it back. */
  readonly at: number;
}

const DAY = 86_400_000;
/** 5 January 1970 was a Monday. */
const MONDAY = 4 * DAY;
const MICROS = 1_000_000;
/** Four and a half billion dollars: sums of a limit and one more request stay exact. */
export const MAX_UNITS = 2 ** 52;

/** The largest limit that a body may set: US dollars, tokens or requests. What counters hold of it is exact. */
const LARGEST: Readonly<Record<LimitType, number>> = {
  cost: Math.floor(MAX_UNITS / MICROS),
  tokens: 1_000_000_000_000,
  requests: 1_000_000_000_000,
};

/** What is wrong with an amount above the largest one, as a phrase behind the name of its field. */
export const ABOVE_LARGEST = `must be at most ${LARGEST.cost} for type cost (US dollars), and ${LARGEST.tokens} for other types`;

/** Whether a body may not set `value` as limit or alert threshold, in dollars for `cost`. Bodies are refused by it, with `ABOVE_LARGEST`. */
export function isAboveLargest(type: LimitType, value: number): boolean {
  return value > LARGEST[type];
}

/**
 * Whole amounts of a limit; a fraction of a token or request is as good as the next whole one, because `used < limit` is
 * asked. Rows from before there was a largest amount may hold more: they count as `MAX_UNITS`.
 */
export function amountOf(type: LimitType, value: number): number {
  return Math.min(MAX_UNITS, Math.ceil(type === 'cost' ? Number((value * MICROS).toFixed(3)) : value));
}

/** The reverse, for answers: dollars with fractions, or a count. */
export function shownAmount(type: LimitType, amount: number): number {
  return type === 'cost' ? amount / MICROS : amount;
}

export function periodOf(limit: {
  readonly periodic_reset?: 'monthly' | 'weekly' | null;
  readonly periodic_reset_days?: number | null;
}): string | null {
  if (limit.periodic_reset != null) return limit.periodic_reset;
  return limit.periodic_reset_days == null ? null : `days:${limit.periodic_reset_days}`;
}

/**
 * The first reset after `now`: the 1st of a month, a Monday, or every n days from `last`, all at 00:00 UTC. `last` is the
 * reset before, or when counting began.
 */
export function nextReset(period: string | null, last: number, now: number): number | null {
  if (period === null) return null;
  if (period === 'monthly') {
    const date = new Date(now);
    return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
  }
  if (period === 'weekly') return Math.floor((now - MONDAY) / (7 * DAY)) * 7 * DAY + MONDAY + 7 * DAY;
  const length = Number(period.slice('days:'.length)) * DAY;
  const first = Math.floor(last / DAY) * DAY + length;
  return first > now ? first : first + (Math.floor((now - first) / length) + 1) * length;
}

/** When a bucket that begins at `now` turns first. */
export function firstReset(spec: Pick<LimitSpec, 'period' | 'resetsAt'>, now: number): number | null {
  const { resetsAt } = spec;
  return resetsAt !== null && resetsAt > now ? resetsAt : nextReset(spec.period, resetsAt ?? now, now);
}

/** The spec of a usage-limit object; null when it limits nothing. `several` where an owner has more than one. */
export function limitSpec(
  owner: { readonly kind: LimitOwner; readonly id: string; readonly label: string; readonly at: number },
  limit: UsageLimit | null,
  several = false,
): LimitSpec | null {
  if (limit?.credit_limit === undefined) return null;
  const type = limit.type ?? 'cost';
  const period = periodOf(limit);
  const key = several ? `${type} ${period ?? '-'}` : type;
  const next = limit.next_usage_reset_at == null ? null : Date.parse(limit.next_usage_reset_at);
  return {
    ownerKind: owner.kind,
    ownerId: owner.id,
    bucketKey: key,
    valueKey: key,
    label: owner.label,
    type,
    limit: amountOf(type, limit.credit_limit),
    alert: limit.alert_threshold === undefined ? null : amountOf(type, limit.alert_threshold),
    period,
    resetsAt: next === null ? null : Math.floor(next / DAY) * DAY,
    unpriced: limit.unpriced ?? null,
    onOutage: limit.on_outage ?? 'refuse',
    at: owner.at,
  };
}

/** The specs of the usage limits of a workspace. */
export function workspaceLimitSpecs(
  row: Pick<Row<'workspaces'>, 'id' | 'slug' | 'usage_limits' | 'last_updated_at'>,
): readonly LimitSpec[] {
  const owner = { kind: 'workspace', id: row.id, label: row.slug, at: row.last_updated_at } as const;
  return specsOf(owner, row.usage_limits ?? [], true);
}

/** The specs of an owner that has one limit, as keys have, or may have several. */
export function limitSpecs(
  owner: Parameters<typeof limitSpec>[0],
  limits: UsageLimit | readonly UsageLimit[] | null,
): readonly LimitSpec[] {
  const list = limits === null ? [] : isList(limits) ? limits : [limits];
  return specsOf(owner, list, list.length > 1);
}

const isList = (limits: UsageLimit | readonly UsageLimit[]): limits is readonly UsageLimit[] => Array.isArray(limits);

function specsOf(
  owner: Parameters<typeof limitSpec>[0],
  limits: readonly UsageLimit[],
  several: boolean,
): readonly LimitSpec[] {
  const byBucket = new Map<string, LimitSpec>();
  for (const limit of limits) {
    const spec = limitSpec(owner, limit, several);
    if (spec === null) continue;
    // Rows from before repetitions were refused: of two limits on one counter the lower one holds.
    const known = byBucket.get(spec.bucketKey);
    if (known === undefined || spec.limit < known.limit) byBucket.set(spec.bucketKey, spec);
  }
  return [...byBucket.values()];
}
