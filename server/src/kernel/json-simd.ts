/**
 * The end of a JSON string, found 16 bytes at a time by WebAssembly. Used by `json-scan.ts` only, whose loop in
 * JavaScript stays the reference: it serves short bodies and machines without SIMD, and names every fault. The module
 * is 300 bytes that a small encoder below writes out, so there is no build step and no binary to trust. The first body
 * that is long enough makes it, once, for about 2 ms and 2 MB, nearly all of it V8's own machinery. Its memory is one
 * page of 64 KB whatever the bodies: they pass through it window by window.
 */

/** The memory: the kind of escape each byte makes, which bytes are hex digits, the window. Loads reach 15 bytes on. */
const ESCAPE_TABLE = 0;
const HEX_TABLE = 256;
const WINDOW_AT = 512;
const WINDOW = 32 * 1024;
const SIMPLE = 2;
const UNICODE = 6;

/** Bytes of one WebAssembly construct, nested as they are written; numbers in them are LEB128. */
type Part = number | readonly Part[];

function flat(part: Part): number[] {
  return typeof part === 'number' ? [part] : part.flatMap(flat);
}

/** An unsigned number below 2^14. */
const unsigned = (value: number): Part => (value < 0x80 ? value : [(value & 0x7f) | 0x80, value >> 7]);
const sized = (part: Part): Part => [unsigned(flat(part).length), part];
const section = (id: number, part: Part): Part => [id, sized(part)];

const I32 = 0x7f;
const V128 = 0x7b;
const get = (local: number): Part => [0x20, local];
const set = (local: number): Part => [0x21, local];
/** As `set`, with the value left on the stack. */
const tee = (local: number): Part => [0x22, local];
/** An `i32` from -8192 to 8191. */
const int = (value: number): Part => [0x41, (value & 0x7f) | 0x80, (value >> 7) & 0x7f];
const load8 = (offset: number): Part => [0x2d, 0, unsigned(offset)];
const isZero: Part = 0x45;
const equal: Part = 0x46;
const trailingZeros: Part = 0x68;
const add: Part = 0x6a;
const and: Part = 0x71;
const xor: Part = 0x73;
const loop = (body: Part): Part => [0x03, 0x40, body, 0x0b];
const when = (then: Part, otherwise?: Part): Part => [0x04, 0x40, then, otherwise ? [0x05, otherwise] : [], 0x0b];
/** Goes back to the start of the loop that is `up` blocks further out. */
const again = (up: number): Part => [0x0c, up];
const againIf = (up: number): Part => [0x0d, up];
const giveBack: Part = 0x0f;
const unreachable: Part = 0x00;

/** Vectors of 16 bytes; a lane of a comparison is all ones where it holds. */
const load16: Part = [0xfd, unsigned(0x00), 0, 0];
const lanes = (byte: number): Part => [0xfd, unsigned(0x0c), Array<number>(16).fill(byte)];
const equalLanes: Part = [0xfd, unsigned(0x23)];
const atMostLanes: Part = [0xfd, unsigned(0x2a)];
const orLanes: Part = [0xfd, unsigned(0x50)];
const xorLanes: Part = [0xfd, unsigned(0x51)];
const bitOfEachLane: Part = [0xfd, unsigned(0x64)];

const QUOTE = int(0x22);
const BACKSLASH = int(0x5c);

/**
 * `find(at)`: the address of the first quote from `at` on that no escape holds, or `-1 - address` of the first byte
 * that is not allowed there: a control character, or the backslash of a bad escape. The caller ends the text with a
 * zero byte, which stops everything that begins before it, so nothing counts bytes.
 */
