import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { holdsQuoted } from './quoted-texts.ts';

describe('texts in quotes', () => {
  it('are found exactly where one of them stands', () => {
    const letters = fc.string({ unit: fc.constantFrom('"', '_', 'a', 'n', 'é'), maxLength: 6 });
    const texts = fc.array(
      letters.map((name) => `"a${name}`),
      { maxLength: 4 },
    );
    fc.assert(
      fc.property(
        texts,
        fc.array(fc.oneof(letters, fc.constantFrom('"a', '"aa"', '"an"')), { maxLength: 6 }),
        (list, parts) => {
          const all = parts.join('');
          expect(holdsQuoted(Buffer.from(all), list)).toBe(list.some((text) => all.includes(text)));
        },
      ),
      { numRuns: 3000 },
    );
  });

  it('are found at either end, whole, and in their own spelling', () => {
    const texts = ['"developer"', '"max_completion_tokens"', '"n"'];
    expect(holdsQuoted(Buffer.from('"developer"'), texts)).toBe(true);
    expect(holdsQuoted(Buffer.from('{"a":1,"n"'), texts)).toBe(true);
    expect(holdsQuoted(Buffer.from('"develope'), texts)).toBe(false);
    expect(holdsQuoted(Buffer.from('"Developer" "my_max_completion_tokens" "nn"'), texts)).toBe(false);
    expect(holdsQuoted(Buffer.alloc(0), texts)).toBe(false);
    expect(holdsQuoted(Buffer.from('"n"'), [])).toBe(false);
  });

  it('cannot begin with anything else', () => {
    expect(() => holdsQuoted(Buffer.alloc(1), ['name"'])).toThrow('quote');
  });
});
