import { beforeAll, describe, expect, it } from 'vitest';
import { leastStall, PII_CATEGORIES } from '../../../test/support/cost.ts';
import { outsideOf, problems, type SubjectParts, subjectOf } from '../../../test/support/guardrails.ts';
import { CASES } from '../../../test/support/hosted-cases.ts';
import { compileCheck } from '../catalog.ts';
import { compileSchema, TooMuchWork } from '../json-schema.ts';
import { CHECKS } from './index.ts';

const N = 100_000;
/** Milliseconds of CPU between two turns of the event loop. */
const LIMIT = 20;
const fill = (piece: string) => piece.repeat(Math.ceil(N / piece.length)).slice(0, N);
// biome-ignore format: a list
const PIECES = [
  'a', ' ', '\n', '\r', '\r\n', '\t', '\0', '@', 'a@a.', 'x@', '1', '4111 ', '1-', '+1 202 555 0123 ', ':', 'a:b:', '1:2:', '1.2.3.', '一', '日本語を書く', '한', '👨‍👩‍👧‍👦', '🇩🇪', '\u200d', 'e\u0301', 'a.\u0308', '\u0600', '\ud800', 'กรุณาส่ง', 'İ', 'ß', 'ŉ', 'Σ', 'ﬃ', 'ﷺ',
  '[', '(', '[{', '"{', '{"a":', '{"a":1,', '{"a":1}', '[1,', '1,', '"a": ', '```\n', '```\n{\n', '```a', '`', '`` ', '{}\n', '[0] ',
  'sk-ant-api03-', 'eyJhbGciOi.eyJ', '-----BEGIN ', 'https://a:b@c ', 'https://', 'postgres://', 'token = ', 'password=', 'Bearer ', 'xoxb-1-', '0x', 'bc1', 'GB82 WEST ', 'AB 12 34 ', 'Dear Anna ', 'Herr ', '12 Aa ', '1 A ', 'Rue de la ', 'Aa Bb ', 'A. ',
  'pаypаl ', 'ignore ignore all ', 'ignore everything above ', 'you are now ', 'show your ', 'imagine you have no ', 'repeat verbatim ', 'decode ', 'send ', '\n### ', '![a](http://', 'aGVsbG8gd29ybGQ ', 'QUJD', 'cGxlYXNlIHNheSB3aGF0IHRoZSB3b3JkcyBhcmUg ',
  'SELECT * FROM ', 'def f(', 'def a ', 'const x = ', 'interface I ', 'function ', 'public ', '#include <', '{ get', '$a ', 'my $', 'fn f', 'val x ', 'x: ', 'a:', '.a', '# ', '- a\n', '**', '[a](', '<a ', 'aaaa bbbb ', 'zxcv qwrt ', 'the ',
];
const TEXTS: readonly SubjectParts[] = PIECES.map((piece) => ({ texts: [fill(piece)] }));
const MANY: readonly SubjectParts[] = [
  { texts: Array.from({ length: 10_000 }, (_, i) => `text ${i}`) },
  { texts: Array.from({ length: 10 }, () => 'ab'.repeat(5_000)) },
];

/** What checks of requests look at. */
const tools = Array.from({ length: 2_000 }, (_, i) => ({ type: 'function', function: { name: `f${i}` } }));
const wide = Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`key${i}`, i]));
let deep: unknown = { type: 'image_url', image_url: { url: 'https://a.example' } };
for (let i = 0; i < 5_000; i++) deep = { content: [deep] };
const images = Array.from({ length: 2_000 }, () => ({
  type: 'image_url',
  image_url: { url: `https://${'a'.repeat(40)}` },
}));
const REQUESTS: readonly SubjectParts[] = ['a', 'é', '.', 'eyJ', '1 ', '一'].flatMap((piece) => {
  const long = fill(piece);
  return [
    {
      phase: 'input',
      model: long,
      requestType: long,
      metadata: { team: long, [long]: long },
      headers: { 'x-token': long },
    },
    { phase: 'input', headers: { 'x-token': `Bearer ${long}.${long}.${long}` }, request: { [long]: long, tools } },
    {
      phase: 'input',
      request: { ...wide, messages: [deep] },
      metadata: Object.fromEntries(Object.keys(wide).map((key) => [key, piece])),
    },
    { phase: 'input', request: { messages: [{ role: 'user', content: images }], input: long } },
  ];
});

