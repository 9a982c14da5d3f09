/**
 * What a request may use at most, or will most likely use, before it is sent. A bounded estimate is never below what is
 * used, whatever the model: input is counted as one token for each byte, about four times what prose has. The price of
 * that is paid near a limit only, where requests that run at once take up more of it than they will need.
 */

import { isObject, type JsonObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import { NO_TOKENS } from '../operations/usage.ts';
import { costMicros, mostMicros } from '../pricing/cost.ts';
import type { Price } from '../pricing/price.ts';
import type { Exchange, Uses } from './exchange.ts';
import { modelUnder, shape } from './shaping.ts';
import type { Attempt } from './state/attempt.ts';
import type { Estimate } from './state/limits.ts';
import { isTextOnly } from './text-only.ts';

/** Larger bodies are not parsed for it: they count four bytes a token and have no bound. */
const MAX_PARSED = 256 * 1024;
/** No answer is longer; larger maxima are callers' ways of saying none. */
const MAX_OUTPUT = 1_000_000;
/** Of all answers of one request; what is more is no count (`operations/usage.ts`). */
const MAX_COUNT = 999_999_999;
/** What templates put around a request, beyond what its JSON does; and around tools, where vendors add instructions. */
const AROUND = 16;
const AROUND_TOOLS = 1024;
/** Pictures and sound in base64 are far fewer tokens than bytes. */
const MEDIA_TOKENS = 16_384;
export const BASE64 = 'base64';
/** Output tokens of the largest published size of one image. */
const IMAGE_TOKENS: Readonly<Record<string, number>> = { low: 408, medium: 1584 };
const LARGEST_IMAGE = 6240;

const FREE: Estimate = { input: 0, output: 0, bounded: true, price: null, free: true };

export function modelKey(x: Uses<'attempt' | 'request'>): string {
  return `${x.attempt.target?.provider.id ?? ''} ${modelUnder(x.attempt.target?.shaping ?? null, x.request.model)}`;
}

/** Whether it goes on at the provider after its answer: no request tells later what it has used. */
export function isBackground({
  request: { operation },
  attempt: { scan, target },
}: Uses<'attempt' | 'request'>): boolean {
  if (!operation.wire.hasBackground) return false;
  const { overrides, defaults } = target?.shaping ?? {};
  return scan?.get('background')?.kind === 'true' || overrides?.background === true || defaults?.background === true;
}

export function estimateUse(x: Exchange): Estimate {
  const {
    attempt: { target },
  } = x;
  if (target === null || x.request.operation.free) return FREE;
  const model = modelUnder(target.shaping, x.request.model);
  const price = x.services.pricer.price(target.provider.id, target.priced, model, target.stored, x.request.time);
  const body = bodyOf(x.attempt);
  const sized = body === null ? null : size(x, body);
  if (sized !== null) return { ...sized, price, free: false };
  const expected = x.request.operation.shape === 'images' ? LARGEST_IMAGE : x.services.outputs.expected(modelKey(x));
  return { input: likelyInput(x), output: expected, bounded: false, price, free: false };
}

/** Micro-dollars of an estimate at a price; null, an unknown price: 0. */
export function estimatedCost({ input, output, bounded }: Estimate, price: Price | null): number {
  if (price === null) return 0;
  return bounded ? mostMicros(price, input, output) : costMicros(price, { ...NO_TOKENS, input, output }).micros;
}

/** Output tokens by which a reservation grows at least when a stream runs past it, and the part of what it has written. */
const GROW_TOKENS = 256;
const GROW_PART = 0.25;

/**
 * A stream has written `output` tokens, which is more than was reserved for: more is reserved, so that others are refused
 * in time. It is never cut itself. Tells at how many tokens to ask again.
 */
export function growReservation(x: Uses<'limits'>, output: number): number {
  if (x.limits.reserved === null) return Number.POSITIVE_INFINITY;
  const next = output + Math.max(GROW_TOKENS, Math.ceil(output * GROW_PART));
  expectUse(x, { ...x.limits.reserved.estimate, output: next });
  return next;
}

/** Reserves what a request is expected to use by now, beside what its earlier targets have used. */
export function expectUse(x: Uses<'limits'>, estimate: Estimate): void {
  const { hold: held, leg, reserved, shared } = x.limits;
  if (reserved === null) return;
  const cost = Math.max(0, ...reserved.prices.map((price) => estimatedCost(estimate, price)));
  const tokens = estimate.input + estimate.output;
  held?.grow({ cost: cost + (shared?.used.cost ?? 0), tokens: tokens + (shared?.used.tokens ?? 0) });
  leg?.held?.grow({ cost, tokens });
}

/** The body as it will go to the provider, as far as its config changes it; null when it is too large to parse, or no JSON object. */
function bodyOf(attempt: Attempt): JsonObject | null {
  if (attempt.scan === null || attempt.body.length > MAX_PARSED) return null;
  const parsed: unknown = parseJson(attempt.body.toString('utf8'));
  if (!isObject(parsed)) return null;
  const shaping = attempt.shaped ? null : (attempt.target?.shaping ?? null);
  return shaping === null ? parsed : shape(parsed, shaping);
}

function size(x: Exchange, body: JsonObject): Pick<Estimate, 'input' | 'output' | 'bounded'> | null {
  const text = isTextOnly(body);
  const input = text ? mostInput(x.attempt, body) : likelyInput(x);
  switch (x.request.operation.shape) {
    case 'chat':
    case 'messages':
    case 'responses':
    case 'completions': {
      const answers = choices(body);
      const each = maximum(body);
      const most = answers === null || each === null ? null : answers * each;
      if (most !== null && most <= MAX_COUNT) return { input, output: most, bounded: text };
      // The learned figures are of whole answers, with as many choices as they had.
      return { input, output: x.services.outputs.expected(modelKey(x)), bounded: false };
    }
    case 'embeddings':
      return { input, output: 0, bounded: text };
    case 'rerank': {
      // Some vendors count the query once for each document.
      const documents = Array.isArray(body.documents) ? body.documents.length : 1;
      const query = typeof body.query === 'string' ? Buffer.byteLength(body.query) : input;
      return { input: input + documents * query, output: 0, bounded: text };
    }
    case 'images': {
      const each = typeof body.quality === 'string' ? (IMAGE_TOKENS[body.quality] ?? LARGEST_IMAGE) : LARGEST_IMAGE;
      return { input: likelyInput(x), output: each * (whole(body.n) ?? 1), bounded: false };
    }
    case 'speech':
      // About 20 tokens a second, in which some 15 characters are spoken.
      return { input: likelyInput(x), output: 2 * lengthOf(body.input), bounded: false };
    default:
      return null;
  }
}

/** No text has more tokens than bytes, in any encoding that works on bytes. */
function mostInput(attempt: Attempt, body: JsonObject): number {
  const shaped = attempt.target?.shaping == null ? 0 : Buffer.byteLength(JSON.stringify(body));
  const tools = body.tools == null && body.functions == null && body.response_format == null ? 0 : AROUND_TOOLS;
  return Math.max(attempt.body.length, shaped) + AROUND + tools;
}

/** Input tokens that a body most likely stands for. */
export function likelyInput(x: Exchange): number {
  const tokens = x.services.pricer.estimateTokens(x.attempt.body);
  const media = x.request.operation.body === 'multipart' || (tokens > MEDIA_TOKENS && holdsBase64(x));
  return media ? Math.min(tokens, MEDIA_TOKENS) : tokens;
}

const holdsBase64 = ({ attempt: { scan, body } }: Exchange): boolean =>
  scan?.texts?.get(BASE64) ?? body.includes(BASE64);

const lengthOf = (value: unknown): number => (typeof value === 'string' ? value.length : 0);

/** A whole number from 1 to what no answer reaches; null for anything else, also for a text that a lenient provider would take. */
function whole(value: unknown): number | null {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MAX_OUTPUT ? value : null;
}

/** The largest maximum of one answer that the body allows; null when it says none, or one that is no bound. */
function maximum(body: JsonObject): number | null {
  let most: number | null = null;
  for (const name of ['max_completion_tokens', 'max_output_tokens', 'max_tokens'] as const) {
    const value = body[name];
    if (value === undefined || value === null) continue;
    const one = whole(value);
    if (one === null) return null;
    most = Math.max(most ?? 0, one);
  }
  return most;
}

/** How many answers are written, seen or not; null when it cannot be known. */
function choices({ n, best_of: best, prompt }: JsonObject): number | null {
  let each = 1;
  for (const value of [n, best]) {
    if (value === undefined || value === null) continue;
    const one = whole(value);
    if (one === null) return null;
    each = Math.max(each, one);
  }
  // A list of texts, or of lists of tokens, is as many prompts; a list of numbers is one.
  const several = Array.isArray(prompt) && typeof prompt[0] !== 'number';
  return each * (several ? Math.max(1, prompt.length) : 1);
}
