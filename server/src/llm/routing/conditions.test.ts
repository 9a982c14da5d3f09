import { describe, expect, it } from 'vitest';
import { compileQuery, type Primitive } from './conditions.ts';

interface Given {
  readonly metadata?: Readonly<Record<string, string>>;
  readonly params?: Readonly<Record<string, Primitive>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly pathname?: string;
}

function holds(query: unknown, given: Given = {}): boolean {
  const own = <T>(of: Readonly<Record<string, T>> | undefined, name: string): T | undefined =>
    of !== undefined && Object.hasOwn(of, name) ? of[name] : undefined;
  return compileQuery(
    query,
    new Set(),
  )({
    metadata: (name) => own(given.metadata, name),
    param: (name) => own(given.params, name),
    header: (name) => own(given.headers, name),
    pathname: given.pathname ?? '/v1/chat/completions',
    searched: { work: 0 },
  });
}

/** Every operator against values of every kind: what must hold, by hand. */
const TABLE: readonly [
  operator: string,
  operand: unknown,
  holdsFor: readonly Primitive[],
  not: readonly Primitive[],
][] = [
  ['$eq', 'a', ['a'], ['A', 'b', '', 1, 0, true, false, null]],
  ['$eq', 1, [1], ['1', 2, 0, true, null]],
  ['$eq', true, [true], [false, 'true', 1, null]],
  ['$eq', null, [null], ['null', 0, false, '']],
  ['$ne', 'a', ['A', 'b', '', 1, 0, true, false, null], ['a']],
  ['$ne', null, ['null', 0, false, ''], [null]],
  ['$in', ['a', 1, null], ['a', 1, null], ['b', '1', 2, false, '']],
  ['$in', [], [], ['a', '', 0, null]],
  ['$nin', ['a', 1, null], ['b', '1', 2, false, ''], ['a', 1, null]],
  ['$nin', [], ['a', '', 0, null], []],
  ['$regex', '^a+$', ['a', 'aaa'], ['A', 'ab', '', 1, null, true]],
  ['$regex', 'b', ['abc', 'b'], ['ac', 'B', null]],
  ['$regex', '^4', [42, '4'], [24, null]],
  ['$regex', 'u', ['u', true], [null, false]],
  ['$gt', '0x10', [], [17, '17', '0x11']],
  ['$regex', '(', [], ['(', '', 'a']],
  ['$regex', '(?=a)a', [], ['a']],
  ['$gt', 5, [6, '6', '5.1', ' 7 ', '1e3'], [5, '5', 4, 'six', '', '6x', true, null]],
  ['$gt', '5', [6, '6'], [5, '5', 4, null]],
  ['$gte', 5, [5, '5', 6, '5.0'], [4, '4.9', 'x', false, null]],
  ['$lt', 5, [4, '4', '-1', -1], [5, '5', 6, 'x', '', false, null]],
  ['$lte', 5, [5, '5', 4], [6, '5.01', '', null]],
  ['$lt', 'x', [], [1, '1', 'w']],
];

const show = (value: unknown) => JSON.stringify(value);

describe('every operator', () => {
  const rows = TABLE.flatMap(([operator, operand, yes, no]) =>
    [...yes.map((value) => [value, true] as const), ...no.map((value) => [value, false] as const)].map(
      ([value, expected]) =>
        [`${show(value)} ${operator} ${show(operand)}`, operator, operand, value, expected] as const,
    ),
  );
  it.each(rows)('%s', (_title, operator, operand, value, expected) => {
    expect(holds({ 'params.p': { [operator]: operand } }, { params: { p: value } })).toBe(expected);
    // The same where it stands deeper, and beside what holds anyway.
    const nested = { $or: [{ $and: [{ 'params.p': { [operator]: operand } }, { 'url.pathname': { $regex: '' } }] }] };
    expect(holds(nested, { params: { p: value } })).toBe(expected);
  });

  it.each(TABLE)('%s %j is false for what is not there', (operator, operand) => {
    for (const key of ['params.p', 'metadata.p', 'headers.p'])
      expect(holds({ [key]: { [operator]: operand } })).toBe(false);
  });
});

