import type { Log } from '../../kernel/log.ts';

/** Listeners that hear of a change and not which; one that throws does not stop the others. */
export class Hints {
  readonly #listeners = new Set<() => void>();
  readonly #log: Log;

  constructor(log: Log) {
    this.#log = log;
  }

  add(hint: () => void): () => void {
    const listener = () => hint();
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  emit(): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener();
      } catch (error) {
        this.#log.error('a listener of the change feed failed', { error });
      }
    }
  }

  clear(): void {
    this.#listeners.clear();
  }
}
