/**
 * What a request may use at most, or will most likely use, before it is sent. A bounded estimate is never below what is
 * used, whatever the model: input is counted as one token for each byte, about four times what prose has. The price of
 * that is paid near a limit only, where requests that run at once take up more of it than they will need.
 */

import { isObject, type JsonObject } from '../kernel/json.ts';
import { NO_TOKENS } from '../operations/usage.ts';
import { costMicros, mostMicros } from '../pricing/cost.ts';
import type { Price } from '../pricing/price.ts';
import type { Uses } from './exchange.ts';
import { modelUnder } from './shaping.ts';
import type { Attempt } from './state/attempt.ts';
import type { Estimate } from './state/limits.ts';
import { isTextOnly } from './text-only.ts';

/** What this file uses of an exchange. */
type Used = Uses<'attempt' | 'limits' | 'request', 'outputEstimator' | 'pricer'>;

/** Larger bodies are not parsed for it: they count four bytes a token and have no bound. */
const MAX_PARSED = 256 * 1024;
/** What templates put around a request, beyond what its JSON does; and around tools, where vendors add instructions. */
const AROUND = 16;
const AROUND_TOOLS = 1024;
/** Pictures and sound in base64 are far fewer tokens than bytes. */
const MEDIA_TOKENS = 16_384;
export const BASE64 = 'base64';

const FREE: Estimate = { input: 0, output: 0, bounded: true, price: null, free: true };

export function modelKey({ attempt: { target }, request }: Uses<'attempt' | 'request'>, model = request.model): string {
  return `${target?.provider.id ?? ''} ${modelUnder(target?.shaping ?? null, model)}`;
}

/** Whether it goes on at the provider after its answer: no request tells later what it has used. */
export function isBackground({
  request: { operation },
  attempt: { body, target },
}: Uses<'attempt' | 'request'>): boolean {
  if (!operation.wire.hasBackground) return false;
  const { overrides, defaults } = target?.shaping ?? {};
  return (
    body.scan?.get('background')?.kind === 'true' || overrides?.background === true || defaults?.background === true
  );
}

export function estimateUse(x: Used): Estimate {
  const {
    attempt: { target },
  } = x;
  if (target === null || x.request.operation.free) return FREE;
  const model = modelUnder(target.shaping, x.request.model);
  const price = x.services.pricer.price(target.provider.id, target.priced, model, target.stored, x.request.time);
  const body = bodyOf(x.attempt);
  const isText = body !== null && isTextOnly(body);
  const most = isText ? mostInput(x.attempt, body) : likelyInput(x);
  const { input, output, bounded } = x.request.operation.wire.estimate(body, most, isText);
  return {
    input: input ?? (isText ? likelyInput(x) : most),
    output: output ?? x.services.outputEstimator.expected(modelKey(x)),
    bounded,
    price,
    free: false,
  };
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
  const { usageReservation: held, targetLimits, reserved, shared } = x.limits;
  if (reserved === null) return;
  const cost = Math.max(0, ...reserved.prices.map((price) => estimatedCost(estimate, price)));
  const tokens = estimate.input + estimate.output;
  held?.grow({ cost: cost + (shared?.used.cost ?? 0), tokens: tokens + (shared?.used.tokens ?? 0) });
  targetLimits?.usageReservation?.grow({ cost, tokens });
}

/** The body as it will go to the provider, as far as its config changes it; null when it is too large to parse, or no JSON object. */
function bodyOf(attempt: Attempt): JsonObject | null {
  if (attempt.body.scan === null || attempt.body.bytes.length > MAX_PARSED) return null;
  const value = attempt.value();
  return isObject(value) ? value : null;
}

/** No text has more tokens than bytes, in any encoding that works on bytes. */
function mostInput(attempt: Attempt, body: JsonObject): number {
  const shaped = attempt.target?.shaping == null ? 0 : Buffer.byteLength(JSON.stringify(body));
  const tools = body.tools == null && body.functions == null && body.response_format == null ? 0 : AROUND_TOOLS;
  return Math.max(attempt.body.bytes.length, shaped) + AROUND + tools;
}

/** Input tokens that a body most likely stands for. */
export function likelyInput(x: Used): number {
  const tokens = x.services.pricer.estimateTokens(x.attempt.body.bytes);
  const media = x.request.operation.body === 'multipart' || (tokens > MEDIA_TOKENS && holdsBase64(x));
  return media ? Math.min(tokens, MEDIA_TOKENS) : tokens;
}

const holdsBase64 = ({ attempt: { body } }: Uses<'attempt'>): boolean =>
  body.scan?.texts?.get(BASE64) ?? body.bytes.includes(BASE64);
