import type { SluiceError } from '../kernel/errors.ts';

/** What the list needs of a request, whichever plane it belongs to. */
export interface InFlightRequest {
  /** Index in the list; its own field, so that adding and removing allocate nothing. */
  place: number;
  /** Ends whatever the request is waiting for; null while it waits for nothing that can be ended. */
  readonly cancel: ((error: SluiceError) => void) | null;
}

/** Requests of all planes whose answer is not complete yet, those that Sluice makes itself included. */
export class InFlight {
  readonly #active: InFlightRequest[] = [];

  get count(): number {
    return this.#active.length;
  }

  /** Runs one request to its end. */
  async run<R extends InFlightRequest>(request: R, work: (request: R) => Promise<void>): Promise<void> {
    const active = this.#active;
    request.place = active.push(request) - 1;
    try {
      await work(request);
    } finally {
      const last = active.pop();
      if (last !== undefined && last !== request) {
        active[request.place] = last;
        last.place = request.place;
      }
    }
  }

  /** Ends every request under way, streams with an error event; each still leaves its record. */
  cut(error: SluiceError): void {
    for (const request of [...this.#active]) request.cancel?.(error);
  }
}
