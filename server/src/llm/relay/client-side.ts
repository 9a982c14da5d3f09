/** The client's side of one answer: its head, what was written of it, and who wants the upstream to wait. */
import { keepBuffer } from '../../http/buffer-pool.ts';
import { startParts, takesTrailers, writePart } from '../../http/response-body.ts';
import type { WireControl } from '../../kernel/wire.ts';
import type { Uses } from '../exchange.ts';
import { COST } from '../gateway-headers.ts';
import type { Target } from '../target.ts';
import { answerHead } from './failed-answer.ts';

/** What this file uses of an exchange. */
type Used = Uses<
  'attempt' | 'capture' | 'execution' | 'guard' | 'limits' | 'outcome' | 'request' | 'response',
  'bodies' | 'clock' | 'storeClock'
>;

/** Bytes of a stream, or of a large answer, after which another connection has its turn, and milliseconds of work on them. */
const TURN_BYTES = 32 * 1024;
const TURN_MS = 0.4;
/** Bytes of events that are worked on at once: converting 4 KB of short ones takes a millisecond. */
const EVENT_BYTES = { passed: 16 * 1024, converted: 4 * 1024 };
/** Bytes that are written at once; more wait for turns. */
const WRITTEN_BYTES = 128 * 1024;
/** An answer is large, so that the time it takes is counted. */
export const LARGE_BYTES = 256 * 1024;

interface Unwritten {
  readonly part: Buffer;
  at: number;
  /** Ends the keeping of lent memory. */
  readonly drop: () => void;
}

function sliceOf(one: Unwritten): Buffer {
  const slice = one.part.subarray(one.at, one.at + WRITTEN_BYTES);
  one.at += slice.length;
  return slice;
}

export class ClientSide {
  readonly #x: Used;
  readonly #target: Target;
  #headers: readonly string[] = [];
  #status = 0;
  #control: WireControl | null = null;
  /** Whoever wants the upstream to wait: a slow client, guardrails, or all others whose turn it is. */
  readonly #waits = new Set<'client' | 'guard' | 'turn' | 'unwritten'>();
  /** What waits for its turn to be written. */
  #unwritten: Unwritten[] = [];
  #over = false;
  /** Smaller ones are the end of what has arrived. */
  #pieceBytes = TURN_BYTES;
  /** Since the last turn. */
  #bytes = 0;
  #ms = 0;

  constructor(x: Used, target: Target) {
    this.#x = x;
    this.#target = target;
  }

  /** The upstream has answered with this head. */
  open(status: number, headers: readonly string[], control: WireControl): void {
    this.#status = status;
    this.#headers = headers;
    this.#control = control;
  }

  /** The answer is a stream of events, which is taken in pieces: as much as arrives at once may be thousands. */
  cut(how: keyof typeof EVENT_BYTES): void {
    this.#pieceBytes = EVENT_BYTES[how];
    this.#control?.cut?.(this.#pieceBytes);
  }

  /** The attempt has ended: the upstream is not stopped or started any more. What still waits is written before what follows. */
  close(): void {
    this.#over = true;
    for (const one of this.#unwritten) {
      if (!this.#x.response.destroyed) this.#write(one.part.subarray(one.at));
      one.drop();
    }
    this.#unwritten = [];
  }

  /** Sends the head. A `contentType` takes the place of the upstream's. */
  start(length: number | null, contentType: string | null): void {
    const x = this.#x;
    x.outcome.status = this.#given();
    const head = this.#head(length, contentType);
    if (length === null && takesTrailers(x.response)) head.push('trailer', COST);
    x.attempt.caching?.begin(x.outcome.attemptCount, x.outcome.status, head);
    x.capture?.start(x.outcome.status, head);
    startParts(x.response, x.outcome.status, head);
    x.outcome.headSent = true;
  }

  /** Parts that together are large are written in slices, each in a turn; the upstream waits meanwhile. */
  write(...parts: readonly Buffer[]): void {
    let bytes = 0;
    for (const part of parts) bytes += part.length;
    if (this.#unwritten.length === 0 && bytes <= WRITTEN_BYTES) {
      for (const part of parts) this.#write(part);
      return;
    }
    for (const part of parts) this.#unwritten.push({ part, at: 0, drop: keepBuffer(part) });
    if (this.#waits.has('unwritten')) return;
    this.wait('unwritten', true);
    this.#writeOn();
  }

  /** Writes the next slice. */
  readonly #writeOn = (): void => {
    const first = this.#unwritten[0];
    if (first === undefined) {
      this.wait('unwritten', false);
      return;
    }
    this.#write(sliceOf(first));
    if (first.at === first.part.length) {
      this.#unwritten.shift();
      first.drop();
    }
    if (this.#waits.has('client')) this.#x.response.once('drain', this.#writeLater);
    else this.#writeLater();
  };

  readonly #writeLater = (): void => {
    const { services, request } = this.#x;
    services.bodies.turns.take(request.organisationId, this.#writeOn);
  };

  #write(part: Buffer): void {
    const { response } = this.#x;
    this.#x.outcome.bytesOut += part.length;
    this.#x.attempt.caching?.take(part);
    this.#x.capture?.takeAnswer(part);
    if (writePart(response, part) || this.#waits.has('client')) return;
    this.wait('client', true);
    response.once('drain', () => this.wait('client', false));
  }

  wait(who: 'client' | 'guard' | 'turn' | 'unwritten', on: boolean): void {
    const before = this.#waits.size;
    if (on) this.#waits.add(who);
    else this.#waits.delete(who);
    if (this.#over) return;
    if (before === 0 && on) this.#control?.pause();
    else if (before === 1 && this.#waits.size === 0) this.#control?.resume();
  }

  waits(who: 'client' | 'guard'): boolean {
    return this.#waits.has(who);
  }

  /**
   * A socket that has much to read is read thirty times in one turn of the event loop: others have theirs in between. Work on a
   * stream or a large answer since `began` (monotonic ms, 0: it is neither) is counted.
   */
  giveWay(bytes: number, began: number): void {
    const {
      services,
      request: { organisationId },
    } = this.#x;
    const { turns } = services.bodies;
    const ms = began > 0 ? services.clock.monotonic() - began : 0;
    turns.spent(organisationId, ms);
    const more = bytes >= this.#pieceBytes;
    this.#bytes = more ? this.#bytes + bytes : bytes;
    this.#ms = more ? this.#ms + ms : ms;
    if (this.#bytes < TURN_BYTES && this.#ms < TURN_MS) return;
    this.#bytes = 0;
    this.#ms = 0;
    this.wait('turn', true);
    turns.take(organisationId, () => this.wait('turn', false));
  }

  /** The answer is at hand in one piece of `length` bytes. */
  endWhole(body: readonly Buffer[], length: number | null, contentType: string | null): void {
    const x = this.#x;
    x.outcome.status = this.#given();
    x.outcome.ending = { kind: 'whole', status: x.outcome.status, headers: this.#head(length, contentType), body };
  }

  /** `body` is the end of an answer of which parts were sent. */
  endTail(body: readonly Buffer[]): void {
    // What still waits keeps its memory: nothing ends that, and the garbage collector has it.
    const before = this.#unwritten.map(({ part, at }) => part.subarray(at));
    this.#unwritten = [];
    this.#x.outcome.ending = { kind: 'tail', body: [...before, ...body] };
  }

  /** The upstream's status, unless a guardrail has failed that does not deny. */
  #given(): number {
    return this.#x.guard?.failed === true ? 246 : this.#status;
  }

  #head(length: number | null, contentType: string | null): string[] {
    return answerHead(this.#x, this.#target, this.#headers, length, contentType);
  }
}
