import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { formatEvent, type StreamEvent } from '../stream.ts';
import type { Dialect } from './dialect.ts';
import { asProviderError } from './errors.ts';
import { anthropicErrorType, type ProviderError } from './provider-error.ts';

/**
 * The event that ends a stream with an error. No end marker may follow it. `sequence` is the next
 * `sequence_number` of a Responses stream; `extra` adds documented top-level keys, such as `hook_results`.
 */
export function errorEvent(
  error: SluiceError | ProviderError,
  dialect: Dialect,
  sequence = 0,
  extra?: JsonObject,
): StreamEvent {
  const { status, message, type, param, code } = error instanceof SluiceError ? asProviderError(error) : error;
  switch (dialect) {
    case 'openai':
      return {
        event: null,
        data: JSON.stringify({ error: { message, type, param, code }, ...extra } satisfies JsonObject),
      };
    case 'anthropic': {
      // A refusal by guardrails has no name among Anthropic's own.
      const name = type === 'hooks_failed' ? type : anthropicErrorType(status);
      const body = { type: 'error', error: { type: name, message }, ...extra };
      return { event: 'error', data: JSON.stringify(body) };
    }
    case 'responses': {
      const body = { type: 'error', code: code ?? type, message, param, sequence_number: sequence, ...extra };
      return { event: 'error', data: JSON.stringify(body) };
    }
  }
}

/** Whether the last events of a stream repeat all of the answer. */
export const repeatsAnswer = (dialect: Dialect): boolean => dialect === 'responses';

/** `errorEvent` as the bytes of a stream. */
export function streamErrorEvent(
  error: SluiceError | ProviderError,
  dialect: Dialect,
  sequence = 0,
  extra?: JsonObject,
): string {
  return formatEvent(errorEvent(error, dialect, sequence, extra));
}

const DONE = Buffer.from('[DONE]');
const TYPE = '"type"';
const MESSAGE_STOP = ['"message_stop"'].map((name) => Buffer.from(name));
const RESPONSE_END = ['"response.completed"', '"response.incomplete"', '"response.failed"'].map((name) =>
  Buffer.from(name),
);
const ERROR_TYPE = [Buffer.from('"error"')];
/** A Responses stream that fails ends with this, whether or not an error event came before it. */
const FAILURE_TYPES = [Buffer.from('"response.failed"')];
const ERROR_KEY = Buffer.from('"error"');
const FINISH = Buffer.from('"finish_reason"');

const isSpace = (byte: number | undefined): boolean => byte === 32 || byte === 9 || byte === 10 || byte === 13;

/**
 * Whether `"type": <one of values>` occurs. Inside a JSON string every quote is escaped, so generated text that spells
 * the marker never matches.
 */
function hasType(bytes: Buffer, values: readonly Buffer[], from = 0): boolean {
  for (const value of values) {
    let at = bytes.indexOf(value, from);
    while (at >= 0) {
      let i = at - 1;
      while (isSpace(bytes[i])) i--;
      if (bytes[i] === 58) {
        i--;
        while (isSpace(bytes[i])) i--;
        if (i >= TYPE.length - 1 && bytes.toString('latin1', i - TYPE.length + 1, i + 1) === TYPE) return true;
      }
      at = bytes.indexOf(value, at + value.length);
    }
  }
  return false;
}

/** First byte after `key` and its colon that is not white space, or undefined when the key does not occur. */
function byteAfter(bytes: Buffer, key: Buffer, from = 0): { readonly byte: number; readonly at: number } | undefined {
  const at = bytes.indexOf(key, from);
  if (at < 0) return undefined;
  let i = at + key.length;
  while (isSpace(bytes[i])) i++;
  if (bytes[i] !== 58) return byteAfter(bytes, key, at + key.length);
  i++;
  while (isSpace(bytes[i])) i++;
  return { byte: bytes[i] ?? 0, at: i };
}

/**
 * Whether the bytes of one event hold the end marker of `dialect`: `[DONE]`, `message_stop`, or
 * `response.completed|incomplete|failed`. Searches bytes, parses nothing.
 */
export function isTerminal(dialect: Dialect, eventBytes: Buffer): boolean {
  return dialect === 'openai'
    ? eventBytes.length < 64 && eventBytes.includes(DONE)
    : atEnds(eventBytes, (part) => saysEnd(dialect, part));
}

/** Whether the bytes of one event are an error event of `dialect`, or an end marker that says that the answer failed. */
export function isErrorEvent(dialect: Dialect, eventBytes: Buffer): boolean {
  return atEnds(eventBytes, (part) => saysError(dialect, part) || saysFailure(dialect, part));
}

