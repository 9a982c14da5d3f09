import { libraryPrice } from './library.ts';
import { LOCAL_PRICES } from './local.ts';
import { customCard, multiplied } from './overrides.ts';
import type { PriceCards } from './price-cards.ts';
import { compileTier, type Tier } from './rates.ts';

/** What a model costs at one moment. */
export interface Price {
  /** A provider of `LOCAL_PRICES`, `custom`, or `genai-prices:<provider>/<model>`; `+adjusted` when multipliers were applied. */
  readonly source: string;
  /** Dollars per million units of the first tier; `Cost.rates` are those that were applied. */
  readonly rates: Readonly<Record<string, number>>;
  /** By rising context length; never empty. */
  readonly tiers: readonly [Tier, ...Tier[]];
}

/** What an integration says about prices: the part of a stored provider that pricing reads. */
export interface PriceOverrides {
  /** By model slug in lower case. */
  readonly models: ReadonlyMap<string, { readonly pricing: Readonly<Record<string, unknown>> | null }>;
  readonly pricingAdjustments: Readonly<Record<string, unknown>> | null;
}

/** Prices, estimates and the models that have a price. Made once, in the composition root. */
export interface Pricer {
  /**
   * Price of the model that answered, else of the model that was asked for; null when neither is known. A custom
   * model's `pricing_config` replaces what is known, then the integration's multipliers apply. `at` is milliseconds
   * since the epoch: prices change with dates and times of day.
   */
  price(
    providerId: string,
    answered: string | null,
    asked: string,
    overrides: PriceOverrides | null,
    at: number,
  ): Price | null;
  /** Models of a provider that have a price, deprecated ones left out. */
  modelsOf(providerId: string): readonly string[];
  /** A guess at the input tokens of a request body nobody counted. */
  estimateTokens(body: Buffer): number;
  /** Loads the price data now, about 50 ms, instead of with the first request that is priced. */
  warm(): void;
}

/** Null when the cards hold no price of a token at all: a cost of 0 would be a lie. */
export function compilePrice({ source, cards }: PriceCards): Price | null {
  const [first, ...rest] = cards
    .filter(({ card }) => card.input !== undefined || card.output !== undefined)
    .map(({ above, card }) => compileTier(card, above));
  return first === undefined ? null : { source, rates: first.rates, tiers: [first, ...rest] };
}

/** The published price of a model at `at`; null when none is known. */
export function cardsOf(providerId: string, model: string, at: number): PriceCards | null {
  const local = LOCAL_PRICES.get(providerId);
  if (local !== undefined) return { source: providerId, cards: [{ above: 0, card: local.card }] };
  return libraryPrice(providerId, model, at);
}

/** The published price of a model, without anyone's overrides. Not memoised: `Pricer.price` is. */
export function priceOf(providerId: string, model: string, at: number): Price | null {
  const cards = cardsOf(providerId, model, at);
  return cards === null ? null : compilePrice(cards);
}

/** A price with what an integration says about it. */
export function overriddenPrice(
  cards: PriceCards | null,
  pricing: Readonly<Record<string, unknown>> | null,
  adjustments: Readonly<Record<string, unknown>> | null,
): Price | null {
  const custom = pricing === null ? null : customCard(pricing);
  const base = custom === null ? cards : { source: 'custom', cards: [{ above: 0, card: custom }] };
  if (base === null) return null;
  const adjusted = adjustments === null ? null : multiplied(base, adjustments);
  return compilePrice(adjusted ?? base);
}
