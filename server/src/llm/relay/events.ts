/** The events of one stream as its caller gets them: as they came, or converted, and looked at on the way. */
import { borrowBuffer, returnBuffer } from '../../http/buffer-pool.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { isTooHeavy } from '../../kernel/json-exact.ts';
import { parseEvent, SseSplitter } from '../../kernel/sse.ts';
import type { ProviderError } from '../../operations/dialects/provider-error.ts';
import { LOOKED_BYTES, repeatsAnswer, TerminalTracker } from '../../operations/dialects/stream.ts';
import { formatEvent, type StreamTransform } from '../../operations/stream.ts';
import { AwsFrames } from '../../providers/aws/frames.ts';
import type { Bound } from '../../providers/binding.ts';
import type { CallContext, Framing } from '../../providers/provider.ts';
import type { Uses } from '../exchange.ts';
import type { Target } from '../target.ts';
import { tooMuch } from './answer-flaws.ts';
import { CarriedTexts } from './carried-texts.ts';
import { LargeEvents } from './large-events.ts';
import type { Meter } from './meter.ts';
import { answerTouches, bytesIn, EVENT_WEIGHT, isSilent, modelIn, parsed, tellsModel } from './response-inspection.ts';
import { findUsage, passesGeneration, USAGE, usageAt, usageNearEnd } from './usage-extraction.ts';

/** What this file uses of an exchange. */
type Used = Uses<'attempt' | 'outcome' | 'request'>;

/** Larger events, such as those with pictures, are not parsed for their counts alone. */
const PARSED_BYTES = 1024 * 1024;
/** Shorter events say nothing: tens of thousands of them may come at once. */
const LEAST_BYTES = 8;
/** Smaller events are light. */
const WEIGHED_BYTES = 64 * 1024;
/** Of an event that grows, so much is weighed before the rest has come: to gather and decode 8 MB takes milliseconds. */
const BEGUN_BYTES = 256 * 1024;

/** Of an event that is converted, beside its pictures and sound: to read 2 MB of fractions takes 20 ms. */
const CONVERTED_BYTES = 1.5 * 1024 * 1024;
const MIB = 1024 * 1024;

/** So many events are searched together first. */
const MANY = 8;
/** Characters of an event from which on its bytes are written to lent memory. */
const LENT_LENGTH = 64 * 1024;
const DATA = Buffer.from('data:');
const MEMORY = { borrow: borrowBuffer, giveBack: returnBuffer };

export class EventReader {
  readonly #x: Used;
  readonly #target: Target;
  readonly #bound: Bound;
  readonly #meter: Meter;
  /** The usage chunk was asked for by us: it is taken out again. */
  readonly #stripUsage: boolean;
  readonly #splitter: SseSplitter | AwsFrames;
  readonly #tracker: TerminalTracker;
  readonly #large: LargeEvents;
  readonly #transform: StreamTransform | null;
  readonly #carried: CarriedTexts;
  /** Texts without which the provider's own transform changes nothing; null when it must always run. */
  #touches: readonly Buffer[] | null;
  #inspect: boolean;
  /** An event with an error ends the stream; that of a passed-through object may be its own. */
  readonly #endsByError: boolean;
  #mayTellUsage = true;
  #mayTellModel = true;
  /** The event that grows has been weighed by its beginning. */
  #weighed = false;
  /** Lent memory of the events that were made last. */
  #made: Buffer[] = [];
  /** The first event was an error, and becomes an answer with a status, which a retry can see. */
  refused: ProviderError | null = null;

  constructor(parts: {
    x: Used;
    target: Target;
    bound: Bound;
    context: CallContext;
    meter: Meter;
    stripUsage: boolean;
    framing: Framing;
  }) {
    const { x, target, bound } = parts;
    this.#x = x;
    this.#target = target;
    this.#bound = bound;
    this.#meter = parts.meter;
    this.#stripUsage = parts.stripUsage;
    this.#splitter = parts.framing === 'sse' ? new SseSplitter(undefined, MEMORY) : new AwsFrames();
    this.#transform = bound.stream?.(parts.context) ?? null;
    this.#touches = answerTouches(bound);
    this.#tracker = new TerminalTracker(x.request.operation.dialect);
    this.#large = new LargeEvents(x.request.operation.dialect);
    this.#carried = new CarriedTexts(repeatsAnswer(x.request.operation.dialect));
    this.#inspect = this.#inspects();
    this.#endsByError = !x.request.operation.wire.isOpen || passesGeneration(x.request);
  }

