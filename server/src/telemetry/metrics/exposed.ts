import type { Clock } from '../../kernel/clock.ts';
import { CONTENT_TYPES, exposition, type Format, formatOf } from './exposition.ts';
import type { FamilyValues } from './family-values.ts';

export interface MetricsAnswer {
  readonly contentType: string;
  readonly pieces: readonly Buffer[];
}

/** The answers of `/metrics`. All that ask while one is made are given that one. */
export class Exposed {
  readonly #families: () => Promise<readonly FamilyValues[]>;
  readonly #clock: Clock;
  readonly #running = new Map<Format, Promise<MetricsAnswer>>();

  /** @param families what there is to show: of this process, or of all that share the port */
  constructor(families: () => Promise<readonly FamilyValues[]>, clock: Clock) {
    this.#families = families;
    this.#clock = clock;
  }

  /** Rejects with `unavailable` when the other processes do not answer. */
  answer(accept: string | undefined): Promise<MetricsAnswer> {
    const format = formatOf(accept);
    let running = this.#running.get(format);
    if (running === undefined) {
      running = this.#make(format).finally(() => this.#running.delete(format));
      this.#running.set(format, running);
    }
    return running;
  }

  async #make(format: Format): Promise<MetricsAnswer> {
    const pieces = await exposition(await this.#families(), format, this.#clock);
    return { contentType: CONTENT_TYPES[format], pieces };
  }
}
