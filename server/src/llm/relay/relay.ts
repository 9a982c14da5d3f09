/**
 * Takes one upstream answer to the client. Bytes pass through and are only looked at; they are parsed when caller and
 * provider speak different shapes. The end of every answer is held back until the record is written (`steps/record.ts`),
 * and nothing is sent before there is something worth sending, so that a failed attempt can be repeated unseen.
 */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject } from '../../kernel/json.ts';
import type { WireControl, WireHandler } from '../../kernel/wire.ts';
import { asProviderError } from '../../operations/dialects/errors.ts';
import { embeddedError, type ProviderError } from '../../operations/dialects/provider-error.ts';
import type { Bound } from '../../providers/binding.ts';
import type { CallContext } from '../../providers/provider.ts';
import type { Exchange } from '../exchange.ts';
import { type CameAnswer, judgeAnswer, judgeBeside } from '../guard/apart/where-judged.ts';
import { denial, JUDGED_BYTES, notJudged } from '../guard/output.ts';
import { StreamGate } from '../guard/stream.ts';
import type { AttemptResult } from '../state/attempt-result.ts';
import type { Target } from '../target.ts';
import { errorAmong, type Flaws, flawsOf, noJson, readWhole, recordFailure, tooMuch, unfit } from './answer-flaws.ts';
import { AttemptTimings } from './attempt-timings.ts';
import type { BegunAnswer } from './begun-answer.ts';
import { ClientSide, LARGE_BYTES } from './client-side.ts';
import { failureIn, saysErrors } from './content.ts';
import { EventReader } from './events.ts';
import { errorAnswer, refusedAnswer, withoutSentSecrets } from './failed-answer.ts';
import { Held } from './held.ts';
import { JsonAnswer, type JsonAnswerParts } from './json-answer.ts';
import { countKept, letGo } from './kept-answer.ts';
import { Meter } from './meter.ts';
import type { ReadAnswer } from './read-answer.ts';
import { bytesIn, framingOf, isJson, joined, nameOf, shownLength, tokensOf } from './response-inspection.ts';
import { ResponseTail } from './response-tail.ts';
import { followDelivered, resumablePrefix } from './retry-eligibility.ts';
import { StreamResume } from './stream-resume.ts';
import { asSeen, StreamWatch } from './stream-timeouts.ts';
import { passesGeneration, readAnswerFacts } from './usage-extraction.ts';

/** An answer this small is sent in one piece, head and body together. */
const WHOLE_BYTES = 64 * 1024;
/** A slow unary answer starts to flow after this long, so that keep-alive white space reaches the client. */
const WHOLE_MS = 250;
/** Longer chunks of a stream are timed. */
const TIMED_BYTES = 1024;
const ERROR_BYTES = 1024 * 1024;
/** Bytes of an answer in one piece that wait for its end while another attempt may follow. */
const RESCUED_BYTES = 4 * 1024 * 1024;
/** Largest answer that can be converted between shapes: each megabyte of text or pictures holds the event loop for 6 ms. */
const CONVERT_BYTES = 16 * 1024 * 1024;

const JSON_TYPE = ['content-type', 'application/json'];
type Mode = 'none' | 'error' | 'bytes' | 'json' | 'events';

export class Relay implements WireHandler {
  readonly #x: Exchange;
  readonly #target: Target;
  readonly #bound: Bound;
  readonly #context: CallContext;
  readonly #parts: JsonAnswerParts;
  /** `stream_options.include_usage` was added by us: the usage chunk is ours too and is taken out again. */
  readonly #stripUsage: boolean;
  readonly #settle: (result: AttemptResult) => void;
  readonly #started: number;
  #settled = false;
  #mode: Mode = 'none';
  #status = 0;
  #headers: readonly string[] = [];
  #control: WireControl | null = null;
  readonly times = new AttemptTimings();
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  readonly #sample = new ResponseTail();
  #held: Held | null = null;
  readonly #client: ClientSide;
  #events: EventReader | null = null;
  #watch: StreamWatch | null = null;
  /** The stream continues one that broke. */
  readonly #joint: StreamResume | null;
  readonly #meter: Meter;
  #answerBytes = 0;
  /** Guardrails judge the stream. */
  #gate: StreamGate | null = null;
  /** The answer in one piece is kept until guardrails have judged it. */
  #kept = false;
  /** Guardrails judge it after its end, beside the request. */
  #beside = false;
  /** Guardrails have an answer in one piece. */
  #judging = false;
  /** The answer in one piece is read at its end. */
  #json: JsonAnswer | null = null;
  #firstData: (() => void) | null;

