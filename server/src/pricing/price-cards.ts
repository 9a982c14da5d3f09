import type { RateCard } from './rates.ts';

/** A price before it is compiled: one card for each context length. */
export interface PriceCards {
  readonly source: string;
  readonly cards: readonly { readonly above: number; readonly card: RateCard }[];
}
