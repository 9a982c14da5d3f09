import { inspect } from 'node:util';

const MASK = '***';

/**
 * A value that must not leak by accident: every printing path (template string, JSON, inspect, concatenation) shows
 * `***`. `reveal()` is the one way in; grep for it to review every use.
 */
export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  reveal(): string {
    return this.#value;
  }

  toString(): string {
    return MASK;
  }

  toJSON(): string {
    return MASK;
  }

  [Symbol.toPrimitive](): string {
    return MASK;
  }

  [inspect.custom](): string {
    return MASK;
  }
}
