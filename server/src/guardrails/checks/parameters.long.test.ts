import fc from 'fast-check';
import { expect, it } from 'vitest';
import { PII_CATEGORIES } from '../../../test/support/cost.ts';
import { outsideOf, type SubjectParts, subjectOf } from '../../../test/support/guardrails.ts';
import { CASES } from '../../../test/support/hosted-cases.ts';
import { atOnce } from '../../kernel/turns.ts';
import { issuesOf } from '../../resources/issues.ts';
import { compileCheck, readChecks } from '../catalog.ts';
import { CheckError } from '../check.ts';
import { CHECKS } from './index.ts';

type Parameters = Record<string, unknown>;

/** Every parameter of each check, with a value that it may have. */
// biome-ignore format: a table
const WHOLE: Readonly<Record<string, Parameters>> = {
  'default.regexMatch': { rule: '(a|b)+', not: true },
  'default.sentenceCount': { minSentences: 1, maxSentences: 3, not: false },
  'default.wordCount': { minWords: 1, maxWords: 3, not: false },
  'default.characterCount': { minCharacters: 1, maxCharacters: 3, not: false },
  'default.alluppercase': { not: true },
  'default.isAllLowerCase': { not: true },
  'default.endsWith': { suffix: '.', not: true },
  'default.contains': { words: ['a', 'b'], operator: 'all' },
  'default.containsCode': { format: 'SQL', not: true },
  'default.jsonSchema': { schema: { type: 'object', properties: { a: { type: ['integer', 'null'], minimum: 1 } }, required: ['a'], anyOf: [{ $ref: '#/$defs/x' }], $defs: { x: { patternProperties: { '^a': true } } }, unevaluatedProperties: false }, not: true },
  'default.jsonKeys': { keys: ['a'], operator: 'none' },
  'default.validUrls': { onlyDNS: true, not: true },
  'default.notNull': { not: true },
  'default.modelWhitelist': { models: ['gpt-5'], not: true, inverse: true },
  'default.modelRules': { rules: { defaults: ['*'], metadata: { team: { red: ['gpt-5'] } } }, not: true },
  'default.allowedRequestTypes': { allowedTypes: ['chatComplete'], blockedTypes: ['proxy'] },
  'default.requiredMetadataKeys': { metadataKeys: ['team'], operator: 'any' },
  'default.requiredMetadataKeyPairs': { metadataPairs: { team: ['red', 7, true], env: 'prod' }, operator: 'any', matchType: 'regex' },
  'default.requestParametersCheck': { tools: { allowedTypes: ['function'], blockedTypes: ['x'], allowedFunctionNames: ['f'], blockedFunctionNames: ['g'] }, params: { allowedKeys: ['n'], blockedKeys: ['m'], values: { n: { allowedValues: [1, null], blockedValues: ['x', true] } } } },
  'default.jwt': { headerKey: 'x-token', jwksUri: 'https://id.example/jwks', cacheMaxAge: 10, clockTolerance: 1, maxTokenAge: '1h', algorithms: ['RS256'], requiredClaims: ['sub'], claimValues: { team: { values: ['red'], matchType: 'regex' } }, headerPayloadMatch: ['team'], introspectContentType: 'application/json', introspectCacheMaxAge: 1 },
  'default.addPrefix': { prefix: 'a' },
  'default.inlineImageUrls': { providers: ['openai'], maxSizeBytes: 10, timeoutMs: 10 },
  'default.webhook': { webhookURL: 'https://hook.example', headers: { 'x-a': 'b' } },
  'default.log': { logURL: 'https://log.example', headers: { 'x-a': 'b' } },
  'gateway.pii': { categories: PII_CATEGORIES, redact: true },
  'gateway.language': { language: 'eng_Latn', not: true },
  'gateway.gibberish': { not: true },
  'gateway.secrets': { categories: ['JWT', 'OPENAI_KEY'], redact: true },
  'gateway.promptInjection': { sensitivity: 'low' },
  ...Object.fromEntries(CASES.map(({ id, parameters }) => [id, { ...parameters }])),
};
const SHARED: Parameters = { timeout: 100, failOnError: true, forwardHeaders: ['x-team'] };

/** Where a value stands in a tree: the names that lead to it. */
function places(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([key, one]) => places(one, [...path, key]))];
}

function put(value: unknown, [key, ...rest]: readonly string[], next: unknown): unknown {
  if (key === undefined) return next;
  const copy: Record<string, unknown> = Array.isArray(value) ? ([...value] as never) : { ...(value as object) };
  // `__proto__` as JSON has it: a name like others.
  Object.defineProperty(copy, key, {
    value: put(copy[key], rest, next),
    enumerable: true,
    configurable: true,
    writable: true,
  });
  return copy;
}

