/**
 * Takes pictures, sound and files out of a body as it passes: of each long text in base64 stays what it was, how long, and its
 * SHA-256. Everything else passes unread: a long run covers whole steps of bytes, so one byte of each step is looked at.
 */
import { createHash, type Hash } from 'node:crypto';

/** Longer texts in base64 are left out. */
const LONG = 4096;
/** Any run of `LONG` covers one of the places that are looked at. */
const STEP = LONG / 2;
/** A place is only looked at more closely when so many bytes around it could be base64. */
const CLOSE = 64;
const MARK = /^(?:data:[^,]{0,100},)?\[omitted ([\w.+-]+\/[\w.+-]+) (\d+) ([0-9a-f]{64})\]$/;

/** By character code: whether base64 has it, also that of URLs, and the slash that JSON escapes. */
const BASE64 = new Uint8Array(256);
for (const character of 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\\') {
  BASE64[character.charCodeAt(0)] = 1;
}

/** Put in the place of a text that was left out. */
export interface Omitted {
  readonly omitted: true;
  /** Media type. */
  readonly type: string;
  /** Of the decoded content. */
  readonly bytes: number;
  readonly sha256: string;
}

export class Base64Omitter {
  /** How many texts were left out. */
  omitted = 0;
  readonly #out: (bytes: Buffer) => void;
  /** The end of what came: a run that may become a long one. */
  #held: Buffer | null = null;
  #run: { readonly hash: Hash; bytes: number; rest: string; readonly type: string } | null = null;
  /** The last bytes that were given, where the type of a run may stand. */
  #before = '';

  /** @param out takes what stays; it must copy it */
  constructor(out: (bytes: Buffer) => void) {
    this.#out = out;
  }

  push(bytes: Buffer): void {
    let piece = bytes;
    if (this.#held !== null) {
      piece = Buffer.concat([this.#held, bytes]);
      this.#held = null;
    }
    this.#take(piece);
  }

  end(): void {
    if (this.#run !== null) this.#endRun();
    if (this.#held !== null) this.#give(this.#held);
    this.#held = null;
  }

  #take(piece: Buffer): void {
    let from = 0;
    if (this.#run !== null) {
      from = runEnd(piece, 0);
      this.#feed(piece, 0, from);
      if (from === piece.length) return;
      this.#endRun();
    }
    for (let at = from + STEP - 1; at < piece.length; ) {
      const start = looksLong(piece, at) ? runStart(piece, at, from) : at;
      const end = start < at ? runEnd(piece, at) : at;
      if (end - start < LONG) {
        at = Math.max(at, end) + STEP;
        continue;
      }
      this.#give(piece.subarray(from, start));
      this.#run = { hash: createHash('sha256'), bytes: 0, rest: '', type: this.#typeOf(piece, start) };
      this.#feed(piece, start, end);
      if (end === piece.length) return;
      this.#endRun();
      from = end;
      at = end + STEP - 1;
    }
    const last = Math.max(from, runStart(piece, piece.length - 1, Math.max(from, piece.length - LONG)));
    this.#give(piece.subarray(from, last));
    if (last < piece.length) this.#held = Buffer.from(piece.subarray(last));
  }

  #give(bytes: Buffer): void {
    if (bytes.length === 0) return;
    this.#before = bytes.toString('latin1', Math.max(0, bytes.length - 120));
    this.#out(bytes);
  }

  #feed(piece: Buffer, from: number, to: number): void {
    const run = this.#run;
    if (run === null || from === to) return;
    const text = (run.rest + piece.toString('latin1', from, to)).replaceAll('\\', '');
    const whole = text.length - (text.length % 4);
    run.rest = text.slice(whole);
    this.#hash(run, text.slice(0, whole));
  }

  #hash(run: { readonly hash: Hash; bytes: number }, text: string): void {
    const decoded = Buffer.from(text, 'base64');
    run.hash.update(decoded);
    run.bytes += decoded.length;
  }

  #endRun(): void {
    const run = this.#run;
    if (run === null) return;
    this.#run = null;
    this.#hash(run, run.rest);
    this.omitted += 1;
    this.#give(Buffer.from(`[omitted ${run.type} ${run.bytes} ${run.hash.digest('hex')}]`));
  }

  /** As the address of the data says, else by its first bytes. */
  #typeOf(piece: Buffer, start: number): string {
    const named = /data:([\w.+-]{1,50}\/[\w.+-]{1,50})[^,"]{0,40},$/.exec(this.#before)?.[1];
    return named ?? typeByContent(Buffer.from(piece.toString('latin1', start, start + 24), 'base64'));
  }
}

const CONTENTS: readonly (readonly [string, RegExp])[] = [
  ['image/png', /^\x89PNG/],
  ['image/jpeg', /^\xff\xd8\xff/],
  ['image/gif', /^GIF8/],
  ['image/webp', /^RIFF....WEBP/s],
  ['audio/wav', /^RIFF....WAVE/s],
  ['audio/mpeg', /^(?:ID3|\xff[\xe2-\xff])/],
  ['audio/ogg', /^OggS/],
  ['application/pdf', /^%PDF/],
  ['application/zip', /^PK/],
  ['video/mp4', /^....ftyp/s],
];

function typeByContent(bytes: Buffer): string {
  const text = bytes.toString('latin1');
  return CONTENTS.find(([, first]) => first.test(text))?.[0] ?? 'application/octet-stream';
}

function looksLong(piece: Buffer, at: number): boolean {
  const from = Math.max(0, at - CLOSE);
  for (let i = at; i >= from; i--) if (BASE64[piece[i] ?? 0] !== 1) return false;
  return true;
}

/** The first byte of the run that ends at `at`; `at + 1` where there is none. */
function runStart(piece: Buffer, at: number, least: number): number {
  let start = at;
  while (start >= least && BASE64[piece[start] ?? 0] === 1) start -= 1;
  return start + 1;
}

function runEnd(piece: Buffer, at: number): number {
  let end = at;
  while (end < piece.length && BASE64[piece[end] ?? 0] === 1) end += 1;
  return end;
}

/** The facts of a text that was left out, by what was put in its place; null for any other text. */
export function omittedIn(text: string): Omitted | null {
  const found = text.length > 300 ? null : MARK.exec(text);
  if (found === null) return null;
  return { omitted: true, type: found[1] ?? '', bytes: Number(found[2]), sha256: found[3] ?? '' };
}
