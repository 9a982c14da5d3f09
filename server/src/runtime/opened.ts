/** Sealed values, opened when a request first needs them. */
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';

/** A value is opened anew after so long, so that what changes in the vault is seen. */
const KEPT_MS = 10 * 60_000;
/** A vault that did not open a value is asked again after so long. */
const RETRY_MS = 5_000;

export interface Opened<T> {
  /** The value; a promise while it is opened for the first time, which rejects when the vault does not open it. */
  get(): T | Promise<T>;
  /** Wall time, milliseconds, until which the value may be kept without another `get`. */
  readonly until: number;
}

/**
 * Opens a value at its first use, once for all requests that wait. Later it is opened anew behind the requests: they get the last
 * good value meanwhile, and for as long as the vault is away. A first failure is kept for a few seconds.
 */
export class SealedValue<T> implements Opened<T> {
  readonly #open: () => Promise<T>;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #what: Readonly<Record<string, string>>;
  #good: { readonly value: T } | null = null;
  #opening: Promise<T> | null = null;
  #until = 0;

  /** @param what names the value in the log: `{ provider: id }` */
  constructor(open: () => Promise<T>, clock: Clock, log: Log, what: Readonly<Record<string, string>>) {
    this.#open = open;
    this.#clock = clock;
    this.#log = log;
    this.#what = what;
  }

  get until(): number {
    return this.#until;
  }

  get(): T | Promise<T> {
    const isDue = this.#clock.now() >= this.#until;
    if (this.#good === null) {
      if (this.#opening === null || isDue) this.#opening = this.#ask();
      return this.#opening;
    }
    if (isDue) this.#ask().catch(() => {});
    return this.#good.value;
  }

  #ask(): Promise<T> {
    this.#until = this.#clock.now() + RETRY_MS;
    const asked = this.#open();
    asked.then(
      (value) => {
        this.#good = { value };
        this.#opening = null;
        this.#until = this.#clock.now() + KEPT_MS;
      },
      (error: unknown) => {
        const kept = this.#good === null ? '' : '; the last good value is used';
        this.#log.error(`a stored credential cannot be opened${kept}`, { ...this.#what, error: String(error) });
      },
    );
    return asked;
  }
}
