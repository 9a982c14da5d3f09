/**
 * Takes one upstream answer to the client. Bytes pass through and are only looked at; they are parsed when caller and
 * provider speak different shapes. The end of every answer is held back until the record is written (`steps/record.ts`),
 * and nothing is sent before there is something worth sending, so that a failed attempt can be repeated unseen.
 */

import { startParts, writePart } from '../../http/answer-body.ts';
import { filterUpstreamHeaders } from '../../http/headers.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { parseEvent, SseSplitter } from '../../kernel/sse.ts';
import type { WireControl, WireHandler } from '../../kernel/wire.ts';
import {
  embeddedError,
  errorObject,
  type ProviderError,
  providerErrorBody,
} from '../../operations/dialects/provider-error.ts';
import { isTerminal, TerminalTracker } from '../../operations/dialects/stream.ts';
import { formatEvent, type StreamTransform } from '../../operations/stream.ts';
import { mergeUsage, readAnyUsage, readUsage, type TokenUsage } from '../../operations/usage.ts';
import type { Bound } from '../../providers/binding.ts';
import type { CallContext } from '../../providers/provider.ts';
import { withoutSecrets } from '../../providers/sent-secrets.ts';
import { estimateUse, growReservation, isBackground, likelyInput } from '../estimate.ts';
import type { Exchange } from '../exchange.ts';
import { gatewayHeaders } from '../gateway-headers.ts';
import type { Target } from '../target.ts';
import { dialectOfShape, findUsage, passesGeneration, readAnswerFacts, streamMustEnd } from './facts.ts';
import {
  declaredLength,
  isEventStream,
  isJson,
  isSilent,
  joined,
  modelIn,
  nameOf,
  parsed,
  piecesOf,
  tokensOf,
  touchBytes,
} from './look.ts';

/** An answer this small is sent in one piece, head and body together. */
const WHOLE_BYTES = 64 * 1024;
/** A slow unary answer starts to flow after this long, so that keep-alive white space reaches the client. */
const WHOLE_MS = 250;
/** Bytes of a passed-through answer kept to find its usage; past it only the end is kept. */
const LOOK_BYTES = 4 * 1024 * 1024;
const LOOK_TAIL = 64 * 1024;
const ERROR_BYTES = 1024 * 1024;
/** Largest answer that can be converted between shapes. */
const CONVERT_BYTES = 64 * 1024 * 1024;

const USAGE = Buffer.from('"usage"');

export type AttemptResult =
  /** `x.ending` holds what is left to send. */
  | { readonly kind: 'done' }
  /** The provider refused; nothing was sent to the client yet. */
  | {
      readonly kind: 'answered';
      readonly status: number;
      readonly headers: readonly string[];
      readonly body: string;
      readonly error: ProviderError;
    }
  /** Transport failure, timeout or a gone client. */
  | { readonly kind: 'failed'; readonly error: SluiceError };

type Mode = 'none' | 'error' | 'bytes' | 'json' | 'sse' | 'events';

export class Relay implements WireHandler {
  readonly #x: Exchange;
  readonly #target: Target;
  readonly #bound: Bound;
  readonly #context: CallContext;
  /** `stream_options.include_usage` was added by us: the usage chunk is ours too and is taken out again. */
  readonly #stripUsage: boolean;
  readonly #settle: (result: AttemptResult) => void;
  #settled = false;
  #mode: Mode = 'none';
  #status = 0;
  #headers: readonly string[] = [];
  #control: WireControl | null = null;
  #headAt = 0;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #look: Buffer[] = [];
  #lookBytes = 0;
  #lookCut = false;
  #held: Buffer | null = null;
  #splitter: SseSplitter | null = null;
  #transform: StreamTransform | null = null;
  /** Texts without which the provider's own transform changes nothing; null when it must always run. */
  #touches: readonly Buffer[] | null = null;
  #inspect = false;
  #tracker: TerminalTracker | null = null;
  #rawUsage: JsonObject | null = null;
  #answerBytes = 0;
  /** Tokens written as far as events tell: about one each, and more in large ones. */
  #pieces = 0;
  /** Pieces at which more is reserved under usage limits. */
  #growAt = Number.POSITIVE_INFINITY;
  #firstData: (() => void) | null;
  #paused = false;

