import { createHash } from 'node:crypto';
import { callerId, type Principal } from '../auth/principal.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { networkOf } from '../kernel/network.ts';
import type { Counters } from '../store/ports.ts';

/** Admits one administration call, or says how many whole seconds to wait. */
export type AdminLimiter = (principal: Principal) => Promise<{ allowed: boolean; retryAfter: number }>;

const MINUTE_MS = 60_000;

/**
 * The API's own limit (P-116): `perMinute` calls per credential and minute, counted over all nodes. When the counters
 * cannot be reached the call is admitted: this limit protects the service from noise, it is not an authorisation.
 */
export function createAdminLimiter(counters: Counters, clock: Clock, log: Log, perMinute = 300): AdminLimiter {
  return async (principal) => {
    const now = clock.now();
    const window = Math.floor(now / MINUTE_MS);
    const who = callerId(principal);
    const expiresAt = (window + 1) * MINUTE_MS;
    try {
      const key = `admin:{${who}}:${window}`;
      const { allowed } = await counters.hit([{ key, amount: 1, limit: perMinute, expiresAt }]);
      return { allowed, retryAfter: Math.max(1, Math.ceil((expiresAt - now) / 1000)) };
    } catch (error) {
      log.warn('administration rate limit not counted', { error });
      return { allowed: true, retryAfter: 0 };
    }
  };
}

/** Calls of one minute from one address. An identity provider signs all its users out from one. */
const PER_MINUTE = { 'sign-in': 60, 'provider-logout': 600 } as const;

/** Admits one request of a use, by default of signing in, or says how many whole seconds to wait. */
export type AddressLimiter = (
  address: string,
  use?: keyof typeof PER_MINUTE,
) => Promise<{ allowed: boolean; retryAfter: number }>;

/**
 * Bounds the requests of one client address, use and minute, counted over all nodes, and on this node while the counters
 * cannot be reached.
 *
 * @param local of this process
 */
export function createAddressLimiter(counters: Counters, local: Counters, clock: Clock, log: Log): AddressLimiter {
  return async (address, use = 'sign-in') => {
    const now = clock.now();
    const window = Math.floor(now / MINUTE_MS);
    const expiresAt = (window + 1) * MINUTE_MS;
    // The digest, because counters may be read by others than the store.
    const who = createHash('sha256').update(networkOf(address)).digest('hex');
    const hit = [{ key: `${use}:{${who}}:${window}`, amount: 1, limit: PER_MINUTE[use], expiresAt }];
    const { allowed } = await counters.hit(hit).catch((error: unknown) => {
      log.warn('sign-ins are counted on this node only', { error: String(error) });
      return local.hit(hit);
    });
    return { allowed, retryAfter: Math.max(1, Math.ceil((expiresAt - now) / 1000)) };
  };
}

/** Credentials counted at once; past it the window of all of them starts anew, which errs on the side of admitting. */
const MAX_COUNTED = 100_000;

/** The same limit counted in this process only. */
export function createLocalLimiter(clock: Clock, perMinute = 300): AdminLimiter {
  let window = 0;
  const used = new Map<string, number>();
  return async (principal) => {
    const now = clock.now();
    const current = Math.floor(now / MINUTE_MS);
    if (current !== window || used.size >= MAX_COUNTED) used.clear();
    window = current;
    const who = callerId(principal);
    const count = (used.get(who) ?? 0) + 1;
    if (count <= perMinute) used.set(who, count);
    return { allowed: count <= perMinute, retryAfter: Math.max(1, Math.ceil(((window + 1) * MINUTE_MS - now) / 1000)) };
  };
}
