import type { Clock } from '../../kernel/clock.ts';
import { Lru } from '../../kernel/lru.ts';
import type { Cache } from '../ports.ts';

export interface MemoryCacheOptions {
  readonly clock: Clock;
  /** Keys, values and a flat charge per entry together never exceed this. */
  readonly maxBytes: number;
}

/** What an entry, a key string and a Buffer cost beside their content. */
const ENTRY_BYTES = 400;

interface Entry {
  readonly value: Buffer;
  readonly expiresAt: number;
}

class MemoryCache implements Cache {
  readonly #clock: Clock;
  readonly #entries: Lru<string, Entry>;

  constructor({ clock, maxBytes }: MemoryCacheOptions) {
    this.#clock = clock;
    this.#entries = new Lru({
      maxEntries: Number.POSITIVE_INFINITY,
      maxWeight: maxBytes,
      weigh: ({ value }, key) => ENTRY_BYTES + key.length * 2 + value.length,
    });
  }

  async get(key: string): Promise<Buffer | null> {
    const entry = this.#entries.get(key);
    if (entry === undefined) return null;
    if (entry.expiresAt > this.#clock.now()) return entry.value;
    this.#entries.delete(key);
    return null;
  }

  async set(key: string, value: Buffer, ttlMs: number): Promise<void> {
    if (ttlMs <= 0) {
      this.#entries.delete(key);
      return;
    }
    this.#entries.set(key, { value: alone(value), expiresAt: this.#clock.now() + ttlMs });
  }

  async delete(key: string): Promise<void> {
    this.#entries.delete(key);
  }

  async close(): Promise<void> {
    this.#entries.clear();
  }
}

/** A copy in new memory: a slice of a pool would keep all of it, and could change under the cache. */
function alone(value: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(value.length);
  value.copy(copy);
  return copy;
}

/** A cache of this process alone, bounded in bytes; the least recently used entries leave first. */
export function memoryCache(options: MemoryCacheOptions): Cache {
  return new MemoryCache(options);
}
