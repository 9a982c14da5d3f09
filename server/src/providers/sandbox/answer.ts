import type { JsonObject } from '../../kernel/json.ts';
import type { SandboxModel } from './model.ts';
import type { Text } from './text.ts';

/** What happens next in an answer: bytes, a pause, or a broken connection. The end of the list is the end. */
export type Step = Buffer | string | { readonly waitMs: number } | { readonly cut: true };

export interface Answer {
  readonly status: number;
  /** Without `x-request-id`, which every answer has. */
  readonly headers: readonly string[];
  /** Silence before the head. */
  readonly delayMs: number;
  readonly steps: Iterable<Step>;
}

/** One server-sent event. `tokens` is what it delivers; `final` events say that the answer is complete. */
export interface Event {
  readonly bytes: string;
  readonly tokens: number;
  readonly final?: boolean;
}

/** A generation, ready to be sent. */
export interface Rendering {
  readonly model: SandboxModel;
  /** Tokens of the whole answer. */
  readonly tokens: number;
}

const JSON_TYPE = 'application/json';

/** A plain JSON answer without any behaviour. */
export function jsonAnswer(status: number, body: JsonObject, headers: readonly string[] = []): Answer {
  return bytesAnswer(status, JSON_TYPE, Buffer.from(JSON.stringify(body)), headers);
}

export function bytesAnswer(status: number, type: string, body: Buffer, headers: readonly string[] = []): Answer {
  return {
    status,
    headers: ['content-type', type, 'content-length', String(body.length), ...headers],
    delayMs: 0,
    steps: body.length === 0 ? [] : [body],
  };
}

/** Milliseconds that `tokens` tokens take, beside the first. */
function generationMs(model: SandboxModel, tokens: number): number {
  const rate = model.numbers.tokens_per_s;
  return rate === undefined ? 0 : Math.min(3_600_000, (Math.max(0, tokens - 1) * 1000) / rate);
}

/** Tokens for each event of a stream: one each up to 2,000 events, more when the answer is longer. */
export function groupOf(model: SandboxModel, tokens: number): number {
  const group = Math.min(512, Math.max(1, Math.ceil(tokens / 2000)));
  const rate = model.numbers.tokens_per_s;
  return rate === undefined ? group : Math.min(group, Math.max(1, Math.ceil(rate / 50)));
}

/** The faults of a whole body: half of it is sent before a cut or a silence. */
export function wholeAnswer(model: SandboxModel, tokens: number, answer: Answer): Answer {
  const { behaviour, numbers, words } = model;
  const delayMs = (numbers.ttft_ms ?? 0) + generationMs(model, tokens);
  if (behaviour !== 'cut' && behaviour !== 'stall' && behaviour !== 'malformed') return { ...answer, delayMs };
  const [body] = answer.steps;
  if (!Buffer.isBuffer(body)) return { ...answer, delayMs };
  const half = body.subarray(0, body.length >> 1);
  if (behaviour === 'stall') {
    return { ...answer, steps: [half, { waitMs: numbers.ms ?? 0 }, body.subarray(half.length)] };
  }
  if (behaviour === 'cut' && words.mode !== 'end') return { ...answer, steps: [half, { cut: true }] };
  const headers = answer.headers.map((value, i) =>
    answer.headers[i - 1] === 'content-length' ? String(half.length) : value,
  );
  return { ...answer, headers, steps: half.length === 0 ? [] : [half] };
}

/** A text of the body that is put in place while the body is sent: see `streamedJson`. */
export function placeholder(hash: string, index: number): string {
  return `{{sandbox text ${hash} ${index}}}`;
}

/**
 * `body` as JSON, with the placeholders of `texts` replaced. When every text is in memory the body is one buffer with a
 * length; else it is made while it is read.
 */
export function textAnswer(
  rendering: Rendering,
  body: JsonObject,
  texts: readonly (Text | null)[],
  hash: string,
): Answer {
  const made = texts.flatMap((text, i) => (text?.whole === null ? [{ text, mark: placeholder(hash, i) }] : []));
  const json = JSON.stringify(body);
  if (made.length === 0) {
    return wholeAnswer(rendering.model, rendering.tokens, bytesAnswer(200, JSON_TYPE, Buffer.from(json)));
  }
  function* steps(): Generator<Step> {
    let rest = json;
    for (const { text, mark } of made) {
      const at = rest.indexOf(mark);
      yield rest.slice(0, at);
      for (const piece of text.pieces(512)) yield JSON.stringify(piece.text).slice(1, -1);
      rest = rest.slice(at + mark.length);
    }
    yield rest;
  }
  const delayMs = (rendering.model.numbers.ttft_ms ?? 0) + generationMs(rendering.model, rendering.tokens);
  return { status: 200, headers: ['content-type', JSON_TYPE], delayMs, steps: steps() };
}

/** What a text contributes to a JSON body: itself, or its placeholder. */
export function inBody(text: Text | null, hash: string, index: number): string | null {
  return text === null ? null : (text.whole ?? placeholder(hash, index));
}

/** A stream with the behaviour of its model. */
export function streamAnswer(model: SandboxModel, events: Iterable<Event>): Answer {
  return {
    status: 200,
    headers: ['content-type', 'text/event-stream; charset=utf-8', 'cache-control', 'no-cache'],
    delayMs: model.numbers.ttft_ms ?? 0,
    steps: eventSteps(model, events),
  };
}

/** An event that is well framed and holds half a JSON text. */
function broken(bytes: string): string {
  const at = bytes.indexOf('data: ') + 'data: '.length;
  const end = bytes.indexOf('\n', at);
  return `${bytes.slice(0, at + ((end - at) >> 1))}\n\n`;
}

function* eventSteps(model: SandboxModel, events: Iterable<Event>): Generator<Step> {
  const { behaviour, numbers, words } = model;
  const rate = numbers.tokens_per_s;
  const after = behaviour === 'cut' || behaviour === 'stall' ? (numbers.after_tokens ?? 0) : null;
  let seen = 0;
  let tokens = 0;
  let stopped = false;
  for (const event of events) {
    seen += 1;
    if (after !== null && !stopped && (tokens >= after || event.final === true)) {
      stopped = true;
      if (behaviour === 'cut') {
        if (words.mode !== 'end') yield { cut: true };
        return;
      }
      yield { waitMs: numbers.ms ?? 0 };
    }
    if (rate !== undefined && event.tokens > 0 && tokens > 0) yield { waitMs: (event.tokens * 1000) / rate };
    tokens += event.tokens;
    yield behaviour === 'malformed' && seen === numbers.event ? broken(event.bytes) : event.bytes;
  }
}
