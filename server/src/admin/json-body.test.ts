import { describe, expect, it } from 'vitest';
import { cpu } from '../../test/support/cost.ts';
import { rateLimits, secretMappings } from '../resources/body-fields.ts';
import { levelSchema } from '../resources/configs/structure.ts';
import { parseJsonBodies, parseJsonObject } from './json-body.ts';

const timed = (run: () => unknown) => {
  const started = cpu();
  run();
  return cpu() - started;
};

describe('numbers', () => {
  const parse = (number: string) => parseJsonObject(Buffer.from(`{"a":{"b":[${number}]}}`));

  it.each(['1000000000000.000001', '9007199254740993', '1e-400', '-0.99999999999999999', '123456789012345678901234'])(
    '%s would be kept as another whole number and is refused',
    (number) => {
      expect(() => parse(number)).toThrow(/has more digits than can be kept/);
    },
  );

  it.each([
    '1',
    '1.0',
    '100e-2',
    '1e3',
    '1e23',
    '-0',
    '0.000',
    '9007199254740992',
    '0.1',
    '0.30000000000000004',
    '1000000000000.00',
    '0.10000000000000000555',
  ])('%s is taken', (number) => {
    expect(parse(number)).toEqual({ a: { b: [Number(number)] } });
  });

  const body = (text: string) => parseJsonObject(Buffer.from(text));
  const TEXTS = [
    '018f3c5e-7b1a-7000-8000-000000000001',
    '12345678-1234-1234-1234-123456789012',
    '9007199254740993',
    ':9007199254740993,',
    '[9007199254740993]',
    'a \\":9007199254740993',
    'a \\\\',
    '\\\\\\",1e-400,\\"',
    '1e99',
    ' -0.99999999999999999',
  ];

  it.each(TEXTS)('the text %s is no number, and hides none that follows or comes before', (written) => {
    const text = JSON.parse(`"${written}"`) as string;
    expect(body(`{"a":"${written}","${written}":["${written}"]}`)).toEqual({ a: text, [text]: [text] });
    for (const list of [`"${written}",9007199254740993`, `9007199254740993,"${written}"`])
      expect(() => body(`{"x":{"list":[${list}]}}`)).toThrow(/^x\.list\[[01]\] has more digits than can be kept/);
  });

  it.each([
    ['{"a":1,"b":9007199254740993}', 'b'],
    ['{"a":{"b c":9007199254740993}}', null],
    ['{"a":[1,{"b":[2,1e-400]}]}', 'a[1].b[1]'],
    ['{"a" : [ 1 ,\n 9007199254740993 ]}', 'a[1]'],
  ])('the number at fault in %s is named by its path', (text, param) => {
    expect(() => body(text)).toThrow(expect.objectContaining({ param }));
  });

  it('are looked at once each, where a body has nothing else', () => {
    const list = Array(7_000).fill('9007199254740992').join();
    const best = (text: string) => Math.min(...Array.from({ length: 5 }, () => timed(() => body(text))));
    const spaces = ' '.repeat(900_000);
    expect(best(`{"a":[${list}]${spaces}}`)).toBeLessThan(2 * best(`{"a":[${list}],"b":""${spaces}}`) + 10);
  });
});

describe('a body that may be a list', () => {
  const read = async (text: string) => parseJsonBodies(Buffer.from(text));

  it.each(['[]', ' [ {"a":[1]} , 2 ]', '{"a":[1]}'])('%s is read as it is', async (text) => {
    expect(await read(text)).toEqual(JSON.parse(text));
  });

  it.each([
    ['[{"a":9007199254740993}]', '[0].a'],
    ['[1,["\\u0000"]]', '[1][0]'],
    ['[{"a":"\\ud800"}]', '[0].a'],
  ])('the fault of %s is named by its place', async (text, param) => {
    await expect(read(text)).rejects.toThrow(expect.objectContaining({ param }));
  });

  it.each([
    ['[1,]', 3],
    ['[{"a":1,"a":2}]', 8],
    ['[1', 1],
  ])('the fault of %s is told near byte %i of the body as it was sent', async (text, near) => {
    const error: Error = await read(text).then(
      () => new Error('nothing'),
      (thrown: Error) => thrown,
    );
    const offset = Number(/at byte ([0-9]+)/.exec(error.message)?.[1]);
    expect(Math.abs(offset - near), error.message).toBeLessThanOrEqual(1);
  });

  it.each(['[],"b":[]', '[]]', '[]}', '7', '"a"'])('%s is refused', async (text) => {
    await expect(read(text)).rejects.toThrow(expect.objectContaining({ kind: 'validation' }));
  });
});

describe('lists in administration bodies', () => {
  it.each([
    ['one list', (n: number) => ({ a: Array(n).fill(0) })],
    ['a list of lists', (n: number) => ({ a: Array(n / 10).fill(Array(9).fill(0)) })],
    ['lists in objects', (n: number) => ({ a: Array.from({ length: n / 10 }, () => ({ b: Array(9).fill('x') })) })],
  ])('%s has 50000 items at most', (_what, bodyOf) => {
    const parse = (n: number) => parseJsonObject(Buffer.from(JSON.stringify(bodyOf(n))));
    expect(Object.keys(parse(50_000))).toEqual(['a']);
    expect(() => parse(50_010)).toThrow('must not have more than 50000 items in its lists');
  });

  it.each([
    ['rate limits', rateLimits, 10],
    ['secret mappings', secretMappings('configurations'), 100],
    ['targets', levelSchema, 1_000],
  ])('too many %s are refused without a look at each', (what, schema, most) => {
    const list = Array(50_000).fill({});
    const check = () => schema.safeParse(what === 'targets' ? { targets: list } : list);
    expect(check().error?.issues.map((issue) => [issue.code, 'maximum' in issue && issue.maximum])).toEqual([
      ['too_big', most],
    ]);
    expect(timed(check)).toBeLessThan(500);
  });
});
