/** How much of a stream a conversion has to keep until its end: what the last events repeat. */
import { invalidAnswer } from './fields.ts';

/** As large as an answer in one piece that can be converted. */
const MAX_KEPT = 64 * 1024 * 1024;
/** What keeping a piece takes beside its characters. */
const PIECE = 64;

export class Kept {
  #size = 0;

  /** Counts a piece. Throws the error for an answer without end, before it has taken the memory of the process. */
  add(characters: number, more = 0): void {
    this.#size += characters + PIECE + more;
    if (this.#size > MAX_KEPT) throw invalidAnswer('The provider sent an answer too large to convert.');
  }
}
