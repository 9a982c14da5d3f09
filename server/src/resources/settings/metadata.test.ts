import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cpu } from '../../../test/support/cost.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { issuesOf } from '../issues.ts';
import { applyMetadataSchema, metadataSchema } from './metadata.ts';

const schema = (value: unknown) => metadataSchema.parse(value);
const refusal = (run: () => unknown): SluiceError => {
  try {
    run();
  } catch (error) {
    if (error instanceof SluiceError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
};

describe('a metadata schema', () => {
  const string = { type: 'string' };
  it.each([
    ['a list', [], ''],
    ['another type', { type: 'array' }, 'type'],
    ['no type', {}, 'type'],
    ['closed', { type: 'object', additionalProperties: false }, 'additionalProperties'],
    ['an unknown keyword', { type: 'object', patternProperties: {} }, 'patternProperties'],
    ['another draft', { type: 'object', $schema: 'https://json-schema.org/draft/2020-12/schema' }, '$schema'],
    ['a number property', { type: 'object', properties: { a: { type: 'number' } } }, 'properties.a.type'],
    ['a property without type', { type: 'object', properties: { a: {} } }, 'properties.a.type'],
    ['a boolean property', { type: 'object', properties: { a: true } }, 'properties.a'],
    [
      'a nested object',
      { type: 'object', properties: { a: { ...string, properties: {} } } },
      'properties.a.properties',
    ],
    ['a list of types', { type: 'object', properties: { a: { type: ['string', 'null'] } } }, 'properties.a.type'],
    [
      'a default of another type',
      { type: 'object', properties: { a: { ...string, default: 1 } } },
      'properties.a.default',
    ],
    [
      'a default outside enum',
      { type: 'object', properties: { a: { ...string, default: 'x', enum: ['y'] } } },
      'properties.a.default',
    ],
    [
      'a default that is too short',
      { type: 'object', properties: { a: { ...string, default: 'x', minLength: 2 } } },
      'properties.a.default',
    ],
    [
      'bounds that cross',
      { type: 'object', properties: { a: { ...string, minLength: 3, maxLength: 2 } } },
      'properties.a.minLength',
    ],
    [
      'a pattern that looks around',
      { type: 'object', properties: { a: { ...string, pattern: '(?=x)' } } },
      'properties.a.pattern',
    ],
    [
      'patterns that are too large together',
      {
        type: 'object',
        properties: {
          a: { ...string, pattern: '(a?){160}a{160}|a*' },
          b: { ...string, pattern: '(b?){160}b{160}|b*' },
        },
      },
      'properties.b.pattern',
    ],
    [
      'a pattern that is too large',
      { type: 'object', properties: { a: { ...string, pattern: '(a{99}){99}' } } },
      'properties.a.pattern',
    ],
    ['required that repeats', { type: 'object', required: ['a', 'a'] }, 'required[1]'],
    [
      '65 properties',
      { type: 'object', properties: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`p${i}`, string])) },
      'properties',
    ],
  ])('is refused with %s', (_title, value, path) => {
    const result = metadataSchema.safeParse(value);
    expect(result.success).toBe(false);
    if (!result.success) expect(issuesOf(result.error)[0]?.path).toBe(path);
  });

  it('is stored as it is, with additionalProperties spelled out', () => {
    const given = { $schema: 'http://json-schema.org/draft-07/schema#', type: 'object', properties: { team: string } };
    expect(schema(given)).toEqual({ ...given, additionalProperties: true });
  });
});

