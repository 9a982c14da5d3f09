import { createRequire } from 'node:module';
import type * as GenaiPrices from '@pydantic/genai-prices';
import { type Decimal, decimalOf } from './decimal.ts';
import type { PriceCards } from './price-cards.ts';
import type { RateCard, TokenClass } from './rates.ts';

/** Published prices of `@pydantic/genai-prices`: its data as installed, never updated over the network. */

const require = createRequire(import.meta.url);
let loaded: typeof GenaiPrices | null = null;

/**
 * Loads the data with the first price that is asked for: about 50 ms that a start does not pay. Synchronous, because a
 * request that is priced before the data is there would be recorded as of unknown price.
 */
export function loadLibrary(): typeof GenaiPrices {
  loaded ??= require('@pydantic/genai-prices') as typeof GenaiPrices;
  return loaded;
}

/** The library's names where they differ from ours. Its own matching is by substring, too loose to bill by. */
const NAMES: Readonly<Record<string, string>> = {
  'azure-openai': 'azure',
  'azure-ai': 'azure',
  bedrock: 'aws',
  'fireworks-ai': 'fireworks',
  gemini: 'google',
  'mistral-ai': 'mistral',
  moonshot: 'moonshotai',
  'together-ai': 'together',
  'vertex-ai': 'google',
  voyage: 'voyageai',
  xai: 'x-ai',
  zhipu: 'zai',
  'z-ai': 'zai',
};

/** What callers may put in front of a model's name, by the library's name of the provider, which does not know it. */
const PREFIXES: Readonly<Record<string, RegExp>> = {
  google: /^(?:publishers\/[a-z0-9-]+\/models\/|models\/|google\/)/,
};

const KEYS: Readonly<Record<string, TokenClass>> = {
  input_mtok: 'input',
  output_mtok: 'output',
  cache_read_mtok: 'cache_read',
  cache_write_mtok: 'cache_write',
  output_reasoning_mtok: 'reasoning',
  input_audio_mtok: 'audio_input',
  output_audio_mtok: 'audio_output',
};

const THOUSAND: bigint = 1_000n;
/** Longer names are no model's, and matching costs time. */
const MAX_NAME = 200;

function providerOf(providerId: string): GenaiPrices.Provider | undefined {
  const name = NAMES[providerId] ?? providerId;
  const provider = loadLibrary().findProvider({ providerId: name });
  return provider?.id === name ? provider : undefined;
}

const bareName = (provider: string, model: string): string => {
  const prefix = Object.hasOwn(PREFIXES, provider) ? PREFIXES[provider] : undefined;
  return prefix === undefined ? model : model.replace(prefix, '');
};

/** Models of a provider that are not deprecated. */
export function libraryModels(providerId: string): readonly string[] {
  return (providerOf(providerId)?.models ?? []).filter((model) => !model.deprecated).map((model) => model.id);
}

/** The price of a model at `at` (milliseconds since the epoch), with a card for each context length. */
export function libraryPrice(providerId: string, model: string, at: number): PriceCards | null {
  if (model === '' || model.length > MAX_NAME) return null;
  const provider = providerOf(providerId);
  if (provider === undefined) return null;
  const found = loadLibrary().calcPrice({}, bareName(provider.id, model), {
    providerId: provider.id,
    timestamp: new Date(at),
  });
  if (found === null) return null;
  return { source: `genai-prices:${provider.id}/${found.model.id}`, cards: cardsFrom(found.model_price) };
}

/** Whether the price of a model depends on when it is asked for. */
export function changesWithTime(providerId: string, model: string): boolean {
  return Array.isArray(modelOf(providerId, model)?.prices);
}

/** Tokens that a model takes and gives together; null when that is not known. */
export function contextWindowOf(providerId: string, model: string): number | null {
  return modelOf(providerId, model)?.context_window ?? null;
}

function modelOf(providerId: string, model: string): GenaiPrices.ModelInfo | null {
  const provider = providerOf(providerId);
  if (provider === undefined || model === '' || model.length > MAX_NAME) return null;
  const asked = { providerId: provider.id, timestamp: new Date(0) };
  return loadLibrary().calcPrice({}, bareName(provider.id, model), asked)?.model ?? null;
}

/** The library charges the whole request by the tier its input falls into. */
function cardsFrom(price: GenaiPrices.ModelPrice): PriceCards['cards'] {
  const starts = new Set([0]);
  for (const value of Object.values(price)) {
    if (typeof value === 'object') for (const tier of value.tiers) starts.add(tier.start);
  }
  return [...starts].sort((a, b) => a - b).map((above) => ({ above, card: cardAt(price, above) }));
}

function cardAt(price: GenaiPrices.ModelPrice, above: number): RateCard {
  const card: Partial<Record<TokenClass | 'request', Decimal>> = {};
  for (const [key, value] of Object.entries(price)) {
    if (value === undefined) continue;
    let rate = typeof value === 'number' ? value : value.base;
    if (typeof value === 'object') for (const tier of value.tiers) if (above >= tier.start) rate = tier.price;
    const name = KEYS[key];
    if (name !== undefined) card[name] = decimalOf(rate);
    else if (key === 'requests_kcount') {
      const perThousand = decimalOf(rate);
      card.request = { digits: perThousand.digits * THOUSAND, scale: perThousand.scale };
    }
  }
  return card;
}