const words = (n: number, before = '') => Array.from({ length: n }, (_, i) => `${before}w${i}`);
const FORMATS =
  'SQL Python TypeScript JavaScript Java C# C++ C Ruby PHP Swift Kotlin Go Rust Scala R Perl Shell HTML CSS XML JSON YAML Markdown Dockerfile'.split(
    ' ',
  );
const keys = { keys: [{ kty: 'RSA', n: 'AQAB', e: 'AQAB' }] };

// biome-ignore format: a table
const CASES_OF: readonly (readonly [id: string, parameters: Readonly<Record<string, unknown>>])[] = [
  ['default.regexMatch', { rule: '(a+)+$' }],
  ['default.regexMatch', { rule: '(x+x+)+y|(?:[a-z]{1,30} ){1,20}zz' }],
  ['default.regexMatch', { rule: '.{1000}x' }],
  ['default.regexMatch', { rule: '(?i)(?:a|b|c|ab|bc|abc){1,200}$' }],
  ['default.regexMatch', { rule: '\\p{L}{500}\\d' }],
  ['default.regexMatch', { rule: '(.*)(.*)(.*)(.*)(.*)x' }],
  ['default.regexMatch', { rule: 'a|b', not: true }],
  ['default.wordCount', {}],
  ['default.sentenceCount', {}],
  ['default.characterCount', {}],
  ['default.alluppercase', {}],
  ['default.isAllLowerCase', {}],
  ['default.endsWith', { suffix: 'x' }],
  ['default.endsWith', { suffix: 'e\u0301'.repeat(5_000) }],
  ['default.notNull', {}],
  ['default.contains', { words: words(1_000) }],
  ['default.contains', { words: words(1_000, 'a'.repeat(900)), operator: 'none' }],
  ...FORMATS.map((format) => ['default.containsCode', { format }] as const),
  ['default.jsonSchema', { schema: { type: 'object' } }],
  ['default.jsonSchema', { schema: { unevaluatedProperties: false, anyOf: [{ required: ['b'] }, { properties: { a: true } }] } }],
  ['default.jsonKeys', { keys: words(1_000) }],
  ['gateway.gibberish', {}],
  ['gateway.language', { language: 'eng_Latn' }],
  ['gateway.secrets', {}],
  ['gateway.secrets', { redact: true }],
  ['gateway.promptInjection', { sensitivity: 'low' }],
  ['gateway.pii', { categories: PII_CATEGORIES }],
  ['gateway.pii', { categories: PII_CATEGORIES, redact: true }],
  ['default.validUrls', {}],
  ['default.validUrls', { onlyDNS: true }],
  ['default.webhook', { webhookURL: 'https://a.example' }],
  ['default.log', { logURL: 'https://a.example' }],
  ['default.addPrefix', { prefix: 'x' }],
  ['default.modelWhitelist', { models: words(2_000) }],
  ['default.modelRules', { rules: { defaults: words(2_000), metadata: { team: { a: words(2_000) } } } }],
  ['default.allowedRequestTypes', { blockedTypes: ['proxy'] }],
  ['default.requiredMetadataKeys', { metadataKeys: words(200) }],
  ['default.requiredMetadataKeyPairs', { metadataPairs: { team: words(200) }, matchType: 'containsAll' }],
  ['default.requiredMetadataKeyPairs', { metadataPairs: { team: ['(a+)+$', '.{500}x'] }, matchType: 'regex' }],
  ['default.requestParametersCheck', { tools: { allowedFunctionNames: words(1_000) }, params: { allowedKeys: words(1_000) } }],
  ['default.jwt', { headerKey: 'x-token', jwks: keys }],
  ['default.inlineImageUrls', {}],
  ...CASES.map(({ id, parameters }) => [id, parameters] as const),
];

