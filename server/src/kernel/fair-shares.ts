/** A bound that all organisations share, and the part of it that one of them may take. */

/**
 * Counts what each holder, an organisation, has of something that is bounded for the whole process: memory, threads,
 * requests under way. A holder may always have a quarter, and more than that only while half of the bound is left to the
 * others: one alone never takes everything, and one that is alone is not held to its quarter.
 */
export class FairShares {
  readonly name: string;
  readonly max: number;
  /** What a holder may have whatever the others do, as long as any is left. */
  readonly each: number;
  readonly #half: number;
  #held = 0;
  readonly #by = new Map<string, number>();

  constructor(name: string, max: number) {
    this.name = name;
    this.max = max;
    this.each = Math.max(1, Math.floor(max / 4));
    this.#half = Math.max(1, Math.floor(max / 2));
  }

  get held(): number {
    return this.#held;
  }

  heldBy(holder: string): number {
    return this.#by.get(holder) ?? 0;
  }

  /** Counts `amount` more for the holder. False, and nothing counted, when that is more than its share. */
  take(holder: string, amount = 1): boolean {
    const own = (this.#by.get(holder) ?? 0) + amount;
    const all = this.#held + amount;
    if (all > this.max || (own > this.each && all > this.#half)) return false;
    this.#held = all;
    this.#by.set(holder, own);
    return true;
  }

  /** Must be called once for what was taken. */
  give(holder: string, amount = 1): void {
    const left = (this.#by.get(holder) ?? 0) - amount;
    if (left > 0) this.#by.set(holder, left);
    else this.#by.delete(holder);
    this.#held -= amount;
  }
}
