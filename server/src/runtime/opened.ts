/** Sealed values, opened when a request first needs them. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';

/** A value is opened anew after so long, so that what changes in the vault is seen. */
const KEPT_MS = 10 * 60_000;
/** A vault that did not open a value is asked again after so long. */
const RETRY_MS = 5_000;

/** How long an opened value holds; both in wall time, milliseconds. */
export interface Holds {
  /** From when on it is opened anew. */
  readonly due: number;
  /** From when on it is not given any more. */
  readonly end: number;
}

export interface Opened<T> {
  /** The value; a promise while it is opened for the first time, which rejects when the vault does not open it. */
  get(): T | Promise<T>;
  /** Wall time, milliseconds, until which the value may be kept without another `get`. */
  readonly until: number;
  /**
   * Of an account that secret managers fill: what they hold now, in place of a value that a provider has refused; null where
   * that is the same. Rejects when no manager answers. Managers are asked once a minute at most.
   */
  renew?(refused: T): Promise<T | null>;
}

/**
 * Opens a value at its first use, once for all requests that wait. Later it is opened anew behind the requests: they get the last
 * good value meanwhile, and for as long as the vault is away, or as the value itself holds. A failure without a good value is
 * kept for a few seconds, or as long as it says.
 */
export class SealedValue<T> implements Opened<T> {
  readonly #open: () => Promise<T>;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #what: Readonly<Record<string, string>>;
  readonly #holds: ((value: T) => Holds) | null;
  #good: { readonly value: T; readonly end: number } | null = null;
  #opening: Promise<T> | null = null;
  #until = 0;

  /**
   * @param what names the value in the log: `{ provider: id }`
   * @param holds default: opened anew after ten minutes, and good for ever
   */
  constructor(
    open: () => Promise<T>,
    clock: Clock,
    log: Log,
    what: Readonly<Record<string, string>>,
    holds: ((value: T) => Holds) | null = null,
  ) {
    this.#open = open;
    this.#clock = clock;
    this.#log = log;
    this.#what = what;
    this.#holds = holds;
  }

  get until(): number {
    return this.#until;
  }

  get(): T | Promise<T> {
    const now = this.#clock.now();
    const isDue = now >= this.#until;
    if (this.#good === null || now >= this.#good.end) {
      if (this.#opening === null || isDue) this.#opening = this.#ask();
      return this.#opening;
    }
    if (isDue) this.#ask().catch(() => {});
    return this.#good.value;
  }

  /** Opens the value now, whether it is due or not. */
  reopen(): Promise<T> {
    return this.#ask();
  }

  #ask(): Promise<T> {
    this.#until = this.#clock.now() + RETRY_MS;
    const asked = this.#open();
    asked.then(
      (value) => {
        const { due, end } = this.#holds?.(value) ?? {
          due: this.#clock.now() + KEPT_MS,
          end: Number.POSITIVE_INFINITY,
        };
        this.#good = { value, end };
        this.#opening = null;
        this.#until = Math.min(due, end);
      },
      (error: unknown) => {
        if (error instanceof SluiceError && error.retryAfter !== null) {
          this.#until = this.#clock.now() + error.retryAfter * 1000;
        }
        const kept = this.#good === null ? '' : '; the last good value is used';
        this.#log.error(`a stored credential cannot be opened${kept}`, {
          ...this.#what,
          error: String(error),
          ...detailOf(error),
        });
      },
    );
    return asked;
  }
}

const detailOf = (error: unknown): { readonly detail?: string } =>
  error instanceof SluiceError && typeof error.detail === 'string' ? { detail: error.detail } : {};
