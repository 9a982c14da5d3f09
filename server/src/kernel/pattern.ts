/**
 * Patterns that operators write. They never reach `RegExp`: `re2js` matches in linear time, and what linear
 * time still allows to be expensive, a large program over a long text, is bounded here.
 */
import { createRequire } from 'node:module';
import type { RE2JS } from 're2js';
import { Lru } from './lru.ts';

const require = createRequire(import.meta.url);
let library: typeof import('re2js') | null = null;

/**
 * A pattern of RE2 syntax; throws for what is none. The library is loaded with the first one: half a megabyte that a server
 * without patterns does not hold. Nothing is kept here: callers keep what they use again.
 */
export function compilePattern(pattern: string): RE2JS {
  library ??= require('re2js') as typeof import('re2js');
  return library.RE2JS.compile(pattern);
}

/** What a pattern may cost: characters (code points) of its text and instructions of its program. */
export interface PatternLimits {
  readonly characters: number;
  readonly program: number;
}

const SMALL: PatternLimits = { characters: 512, program: 1_000 };
/** Program size × input length that is matched at once: about 14 ms. */
const MAX_WORK = 500_000;

const compiled = new Lru<string, RE2JS>({ maxEntries: 500 });

/** What is wrong with a pattern, as a phrase; null for one that may be stored. */
export function patternProblem(pattern: string, limits = SMALL): string | null {
  if (pattern.length > limits.characters * 2 || [...pattern].length > limits.characters)
    return `must have at most ${limits.characters} characters`;
  // Compiling is what costs: a repetition of a repetition is unrolled. It is judged before it is done.
  if (unrolled(pattern) > limits.program) return 'repeats too much: use smaller counts';
  if (folded(pattern) > limits.program * FOLDS) return 'ignores the case of ranges that are too wide: use smaller ones';
  try {
    return compile(pattern).programSize() > limits.program ? 'is too large a pattern' : null;
  } catch {
    return 'is not a pattern that can be used here (RE2 syntax, without look-around and back-references)';
  }
}

/** What a pattern costs to compile, about three microseconds each; known without compiling it. */
export function patternCost(pattern: string): number {
  const classes = pattern.match(/\\[pP]/g)?.length ?? 0;
  return 5 + pattern.length + unrolled(pattern) + 30 * classes + Math.ceil(folded(pattern) / FOLDS);
}

/** Instructions of the program, which each character of a text may cost; of a pattern without problem only. */
export function patternSize(pattern: string): number {
  return compile(pattern).programSize();
}

/** Whether matching may be done at once: what is more is about 14 ms of work or more, and worth a separate thread. */
export function isQuickMatch(pattern: string, length: number): boolean {
  return compile(pattern).programSize() * length <= MAX_WORK;
}

/** Where `pattern` is first found in `text`, in UTF-16 units; null where it is not. Costs several times a mere test. */
export function findPattern(pattern: string, text: string): { readonly start: number; readonly end: number } | null {
  const matcher = compile(pattern).matcher(text);
  return matcher.find() ? { start: matcher.start(), end: matcher.end() } : null;
}

/** Whether the whole pattern is found in `text`; null when the text is too long to be searched. */
export function matchesPattern(pattern: string, text: string): boolean | null {
  const expression = compile(pattern);
  return expression.programSize() * text.length > MAX_WORK ? null : expression.test(text);
}

function compile(pattern: string): RE2JS {
  const known = compiled.get(pattern);
  if (known !== undefined) return known;
  const made = compilePattern(pattern);
  compiled.set(pattern, made);
  return made;
}

/** How many atoms are left once the counted repetitions are written out: a bound of the program, in one pass. */
function unrolled(pattern: string): number {
  const open: number[] = [0];
  let last = 0;
  const add = (size: number) => {
    open.push((open.pop() ?? 0) + size);
    last = size;
  };
  for (let i = 0; i < pattern.length; i++) {
    const c = pattern[i];
    const count = c === '{' ? /^\{(\d{0,6})(?:,(\d{0,6}))?\}/.exec(pattern.slice(i, i + 16)) : null;
    if (count) {
      const times = Math.max(Number(count[1] || 0), Number(count[2] || 0), 1);
      add(last * (times - 1));
      last *= times;
      i += count[0].length - 1;
    } else if (c === '(') {
      open.push(0);
    } else if (c === ')' && open.length > 1) {
      add((open.pop() ?? 0) + 2);
    } else {
      if (c === '\\') i += 1;
      else if (c === '[') i = classEnd(pattern, i);
      add(1);
    }
  }
  return open.reduce((sum, size) => sum + size, 0);
}

/** Characters whose cases cost as much to compile as one instruction. */
const FOLDS = 30;
const RANGE =
  /(?:\\x\{([0-9a-fA-F]{1,8})\}|\\x([0-9a-fA-F]{2})|\\?([^\\]))-(?:\\x\{([0-9a-fA-F]{1,8})\}|\\x([0-9a-fA-F]{2})|\\?([^\\\]]))/gu;

/** How many characters are in ranges of classes, where case is ignored: each is looked up for its other cases. */
function folded(pattern: string): number {
  if (!/\(\?[a-zA-Z]*i/.test(pattern)) return 0;
  let width = 0;
  for (let i = 0; i < pattern.length; i++) {
    if (pattern[i] === '\\') i += 1;
    else if (pattern[i] === '[') {
      const end = classEnd(pattern, i);
      for (const [, hex, byte, from, toHex, toByte, to] of pattern.slice(i + 1, end).matchAll(RANGE))
        width += Math.max(0, codeOf(toHex ?? toByte, to) - codeOf(hex ?? byte, from));
      i = end;
    }
  }
  return width;
}

const codeOf = (hex: string | undefined, text = ''): number =>
  hex === undefined ? (text.codePointAt(0) ?? 0) : Number.parseInt(hex, 16);

/** Index of the bracket that ends the class which begins at `start`. */
function classEnd(pattern: string, start: number): number {
  let i = start + 1;
  if (pattern[i] === '^') i += 1;
  if (pattern[i] === ']') i += 1;
  for (; i < pattern.length && pattern[i] !== ']'; i++) {
    if (pattern[i] === '\\') i += 1;
    else if (pattern.startsWith('[:', i)) i = Math.max(i, pattern.indexOf(':]', i) + 1);
  }
  return i;
}
