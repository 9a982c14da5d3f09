import { returnBuffer } from '../../http/buffer-pool.ts';
import { isObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import type { ScanResult } from '../../kernel/json-scan.ts';
import { type Shaping, shape } from '../shaping.ts';

const EMPTY = Buffer.alloc(0);
/**
 * Bytes of a body whose values are kept: they take several times its memory, for as long as the answer lasts. Of a larger one only
 * guardrails ask in this thread (`large/calls.ts`).
 */
const MAX_KEPT = 512 * 1024;

/**
 * A body that a caller has sent, or that guardrails have made of it. Its values are parsed when somebody first asks for them, and
 * once: all readers share them, so none may change them.
 */
export class RequestBody {
  /** What the gateway looks at of a JSON object, in `bytes`; null where it is none. */
  readonly scan: ScanResult | null;
  #bytes: Buffer;
  #value: JsonValue | undefined = undefined;
  /** The last shaping that was asked for, and what it makes of the value. */
  #shaping: Shaping | null = null;
  #shaped: JsonValue | undefined = undefined;

  constructor(bytes: Buffer, scan: ScanResult | null) {
    this.scan = scan;
    this.#bytes = bytes;
  }

  /** As they came; none when the request is over. */
  get bytes(): Buffer {
    return this.#bytes;
  }

  /** Numbers keep their digits. Throws SyntaxError for what is no JSON, or too heavy to be read. */
  value(): JsonValue {
    if (this.#value !== undefined) return this.#value;
    const value = parseExact(this.#bytes.toString('utf8'));
    if (this.#bytes.length <= MAX_KEPT) this.#value = value;
    return value;
  }

  /** As a config makes it; only an object is shaped. Throws as `value`. */
  under(shaping: Shaping | null): JsonValue {
    const value = this.value();
    if (shaping === null || !isObject(value)) return value;
    if (this.#shaped !== undefined && this.#shaping === shaping) return this.#shaped;
    const shaped = shape(value, shaping);
    if (this.#value !== undefined) {
      this.#shaped = shaped;
      this.#shaping = shaping;
    }
    return shaped;
  }

  /** The request is over. With `lent`, the memory of the bytes goes to another body: no part reads them any more. */
  end(lent: boolean): void {
    if (lent) returnBuffer(this.#bytes);
    this.#bytes = EMPTY;
    this.#value = undefined;
    this.#shaped = undefined;
  }
}

/** No body. */
export const NO_BODY = new RequestBody(EMPTY, null);
