import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseExact } from './json-exact.ts';
import { decodeString, type JsonFault, JsonScanError, type ScanLimits, scanJson, spliceParts } from './json-scan.ts';

const NONE: readonly string[] = [];

function fault(body: Buffer, limits: ScanLimits, simdFrom: number): JsonScanError | null {
  try {
    scanJson(body, NONE, limits, simdFrom);
    return null;
  } catch (error) {
    if (error instanceof JsonScanError) return error;
    throw error;
  }
}

/** What is wrong with a body, which both ways of reading strings must agree on. */
function reason(text: string | Buffer, limits: ScanLimits = {}): JsonFault | null {
  const body = typeof text === 'string' ? Buffer.from(text) : text;
  const found = fault(body, limits, Number.POSITIVE_INFINITY);
  const simd = fault(body, limits, 0);
  if (simd?.message !== found?.message) expect(simd?.message, body.toString('latin1')).toBe(found?.message);
  return found?.reason ?? null;
}

/** A slow parser of valid JSON text that says whether any object has a key twice, escapes resolved. */
function hasDuplicate(text: string): boolean {
  let i = 0;
  let found = false;
  const space = () => {
    while (/[ \t\r\n]/.test(text[i] ?? 'x')) i++;
  };
  const string = (): string => {
    const start = i++;
    while (text[i] !== '"') i += text[i] === '\\' ? 2 : 1;
    return JSON.parse(text.slice(start, ++i));
  };
  const value = (): void => {
    space();
    if (text[i] === '{') {
      const seen = new Set<string>();
      i++;
      space();
      while (text[i] !== '}') {
        const key = string();
        if (seen.has(key)) found = true;
        seen.add(key);
        space();
        i++;
        value();
        space();
        if (text[i] === ',') i++;
        space();
      }
      i++;
    } else if (text[i] === '[') {
      i++;
      space();
      while (text[i] !== ']') {
        value();
        space();
        if (text[i] === ',') i++;
        space();
      }
      i++;
    } else if (text[i] === '"') string();
    else while (!/[,\]}\s]/.test(text[i] ?? ',')) i++;
  };
  value();
  return found;
}

/** Verdict of the platform's parser and the oracle: what `scanJson` must agree with. */
function expected(bytes: Buffer): boolean {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return false;
  } catch {
    return false;
  }
  return !hasDuplicate(text);
}

/** The same bytes at each alignment inside a larger buffer: the word loop must not depend on it. */
function aligned(bytes: Buffer, shift: number): Buffer {
  const room = Buffer.alloc(bytes.length + 16, 0x22);
  bytes.copy(room, 4 + shift);
  return room.subarray(4 + shift, 4 + shift + bytes.length);
}

const KEYS = ['a', 'b', 'model', 'stream', '', '__proto__', 'é', '😀', 'a\nb', 'constructor', '\u0000', '\ud800', '�'];
const json = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, depthSize: 'small' },
    fc.string({ unit: 'binary', maxLength: 20 }),
    fc.constantFrom('', '"', '\\', '\n', 'x'.repeat(40), '日本語'.repeat(9), '\u2028', '\ud83d'),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.integer(),
    fc.constantFrom(true, false, null),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(fc.constantFrom(...KEYS), tie('value'), { maxKeys: 4 }),
  ),
}));

