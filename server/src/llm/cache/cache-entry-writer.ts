/** What the cache does for one request: what it found, or what it keeps of the answer. */
import type { BodyBudget } from '../../http/body-budget.ts';
import { isLent } from '../../http/buffer-pool.ts';
import type { EntryFacts, EntryKey } from './entry.ts';

export type CacheStatus = 'HIT' | 'SEMANTIC HIT' | 'MISS' | 'SEMANTIC MISS' | 'REFRESH';

/** An answer from the cache, for headers and the record. */
export interface CacheHit {
  readonly facts: EntryFacts;
  /** Cosine similarity of the questions; null for the same request. */
  readonly similarity: number | null;
}

/** Larger answers are not kept. */
const MAX_ANSWER = 4 * 1024 * 1024;

export class CacheEntryWriter {
  readonly key: EntryKey;
  readonly maxAgeMs: number;
  status: CacheStatus;
  hit: CacheHit | null = null;
  /** The question as a vector, when it was made, so that the answer is found by similar ones. */
  question: { readonly scope: string; readonly vector: Float32Array } | null = null;
  readonly #bodies: BodyBudget;
  readonly #holder: string;
  #parts: Buffer[] | null = [];
  #bytes = 0;
  /** The try whose answer is being kept. */
  #of = 0;
  #contentType: string | null = null;

  constructor(key: EntryKey, maxAgeMs: number, status: CacheStatus, bodies: BodyBudget, holder: string) {
    this.key = key;
    this.maxAgeMs = maxAgeMs;
    this.status = status;
    this.#bodies = bodies;
    this.#holder = holder;
  }

  /** The head of an answer has been sent; `tries` says by which attempt. */
  begin(tries: number, status: number, headers: readonly string[]): void {
    if (this.#of !== 0 || status !== 200) this.drop();
    this.#of = tries;
    this.#contentType = contentTypeIn(headers);
  }

  take(part: Buffer): void {
    if (this.#parts === null) return;
    const now = this.#bytes + part.length;
    if (now > MAX_ANSWER || !this.#bodies.grow(this.#holder, this.#bytes, now)) {
      this.drop();
      return;
    }
    this.#bytes = now;
    this.#parts.push(isLent(part) ? Buffer.from(part) : part);
  }

  /** The whole answer; null where it is not to be kept: too large, or made by more than one attempt. */
  whole(tries: number): { readonly body: Buffer; readonly contentType: string } | null {
    if (this.#parts === null || this.#of !== tries || this.#contentType === null) return null;
    return { body: Buffer.concat(this.#parts), contentType: this.#contentType };
  }

  drop(): void {
    if (this.#parts === null) return;
    this.#parts = null;
    this.#bodies.release(this.#holder, this.#bytes);
    this.#bytes = 0;
  }
}

function contentTypeIn(headers: readonly string[]): string | null {
  for (let i = 0; i + 1 < headers.length; i += 2) {
    if (headers[i]?.toLowerCase() === 'content-type') return headers[i + 1] ?? null;
  }
  return null;
}
