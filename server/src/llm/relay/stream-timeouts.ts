/**
 * Watches one stream on its way to the caller: how long it is silent, whether its events are whole, and from when on it
 * may be shown. While another attempt may follow, nothing is shown before the first content, or before as much of it as the
 * config holds back; an attempt that fails until then has not been seen by anybody.
 */

import { type Deadline, deadlinesOf } from '../../kernel/deadlines.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { parseEvent } from '../../kernel/sse.ts';
import { errorCode, errorStatus } from '../../operations/dialects/errors.ts';
import { FILTERED, type ProviderError } from '../../operations/dialects/provider-error.ts';
import { withoutSecrets } from '../../providers/sent-secrets.ts';
import type { Uses } from '../exchange.ts';
import { insists } from '../guard/output.ts';
import type { Target } from '../target.ts';
import type { AttemptTimings } from './attempt-timings.ts';
import { EVENT_WEIGHT, isSilent, piecesOf } from './response-inspection.ts';
import { type BreakRules, isFollowed } from './retry-rules.ts';

/** What this file uses of an exchange. */
type Used = Uses<'attempt' | 'guard' | 'outcome' | 'request', 'clock'>;

/** Bytes of events before the first content that are kept at most; what is more is shown as it comes. */
const KEPT_BYTES = 1024 * 1024;

export class StreamWatch {
  readonly #x: Used;
  readonly #target: Target;
  readonly #times: AttemptTimings;
  readonly #paused: () => boolean;
  readonly #expire: (error: SluiceError) => void;
  readonly #release: (events: readonly Buffer[]) => void;
  readonly #known: boolean;
  /** Guardrails refuse what nobody can read. */
  readonly #guarded: boolean;
  readonly #deadline: Deadline;
  /** Content was seen. */
  #content = false;
  /** The answer said why it ended. */
  #told = false;
  #filtered = false;
  /** Events that wait; null when they are shown as they come. */
  #kept: Buffer[] | null;
  #keptBytes = 0;
  #tokens = 0;
  #within: BreakRules | null = null;
  #stopTimer: (() => void) | null = null;

  constructor(parts: {
    x: Used;
    target: Target;
    /** Monotonic time at which the attempt began. */
    started: number;
    /** Called when the first content came. */
    times: AttemptTimings;
    /** Whether it is we who are not reading. */
    paused: () => boolean;
    expire: (error: SluiceError) => void;
    /** Shows what was kept, when time and not an event says so. */
    release: (events: readonly Buffer[]) => void;
  }) {
    const { x, target } = parts;
    this.#x = x;
    this.#target = target;
    this.#times = parts.times;
    this.#paused = parts.paused;
    this.#expire = parts.expire;
    this.#release = parts.release;
    this.#known = x.request.operation.wire.knowsEvents;
    this.#guarded = x.guard?.output.some(insists) ?? false;
    this.#kept = x.attempt.retriesLeft !== null || x.attempt.wouldFallBack !== null ? [] : null;
    const { clock } = x.services;
    const left = target.limits.firstTokenMs - (clock.monotonic() - parts.started);
    this.#deadline = deadlinesOf(clock).start(Math.max(0, left), this.#onDeadline);
  }

  /** Content was seen, shown or not. */
  get content(): boolean {
    return this.#content;
  }

  /** Events are kept back. */
  get keeps(): boolean {
    return this.#kept !== null;
  }

