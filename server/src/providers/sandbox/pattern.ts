import type { RE2JS } from 're2js';
import { Lru } from '../../kernel/lru.ts';
import { compilePattern } from '../../kernel/pattern.ts';

/**
 * Makes a text that matches a regular expression of a JSON Schema. Reads the part of the syntax that schemas use;
 * look-arounds and back-references are not made. Matching itself is linear in time (`re2js`).
 */

const MAX_PATTERN = 1_000;
const MAX_TEXT = 10_000;

const compiled = new Lru<string, RE2JS | null>({ maxEntries: 200 });

function compile(pattern: string): RE2JS | null {
  if (pattern.length > MAX_PATTERN) return null;
  const known = compiled.get(pattern);
  if (known !== undefined) return known;
  let made: RE2JS | null = null;
  try {
    made = compilePattern(pattern);
  } catch {
    // A pattern that cannot be read matches nothing.
  }
  compiled.set(pattern, made);
  return made;
}

/** Whether the pattern was compiled before: compiling costs far more than matching. */
export function isCompiled(pattern: string): boolean {
  return compiled.has(pattern);
}

/** Whether `pattern` is found in `text`; a pattern that cannot be read matches nothing. */
export function matches(pattern: string, text: string): boolean {
  return compile(pattern)?.matcher(text).find() ?? false;
}

const PRINTABLE =
  'a0Ab1B-_ .,:;/@#+=!?%&*()[]{}<>|~^$\'"`\\cdefghijklmnopqrstuvwxyz23456789CDEFGHIJKLMNOPQRSTUVWXYZ\t\n';

/** Which characters an escape such as `\d` stands for. */
const CLASSES: Readonly<Record<string, (c: string) => boolean>> = {
  d: (c) => c >= '0' && c <= '9',
  w: (c) => /^[A-Za-z0-9_]$/.test(c),
  s: (c) => c === ' ' || c === '\t' || c === '\n',
};

type Test = (c: string) => boolean;

class Unreadable extends Error {}

/** Writes the shortest text it can, repeating open-ended parts `extra` times more. */
class Writer {
  readonly #pattern: string;
  readonly #extra: number;
  readonly #variant: number;
  #at = 0;

  constructor(pattern: string, extra: number, variant: number) {
    this.#pattern = pattern;
    this.#extra = extra;
    this.#variant = variant;
  }

  write(): string {
    const text = this.#alternatives();
    if (this.#at < this.#pattern.length) throw new Unreadable();
    return text;
  }

  #peek(): string {
    return this.#pattern.charAt(this.#at);
  }