/** Whether a chat or text chunk carries a finish reason that is not null. */
export function hasFinishReason(eventBytes: Buffer): boolean {
  return atEnds(eventBytes, saysFinish);
}

/**
 * Larger events hold pictures or sound, with what they say of themselves before and behind. A search for few bytes may stop at each
 * byte, and 8 MB of them take several milliseconds. What arrives so large is searched as it arrives (`marksIn`).
 */
export const LOOKED_BYTES = 64 * 1024;

/** Whether it is so of the bytes, or of one end of many. */
function atEnds(bytes: Buffer, holds: (part: Buffer) => boolean): boolean {
  if (bytes.length <= 2 * LOOKED_BYTES) return holds(bytes);
  return holds(bytes.subarray(0, LOOKED_BYTES)) || holds(bytes.subarray(-LOOKED_BYTES));
}

const saysEnd = (dialect: Dialect, bytes: Buffer, from = 0): boolean =>
  (dialect === 'anthropic' && hasType(bytes, MESSAGE_STOP, from)) ||
  (dialect === 'responses' && hasType(bytes, RESPONSE_END, from));

const saysFailure = (dialect: Dialect, bytes: Buffer, from = 0): boolean =>
  dialect === 'responses' && hasType(bytes, FAILURE_TYPES, from);

function saysError(dialect: Dialect, bytes: Buffer, from = 0): boolean {
  if (dialect !== 'openai') return hasType(bytes, ERROR_TYPE, from);
  const next = byteAfter(bytes, ERROR_KEY, from);
  return next !== undefined && (next.byte === 123 || next.byte === 34);
}

function saysFinish(eventBytes: Buffer, from = 0): boolean {
  let next = byteAfter(eventBytes, FINISH, from);
  while (next !== undefined) {
    if (next.byte === 34) return true;
    next = byteAfter(eventBytes, FINISH, next.at);
  }
  return false;
}

/** What a large event says of its stream. */
export interface EventMarks {
  /** It holds the end marker. */
  readonly ends: boolean;
  /** That marker says that the answer failed. */
  readonly fails: boolean;
  /** It is an error event. */
  readonly errs: boolean;
  /** It carries a finish reason. */
  readonly finishes: boolean;
}

/** What the bytes of a large event say from `from` on, as the functions above find it in a smaller one. */
export function marksIn(dialect: Dialect, bytes: Buffer, from: number): EventMarks {
  return {
    ends: saysEnd(dialect, bytes, from),
    fails: saysFailure(dialect, bytes, from),
    errs: saysError(dialect, bytes, from),
    finishes: dialect === 'openai' && saysFinish(bytes, from),
  };
}

/** Without any of them, events neither end a stream nor fail it. */
const MARKERS: Readonly<Record<Dialect, readonly Buffer[]>> = {
  openai: [DONE, ERROR_KEY, FINISH],
  anthropic: [...MESSAGE_STOP, ...ERROR_TYPE],
  responses: [...RESPONSE_END, ...ERROR_TYPE],
};

/**
 * Follows the events of one stream and knows whether it ended as it should. An OpenAI stream also counts as
 * ended once a finish reason was seen: some compatible servers never send `[DONE]`.
 */
export class TerminalTracker {
  readonly #dialect: Dialect;
  /** The end marker, a finish reason or an error event was seen: a close after it is no cut. */
  ended = false;
  failed = false;

  constructor(dialect: Dialect) {
    this.#dialect = dialect;
  }

  /** Whether `see` could find something in these events: a search for what it looks for. */
  concerns(events: Buffer): boolean {
    return MARKERS[this.#dialect].some((marker) => events.includes(marker));
  }

  /**
   * Whether the event holds the end marker.
   *
   * @param known what is known of a large event; others are searched
   */
  see(eventBytes: Buffer, known: EventMarks | null = null): boolean {
    const dialect = this.#dialect;
    const ends = known?.ends ?? isTerminal(dialect, eventBytes);
    if (this.ended && dialect !== 'openai') return ends;
    if (ends) {
      this.ended = true;
      this.failed ||= known?.fails ?? atEnds(eventBytes, (part) => saysFailure(dialect, part));
    } else if (known?.errs ?? isErrorEvent(dialect, eventBytes)) {
      this.ended = true;
      this.failed = true;
    } else if (dialect === 'openai' && (known?.finishes ?? hasFinishReason(eventBytes))) this.ended = true;
    return ends;
  }
}
