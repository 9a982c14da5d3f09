/** Reading members of a body whose values may be of any type: each says by name what it wants. */
import { type Problem, SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { quoted } from '../operations/convert/fields.ts';

const INT32_MAX = 2_147_483_647;
const MAX_TEXT = 4096;

/** 400 `AB01` with the path of the member at fault. */
export function invalid(param: string, message: string): SluiceError {
  return new SluiceError('validation', message, { param });
}

/**
 * Reads the members of a body one after the other and keeps what is wrong with each, so that a caller learns all of it at
 * once. Readers within readers add theirs.
 */
export class Faults {
  readonly #problems: Problem[] = [];

  /** What `read` gives, or `otherwise` when it refuses the value; `done` throws before anybody sees that. */
  read<T, F>(read: () => T, otherwise: F): T | F {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof SluiceError) || error.kind !== 'validation') throw error;
      this.#problems.push(...(error.problems ?? [{ param: error.param, message: error.message }]));
      return otherwise;
    }
  }

  /** Throws 400 `AB01` with all problems, the first one as the message; returns when there are none. */
  done(): void {
    const [first, ...more] = this.#problems;
    if (first === undefined) return;
    if (more.length === 0) throw new SluiceError('validation', first.message, { param: first.param });
    const names = more.map(({ param }) => param).join(', ');
    throw new SluiceError(
      'validation',
      `${first.message} (${more.length} more problem${more.length === 1 ? '' : 's'}: ${names})`,
      { param: first.param, problems: this.#problems },
    );
  }
}

const wanted = (param: string, what: string, value: JsonValue | undefined) =>
  invalid(
    param,
    value === undefined ? `${param} is required: ${what}.` : `${param} must be ${what}; got ${quoted(value)}.`,
  );

/** A text of at least one character. */
export function text(value: JsonValue | undefined, param: string, what = 'a text'): string {
  if (typeof value !== 'string' || value === '') throw wanted(param, what, value);
  if (value.length > MAX_TEXT) throw invalid(param, `${param} must have at most ${MAX_TEXT} characters.`);
  checkText(value, param);
  return value;
}

/** The same; null when absent or null. */
export function optionalText(value: JsonValue | undefined, param: string): string | null {
  return value === undefined || value === null ? null : text(value, param);
}

/** Stores refuse U+0000, and a lone surrogate would silently become another character. */
function checkText(value: string, param: string): void {
  if (value.includes('\u0000') || !value.isWellFormed()) {
    throw invalid(param, `${param} must not contain U+0000 or half of a surrogate pair.`);
  }
}

export function object(value: JsonValue | undefined, param: string): JsonObject {
  if (!isObject(value)) throw wanted(param, 'an object', value);
  return value;
}

/** Whole number from `min` to the largest int32. */
export function int32(value: JsonValue | undefined, param: string, min: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > INT32_MAX) {
    throw wanted(param, `a whole number from ${min} to ${INT32_MAX}`, value);
  }
  return value;
}

/** Number above 0 that a 32-bit float can hold. */
export function positiveFloat(value: JsonValue | undefined, param: string): number {
  if (typeof value !== 'number' || !(value > 0) || !Number.isFinite(Math.fround(value)) || Math.fround(value) === 0) {
    throw wanted(param, 'a number above 0 that a 32-bit float can hold', value);
  }
  return value;
}

export function oneOf<T extends string>(value: JsonValue | undefined, param: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value);
  if (found === undefined) throw wanted(param, `one of ${allowed.join(', ')}`, value);
  return found;
}

/** Up to 16 pairs of texts, names of at most 64 and values of at most 512 characters; null when absent or null. */
export function metadata(value: JsonValue | undefined): Record<string, string> | null {
  if (value === undefined || value === null) return null;
  const given = Object.entries(object(value, 'metadata'));
  if (given.length > 16) throw invalid('metadata', `metadata must have at most 16 pairs; got ${given.length}.`);
  const out: Record<string, string> = {};
  const faults = new Faults();
  for (const [name, entry] of given) {
    const param = `metadata.${name.slice(0, 64)}`;
    const value = faults.read(() => {
      if (name === '' || name.length > 64) throw invalid(param, 'A name in metadata must have 1 to 64 characters.');
      if (typeof entry !== 'string') throw wanted(param, 'a text', entry);
      if (entry.length > 512) throw invalid(param, `${param} must have at most 512 characters.`);
      checkText(name, 'metadata');
      checkText(entry, param);
      return entry;
    }, '');
    Object.defineProperty(out, name, { value, enumerable: true, configurable: true, writable: true });
  }
  faults.done();
  return out;
}
