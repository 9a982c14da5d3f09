import type { Clock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { WireControl, WireHandler } from '../../kernel/wire.ts';
import type { Answer, Step } from './answer.ts';

/** Small pieces are delivered together up to this size, as a socket would. */
const CHUNK_BYTES = 16 * 1024;

/**
 * Delivers an answer the way a socket does: after the caller's turn, one chunk a turn, nothing while paused, nothing
 * after an abort. Steps are taken from the answer only as fast as they are read.
 */
export class Call implements WireControl {
  readonly #handler: WireHandler;
  readonly #clock: Clock;
  readonly #answer: () => Promise<Answer>;
  #steps: Iterator<Step> | null = null;
  #paused = false;
  #done = false;
  /** A turn of the event loop or a timer that will go on is under way. */
  #waiting = false;
  #cancel: (() => void) | null = null;
  /** Taken from the steps while bytes were collected: comes next. */
  #next: Step | null = null;

  constructor(handler: WireHandler, clock: Clock, answer: () => Promise<Answer>) {
    this.#handler = handler;
    this.#clock = clock;
    this.#answer = answer;
    setImmediate(() => void this.#begin());
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#soon();
  }

  abort(): void {
    if (this.#done) return;
    this.#done = true;
    this.#cancel?.();
    this.#release();
  }

  async #begin(): Promise<void> {
    if (this.#done) return;
    const answer = await this.#answer();
    if (this.#done) return;
    if (answer.delayMs > 0) this.#after(answer.delayMs, () => this.#head(answer));
    else this.#head(answer);
  }

  #after(ms: number, then: () => void): void {
    this.#waiting = true;
    this.#cancel = this.#clock.after(ms, () => {
      this.#waiting = false;
      this.#cancel = null;
      if (!this.#done) then();
    });
  }

  #head(answer: Answer): void {
    this.#steps = answer.steps[Symbol.iterator]();
    this.#guarded(() => this.#handler.onHead(answer.status, answer.headers, this));
    this.#soon();
  }

  /** Goes on in the next turn, so that neither a long answer nor a fast reader keeps the event loop to itself. */
  #soon(): void {
    if (this.#waiting || this.#done || this.#steps === null) return;
    this.#waiting = true;
    setImmediate(() => {
      this.#waiting = false;
      this.#go();
    });
  }

  #go(): void {
    if (this.#done || this.#paused) return;
    const step = this.#take();
    if (step === null) {
      this.#finish(() => this.#handler.onEnd());
    } else if (Buffer.isBuffer(step)) {
      this.#guarded(() => this.#handler.onData(step));
      this.#soon();
    } else if ('waitMs' in step) {
      this.#after(step.waitMs, () => this.#go());
    } else {
      const message = 'The provider closed the connection before its answer was complete';
      this.#finish(() =>
        this.#handler.onError(new SluiceError('upstream_cut', message, { detail: 'sandbox model cut' })),
      );
    }
  }

  /** The next step, with neighbouring texts joined. */
  #take(): Buffer | Exclude<Step, string | Buffer> | null {
    let text = '';
    for (;;) {
      const step = this.#next ?? this.#pull();
      this.#next = null;
      if (typeof step === 'string') {
        text += step;
        if (text.length < CHUNK_BYTES) continue;
        return Buffer.from(text);
      }
      if (text === '') return step;
      this.#next = step;
      return Buffer.from(text);
    }
  }

  #pull(): Step | null {
    const next = this.#steps?.next();
    return next === undefined || next.done === true ? null : next.value;
  }

  #finish(tell: () => void): void {
    this.#done = true;
    this.#release();
    this.#guarded(tell);
  }

  #release(): void {
    this.#steps?.return?.();
    this.#steps = null;
  }

  /** A reader that throws is treated as one that went away, and told so once. */
  #guarded(tell: () => void): void {
    try {
      tell();
    } catch (error) {
      if (this.#done) return;
      this.#done = true;
      this.#cancel?.();
      this.#release();
      this.#handler.onError(new SluiceError('upstream_invalid', 'The answer could not be read.', { cause: error }));
    }
  }
}
