import type { FreshToken, TokenCache } from './training.ts';

const EARLY_MS = 5 * 60_000;
const MAX = 10_000;

interface Entry {
  readonly value: Promise<FreshToken<unknown>>;
  /** Milliseconds since the epoch; infinite while it is being fetched. */
  until: number;
  /** Set when it was fetched. */
  known?: unknown;
}

/**
 * Access tokens by account. A token is used until five minutes before it expires, or until half its life is over when it
 * lives shorter than that; callers that come at the same time share one fetch, and a failed fetch is not kept.
 */
export function createTokenCache(now: () => number): TokenCache {
  const entries = new Map<string, Entry>();
  return {
    async get<T>(key: string, obtain: () => Promise<FreshToken<T>>): Promise<T> {
      const known = entries.get(key);
      if (known !== undefined && known.until > now()) return (await known.value).value as T;
      const entry: Entry = { value: obtain(), until: Number.POSITIVE_INFINITY };
      entries.delete(key);
      if (entries.size >= MAX) entries.delete(entries.keys().next().value ?? '');
      entries.set(key, entry);
      try {
        const { value, expiresAt, refreshAt } = await entry.value;
        const at = now();
        entry.until = refreshAt ?? Math.max(expiresAt - EARLY_MS, at + (expiresAt - at) / 2);
        entry.known = value;
        return value as T;
      } catch (error) {
        if (entries.get(key) === entry) entries.delete(key);
        throw error;
      }
    },
    drop(key, value) {
      const entry = entries.get(key);
      if (entry !== undefined && entry.known === value) entries.delete(key);
    },
  };
}
