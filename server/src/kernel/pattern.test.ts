import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cpu } from '../../test/support/cost.ts';
import { matchesPattern, patternProblem } from './pattern.ts';

describe('patterns of operators', () => {
  it.each([
    ['^(a{30}b{30}){30}$', 'repeats too much'],
    ['(a{1000})(b{1000})', 'repeats too much'],
    ['((((a{9}){9}){9}){9}){9}', 'repeats too much'],
    ['x{999999}', 'repeats too much'],
    ['[a-z]{600}[0-9]{600}', 'repeats too much'],
    ['(?=a)b', 'is not a pattern'],
    ['(?<=a)b', 'is not a pattern'],
    ['(a)\\1', 'is not a pattern'],
    ['(', 'is not a pattern'],
    ['a'.repeat(513), 'at most 512 characters'],
  ])('%s is refused: %s', (pattern, problem) => {
    expect(patternProblem(pattern)).toContain(problem);
  });

  it.each([
    ['^cc-[0-9]{4}$', 'cc-1234', true],
    ['^cc-[0-9]{4}$', 'cc-12', false],
    ['team', 'my team', true],
    ['^[^]a]+$', 'bc', true],
    ['^\\{2\\}$', '{2}', true],
    ['^[[:alpha:]{9}]$', '{', true],
    ['^(a+)+$', `${'a'.repeat(100)}!`, false],
  ])('%s and %s', (pattern, text, wanted) => {
    expect(patternProblem(pattern)).toBeNull();
    expect(matchesPattern(pattern, text)).toBe(wanted);
  });

  it('a text that is too long for its pattern is not searched', () => {
    const pattern = '(ab|cd){100}';
    expect(patternProblem(pattern)).toBeNull();
    expect(matchesPattern(pattern, 'x'.repeat(1_000_000))).toBeNull();
  });

  it('judging any pattern never throws, is quick, and what it lets pass is small and can be matched', () => {
    const atoms = [
      'a',
      '.',
      '\\d',
      '[a-z]',
      '[^0-9]',
      '(',
      ')',
      '(?:',
      '|',
      '*',
      '+',
      '?',
      '{9}',
      '{2,40}',
      '{300}',
      '\\',
    ];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...atoms), { maxLength: 60 }), (parts) => {
        const pattern = parts.join('');
        const started = cpu();
        const problem = patternProblem(pattern);
        expect(cpu() - started).toBeLessThan(200);
        if (problem === null) expect(typeof matchesPattern(pattern, 'abc 123')).toBe('boolean');
      }),
      { numRuns: 500 },
    );
  });
});

describe('patterns that ignore case', () => {
  it('may have ranges of any script, but none that stand for most of Unicode', () => {
    for (const fine of ['(?i)[а-я]+', '(?i)[À-ɏ]{3,20}', '(?i)[一-龥]{2,10}', '(?i)\\p{L}+[a-z0-9-]', '[Ā-ꙮ][Ā-ꙮ]'])
      expect(patternProblem(fine), fine).toBeNull();
    for (const wide of ['(?i)[Ā-ꙮ]', '(?im)x[\\x{100}-\\x{1e000}]', `(?i)${'[一-龥]'.repeat(3)}`, '(?i)[Ā-ꙮĀ-ꙮ]'])
      expect(patternProblem(wide), wide).toContain('ranges');
  });
});
