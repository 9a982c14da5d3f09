/** Secrets of secret managers, kept in the memory of this node for a few minutes. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import { Lru } from '../kernel/lru.ts';
import type { SecretContent, SecretManagers, SecretPlace } from '../resources/secret-references/manager.ts';
import type { Holds } from './opened.ts';

/** A secret that is used is read anew after so long, behind the requests. */
const DUE_MS = 4 * 60_000;
/** A secret is given for so long after it was read: five minutes, and fifteen more while its manager is away. */
const END_MS = 20 * 60_000;
/** A manager that did not give a secret is asked again after so long, twice as long each time. */
const FIRST_WAIT_MS = 5_000;
const LONGEST_WAIT_MS = 60_000;
/** The longest wait that a manager may ask for. */
const LONGEST_ASKED_MS = 5 * 60_000;
const MOST = 10_000;

export interface HeldSecret extends Holds {
  readonly content: SecretContent;
}

interface Entry {
  readonly what: Readonly<Record<string, string>>;
  good: HeldSecret | null;
  /** The read under way, which all share. */
  reading: Promise<HeldSecret> | null;
  failures: number;
  /** Not asked again before; wall time, milliseconds. */
  waits: number;
  failed: SluiceError | null;
  /** When a provider last refused it and it was read anew for that; wall time, milliseconds. */
  refusedAt: number;
}

/** Values are in memory only: nothing here writes one anywhere. */
export class SecretValues {
  readonly #entries = new Lru<string, Entry>({ maxEntries: MOST });
  readonly #managers: SecretManagers;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(managers: SecretManagers, clock: Clock, log: Log) {
    this.#managers = managers;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * The secret under a name that is different for all that lead to different secrets. Read once for all who ask at the same time.
   * While its manager is away the last good value is given until it ends. Rejects with `out_of_service`, and `retryAfter`.
   *
   * @param what names the secret in the log
   */
  get(
    name: string,
    what: Readonly<Record<string, string>>,
    place: () => Promise<SecretPlace>,
  ): HeldSecret | Promise<HeldSecret> {
    let entry = this.#entries.get(name);
    if (entry === undefined) {
      entry = {
        what,
        good: null,
        reading: null,
        failures: 0,
        waits: 0,
        failed: null,
        refusedAt: Number.NEGATIVE_INFINITY,
      };
      this.#entries.set(name, entry);
    }
    const now = this.#clock.now();
    if (entry.good !== null && now < entry.good.due) return entry.good;
    if (entry.reading !== null) return entry.reading;
    if (now < entry.waits) return this.#instead(entry);
    const reading = this.#read(entry, place).finally(() => {
      if (entry.reading === reading) entry.reading = null;
    });
    entry.reading = reading;
    return reading;
  }

  /** Reads a secret anew with the next `get`, for a provider has refused it; once a minute at most. */
  refused(name: string): void {
    const entry = this.#entries.get(name);
    const now = this.#clock.now();
    if (entry === undefined || entry.good === null || now - entry.refusedAt < LONGEST_WAIT_MS) return;
    entry.refusedAt = now;
    entry.good = { ...entry.good, due: now };
  }

  async #read(entry: Entry, place: () => Promise<SecretPlace>): Promise<HeldSecret> {
    try {
      const content = await this.#managers.read(await place());
      const now = this.#clock.now();
      entry.good = { content, due: now + DUE_MS, end: now + END_MS };
      entry.failures = 0;
      entry.waits = 0;
      entry.failed = null;
      return entry.good;
    } catch (error) {
      const now = this.#clock.now();
      const own = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** entry.failures);
      const asked = error instanceof SluiceError ? (error.retryAfter ?? 0) * 1000 : 0;
      entry.failures += 1;
      entry.waits = now + Math.max(own, Math.min(asked, LONGEST_ASKED_MS));
      entry.failed =
        error instanceof SluiceError && error.kind === 'out_of_service'
          ? error
          : new SluiceError(
              'out_of_service',
              `The secret reference ${entry.what.reference ?? ''} cannot be opened; its encryption key is missing.`,
              { cause: error },
            );
      if (entry.good !== null && now < entry.good.end) {
        this.#log.warn('a secret could not be read again; its last good value is used', {
          ...entry.what,
          error: entry.failed.message,
          ...(typeof entry.failed.detail === 'string' ? { detail: entry.failed.detail } : {}),
        });
      }
      return this.#instead(entry);
    }
  }

  /** What is given while the manager is not asked: the last good value, else the failure with the time that is left. */
  #instead(entry: Entry): HeldSecret {
    const now = this.#clock.now();
    if (entry.good !== null && now < entry.good.end)
      return { ...entry.good, due: Math.min(entry.waits, entry.good.end) };
    entry.good = null;
    const { failed } = entry;
    throw new SluiceError('out_of_service', failed?.message ?? 'A secret cannot be read.', {
      retryAfter: Math.max(1, Math.ceil((entry.waits - now) / 1000)),
      detail: failed?.detail,
    });
  }
}