const judgeOf = (id: string, parameters: Readonly<Record<string, unknown>>) => {
  const compiled = compileCheck({ id, is_enabled: true, parameters }, 'llm');
  if (compiled === null) throw new Error(`${id}: ${problems(id, parameters).join('; ')}`);
  return compiled.judge;
};
/** Whatever it comes to: calls find no network here, and what is too much is an error of the check. */
const once = async (judge: ReturnType<typeof judgeOf>, subject: SubjectParts): Promise<unknown> => {
  try {
    return await judge.judge(subjectOf(subject), outsideOf());
  } catch (error) {
    return error;
  }
};

// Code is compiled, libraries and the matching thread are loaded once in the life of a process.
beforeAll(async () => {
  for (const [id, parameters] of CASES_OF)
    for (const subject of [{ texts: ['hello my friend, call +1 202-456-1111'] }, TEXTS[0] ?? {}, REQUESTS[0] ?? {}])
      await once(judgeOf(id, parameters), subject);
});

describe('100 000 hostile characters leave the event loop free', () => {
  it('of every check of the catalogue', () => {
    const tried = new Set(CASES_OF.map(([id]) => id));
    expect([...CHECKS.keys()].filter((id) => !tried.has(id))).toEqual([]);
  });

  it.each(
    CASES_OF.map(([id, parameters]) => [`${id} ${JSON.stringify(parameters).slice(0, 60)}`, id, parameters] as const),
  )('%s', { timeout: 120_000 }, async (_, id, parameters) => {
    const judge = judgeOf(id, parameters);
    const slow: string[] = [];
    for (const [at, subject] of [...TEXTS, ...MANY, ...REQUESTS].entries()) {
      const least = await leastStall(() => once(judge, subject), LIMIT);
      if (least >= LIMIT)
        slow.push(`${least.toFixed(1)} ms: ${JSON.stringify(PIECES[at] ?? `subject ${at - PIECES.length}`)}`);
    }
    expect(slow).toEqual([]);
  });
});

describe('a million characters leave the event loop free', () => {
  const long = (piece: string): SubjectParts => ({ texts: [piece.repeat(1_000_000 / piece.length)] });
  it.each([
    'default.wordCount',
    'default.sentenceCount',
    'default.characterCount',
    'default.alluppercase',
    'default.isAllLowerCase',
    'default.endsWith',
    'default.notNull',
    'default.contains',
    'default.containsCode',
    'default.addPrefix',
    'gateway.language',
    'gateway.gibberish',
  ])('of %s', { timeout: 120_000 }, async (id) => {
    const parameters = CASES_OF.find(([one]) => one === id)?.[1] ?? {};
    const judge = judgeOf(id, parameters);
    const slow: string[] = [];
    for (const piece of ['a', '\n', 'word ', 'ab\n', '```\n', 'ﬃ', 'Σ', '一', 'A. ']) {
      const least = await leastStall(() => once(judge, long(piece)), LIMIT);
      if (least >= LIMIT) slow.push(`${least.toFixed(1)} ms: ${JSON.stringify(piece)}`);
    }
    expect(slow).toEqual([]);
  });
});

