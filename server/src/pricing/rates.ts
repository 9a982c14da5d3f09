import { type Decimal, scaled, toNumber } from './decimal.ts';

/** What is charged apart. `reasoning` and `audio_output` are part of a usage's output, the others of its input. */
export const TOKEN_CLASSES = [
  'input',
  'output',
  'cache_read',
  'cache_write',
  'reasoning',
  'audio_input',
  'audio_output',
] as const;

export type TokenClass = (typeof TOKEN_CLASSES)[number];

/** Where tokens of a class without its own price are charged. */
export const FALLS_TO: Readonly<Record<TokenClass, TokenClass>> = {
  input: 'input',
  output: 'output',
  cache_read: 'input',
  cache_write: 'input',
  audio_input: 'input',
  reasoning: 'output',
  audio_output: 'output',
};

/** Dollars per million tokens of each class that has a price, and per million requests. */
export type RateCard = Readonly<Partial<Record<TokenClass | 'request', Decimal>>>;

/** A rate card, ready for sums in attodollars (10⁻¹⁸ dollars) per unit. */
export interface Tier {
  /** The tier holds when the whole input, cached tokens included, is more than this many tokens. */
  readonly above: number;
  readonly units: Readonly<Record<TokenClass, bigint>>;
  readonly request: bigint;
  /** What the record shows: dollars per million units. */
  readonly rates: Readonly<Record<string, number>>;
}

/** Attodollars per token in a dollar per million tokens. */
const ATTO_PER_RATE = 12;

/** Makes a tier of a card. Rates finer than 10⁻¹⁸ dollars a token are rounded there, halves up. */
export function compileTier(card: RateCard, above: number): Tier {
  const rates: Record<string, number> = {};
  for (const [name, rate] of Object.entries(card)) rates[name] = toNumber(rate);
  const unit = (name: TokenClass): bigint => {
    const rate = card[name] ?? card[FALLS_TO[name]];
    return rate === undefined ? 0n : scaled(rate, ATTO_PER_RATE);
  };
  return {
    above,
    units: {
      input: unit('input'),
      output: unit('output'),
      cache_read: unit('cache_read'),
      cache_write: unit('cache_write'),
      reasoning: unit('reasoning'),
      audio_input: unit('audio_input'),
      audio_output: unit('audio_output'),
    },
    request: card.request === undefined ? 0n : scaled(card.request, ATTO_PER_RATE),
    rates,
  };
}