/** Text of a value with random spacing, random escapes, and members repeated now and then. */
function write(value: unknown, pick: () => number, duplicates: boolean): string {
  const space = () => ['', '', '', ' ', '\n', '\t\r'][pick() % 6] ?? '';
  const string = (text: string) => {
    let out = JSON.stringify(text);
    if (pick() % 4 === 0) {
      out = `"${[...Array(text.length).keys()].map((k) => `\\u${text.charCodeAt(k).toString(16).padStart(4, '0')}`).join('')}"`;
    }
    return out;
  };
  if (typeof value === 'string') return string(value);
  if (Array.isArray(value))
    return `[${space()}${value.map((item) => write(item, pick, duplicates)).join(`${space()},${space()}`)}${space()}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(
      ([key, item]) => `${string(key)}${space()}:${space()}${write(item, pick, duplicates)}`,
    );
    if (duplicates && members.length > 0 && pick() % 5 === 0) members.push(members[pick() % members.length] ?? '');
    return `{${space()}${members.join(`${space()},${space()}`)}${space()}}`;
  }
  return JSON.stringify(value);
}

function picker(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state >>> 8;
  };
}

describe('scanJson', () => {
  it('agrees with JSON.parse and a duplicate-key oracle on generated bodies, at every alignment', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.constantFrom(...KEYS), json.value, { maxKeys: 5 }),
        fc.nat(),
        fc.boolean(),
        (value, seed, duplicates) => {
          const bytes = Buffer.from(write(value, picker(seed), duplicates));
          const body = aligned(bytes, seed & 3);
          expect(reason(body) === null).toBe(expected(bytes));
        },
      ),
      { numRuns: 50_000 },
    );
  });

  it('agrees with JSON.parse on bodies broken by one mutation of their bytes', () => {
    const bytes = [
      0x22, 0x5c, 0x7b, 0x7d, 0x5b, 0x5d, 0x2c, 0x3a, 0x30, 0x2d, 0x2e, 0x65, 0x75, 0x74, 0x00, 0x1f, 0x20, 0x0a, 0xff,
      0xc3,
    ];
    fc.assert(
      fc.property(
        fc.dictionary(fc.constantFrom(...KEYS), json.value, { maxKeys: 4 }),
        fc.nat(),
        fc.nat(),
        fc.constantFrom('replace', 'insert', 'delete', 'cut'),
        fc.constantFrom(...bytes),
        (value, seed, at, how, byte) => {
          const whole = Buffer.from(write(value, picker(seed), false));
          const k = at % whole.length;
          const tail = whole.subarray(how === 'insert' ? k : k + 1);
          const mutated =
            how === 'cut'
              ? whole.subarray(0, k)
              : Buffer.concat([whole.subarray(0, k), ...(how === 'delete' ? [] : [Buffer.from([byte])]), tail]);
          const found = reason(aligned(mutated, seed & 3), { number: 1e9 });
          expect(found === null, mutated.toString('latin1')).toBe(expected(mutated));
        },
      ),
      { numRuns: 50_000 },
    );
  });

  it('finds the byte range and kind of each wanted top-level member and nothing deeper', () => {
    const kinds: [string, string][] = [
      ['"x\\"y"', 'string'],
      ['-1.5e3', 'number'],
      ['true', 'true'],
      ['false', 'false'],
      ['null', 'null'],
      ['{"model":{"model":1}}', 'object'],
      ['[{"model":2},[]]', 'array'],
      ['{}', 'object'],
    ];
    for (const [text, kind] of kinds) {
      for (const body of [`{"a":{"model":0},"model":${text}}`, ` {"model" :\n ${text} , "z":1} `]) {
        const buf = Buffer.from(body);
        const range = scanJson(buf, ['stream', 'model']).get('model');
        expect(range?.kind).toBe(kind);
        expect(buf.toString('utf8', range?.start, range?.end)).toBe(text);
      }
    }
    expect(scanJson(Buffer.from('{"a":{"model":1}}'), ['model']).get('model')).toBeUndefined();
    expect(scanJson(Buffer.from('{"model":1}'), ['model']).get('other')).toBeUndefined();
  });

  it('finds a wanted member whose key is written with escapes', () => {
    const buf = Buffer.from('{"mod\\u0065l":"gpt"}');
    const range = scanJson(buf, ['model']).get('model');
    expect(range && decodeString(buf, range)).toBe('gpt');
  });

  it('refuses the second of two keys that differ only in spelling, at any level, and says which', () => {
    for (const body of [
      '{"model":"a","model":"b"}',
      '{"model":"a","\\u006dodel":"b"}',
      '{"x":[{"y":{"k":1,"k":2}}]}',
      '{"x":{"\\ud800":1,"\\uD800":2}}',
      '{"__proto__":1,"__proto__":2}',
      '{"é":1,"\\u00e9":2}',
    ]) {
      expect(reason(body), body).toBe('duplicate_key');
    }
    expect(() => scanJson(Buffer.from('{"model":"a","model":"b"}'), NONE)).toThrow(
      'The body names a key twice in one object: "model" (at byte 14)',
    );
    expect(reason('{"a":{"k":1},"b":{"k":1},"k":1,"c":[{"k":1},{"k":1}]}')).toBeNull();
    expect(reason('{"\\ud800":1,"\ufffd":2}')).toBeNull();
  });

  it.each<[string, JsonFault]>([
    ['', 'empty'],
    [' \n', 'empty'],
    ['[]', 'not_object'],
    ['"x"', 'not_object'],
    ['\ufeff{}', 'byte_order_mark'],
    ['{} x', 'trailing'],
    ['{}{}', 'trailing'],
    ['{"a":1,}', 'syntax'],
    ['{"a":[1,]}', 'syntax'],
    ['{,}', 'syntax'],
    ['{"a":01}', 'syntax'],
    ['{"a":+1}', 'syntax'],
    ['{"a":1.}', 'syntax'],
    ['{"a":.5}', 'syntax'],
    ['{"a":NaN}', 'syntax'],
    ['{"a":\'x\'}', 'syntax'],
    ['{a:1}', 'syntax'],
    ['{"a":"\n"}', 'syntax'],
    ['{"a":"\\x"}', 'syntax'],
    ['{"a":"\\u12"}', 'syntax'],
    ['{"a":tru', 'syntax'],
    ['{"a":1]', 'syntax'],
    ['{"a":[1}', 'syntax'],
    ['{"a":1/*c*/}', 'syntax'],
    ['{"a":"', 'syntax'],
    ['{"a":"\\', 'syntax'],
    ['{"a"', 'syntax'],
    ['{"a":', 'syntax'],
    ['{', 'syntax'],
  ])('refuses %j as %s', (text, fault) => {
    expect(reason(text)).toBe(fault);
  });

  it('refuses bytes that are not UTF-8: overlong forms, surrogates, cut sequences, UTF-16', () => {
    for (const bytes of [[0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xe2, 0x82], [0xff], [0xf5, 0x80, 0x80, 0x80]]) {
      expect(reason(Buffer.concat([Buffer.from('{"a":"'), Buffer.from(bytes), Buffer.from('"}')]))).toBe('encoding');
    }
    expect(reason(Buffer.from('{}', 'utf16le'))).not.toBeNull();
  });

  it('bounds depth, keys and number literals exactly at their limits', () => {
    const nested = (depth: number) => `${'{"a":'.repeat(depth - 1)}{}${'}'.repeat(depth - 1)}`;
    expect(reason(nested(64))).toBeNull();
    expect(reason(nested(65))).toBe('depth');
    expect(reason(`{"a":${'['.repeat(63)}${']'.repeat(63)}}`)).toBeNull();
    expect(reason(`{"a":${'['.repeat(64)}${']'.repeat(64)}}`)).toBe('depth');
    expect(reason(`{"a":${'['.repeat(1_000_000)}`)).toBe('depth');
    const keys = (n: number) => JSON.stringify({ a: Array.from({ length: n - 1 }, () => ({ k: 1 })) });
    expect(reason(keys(20_000))).toBeNull();
    expect(reason(keys(20_001))).toBe('keys');
    expect(reason(`{"a":${'1'.repeat(64)}}`)).toBeNull();
    expect(reason(`{"a":${'1'.repeat(65)}}`)).toBe('number');
    expect(reason('{"a":1,"b":2}', { keys: 1 })).toBe('keys');
  });

  it('bounds values, bytes of keys and what stands outside of strings', () => {
    const list = (value: string, count: number) => `{"a":[${Array(count).fill(value).join(',')}]}`;
    for (const [value, few, many] of [
      ['1', 399_000, 400_500],
      ['""', 399_000, 400_500],
      ['[]', 79_000, 81_000],
      ['12345678901234567', 7_900, 8_100],
      ['0.12345678901234567', 399_000, 400_500],
    ] as const) {
      expect(reason(list(value, few))).toBeNull();
      expect(reason(list(value, many))).toBe('weight');
    }
    expect(reason(list('1', 100), { weight: 50 })).toBe('weight');
    expect(reason(`{"${'k'.repeat(1_000_000)}":1}`)).toBeNull();
    expect(reason(`{"${'k'.repeat(1_100_000)}":1}`)).toBe('keys');
    const wide = (bytes: number, text = '') => `{${' '.repeat(bytes / 2)}"a":"${text}"${'\n'.repeat(bytes / 2)}}`;
    expect(reason(wide(8_000_000, 'x'.repeat(9_000_000)))).toBeNull();
    expect(reason(wide(8_400_000))).toBe('weight');
    expect(reason(`{"a":1}${' '.repeat(9_000_000)}`)).toBe('weight');
    expect(reason(`{"a":1${' '.repeat(9_000_000)}`)).toBe('weight');
    expect(reason(`{"a":${' '.repeat(9_000_000)}1}`)).toBe('weight');
  });

  it('lets nothing through that is refused when it is parsed', () => {
    const values = [
      '1',
      '""',
      '[]',
      '{}',
      '{"k":1}',
      '12345678901234567',
      '1e999',
      '[[[]]]',
      '{"a":[{"b":[]}]}',
      'null',
    ];
    for (const value of values) {
      for (const count of [1_000, 8_000, 19_000, 79_000, 399_000]) {
        const text = `{"a":[${Array(count).fill(value).join(',')}]}`;
        if (reason(text, { keys: 1_000_000 }) === null) expect(() => parseExact(text)).not.toThrow();
      }
    }
  });

  it('stays fast on hostile bodies: many keys, long common prefixes, deep nesting, endless digits', () => {
    const prefix = 'p'.repeat(45);
    const bodies = [
      `{${Array.from({ length: 20_000 }, (_, k) => `"${k}":1`).join(',')}}`,
      `{${Array.from({ length: 19_000 }, (_, k) => `"${prefix}${k}":1`).join(',')}}`,
      `{${Array.from({ length: 20_000 }, (_, k) => `"\\u0061${k}":1`).join(',')}}`,
      `{"a":[${'{},'.repeat(75_000)}{}]}`,
      `{"a":"${'\\n'.repeat(2_000_000)}"}`,
    ];
    for (const body of bodies) {
      const buf = Buffer.from(body);
      // CPU time and the best of three: the machine may be busy with other things.
      const spent = Array.from({ length: 3 }, () => {
        const before = process.cpuUsage();
        scanJson(buf, NONE);
        const { user, system } = process.cpuUsage(before);
        return (user + system) / 1000;
      });
      expect(Math.min(...spent), body.slice(0, 20)).toBeLessThan(30 + buf.length / 20_000);
    }
  });
});

describe('decodeString', () => {
  it('gives the text JSON.parse gives', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), (text, other) => {
        const buf = Buffer.from(JSON.stringify({ other, text, last: '\\' }));
        const range = scanJson(buf, ['text']).get('text');
        expect(range && decodeString(buf, range)).toBe(text);
      }),
    );
  });
});

describe('spliceParts', () => {
  it('replaces and inserts without touching any other byte, and shares the memory of the body', () => {
    const buf = Buffer.from('{"model":"@a/x","n":1,"stream":false}');
    const scan = scanJson(buf, ['model', 'stream']);
    const model = scan.get('model');
    const stream = scan.get('stream');
    if (!model || !stream) throw new Error('members not found');
    const parts = spliceParts(buf, [
      { ...stream, bytes: Buffer.from('true') },
      { ...model, bytes: Buffer.from('"x"') },
      { start: scan.insertAt, end: scan.insertAt, bytes: Buffer.from('"extra":{},') },
    ]);
    expect(Buffer.concat(parts).toString()).toBe('{"extra":{},"model":"x","n":1,"stream":true}');
    expect(parts[0]?.buffer).toBe(buf.buffer);
    expect(spliceParts(buf, [])).toEqual([buf]);
    expect(scanJson(Buffer.from(' { } '), []).empty).toBe(true);
    expect(scanJson(Buffer.from('{"a":[]}'), []).empty).toBe(false);
  });

  it('refuses overlapping or outlying edits', () => {
    const buf = Buffer.from('{"a":1}');
    const bytes = Buffer.from('x');
    expect(() =>
      spliceParts(buf, [
        { start: 1, end: 3, bytes },
        { start: 2, end: 4, bytes },
      ]),
    ).toThrow(RangeError);
    expect(() => spliceParts(buf, [{ start: 1, end: 99, bytes }])).toThrow(RangeError);
  });
});
