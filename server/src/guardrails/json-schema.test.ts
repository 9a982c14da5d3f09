import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { cpu } from '../../test/support/cost.ts';
import { compileSchema } from './json-schema.ts';

const cpuOf = (run: () => void): number => {
  const before = cpu();
  run();
  return cpu() - before;
};

const value = fc.jsonValue({ maxDepth: 3 });
const names = fc.constantFrom('a', 'b', 'ü', '🙂');
const { schema } = fc.letrec<{ schema: unknown }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 2 },
    fc.boolean(),
    fc
      .record(
        {
          type: fc.constantFrom('object', 'array', 'string', 'number', 'integer', 'null', 'boolean', [
            'string',
            'null',
          ]),
          properties: fc.dictionary(names, tie('schema'), { maxKeys: 3 }),
          required: fc.uniqueArray(names, { maxLength: 2 }),
          additionalProperties: tie('schema'),
          patternProperties: fc.constant({ '^[ab]$': { type: 'number' } }),
          propertyNames: fc.constant({ maxLength: 1 }),
          unevaluatedProperties: fc.boolean(),
          unevaluatedItems: fc.boolean(),
          items: tie('schema'),
          prefixItems: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }),
          contains: tie('schema'),
          minItems: fc.nat(2),
          uniqueItems: fc.boolean(),
          maxLength: fc.nat(3),
          minimum: fc.integer({ min: -3, max: 3 }),
          exclusiveMaximum: fc.integer({ min: -3, max: 3 }),
          enum: fc.array(fc.jsonValue({ maxDepth: 1 }), { minLength: 1, maxLength: 3 }),
          const: fc.jsonValue({ maxDepth: 1 }),
          allOf: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }),
          anyOf: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }),
          oneOf: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }),
          not: tie('schema'),
          if: tie('schema'),
          // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
          then: tie('schema'),
          else: tie('schema'),
          dependentRequired: fc.constant({ a: ['b'] }),
        },
        { requiredKeys: [] },
      )
      // Ajv takes a list that is shorter than its `prefixItems` to contain anything.
      .map(({ contains, ...rest }) => ('prefixItems' in rest || contains === undefined ? rest : { ...rest, contains })),
  ),
}));

it('an empty list contains nothing, whatever else is asked of it', () => {
  const judge = compileSchema({ prefixItems: [{ type: 'string' }], contains: { type: 'number' } });
  expect([[], ['a'], ['a', 1]].map((list) => judge(list))).toEqual([false, false, true]);
});

const objects = fc.dictionary(
  names,
  fc.oneof(fc.integer({ min: -4, max: 4 }), fc.string({ maxLength: 4 }), fc.constant(null)),
  { maxKeys: 3 },
);
const lists = fc.array(fc.oneof(fc.integer({ min: -4, max: 4 }), objects), { maxLength: 3 });

const other = new Ajv2020({ strict: false, validateFormats: false, validateSchema: false, logger: false });

it('agrees with another validator on any schema and value', () => {
  fc.assert(
    fc.property(schema, fc.oneof(value, objects, lists), (made, given) => {
      const json: unknown = JSON.parse(JSON.stringify(given));
      expect(compileSchema(made)(json)).toBe(other.compile(made as object)(json));
    }),
    { numRuns: 150 },
  );
});

it('patterns of a schema that take longer together than 20 ms are refused before they are compiled', () => {
  const schema = (count: number) => ({
    anyOf: Array.from({ length: count }, (_, i) => ({ pattern: `^a{300}${i}$` })),
  });
  expect(() => compileSchema(schema(8))).not.toThrow();
  expect(cpuOf(() => expect(() => compileSchema(schema(5_000))).toThrow(/too large together/))).toBeLessThan(500);
  const names = Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`^a{300}${i}$`, true]));
  expect(cpuOf(() => expect(() => compileSchema({ patternProperties: names })).toThrow(/too large/))).toBeLessThan(500);
});