function moduleBytes(): Uint8Array<ArrayBuffer> {
  const at = 0;
  const byte = 1;
  const text = 2;
  const move = (by: number): Part => [get(at), int(by), add, set(at)];
  const fault: Part = [get(at), int(-1), xor, giveBack];
  const isHex = (offset: number): Part => [get(at), load8(offset), load8(HEX_TABLE)];

  const body: Part = [
    [2, [1, I32], [1, V128]],
    loop([
      // After `^ 2` the quote and the control characters, and nothing else, are at most 0x20.
      [get(at), load16, tee(text), lanes(2), xorLanes, lanes(0x20), atMostLanes],
      [get(text), lanes(0x5c), equalLanes, orLanes, bitOfEachLane, tee(byte), isZero],
      when([move(16), again(1)]),
      [get(at), get(byte), trailingZeros, add, tee(at), load8(0), tee(byte)],
      [QUOTE, equal, when([get(at), giveBack])],
      [get(byte), BACKSLASH, equal, isZero, when(fault)],
      // Escapes come in runs, above all in text that is made of them.
      loop([
        [get(at), load8(1), load8(ESCAPE_TABLE), tee(byte), int(SIMPLE), equal],
        when(move(2), [
          [get(byte), int(UNICODE), equal, isHex(2), and, isHex(3), and, isHex(4), and, isHex(5), and],
          [isZero, when(fault), move(6)],
        ]),
        [get(at), load8(0), BACKSLASH, equal, againIf(0)],
        again(1),
      ]),
    ]),
    [unreachable, 0x0b],
  ];
  return new Uint8Array(
    flat([
      [0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
      section(1, [1, 0x60, [1, I32], [1, I32]]), // one type: i32 to i32
      section(3, [1, 0]), // one function of that type
      section(5, [1, 1, 1, 1]), // one memory, of one page and never more
      section(7, [2, [4, ...Buffer.from('find'), 0, 0], [6, ...Buffer.from('memory'), 2, 0]]),
      section(10, [1, sized(body)]),
    ]),
  );
}

/** What is used of the platform's WebAssembly; the compiler knows it only together with the whole DOM. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array<ArrayBuffer>) => object;
  readonly Instance: new (module: object) => { readonly exports: Exports };
};

interface Exports {
  readonly memory: { readonly buffer: ArrayBuffer };
  readonly find: (at: number) => number;
}

let find: Exports['find'] | null = null;
let memory = Buffer.alloc(0);
let tried = false;

/** What the body's offsets are less than addresses, and the offset where the window ends; 0 before the first one. */
let base = 0;
let windowEnd = 0;

function start(): void {
  tried = true;
  try {
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(moduleBytes()));
    memory = Buffer.from(exports.memory.buffer);
    for (const c of '"\\/bfnrt') memory[ESCAPE_TABLE + c.charCodeAt(0)] = SIMPLE;
    memory[ESCAPE_TABLE + 0x75] = UNICODE;
    for (const c of '0123456789abcdefABCDEF') memory[HEX_TABLE + c.charCodeAt(0)] = 1;
    find = exports.find;
  } catch {
    // No WebAssembly (`--jitless`), no SIMD in this processor, or no room for the instance: the reference serves.
  }
}

/** Begins another body. False where `simdEnd` cannot serve. */
export function simdBegin(): boolean {
  if (!tried) start();
  windowEnd = 0;
  return find !== null;
}

/**
 * Offset of the closing quote of the string whose first content byte is at `from`, or -1 when it has a fault. Calls for
 * one body must go forward in it. A call costs about 7 ns and each 32 KB of body about 0.6 µs to copy.
 */
export function simdEnd(buf: Buffer, from: number): number {
  if (find === null) return -1;
  const n = buf.length;
  let i = from;
  for (;;) {
    if (i >= windowEnd) {
      windowEnd = Math.min(n, i + WINDOW);
      base = i - WINDOW_AT;
      buf.copy(memory, WINDOW_AT, i, windowEnd);
      memory[windowEnd - base] = 0;
    }
    const at = find(i - base);
    if (at >= 0) return base + at;
    i = base - 1 - at;
    // What stopped it is the window's end, or an escape that it cuts, or a fault.
    if (windowEnd === n || i + UNICODE <= windowEnd) return -1;
    windowEnd = i;
  }
}