  #next(): string {
    return this.#pattern.charAt(this.#at++);
  }

  #alternatives(): string {
    const options = [this.#sequence()];
    while (this.#peek() === '|') {
      this.#at += 1;
      options.push(this.#sequence());
    }
    return options[this.#variant % options.length] ?? '';
  }

  #sequence(): string {
    let out = '';
    while (this.#at < this.#pattern.length && this.#peek() !== '|' && this.#peek() !== ')') {
      const part = this.#atom();
      out += this.#repeated(part);
      if (out.length > MAX_TEXT) throw new Unreadable();
    }
    return out;
  }

  #atom(): string {
    const c = this.#next();
    switch (c) {
      case '^':
      case '$':
        return '';
      case '.':
        return this.#pick(() => true);
      case '[':
        return this.#pick(this.#set());
      case '(':
        return this.#group();
      case '\\':
        return this.#escape();
      case '*':
      case '+':
      case '?':
        throw new Unreadable();
      default:
        return c;
    }
  }

  #group(): string {
    if (this.#peek() === '?') {
      const head = /^\?(?::|P?<[A-Za-z_]\w*>)/.exec(this.#pattern.slice(this.#at));
      if (head === null) throw new Unreadable();
      this.#at += head[0].length;
    }
    const text = this.#alternatives();
    if (this.#next() !== ')') throw new Unreadable();
    return text;
  }

  #escape(): string {
    const c = this.#next();
    const lower = c.toLowerCase();
    const known = CLASSES[lower];
    if (known !== undefined) return this.#pick(c === lower ? known : (x) => !known(x));
    if (c === 'b' || c === 'B' || c === 'A' || c === 'z') return '';
    return this.#literal(c);
  }

  #literal(c: string): string {
    const control = { n: '\n', t: '\t', r: '\r', f: '\f', v: '\v' }[c];
    if (control !== undefined) return control;
    const hex = c === 'x' ? 2 : c === 'u' ? 4 : 0;
    if (hex > 0) {
      const digits = this.#pattern.slice(this.#at, this.#at + hex);
      if (!/^[0-9a-fA-F]+$/.test(digits) || digits.length !== hex) throw new Unreadable();
      this.#at += hex;
      return String.fromCharCode(Number.parseInt(digits, 16));
    }
    if (/[A-Za-z0-9]/.test(c) || c === '') throw new Unreadable();
    return c;
  }

  #set(): Test {
    const negated = this.#peek() === '^';
    if (negated) this.#at += 1;
    const tests: Test[] = [];
    for (let first = true; ; first = false) {
      let c = this.#next();
      if (c === '') throw new Unreadable();
      if (c === ']' && !first) break;
      if (c === '\\') {
        const kind = this.#next();
        const known = CLASSES[kind.toLowerCase()];
        if (known !== undefined) {
          tests.push(kind === kind.toLowerCase() ? known : (x) => !known(x));
          continue;
        }
        c = this.#literal(kind);
      }
      if (this.#peek() === '-' && this.#pattern.charAt(this.#at + 1) !== ']') {
        this.#at += 1;
        let end = this.#next();
        if (end === '\\') end = this.#literal(this.#next());
        const low = c;
        tests.push((x) => x >= low && x <= end);
      } else {
        const one = c;
        tests.push((x) => x === one);
      }
    }
    return (x) => tests.some((test) => test(x)) !== negated;
  }

  #pick(test: Test): string {
    const fitting = [...PRINTABLE].filter(test);
    const c = fitting[this.#variant % Math.max(1, fitting.length)];
    if (c !== undefined) return c;
    for (let code = 0xa0; code < 0x3000; code++) {
      const other = String.fromCharCode(code);
      if (test(other)) return other;
    }
    throw new Unreadable();
  }

  #repeated(part: string): string {
    const c = this.#peek();
    let min = 1;
    let open = false;
    let max = 1;
    if (c === '*' || c === '+' || c === '?') {
      this.#at += 1;
      min = c === '+' ? 1 : 0;
      open = c !== '?';
      max = open ? Number.POSITIVE_INFINITY : 1;
    } else if (c === '{') {
      const counts = /^\{(\d{1,5})(,(\d{1,5})?)?\}/.exec(this.#pattern.slice(this.#at));
      if (counts === null) return part;
      this.#at += counts[0].length;
      min = Number(counts[1]);
      max = counts[2] === undefined ? min : counts[3] === undefined ? Number.POSITIVE_INFINITY : Number(counts[3]);
      open = max > min;
    } else return part;
    if (this.#peek() === '?') this.#at += 1;
    const count = open ? Math.min(max, min + this.#extra) : min;
    if (count * part.length > MAX_TEXT) throw new Unreadable();
    return part.repeat(count);
  }
}

/** A text of `min` to `max` characters that matches `pattern`, or null when none is found. */
export function textMatching(pattern: string, min: number, max: number, variant: number): string | null {
  const matcher = compile(pattern);
  if (matcher === null) return null;
  const fits = (text: string): boolean => text.length >= min && text.length <= max && matcher.matcher(text).find();
  for (const extra of [0, 1, 2, 4, min, min * 2]) {
    try {
      const text = new Writer(pattern, extra, variant).write();
      for (const candidate of [text, text.padEnd(min, 'x')]) if (fits(candidate)) return candidate;
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      break;
    }
  }
  const plain = 'sandbox'.slice(0, Math.min(7, max)).padEnd(min, 'x');
  return fits(plain) ? plain : null;
}
