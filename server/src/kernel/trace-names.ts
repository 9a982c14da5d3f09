/** What the ids and names of traces may be, wherever they come from: records, logs, pages and spreadsheets show them. */

/** An id that is safe wherever it is shown. */
const TRACE_ID = /^[A-Za-z0-9._:-]{1,128}$/;
/** A line of text, without what changes how other text is shown. */
const SPAN_NAME = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]{1,128}$/u;

/** Whether a text may name a trace or a span. */
export const isTraceId = (text: string): boolean => TRACE_ID.test(text);

/** Whether a text may be the name of a span. */
export const isSpanName = (text: string): boolean => SPAN_NAME.test(text);
