/** What is kept back of an answer in one piece: its last part, and all from where it tells of an error, which may repeat a secret. */
import { keepBuffer } from '../../http/buffer-pool.ts';
import type { Target } from '../target.ts';
import { withoutSentSecrets } from './failed-answer.ts';
import { isJson } from './response-inspection.ts';
import { tellsError } from './tells-error.ts';

/** Bytes that are kept of an answer that tells of an error. */
const KEPT_BYTES = 1024 * 1024;

const nothing = (): void => undefined;

export class Held {
  readonly #target: Target;
  readonly #json: boolean;
  #part: Buffer | null = null;
  /** Ends the keeping of that part, and of the one before it, which was given away. */
  #drop = nothing;
  #dropGiven = nothing;

  /** @param headers those of the answer */
  constructor(target: Target, headers: readonly string[]) {
    this.#target = target;
    this.#json = isJson(headers);
  }

  /** Whether parts that nobody has seen should wait for the end. */
  waits(parts: readonly Buffer[], bytes: number): boolean {
    return this.#json && bytes <= KEPT_BYTES && parts.some(tellsError);
  }

  /**
   * Takes the next part, and gives what may be sent now. Lent memory of both is kept: of what is given until the next call. Each part
   * is searched once.
   */
  add(next: Buffer): Buffer | null {
    const part = this.#part;
    const tells = part !== null && this.#json && tellsError(part);
    if (tells && part.length <= KEPT_BYTES) {
      this.#part = Buffer.concat([part, next]);
      this.#drop();
      this.#drop = nothing;
      return null;
    }
    this.#dropGiven();
    this.#dropGiven = this.#drop;
    this.#drop = keepBuffer(next);
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
