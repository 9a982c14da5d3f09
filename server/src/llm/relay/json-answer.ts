/** An answer in one piece that is read at its end: in the event loop where it is small, else by the thread for large bodies. */
import { SluiceError } from '../../kernel/errors.ts';
import type { Bound } from '../../providers/binding.ts';
import type { CallContext } from '../../providers/provider.ts';
import type { Uses } from '../exchange.ts';
import { isLargeAnswer, readAnswerOnThread, SharedPieces } from '../large/calls.ts';
import type { BodyOrder } from '../request-body.ts';
import type { Target } from '../target.ts';
import { type ReadAnswer, readAnswer } from './read-answer.ts';

export interface JsonAnswerParts {
  readonly x: Uses<'attempt' | 'endAnswer' | 'guard' | 'request', 'large'>;
  readonly target: Target;
  readonly bound: Bound;
  readonly context: CallContext;
  /** The thread has made the request of this, and only there the answer finds what it asks of it. */
  readonly order?: BodyOrder | null;
}

export class JsonAnswer {
  readonly #parts: JsonAnswerParts;
  #chunks: Buffer[] = [];
  #large: SharedPieces | null = null;
  #bytes = 0;
  #drop: (() => void) | null = null;

  constructor(parts: JsonAnswerParts) {
    this.#parts = parts;
  }

  /** What is added is copied at once. */
  get copies(): boolean {
    return this.#large !== null;
  }

  add(chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#large === null && (isLargeAnswer(this.#bytes) || this.#parts.order != null)) {
      // Copied while it comes: at its end, 16 MB would take a turn of 10 ms.
      this.#large = new SharedPieces();
      for (const part of this.#chunks) this.#large.add(part);
      this.#chunks = [];
    }
    if (this.#large === null) this.#chunks.push(chunk);
    else this.#large.add(chunk);
  }

  /** Calls `take` with the answer and the bytes for its caller, or with an error: at once where it is small. Not after `drop`. */
  read(headers: readonly string[], take: (read: ReadAnswer | Error, parts: readonly Buffer[]) => void): void {
    const { x, target, bound, context, order: made = null } = this.#parts;
    const order = { operation: x.request.operation.id, headers, creates: x.attempt.creation !== null };
    if (this.#large === null) {
      const raw = Buffer.concat(this.#chunks);
      const read = attempted(() => readAnswer({ ...order, raw }, bound, context));
      take(read, [read instanceof Error ? raw : (read.bytes ?? raw)]);
      return;
    }
    const large = this.#large;
    this.#large = null;
    this.#drop = readAnswerOnThread(x, target, context, made, { ...order, raw: large }, (read, parts) => {
      this.#drop = null;
      // What guardrails have may be looked at after the answer.
      if (x.guard === null) x.endAnswer = () => large.giveBack();
      take(read, parts);
    });
  }

  /** The answer is not waited for any more. */
  drop(): void {
    this.#drop?.();
    this.#drop = null;
    this.#chunks = [];
    this.#large?.giveBack();
    this.#large = null;
  }
}

function attempted<T>(run: () => T): T | Error {
  try {
    return run();
  } catch (error) {
    return error instanceof Error ? error : new SluiceError('upstream_invalid', String(error));
  }
}
