import type { TokenCache } from './training.ts';

const EARLY_MS = 5 * 60_000;
const MAX = 10_000;

interface Entry {
  readonly value: Promise<{ readonly value: unknown; readonly expiresAt: number }>;
  /** Milliseconds since the epoch; infinite while it is being fetched. */
  until: number;
}

/**
 * Access tokens by account. A token is used until five minutes before it expires, or until half its life is over when it
 * lives shorter than that; callers that come at the same time share one fetch, and a failed fetch is not kept.
 */
export function createTokenCache(now: () => number): TokenCache {
  const entries = new Map<string, Entry>();
  return {
    async get<T>(key: string, obtain: () => Promise<{ readonly value: T; readonly expiresAt: number }>): Promise<T> {
      const known = entries.get(key);
      if (known !== undefined && known.until > now()) return (await known.value).value as T;
      const entry: Entry = { value: obtain(), until: Number.POSITIVE_INFINITY };
      entries.delete(key);
      if (entries.size >= MAX) entries.delete(entries.keys().next().value ?? '');
      entries.set(key, entry);
      try {
        const { value, expiresAt } = await entry.value;
        const at = now();
        entry.until = Math.max(expiresAt - EARLY_MS, at + (expiresAt - at) / 2);
        return value as T;
      } catch (error) {
        if (entries.get(key) === entry) entries.delete(key);
        throw error;
      }
    },
  };
}