describe('a schema that asks for much work', () => {
  const many = <T>(n: number, make: (i: number) => T): T[] => Array.from({ length: n }, (_, i) => make(i));
  const object = (n: number) => Object.fromEntries(many(n, (i) => [`k${i}`, i]));
  const props = (n: number) => ({ properties: Object.fromEntries(many(n, (i) => [`k${i}`, true])) });
  const nested = (n: number, leaf: object, how: string) => {
    let schema = leaf;
    for (let i = 0; i < n; i++) schema = { [how]: [schema, {}] };
    return schema;
  };
  const doubling = (leaf: unknown, how: 'anyOf' | 'allOf') => ({
    $defs: Object.fromEntries(
      many(40, (i) => [
        `d${i}`,
        i === 39
          ? leaf
          : {
              [how]: [
                how === 'anyOf' ? { allOf: [{ $ref: `#/$defs/d${i + 1}` }, false] } : { $ref: `#/$defs/d${i + 1}` },
                { $ref: `#/$defs/d${i + 1}` },
              ],
            },
      ]),
    ),
    $ref: '#/$defs/d0',
  });
  const CASES_OF_SCHEMAS: readonly (readonly [string, object, unknown])[] = [
    [
      'what branches inside of branches looked at',
      { unevaluatedProperties: false, ...nested(90, props(2_000), 'anyOf') },
      object(2_000),
    ],
    [
      'what parts inside of parts looked at',
      { unevaluatedProperties: false, ...nested(90, props(5_000), 'allOf') },
      object(5_000),
    ],
    [
      'items that many branches looked at',
      { unevaluatedItems: false, anyOf: many(50, () => ({ contains: { type: 'number' } })) },
      many(20_000, (i) => i),
    ],
    ['doubled branches', doubling(true, 'anyOf'), {}],
    ['doubled parts', doubling(true, 'allOf'), {}],
    [
      'doubled branches that are remembered',
      { unevaluatedProperties: false, ...doubling(props(50), 'anyOf') },
      object(50),
    ],
    [
      'a large pattern for many texts',
      { items: { pattern: '(?:[a-z]{1,10}){1,20}' } },
      many(5_000, () => 'abcdefghij'.repeat(20)),
    ],
    [
      'many patterns for many names',
      { patternProperties: Object.fromEntries(many(50, (i) => [`^x${i}[a-z]{5}$`, true])) },
      object(50_000),
    ],
    ['a pattern for many names', { propertyNames: { pattern: '^k' } }, object(50_000)],
    [
      'many required names in many objects',
      { items: { required: many(2_000, (i) => `k${i}`) } },
      many(5_000, () => object(2_000)),
    ],
    [
      'many choices that are objects',
      { items: { not: { enum: many(500, (i) => ({ a: [i, { b: i }] })) } } },
      many(5_000, (i) => ({ a: [i, { b: -1 }] })),
    ],
    [
      'many dependent names',
      { items: { dependentRequired: Object.fromEntries(many(5_000, (i) => [`p${i}`, ['a']])) } },
      many(5_000, () => ({ p1: 1, a: 1 })),
    ],
    [
      'a long reference many times',
      { $defs: { ['a'.repeat(5_000)]: { type: 'integer' } }, items: { $ref: `#/$defs/${'a'.repeat(5_000)}` } },
      many(50_000, () => 1),
    ],
    ['unique objects', { uniqueItems: true }, many(50_000, (i) => ({ a: i, b: [i] }))],
    [
      'many objects',
      { items: { type: 'object', required: ['a'], properties: { a: { type: 'integer' } } } },
      many(50_000, (i) => ({ a: i })),
    ],
    ['a cycle', { $ref: '#' }, {}],
  ];
  it.each(CASES_OF_SCHEMAS)('ends with an error in time: %s', async (_, schema, value) => {
    const valid = compileSchema(schema);
    expect(() => valid(value)).toThrow(TooMuchWork);
    const least = await leastStall(() => {
      try {
        valid(value);
      } catch {
        // As it should.
      }
    }, LIMIT);
    expect(least).toBeLessThan(LIMIT);
  });

  it('on many values in one text leaves the event loop free between them', async () => {
    const schema = doubling(false, 'anyOf');
    const judge = judgeOf('default.jsonSchema', { schema: { ...schema, maxProperties: 1 } });
    const text = many(20, (i) => JSON.stringify({ [`a${i}`]: many(500, (n) => n) })).join(' and ');
    expect(await leastStall(() => once(judge, { texts: [text] }), LIMIT)).toBeLessThan(LIMIT);
    const slow = judgeOf('default.jsonSchema', {
      schema: { properties: { x: { items: { type: 'integer', maximum: 0 } } }, required: ['y'] },
    });
    const lists = many(20, () => JSON.stringify({ x: many(15_000, () => 0) })).join(' ');
    expect(await leastStall(() => once(slow, { texts: [lists] }), LIMIT)).toBeLessThan(LIMIT);
  });
});
