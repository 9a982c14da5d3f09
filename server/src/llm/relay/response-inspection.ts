/** What a relay asks of raw headers and event bytes, without parsing more than it must. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import type { StreamEvent } from '../../operations/stream.ts';
import type { Bound } from '../../providers/binding.ts';
import type { Framing } from '../../providers/provider.ts';

export function headerOf(headers: readonly string[], name: string): string | undefined {
  for (let i = 0; i < headers.length; i += 2) {
    const key = headers[i];
    if (key !== undefined && key.length === name.length && key.toLowerCase() === name) return headers[i + 1];
  }
  return undefined;
}

/** How the events of an answer are framed, or null when it is no stream of events. */
export function framingOf(headers: readonly string[], { framing }: Bound['binding']): Framing | null {
  const type = headerOf(headers, 'content-type')?.toLowerCase();
  if (type === undefined) return null;
  if (type.startsWith('text/event-stream')) return 'sse';
  return framing === 'aws-event-stream' && type.startsWith('application/vnd.amazon.eventstream') ? framing : null;
}

export function isJson(headers: readonly string[]): boolean {
  const type = headerOf(headers, 'content-type')?.toLowerCase();
  return type === undefined || type.startsWith('application/json') || type.includes('+json');
}

/**
 * The upstream's length for an answer whose bytes are passed on as they are, or null. JSON goes without: a length leaves no
 * place behind the body for what it has cost, and JSON shows by itself whether it is whole.
 */
export function shownLength(headers: readonly string[]): number | null {
  if (isJson(headers)) return null;
  const length = headerOf(headers, 'content-length');
  return length !== undefined && /^\d{1,15}$/.test(length) && headerOf(headers, 'content-encoding') === undefined
    ? Number(length)
    : null;
}

/** Weight of one event that is read: what it says, or becomes, is looked at several times. */
export const EVENT_WEIGHT = 100_000;

export function parsed(event: StreamEvent | null): JsonObject | null {
  if (event === null || event.data === '[DONE]') return null;
  try {
    const value: unknown = parseJson(event.data, EVENT_WEIGHT);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

const MODEL = Buffer.from('"model":');
/** A large event says its model before its picture. */
const HEAD_BYTES = 64 * 1024;

const modelName = (key?: string): Buffer => (key === undefined ? MODEL : Buffer.from(`"${key}":`));

/** Whether one of the events in the bytes may tell its model. */
export const tellsModel = (bytes: Buffer, key?: string): boolean => bytes.indexOf(modelName(key)) !== -1;

/** The first `"model": "…"` of an event, by bytes; `key` where the provider calls it otherwise. */
export function modelIn(event: Buffer, key?: string): string | null {
  const name = modelName(key);
  const at = (event.length > HEAD_BYTES ? event.subarray(0, HEAD_BYTES) : event).indexOf(name);
  if (at === -1) return null;
  const open = event.indexOf(34, at + name.length);
  const close = open === -1 || open > at + name.length + 1 ? -1 : event.indexOf(34, open + 1);
  return close === -1 || close === open + 1 || close - open > 200 ? null : event.toString('utf8', open + 1, close);
}

const MAX_NAME = 256;

/** A model name as an answer gives it, or null: it is remembered and recorded, so a giant one is none. */
export function nameOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' && value.length <= MAX_NAME ? value : null;
}

/** A comment or an empty event, as sent to keep a connection alive: nothing was generated. */
export function isSilent(event: Buffer): boolean {
  const first = event[0];
  return (first === 58 && event.indexOf('\ndata') === -1) || first === 10 || first === 13;
}

/** Neighbouring slices of one chunk become one Buffer over the same memory; others are copied together. */
export function joined(parts: readonly Buffer[]): Buffer {
  const [first] = parts;
  if (first === undefined) return Buffer.alloc(0);
  if (parts.length === 1) return first;
  let end = first.byteOffset + first.length;
  for (let i = 1; i < parts.length; i++) {
    const part = parts[i];
    if (part === undefined || part.buffer !== first.buffer || part.byteOffset !== end) return Buffer.concat(parts);
    end += part.length;
  }
  return Buffer.from(first.buffer, first.byteOffset, end - first.byteOffset);
}

export function bytesIn(parts: readonly Buffer[]): number {
  let bytes = 0;
  for (const part of parts) bytes += part.length;
  return bytes;
}

const touches = new WeakMap<readonly string[], readonly Buffer[]>();

/** Texts without which the provider's own transform changes nothing; null when it must always run. */
export function answerTouches({ binding, convert }: Bound): readonly Buffer[] | null {
  return convert === null && binding.answerTouches !== undefined ? touchBytes(binding.answerTouches) : null;
}

/** The texts as bytes, made once for each binding. */
function touchBytes(texts: readonly string[]): readonly Buffer[] {
  let bytes = touches.get(texts);
  if (bytes === undefined) {
    bytes = texts.map((text) => Buffer.from(text));
    touches.set(texts, bytes);
  }
  return bytes;
}

/** Bytes around the text of an event, and how many stand for a token beyond them. */
const FRAME = 512;
const BYTES_A_TOKEN = 4;

/** Tokens that an event stands for, at a glance: one, and more when it is larger than the frame of a token can be. */
export function piecesOf(event: Buffer): number {
  return event.length <= FRAME ? 1 : 1 + Math.floor((event.length - FRAME) / BYTES_A_TOKEN);
}

/** The same for an answer in one piece. */
export function tokensOf(bytes: number): number {
  return Math.ceil(bytes / BYTES_A_TOKEN);
}
