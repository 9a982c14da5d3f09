/** What is kept of the answer of one request while it passes. Made when bodies are kept, and for no other request. */
import type { BodyLog } from '../../gateway/body-log.ts';
import { PartWriter } from '../../gateway/part-writer.ts';
import type { BodyPart } from '../../telemetry/bodies/frame.ts';
import type { Target } from '../target.ts';

/** What came back from one side. */
interface Came {
  readonly writer: PartWriter | null;
  readonly status: number;
  /** `[name, value, …]` */
  readonly headers: readonly string[];
}

export class BodyCapture {
  readonly #log: BodyLog;
  readonly #requestId: string;
  readonly #mayKeepRaw: () => boolean;
  /** All that were called: none of their credentials may be kept. */
  readonly #targets = new Set<Target>();
  #attempt = 0;
  #came: Came | null = null;
  #answer: Came | null = null;

  /** @param mayKeepRaw whether answers may be kept as they came */
  constructor(log: BodyLog, requestId: string, mayKeepRaw: () => boolean) {
    this.#log = log;
    this.#requestId = requestId;
    this.#mayKeepRaw = mayKeepRaw;
  }

  get secrets(): readonly string[] {
    return [...new Set([...this.#targets].flatMap(({ sent }) => sent))].filter((secret) => secret !== '');
  }

  get attempt(): number {
    return this.#attempt;
  }

  /** What the provider of the last attempt has answered; null where that is what the caller got. */
  get came(): Came | null {
    return this.#came;
  }

  /** What the caller has got of a stream, or of a long answer, before its end. */
  get answer(): Came | null {
    return this.#answer;
  }

  /** Another call begins: of what came before it only what the caller has seen stays. */
  begin(target: Target): void {
    this.#targets.add(target);
    this.#attempt += 1;
    this.#came = null;
  }

  /** The provider answers. `apart`: what comes is not what the caller gets. */
  head(status: number, headers: readonly string[], apart: boolean): void {
    this.#came = { status, headers, writer: apart && this.#mayKeepRaw() ? this.writer('came', typeIn(headers)) : null };
  }

  /** The provider refuses: the caller gets an error of ours. */
  refused(status: number, headers: readonly string[], raw: string): void {
    this.head(status, headers, true);
    this.takeCame(Buffer.from(raw));
  }

  takeCame(bytes: Buffer): void {
    this.#came?.writer?.write(bytes);
  }

  /** The caller gets a head. */
  start(status: number, headers: readonly string[]): void {
    this.#answer = { status, headers, writer: this.writer('answer', typeIn(headers)) };
  }

  takeAnswer(bytes: Buffer): void {
    this.#answer?.writer?.write(bytes);
  }

  /** A writer for a part with this `content-type`. */
  writer(part: BodyPart, type: string | undefined, limit = this.#log.maxBytes): PartWriter {
    return new PartWriter(this.#log, {
      requestId: this.#requestId,
      part,
      attempt: this.#attempt,
      limit,
      secrets: this.secrets.map((secret) => Buffer.from(secret)),
      binary: binaryType(type),
    });
  }
}

export function typeIn(headers: readonly string[]): string | undefined {
  for (let i = 0; i + 1 < headers.length; i += 2)
    if (headers[i]?.toLowerCase() === 'content-type') return headers[i + 1];
  return undefined;
}

const TEXT = /^\s*(?:text\/|application\/(?:[\w.+-]*\+)?(?:json|x-ndjson|jsonl|xml|x-www-form-urlencoded)\b)/i;
const NAME = /^\s*([\w.+-]{1,60}\/[\w.+-]{1,60})/;

/** The media type of what is no text; null for a text, and for what does not say what it is. */
function binaryType(type: string | undefined): string | null {
  if (type === undefined || TEXT.test(type)) return null;
  return NAME.exec(type)?.[1]?.toLowerCase() ?? 'application/octet-stream';
}
