/** Bytes of a passed-through answer kept to find its usage; past it only the end is kept. */
const LOOK_BYTES = 4 * 1024 * 1024;
const LOOK_TAIL = 64 * 1024;

/** What is kept of an answer in one piece to look into at its end: all of it, or the end of a long one. */
export class ResponseTail {
  #parts: Buffer[] = [];
  #bytes = 0;
  /** Only the end is at hand. */
  cut = false;
  /** The first of a long answer. */
  first: Buffer | null = null;

  add(chunk: Buffer): void {
    this.#parts.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes <= LOOK_BYTES) return;
    this.first ??= this.#parts[0] ?? null;
    this.cut = true;
    let kept = 0;
    let from = this.#parts.length;
    while (from > 0 && kept < LOOK_TAIL) kept += this.#parts[--from]?.length ?? 0;
    this.#parts = this.#parts.slice(from);
    this.#bytes = kept;
  }

  bytes(): Buffer {
    const [only] = this.#parts;
    return only !== undefined && this.#parts.length === 1 ? only : Buffer.concat(this.#parts);
  }
}