  constructor(
    parts: JsonAnswerParts & {
      x: Exchange;
      stripUsage: boolean;
      started: number;
      /** Called with the first byte of a successful answer. */
      firstData: () => void;
      settle: (result: AttemptResult) => void;
    },
  ) {
    this.#x = parts.x;
    this.#target = parts.target;
    this.#bound = parts.bound;
    this.#context = parts.context;
    this.#parts = parts;
    this.#stripUsage = parts.stripUsage;
    this.#firstData = parts.firstData;
    this.#settle = parts.settle;
    this.#started = parts.started;
    const from = resumablePrefix(parts.x.outcome);
    this.#joint = from && new StreamResume(parts.x.request.operation, from, parts.x.outcome.spentUsage());
    this.#meter = new Meter(parts.x, parts.bound);
    this.#client = new ClientSide(parts.x, parts.target);
  }

  get status(): number | null {
    return this.#status === 0 ? null : this.#status;
  }

  onSent(at: number, connectMs: number): void {
    this.times.sentAt = at;
    this.times.connectMs = connectMs;
  }

  /** Ends the attempt from outside: a timeout, or the client went away. Whatever comes after is ignored. */
  cancel(error: SluiceError): void {
    if (this.#settled) return;
    // No caller waits any more for the part under judgement.
    if (this.#judging || this.#client.waits('guard')) this.#x.guard?.end();
    this.#estimateUsage();
    this.#finish({ kind: 'failed', error });
  }

  onHead(status: number, headers: readonly string[], control: WireControl): void {
    if (this.#settled) {
      control.abort();
      return;
    }
    this.#status = status;
    this.#headers = headers;
    this.#control = control;
    this.#client.open(status, headers, control);
    this.times.headAt = this.#x.services.clock.monotonic();
    if (status < 200 || status >= 300) {
      this.#mode = 'error';
      return;
    }
    const framing = framingOf(headers, this.#bound.binding);
    if (framing !== null) {
      this.#x.attempt.stream = true;
      this.#mode = 'events';
      this.#events = new EventReader({
        x: this.#x,
        target: this.#target,
        bound: this.#bound,
        context: this.#context,
        meter: this.#meter,
        stripUsage: this.#stripUsage,
        framing,
      });
      this.#client.cut(this.#events.converts ? 'converted' : 'passed');
      followDelivered(this.#x, this.#target);
      this.#watch = new StreamWatch({
        x: this.#x,
        target: this.#target,
        started: this.#started,
        times: this.times,
        paused: () => this.#client.waits('client') || this.#client.waits('guard'),
        expire: (error) => this.#fail(error),
        release: (events) => this.#show(events),
      });
      this.#meter.watch();
      this.#runSteps('events');
      return;
    }
    if (this.#joint !== null) {
      this.#fail(new SluiceError('upstream_invalid', 'The provider did not continue the stream.'));
      return;
    }
    this.#mode = this.#bound.response === undefined ? 'bytes' : 'json';
    if (this.#mode === 'json') this.#json = new JsonAnswer(this.#parts);
    this.#runSteps(this.#mode);
  }

  onData(chunk: Buffer): void {
    if (this.#settled || this.#gate?.over) return;
    const x = this.#x;
    x.outcome.upstreamBytesIn += chunk.length;
    this.#answerBytes += chunk.length;
    x.capture?.takeCame(chunk);
    if (this.#firstData !== null && this.#mode !== 'error') {
      x.outcome.firstTokenMs ??= x.request.elapsed();
      if (x.attempt.stream) {
        this.#firstData();
        this.#firstData = null;
      }
    }
    // Two looks at the clock for each chunk of a few tokens would cost more than they save.
    const timed = this.#answerBytes > LARGE_BYTES || (this.#mode === 'events' && chunk.length > TIMED_BYTES);
    const began = timed ? x.services.clock.monotonic() : 0;
    if (this.#mode === 'bytes') this.#bytes(chunk);
    else if (this.#mode === 'events') this.#read(chunk);
    else this.#collect(chunk, this.#mode === 'json' ? CONVERT_BYTES : ERROR_BYTES);
    if (began > 0) this.#client.giveWay(chunk.length, began);
  }

  onLent(chunk: Buffer): boolean {
    const shown = this.#x.outcome.headSent;
    this.onData(chunk);
    return this.#mode === 'json'
      ? this.#json?.copies === true
      : shown && (this.#mode === 'bytes' || this.#passesAtOnce);
  }

  onEnd(): void {
    if (this.#settled || this.#gate?.over) return;
    try {
      if (this.#mode === 'bytes') this.#endBytes();
      else if (this.#mode === 'json') this.#endJson();
      else if (this.#mode === 'error') this.#endError();
      else this.#endStream();
    } catch (error) {
      this.#fail(error);
    }
  }

  onError(error: SluiceError): void {
    if (this.#settled || this.#gate?.over) return;
    this.#estimateUsage();
    this.#finish({ kind: 'failed', error: asSeen(this.#x, this.#target, error) });
  }

  #finish(result: AttemptResult): void {
    this.#settled = true;
    this.#json?.drop();
    this.#client.close();
    this.#watch?.close();
    this.#gate?.close();
    // What guardrails judge beside the answer is left to the garbage collector.
    if (!this.#beside) this.#sample.end();
    if (result.kind !== 'done') letGo(this.#x);
    this.#settle(result);
  }

  #fail(error: unknown): void {
    this.#control?.abort();
    const wrapped =
      error instanceof SluiceError
        ? error
        : new SluiceError('upstream_invalid', 'The provider sent an answer that cannot be understood.', {
            detail: error,
            cause: error,
          });
    this.#estimateUsage();
    this.#finish({ kind: 'failed', error: wrapped });
  }

  #collect(chunk: Buffer, limit: number): void {
    this.#pendingBytes += chunk.length;
    if (this.#mode === 'json' && this.#pendingBytes <= limit && !countKept(this.#x, this.#pendingBytes)) {
      const message = 'Too many large answers are under way; try again shortly.';
      this.#fail(new SluiceError('out_of_service', message, { retryAfter: 1 }));
    } else if (this.#pendingBytes <= limit) {
      if (this.#json === null) this.#pending.push(chunk);
      else this.#json.add(chunk);
    } else if (this.#mode === 'json') {
      this.#fail(tooMuch());
    } else {
      // An error that never ends would hold the caller for as long as the provider likes.
      this.#control?.abort();
      this.#endError();
    }
  }

  #runSteps(mode: BegunAnswer['mode']): void {
    const x = this.#x;
    x.capture?.head(this.#status, this.#headers, mode === 'json' || this.#events?.converts === true);
    for (let i = 0; i < x.answerSteps.length; i++) {
      const judging = x.answerSteps[i]?.(x, { headers: this.#headers, mode, strict: this.#context.strict });
      this.#kept = judging === 'kept';
      this.#beside = judging === 'beside';
      if (judging === 'denied') this.#deny();
      else if (judging === 'events' && x.guard !== null)
        this.#gate = new StreamGate(x, x.guard, this.#context.strict, {
          send: (events) => this.#send(events),
          finish: (tail) => this.#endWith(tail.length === 0 ? null : joined(tail)),
          deny: () => this.#deny(),
          fail: (error) => this.#fail(error),
          pause: (on) => this.#client.wait('guard', on),
        });
    }
  }

  /** Nothing more of the answer is shown; what it used is counted. */
  #deny(): void {
    this.#control?.abort();
    this.#estimateUsage();
    this.#finish({ kind: 'failed', error: denial(this.#x.guard) });
  }

  #bytes(chunk: Buffer): void {
    this.#sample.add(chunk);
    if (this.#x.outcome.headSent) {
      const part = this.#held?.add(chunk) ?? null;
      if (part !== null) this.#client.write(part);
      return;
    }
    this.#pending.push(chunk);
    this.#pendingBytes += chunk.length;
    if (this.#kept) {
      const large = this.#pendingBytes > JUDGED_BYTES;
      if (!large && countKept(this.#x, this.#pendingBytes)) return;
      this.#kept = false;
      letGo(this.#x);
      const { guard } = this.#x;
      const why = large
        ? `The answer has more than ${JUDGED_BYTES} bytes.`
        : 'Answers that wait for guardrails already fill the memory they may use. Try again shortly.';
      if (guard !== null && notJudged(this.#x, guard, guard.output, why)) {
        this.#deny();
        return;
      }
    }
    // Nothing is shown of what another attempt may take the place of.
    if (this.#pendingBytes <= RESCUED_BYTES && this.#rescuable) return;
    const slow = this.#x.services.clock.monotonic() - this.times.headAt > WHOLE_MS;
    if (this.#pendingBytes <= WHOLE_BYTES && !slow) return;
    const held = new Held(this.#target, this.#headers);
    if (held.waits(this.#pending, this.#pendingBytes)) return;
    this.#held = held;
    this.#client.start(shownLength(this.#headers), null);
    const parts = this.#pending.map((pending) => held.add(pending)).filter((part) => part !== null);
    this.#client.write(...parts);
    this.#pending = [];
  }

  #endBytes(): void {
    const x = this.#x;
    const body = this.#sample.bytes();
    const json = isJson(this.#headers);
    // What nobody can read is for guardrails to refuse, unless another attempt may do better.
    const must = x.request.operation.wire.member !== null && (!this.#kept || this.#rescuable);
    if (must && !json) throw noJson();
    if (json) {
      const facts = readAnswerFacts(body, this.#sample.cut, saysErrors(x.request.operation));
      if (must && facts.broken) throw noJson();
      const whole = this.#rescuable && !this.#sample.cut ? readWhole(body) : null;
      if (isObject(whole) && this.#isUnfit(flawsOf(x.request.operation, whole))) return;
      if (facts.error !== null && !x.outcome.headSent) {
        const error = embeddedError(facts.error);
        if (error !== null) {
          this.#answerError(error);
          return;
        }
      }
      if (facts.error !== null) this.#noteFailure(failureIn(x.request.operation, facts.error));
      x.outcome.modelAnswered = nameOf(facts.model);
      if (facts.usage !== null) this.#meter.see(facts.usage);
      x.attempt.creation?.whole(body, this.#sample.first);
    }
    this.#takeUsage();
    if (this.#beside && x.guard !== null) judgeBeside(x, x.guard, this.#answerOf(body));
    if (x.outcome.headSent) {
      this.#client.endTail(this.#held?.last() ?? []);
      this.#finish({ kind: 'done' });
      return;
    }
    if (this.#kept) this.#endJudged(this.#pending, null, this.#target.sent);
    else this.#endWhole(new Held(this.#target, this.#headers).whole(this.#pending), null);
  }

  /** Nobody has seen anything of the answer, and another attempt may follow. */
  get #rescuable(): boolean {
    return !this.#x.outcome.headSent && this.#x.attempt.mayBeFollowed;
  }

  #isUnfit(flaws: Flaws): boolean {
    const found = unfit(this.#x.attempt, flaws);
    if (found === null) return false;
    this.#takeUsage();
    if (found instanceof SluiceError) this.#finish({ kind: 'failed', error: found });
    else this.#answerError(found);
    return true;
  }

  #noteFailure(error: ProviderError | null): void {
    if (error !== null) recordFailure(this.#x.outcome, this.#target, error);
  }

  /** Null: not all of it is at hand. */
  #answerOf(body: Buffer): CameAnswer | null {
    if (this.#sample.cut) return null;
    return { status: this.#status, headers: this.#headers, body: [body], strict: true, secrets: [] };
  }

  #endWhole(body: readonly Buffer[], contentType: string | null): void {
    this.#client.endWhole(body, bytesIn(body), contentType);
    this.#finish({ kind: 'done' });
  }

  /** Sends what guardrails make of an answer. */
  #endJudged(raw: readonly Buffer[], contentType: string | null, secrets: readonly string[]): void {
    const { guard } = this.#x;
    if (guard === null) {
      this.#endWhole(raw, contentType);
      return;
    }
    // The provider has answered in time, however long the judging takes.
    this.#firstData?.();
    this.#firstData = null;
    const headers = contentType === null ? this.#headers : ['content-type', contentType];
    const take = (body: readonly Buffer[] | null): void => {
      if (this.#settled) return;
      if (body === null) this.#deny();
      else this.#endWhole(body, contentType);
    };
    const answer = { status: this.#status, headers, body: raw, strict: this.#context.strict, secrets };
    const judged = judgeAnswer(this.#x, guard, answer);
    this.#judging = true;
    if (judged instanceof Promise)
      judged.then(take).catch((error: unknown) => {
        if (!this.#settled) this.#fail(error);
      });
    else take(judged);
  }

  #endJson(): void {
    this.times.ends(this.#x.services.clock);
    this.#json?.read(this.#headers, (read, bytes) => {
      if (this.#settled) return;
      try {
        if (read instanceof Error) throw read;
        this.#takeRead(bytes, read);
      } catch (error) {
        this.#fail(error);
      }
    });
  }

  #takeRead(bytes: readonly Buffer[], read: ReadAnswer): void {
    const x = this.#x;
    if (read.error !== null && !read.late) {
      this.#answerError(read.error);
      return;
    }
    x.outcome.modelAnswered = read.model;
    if (read.usage !== null) this.#meter.see(read.usage);
    if (read.error !== null) {
      this.#meter.take(() => 0);
      this.#answerError(read.error);
      return;
    }
    if (read.made !== null) this.#meter.seeMade(read.made);
    if (this.#rescuable && this.#isUnfit(read.flaws)) return;
    if (read.created !== null) x.attempt.creation?.take(read.created);
    this.#noteFailure(read.failure);
    this.#takeUsage();
    const parts = new Held(this.#target, JSON_TYPE).whole(bytes, read.tells);
    if (this.#kept) this.#endJudged(parts, 'application/json', []);
    else this.#endWhole(parts, 'application/json');
  }

  #endError(): void {
    const raw = Buffer.concat(this.#pending).toString();
    this.#finish(refusedAnswer(this.#x, this.#target, this.#bound.binding.shape, this.#status, this.#headers, raw));
  }

  #answerError(found: ProviderError): void {
    this.#finish(errorAnswer(this.#x, this.#target, this.#headers, found));
  }

  #read(chunk: Buffer): void {
    const events = this.#events;
    if (events === null) return;
    const shown = this.#x.outcome.headSent;
    try {
      const came = events.push(chunk);
      if (events.refused !== null) {
        this.#control?.abort();
        this.#answerError(events.refused);
        return;
      }
      this.#forward(events, this.#joint === null ? came : this.#joint.pass(came));
      this.#meter.grow();
      if (shown && this.#passesAtOnce) events.release();
      if (events.broken !== null && !this.#settled && !this.#gate?.over) this.#break(events.broken);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** The framing itself says that the stream failed: an attempt that failed as long as nothing was shown, else a cut. */
  #break(error: SluiceError): void {
    if (this.#x.outcome.headSent || error.kind !== 'provider_error') {
      this.#fail(error);
      return;
    }
    this.#control?.abort();
    this.#answerError(asProviderError(error));
  }

  /** Nothing but what is being written needs the events that came last. */
  get #passesAtOnce(): boolean {
    return this.#gate === null && !this.#settled && this.#watch?.keeps === false;
  }

  /** Sends whole events; from the end marker on everything is held back, and the answer is complete. */
  #forward(reader: EventReader, events: readonly Buffer[]): void {
    const send = reader.beforeEnd(events);
    if (send > 0) this.#show(this.#watch?.pass(send === events.length ? events : events.slice(0, send)) ?? []);
    if (send === events.length || this.#settled || this.#gate?.over) return;
    const tail = events.slice(send);
    if (this.#endsUnseen(tail, reader.failed)) return;
    this.#complete(reader.failed, reader.failed ? [withoutSentSecrets(joined(tail), this.#target)] : tail);
  }

  #show(events: readonly Buffer[]): void {
    if (events.length === 0) return;
    if (this.#gate === null) this.#send(events);
    else this.#gate.push(events);
  }

  /** The stream has ended. Whether it is one that nobody saw and another attempt takes the place of; else all of it is shown. */
  #endsUnseen(tail: readonly Buffer[], failed: boolean): boolean {
    const found = this.#watch?.verdict(tail, failed) ?? null;
    if (found === null) {
      this.#show(this.#watch?.take() ?? []);
      return this.#settled || this.#gate?.over === true;
    }
    this.#control?.abort();
    this.#takeUsage(true);
    if (found instanceof SluiceError) this.#finish({ kind: 'failed', error: found });
    else this.#answerError(found);
    return true;
  }

  #send(events: readonly Buffer[]): void {
    if (!this.#x.outcome.headSent) this.#client.start(null, 'text/event-stream');
    this.#client.write(...(bytesIn(events) > LARGE_BYTES ? events : [joined(events)]));
    this.#x.outcome.deliveredPrefix?.see(events);
  }

  #complete(failed: boolean, tail: readonly Buffer[]): void {
    this.#takeUsage(failed);
    if (failed) recordFailure(this.#x.outcome, this.#target, errorAmong(this.#x.request, tail));
    if (this.#gate === null) this.#endWith(joined(tail));
    else this.#gate.end(tail, failed);
  }

  #endWith(tail: Buffer | null): void {
    if (this.#x.outcome.headSent) this.#client.endTail(tail === null ? [] : [tail]);
    else this.#client.endWhole(tail === null ? [] : [tail], null, 'text/event-stream');
    this.#finish({ kind: 'done' });
  }

  #endStream(): void {
    const events = this.#events;
    if (events === null) throw new SluiceError('upstream_invalid', 'The provider ended the call before it answered.');
    const flushed = events.flush();
    const last = this.#joint === null ? flushed : this.#joint.pass(flushed);
    if (last.length > 0) this.#forward(events, last);
    if (this.#settled || this.#gate?.over) return;
    if (!events.ended && this.#x.request.operation.wire.knowsEvents) {
      this.#estimateUsage();
      this.#finish({
        kind: 'failed',
        error: new SluiceError('upstream_cut', 'The provider ended the stream before the answer was complete.'),
      });
      return;
    }
    if (this.#endsUnseen([], false)) return;
    // A partial event is never passed on: half a JSON text would break the client before it sees what happened.
    const rest = events.rest();
    this.#takeUsage();
    if (this.#gate === null) this.#endWith(rest);
    else this.#gate.end(rest === null ? [] : [rest], false);
  }

  /** An error costs nothing unless the provider says so; what was generated before it does. */
  #takeUsage(failed = false): void {
    if (this.#kept || this.#gate !== null) this.times.ends(this.#x.services.clock);
    this.#meter.take(() => (failed && this.#watch?.content !== true ? 0 : this.#received()));
  }

  #estimateUsage(): void {
    if (this.#mode === 'error') return;
    if (this.#mode === 'none' && !(this.#meter.alone && this.#x.clientGone)) return;
    this.#meter.estimate(this.#received());
  }

  /** Output tokens of which something arrived: pieces of a stream, or the bytes of an answer in one piece. */
  #received(): number {
    if (this.#mode === 'events') return this.#meter.pieces;
    const { request } = this.#x;
    if (!(request.operation.wire.knowsEvents || passesGeneration(request)) || !isJson(this.#headers)) return 0;
    return tokensOf(this.#answerBytes);
  }
}
