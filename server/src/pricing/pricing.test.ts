import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NO_TOKENS, type TokenUsage } from '../operations/usage.ts';
import { BEHAVIOURS } from '../providers/sandbox/model.ts';
import { costMicros } from './cost.ts';
import { decimalOf, scaled, times } from './decimal.ts';
import { loadLibrary } from './library.ts';
import { type Price, type PriceOverrides, priceOf } from './price.ts';
import { createPricer } from './pricer.ts';
import { compileTier, TOKEN_CLASSES } from './rates.ts';
import { SANDBOX_MODELS } from './sandbox.ts';

const AT = Date.UTC(2026, 6, 1, 12);
const usage = (classes: Partial<TokenUsage>): TokenUsage => ({ ...NO_TOKENS, ...classes });

function known(providerId: string, model: string, at = AT): Price {
  const price = priceOf(providerId, model, at);
  if (price === null) throw new Error(`no price for ${providerId} ${model}`);
  return price;
}

function overrides(
  pricing: Record<string, unknown> | null,
  multiplier: Record<string, unknown> | null,
): PriceOverrides {
  return {
    models: new Map([['my-model', { pricing }]]),
    pricingAdjustments: multiplier === null ? null : { multiplier },
  };
}

describe('published prices, by hand', () => {
  it('gpt-4o-mini: 0.15, 0.075 cached and 0.60 dollars a million', () => {
    // 1,000 - 200 = 800 × 0.15 + 200 × 0.075 + 500 × 0.60 = 120 + 15 + 300 micro-dollars.
    const cost = costMicros(known('openai', 'gpt-4o-mini'), usage({ input: 1000, cache_read: 200, output: 500 }));
    expect(cost).toEqual({ micros: 435, carry: 0, rates: { input: 0.15, output: 0.6, cache_read: 0.075 } });
  });

  it('reasoning tokens are part of the output and charged as output when they have no price of their own', () => {
    // gpt-5: 1.25 and 10 dollars: 1,000 × 1.25 + 1,000 × 10.
    const cost = costMicros(known('openai', 'gpt-5'), usage({ input: 1000, output: 1000, reasoning: 900 }));
    expect(cost.micros).toBe(11_250);
  });

  it('claude-sonnet-4-5: cache writes 3.75, reads 0.30 dollars a million', () => {
    // 100 × 3 + 2,000 × 3.75 + 10,000 × 0.30 + 50 × 15 = 300 + 7,500 + 3,000 + 750.
    const tokens = usage({ input: 12_100, cache_write: 2000, cache_read: 10_000, output: 50 });
    expect(costMicros(known('anthropic', 'claude-sonnet-4-5'), tokens).micros).toBe(11_550);
  });

  it('models of Bedrock, by their id, the profile of a region or of the world, and their ARNs', () => {
    // Profiles of a region cost a tenth more than that of the world: 3.30 and 3.00 dollars.
    const price = (model: string) => costMicros(known('bedrock', model), usage({ input: 1_000_000 })).micros;
    const claude = 'anthropic.claude-sonnet-4-5-20250929-v1:0';
    expect(price(`global.${claude}`)).toBe(3_000_000);
    for (const place of ['us.', 'eu.', 'apac.']) expect(price(place + claude)).toBe(3_300_000);
    const arn = 'arn:aws:bedrock:eu-central-1:123456789012:inference-profile';
    expect(price(`${arn}/eu.${claude}`)).toBe(3_300_000);
    for (const name of ['amazon.nova-pro-v1:0', 'us.amazon.nova-pro-v1:0']) expect(price(name)).toBe(800_000);
    expect(price('us.meta.llama3-3-70b-instruct-v1:0')).toBe(720_000);
  });

  it('gemini-2.5-pro costs more for the whole request past 200,000 input tokens, cached ones counted', () => {
    const price = known('google', 'gemini-2.5-pro');
    expect(price.tiers.map((tier) => tier.above)).toEqual([0, 200_000]);
    // 200,000 × 1.25 + 100 × 10; then 200,001 × 2.5 + 100 × 15; then 1 × 2.5 + 200,000 × 0.25.
    expect(costMicros(price, usage({ input: 200_000, output: 100 })).micros).toBe(251_000);
    const above = costMicros(price, usage({ input: 200_001, output: 100 }));
    expect(above).toMatchObject({ micros: 501_503, carry: -500_000, rates: { input: 2.5, output: 15 } });
    expect(costMicros(price, usage({ input: 200_001, cache_read: 200_000 })).micros).toBe(50_003);
  });

  it('audio is charged as audio', () => {
    // gpt-audio: text 2.50 and 10, audio 32 and 64 dollars a million:
    // 100 × 2.5 + 1,000 × 32 + 100 × 10 + 500 × 64 = 250 + 32,000 + 1,000 + 32,000.
    const price = known('openai', 'gpt-audio');
    const audio = usage({ input: 1100, audio_input: 1000, output: 600, audio_output: 500 });
    expect(costMicros(price, audio).micros).toBe(65_250);
  });

  it('prices follow dates and times of day', () => {
    expect(known('openai', 'o3', Date.UTC(2025, 5, 1)).rates).toMatchObject({ input: 10, output: 40 });
    expect(known('openai', 'o3', Date.UTC(2025, 5, 11)).rates).toMatchObject({ input: 2, output: 8 });
    const pricer = createPricer();
    const at = (hour: number, minute: number) =>
      pricer.price('deepseek', null, 'deepseek-reasoner', null, Date.UTC(2026, 0, 1, hour, minute))?.rates.input;
    expect([at(0, 29), at(0, 30), at(16, 29), at(16, 30), at(0, 29)]).toEqual([0.135, 0.55, 0.55, 0.135, 0.135]);
  });

  it('an unknown model, a model without token prices and a self-hosted provider have no price', () => {
    expect(priceOf('openai', 'no-such-model', AT)).toBeNull();
    expect(priceOf('openai', 'whisper-1', AT)).toBeNull();
    expect(priceOf('ollama', 'llama3', AT)).toBeNull();
    expect(priceOf('openai', '', AT)).toBeNull();
    expect(priceOf('openai', 'gpt-4o'.padEnd(5000, 'x'), AT)).toBeNull();
    // The library's own matching would take this for OpenAI.
    expect(priceOf('not-openai', 'gpt-4o', AT)).toBeNull();
  });

  it('every provider whose name differs from the library’s is found', () => {
    const models: Readonly<Record<string, string>> = {
      'azure-openai': 'gpt-4o',
      bedrock: 'anthropic.claude-3-haiku-20240307-v1:0',
      'mistral-ai': 'mistral-small-latest',
      'together-ai': 'meta-llama/Llama-3.3-70B-Instruct-Turbo',
      xai: 'grok-4',
      'vertex-ai': 'gemini-2.5-pro',
      voyage: 'voyage-3',
      moonshot: 'kimi-k2',
    };
    for (const [provider, model] of Object.entries(models))
      expect(priceOf(provider, model, AT), provider).not.toBeNull();
    expect(createPricer().modelsOf('fireworks-ai').length).toBeGreaterThan(5);
  });

  it('Google’s models cost the same by whatever name they are called', () => {
    const price = priceOf('google', 'gemini-2.5-pro', AT);
    expect(price).not.toBeNull();
    for (const prefix of ['google/', 'models/', 'publishers/google/models/'])
      for (const provider of ['google', 'vertex-ai'])
        expect(priceOf(provider, `${prefix}gemini-2.5-pro`, AT)).toEqual(price);
    const claude = priceOf('vertex-ai', 'claude-sonnet-4-5@20250929', AT);
    expect(claude).not.toBeNull();
    expect(priceOf('vertex-ai', 'anthropic/claude-sonnet-4-5@20250929', AT)).toEqual(claude);
  });

  it('agrees with the library’s own sums for all its token prices', async () => {
    const { calcPrice, waitForUpdate } = loadLibrary();
    const providers = (await waitForUpdate()) ?? [];
    let compared = 0;
    for (const provider of providers) {
      for (const { id } of provider.models) {
        const price = priceOf(provider.id, id, AT);
        if (price === null) continue;
        for (const input of [1000, 250_000, 300_000]) {
          const tokens = usage({ input, cache_read: 100, cache_write: 50, output: 700, reasoning: 200 });
          const theirs = calcPrice(
            {
              input_tokens: input,
              cache_read_tokens: 100,
              cache_write_tokens: 50,
              output_tokens: 700,
              output_reasoning_tokens: 200,
            },
            id,
            { providerId: provider.id, timestamp: new Date(AT) },
          );
          const { micros, carry } = costMicros(price, tokens);
          const mine = micros + carry / 1_000_000;
          expect(Math.abs(mine - (theirs?.total_price ?? 0) * 1_000_000), `${provider.id} ${id}`).toBeLessThan(0.001);
          compared += 1;
        }
      }
    }
    expect(compared).toBeGreaterThan(3000);
  });
});

