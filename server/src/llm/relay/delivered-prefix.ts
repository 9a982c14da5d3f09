/** What a caller has seen of a stream that another attempt may have to continue (`stream.on_break` "continue"). */

import type { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { parseEvent } from '../../kernel/sse.ts';
import type { Resume, SeenPrefix } from '../../operations/shapes/resume.ts';
import { EVENT_WEIGHT, isSilent } from './response-inspection.ts';

/** Longest text that is gone on from, in characters. */
const TEXT_LENGTH = 1024 * 1024;

export class DeliveredPrefix implements SeenPrefix {
  readonly #resume: Resume | null;
  text = '';
  isPlain: boolean;
  id: string | null = null;
  created: number | null = null;
  open: number | null = null;
  blocks = 0;
  itemId: string | null = null;
  sequence = -1;
  /** What broke it first; told when nothing can go on. */
  broken: SluiceError | null = null;

  /** @param resume how the shape of the answer is continued; null: it is not */
  constructor(resume: Resume | null) {
    this.#resume = resume;
    this.isPlain = resume !== null;
  }

  /** Whether an assistant message of what was shown is all there is to know. */
  get continuable(): boolean {
    return this.isPlain && this.text.trimEnd() !== '' && this.text.length <= TEXT_LENGTH;
  }

  see(events: readonly Buffer[]): void {
    if (!this.isPlain) return;
    for (const event of events) {
      if (isSilent(event)) continue;
      // More than can be gone on from.
      if (event.length > 2 * TEXT_LENGTH) {
        this.isPlain = false;
        return;
      }
      const body = read(event);
      if (body === null) continue;
      this.#resume?.see(this, body);
    }
    if (this.text.length > TEXT_LENGTH) this.isPlain = false;
  }
}

function read(bytes: Buffer): JsonObject | null {
  const event = parseEvent(bytes);
  if (event === null || event.data === '' || event.data.trim() === '[DONE]') return null;
  try {
    const body: unknown = parseJson(event.data, EVENT_WEIGHT);
    return isObject(body) ? body : null;
  } catch {
    return null;
  }
}
