/**
 * Circuit breakers of targets: a target that keeps failing is left out for a while, then one request tries it.
 * Kept by this process alone: each learns from its own requests, and an answer is never kept waiting for others.
 */
import type { Clock } from '../../kernel/clock.ts';
import { Lru } from '../../kernel/lru.ts';
import type { Config } from '../../resources/configs/schema.ts';

/** When the breaker of a target opens, and for how long. */
export interface Breaker {
  /** Failures within the window; null: they do not count by number. */
  readonly failures: number | null;
  /** Share of failures among the requests of the window, percent; null: it does not count. */
  readonly percentage: number | null;
  /** Requests of the window below which the share says nothing. */
  readonly minimum: number;
  readonly cooldownMs: number;
  readonly windowMs: number;
  /** Null: every status above 500, and no answer in time. */
  readonly statusCodes: ReadonlySet<number> | null;
}

const WINDOW_MS = 300_000;
/** Parts of a window, each forgotten as a whole. */
const PARTS = 10;
/** Targets whose failures are remembered; those that were called least recently are forgotten. */
const MAX_TARGETS = 10_000;

export function breakerOf(settings: Config['cb_config']): Breaker | null {
  if (settings === undefined) return null;
  const { failure_threshold: failures, failure_threshold_percentage: percentage } = settings;
  return {
    failures: failures ?? null,
    percentage: percentage ?? null,
    minimum: settings.minimum_requests ?? 1,
    cooldownMs: settings.cooldown_interval,
    windowMs: settings.window_interval ?? WINDOW_MS,
    statusCodes: settings.failure_status_codes === undefined ? null : new Set(settings.failure_status_codes),
  };
}

/** What came of a call, as a breaker sees it; null: nothing can be said, the caller left. */
export interface CallResult {
  readonly status: number;
  /** The provider did not answer within the time of the config. */
  readonly late: boolean;
}

interface State {
  /** Milliseconds, monotonic, of the part that is written; parts before it by age. */
  since: number;
  readonly requests: number[];
  readonly failed: number[];
  /** When it opened; null: it is closed. */
  openedAt: number | null;
  /** When the one request that tries it began; null: none does. */
  probedAt: number | null;
}

/** Where a target stands: `closed` is called, `open` is left out, `half-open` is called by one request. */
export type Stand = 'closed' | 'open' | 'half-open';

/** Where a target stands, and what was counted of it within the window. */
export interface Health {
  readonly state: Stand;
  readonly failures: number;
  readonly requests: number;
}

export class Breakers {
  readonly #clock: Clock;
  readonly #states: Lru<string, State>;

  constructor(clock: Clock, maxTargets = MAX_TARGETS) {
    this.#clock = clock;
    this.#states = new Lru({ maxEntries: maxTargets });
  }

  get size(): number {
    return this.#states.size;
  }

  /** `half-open` only while no request tries it. */
  standOf(key: string, { cooldownMs }: Breaker): Stand {
    const state = this.#states.peek(key);
    if (state === undefined || state.openedAt === null) return 'closed';
    const now = this.#clock.monotonic();
    if (now - state.openedAt < cooldownMs) return 'open';
    // A probe that never ended, for whatever reason, must not keep the target out for ever.
    return state.probedAt !== null && now - state.probedAt < cooldownMs ? 'open' : 'half-open';
  }

  /** What is known of a target; requests are counted only from the first failure on, or where their share counts. */
  healthOf(key: string, breaker: Breaker): Health {
    const state = this.#states.peek(key);
    if (state === undefined) return { state: 'closed', failures: 0, requests: 0 };
    age(state, this.#clock.monotonic(), breaker.windowMs / PARTS);
    return { state: this.standOf(key, breaker), failures: sum(state.failed), requests: sum(state.requests) };
  }

  /** A call begins; the caller must report its end. */
  begin(key: string, breaker: Breaker): (result: CallResult | null) => void {
    const probe = this.standOf(key, breaker) === 'half-open' ? this.#states.get(key) : undefined;
    const began = this.#clock.monotonic();
    if (probe !== undefined) probe.probedAt = began;
    let told = false;
    return (result) => {
      if (told) return;
      told = true;
      if (probe !== undefined) this.#probed(key, probe, breaker, result);
      else if (result !== null) this.#count(key, breaker, isFailure(breaker, result));
    };
  }

  #probed(key: string, state: State, breaker: Breaker, result: CallResult | null): void {
    state.probedAt = null;
    if (result === null) return;
    if (isFailure(breaker, result)) state.openedAt = this.#clock.monotonic();
    else this.#states.delete(key);
  }

  #count(key: string, breaker: Breaker, failed: boolean): void {
    const now = this.#clock.monotonic();
    let state = this.#states.get(key);
    if (state === undefined) {
      // Successes alone open nothing.
      if (!failed && breaker.percentage === null) return;
      const none = () => new Array<number>(PARTS).fill(0);
      state = { since: now, requests: none(), failed: none(), openedAt: null, probedAt: null };
      this.#states.set(key, state);
    }
    // It opened while this call was under way, or is not asked because all others are open too.
    if (state.openedAt !== null) return;
    age(state, now, breaker.windowMs / PARTS);
    state.requests[0] = (state.requests[0] ?? 0) + 1;
    if (!failed) return;
    state.failed[0] = (state.failed[0] ?? 0) + 1;
    if (opens(breaker, sum(state.requests), sum(state.failed))) state.openedAt = now;
  }
}

function opens({ failures, percentage, minimum }: Breaker, requests: number, failed: number): boolean {
  if (failures !== null && failed >= failures) return true;
  return percentage !== null && requests >= minimum && failed * 100 >= percentage * requests;
}

function isFailure({ statusCodes }: Breaker, { status, late }: CallResult): boolean {
  return statusCodes === null ? status > 500 || late : statusCodes.has(status);
}

/** Forgets the parts of the window that are over. */
function age(state: State, now: number, partMs: number): void {
  const past = Math.floor((now - state.since) / partMs);
  if (past <= 0) return;
  state.since += past * partMs;
  for (const counts of [state.requests, state.failed]) {
    for (let i = 0; i < Math.min(past, PARTS); i++) {
      counts.unshift(0);
      counts.pop();
    }
  }
}

const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);
