/** What an `Lru` may hold: entries, and optionally the sum of their weights (bytes, for example). */
export interface LruOptions<K, V> {
  readonly maxEntries: number;
  readonly maxWeight?: number;
  /** Weight of one entry; 1 when absent. */
  readonly weigh?: (value: V, key: K) => number;
}

/**
 * A map that forgets what was not used for longest. A `Map` keeps insertion order, so moving an entry to the end is a
 * delete and a set: no list of our own. An entry heavier than `maxWeight` is not kept at all.
 */
export class Lru<K, V> {
  readonly #entries = new Map<K, { value: V; weight: number }>();
  readonly #maxEntries: number;
  readonly #maxWeight: number;
  readonly #weigh: ((value: V, key: K) => number) | undefined;
  #weight = 0;
  /** The entry at the end of the map, which need not be moved there. */
  #newest: { readonly value: V; readonly weight: number } | undefined;

  constructor(options: LruOptions<K, V>) {
    this.#maxEntries = options.maxEntries;
    this.#maxWeight = options.maxWeight ?? Number.POSITIVE_INFINITY;
    this.#weigh = options.weigh;
  }

  get size(): number {
    return this.#entries.size;
  }

  get weight(): number {
    return this.#weight;
  }

  get(key: K): V | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    // Moving costs: the map makes a new table every so many moves, and old tables keep later ones alive until a full GC.
    if (entry !== this.#newest) {
      this.#entries.delete(key);
      this.#entries.set(key, entry);
      this.#newest = entry;
    }
    return entry.value;
  }

  /** Reads without counting as a use. */
  peek(key: K): V | undefined {
    return this.#entries.get(key)?.value;
  }

  has(key: K): boolean {
    return this.#entries.has(key);
  }

  set(key: K, value: V): void {
    this.delete(key);
    const weight = this.#weigh?.(value, key) ?? 1;
    if (weight > this.#maxWeight || this.#maxEntries < 1) return;
    const entry = { value, weight };
    this.#entries.set(key, entry);
    this.#newest = entry;
    this.#weight += weight;
    while (this.#entries.size > this.#maxEntries || this.#weight > this.#maxWeight) {
      const oldest = this.#entries.keys().next();
      if (oldest.done) return;
      this.delete(oldest.value);
    }
  }

  delete(key: K): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    this.#weight -= entry.weight;
    if (entry === this.#newest) this.#newest = undefined;
    return this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
    this.#newest = undefined;
    this.#weight = 0;
  }

  /** Oldest use first. */
  *entries(): IterableIterator<[K, V]> {
    for (const [key, { value }] of this.#entries) yield [key, value];
  }
}
