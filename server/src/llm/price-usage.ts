/** What attempts used, priced: each at the price of the target that made it. */

import type { ActualUse } from '../limits/ledger/held-reservation.ts';
import type { LimitSpec } from '../limits/ledger/limit-spec.ts';
import { type TokenUsage, totalUsage, wholeUsage } from '../operations/usage.ts';
import { type Cost, costMicros, sumOfCosts } from '../pricing/cost.ts';
import type { Price } from '../pricing/price.ts';
import { setPrice } from '../pricing/set-price.ts';
import type { Uses } from './exchange.ts';
import { modelUnder } from './shaping.ts';
import type { Spent } from './state/outcome.ts';

type Part = Omit<Spent, 'target'> & { readonly target: Spent['target'] | null };

const NOTHING: readonly Part[] = [];

/** One for each attempt that used anything, each made of whole numbers. */
export function partsOf({
  outcome,
  attempt: { target },
  request,
}: Uses<'attempt' | 'outcome' | 'request'>): readonly Part[] {
  const {
    spent,
    answer: { usage, modelAnswered },
  } = outcome;
  if (usage === null) return spent === null ? NOTHING : spent.map(whole);
  const asked = modelUnder(target?.shaping ?? null, outcome.asked(request));
  const last = whole({ usage, target, model: asked, answered: modelAnswered });
  return spent === null ? [last] : [...spent.map(whole), last];
}

function whole(part: Part): Part {
  const usage = wholeUsage(part.usage);
  return usage === part.usage ? part : { ...part, usage };
}

/** What limits count, and what it cost. */
export interface PricedUsage {
  /** Of all parts; null without any. */
  readonly usage: TokenUsage | null;
  /** A limit that sets a price for models without one is charged by it: `chargeAt`. */
  readonly used: ActualUse;
  /** Of all parts; null where nothing was used, or the price of one part is not known. */
  readonly cost: Cost | null;
  /** The last price that is known, for the record. */
  readonly price: Price | null;
  /** What a limit that sets prices is charged; null where it sets none, or every price is known. */
  chargeAt(spec: LimitSpec): { readonly cost: Cost; readonly price: Price } | null;
}

/**
 * @param accepted whether anything was called, or begun
 * @param answered whether there is an answer that the caller gets
 */
export function priceUsage(
  x: Uses<'outcome' | 'request', 'pricer' | 'unpriced'>,
  parts: readonly Part[],
  accepted: boolean,
  answered: boolean,
): PricedUsage {
  const known: Cost[] = [];
  const unknown: TokenUsage[] = [];
  let price: Price | null = null;
  for (const part of parts) {
    const found = priceOf(x, part);
    price = found ?? price;
    if (found === null) unknown.push(part.usage);
    // The last one first: the record shows its rates.
    else known.unshift(costMicros(found, part.usage));
  }
  const usage = parts.length > 1 ? totalUsage(parts.map((part) => part.usage)) : (parts[0]?.usage ?? null);
  const sum = sumOf(known);
  const free = x.request.operation.free && !x.outcome.uncounted;
  const lacking = usage === null ? answered && x.outcome.costMicros === null : unknown.length > 0;
  const unpriced = accepted && lacking && !free;
  return {
    usage,
    used: {
      cost: sum?.micros ?? 0,
      carry: sum?.carry ?? 0,
      tokens: usage === null ? 0 : usage.input + usage.output,
      requests: accepted ? 1 : 0,
      unpriced: unpriced ? 1 : 0,
    },
    cost: unknown.length > 0 ? null : sum,
    price,
    chargeAt(spec) {
      const set = unpriced && usage !== null ? unpricedRate(x, spec) : null;
      const cost = set === null ? null : sumOf([...unknown.map((one) => costMicros(set, one)), ...known]);
      return set === null || cost === null ? null : { cost, price: set };
    },
  };
}

function sumOf([first, ...rest]: readonly Cost[]): Cost | null {
  return first === undefined ? null : sumOfCosts(first, rest);
}

function priceOf(x: Uses<'request', 'pricer'>, { target, model, answered }: Part): Price | null {
  return target === null
    ? null
    : x.services.pricer.price(target.provider.id, answered ?? target.priced, model, target.stored, x.request.time);
}

/** The price that a limit, or else the installation, sets for models whose price is not known; null where it serves them unpriced. */
export function unpricedRate(x: Uses<never, 'unpriced'>, spec: LimitSpec): Price | null {
  const rule = spec.unpriced ?? x.services.unpriced;
  return typeof rule === 'object' ? setPrice(rule) : null;
}

/** The use as a limit gets it. */
export function usedUnder({ used, chargeAt }: PricedUsage): ActualUse {
  if (used.unpriced === 0) return used;
  return {
    ...used,
    charge(spec) {
      const set = chargeAt(spec);
      return set === null ? used : { cost: set.cost.micros, carry: set.cost.carry, unpriced: 0 };
    },
  };
}
