import { isObject } from '../kernel/json.ts';
import { type Decimal, decimalOf, times } from './decimal.ts';
import type { PriceCards } from './price-cards.ts';
import { FALLS_TO, type RateCard, TOKEN_CLASSES, type TokenClass } from './rates.ts';

/** Names of the token classes in `pay_as_you_go` and `multiplier`. */
const FIELDS: Readonly<Record<TokenClass, string>> = {
  input: 'request_token',
  output: 'response_token',
  cache_read: 'cache_read_input_token',
  cache_write: 'cache_write_input_token',
  reasoning: 'reasoning_token',
  audio_input: 'request_audio_token',
  audio_output: 'response_audio_token',
};

/** A cent a token is 10,000 dollars a million tokens. */
const FROM_CENTS: Decimal = { digits: 10_000n, scale: 0 };

function amount(value: unknown): Decimal | undefined {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? decimalOf(value) : undefined;
}

/** `pay_as_you_go` of a custom model, US cents per token. Null when it prices no token. */
export function customCard(pricing: Readonly<Record<string, unknown>>): RateCard | null {
  const paid = pricing.pay_as_you_go;
  if (!isObject(paid)) return null;
  const cents = (entry: unknown): Decimal | undefined => {
    const price = isObject(entry) ? amount(entry.price) : undefined;
    return price === undefined ? undefined : times(price, FROM_CENTS);
  };
  const units = isObject(paid.additional_units) ? paid.additional_units : {};
  const card: Partial<Record<TokenClass, Decimal>> = {};
  for (const name of TOKEN_CLASSES) {
    const rate = cents(name === 'reasoning' ? (paid[FIELDS.reasoning] ?? units.thinking_token) : paid[FIELDS[name]]);
    if (rate !== undefined) card[name] = rate;
  }
  return card.input === undefined && card.output === undefined ? null : card;
}

/**
 * Prices times the integration's multipliers. A class without its own price is charged as the class it falls to,
 * with that one's multiplier unless it has one itself. Prices per request have no multiplier. Null when there is
 * nothing to multiply.
 */
export function multiplied(price: PriceCards, adjustments: Readonly<Record<string, unknown>>): PriceCards | null {
  const { multiplier } = adjustments;
  if (!isObject(multiplier)) return null;
  const general = amount(multiplier.default);
  const own = (name: TokenClass): Decimal | undefined => amount(multiplier[FIELDS[name]]);
  if (general === undefined && TOKEN_CLASSES.every((name) => own(name) === undefined)) return null;
  const cards = price.cards.map(({ above, card }) => {
    const out: Partial<Record<TokenClass | 'request', Decimal>> = { ...card };
    for (const name of TOKEN_CLASSES) {
      const factor = own(name) ?? (card[name] === undefined ? undefined : general);
      const rate = card[name] ?? card[FALLS_TO[name]];
      if (factor !== undefined && rate !== undefined) out[name] = times(rate, factor);
    }
    return { above, card: out };
  });
  return { source: `${price.source}+adjusted`, cards };
}
