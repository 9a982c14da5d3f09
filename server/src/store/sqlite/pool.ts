/** Hands out connections, first come first served. */
export class Pool {
  readonly #free: number[];
  readonly #size: number;
  readonly #waiting: ((connection: number) => void)[] = [];
  #drained: (() => void)[] = [];

  constructor(connections: readonly number[]) {
    this.#free = [...connections];
    this.#size = connections.length;
  }

  async use<T>(run: (connection: number) => Promise<T>): Promise<T> {
    const connection = this.#free.pop() ?? (await new Promise<number>((resolve) => this.#waiting.push(resolve)));
    try {
      return await run(connection);
    } finally {
      const next = this.#waiting.shift();
      if (next) {
        next(connection);
      } else {
        this.#free.push(connection);
        if (this.#free.length === this.#size) for (const resolve of this.#drained.splice(0)) resolve();
      }
    }
  }

  /** Resolves when every connection is back. */
  drain(): Promise<void> {
    if (this.#free.length === this.#size) return Promise.resolve();
    return new Promise((resolve) => this.#drained.push(resolve));
  }
}
