import fc from 'fast-check';
import phones from 'google-libphonenumber';
import { describe, expect, it } from 'vitest';
import { IMPERSONAL, NO_SECRETS, PERSONAL, SECRETS } from '../../test/guardrail-sets/personal.ts';
import { PII_DETECTORS, phone } from './checks/pii.ts';
import { SECRET_DETECTORS } from './checks/secrets.ts';
import type { Detector } from './detect.ts';
import { TOKEN, type Traits, traitsOf } from './traits.ts';

const DETECTORS: readonly Detector[] = [...PII_DETECTORS, phone(phones), ...SECRET_DETECTORS];

function end<T>(steps: Generator<number, T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}
const traits = (text: string): Traits => end(traitsOf(text));

/** Kinds that are in the text and that their traits would have passed over. */
function missed(text: string): string[] {
  const seen = traits(text);
  return DETECTORS.filter((detector) => end(detector.find(text)).length > 0 && !detector.mayHave(seen, text)).map(
    ({ kind }) => kind,
  );
}

describe('a detector that is passed over would have found nothing', () => {
  const things = [...PERSONAL, ...SECRETS].flatMap(([, texts]) => texts);
  const others = [...IMPERSONAL, ...NO_SECRETS];

  it('in the texts of the sets, whatever stands around them', () => {
    const wrong: string[] = [];
    for (const text of [...things, ...others])
      for (const around of [
        text,
        `ä${text}é`,
        ` ${text} `,
        `"${text}"`,
        `\n${text}\n`,
        text.toUpperCase(),
        text.toLowerCase(),
      ])
        for (const kind of missed(around)) wrong.push(`${kind}: ${around}`);
    expect(wrong).toEqual([]);
  });

  it('in texts of the sets that are changed a little', () => {
    const change = fc.tuple(
      fc.nat(),
      fc.constantFrom('', ' ', '  ', '-', '.', ':', '0', '7', 'A', 'x', 'ſ', '\u212a', 'é', '𝐀', '’', '_', '\n', '@'),
      fc.nat(2),
    );
    let found = 0;
    fc.assert(
      fc.property(fc.constantFrom(...things), fc.array(change, { maxLength: 3 }), (thing, changes) => {
        let text = thing;
        for (const [at, put, less] of changes) {
          const place = at % (text.length + 1);
          text = text.slice(0, place) + put + text.slice(place + less);
        }
        if (DETECTORS.some((detector) => end(detector.find(text)).length > 0)) found += 1;
        expect(missed(text), text).toEqual([]);
      }),
      { numRuns: 3_000 },
    );
    // Most changes leave the thing what it was.
    expect(found).toBeGreaterThan(1_000);
  });

  it('in texts that are put together from what traits look at', () => {
    const pieces = fc.constantFrom(
      ' ',
      '  ',
      '-',
      '.',
      ':',
      ',',
      '(',
      ')',
      '+',
      '/',
      '@',
      '://',
      '0',
      '1',
      '2',
      '4',
      '25',
      '4111',
      '1111',
      '192',
      '10',
      '::',
      'fe80',
      'A',
      'B',
      'Z',
      'a',
      'é',
      'ß',
      'É',
      '漢',
      'DE',
      'de',
      'Mr',
      'Mr.',
      'Dear',
      'Name:',
      'my name’s',
      'ich heiße',
      'Anna',
      'O’Neil',
      'Main',
      'Street',
      'St',
      'Haupt',
      'straße',
      'str.',
      'rue',
      ' de la ',
      'Paix',
      'P.O. Box',
      'Calle',
      'N ',
      'AKIA',
      'ghp_',
      'sk-',
      'eyJhbGciOiJSUzI1NiJ9',
      '.eyJ',
      'password=',
      'token ',
      'Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8',
      'a1b2c3d4e5f6a7b8c9d0',
      '-----BEGIN ',
      'PRIVATE KEY',
      '-----',
      'postgres://',
      'u:hunter22@db',
      '0x',
      'tel ',
    );
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 14 }), (parts) => {
        expect(missed(parts.join('')), parts.join('')).toEqual([]);
      }),
      { numRuns: 5_000 },
    );
  });

  it('in long texts, wherever the thing stands', () => {
    const filler = 'word '.repeat(8_000);
    for (const thing of things)
      for (const at of [31_995, 34_040]) {
        const text = `${filler.slice(0, at)} ${thing} ${filler.slice(at)}`;
        expect(missed(text), `${thing} at ${at}`).toEqual([]);
      }
  });
});

it('most detectors are passed over in ordinary prose', () => {
  const prose =
    'In Q3 2025 our revenue grew by 12.5% to 4.2 million, while costs fell. Please write 5 points about the token budget: which results matter, why customers (e.g. Acme Corp.) left, and what we can do in the next 90 days.';
  const seen = traits(prose);
  expect(seen).toMatchObject({ at: false, ip: false, iban: false, rule: false, tokens: '' });
  expect(seen.digits).toBeLessThan(6);
  expect(seen.longest).toBeLessThan(TOKEN);
  expect(DETECTORS.filter((detector) => detector.mayHave(seen, prose)).length).toBeLessThan(3);
});
