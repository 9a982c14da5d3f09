import type { SluiceError } from '../kernel/errors.ts';
import type { Exchange } from './exchange.ts';
import { run } from './pipeline.ts';

/** Requests whose answer is not complete yet, those that Sluice makes itself included. */
export class InFlight {
  // An array with each exchange's own place: adding and removing allocate nothing.
  readonly #active: Exchange[] = [];

  get count(): number {
    return this.#active.length;
  }

  /** Runs one request to its end. */
  async run(x: Exchange): Promise<void> {
    const active = this.#active;
    x.place = active.push(x) - 1;
    try {
      await run(x);
    } finally {
      const last = active.pop();
      if (last !== undefined && last !== x) {
        active[x.place] = last;
        last.place = x.place;
      }
    }
  }

  /** Ends every request under way, streams with an error event; each still leaves its record. */
  cut(error: SluiceError): void {
    for (const x of [...this.#active]) x.cancel?.(error);
  }
}
