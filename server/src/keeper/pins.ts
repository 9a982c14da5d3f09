/** Files and tables that questions read: what is removed meanwhile goes once none does. */
import type { Log } from '../kernel/log.ts';

export class Pins {
  /** How many questions read a name. */
  readonly #held = new Map<string, number>();
  readonly #leaving = new Map<string, () => Promise<unknown>>();
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  has(name: string): boolean {
    return this.#held.has(name);
  }

  /** Holds what has these names, until the answer is called. */
  hold(names: readonly string[]): () => void {
    for (const name of names) this.#held.set(name, (this.#held.get(name) ?? 0) + 1);
    let released = false;
    return () => {
      if (released) return;
      released = true;
      for (const name of names) this.#release(name);
    };
  }

  /** Calls `end` once nothing holds the name. Resolves when it has ended. */
  remove(name: string, end: () => Promise<unknown>): Promise<void> {
    return new Promise((resolve) => {
      this.#leaving.set(name, () => end().finally(resolve));
      if (!this.#held.has(name)) this.#end(name);
    });
  }

  #release(name: string): void {
    const left = (this.#held.get(name) ?? 1) - 1;
    if (left > 0) {
      this.#held.set(name, left);
      return;
    }
    this.#held.delete(name);
    this.#end(name);
  }

  #end(name: string): void {
    const end = this.#leaving.get(name);
    if (end === undefined) return;
    this.#leaving.delete(name);
    void end().catch((error: unknown) => this.#log.warn('what logs no longer need stays', { error, name }));
  }
}
