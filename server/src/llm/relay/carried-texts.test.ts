import { describe, expect, it } from 'vitest';
import { CarriedTexts } from './carried-texts.ts';

const MB = 1024 * 1024;
const picture = (bytes: number, from = 0): string =>
  'ABCDwxyz0189+/='.repeat(bytes / 15 + 2).slice(from % 15, (from % 15) + bytes);
const carried = (text: string, keeps = false) => {
  const texts = new CarriedTexts(keeps);
  const taken = texts.takeFrom(Buffer.from(text)).toString();
  return { texts, taken };
};
const back = (texts: CarriedTexts, text: string) => (texts.putBack(text) ?? Buffer.from(text)).toString();

describe('a long text of data', () => {
  it.each([65_536, 66_047, 66_048, 66_049, 66_050, 66_051, 100_003, MB])(
    'of %i bytes comes back as it was',
    (bytes) => {
      const event = {
        a: { data: picture(bytes), kind: 'x' },
        z: [{ url: `data:image/png;base64,${picture(bytes, 3)}` }],
      };
      for (let shift = 0; shift < 4; shift++) {
        const text = ' '.repeat(shift) + JSON.stringify(event);
        const { texts, taken } = carried(text);
        expect(taken.length < 4_000).toBe(bytes >= 66_048);
        expect(back(texts, taken) === text).toBe(true);
        // A conversion reads it, and writes it elsewhere, or as JSON in a text.
        const read = JSON.parse(taken) as typeof event;
        expect(read.z[0]?.url.startsWith('data:image/png;base64,')).toBe(true);
        const made = JSON.stringify({ b: read.z[0]?.url, c: read.a.data, nested: JSON.stringify(read.a) });
        const wanted = JSON.stringify({ b: event.z[0]?.url, c: event.a.data, nested: JSON.stringify(event.a) });
        expect(back(texts, made) === wanted).toBe(true);
      }
    },
  );

  it.each([
    ['with an escape', `{"data":"${picture(MB)}\\n"}`],
    ['with an escaped quote', `{"data":"${picture(MB)}\\"${picture(MB)}"}`],
    ['with a space', `{"data":"${picture(MB)} ${picture(MB)}"}`],
    ['with a control character', `{"data":"${picture(MB)}\u0001${picture(MB)}"}`],
    ['of another script', `{"data":"${picture(MB)}é${picture(MB)}"}`],
    ['of words', `{"content":"${picture(MB)}"}`],
    ['in a list', `["${picture(MB)}"]`],
    ['without an end', `{"data":"${picture(MB)}`],
  ])('is read where it is one %s', (_what, text) => {
    expect(carried(text).taken === text).toBe(true);
  });

  it('is found behind texts with escapes, but not behind thousands of quotes', () => {
    const data = `"data":"${picture(MB)}"`;
    expect(carried(`{"a":"\\"\\\\","b":"\\\\",${data}}`).taken.length).toBeLessThan(1_000);
    expect(carried(`{${'"a":"",'.repeat(2_500)}${data}}`).taken.length).toBeGreaterThan(MB);
    expect(carried(`{"a":"${'\\"'.repeat(9_000)}",${data}}`).taken.length).toBeGreaterThan(MB);
  });
});

describe('what was taken', () => {
  const event = (n: number) => JSON.stringify({ data: picture(MB, n) });

  it('can be put back at the end of a stream that repeats it, up to 16 MiB', () => {
    const { texts, taken } = carried(event(0), true);
    const memory = Buffer.from(event(1));
    const second = texts.takeFrom(memory).toString();
    memory.fill(0);
    expect(back(texts, `${second}${taken}`) === event(1) + event(0)).toBe(true);
    expect(() => {
      for (let i = 0; i < 16; i++) texts.takeFrom(Buffer.from(event(i)));
    }).toThrow('too large');
  });

  it('is let go with the next event of a stream that does not', () => {
    const { texts, taken } = carried(event(0));
    for (let i = 1; i < 40; i++) {
      const next = texts.takeFrom(Buffer.from(event(i))).toString();
      expect(back(texts, next) === event(i)).toBe(true);
    }
    expect(() => texts.putBack(taken)).toThrow('too large');
  });
});
