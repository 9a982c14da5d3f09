import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { itemsOfList, NoListError } from './json-list.ts';
import { atOnce } from './turns.ts';

function split(text: string, most = 1_000): string[] {
  const body = Buffer.from(text);
  return atOnce(itemsOfList(body, most)).map(({ start, end }) => body.subarray(start, end).toString());
}

describe('the items of a JSON list of objects', () => {
  it('are the texts of the objects, whatever stands in them and between them', () => {
    const item = fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue(), { maxKeys: 4 });
    const space = fc.stringMatching(/^[ \n\r\t]{0,3}$/);
    fc.assert(
      fc.property(fc.array(item, { maxLength: 5 }), space, (items, blank) => {
        const texts = items.map((one) => JSON.stringify(one));
        const list = `${blank}[${blank}${texts.join(`${blank},${blank}`)}${blank}]${blank}`;
        expect(split(list)).toEqual(texts);
      }),
    );
  });

  it.each([
    ['{}', 0],
    ['', 0],
    ['[', 1],
    ['[1]', 1],
    ['[{}', 3],
    ['[{},]', 4],
    ['[{} {}]', 4],
    ['[{}]]', 4],
    ['[{"a":"]}', 9],
    ['[{"a":[}', 8],
  ])('%s is none', (text, offset) => {
    expect(() => split(text)).toThrow(NoListError);
    try {
      split(text);
    } catch (error) {
      expect((error as NoListError).offset).toBe(offset);
    }
  });

  it('are found up to one more than are wanted', () => {
    expect(split('[{"a":1},{"b":2},{"c":3},', 1)).toEqual(['{"a":1}', '{"b":2}']);
  });
});