describe('and, or, and their nesting', () => {
  const T = { 'metadata.t': 'yes' };
  const F = { 'metadata.t': 'no' };
  const MISSING = { 'metadata.absent': { $ne: 'x' } };
  const given = { metadata: { t: 'yes' } };

  it.each([
    [[T, T], true, true],
    [[T, F], false, true],
    [[F, T], false, true],
    [[F, F], false, false],
    [[T], true, true],
    [[F], false, false],
    [[T, MISSING], false, true],
    [[MISSING], false, false],
  ])('%j', (list, and, or) => {
    expect(holds({ $and: list }, given)).toBe(and);
    expect(holds({ $or: list }, given)).toBe(or);
  });

  it('all combinations of depth three are what logic says', () => {
    let compared = 0;
    for (let bits = 0; bits < 16; bits++) {
      const leaf = (i: number) => ((bits >> i) & 1 ? T : F);
      const is = (i: number) => ((bits >> i) & 1) === 1;
      for (const outer of ['$and', '$or']) {
        for (const left of ['$and', '$or']) {
          for (const right of ['$and', '$or']) {
            const query = { [outer]: [{ [left]: [leaf(0), leaf(1)] }, { [right]: [leaf(2), leaf(3)] }] };
            const of = (name: string, a: boolean, b: boolean) => (name === '$and' ? a && b : a || b);
            const expected = of(outer, of(left, is(0), is(1)), of(right, is(2), is(3)));
            expect(holds(query, given), show(query)).toBe(expected);
            compared += 1;
          }
        }
      }
    }
    expect(compared).toBe(128);
  });

  it('several keys of a query must all hold, and several operators of a key', () => {
    const params = { n: 5, s: 'abc' };
    expect(holds({ 'params.n': { $gt: 1, $lt: 9 }, 'params.s': 'abc' }, { params })).toBe(true);
    expect(holds({ 'params.n': { $gt: 1, $lt: 5 }, 'params.s': 'abc' }, { params })).toBe(false);
    expect(holds({ 'params.n': { $gt: 1 }, 'params.s': 'x' }, { params })).toBe(false);
    expect(holds({ 'params.n': 5, $or: [{ 'params.s': 'x' }, { 'params.s': 'abc' }] }, { params })).toBe(true);
    expect(holds({ 'params.n': 4, $or: [{ 'params.s': 'abc' }] }, { params })).toBe(false);
  });

  it('an empty query always holds', () => {
    expect(holds({})).toBe(true);
    expect(holds({ $or: [] })).toBe(false);
  });

  it('what is not understood never holds', () => {
    for (const query of [null, 1, 'x', [], { 'body.x': 1 }, { $not: [] }, { 'params.p': { $what: 1 } }, { $and: 1 }])
      expect(holds(query, { params: { p: 1 } })).toBe(false);
  });
});

describe('what is asked', () => {
  it('metadata, members of the body, headers in any case and the path', () => {
    const given = {
      metadata: { tier: 'gold' },
      params: { model: 'm' },
      headers: { 'x-plan': 'pro' },
      pathname: '/v1/messages',
    };
    expect(holds({ 'metadata.tier': 'gold' }, given)).toBe(true);
    expect(holds({ 'params.model': 'm' }, given)).toBe(true);
    expect(holds({ 'headers.X-Plan': 'pro' }, given)).toBe(true);
    expect(holds({ 'url.pathname': { $regex: 'messages$' } }, given)).toBe(true);
  });

  it('names that every object has are asked for like any other', () => {
    expect(holds({ 'metadata.constructor': { $ne: 'x' } }, { metadata: { a: 'b' } })).toBe(false);
    expect(holds({ 'params.__proto__': { $ne: 'x' } }, { params: {} })).toBe(false);
  });

  it('decimal numbers in texts are read with white space around them, and as no other kind of number', () => {
    for (const [text, is] of [
      ['+5', true],
      ['.5e1', true],
      ['5.', true],
      ['\t5\n', true],
      ['0x5', false],
      ['5_0', false],
      ['', false],
      ['.', false],
      ['1e', false],
    ] as const)
      expect(holds({ 'metadata.n': { $gte: 5 } }, { metadata: { n: text } }), text).toBe(is);
  });

  /** Patterns that take engines which try again for ever, on texts that they nearly match. */
  const HOSTILE: readonly [pattern: string, text: string][] = [
    ['^(a+)+$', `${'a'.repeat(100_000)}b`],
    ['^(a|aa)+$', `${'a'.repeat(100_000)}b`],
    ['^(a|a?)+$', `${'a'.repeat(100_000)}b`],
    ['(.*)*x', 'y'.repeat(100_000)],
    ['(\\w+\\s?)*$', `${'word '.repeat(20_000)}!`],
    ['^(([a-z])+.)+[A-Z]([a-z])+$', 'a'.repeat(100_000)],
    ['(a{0,9}){0,9}c', 'a'.repeat(100_000)],
    ['a.*a.*a.*a.*b', 'a'.repeat(100_000)],
  ];
  it.each(HOSTILE)(
    '%s costs no more than a moment on a text of 100,000, and the same on one that is searched',
    (pattern, text) => {
      const from = process.threadCpuUsage();
      for (const p of [text, text.slice(0, 5_000), text.slice(-5_000)])
        expect(holds({ 'params.p': { $regex: pattern } }, { params: { p } })).toBeTypeOf('boolean');
      const { user, system } = process.threadCpuUsage(from);
      expect((user + system) / 1_000).toBeLessThan(2_000);
    },
  );

  it('a pattern is found in a long text, up to what may be searched at once; a longer text is no match', () => {
    const found = (length: number) =>
      holds({ 'params.p': { $regex: 'mini$' } }, { params: { p: `${'a'.repeat(length)}mini` } });
    expect(found(50_000)).toBe(true);
    expect(found(1_000_000)).toBe(false);
  });
});
