import { borrowBuffer, isLent, returnBuffer } from '../../http/buffer-pool.ts';

/** Bytes of a passed-through answer kept to find its usage; past it only the end is kept. */
const LOOK_BYTES = 4 * 1024 * 1024;
const LOOK_TAIL = 64 * 1024;
/** Of a longer answer all is copied to lent memory, so that its parts can be used again: as many as `connection-pool.ts` lends from. */
const COPIED_FROM = 256 * 1024;
const FIRST_BYTES = 1024;

/** What is kept of an answer in one piece to look into at its end: all of it, or the end of a long one. */
export class ResponseTail {
  #parts: Buffer[] = [];
  #bytes = 0;
  #memory: Buffer | null = null;
  /** Only the end is at hand. */
  cut = false;
  /** The first of a long answer. */
  first: Buffer | null = null;

  add(chunk: Buffer): void {
    if (this.#memory === null) {
      if (this.#bytes + chunk.length <= COPIED_FROM && !isLent(chunk)) {
        this.#parts.push(chunk);
        this.#bytes += chunk.length;
        return;
      }
      this.#memory = borrowBuffer(LOOK_BYTES);
      this.#bytes = 0;
      for (const part of this.#parts) this.#copy(part, this.#memory);
      this.#parts = [];
    }
    this.#copy(chunk, this.#memory);
  }

  /** Parts that do not come from a connection may be larger than all that is kept. */
  #copy(chunk: Buffer, memory: Buffer): void {
    for (let from = 0; from < chunk.length; ) {
      if (this.#bytes === memory.length) {
        this.cut = true;
        this.first ??= Buffer.from(memory.subarray(0, FIRST_BYTES));
        memory.copyWithin(0, memory.length - LOOK_TAIL);
        this.#bytes = LOOK_TAIL;
      }
      const copied = chunk.copy(memory, this.#bytes, from);
      this.#bytes += copied;
      from += copied;
    }
  }

  /** Not to be read any more after `end`. */
  bytes(): Buffer {
    if (this.#memory !== null) return this.#memory.subarray(this.cut ? this.#bytes - LOOK_TAIL : 0, this.#bytes);
    const [only] = this.#parts;
    return only !== undefined && this.#parts.length === 1 ? only : Buffer.concat(this.#parts);
  }

  /** Nothing reads what is kept any more. */
  end(): void {
    if (this.#memory !== null) returnBuffer(this.#memory);
    this.#memory = null;
    this.#parts = [];
  }
}