  /** The stream ended with an error event. */
  get failed(): boolean {
    return this.#endsByError && this.#tracker.failed;
  }

  /** Why nothing follows the events that `push` gave last, where the framing itself says so. */
  get broken(): SluiceError | null {
    return this.#splitter instanceof AwsFrames ? this.#splitter.broken : null;
  }

  /** The end marker was seen. */
  get ended(): boolean {
    return this.#tracker.ended;
  }

  /** Whole events that the chunk completes; none when the stream is `refused`. */
  push(chunk: Buffer): Buffer[] {
    const out: Buffer[] = [];
    this.#made = [];
    const events = this.#splitter.push(chunk);
    const held = this.#splitter.held(LOOKED_BYTES);
    if (events.length > 0) this.#weighed = false;
    else if (held !== null && held.length >= BEGUN_BYTES && this.converts) this.#weighBeginning(held);
    this.#large.see(events, held, chunk.length);
    // One search for all of them, but for the first, which may have begun before.
    const few = events.length < MANY;
    this.#mayTellUsage = few || chunk.indexOf(USAGE) !== -1;
    this.#mayTellModel =
      few || this.#x.outcome.modelAnswered !== null || tellsModel(chunk, this.#bound.binding.modelKey);
    for (const event of events) {
      if (this.#inspect && this.#failsFirst(event)) return [];
      if (this.#transform === null || this.#passesUntouched(event)) this.#pass(event, out);
      else this.#convert(this.#transform, event, out);
    }
    return out;
  }

  /** Nothing reads the events that `push` gave last, but what keeps their memory. */
  release(): void {
    if (this.#splitter instanceof SseSplitter) this.#splitter.release();
    for (const made of this.#made) returnBuffer(made);
    this.#made = [];
  }

  /** What a conversion has left to say at the end of the upstream's stream. */
  flush(): Buffer[] {
    const out: Buffer[] = [];
    const transform = this.converts ? this.#transform : null;
    if (transform === null) return out;
    const last = this.#splitter.last();
    if (last !== null) this.#convert(transform, last, out);
    transform.end((made) => out.push(this.#bytesOf(formatEvent(made))));
    return out;
  }

  /** What came after the last whole event, where events are passed as they come. */
  rest(): Buffer | null {
    const rest = this.converts ? null : this.#splitter.rest();
    return rest === null || rest.length === 0 ? null : rest;
  }

  /** How many of the events come before the end of the answer: its end marker, or an error. */
  beforeEnd(events: readonly Buffer[]): number {
    if (events.length >= MANY && this.#saysNoEnd(events)) return events.length;
    for (let i = 0; i < events.length; i++) {
      const event = events[i];
      if (event === undefined || event.length < LEAST_BYTES) continue;
      if (this.#tracker.see(event, this.#large.of(event)) || this.failed) return i;
    }
    return events.length;
  }

  /** Whether none of the events that lie one behind the other can end the answer: a search for all of them. */
  #saysNoEnd(events: readonly Buffer[]): boolean {
    const [first] = events;
    const last = events.at(-1);
    if (first === undefined || last === undefined || first.buffer !== last.buffer) return false;
    const bytes = last.byteOffset + last.length - first.byteOffset;
    if (bytes !== bytesIn(events)) return false;
    return !this.#tracker.concerns(Buffer.from(first.buffer, first.byteOffset, bytes));
  }

  /** Events are made anew. */
  get converts(): boolean {
    return this.#transform !== null && this.#touches === null;
  }

  /** From the first event the provider's transform would change, all of them go through it. */
  #passesUntouched(event: Buffer): boolean {
    if (this.#touches === null) return false;
    if (!this.#touches.some((text) => event.includes(text))) return true;
    this.#touches = null;
    return false;
  }

  /** Throws as for the whole event when its beginning is too heavy already. One of several lines is weighed at its end. */
  #weighBeginning(held: Buffer): void {
    if (this.#weighed) return;
    this.#weighed = true;
    const start = held.indexOf(DATA);
    if (start === -1 || start > BEGUN_BYTES) return;
    const begun = held.toString('latin1', start + DATA.length, BEGUN_BYTES);
    if (!begun.includes('\n') && !begun.includes('\r') && isTooHeavy(begun, EVENT_WEIGHT)) throw tooMuch();
  }

  #inspects(): boolean {
    const hook = this.#bound.binding.inspectFirstEvent;
    return hook !== undefined && this.#target.credentials.settings[hook.setting] === true;
  }

  #failsFirst(event: Buffer): boolean {
    const parsedEvent = parseEvent(event);
    if (parsedEvent === null) return false;
    this.#inspect = false;
    this.refused = this.#bound.binding.inspectFirstEvent?.find(parsedEvent.data) ?? null;
    return this.refused !== null;
  }

  #pass(event: Buffer, out: Buffer[]): void {
    if (event.length < LEAST_BYTES) {
      out.push(event);
      return;
    }
    if (!isSilent(event)) this.#meter.count(event);
    const large = event.length > PARSED_BYTES;
    if (large || ((this.#mayTellUsage || out.length === 0) && event.indexOf(USAGE) !== -1)) {
      const body = large ? null : parsed(parseEvent(event));
      const usage = large ? this.#usageOf(event) : body && findUsage(body, this.#bound.binding.usagePath);
      if (usage !== null) {
        this.#meter.see(usage);
        if (this.#stripUsage && Array.isArray(body?.choices) && body.choices.length === 0) return;
      }
    }
    this.#seeModel(event, out.length === 0);
    this.#x.attempt.creation?.event(event);
    out.push(event);
  }

  #convert(transform: StreamTransform, bytes: Buffer, out: Buffer[]): void {
    const read = bytes.length > BEGUN_BYTES ? this.#carried.takeFrom(bytes) : bytes;
    if (read.length > CONVERTED_BYTES) throw tooLarge();
    const event = parseEvent(read);
    if (event === null) return;
    if (read.length > WEIGHED_BYTES && isTooHeavy(event.data, EVENT_WEIGHT)) throw tooMuch();
    this.#meter.count(bytes);
    const large = bytes.length > PARSED_BYTES;
    if (large || ((this.#mayTellUsage || out.length === 0) && bytes.indexOf(USAGE) !== -1)) {
      const body = large ? null : parsed(event);
      const usage = large ? this.#usageOf(bytes) : body && findUsage(body, this.#bound.binding.usagePath);
      if (usage !== null) this.#meter.see(usage);
    }
    this.#seeModel(bytes, out.length === 0);
    this.#x.attempt.creation?.event(bytes);
    transform.event(event, (made) => out.push(this.#bytesOf(formatEvent(made))));
  }

  #seeModel(event: Buffer, first: boolean): void {
    const { outcome } = this.#x;
    if (outcome.modelAnswered === null && (this.#mayTellModel || first))
      outcome.modelAnswered = modelIn(event, this.#bound.binding.modelKey);
  }

  /** The last usage in a large event. */
  #usageOf(event: Buffer): JsonObject | null {
    const known = this.#large.of(event);
    if (known === null) return usageNearEnd(event);
    return known.usageAt === -1 ? null : usageAt(event, known.usageAt);
  }

  /** A large event is written to memory that is used again. */
  #bytesOf(text: string): Buffer {
    const whole = this.#carried.putBack(text);
    if (whole === null && text.length <= LENT_LENGTH) return Buffer.from(text);
    const made = whole ?? borrowBuffer(Buffer.byteLength(text));
    if (whole === null) made.write(text);
    this.#made.push(made);
    return made;
  }
}

const tooLarge = (): SluiceError =>
  new SluiceError(
    'upstream_invalid',
    `The provider sent an event with more than ${CONVERTED_BYTES / MIB} MiB beside its pictures, which is too large to convert. Ask with stream: false, or by the provider's own API.`,
  );
