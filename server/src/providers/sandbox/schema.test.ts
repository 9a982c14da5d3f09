import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cpu } from '../../../test/support/cost.ts';
import { call } from '../../../test/support/local.ts';
import type { JsonObject, JsonValue } from '../../kernel/json.ts';
import { createLocal } from './local.ts';
import { Problem } from './problem.ts';
import { instanceOf } from './schema.ts';

const ajv = new Ajv2020({ strict: false, validateFormats: false, logger: false });

function expectValid(schema: JsonObject): JsonValue {
  const value = instanceOf(schema, 'schema');
  expect(
    ajv.validate(schema, value),
    `${JSON.stringify(value)} for ${JSON.stringify(schema)}: ${ajv.errorsText()}`,
  ).toBe(true);
  return value;
}

const SCHEMAS: readonly [string, JsonObject][] = [
  ['an empty schema', {}],
  [
    'required properties only',
    { type: 'object', properties: { a: { type: 'string' }, b: { type: 'number' } }, required: ['b'] },
  ],
  [
    'nested objects and lists',
    {
      type: 'object',
      properties: {
        items: {
          type: 'array',
          minItems: 2,
          items: { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] },
        },
      },
      required: ['items'],
    },
  ],
  [
    'local definitions',
    {
      $defs: {
        step: {
          type: 'object',
          properties: { text: { type: 'string' } },
          required: ['text'],
          additionalProperties: false,
        },
      },
      type: 'object',
      properties: { first: { $ref: '#/$defs/step' } },
      required: ['first'],
    },
  ],
  [
    'a recursive tree that may end',
    {
      type: 'object',
      properties: { value: { type: 'integer' }, next: { anyOf: [{ $ref: '#' }, { type: 'null' }] } },
      required: ['value'],
    },
  ],
  [
    'a recursive tree whose end comes second',
    { type: 'object', properties: { next: { anyOf: [{ $ref: '#' }, { type: 'null' }] } }, required: ['next'] },
  ],
  ['an enum', { enum: ['red', 'green'] }],
  ['a constant', { const: { deep: [1, null] } }],
  ['nullable types', { type: ['string', 'null'], minLength: 9 }],
  ['a string between lengths', { type: 'string', minLength: 2, maxLength: 3 }],
  ['numbers between bounds', { type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 0.5 }],
  ['a negative integer', { type: 'integer', maximum: -7, multipleOf: 5 }],
  ['a multiple', { type: 'integer', minimum: 10, multipleOf: 7 }],
  ['different items', { type: 'array', minItems: 3, uniqueItems: true, items: { enum: ['a', 'b', 'c'] } }],
  ['different numbers', { type: 'array', minItems: 4, uniqueItems: true, items: { type: 'integer' } }],
  ['a tuple', { type: 'array', prefixItems: [{ type: 'string' }, { type: 'integer' }], items: false, minItems: 2 }],
  ['an item that must be there', { type: 'array', contains: { const: 5 }, minContains: 2 }],
  [
    'all of several',
    { allOf: [{ type: 'object', required: ['a'] }, { properties: { a: { type: 'integer', minimum: 3 } } }] },
  ],
  [
    'one of several',
    {
      oneOf: [
        { type: 'integer', minimum: 10 },
        { type: 'integer', maximum: 20, multipleOf: 3 },
      ],
    },
  ],
  [
    'alternatives with a tag',
    { anyOf: [{ type: 'object', properties: { kind: { const: 'a' } }, required: ['kind'] }, { type: 'string' }] },
  ],
  [
    'a condition',
    {
      type: 'object',
      properties: { a: { type: 'boolean' } },
      required: ['a'],
      if: { properties: { a: { const: true } } },
      // biome-ignore lint/suspicious/noThenProperty: it is a keyword of JSON Schema
      then: { required: ['b'] },
    },
  ],
  ['properties at least', { type: 'object', minProperties: 3, additionalProperties: { type: 'integer' } }],
  ['properties that bring others', { type: 'object', required: ['a'], dependentRequired: { a: ['b'] } }],
  ['a default', { type: 'string', default: 'given' }],
  [
    'a property called constructor',
    { type: 'object', required: ['constructor'], properties: { constructor: { type: 'string' } } },
  ],
  ['a pattern', { type: 'string', pattern: '^[A-Z]{2}-\\d{3,}$' }],
  ['a pattern with choices', { type: 'string', pattern: '^(?:cat|dog)s?: [^a-z]+$' }],
  ['a pattern and a length', { type: 'string', pattern: '^[a-z]+$', minLength: 12, maxLength: 14 }],
  [
    'different texts of one pattern',
    { type: 'array', minItems: 3, uniqueItems: true, items: { type: 'string', pattern: '^[a-f]$' } },
  ],
];