describe('the sandbox', () => {
  it('costs 0.15 and 0.60 dollars a million, whatever the model', () => {
    const { micros } = costMicros(known('sandbox', 'error?status=429'), usage({ input: 1_000_000, output: 1_000_000 }));
    expect(micros).toBe(750_000);
    expect(createPricer().price('sandbox', 'echo', 'echo', null, AT)?.source).toBe('sandbox');
  });

  it('lists the models the provider has', () => {
    expect(SANDBOX_MODELS).toEqual(Object.keys(BEHAVIOURS));
  });
});

describe('custom prices and multipliers', () => {
  const pricer = createPricer();

  it('a custom model’s price in cents per token replaces the published one', () => {
    const custom = {
      type: 'static',
      pay_as_you_go: {
        request_token: { price: 0.00025 },
        response_token: { price: 0.001 },
        additional_units: { thinking_token: { price: 0.002 } },
      },
    };
    const price = pricer.price('openai', 'gpt-4o', 'My-Model', overrides(custom, null), AT);
    expect(price).toMatchObject({ source: 'custom', rates: { input: 2.5, output: 10, reasoning: 20 } });
    if (price === null) throw new Error('no price');
    // 1,000 × 2.5 + 100 × 10 + 50 × 20.
    expect(costMicros(price, usage({ input: 1000, output: 150, reasoning: 50 })).micros).toBe(4500);
  });

  it('a custom model without prices keeps the published one', () => {
    for (const empty of [
      {},
      { pay_as_you_go: {} },
      { pay_as_you_go: { request_token: {} } },
      { pay_as_you_go: { request_token: { price: -1 } } },
    ]) {
      expect(pricer.price('openai', 'gpt-4o', 'my-model', overrides(empty, null), AT)?.source).toBe(
        'genai-prices:openai/gpt-4o',
      );
    }
  });

  it('multipliers apply by token type, the default to the others', () => {
    const price = pricer.price(
      'openai',
      'gpt-4o-mini',
      'gpt-4o-mini',
      overrides(null, { default: 1.1, response_token: 2 }),
      AT,
    );
    expect(price).toMatchObject({
      source: 'genai-prices:openai/gpt-4o-mini+adjusted',
      rates: { input: 0.165, cache_read: 0.0825, output: 1.2 },
    });
    const reasoning = pricer.price('openai', 'gpt-4o-mini', 'gpt-4o-mini', overrides(null, { reasoning_token: 3 }), AT);
    expect(reasoning?.rates).toMatchObject({ output: 0.6, reasoning: 1.8 });
  });

  it('a class without a price of its own takes the multiplier of the class it is charged as', () => {
    const custom = { pay_as_you_go: { request_token: { price: 0.0001 } } };
    const price = pricer.price('openai', null, 'my-model', overrides(custom, { default: 3, request_token: 2 }), AT);
    if (price === null) throw new Error('no price');
    expect(costMicros(price, usage({ input: 1000, cache_read: 500 })).micros).toBe(2000);
  });

  it('a multiplier of 0 makes a known price of 0', () => {
    const price = pricer.price('openai', null, 'gpt-4o', overrides(null, { default: 0 }), AT);
    if (price === null) throw new Error('no price');
    expect(costMicros(price, usage({ input: 1000, output: 5 })).micros).toBe(0);
  });

  it('multipliers that say nothing change nothing', () => {
    for (const nothing of [{}, { default: null }, { default: 'x' }]) {
      expect(pricer.price('openai', null, 'gpt-4o', overrides(null, nothing), AT)?.source).toBe(
        'genai-prices:openai/gpt-4o',
      );
    }
  });

  it('each set of overrides has prices of its own', () => {
    const twice = overrides(null, { default: 2 });
    const rate = (given: PriceOverrides | null) => pricer.price('openai', null, 'gpt-4o', given, AT)?.rates.input;
    expect([rate(null), rate(twice), rate(null), rate(twice)]).toEqual([2.5, 5, 2.5, 5]);
  });

  it('the model that answered is priced before the one that was asked for', () => {
    expect(pricer.price('openai', 'gpt-4o-2024-08-06', 'my-alias', null, AT)?.source).toBe(
      'genai-prices:openai/gpt-4o',
    );
    expect(pricer.price('openai', 'something-else', 'gpt-4o', null, AT)?.source).toBe('genai-prices:openai/gpt-4o');
    expect(pricer.price('openai', null, 'gpt-4o', null, AT)?.source).toBe('genai-prices:openai/gpt-4o');
  });
});

