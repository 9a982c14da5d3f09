import { SluiceError } from './errors.ts';
import { FairShares } from './fair-shares.ts';

interface Turn {
  readonly take: () => void;
}

/** At most `free` holders at a time, of each owner its share: who waits, waits behind others of the same owner only. */
export class Slots {
  readonly shares: FairShares;
  /** Owners in the order of their turns; each has something that waits. */
  readonly #waiting = new Map<string, Turn[]>();

  constructor(name: string, free: number) {
    this.shares = new FairShares(name, free);
  }

  /** How many wait for a turn of this owner. */
  waitingOf(owner: string): number {
    return this.#waiting.get(owner)?.length ?? 0;
  }

  /** Resolves with what ends the turn. Rejects with the reason of `signal`. */
  async take(owner: string, signal: AbortSignal | undefined): Promise<() => void> {
    if (!this.shares.take(owner)) {
      await new Promise<void>((resolve, reject) => {
        const leave = () => {
          this.#drop(owner, turn);
          reject(reasonOf(signal));
        };
        const turn: Turn = {
          take() {
            signal?.removeEventListener('abort', leave);
            resolve();
          },
        };
        const own = this.#waiting.get(owner);
        if (own === undefined) this.#waiting.set(owner, [turn]);
        else own.push(turn);
        signal?.addEventListener('abort', leave, { once: true });
      });
    }
    let given = false;
    return () => {
      if (given) return;
      given = true;
      this.shares.give(owner);
      this.#next();
    };
  }

  #next(): void {
    for (const [owner, turns] of this.#waiting) {
      if (!this.shares.take(owner)) continue;
      const turn = turns.shift();
      // An owner that has had a turn waits for those of all others.
      this.#waiting.delete(owner);
      if (turns.length > 0) this.#waiting.set(owner, turns);
      turn?.take();
      return;
    }
  }

  #drop(owner: string, turn: Turn): void {
    const left = this.#waiting.get(owner)?.filter((one) => one !== turn) ?? [];
    if (left.length > 0) this.#waiting.set(owner, left);
    else this.#waiting.delete(owner);
  }
}

/** What an aborted signal says, as an error for the caller. */
export function reasonOf(signal: AbortSignal | undefined): SluiceError {
  return signal?.reason instanceof SluiceError
    ? signal.reason
    : new SluiceError('client_closed', 'The request was given up.', { cause: signal?.reason });
}
