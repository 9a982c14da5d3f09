import type { RateCard } from './rates.ts';
import { SANDBOX_MODELS, sandboxCard } from './sandbox.ts';

/** Prices that Sluice itself sets, for a provider that no published list knows. */
export interface LocalPrices {
  /** What the provider lists; any other model of it costs the same. */
  readonly models: readonly string[];
  /** The one rate card of all its models; never changes with time. */
  readonly card: RateCard;
}

/** By provider id, which is also the `source` of the price. A provider in it is never looked up in the library. */
export const LOCAL_PRICES: ReadonlyMap<string, LocalPrices> = new Map([
  ['sandbox', { models: SANDBOX_MODELS, card: sandboxCard }],
]);
