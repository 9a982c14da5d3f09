/**
 * Rate limits of keys, providers and workspaces: fixed windows aligned to the unit's start (api §15.5). Requests are
 * counted when admitted, all or nothing over every window a request touches; tokens are added when they are known, and
 * a window whose tokens are used up refuses the next request.
 */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import type { Counters, WindowHit } from '../store/ports.ts';
import type { RateLimit } from '../store/schema.ts';

/** Limits of one entity a request belongs to. */
export interface LimitedEntity {
  /** `key`, `workspace`, `provider`. */
  readonly kind: string;
  readonly id: string;
  /** Readable name for the refusal: a slug or key name, never a masked id. */
  readonly label: string;
  readonly limits: readonly RateLimit[];
}

export interface Reservation {
  /** Books the tokens of the finished request into the windows it was admitted in. */
  settle(tokens: number): void;
}

export interface Admission {
  /** Null when nothing limits the request. Throws `rate_limit_exceeded` with the seconds to wait. */
  admit(workspaceId: string, entities: readonly LimitedEntity[]): Promise<Reservation | null>;
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

export function createAdmission(options: { counters: Counters; clock: Clock; log: Log }): Admission {
  const { counters, clock, log } = options;
  return {
    async admit(workspaceId, entities) {
      const now = clock.now();
      const hits: (WindowHit & { entity: LimitedEntity; limit: number; rate: RateLimit })[] = [];
      for (const entity of entities) {
        for (const rate of entity.limits) {
          const { start, end } = windowOf(rate.unit, now);
          hits.push({
            key: `{${workspaceId}}:rate:${entity.kind}:${entity.id}:${rate.type}:${rate.unit}:${start}`,
            // A token window takes nothing now, but refuses once it is full: that is a hit of one below the limit.
            amount: rate.type === 'requests' ? 1 : 0,
            limit: rate.type === 'requests' ? rate.value : rate.value - 1,
            expiresAt: end,
            entity,
            rate,
          });
        }
      }
      if (hits.length === 0) return null;
      const result = await counters.hit(hits);
      const refused = hits[result.refusedBy];
      if (!result.allowed && refused !== undefined) {
        const seconds = Math.max(1, Math.ceil((refused.expiresAt - now) / 1000));
        throw new SluiceError(
          'rate_limit_exceeded',
          `Rate limit of ${refused.entity.kind} ${refused.entity.label} exceeded: ${refused.rate.value} ${refused.rate.type === 'tokens' ? 'tokens, ' : ''}${refused.rate.unit}. Try again in ${seconds} s.`,
          { retryAfter: seconds },
        );
      }
      const tokenWindows = hits.filter((hit) => hit.rate.type === 'tokens');
      return {
        settle(tokens) {
          if (tokens <= 0 || tokenWindows.length === 0) return;
          counters
            .add(tokenWindows.map((hit) => ({ key: hit.key, amount: tokens, expiresAt: hit.expiresAt })))
            .catch((error: unknown) => log.error('token counters could not be updated', { error: String(error) }));
        },
      };
    },
  };
}
