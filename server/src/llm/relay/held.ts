/** What is kept back of an answer in one piece: its last part, and all from where it tells of an error, which may repeat a secret. */
import type { Target } from '../target.ts';
import { withoutSentSecrets } from './answered.ts';
import { isJson } from './look.ts';

/** Bytes that are kept of an answer that tells of an error. */
const KEPT_BYTES = 1024 * 1024;
/** Members of this name that are looked at one by one; bytes with more are taken to tell of an error. */
const MAX_LOOKED = 1_000;
const ERROR = Buffer.from('error"');
const [COLON, NULL, FALSE] = [0x3a, 0x6e, 0x66];
const isBlank = (byte: number | undefined) => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/**
 * Whether the bytes of some JSON tell of an error: a member `error`, or one whose name ends so, that is neither null nor
 * false. Inside a text its quote would be escaped. True also where the bytes end within its name, or before its value.
 */
function tellsError(bytes: Buffer): boolean {
  let looked = 0;
  for (let at = bytes.indexOf(ERROR); at !== -1; at = bytes.indexOf(ERROR, at + 1)) {
    looked += 1;
    if (looked > MAX_LOOKED) return true;
    let next = at + ERROR.length;
    while (isBlank(bytes[next])) next++;
    if (next === bytes.length) return true;
    if (bytes[next++] !== COLON) continue;
    while (isBlank(bytes[next])) next++;
    if (bytes[next] !== NULL && bytes[next] !== FALSE) return true;
  }
  return endsWithin(bytes);
}

/** Whether the bytes end within the name. */
function endsWithin(bytes: Buffer): boolean {
  for (let length = Math.min(ERROR.length - 1, bytes.length); length > 0; length--) {
    if (bytes.compare(ERROR, 0, length, bytes.length - length) === 0) return true;
  }
  return false;
}

/** An answer that tells of an error, without what was sent in confidence; else as it is. */
const erased = (json: Buffer, target: Target): Buffer => (tellsError(json) ? withoutSentSecrets(json, target) : json);

export class Held {
  readonly #target: Target;
  readonly #json: boolean;
  #part: Buffer | null = null;

  /** @param headers those of the answer */
  constructor(target: Target, headers: readonly string[]) {
    this.#target = target;
    this.#json = isJson(headers);
  }

  /** Whether parts that nobody has seen should wait for the end. */
  waits(parts: readonly Buffer[], bytes: number): boolean {
    return this.#json && bytes <= KEPT_BYTES && parts.some(tellsError);
  }

  /** Takes the next part, and gives what may be sent now. */
  add(next: Buffer): Buffer | null {
    const part = this.#part;
    if (part !== null && this.waits([part], part.length)) {
      this.#part = Buffer.concat([part, next]);
      return null;
    }
    this.#part = next;
    return part === null ? null : this.#shown(part);
  }

  /** What is left at the end of an answer whose head was sent. */
  last(): Buffer[] {
    return this.#part === null ? [] : [this.#shown(this.#part)];
  }

  /** All of an answer of which nothing was sent. */
  whole(parts: readonly Buffer[]): readonly Buffer[] {
    return this.#json && parts.some(tellsError) ? [withoutSentSecrets(Buffer.concat(parts), this.#target)] : parts;
  }

  /** The length may have been announced: white space at the end takes the place of what is left out. */
  #shown(part: Buffer): Buffer {
    const shown = this.#json ? erased(part, this.#target) : part;
    return shown === part ? part : Buffer.concat([shown, Buffer.alloc(Math.max(0, part.length - shown.length), ' ')]);
  }
}
