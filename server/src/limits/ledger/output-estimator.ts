/** How much models answer, learned from what they answered: the estimate for requests that set no maximum. */
import { Lru } from '../../kernel/lru.ts';

export interface OutputEstimator {
  /** Output tokens that 95 of 100 answers of a model stay within; a guess while few were seen. */
  expected(model: string): number;
  learn(model: string, tokens: number): void;
}

const FEW = 16;
const KEPT = 128;
const GUESS = 1024;
const MODELS = 1000;

interface Seen {
  readonly last: number[];
  next: number;
  p95: number;
}

export function createOutputEstimator(): OutputEstimator {
  const models = new Lru<string, Seen>({ maxEntries: MODELS });
  return {
    expected: (model) => models.get(model)?.p95 ?? GUESS,
    learn(model, tokens) {
      let seen = models.get(model);
      if (seen === undefined) {
        seen = { last: [], next: 0, p95: GUESS };
        models.set(model, seen);
      }
      seen.last[seen.next % KEPT] = tokens;
      seen.next += 1;
      if (seen.next >= FEW && seen.next % FEW === 0) {
        const sorted = [...seen.last].sort((a, b) => a - b);
        seen.p95 = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.95))] ?? GUESS;
      }
    },
  };
}
