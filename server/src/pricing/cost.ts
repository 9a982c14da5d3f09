import type { TokenUsage } from '../operations/usage.ts';
import { divideHalfUp } from './decimal.ts';
import type { Price } from './price.ts';
import type { Tier } from './rates.ts';

export interface Cost {
  /** Integer micro-dollars, halves rounded up. */
  readonly micros: number;
  /**
   * What rounding left out, in picodollars (10⁻¹² dollars), from -500,000 to 500,000: the exact cost is
   * `micros × 10⁶ + carry` picodollars. A sum that must not drift adds up both.
   */
  readonly carry: number;
  /** Dollars per million units of the tier that was applied, for the record. */
  readonly rates: Readonly<Record<string, number>>;
}

const PICO = 1_000_000n;
const ATTO_PER_MICRO = PICO * PICO;

function tierFor(price: Price, input: number): Tier {
  const { tiers } = price;
  let chosen = tiers[0];
  for (let i = 1; i < tiers.length; i++) {
    const tier = tiers[i];
    if (tier !== undefined && input > tier.above) chosen = tier;
  }
  return chosen;
}

/**
 * What one answered request costs. All sums are whole numbers of attodollars; they are rounded once to picodollars and
 * once to micro-dollars, halves up. Input is charged as cache reads, cache writes, audio and the rest; output as
 * reasoning, audio and the rest. Classes that together claim more than their total are cut to it in that order, so
 * that no token is charged twice.
 */
export function costMicros(price: Price, usage: TokenUsage): Cost {
  const { units, request, rates } = tierFor(price, usage.input);
  let sum = request;
  let left = usage.input;
  for (const name of ['cache_read', 'cache_write', 'audio_input'] as const) {
    const count = Math.min(usage[name], left);
    if (count <= 0) continue;
    left -= count;
    sum += BigInt(count) * units[name];
  }
  if (left > 0) sum += BigInt(left) * units.input;
  left = usage.output;
  for (const name of ['reasoning', 'audio_output'] as const) {
    const count = Math.min(usage[name], left);
    if (count <= 0) continue;
    left -= count;
    sum += BigInt(count) * units[name];
  }
  if (left > 0) sum += BigInt(left) * units.output;
  const picos = divideHalfUp(sum, PICO);
  const micros = divideHalfUp(picos, PICO);
  // No real price comes near; an absurd one must not wrap around or lose digits unseen.
  if (micros > BigInt(Number.MAX_SAFE_INTEGER)) return { micros: Number.MAX_SAFE_INTEGER, carry: 0, rates };
  return { micros: Number(micros), carry: Number(picos - micros * PICO), rates };
}

/** Several costs as one, with nothing lost to rounding. */
export function sumOfCosts(first: Cost, rest: readonly Cost[]): Cost {
  if (rest.length === 0) return first;
  let { micros, carry } = first;
  for (const cost of rest) {
    micros += cost.micros;
    carry += cost.carry;
  }
  const whole = Math.round(carry / Number(PICO));
  return {
    micros: Math.min(Number.MAX_SAFE_INTEGER, micros + whole),
    carry: carry - whole * Number(PICO),
    rates: first.rates,
  };
}

/** The most that so many tokens can cost, of whatever class but sound and at whatever context length up to `input`. */
export function mostMicros(price: Price, input: number, output: number): number {
  let most = 0n;
  for (const { above, units, request } of price.tiers) {
    if (above > 0 && input <= above) continue;
    const sum =
      request +
      BigInt(input) * largest(units.input, units.cache_read, units.cache_write) +
      BigInt(output) * largest(units.output, units.reasoning);
    most = largest(most, sum);
  }
  const micros = (most + ATTO_PER_MICRO - 1n) / ATTO_PER_MICRO;
  return micros > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(micros);
}

function largest(first: bigint, ...rest: readonly bigint[]): bigint {
  let most = first;
  for (const value of rest) if (value > most) most = value;
  return most;
}
