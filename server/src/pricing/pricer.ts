import { Lru } from '../kernel/lru.ts';
import { estimateTokens } from '../operations/tokens.ts';
import { changesWithTime, libraryModels, loadLibrary } from './library.ts';
import { LOCAL_PRICES } from './local.ts';
import { cardsOf, overriddenPrice, type Price, type PriceOverrides, type Pricer } from './price.ts';

/** Models remembered for each set of overrides. Callers choose the names, so there must be a bound. */
const REMEMBERED = 2_000;
/** Prices that change with time do so at whole minutes. */
const MINUTE_MS = 60_000;

interface Remembered {
  readonly price: Price | null;
  /** The minute it holds for; null for ever. */
  readonly minute: number | null;
}

const NO_OVERRIDES: PriceOverrides = { models: new Map(), pricingAdjustments: null };

function find(
  providerId: string,
  answered: string | null,
  asked: string,
  overrides: PriceOverrides,
  at: number,
): Remembered {
  const pricing =
    overrides.models.get(asked.toLowerCase())?.pricing ??
    (answered === null ? null : overrides.models.get(answered.toLowerCase())?.pricing) ??
    null;
  let minute: number | null = null;
  let cards = null;
  for (const model of answered === null || answered === asked ? [asked] : [answered, asked]) {
    cards = cardsOf(providerId, model, at);
    if (cards === null) continue;
    if (!LOCAL_PRICES.has(providerId) && changesWithTime(providerId, model)) minute = Math.floor(at / MINUTE_MS);
    break;
  }
  return { price: overriddenPrice(cards, pricing, overrides.pricingAdjustments), minute };
}

/** Prices remembered by provider, models and overrides; overrides are forgotten with their snapshot. */
export function createPricer(): Pricer {
  const byOverrides = new WeakMap<PriceOverrides, Lru<string, Remembered>>();

  function remembered(overrides: PriceOverrides): Lru<string, Remembered> {
    let memo = byOverrides.get(overrides);
    if (memo === undefined) {
      memo = new Lru({ maxEntries: REMEMBERED });
      byOverrides.set(overrides, memo);
    }
    return memo;
  }

  return {
    price(providerId, answered, asked, overrides, at) {
      const given = overrides ?? NO_OVERRIDES;
      const memo = remembered(given);
      const key = `${providerId}\0${answered ?? ''}\0${asked}`;
      const known = memo.get(key);
      if (known !== undefined && (known.minute === null || known.minute === Math.floor(at / MINUTE_MS))) {
        return known.price;
      }
      const found = find(providerId, answered, asked, given, at);
      memo.set(key, found);
      return found.price;
    },
    modelsOf: (providerId) => LOCAL_PRICES.get(providerId)?.models ?? libraryModels(providerId),
    estimateTokens: (body) => estimateTokens(body.length),
    warm() {
      loadLibrary();
    },
  };
}
