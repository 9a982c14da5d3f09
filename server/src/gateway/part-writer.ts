/** One body on its way into the log: masked, without pictures and files, cut, and in pieces as it passes. */
import { createHash, type Hash } from 'node:crypto';
import type { BodyPart, PartFacts } from '../telemetry/bodies/frame.ts';
import { Base64Omitter } from '../telemetry/bodies/omit-base64.ts';
import type { BodyLog } from './body-log.ts';

/** Bytes that are looked at and written at once: of streams, and of what is at hand as a whole. */
const PIECE_BYTES = 8 * 1024;
const STAR = 0x2a;
/** Memory for pieces, used again: a fresh one for each body is more work than the rest. */
const SPARE_BYTES = PIECE_BYTES + 1024;
const MOST_SPARE = 64;
const spare: Buffer[] = [];

function memoryOf(bytes: number): Buffer {
  if (bytes > SPARE_BYTES) return Buffer.allocUnsafeSlow(bytes);
  return (spare.pop() ?? Buffer.allocUnsafeSlow(SPARE_BYTES)).subarray(0, bytes);
}

function giveBack({ buffer }: Buffer): void {
  if (buffer.byteLength === SPARE_BYTES && spare.length < MOST_SPARE) spare.push(Buffer.from(buffer));
}

export interface PartPlan {
  readonly requestId: string;
  readonly part: BodyPart;
  readonly attempt: number;
  /** Longest kept part, bytes. */
  readonly limit: number;
  /** Texts that are not kept wherever they stand. */
  readonly secrets: readonly Buffer[];
  /** The media type of what is no text, of which only that and its digest are kept; null for a text. */
  readonly binary: string | null;
}

export class PartWriter {
  readonly #log: BodyLog;
  readonly #plan: PartPlan;
  readonly #omitter: Base64Omitter;
  readonly #hash: Hash | null;
  /** Bytes behind each piece that may begin a secret. */
  readonly #overlap: number;
  #staged: Buffer | null = null;
  #used = 0;
  #bytes = 0;
  #kept = 0;
  #truncated = false;
  #lost = false;

  constructor(log: BodyLog, plan: PartPlan) {
    this.#log = log;
    this.#plan = plan;
    this.#omitter = new Base64Omitter((bytes) => this.#give(bytes));
    this.#hash = plan.binary === null ? null : createHash('sha256');
    this.#overlap = Math.max(0, ...plan.secrets.map(({ length }) => length - 1));
  }

  get part(): BodyPart {
    return this.#plan.part;
  }

  /** Of the whole body so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A piece of it was dropped: the request is kept without bodies. */
  get lost(): boolean {
    return this.#lost;
  }

  get facts(): Pick<PartFacts, 'bytes' | 'truncated' | 'omitted'> {
    const { omitted } = this.#omitter;
    return {
      bytes: this.#bytes,
      truncated: this.#truncated || undefined,
      omitted: this.#hash !== null ? 1 : omitted === 0 ? undefined : omitted,
    };
  }

  /** Copies what is kept of the bytes. */
  write(bytes: Buffer): void {
    this.#bytes += bytes.length;
    if (this.#truncated || this.#lost) return;
    if (this.#hash !== null) {
      this.#hash.update(bytes);
      return;
    }
    this.#staged ??= memoryOf(PIECE_BYTES + this.#overlap);
    for (let at = 0; at < bytes.length; ) {
      const copied = bytes.copy(this.#staged, this.#used, at);
      this.#used += copied;
      at += copied;
      if (this.#used === this.#staged.length) this.#pass(this.#overlap);
      if (this.#truncated || this.#lost) return;
    }
  }

  end(): void {
    if (this.#hash !== null) {
      this.#give(Buffer.from(`[omitted ${this.#plan.binary} ${this.#bytes} ${this.#hash.digest('hex')}]`));
      return;
    }
    if (this.#used > 0) this.#pass(0);
    if (!this.#truncated) this.#omitter.end();
    if (this.#staged !== null) giveBack(this.#staged);
    this.#staged = null;
  }

  /** Gives on what is staged but for its last bytes. */
  #pass(keep: number): void {
    const staged = this.#staged;
    if (staged === null) return;
    const piece = staged.subarray(0, this.#used);
    for (const secret of this.#plan.secrets) {
      for (let at = piece.indexOf(secret); at >= 0; at = piece.indexOf(secret, at)) {
        piece.fill(STAR, at, at + secret.length);
      }
    }
    this.#omitter.push(piece.subarray(0, piece.length - keep));
    staged.copyWithin(0, piece.length - keep, piece.length);
    this.#used = keep;
  }

  #give(bytes: Buffer): void {
    if (this.#truncated || this.#lost) return;
    const { requestId, part, attempt, limit } = this.#plan;
    const room = limit - this.#kept;
    const piece = bytes.length > room ? bytes.subarray(0, room) : bytes;
    this.#truncated = piece.length < bytes.length;
    this.#kept += piece.length;
    if (piece.length > 0 && !this.#log.piece(requestId, part, attempt, piece)) this.#lost = true;
  }
}