describe('instances of JSON schemas', () => {
  it.each(SCHEMAS)('%s', (_, schema) => {
    expectValid(schema);
  });

  it('a property called __proto__ is one like any other', () => {
    const schema = JSON.parse(
      '{"type":"object","properties":{"__proto__":{"type":"integer"}},"required":["__proto__"]}',
    );
    const text = JSON.stringify(instanceOf(schema, 'schema'));
    expect(text).toBe('{"__proto__":0}');
  });

  it.each([
    ['false', { not: {} }],
    ['bounds that exclude each other', { type: 'integer', minimum: 5, maximum: 4 }],
    ['endless recursion', { type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }],
    ['a reference to elsewhere', { $ref: 'https://example.com/schema' }],
    ['a reference to nothing', { $ref: '#/$defs/none' }],
  ])('%s has none, which is a 400 and no guess', (_, schema) => {
    expect(() => instanceOf(schema, 'response_format')).toThrow(Problem);
  });

  it.each([
    ['alternatives that only refer to each other', { anyOf: [{ $ref: '#' }, { $ref: '#' }] }],
    ['the same below a not', { not: { anyOf: [{ $ref: '#' }, { $ref: '#' }] } }],
    ['deep lists of lists', { type: 'array', minItems: 9, items: { $ref: '#' } }],
    ['a pattern that explodes', { type: 'string', pattern: '^(((((a{9}){9}){9}){9}){9})$' }],
    [
      'many expensive patterns',
      {
        type: 'object',
        minProperties: 900,
        patternProperties: Object.fromEntries(Array.from({ length: 900 }, (_, i) => [`^(a|b|c){1,50}${i}$`, {}])),
      },
    ],
  ])('the work for %s is bounded', (_, schema) => {
    const started = cpu();
    try {
      instanceOf(schema, 'schema');
    } catch (error) {
      expect(error).toBeInstanceOf(Problem);
    }
    expect(cpu() - started).toBeLessThan(1500);
  });

  it('whatever the schema, the value is valid or the schema is refused', () => {
    const leaf: fc.Arbitrary<JsonObject> = fc.oneof(
      fc.record({ type: fc.constant('string'), minLength: fc.nat(5), maxLength: fc.integer({ min: 3, max: 9 }) }),
      fc.record({
        type: fc.constant('integer'),
        minimum: fc.integer({ min: -50, max: 50 }),
        maximum: fc.integer({ min: -20, max: 80 }),
      }),
      fc.record({
        type: fc.constant('number'),
        exclusiveMinimum: fc.integer({ min: -9, max: 9 }),
        multipleOf: fc.constantFrom(1, 2, 5),
      }),
      fc.record({
        enum: fc.array(fc.oneof(fc.integer(), fc.constant(null), fc.string()), { minLength: 1, maxLength: 3 }),
      }),
      fc.constantFrom<JsonObject>({ type: 'boolean' }, { type: 'null' }, { type: ['null', 'string'] }, {}),
    );
    const { schema } = fc.letrec<{ schema: JsonObject }>((tie) => ({
      schema: fc.oneof(
        { depthSize: 'small', withCrossShrink: true },
        leaf,
        fc.record({
          type: fc.constant('array'),
          items: tie('schema'),
          minItems: fc.nat(3),
          uniqueItems: fc.boolean(),
        }) as fc.Arbitrary<JsonObject>,
        fc.dictionary(fc.constantFrom('a', 'b', 'c'), tie('schema')).map((properties) => ({
          type: 'object',
          properties,
          required: Object.keys(properties),
          additionalProperties: false,
        })),
        fc.record({ anyOf: fc.array(tie('schema'), { minLength: 1, maxLength: 3 }) }) as fc.Arbitrary<JsonObject>,
        fc.record({ oneOf: fc.array(tie('schema'), { minLength: 1, maxLength: 3 }) }) as fc.Arbitrary<JsonObject>,
        fc.record({ allOf: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }) }) as fc.Arbitrary<JsonObject>,
      ),
    }));
    let made = 0;
    fc.assert(
      fc.property(schema, (one) => {
        try {
          expectValid(one);
          made += 1;
        } catch (error) {
          if (!(error instanceof Problem)) throw error;
        }
      }),
      { numRuns: 500 },
    );
    expect(made).toBeGreaterThan(300);
  });

  it('garbage instead of a schema never throws anything else', () => {
    fc.assert(
      fc.property(
        fc.dictionary(
          fc.constantFrom(
            'type',
            'properties',
            'required',
            'items',
            'enum',
            'anyOf',
            'allOf',
            '$ref',
            'pattern',
            'minLength',
            'minItems',
            'multipleOf',
            'if',
            'default',
            'contains',
          ),
          fc.jsonValue(),
        ),
        (schema) => {
          try {
            instanceOf(schema as JsonObject, 'schema');
          } catch (error) {
            expect(error).toBeInstanceOf(Problem);
          }
        },
      ),
      { numRuns: 1000 },
    );
  });
});

describe('structured output', () => {
  const local = createLocal();

  it('json_schema answers are valid for their schema, and json_object answers are objects', async () => {
    const schema = {
      type: 'object',
      properties: { steps: { type: 'array', items: { type: 'string' }, minItems: 1 }, answer: { type: 'number' } },
      required: ['steps', 'answer'],
      additionalProperties: false,
    };
    const ask = async (response_format: object) => {
      const { json } = await call(local, {
        body: { model: 'gpt-4o', messages: [{ role: 'user', content: 'x' }], response_format },
      });
      return JSON.parse(json.choices[0].message.content);
    };
    expect(
      ajv.validate(schema, await ask({ type: 'json_schema', json_schema: { name: 'a', schema, strict: true } })),
    ).toBe(true);
    expect(await ask({ type: 'json_object' })).toMatchObject({ sandbox: true, you_said: 'x' });
  });
});
