import type { Clock } from '../../kernel/clock.ts';
import type { Cache } from '../ports.ts';

export interface MemoryCacheOptions {
  readonly clock: Clock;
  /** Keys, values and a flat charge per entry together never exceed this. */
  readonly maxBytes: number;
}

/** What a Map entry, a key string and a Buffer header cost beside their content. */
const ENTRY_BYTES = 200;

interface Entry {
  readonly value: Buffer;
  readonly bytes: number;
  readonly expiresAt: number;
}

class MemoryCache implements Cache {
  readonly #clock: Clock;
  readonly #maxBytes: number;
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  constructor({ clock, maxBytes }: MemoryCacheOptions) {
    this.#clock = clock;
    this.#maxBytes = maxBytes;
  }

  async get(key: string): Promise<Buffer | null> {
    const entry = this.#entries.get(key);
    if (!entry) return null;
    if (entry.expiresAt <= this.#clock.now()) {
      this.#remove(key, entry);
      return null;
    }
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  async set(key: string, value: Buffer, ttlMs: number): Promise<void> {
    const former = this.#entries.get(key);
    if (former) this.#remove(key, former);
    const bytes = ENTRY_BYTES + key.length * 2 + value.length;
    if (ttlMs <= 0 || bytes > this.#maxBytes) return;
    // A slice of a pooled buffer would keep the whole pool alive and could change under the cache.
    this.#entries.set(key, { value: Buffer.from(value), bytes, expiresAt: this.#clock.now() + ttlMs });
    this.#bytes += bytes;
    for (const [oldest, entry] of this.#entries) {
      if (this.#bytes <= this.#maxBytes) break;
      this.#remove(oldest, entry);
    }
  }

  async delete(key: string): Promise<void> {
    const entry = this.#entries.get(key);
    if (entry) this.#remove(key, entry);
  }

  async close(): Promise<void> {
    this.#entries.clear();
    this.#bytes = 0;
  }

  #remove(key: string, entry: Entry): void {
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
  }
}

/** A cache of this process alone, bounded in bytes; the least recently used entries leave first. */
export function memoryCache(options: MemoryCacheOptions): Cache {
  return new MemoryCache(options);
}