describe('sums', () => {
  it('are exact: micros and carry add up to the decimal truth', () => {
    // 0.075 dollars a million × 1 token = 75,000 picodollars; 0.15 × 10 = 1.5 micro-dollars, rounded up.
    const price = known('openai', 'gpt-4o-mini');
    expect(costMicros(price, usage({ input: 1, cache_read: 1 }))).toMatchObject({ micros: 0, carry: 75_000 });
    expect(costMicros(price, usage({ input: 10 }))).toMatchObject({ micros: 2, carry: -500_000 });
    let micros = 0;
    let carry = 0;
    for (let i = 0; i < 1000; i++) {
      const cost = costMicros(price, usage({ input: 10 }));
      micros += cost.micros;
      carry += cost.carry;
    }
    expect(micros + carry / 1_000_000).toBe(1500);
  });

  it('never charge a token twice, and never less than nothing, whatever the usage says', () => {
    const rate = fc.integer({ min: 0, max: 1_000_000 }).map((digits) => ({ digits: BigInt(digits), scale: 4 }));
    const count = fc.nat(2_000_000);
    const tokens = fc.record({
      input: count,
      output: count,
      cache_read: count,
      cache_write: count,
      reasoning: count,
      audio_input: count,
      audio_output: count,
    });
    fc.assert(
      fc.property(fc.record(Object.fromEntries(TOKEN_CLASSES.map((name) => [name, rate]))), tokens, (card, used) => {
        const tier = compileTier(card, 0);
        const { micros, carry } = costMicros({ source: 'x', rates: {}, tiers: [tier] }, used);
        const highest = Math.max(...Object.values(tier.rates));
        expect(micros).toBeGreaterThanOrEqual(0);
        expect(micros + carry / 1e6).toBeLessThanOrEqual((used.input + used.output) * highest + 1e-6);
        expect(Math.abs(carry)).toBeLessThanOrEqual(500_000);
      }),
    );
  });

  it('decimals are read as written', () => {
    expect(decimalOf(0.00025)).toEqual({ digits: 25n, scale: 5 });
    expect(decimalOf(1e-7)).toEqual({ digits: 1n, scale: 7 });
    expect(decimalOf(1.5e21)).toEqual({ digits: 15n * 10n ** 20n, scale: 0 });
    expect(decimalOf(0)).toEqual({ digits: 0n, scale: 0 });
    expect(() => decimalOf(Number.NaN)).toThrow(RangeError);
    expect(() => decimalOf(-1)).toThrow(RangeError);
    expect(scaled(times(decimalOf(0.1), decimalOf(0.2)), 2)).toBe(2n);
    expect(scaled({ digits: 15n, scale: 1 }, 0)).toBe(2n);
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1e12, noNaN: true }), (value) => {
        const { digits, scale } = decimalOf(value);
        expect(Number(`${digits}e-${scale}`)).toBe(value);
      }),
    );
  });

  it('a remembered price and its cost take microseconds', () => {
    const pricer = createPricer();
    const used = usage({ input: 1234, cache_read: 100, output: 567, reasoning: 50 });
    const run = (): number => {
      const started = process.hrtime.bigint();
      for (let i = 0; i < 1_000; i++) {
        const price = pricer.price('openai', 'gpt-4o-mini-2024-07-18', 'gpt-4o-mini', null, AT);
        if (price === null) throw new Error('no price');
        costMicros(price, used);
      }
      return Number(process.hrtime.bigint() - started) / 1_000 / 1000;
    };
    // The best of many short runs: one of them is not interrupted, also on a busy machine.
    expect(Math.min(...Array.from({ length: 60 }, run))).toBeLessThan(4);
  });
});