const odd = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(
    '',
    '(',
    'a{9999}',
    '[',
    '\\',
    '\ud800',
    '__proto__',
    'constructor',
    '$ref',
    '#/',
    '*',
    '1d',
    'https://a.example',
    'x'.repeat(5_000),
    -1,
    0,
    1e9,
    1e10,
    0.5,
    Number.MAX_SAFE_INTEGER,
    null,
    true,
    [],
    {},
    [''],
    [[]],
    { a: null },
  ),
);
const name = fc.oneof(
  fc.constantFrom(
    '__proto__',
    'constructor',
    'not',
    'timeout',
    'failOnError',
    'forwardHeaders',
    'credentials',
    'redact',
    'operator',
    '0',
    '',
  ),
  fc.string({ maxLength: 5 }),
);

const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(
    '',
    '{"a":1}',
    '[1,{"a":null}]',
    '```sql\nSELECT 1 FROM a;\n```',
    'https://a.example',
    'call +1 202-456-1111, a@example.com',
    'ab. Cd?',
    'eyJhbGciOiJSUzI1NiJ9.e30.x',
  ),
);
const subject: fc.Arbitrary<SubjectParts> = fc.record({
  phase: fc.constantFrom('input' as const, 'output' as const),
  texts: fc.array(text, { maxLength: 3 }),
  request: fc.oneof(
    fc.jsonValue({ maxDepth: 3 }),
    fc.constant(undefined),
    fc.constant({
      n: 1,
      tools: [{ type: 'function', function: { name: 'f' } }, null, 7],
      messages: [{ content: [{ image_url: 'https://i.example' }] }],
    }),
  ),
  answer: fc.jsonValue({ maxDepth: 2 }),
  metadata: fc.dictionary(fc.constantFrom('team', 'env', '__proto__'), text, { maxKeys: 3 }),
  headers: fc.dictionary(fc.constantFrom('x-token', 'team'), text),
  model: fc.oneof(fc.constant(null), text),
  callsTools: fc.boolean(),
});

const NO_NETWORK = 'no network here';

it('the parameters of every check are tried', () => {
  expect([...CHECKS.keys()].filter((id) => WHOLE[id] === undefined)).toEqual([]);
  for (const [id, parameters] of Object.entries(WHOLE))
    expect(compileCheck({ id, is_enabled: true, parameters: { ...parameters, ...SHARED } }, 'llm'), id).not.toBeNull();
});

it.each([...CHECKS.keys()])(
  '%s: any parameters are refused with their path, or judge whatever there is',
  async (id) => {
    const whole = { ...WHOLE[id], ...SHARED };
    const all = places(whole);
    let accepted = 0;
    let refused = 0;
    const change = fc.tuple(fc.constantFrom(...all), fc.option(name, { nil: undefined }), odd);
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 0, maxLength: 2 }), subject, async (changes, parts) => {
        let parameters: unknown = whole;
        for (const [path, more, value] of changes) {
          let at: unknown = parameters;
          for (const key of path) at = typeof at === 'object' && at !== null ? Reflect.get(at, key) : undefined;
          const inside = more !== undefined && typeof at === 'object' && at !== null;
          if (path.length === 0 && !inside) parameters = value;
          else if (at !== undefined) parameters = put(parameters, inside ? [...path, more] : path, value);
        }
        const parsed = atOnce(readChecks('llm', [{ id, parameters }]));
        if (!parsed.success) {
          refused += 1;
          for (const { path, message } of issuesOf(parsed.error, 'checks')) {
            expect(path).toMatch(/^checks\[0\]\.parameters/);
            expect(message).not.toBe('');
          }
          return;
        }
        accepted += 1;
        // As it is stored: a member `__proto__` is left out when the body is read.
        const [stored] = parsed.data;
        const compiled = stored === undefined ? null : compileCheck(stored, 'llm');
        if (compiled === null) throw new Error('is accepted and cannot be compiled');
        try {
          const judgement = await compiled.judge.judge(subjectOf(parts), outsideOf());
          expect(typeof judgement.verdict).toBe('boolean');
          expect(() => JSON.stringify(judgement)).not.toThrow();
        } catch (error) {
          if (error instanceof CheckError || (error instanceof Error && error.message === NO_NETWORK)) return;
          throw error;
        }
      }),
      { numRuns: 150 },
    );
    // Both ways are gone.
    expect(accepted).toBeGreaterThan(5);
    expect(refused).toBeGreaterThan(5);
  },
);
