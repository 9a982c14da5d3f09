/** Bodies up to this size are not counted: their number is bounded by the connections. */
const FREE_BYTES = 64 * 1024;

/**
 * Bytes of request bodies that may be held at once. Every body has its own limit, but many connections could together
 * hold more than the process has; past this bound large bodies are refused until others are done (security 8.1).
 */
export class BodyBudget {
  readonly max: number;
  #held = 0;

  constructor(max: number) {
    this.max = max;
  }

  get held(): number {
    return this.#held;
  }

  /** Counts a body that grew from `before` to `now` bytes. False, and nothing counted, when that would be too much. */
  grow(before: number, now: number): boolean {
    const more = counted(now) - counted(before);
    if (more > 0 && this.#held + more > this.max) return false;
    this.#held += more;
    return true;
  }

  /** A body of this size is not needed any more. */
  release(size: number): void {
    this.#held -= counted(size);
  }
}

const counted = (size: number): number => (size > FREE_BYTES ? size : 0);
