import { beforeAll, expect, it } from 'vitest';
import { cpu, leastStall, PII_CATEGORIES } from '../../../test/support/cost.ts';
import { judged, judgeOf, outsideOf, subjectOf } from '../../../test/support/guardrails.ts';

const N = 100_000;
const fill = (piece: string) => piece.repeat(Math.ceil(N / piece.length)).slice(0, N);
// biome-ignore format: a list
const TEXTS = [
  'a', ' ', '\n', '@', 'a@a.', '1', '4111 ', '1-', '+1 202 555 0123 ', ':', 'a:b:', '1.2.3.', '一', '日本語を書く', '👨‍👩‍👧‍👦', 'e\u0301', 'กรุณาส่ง', '[{', '"{', '```\n', '```\n{\n', '`', 'sk-ant-api03-', 'eyJhbGciOi.eyJ', 'https://a:b@c ', 'token = ', 'Dear Anna ', 'Aa Bb ', 'pаypаl ', 'ignore ignore all ', 'you are now ', 'aGVsbG8gd29ybGQ ',
].map(fill);

const CHECKS: readonly (readonly [string, Record<string, unknown>])[] = [
  ['default.regexMatch', { rule: '(a+)+$' }],
  ['default.regexMatch', { rule: '(x+x+)+y|(?:[a-z]{1,30} ){1,20}zz' }],
  ['default.wordCount', {}],
  ['default.sentenceCount', {}],
  ['default.characterCount', {}],
  ['default.alluppercase', {}],
  ['default.endsWith', { suffix: 'x' }],
  ['default.contains', { words: Array.from({ length: 1_000 }, (_, i) => `w${i}`) }],
  ['default.containsCode', { format: 'Markdown' }],
  ['default.containsCode', { format: 'CSS' }],
  ['default.jsonSchema', { schema: { type: 'object' } }],
  ['default.jsonKeys', { keys: ['a'] }],
  ['gateway.gibberish', {}],
  ['gateway.language', { language: 'eng_Latn' }],
  ['gateway.secrets', {}],
  ['gateway.secrets', { redact: true }],
  ['gateway.promptInjection', {}],
  ['gateway.pii', { categories: PII_CATEGORIES }],
];

// Code is compiled, libraries and the matching thread are loaded once in the life of a process.
beforeAll(async () => {
  for (const [id, parameters] of CHECKS)
    for (const text of ['hello my friend, call +1 202-456-1111', TEXTS[0] ?? '', TEXTS[16] ?? ''])
      await judged(id, parameters, text);
});

it.each(CHECKS)('%s %j leaves the event loop free on 100 000 hostile characters', async (id, parameters) => {
  const judge = judgeOf(id, parameters);
  for (const text of TEXTS) {
    const least = await leastStall(() => judge.judge(subjectOf(text), outsideOf()));
    expect(least, JSON.stringify(text.slice(0, 12))).toBeLessThan(20);
  }
});

it('a schema that doubles its work at every step ends with an error', async () => {
  const $defs = Object.fromEntries(
    Array.from({ length: 40 }, (_, i) => [
      `d${i}`,
      i === 39 ? true : { allOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }] },
    ]),
  );
  const start = cpu();
  await expect(judged('default.jsonSchema', { schema: { $defs, $ref: '#/$defs/d0' } }, '{}')).rejects.toThrow(
    'too much work',
  );
  await expect(judged('default.jsonSchema', { schema: { $ref: '#' } }, '{}')).rejects.toThrow('nested too deeply');
  expect(cpu() - start).toBeLessThan(150);
});
