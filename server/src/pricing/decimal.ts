/** Exact decimal numbers: prices are written in decimals, and no binary fraction may come near a sum of money. */
export interface Decimal {
  readonly digits: bigint;
  /** Digits after the point. */
  readonly scale: number;
}

/** The decimal a number was written as: its shortest form, which is what JSON and source code said. */
export function decimalOf(value: number): Decimal {
  const match = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value));
  if (match === null) throw new RangeError(`${value} is no price`);
  const fraction = match[2] ?? '';
  const digits = BigInt((match[1] ?? '') + fraction);
  const scale = fraction.length - Number(match[3] ?? 0);
  return scale >= 0 ? { digits, scale } : { digits: digits * 10n ** BigInt(-scale), scale: 0 };
}

export function times(a: Decimal, b: Decimal): Decimal {
  return { digits: a.digits * b.digits, scale: a.scale + b.scale };
}

/** `value` × 10^`power` as a whole number, halves rounded up. */
export function scaled(value: Decimal, power: number): bigint {
  const shift = power - value.scale;
  return shift >= 0 ? value.digits * 10n ** BigInt(shift) : divideHalfUp(value.digits, 10n ** BigInt(-shift));
}

/** Quotient of two numbers that are not negative, halves rounded up. */
export function divideHalfUp(value: bigint, by: bigint): bigint {
  return (value * 2n + by) / (by * 2n);
}

/** For the record only; sums are never made of it. */
export function toNumber(value: Decimal): number {
  return Number(`${value.digits}e-${value.scale}`);
}
