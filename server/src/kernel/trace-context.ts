/**
 * Ids of traces and spans as W3C Trace Context and OpenTelemetry have them: 32 and 16 lower-case hexadecimal digits, not all
 * zeros. Callers may name a trace otherwise; the same name gives the same id everywhere.
 */
import { createHash } from 'node:crypto';
import { looksSecret } from './quoted.ts';

const TRACE_DIGITS = 32;
const SPAN_DIGITS = 16;
const TRACE = /^[0-9a-f]{32}$/;
const SPAN = /^[0-9a-f]{16}$/;
const ZEROS = /^0+$/;

/** An id is kept, a UUID is written without hyphens, and any other text is hashed. */
export function traceIdOf(text: string): string {
  const plain = plainOf(text);
  return TRACE.test(plain) && !ZEROS.test(plain) ? plain : hashed(text, TRACE_DIGITS);
}

/** An id is kept, a UUID gives its last half, which is the random one, and any other text is hashed. */
export function spanIdOf(text: string): string {
  const plain = plainOf(text);
  const id = TRACE.test(plain) ? plain.slice(SPAN_DIGITS) : plain;
  return SPAN.test(id) && !ZEROS.test(id) ? id : hashed(text, SPAN_DIGITS);
}

/**
 * The id of the n-th span below another, from 1: that id xor n. So ids of attempts need not be stored, and who sends one to a
 * provider and who makes the span of it later agree.
 */
export function childSpanId(spanId: string, n: number): string {
  const low = (Number.parseInt(spanId.slice(8), 16) ^ n) >>> 0;
  const id = spanId.slice(0, 8) + low.toString(16).padStart(8, '0');
  // A caller may have named its span 0000000000000001.
  return ZEROS.test(id) ? 'f'.repeat(SPAN_DIGITS) : id;
}

/** Both are ids as above. */
export function traceparentOf(traceId: string, spanId: string, sampled: boolean): string {
  return `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`;
}

const plainOf = (text: string): string => text.replaceAll('-', '').toLowerCase();

const hashed = (text: string, digits: number): string =>
  createHash('sha256').update(text).digest('hex').slice(0, digits);

/** A name of a trace or span that is safe wherever it is shown: in headers, logs, pages and spreadsheets. */
const TRACE_ID = /^[A-Za-z0-9._:-]{1,128}$/;
/** A line of text, without what changes how other text is shown. */
const SPAN_NAME = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]{1,128}$/u;

/** Whether a text may name a trace or a span; a credential names none. */
export const isTraceId = (text: string): boolean => TRACE_ID.test(text) && !looksSecret(text);

/** Whether a text may be the name of a span. */
export const isSpanName = (text: string): boolean => SPAN_NAME.test(text);
