/** What is kept back of an answer in one piece: its last part, and all from where it tells of an error, which may repeat a secret. */
import type { Target } from '../target.ts';
import { withoutSentSecrets } from './attempt-result.ts';
import { isJson } from './response-inspection.ts';
import { tellsError } from './tells-error.ts';

/** Bytes that are kept of an answer that tells of an error. */
const KEPT_BYTES = 1024 * 1024;

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

  /** Takes the next part, and gives what may be sent now. Each part is searched once: 64 KB of prose take 0.2 ms. */
  add(next: Buffer): Buffer | null {
    const part = this.#part;
    const tells = part !== null && this.#json && tellsError(part);
    if (tells && part.length <= KEPT_BYTES) {
      this.#part = Buffer.concat([part, next]);
      return null;
    }
    this.#part = next;
    return part !== null && tells ? this.#erased(part) : part;
  }

  /** What is left at the end of an answer whose head was sent. */
  last(): Buffer[] {
    const part = this.#part;
    if (part === null) return [];
    return [this.#json && tellsError(part) ? this.#erased(part) : part];
  }

  /** All of an answer of which nothing was sent. `tells`: whether it tells of an error, where that is known. */
  whole(parts: readonly Buffer[], tells = this.#json && parts.some(tellsError)): readonly Buffer[] {
    return tells ? [withoutSentSecrets(Buffer.concat(parts), this.#target)] : parts;
  }

  /** The length may have been announced: white space at the end takes the place of what is left out. */
  #erased(part: Buffer): Buffer {
    const shown = withoutSentSecrets(part, this.#target);
    return shown === part ? part : Buffer.concat([shown, Buffer.alloc(Math.max(0, part.length - shown.length), ' ')]);
  }
}
