/**
 * Rate limits of keys, workspaces, providers, integrations and policies: fixed windows aligned to the unit's start.
 * Requests are counted when admitted, all or nothing over every window a request touches; tokens are added when
 * they are known, and a window whose tokens are used up refuses the next request.
 */
import type { Clock } from '../kernel/clock.ts';
import type { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import type { Counters, WindowHit, WindowResult } from '../store/ports.ts';
import type { RateLimit } from '../store/schema.ts';
import { LimitRefused } from './limit-refused.ts';
import { orderingTimestamp } from './ordering-timestamp.ts';

type Rate = Readonly<RateLimit>;

/** Limits of one entity a request belongs to. */
export interface LimitedEntity {
  readonly kind: 'key' | 'token' | 'workspace' | 'provider' | 'virtual-key' | 'integration' | 'policy';
  /** Part of the counters' keys, unique within workspace and kind. */
  readonly id: string;
  /** Readable name for the refusal: a slug or key name, never a masked id. */
  readonly label: string;
  /** Of a policy: its id, and whose counter it is. */
  readonly policy: { readonly id: string; readonly valueKey: string } | null;
  /** One per type and unit. */
  readonly limits: readonly Rate[];
}

/** An entity with its limits; null when it has none. Of two limits of one type and unit the lower one counts. */
export function limitedEntity(
  kind: LimitedEntity['kind'],
  id: string,
  label: string,
  rates: readonly Rate[] | null | undefined,
): LimitedEntity | null {
  if (rates == null || rates.length === 0) return null;
  if (rates.length === 1) return { kind, id, label, policy: null, limits: rates };
  const lowest = new Map<string, Rate>();
  for (const rate of rates) {
    const name = `${rate.type} ${rate.unit}`;
    const known = lowest.get(name);
    if (known === undefined || rate.value < known.value) lowest.set(name, rate);
  }
  return { kind, id, label, policy: null, limits: [...lowest.values()] };
}

/** Where the tightest limit of one type stands. */
export interface Left {
  readonly limit: number;
  readonly remaining: number;
  /** Whole seconds until its window ends. */
  readonly reset: number;
}

export interface Quota {
  readonly requests: Left | null;
  readonly tokens: Left | null;
}

export interface Reservation {
  /** When it was counted, as `stamp` says it. */
  readonly at: number;
  readonly quota: Quota;
  /** Set when a limit refused the request: `rate_limit_exceeded` with the seconds to wait. Nothing was counted then. */
  readonly refusal: SluiceError | null;
  /** Books the tokens of the finished request into the windows it was admitted in. */
  settle(tokens: number): void;
  /**
   * Gives back the count of a request that was refused after all: only accepted requests count. Once, and not
   * after `settle`. Returns what is left now.
   */
  release(): Quota;
}

export interface Admission {
  /** Counts a request against everything that limits it, in the order given: the first limit that is used up refuses. */
  admit(workspaceId: string, entities: readonly LimitedEntity[]): Promise<Reservation>;
}

const MINUTE = 60_000;
const DAY = 86_400_000;
const UNIT_MS: Readonly<Record<RateLimit['unit'], number>> = {
  rps: 1000,
  rpm: MINUTE,
  rph: 60 * MINUTE,
  rpd: DAY,
  rpw: 7 * DAY,
};
/** The epoch was a Thursday; weeks begin on Monday. */
const WEEK_OFFSET = 4 * DAY;

/** Start and end of the window `now` falls in, milliseconds since the epoch. */
export function windowOf(unit: RateLimit['unit'], now: number): { start: number; end: number } {
  const length = UNIT_MS[unit];
  const offset = unit === 'rpw' ? WEEK_OFFSET : 0;
  const start = Math.floor((now - offset) / length) * length + offset;
  return { start, end: start + length };
}

interface Hit extends WindowHit {
  readonly entity: LimitedEntity;
  readonly rate: Rate;
  /** Of the window; its counter is kept a little longer. */
  readonly end: number;
}

/** What a node admits by itself while the shared counters are away: every limit divided by the nodes, at least 1. */
export interface LocalShare {
  readonly counters: Counters;
  readonly nodes: { readonly count: number };
}

/** After a failure nobody asks the shared counters for this long, so that not every request waits for their time-out. */
const AWAY_MS = 250;
/** Windows whose bookings are kept for when the shared counters are back; past it they are forgotten, oldest first. */
const MAX_LATE = 10_000;
/** Windows that are booked in one call then. */
const LATE_AT_ONCE = 200;
/**
 * A counter outlives its window by this. What nodes know of the store's time differs by milliseconds: where the first
 * node for which a window is over would take the counter away, the last one would find it empty and admit it all again.
 */
const GRACE_MS = 5_000;

type Booking = readonly Omit<WindowHit, 'limit'>[];

/**
 * `clock` is the one that windows go by, on every node the same: the store's. `share` is null where the counters are this
 * node's own and cannot be away.
 */
export function createAdmission(options: {
  readonly counters: Counters;
  readonly share: LocalShare | null;
  readonly clock: Clock;
  readonly log: Log;
}): Admission {
  const { counters, share, clock, log } = options;
  let awayUntil = Number.NEGATIVE_INFINITY;
  /** What was counted here alone, by the key of its window. */
  let late = new Map<string, { amount: number; readonly expiresAt: number }>();
  let told = false;

  const isAway = () => share !== null && clock.monotonic() < awayUntil;
  const lost = (error: unknown) => {
    if (!told) log.warn('limits are counted on this node alone', { error: String(error) });
    told = true;
    awayUntil = clock.monotonic() + AWAY_MS;
  };

  async function hitShared(hits: readonly Hit[]): Promise<WindowResult | null> {
    if (share === null) return counters.hit(hits);
    if (isAway()) return null;
    try {
      const result = await counters.hit(hits);
      if (told) log.info('limits are counted over all nodes again');
      told = false;
      if (late.size > 0) catchUp();
      return result;
    } catch (error) {
      lost(error);
      return null;
    }
  }

  /** Calls of windows of one workspace each, which are in one slot of a cluster. */
  function catchUp(): void {
    const now = clock.now();
    const calls = new Map<string, Omit<WindowHit, 'limit'>[]>();
    for (const [key, { amount, expiresAt }] of late) {
      if (expiresAt <= now) continue;
      const tag = key.slice(0, key.indexOf('}'));
      const call = calls.get(tag);
      if (call === undefined) calls.set(tag, [{ key, amount, expiresAt }]);
      else call.push({ key, amount, expiresAt });
    }
    late = new Map();
    for (const call of calls.values()) {
      for (let i = 0; i < call.length; i += LATE_AT_ONCE) counters.add(call.slice(i, i + LATE_AT_ONCE)).catch(lost);
    }
  }

  function bookLate(booking: Booking): void {
    for (const { key, amount, expiresAt } of booking) {
      const known = late.get(key);
      if (known !== undefined) {
        known.amount += amount;
        continue;
      }
      const oldest = late.size >= MAX_LATE ? late.keys().next().value : undefined;
      if (oldest !== undefined) late.delete(oldest);
      late.set(key, { amount, expiresAt });
    }
  }

  function book(booking: Booking, locally: boolean): void {
    if (share !== null && (locally || isAway())) {
      void share.counters.add(booking);
      // Counts that were not sent at all are sent later; those that were sent may have been counted.
      bookLate(booking);
      return;
    }
    counters.add(booking).catch((error: unknown) => {
      if (share === null) log.error('token counters could not be updated', { error: String(error) });
      else lost(error);
    });
  }

  return {
    async admit(workspaceId, entities) {
      const now = clock.now();
      const at = orderingTimestamp(now);
      let hits = hitsOf(workspaceId, entities, now, 1);
      const asked = !isAway();
      let result = await hitShared(hits);
      const locally = result === null;
      if (result === null) {
        hits = hitsOf(workspaceId, entities, now, share?.nodes.count ?? 1);
        result = await (share?.counters ?? counters).hit(hits);
        if (result.allowed && !asked) bookLate(hits.filter((hit) => hit.amount > 0));
      }
      const { allowed, refusedBy, used } = result;
      const refused = allowed ? undefined : hits[refusedBy];
      const requests = tightest('requests', hits, used, now);
      const tokens = tightest('tokens', hits, used, now);
      let released = false;
      return {
        at,
        quota: { requests, tokens },
        refusal: refused === undefined ? null : refusal(refused, now),
        release() {
          if (!allowed || requests === null) return { requests, tokens };
          if (!released) {
            released = true;
            const windows = hits.filter((hit) => hit.amount > 0);
            const back = windows.map(({ key, expiresAt }) => ({ key, amount: -1, expiresAt }));
            // What the shared counters never saw is not taken from them later.
            if (locally && share !== null) void share.counters.add(back);
            else book(back, false);
          }
          return { requests: { ...requests, remaining: requests.remaining + 1 }, tokens };
        },
        settle(tokens) {
          if (tokens <= 0) return;
          const windows = hits.filter((hit) => hit.rate.type === 'tokens');
          if (windows.length === 0) return;
          book(
            windows.map(({ key, expiresAt }) => ({ key, amount: tokens, expiresAt })),
            locally,
          );
        },
      };
    },
  };
}

/** The counter of a window that begins at `start`. */
export const rateKey = (
  workspaceId: string,
  { kind, id }: Pick<LimitedEntity, 'kind' | 'id'>,
  { type, unit }: Pick<Rate, 'type' | 'unit'>,
  start: number,
): string => `{${workspaceId}}:rate:${kind}:${id}:${type}:${unit}:${start}`;

/** The windows that a request touches, with the part of each limit that one of so many nodes has. */
function hitsOf(workspaceId: string, entities: readonly LimitedEntity[], now: number, nodes: number): Hit[] {
  const hits: Hit[] = [];
  for (const entity of entities) {
    for (const rate of entity.limits) {
      const { start, end } = windowOf(rate.unit, now);
      const value = rate.value === 0 ? 0 : Math.max(1, Math.floor(rate.value / nodes));
      const counted = rate.type === 'requests';
      hits.push({
        key: rateKey(workspaceId, entity, rate, start),
        // A token window takes nothing now, but refuses once it is full: that is a hit of one below the limit.
        amount: counted ? 1 : 0,
        limit: counted ? value : value - 1,
        expiresAt: end + GRACE_MS,
        end,
        entity,
        rate: nodes === 1 ? rate : { ...rate, value },
      });
    }
  }
  return hits;
}

const secondsTo = (end: number, now: number): number => Math.max(1, Math.ceil((end - now) / 1000));

/** The limit with the least left; of several the one that lasts longest. */
function tightest(type: Rate['type'], hits: readonly Hit[], used: readonly number[], now: number): Left | null {
  let least: Hit | null = null;
  let remaining = 0;
  for (let i = 0; i < hits.length; i++) {
    const hit = hits[i];
    if (hit === undefined || hit.rate.type !== type) continue;
    const left = Math.max(0, hit.rate.value - (used[i] ?? 0));
    if (least !== null && (left > remaining || (left === remaining && hit.end <= least.end))) continue;
    least = hit;
    remaining = left;
  }
  return least === null ? null : { limit: least.rate.value, remaining, reset: secondsTo(least.end, now) };
}

const PER: Readonly<Record<RateLimit['unit'], string>> = {
  rps: 'second',
  rpm: 'minute',
  rph: 'hour',
  rpd: 'day',
  rpw: 'week',
};

function refusal({ entity, rate, end }: Hit, now: number): SluiceError {
  const seconds = secondsTo(end, now);
  const by = { limit: 'rate', kind: entity.kind, id: entity.policy?.id ?? entity.id } as const;
  return new LimitRefused(
    'rate_limit_exceeded',
    `Rate limit of ${entity.kind === 'virtual-key' ? 'virtual key' : entity.kind} ${entity.label} exceeded: ${rate.value} ${rate.type} per ${PER[rate.unit]}. Try again in ${seconds} s.`,
    { ...by, value_key: entity.policy?.valueKey ?? null },
    { retryAfter: seconds },
  );
}
