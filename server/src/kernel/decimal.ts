const DECIMAL = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?$/;

/** A number as it is, or the one that a text says in decimals, white space around it left out; NaN for anything else. */
export function decimalOf(value: unknown): number {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string') return Number.NaN;
  const text = value.trim();
  return DECIMAL.test(text) ? Number(text) : Number.NaN;
}