  constructor(parts: {
    x: Exchange;
    target: Target;
    bound: Bound;
    context: CallContext;
    stripUsage: boolean;
    /** Called with the first byte of a successful answer. */
    firstData: () => void;
    settle: (result: AttemptResult) => void;
  }) {
    this.#x = parts.x;
    this.#target = parts.target;
    this.#bound = parts.bound;
    this.#context = parts.context;
    this.#stripUsage = parts.stripUsage;
    this.#firstData = parts.firstData;
    this.#settle = parts.settle;
  }

  get status(): number | null {
    return this.#status === 0 ? null : this.#status;
  }

  /** Ends the attempt from outside: a timeout, or the client went away. Whatever comes after is ignored. */
  cancel(error: SluiceError): void {
    if (this.#settled) return;
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
    this.#headAt = this.#x.services.clock.monotonic();
    if (status < 200 || status >= 300) {
      this.#mode = 'error';
      return;
    }
    if (isEventStream(headers)) {
      this.#x.stream = true;
      this.#transform = this.#bound.stream?.(this.#context) ?? null;
      this.#mode = this.#transform === null ? 'sse' : 'events';
      this.#inspect = this.#inspects();
      this.#touches = this.#answerTouches();
      this.#splitter = new SseSplitter();
      this.#tracker = new TerminalTracker(this.#x.operation.dialect);
      this.#growAt = this.#x.reserved?.estimate.output ?? Number.POSITIVE_INFINITY;
      return;
    }
    this.#touches = this.#answerTouches();
    this.#mode = this.#bound.response === undefined ? 'bytes' : 'json';
  }

  onData(chunk: Buffer): void {
    if (this.#settled) return;
    const x = this.#x;
    x.upstreamBytesIn += chunk.length;
    this.#answerBytes += chunk.length;
    if (this.#firstData !== null && this.#mode !== 'error') {
      x.ttft ??= x.elapsed();
      if (x.stream) {
        this.#firstData();
        this.#firstData = null;
      }
    }
    if (this.#mode === 'bytes') this.#bytes(chunk);
    else if (this.#mode === 'sse' || this.#mode === 'events') this.#sse(chunk);
    else this.#collect(chunk, this.#mode === 'json' ? CONVERT_BYTES : ERROR_BYTES);
  }

  onEnd(): void {
    if (this.#settled) return;
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
    if (this.#settled) return;
    this.#estimateUsage();
    const cut =
      this.#x.headSent && error.kind === 'upstream_unreachable'
        ? new SluiceError('upstream_cut', 'The provider cut the connection before the answer was complete.', {
            detail: error.detail ?? error.message,
          })
        : error;
    this.#finish({ kind: 'failed', error: cut });
  }

  #finish(result: AttemptResult): void {
    this.#settled = true;
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
    if (this.#pendingBytes <= limit) {
      this.#pending.push(chunk);
    } else if (this.#mode === 'json') {
      this.#fail(new SluiceError('upstream_invalid', 'The provider sent an answer too large to convert.'));
    } else {
      // An error that never ends would hold the caller for as long as the provider likes.
      this.#control?.abort();
      this.#endError();
    }
  }

  /** Head of the answer to the client: the upstream's headers that may pass, then ours. */
  #head(length: number | null, contentType: string | null): string[] {
    const out: string[] = [];
    filterUpstreamHeaders(this.#headers, out, this.#target.sent);
    if (contentType !== null) {
      for (let i = out.length - 2; i >= 0; i -= 2) if (out[i]?.toLowerCase() === 'content-type') out.splice(i, 2);
      out.push('content-type', contentType);
    }
    if (length !== null) out.push('content-length', String(length));
    gatewayHeaders(this.#x, out);
    return out;
  }

  #start(length: number | null, contentType: string | null): void {
    const x = this.#x;
    x.status = this.#status;
    startParts(x.response, this.#status, this.#head(length, contentType));
    x.headSent = true;
  }

  #write(part: Buffer): void {
    const { response } = this.#x;
    this.#x.bytesOut += part.length;
    if (writePart(response, part) || this.#paused) return;
    this.#paused = true;
    this.#control?.pause();
    response.once('drain', () => {
      this.#paused = false;
      if (!this.#settled) this.#control?.resume();
    });
  }

  #bytes(chunk: Buffer): void {
    this.#keepForLook(chunk);
    if (this.#x.headSent) {
      if (this.#held !== null) this.#write(this.#held);
      this.#held = chunk;
      return;
    }
    this.#pending.push(chunk);
    this.#pendingBytes += chunk.length;
    const slow = this.#x.services.clock.monotonic() - this.#headAt > WHOLE_MS;
    if (this.#pendingBytes <= WHOLE_BYTES && !slow) return;
    this.#start(declaredLength(this.#headers), null);
    const last = this.#pending.pop();
    for (const part of this.#pending) this.#write(part);
    this.#pending = [];
    this.#held = last ?? null;
  }

  #keepForLook(chunk: Buffer): void {
    this.#look.push(chunk);
    this.#lookBytes += chunk.length;
    if (this.#lookBytes <= LOOK_BYTES) return;
    this.#lookCut = true;
    let kept = 0;
    let from = this.#look.length;
    while (from > 0 && kept < LOOK_TAIL) kept += this.#look[--from]?.length ?? 0;
    this.#look = this.#look.slice(from);
    this.#lookBytes = kept;
  }

  #endBytes(): void {
    const x = this.#x;
    const body = this.#look.length === 1 ? this.#look[0] : Buffer.concat(this.#look);
    if (body !== undefined && isJson(this.#headers)) {
      const facts = readAnswerFacts(body, this.#lookCut);
      if (facts.error !== null && !x.headSent) {
        const error = embeddedError(facts.error);
        if (error !== null) {
          this.#answerError(error);
          return;
        }
      }
      x.modelAnswered = nameOf(facts.model);
      if (facts.usage !== null) this.#seeUsage(facts.usage);
    }
    this.#takeUsage();
    if (x.headSent) x.ending = { kind: 'tail', body: this.#held === null ? [] : [this.#held] };
    else {
      x.status = this.#status;
      x.ending = {
        kind: 'whole',
        status: this.#status,
        headers: this.#head(this.#pendingBytes, null),
        body: this.#pending,
      };
    }
    this.#finish({ kind: 'done' });
  }

  #endJson(): void {
    const x = this.#x;
    const raw = Buffer.concat(this.#pending);
    let body: unknown;
    try {
      body = parseExact(raw.toString('utf8'));
    } catch (error) {
      throw new SluiceError('upstream_invalid', 'The provider answered with something that is not JSON.', {
        cause: error,
      });
    }
    if (!isObject(body))
      throw new SluiceError('upstream_invalid', 'The provider answered with JSON that is not an object.');
    const embedded = embeddedError(body);
    if (embedded !== null) {
      this.#answerError(embedded);
      return;
    }
    x.modelAnswered = nameOf(body.model);
    const usage = findUsage(body, this.#bound.binding.usagePath);
    if (usage !== null) this.#seeUsage(usage);
    const touched = this.#touches === null || this.#touches.some((text) => raw.includes(text));
    const out = touched ? (this.#bound.response?.(body, this.#context) ?? body) : body;
    this.#takeUsage();
    const bytes = touched ? Buffer.from(JSON.stringify(out)) : raw;
    x.status = this.#status;
    x.ending = {
      kind: 'whole',
      status: this.#status,
      headers: this.#head(bytes.length, 'application/json'),
      body: [bytes],
    };
    this.#finish({ kind: 'done' });
  }

  #endError(): void {
    const raw = withoutSecrets(Buffer.concat(this.#pending).toString('utf8'), this.#target.sent);
    const upstream = dialectOfShape(this.#bound.binding.shape, this.#x.operation);
    const read = this.#target.provider.error;
    const { status, body, error } = providerErrorBody({
      status: this.#status,
      raw,
      upstream,
      caller: this.#x.operation.dialect,
      ...(read === undefined ? {} : { error: read }),
    });
    // A redirect is never followed and means nothing to a caller of an API.
    this.#finish({
      kind: 'answered',
      status: this.#status < 400 ? 502 : status,
      headers: this.#head(null, 'application/json'),
      body,
      error,
    });
  }

  #answerError(found: ProviderError): void {
    const error = JSON.parse(withoutSecrets(JSON.stringify(found), this.#target.sent)) as ProviderError;
    const body = JSON.stringify(errorObject(error, this.#x.operation.dialect));
    this.#finish({
      kind: 'answered',
      status: error.status,
      headers: this.#head(null, 'application/json'),
      body,
      error,
    });
  }

  #sse(chunk: Buffer): void {
    try {
      const events = this.#splitter?.push(chunk) ?? [];
      const out: Buffer[] = [];
      for (const event of events) {
        if (this.#inspect && this.#failsFirst(event)) return;
        if (this.#mode === 'events' && !this.#passesUntouched(event)) this.#transformEvent(event, out);
        else this.#passEvent(event, out);
      }
      this.#forward(out);
      if (this.#pieces > this.#growAt) this.#growAt = growReservation(this.#x, this.#pieces);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** From the first event the provider's transform would change, all of them go through it. */
  #passesUntouched(event: Buffer): boolean {
    if (this.#touches === null) return false;
    if (!this.#touches.some((text) => event.includes(text))) return true;
    this.#touches = null;
    return false;
  }

  #answerTouches(): readonly Buffer[] | null {
    const { binding, convert } = this.#bound;
    return convert === null && binding.answerTouches !== undefined ? touchBytes(binding.answerTouches) : null;
  }

  #inspects(): boolean {
    const hook = this.#bound.binding.inspectFirstEvent;
    return hook !== undefined && this.#target.credentials.settings[hook.setting] === true;
  }

  /** An error in the first event of a stream becomes an answer with a status, which a retry can see. */
  #failsFirst(event: Buffer): boolean {
    const parsedEvent = parseEvent(event);
    if (parsedEvent === null) return false;
    this.#inspect = false;
    const error = this.#bound.binding.inspectFirstEvent?.find(parsedEvent.data) ?? null;
    if (error === null) return false;
    this.#control?.abort();
    this.#answerError(error);
    return true;
  }

  #passEvent(event: Buffer, out: Buffer[]): void {
    if (!isSilent(event)) this.#pieces += piecesOf(event);
    if (event.indexOf(USAGE) !== -1) {
      const body = parsed(parseEvent(event));
      const usage = body === null ? null : findUsage(body, this.#bound.binding.usagePath);
      if (body !== null && usage !== null) {
        this.#seeUsage(usage);
        if (this.#stripUsage && Array.isArray(body.choices) && body.choices.length === 0) return;
      }
    }
    if (this.#x.modelAnswered === null) this.#x.modelAnswered = modelIn(event);
    out.push(event);
  }

  #transformEvent(bytes: Buffer, out: Buffer[]): void {
    const event = parseEvent(bytes);
    if (event === null) return;
    this.#pieces += piecesOf(bytes);
    if (bytes.indexOf(USAGE) !== -1) {
      const body = parsed(event);
      const usage = body === null ? null : findUsage(body, this.#bound.binding.usagePath);
      if (usage !== null) this.#seeUsage(usage);
    }
    if (this.#x.modelAnswered === null) this.#x.modelAnswered = modelIn(bytes);
    this.#transform?.event(event, (made) => out.push(Buffer.from(formatEvent(made))));
  }

  /** Sends whole events; from the end marker on everything is held back, and the answer is complete. */
  #forward(events: readonly Buffer[]): void {
    const tracker = this.#tracker;
    let send = events.length;
    for (let i = 0; i < events.length; i++) {
      const event = events[i];
      if (event === undefined) continue;
      tracker?.see(event);
      if (isTerminal(this.#x.operation.dialect, event) || tracker?.failed) {
        send = i;
        break;
      }
    }
    if (send > 0) {
      if (!this.#x.headSent) this.#start(null, 'text/event-stream');
      this.#write(joined(send === events.length ? events : events.slice(0, send)));
    }
    if (send === events.length) return;
    const tail = joined(events.slice(send));
    this.#complete(tracker?.failed ? this.#redacted(tail) : tail);
  }

  /** An error event as the caller may see it. */
  #redacted(event: Buffer): Buffer {
    const { sent } = this.#target;
    return sent.some((secret) => event.includes(secret))
      ? Buffer.from(withoutSecrets(event.toString('utf8'), sent))
      : event;
  }

  #complete(tail: Buffer): void {
    const x = this.#x;
    this.#takeUsage();
    if (this.#tracker?.failed) {
      x.outcome = 'failed';
      x.errorCode = 'upstream_stream_error';
      x.errorMessage = 'The provider ended the stream with an error event.';
    }
    this.#endWith(tail);
  }

  #endWith(tail: Buffer | null): void {
    const x = this.#x;
    const body = tail === null ? [] : [tail];
    x.status = this.#status;
    x.ending = x.headSent
      ? { kind: 'tail', body }
      : { kind: 'whole', status: this.#status, headers: this.#head(null, 'text/event-stream'), body };
    this.#finish({ kind: 'done' });
  }

  #endStream(): void {
    const out: Buffer[] = [];
    if (this.#transform !== null && this.#touches === null) {
      this.#transform.end((made) => out.push(Buffer.from(formatEvent(made))));
      this.#forward(out);
      if (this.#settled) return;
    }
    const complete = this.#tracker?.ended || !streamMustEnd(this.#x.operation);
    // A partial event is never passed on: half a JSON text would break the client before it sees what happened.
    const rest =
      (this.#transform === null || this.#touches !== null) && complete ? (this.#splitter?.rest() ?? null) : null;
    if (!complete) {
      this.#estimateUsage();
      this.#finish({
        kind: 'failed',
        error: new SluiceError('upstream_cut', 'The provider ended the stream before the answer was complete.'),
      });
      return;
    }
    this.#takeUsage();
    this.#endWith(rest !== null && rest.length > 0 ? rest : null);
  }

  #seeUsage(usage: JsonObject): void {
    // One report needs no joining; whoever reads it takes impossible counts for absent ones.
    this.#rawUsage = this.#rawUsage === null ? usage : mergeUsage(this.#rawUsage, usage);
  }

  #takeUsage(): void {
    const usage = this.#toldUsage();
    this.#x.usage = usage;
    if (usage === null) this.#estimateUsage();
  }

  #toldUsage(): TokenUsage | null {
    const { binding } = this.#bound;
    const raw = this.#rawUsage;
    if (raw === null) return null;
    if (binding.usage !== undefined) return binding.usage(raw);
    if (this.#x.operation.id !== 'proxy') return readUsage(binding.shape, raw);
    // What only reads may tell what was used before, and was counted then.
    return this.#x.request.method === 'GET' ? null : readAnyUsage(raw);
  }

  /** Output tokens of which something arrived: pieces of a stream, or the bytes of an answer in one piece. */
  #received(): number {
    if (this.#mode === 'sse' || this.#mode === 'events') return this.#pieces;
    if (!(streamMustEnd(this.#x.operation) || passesGeneration(this.#x)) || !isJson(this.#headers)) return 0;
    return tokensOf(this.#answerBytes);
  }

  /** What a generation that reported no usage must have cost at least. Never below what was reported. */
  #estimateUsage(): void {
    const x = this.#x;
    if (x.usage !== null || this.#mode === 'error') return;
    // What runs on by itself is used up whether or not anybody waits for it.
    const alone = isBackground(x);
    if (this.#mode === 'none' && !(alone && x.clientGone)) return;
    const received = Math.max(this.#received(), alone ? estimateUse(x).output : 0);
    if (received === 0) return;
    x.usage = this.#toldUsage();
    const output = Math.max(x.usage?.output ?? 0, received);
    x.usageEstimated = true;
    x.usage = {
      input: x.usage?.input || likelyInput(x),
      output,
      cache_read: x.usage?.cache_read ?? 0,
      cache_write: x.usage?.cache_write ?? 0,
      reasoning: x.usage?.reasoning ?? 0,
      audio_input: x.usage?.audio_input ?? 0,
      audio_output: x.usage?.audio_output ?? 0,
    };
  }
}
