import { decimalOf } from './decimal.ts';
import { compilePrice, type Price } from './price.ts';

/** Dollars per million tokens, as an operator set them for models whose price is not known. */
export interface SetRates {
  readonly input: number;
  readonly output: number;
}

const made = new WeakMap<SetRates, Price | null>();

/** Made once for each rule. Null for rates that are no price. */
export function setPrice(rates: SetRates): Price | null {
  let price = made.get(rates);
  if (price === undefined) {
    const { input, output } = rates;
    const valid = [input, output].every((rate) => Number.isFinite(rate) && rate >= 0);
    const card = valid ? { input: decimalOf(input), output: decimalOf(output) } : {};
    price = compilePrice({ source: 'usage-limit', cards: [{ above: 0, card }] });
    made.set(rates, price);
  }
  return price;
}
