/** What an `Lru` may hold: entries, and optionally the sum of their weights (bytes, for example). */
export interface LruOptions<K, V> {
  readonly maxEntries: number;
  readonly maxWeight?: number;
  /** Weight of one entry; 1 when absent. */
  readonly weigh?: (value: V, key: K) => number;
}

/** An entry between the one that was used before it and the one that was used after it. */
interface Entry<K, V> {
  readonly key: K;
  readonly value: V;
  readonly weight: number;
  older: Entry<K, V> | null;
  newer: Entry<K, V> | null;
}

/**
 * A map that forgets what was not used for longest. The order is a separate list: a `Map` in the order of insertion
 * would do, but it steps over all entries that have left it on the way to its first one, 25 µs with 50,000 entries. An
 * entry heavier than `maxWeight` is not kept at all.
 */
export class Lru<K, V> {
  readonly #entries = new Map<K, Entry<K, V>>();
  readonly #maxEntries: number;
  readonly #maxWeight: number;
  readonly #weigh: ((value: V, key: K) => number) | undefined;
  #weight = 0;
  #oldest: Entry<K, V> | null = null;
  #newest: Entry<K, V> | null = null;

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
    if (entry !== this.#newest) {
      this.#unlink(entry);
      this.#append(entry);
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
    const entry: Entry<K, V> = { key, value, weight, older: null, newer: null };
    this.#entries.set(key, entry);
    this.#append(entry);
    this.#weight += weight;
    while (this.#oldest !== null && (this.#entries.size > this.#maxEntries || this.#weight > this.#maxWeight))
      this.delete(this.#oldest.key);
  }

  delete(key: K): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    this.#weight -= entry.weight;
    this.#unlink(entry);
    return this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
    this.#oldest = null;
    this.#newest = null;
    this.#weight = 0;
  }

  /** Oldest use first, as they were when this was called: entries may be deleted meanwhile. */
  entries(): [K, V][] {
    const all: [K, V][] = [];
    for (let entry = this.#oldest; entry !== null; entry = entry.newer) all.push([entry.key, entry.value]);
    return all;
  }

  #append(entry: Entry<K, V>): void {
    entry.older = this.#newest;
    if (this.#newest === null) this.#oldest = entry;
    else this.#newest.newer = entry;
    this.#newest = entry;
  }

  #unlink(entry: Entry<K, V>): void {
    if (entry.older === null) this.#oldest = entry.newer;
    else entry.older.newer = entry.newer;
    if (entry.newer === null) this.#newest = entry.older;
    else entry.newer.older = entry.older;
    entry.older = null;
    entry.newer = null;
  }
}
