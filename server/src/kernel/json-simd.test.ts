import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { JsonScanError, scanJson } from './json-scan.ts';
import { simdBegin, simdEnd } from './json-simd.ts';

const WINDOW = 32 * 1024;
const THRESHOLD = 1024;
const NEVER = Number.POSITIVE_INFINITY;

/** Where the values of `s` and `z` lie, or the error's message, which holds its reason and offset. */
function outcome(body: Buffer, simdFrom?: number): string {
  try {
    const found = scanJson(body, ['s', 'z'], undefined, simdFrom);
    return JSON.stringify([found.get('s'), found.get('z'), found.insertAt, found.empty]);
  } catch (error) {
    if (error instanceof JsonScanError) return `${error.reason} ${error.offset} ${error.message}`;
    throw error;
  }
}

/** Compares both ways, for all bodies or from the threshold on; a good string may not be left to the loop in silence. */
function agree(body: Buffer, how: 'all' | 'threshold' = 'all'): string {
  const want = outcome(body, NEVER);
  const got = how === 'all' ? outcome(body, 0) : outcome(body);
  if (want.startsWith('[') && simdBegin()) {
    const range = scanJson(body, ['s'], undefined, NEVER).get('s');
    if (range && simdEnd(body, range.start + 1) !== range.end - 1) expect.fail(body.toString('latin1').slice(-200));
  }
  if (got !== want) expect(got, body.toString('latin1').slice(-200)).toBe(want);
  return got;
}

/** A body whose string `s` holds `content`, with room before it that sets its alignment. */
function body(content: string | Buffer, shift = 0, tail = '","z":"\\"z"}'): Buffer {
  const room = Buffer.concat([
    Buffer.alloc(shift, 0x22),
    Buffer.from('{"s":"'),
    Buffer.from(content),
    Buffer.from(tail),
  ]);
  return room.subarray(shift);
}

const GOOD = [
  '\\n',
  '\\"',
  '\\\\',
  '\\/',
  '\\u00e9',
  '\\uD83D\\uDE00',
  '\\n\\n\\"',
  'é',
  '日本',
  '😀',
  '/',
  '',
  '\u007f',
];
const BAD = ['"', '\n', '\0', '\u001f', '\\x', '\\', '\\U00e9', '\\u00g9', '\\u00e', '\\u', '\\0', '\\u"'];
const pieces = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.nat({ max: 40 }).map((n) => 'x'.repeat(n)) },
    { weight: 6, arbitrary: fc.constantFrom(...GOOD) },
    { weight: 1, arbitrary: fc.constantFrom(...BAD) },
  ),
  { maxLength: 30 },
);

describe('simdEnd', () => {
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.resetModules();
  });

  it('serves on this machine and finds the closing quote', () => {
    expect(simdBegin()).toBe(true);
    const text = Buffer.from(`"${'x'.repeat(100_000)}\\"\\u0041"y"`);
    expect(simdEnd(text, 1)).toBe(text.length - 3);
    expect(simdEnd(text, text.length - 1)).toBe(text.length - 1);
    expect(simdEnd(text, text.length)).toBe(-1);
  });

  it('gives the same result or error as the loop for generated strings, mutated or not, at every alignment', () => {
    fc.assert(
      fc.property(pieces, fc.nat(15), fc.nat(), fc.option(fc.nat(255)), (parts, shift, at, byte) => {
        const bytes = body(parts.join(''), shift);
        if (byte !== null) bytes[at % bytes.length] = byte;
        agree(bytes);
      }),
      { numRuns: 20_000 },
    );
  });

  it('agrees for every byte and every escape at each place of three vectors', () => {
    for (let place = 0; place < 49; place++) {
      for (let byte = 0; byte < 128; byte++) {
        const bytes = body('x'.repeat(50));
        bytes[6 + place] = byte;
        agree(bytes);
        bytes[6 + place] = 0x5c;
        bytes[7 + place] = byte;
        agree(bytes);
      }
    }
  });

  it('agrees for every byte as each digit of a \\u escape', () => {
    for (let digit = 0; digit < 4; digit++) {
      for (let byte = 0; byte < 128; byte++) {
        const bytes = body('x\\u0000\\u0000x');
        bytes[9 + digit] = byte;
        const good = /[0-9a-f]/i.test(String.fromCharCode(byte));
        expect(agree(bytes).startsWith('syntax')).toBe(!good);
      }
    }
  });

  it('agrees where a window of the instance ends: escapes, ends and faults that it cuts, and what follows', () => {
    for (const windows of [1, 2]) {
      for (let place = windows * WINDOW - 14; place < windows * WINDOW + 9; place++) {
        for (const item of [...GOOD, ...BAD]) {
          agree(body(`${'x'.repeat(place)}${item}${'x'.repeat(40)}`));
          agree(body(`${'x'.repeat(place)}${item}`, 0, ''));
        }
        expect(agree(body('x'.repeat(place)))).not.toContain('syntax');
      }
    }
  });

  it('agrees for long strings in a row, dense with escapes, with faults far behind', () => {
    fc.assert(
      fc.property(pieces, fc.integer({ min: 1, max: 4000 }), fc.nat(), fc.option(fc.nat(127)), (parts, n, at, byte) => {
        // The cut may leave half an escape.
        const dense = JSON.stringify(parts.join('').repeat(n)).slice(1, -1).slice(0, 90_000);
        const bytes = body(dense, 0, `","z":"${'y\\n'.repeat(n)}"}`);
        if (byte !== null) bytes[at % bytes.length] = byte;
        agree(bytes);
      }),
      { numRuns: 500 },
    );
  });

  it('agrees at the threshold', () => {
    for (let size = THRESHOLD - 3; size <= THRESHOLD + 3; size++) {
      const room = size - body('').length;
      expect(agree(body('x'.repeat(room)), 'threshold')).not.toContain('syntax');
      for (const item of [...GOOD, ...BAD]) {
        const fill = room - Buffer.byteLength(item);
        for (const place of [0, 1, fill - 1, fill]) {
          agree(body('x'.repeat(place) + item + 'x'.repeat(fill - place)), 'threshold');
        }
      }
    }
  });

  it('fails in the same way wherever a body is cut', () => {
    const short = body(`é${'x'.repeat(30)}\\n\\u00e9\\"${'y'.repeat(20)}\\\\`);
    for (let end = 0; end < short.length; end++) agree(short.subarray(0, end));
    const long = body(`${'x\\n'.repeat(11_000)}\\u00e9\\ud83d\\ude00${'\\u00e9'.repeat(6000)}`);
    for (let end = WINDOW - 100; end < WINDOW + 400; end++) {
      expect(agree(long.subarray(0, end))).toMatch(/^syntax /);
    }
    for (let end = long.length - 40; end < long.length; end++) agree(long.subarray(0, end));
  });

  it('leaves all strings to the loop where there is no WebAssembly', async () => {
    vi.resetModules();
    vi.stubGlobal('WebAssembly', undefined);
    const simd = await import('./json-simd.ts');
    const scan = await import('./json-scan.ts');
    expect(simd.simdBegin()).toBe(false);
    const bytes = body('x\\n'.repeat(5000));
    expect(scan.scanJson(bytes, ['z']).get('z')).toEqual({
      start: bytes.length - 6,
      end: bytes.length - 1,
      kind: 'string',
    });
    expect(() => scan.scanJson(body('x'.repeat(5000), 0, '\n"}'), [])).toThrow('control character (at byte 5006)');
  });
});