  /** The events that may be shown now. Throws `upstream_invalid` at one that is not whole. */
  pass(events: readonly Buffer[]): readonly Buffer[] {
    let alive = false;
    for (const event of events) {
      if (this.#content && (this.#kept === null || this.#within === null)) {
        if (this.#known && !this.#guarded && !looksWhole(event)) throw malformed();
        alive ||= !isSilent(event) && !(event.length < PING_BYTES && event.includes(PING));
        continue;
      }
      // It is not read to learn whether it says something: a picture of 7 MB holds the event loop for 20 ms. An error in it was
      // found by its bytes (`large-events.ts`), before this is asked.
      const large = this.#known && event.length > READ_BYTES;
      if (large && !looksWhole(event)) throw malformed();
      const body = large ? LARGE : this.#known ? this.#bodyOf(event) : isSilent(event) ? null : NOTHING_KNOWN;
      if (body === null) continue;
      alive ||= this.#content && !this.#x.request.operation.wire.isPing(body);
      this.#note(body);
      this.#tokens += this.#content ? piecesOf(event) : 0;
    }
    if (alive) this.#deadline.reset(this.#target.limits.quietMs);
    if (this.#kept === null) return events;
    for (const event of events) {
      this.#kept.push(event);
      this.#keptBytes += event.length;
    }
    return this.#mustWait() ? [] : this.take();
  }

  /** The stream has ended by these events, or without them. What the attempt fails with, if another one follows. */
  verdict(tail: readonly Buffer[], failed: boolean): ProviderError | SluiceError | null {
    const {
      outcome: { headSent },
      attempt: { retriesLeft: again, wouldFallBack: next },
    } = this.#x;
    const { wire } = this.#x.request.operation;
    // An attempt that continues what was shown has kept its own part back.
    if (headSent && this.#kept === null)
      return failed && this.#x.outcome.deliveredPrefix?.continuable ? this.#broken(tail) : null;
    const followed = again !== null || next !== null;
    if (!followed && (failed || !this.#known || this.#content || this.#told)) return null;
    for (const event of tail) {
      const body = this.#known ? this.#bodyOf(event) : null;
      if (body === null) continue;
      const error = failed ? wire.errorIn(body) : null;
      if (error !== null) return isFollowed(this.#x.attempt, error.status, error.code) ? error : null;
      this.#note(body);
    }
    if (this.#filtered && followed)
      return isFollowed(this.#x.attempt, FILTERED.status, FILTERED.code) ? FILTERED : null;
    if (failed || (this.#known && !this.#content && !this.#told)) {
      const error = new SluiceError('upstream_invalid', 'The provider ended the stream without an answer.');
      return !failed || isFollowed(this.#x.attempt, errorStatus(error), errorCode(error)) ? error : null;
    }
    return null;
  }

  /** The error that broke a stream which the next attempt may continue. */
  #broken(tail: readonly Buffer[]): SluiceError | null {
    for (const event of tail) {
      const body = bodyOf(event);
      const error = body == null ? null : this.#x.request.operation.wire.errorIn(body);
      if (error === null || !isFollowed(this.#x.attempt, error.status, error.code)) continue;
      const { message, status, type, code } = error;
      return new SluiceError('provider_error', withoutSecrets(message, this.#target.sent), {
        provider: { status, type, code },
      });
    }
    return null;
  }

  /** What was kept; from now on events are shown as they come. */
  take(): readonly Buffer[] {
    const kept = this.#kept ?? [];
    this.#kept = null;
    this.#stopTimer?.();
    this.#stopTimer = null;
    return kept;
  }

  close(): void {
    this.#deadline.cancel();
    this.#stopTimer?.();
    this.#stopTimer = null;
  }

  #bodyOf(event: Buffer): JsonObject | null {
    const body = bodyOf(event);
    if (body !== undefined) return body;
    if (this.#guarded && this.#kept === null) return null;
    throw malformed();
  }

  #note(body: JsonObject): void {
    const { wire } = this.#x.request.operation;
    this.#told ||= wire.tellsEnd(body);
    this.#filtered ||= wire.isFiltered(body);
    if (this.#content || (body !== LARGE && !wire.says(body))) return;
    this.#content = true;
    this.#times.contentAt = this.#x.services.clock.monotonic();
    this.#deadline.reset(this.#target.limits.quietMs);
    const rules = this.#target.onBreak;
    if (this.#kept === null || rules === null || rules.ms === 0) return;
    this.#within = rules;
    this.#stopTimer = this.#x.services.clock.after(rules.ms, () => {
      this.#stopTimer = null;
      if (this.#kept !== null) this.#release(this.take());
    });
  }

  #mustWait(): boolean {
    if (!this.#content) return this.#keptBytes <= KEPT_BYTES;
    const within = this.#within;
    return within !== null && this.#keptBytes <= within.bytes && this.#tokens <= within.tokens;
  }

  readonly #onDeadline = (): void => {
    const { firstTokenMs, quietMs } = this.#target.limits;
    if (this.#paused()) this.#deadline.reset(quietMs);
    else if (this.#content) this.#expire(silent(quietMs, this.#x.outcome.headSent));
    else
      this.#expire(
        new SluiceError('timeout', `The provider's stream had no content within ${firstTokenMs} ms.`, {
          reason: 'first_token_timeout',
        }),
      );
  };
}

/** A stream that was begun and then said nothing for `ms`. */
export function silent(ms: number, shown: boolean): SluiceError {
  const kind = shown ? 'upstream_idle' : 'upstream_silent';
  return new SluiceError(kind, `The provider's answer stopped for ${ms} ms before it was complete.`);
}

/** What failed the call, as it stands to the answer. */
export function asSeen(x: Uses<'attempt' | 'outcome'>, { limits }: Target, error: SluiceError): SluiceError {
  if (error.kind === 'upstream_idle' || error.kind === 'upstream_silent')
    return silent((x.attempt.stream ? limits.stream : limits.whole).idleMs, x.outcome.headSent);
  if (!x.outcome.headSent || error.kind !== 'upstream_unreachable') return error;
  return new SluiceError('upstream_cut', 'The provider cut the connection before the answer was complete.', {
    detail: error.detail ?? error.message,
  });
}

const NOTHING_KNOWN: JsonObject = {};
/** A large event: it says something. */
const LARGE: JsonObject = {};
/** Larger events are not read. */
const READ_BYTES = 1024 * 1024;
const PING = Buffer.from('"ping"');
const PING_BYTES = 64;
const DONE = Buffer.from('[DONE]');

const malformed = (): SluiceError =>
  new SluiceError('upstream_invalid', 'The provider sent an event in its stream that cannot be understood.');

/** The object of an event; null for a comment or the end marker, undefined for anything else. */
function bodyOf(bytes: Buffer): JsonObject | null | undefined {
  const event = parseEvent(bytes);
  if (event === null || event.data === '' || event.data.trim() === '[DONE]') return null;
  try {
    const body: unknown = parseJson(event.data, EVENT_WEIGHT);
    return isObject(body) ? body : undefined;
  } catch {
    return undefined;
  }
}

const DATA = Buffer.from('data:');

/**
 * Whether an event can be JSON, by where its object begins and ends: what was cut off, or is none, is found at a glance, and
 * not what is wrong inside, which would cost as much as reading every event.
 */
function looksWhole(event: Buffer): boolean {
  let end = event.length - 1;
  while (end >= 0 && ((event[end] as number) === 10 || event[end] === 13 || event[end] === 32)) end--;
  const at = event[0] === 100 ? 0 : event.indexOf(DATA);
  if (at === -1 || isSilent(event)) return true;
  let from = at + DATA.length;
  while (event[from] === 32) from++;
  if (from > end) return true;
  if (event[from] !== 123) return event.length < 64 && event.includes(DONE);
  from++;
  while (event[from] === 32 || event[from] === 10) from++;
  // Some name their event after its data.
  return (event[from] === 34 || event[from] === 125) && (event[end] === 125 || event.includes('\nevent:'));
}
