/** Mails that people ask for: how many may be asked for, counted over all nodes. */
import { createHash } from 'node:crypto';
import { tooMany } from '../auth/throttle.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { networkOf } from '../kernel/network.ts';
import type { Mails } from '../resources/admin/mails.ts';
import type { Counters } from '../store/ports.ts';

const WINDOW_MS = 15 * 60_000;
/** A whole office may be behind one address. */
const PER_CLIENT = 30;
const PER_ADDRESS = 3;
const PER_USER = 5;

export interface LimitedMailsOptions {
  readonly counters: Counters;
  /** Of this process; counts while `counters` is away. */
  readonly local: Counters;
  /** The one that the counters were opened with. */
  readonly clock: Clock;
  readonly log: Log;
  readonly post: Mails['post'];
}

export class LimitedMails implements Mails {
  readonly #options: LimitedMailsOptions;
  readonly post: Mails['post'];

  constructor(options: LimitedMailsOptions) {
    this.#options = options;
    this.post = options.post;
  }

  /**
   * For a caller who is not signed in. Throws `too_many_requests` past 30 mails of one client address, or 3 to one mail
   * address, in a quarter of an hour. It counts what was asked for, whether or not a user has the address.
   */
  async admitStranger(clientAddress: string, email: string): Promise<void> {
    await this.#admit(
      `client:${networkOf(clientAddress)}`,
      PER_CLIENT,
      'Too many mails were asked for from your address.',
    );
    await this.#admit(`to:${email}`, PER_ADDRESS, 'Too many links were asked for. Open the newest mail, or wait.');
  }

  /**
   * For a signed-in user who names an address. Throws `too_many_requests` past 5 mails of one user, or 5 to one address
   * whoever asks for them, in a quarter of an hour. They are counted apart from sign-in links: no user can use up those.
   */
  async admitUser(userId: string, email: string): Promise<void> {
    await this.#admit(`user:${userId}`, PER_USER, 'You asked for too many mails. Open the newest one, or wait.');
    await this.#admit(`confirm:${email}`, PER_USER, 'Too many mails were asked for to this address. Wait.');
  }

  async #admit(who: string, limit: number, message: string): Promise<void> {
    const { counters, local, clock, log } = this.#options;
    const now = clock.now();
    const window = Math.floor(now / WINDOW_MS);
    const expiresAt = (window + 1) * WINDOW_MS;
    // The digest, because counters may be read by others than the store.
    const digest = createHash('sha256').update(who).digest('hex');
    const hit = [{ key: `mail:{${digest}}:${window}`, amount: 1, limit, expiresAt }];
    const { allowed } = await counters.hit(hit).catch((error: unknown) => {
      log.warn('mails are counted on this node only', { error: String(error) });
      return local.hit(hit);
    });
    if (!allowed) throw tooMany(expiresAt - now, message);
  }
}
