/** What an answer used: as it reports, or at least what of it arrived. */
import type { JsonObject } from '../../kernel/json.ts';
import { readAnyUsage } from '../../operations/shapes/any-usage.ts';
import { SHAPES } from '../../operations/shapes/index.ts';
import { mergeUsage, type TokenUsage } from '../../operations/usage.ts';
import type { Bound } from '../../providers/binding.ts';
import { estimateUse, growReservation, isBackground, likelyInput } from '../estimate.ts';
import type { Uses } from '../exchange.ts';
import { piecesOf } from './response-inspection.ts';

/** What this file uses of an exchange. */
type Used = Uses<'attempt' | 'limits' | 'outcome' | 'request', 'outputEstimator' | 'pricer'>;

export class Meter {
  readonly #x: Used;
  readonly #bound: Bound;
  #raw: JsonObject | null = null;
  /** Tokens written as far as events tell: about one each, and more in large ones. */
  pieces = 0;
  /** Pieces at which more is reserved under usage limits. */
  #growAt = Number.POSITIVE_INFINITY;

  constructor(x: Used, bound: Bound) {
    this.#x = x;
    this.#bound = bound;
  }

  /** The answer is a stream: what it writes is watched under usage limits. */
  watch(): void {
    this.#growAt = this.#x.limits.reserved?.estimate.output ?? Number.POSITIVE_INFINITY;
  }

  count(event: Buffer): void {
    this.pieces += piecesOf(event);
  }

  grow(): void {
    if (this.pieces > this.#growAt) this.#growAt = growReservation(this.#x, this.pieces);
  }

  see(usage: JsonObject): void {
    // One report needs no joining; its reader takes impossible counts for absent ones.
    this.#raw = this.#raw === null ? usage : mergeUsage(this.#raw, usage);
  }

  /**
   * The usage of an answer as it was converted. Where a provider counts each item by itself, only this has their sum; zero
   * in it is a count that is missing.
   */
  seeMade(usage: JsonObject): void {
    if ((readAnyUsage(usage)?.input ?? 0) > 0) this.see(usage);
  }

  /** Whether the answer is made on by itself: it is used up whether or not anybody waits for it. */
  get alone(): boolean {
    return isBackground(this.#x);
  }

  /** What was reported so far. */
  told(): TokenUsage | null {
    const { binding } = this.#bound;
    const raw = this.#raw;
    if (raw === null) return null;
    if (binding.usage !== undefined) return binding.usage(raw);
    if (this.#x.request.operation.family !== 'proxy') return SHAPES[binding.shape].usage.read(raw);
    // What only reads may tell what was used before, and was counted then.
    return this.#x.request.incoming.method === 'GET' ? null : readAnyUsage(raw);
  }

  /** The answer is whole. `received` is taken where it reports nothing. */
  take(received: () => number): void {
    const usage = this.told();
    this.#x.outcome.answer.usage = usage;
    if (usage === null) this.estimate(received());
  }

  /** What a generation that reported no usage must have cost at least. Never below what was reported. */
  estimate(arrived: number): void {
    const x = this.#x;
    if (x.outcome.answer.usage !== null) return;
    const received = Math.max(arrived, this.alone ? estimateUse(x).output : 0);
    if (received === 0) return;
    x.outcome.answer.usage = this.told();
    const output = Math.max(x.outcome.answer.usage?.output ?? 0, received);
    x.outcome.usageEstimated = true;
    x.outcome.answer.usage = {
      input: x.outcome.answer.usage?.input || likelyInput(x),
      output,
      cache_read: x.outcome.answer.usage?.cache_read ?? 0,
      cache_write: x.outcome.answer.usage?.cache_write ?? 0,
      reasoning: x.outcome.answer.usage?.reasoning ?? 0,
      audio_input: x.outcome.answer.usage?.audio_input ?? 0,
      audio_output: x.outcome.answer.usage?.audio_output ?? 0,
    };
  }
}