describe('applying it', () => {
  const rules = schema({
    type: 'object',
    required: ['team', 'cost'],
    properties: {
      team: { type: 'string', enum: ['search', 'ads'] },
      cost: { type: 'string', pattern: '^cc-[0-9]{4}$', default: 'cc-0000' },
      note: { type: 'string', maxLength: 3 },
    },
  });

  it('fills defaults in and lets further metadata pass', () => {
    const given = { team: 'ads', other: 'kept' };
    expect(applyMetadataSchema(rules, given)).toEqual({ team: 'ads', other: 'kept', cost: 'cc-0000' });
    expect(given).toEqual({ team: 'ads', other: 'kept' });
  });

  it.each([
    ['a missing entry', {}, 'defaults.metadata.team'],
    ['a value outside its enum', { team: 'x' }, 'defaults.metadata.team'],
    ['a value against its pattern', { team: 'ads', cost: '4' }, 'defaults.metadata.cost'],
    ['a long value', { team: 'ads', note: 'four' }, 'defaults.metadata.note'],
  ])('refuses %s, naming it', (_title, metadata, param) => {
    const error = refusal(() => applyMetadataSchema(rules, metadata));
    expect([error.kind, error.param]).toEqual(['validation', param]);
  });

  it('counts code points, not UTF-16 units', () => {
    expect(applyMetadataSchema(rules, { team: 'ads', note: '😀😀😀' })).toMatchObject({ note: '😀😀😀' });
  });

  it('without a schema, or with nothing to fill in, metadata stays as it was, absent too', () => {
    expect(applyMetadataSchema(null, undefined)).toBeUndefined();
    expect(applyMetadataSchema(null, { a: '1' })).toEqual({ a: '1' });
    const open = schema({ type: 'object', properties: { a: { type: 'string' } } });
    expect(applyMetadataSchema(open, undefined)).toBeUndefined();
    expect(applyMetadataSchema(open, null)).toBeNull();
    expect(refusal(() => applyMetadataSchema(rules, null, 'metadata')).param).toBe('metadata.team');
  });

  it('names from the outside never reach a prototype', () => {
    const tricky = schema(
      JSON.parse(
        '{"type":"object","required":["constructor"],"properties":{"toString":{"type":"string","default":"x"}}}',
      ),
    );
    expect(refusal(() => applyMetadataSchema(tricky, {})).param).toBe('defaults.metadata.constructor');
    expect(applyMetadataSchema(tricky, { constructor: 'c' })).toEqual({ constructor: 'c', toString: 'x' });
  });

  it('what a schema accepts it accepts again: applying twice changes nothing', () => {
    const text = fc.string({ maxLength: 5 });
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom('team', 'cost', 'note', 'z'), text), (given) => {
        try {
          const once = applyMetadataSchema(rules, given);
          expect(applyMetadataSchema(rules, once)).toEqual(once);
        } catch (error) {
          expect(error).toBeInstanceOf(SluiceError);
        }
      }),
    );
  });
});

describe('a metadata schema', () => {
  const nasty = (count: number) => ({
    type: 'object',
    properties: Object.fromEntries(
      Array.from({ length: count }, (_, i) => [`k${i}`, { type: 'string', pattern: `(a?){160}a{160}|a*|${i}` }]),
    ),
  });
  const timed = (run: () => unknown) => {
    const started = cpu();
    run();
    return cpu() - started;
  };

  it('of thousands of patterns is refused before any of them is compiled', () => {
    const refused = metadataSchema.safeParse(nasty(5_000));
    expect(refused.error?.issues.map(({ path, message }) => [path.join('.'), message])).toEqual([
      ['properties', 'must have at most 64 keys'],
    ]);
    expect(timed(() => metadataSchema.safeParse(nasty(5_000)))).toBeLessThan(1_000);
  });

  it('costs a write a fraction of a second at most, whatever patterns it was allowed', () => {
    let most: unknown;
    for (let count = 1; metadataSchema.safeParse(nasty(count)).success; count++) most = nasty(count);
    const metadata = Object.fromEntries(Array.from({ length: 64 }, (_, i) => [`k${i}`, 'a'.repeat(128)]));
    expect(most).toBeDefined();
    expect(timed(() => applyMetadataSchema(schema(most), metadata))).toBeLessThan(1_000);
  });
});
