import { SluiceError } from '../../kernel/errors.ts';

/** At most `free` holders at a time, in order of arrival. */
export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(free: number) {
    this.#free = free;
  }

  async take(signal: AbortSignal | undefined): Promise<() => void> {
    if (this.#free > 0) {
      this.#free -= 1;
    } else {
      await new Promise<void>((resolve, reject) => {
        const turn = () => {
          signal?.removeEventListener('abort', leave);
          resolve();
        };
        const leave = () => {
          this.#waiting.splice(this.#waiting.indexOf(turn), 1);
          reject(reasonOf(signal));
        };
        this.#waiting.push(turn);
        signal?.addEventListener('abort', leave, { once: true });
      });
    }
    let given = false;
    return () => {
      if (given) return;
      given = true;
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free += 1;
    };
  }
}

/** What an aborted signal says, as an error for the caller. */
export function reasonOf(signal: AbortSignal | undefined): SluiceError {
  return signal?.reason instanceof SluiceError
    ? signal.reason
    : new SluiceError('client_closed', 'The request was given up.', { cause: signal?.reason });
}
