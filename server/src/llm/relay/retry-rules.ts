/** What a config says of attempts and their streams, compiled: how long they may take, and what follows a break. */

import type { WireTimeouts } from '../../http/upstream.ts';
import { OPENAI_ERRORS } from '../../operations/dialects/openai-errors.ts';
import type { Config } from '../../resources/configs/schema.ts';

/** Further calls of one target. */
export interface Retry {
  /** Further attempts after the first, 0–5. */
  readonly attempts: number;
  readonly statusCodes: ReadonlySet<number>;
  readonly useRetryAfter: boolean;
}

/** What holds where a config says nothing, milliseconds. */
export interface DefaultLimits {
  /** Until the head of an answer. */
  readonly headersMs: number;
  /** Between two chunks of it. */
  readonly idleMs: number;
  /** From the call to the first content of a stream. */
  readonly firstTokenMs: number;
  /** Without an event of a stream but such as keep its connection alive. */
  readonly quietMs: number;
}

/** Limits of one attempt, milliseconds. */
export interface AttemptLimits {
  /** What the call itself keeps, of a stream and of an answer in one piece. */
  readonly stream: WireTimeouts;
  readonly whole: WireTimeouts;
  /** From the call to the first content of a stream. */
  readonly firstTokenMs: number;
  /** Between two events of a stream that are more than signs of life. */
  readonly quietMs: number;
}

const plain = new WeakMap<DefaultLimits, AttemptLimits>();

/**
 * The limits of a config's `timeouts` beside its `request_timeout`. A request may take as long as its `request_timeout`
 * allows, also where that is longer than a default.
 */
export function compileLimits(
  timeouts: Config['timeouts'],
  requestMs: number | null,
  defaults: DefaultLimits,
): AttemptLimits {
  if (timeouts === undefined && requestMs === null) {
    let known = plain.get(defaults);
    if (known === undefined) {
      known = limitsOf({}, 0, defaults);
      plain.set(defaults, known);
    }
    return known;
  }
  return limitsOf(timeouts ?? {}, requestMs ?? 0, defaults);
}

function limitsOf(
  timeouts: NonNullable<Config['timeouts']>,
  requestMs: number,
  { headersMs, idleMs, firstTokenMs, quietMs }: DefaultLimits,
): AttemptLimits {
  const first = timeouts.first_token ?? Math.max(firstTokenMs, requestMs);
  const idle = timeouts.stream_idle ?? idleMs;
  const connectMs = timeouts.connect ?? null;
  const whole = Math.max(headersMs, requestMs);
  return {
    stream: { headersMs: timeouts.first_token ?? whole, idleMs: idle, connectMs },
    whole: { headersMs: whole, idleMs: Math.max(idleMs, requestMs), connectMs },
    firstTokenMs: first,
    quietMs: timeouts.stream_idle ?? quietMs,
  };
}

/** What becomes of a stream that breaks after its first content, and how much of it waits for that at most. */
export interface BreakRules {
  readonly onBreak: 'error' | 'restart' | 'continue';
  /** Bytes of events, tokens, and milliseconds from the first content. All 0: nothing waits beyond the first content. */
  readonly bytes: number;
  readonly tokens: number;
  readonly ms: number;
}

/** Where `restart_within` leaves one out. */
const WITHIN = { bytes: 65_536, tokens: 256, ms: 3_000 };

/** Null: an error tells it. */
export function compileBreak(stream: Config['stream']): BreakRules | null {
  if (stream === undefined || stream.on_break === 'error') return null;
  const { on_break: onBreak, restart_within: within } = stream;
  // What goes on after a break needs nothing to wait, unless a restart is tried first.
  if (onBreak === 'continue' && within === undefined) return { onBreak, bytes: 0, tokens: 0, ms: 0 };
  return { onBreak, ...WITHIN, ...within };
}

/** Codes of the limits that are not the request's own: they are also what a gateway calls 504. */
const LIMITS: ReadonlySet<string | null> = new Set([
  'connect_timeout',
  'first_token_timeout',
  OPENAI_ERRORS.upstream_silent.code,
]);

/** Whether a list of statuses names a failed attempt: by its status, and timeouts within it by 504 too. */
export function namesStatus(codes: ReadonlySet<number>, status: number, code: string | null): boolean {
  return codes.has(status) || (status === 408 && LIMITS.has(code) && codes.has(504));
}

/** What may follow an attempt that fails unseen. */
export interface Following {
  /** Further attempts of the same target; null when none is left. */
  readonly retriesLeft: Retry | null;
  /** Whether the next target takes over from an attempt that failed so; null when there is none. */
  readonly wouldFallBack: ((status: number, code: string | null) => boolean) | null;
}

/** Whether an attempt that fails like this is followed by another one. */
export function isFollowed({ retriesLeft, wouldFallBack }: Following, status: number, code: string | null): boolean {
  return (
    (retriesLeft !== null && namesStatus(retriesLeft.statusCodes, status, code)) ||
    (wouldFallBack?.(status, code) ?? false)
  );
}
