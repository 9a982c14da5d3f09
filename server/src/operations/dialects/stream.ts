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
function hasType(bytes: Buffer, values: readonly Buffer[]): boolean {
  for (const value of values) {
    let at = bytes.indexOf(value);
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
  switch (dialect) {
    case 'openai':
      return eventBytes.length < 64 && eventBytes.includes(DONE);
    case 'anthropic':
      return atEnds(eventBytes, (part) => hasType(part, MESSAGE_STOP));
    case 'responses':
      return atEnds(eventBytes, (part) => hasType(part, RESPONSE_END));
  }
}

/**
 * Larger events hold pictures or sound, with what they say of themselves before and behind. A search for few bytes may stop at each
 * byte, and 8 MB of them take several milliseconds.
 */
const LOOKED_BYTES = 64 * 1024;

/** Whether it is so of the bytes, or of one end of many. */
function atEnds(bytes: Buffer, holds: (part: Buffer) => boolean): boolean {
  if (bytes.length <= 2 * LOOKED_BYTES) return holds(bytes);
  return holds(bytes.subarray(0, LOOKED_BYTES)) || holds(bytes.subarray(-LOOKED_BYTES));
}

/** Whether the bytes of one event are an error event of `dialect`, or an end marker that says that the answer failed. */
export function isErrorEvent(dialect: Dialect, eventBytes: Buffer): boolean {
  const head = eventBytes.length > LOOKED_BYTES ? eventBytes.subarray(0, LOOKED_BYTES) : eventBytes;
  if (dialect !== 'openai')
    return (
      hasType(head, ERROR_TYPE) ||
      (dialect === 'responses' && atEnds(eventBytes, (part) => hasType(part, FAILURE_TYPES)))
    );
  const next = byteAfter(head, ERROR_KEY);
  return next !== undefined && (next.byte === 123 || next.byte === 34);
}

/** Whether a chat or text chunk carries a finish reason that is not null. */
export function hasFinishReason(eventBytes: Buffer): boolean {
  return atEnds(eventBytes, saysFinish);
}

function saysFinish(eventBytes: Buffer): boolean {
  let next = byteAfter(eventBytes, FINISH);
  while (next !== undefined) {
    if (next.byte === 34) return true;
    next = byteAfter(eventBytes, FINISH, next.at);
  }
  return false;
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

  see(eventBytes: Buffer): void {
    if (this.ended && this.#dialect !== 'openai') return;
    if (isTerminal(this.#dialect, eventBytes)) {
      this.ended = true;
      this.failed ||= this.#dialect === 'responses' && isErrorEvent(this.#dialect, eventBytes);
    } else if (isErrorEvent(this.#dialect, eventBytes)) {
      this.ended = true;
      this.failed = true;
    } else if (this.#dialect === 'openai' && hasFinishReason(eventBytes)) this.ended = true;
  }
}
