import { createHash } from 'node:crypto';
import { tooMany } from '../auth/throttle.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { networkOf } from '../kernel/network.ts';
import type { Counters, WindowHit } from '../store/ports.ts';

export interface AddressLimitOptions {
  readonly counters: Counters;
  /** The one that the counters were opened with. */
  readonly clock: Clock;
  readonly log: Log;
}

const MINUTE_MS = 60_000;
const PER_MINUTE = 60;
const DAY_MS = 24 * 60 * MINUTE_MS;
/** Each registration may store 25 KB for a week. */
const REGISTRATIONS_PER_DAY = 1_000;
/** Wrong codes that a session may try. */
const MOST_TRIES = 5;

/** How often one address may call what takes no credential, counted over all nodes. */
export class AddressLimit {
  readonly #options: AddressLimitOptions;

  constructor(options: AddressLimitOptions) {
    this.#options = options;
  }

  /** Throws `throttled` past 60 calls a minute. Counts nothing while the counters are away: no right hangs on it. */
  async admit(what: string, address: string): Promise<void> {
    const { clock } = this.#options;
    const now = clock.now();
    const window = Math.floor(now / MINUTE_MS);
    const expiresAt = (window + 1) * MINUTE_MS;
    const key = `${keyOf(`${what}:${networkOf(address)}`)}:${window}`;
    const allowed = await this.#hit({ key, amount: 1, limit: PER_MINUTE, expiresAt });
    if (!allowed) throw tooMany(expiresAt - now, 'Too many calls from your address. Wait a moment.');
  }

  /** The same for a registration, which is stored: also throws past 1,000 a day. */
  async admitRegistration(address: string): Promise<void> {
    await this.admit('register', address);
    const { clock } = this.#options;
    const now = clock.now();
    const day = Math.floor(now / DAY_MS);
    const expiresAt = (day + 1) * DAY_MS;
    const key = `${keyOf(`registrations:${networkOf(address)}`)}:${day}`;
    const allowed = await this.#hit({ key, amount: 1, limit: REGISTRATIONS_PER_DAY, expiresAt });
    if (!allowed)
      throw tooMany(expiresAt - now, 'Your address has registered 1,000 clients today. Use a client that you have.');
  }

  /**
   * Counts a try of a session, which has 5; false when there is none left. A try that was right is given back by calling
   * what is returned.
   */
  async tryOf(session: string, until: number): Promise<(() => Promise<void>) | null> {
    const key = keyOf(`tries:${session}`);
    const { counters } = this.#options;
    if (!(await this.#hit({ key, amount: 1, limit: MOST_TRIES, expiresAt: until }))) return null;
    return () => counters.add([{ key, amount: -1, expiresAt: until }]).catch(() => {});
  }

  async #hit(window: WindowHit): Promise<boolean> {
    try {
      return (await this.#options.counters.hit([window])).allowed;
    } catch (error) {
      this.#options.log.warn('calls of the OAuth server are not counted', { error: String(error) });
      return true;
    }
  }
}

/** The digest, because counters may be read by others than the store. */
const keyOf = (who: string): string => `oauth:{${createHash('sha256').update(who).digest('hex')}}`;
