/**
 * Replays stored requests against one policy: each is decided when it came and settled when it ended, in that order.
 * Only what is under way is held, so memory does not grow with the number of records.
 */
import { SluiceError } from '../../kernel/errors.ts';
import type { LimitType } from '../../store/limit-types.ts';
import type { StoredLog } from '../../store/ports.ts';
import { type Event, readEvent } from './event.ts';
import { Heap } from './heap.ts';

/** A policy that is simulated. `M` is the counter that a request belongs to, `H` what it holds of it. */
export interface Engine<M, H> {
  match(event: Event): { readonly key: string; readonly valueKey: string; readonly of: M } | null;
  /** Called in the order of time, as `settle`. `used` is what its counter has used. */
  admit(event: Event, of: M): Verdict<H> | Promise<Verdict<H>>;
  /** What its counter has used then; null where that is not known. */
  settle(event: Event, held: H): number | null;
}

export interface Verdict<H> {
  readonly admitted: boolean;
  readonly used: number;
  readonly held: H;
}

export interface ReplayOptions {
  readonly kind: 'usage' | 'rate';
  /** Of the policy that was in force, when it is that one or a change of it. */
  readonly policyId: string | null;
  readonly type: LimitType;
  /** Milliseconds: requests in here are answered for; those before it are only counted. */
  readonly from: number;
  readonly to: number;
  /** Length of a step of the series. */
  readonly stepMs: number;
  readonly signal: AbortSignal;
  /** A page of records after the one given, oldest first; empty at the end. */
  readonly page: (after: StoredLog | null) => Promise<readonly StoredLog[]>;
  readonly maxRecords: number;
}

export interface Value {
  readonly valueKey: string;
  requests: number;
  blocked: number;
  /** Largest amount that its counter had used. */
  peak: number;
  /** What its admitted requests used, in the unit of the limit; micro-dollars. */
  used: number;
  firstBlockedAt: number | null;
}

export interface Step {
  readonly start: number;
  requests: number;
  blocked: number;
}

export interface Sample {
  readonly id: string;
  readonly traceId: string;
  readonly at: number;
  readonly valueKey: string;
}

export interface Replayed {
  /** Records that were read, also of requests before `from`. */
  records: number;
  /** False when there were more than `maxRecords`, or values than can be kept: nothing after `until` was read. */
  complete: boolean;
  until: number;
  seen: number;
  matched: number;
  blocked: number;
  refusedOtherwise: number;
  cost: number;
  costBlocked: number;
  tokens: number;
  tokensBlocked: number;
  unpriced: number;
  firstBlockedAt: number | null;
  /** Matched requests whose estimate is not known. */
  unestimated: number;
  /** Requests that were refused then and pass now: what they would have used is not known. */
  released: number;
  /** Refused by the policy then; of those, refused now too; refused now and not then. */
  blockedThen: number;
  blockedBoth: number;
  blockedOnlyNow: number;
  readonly values: Map<string, Value>;
  readonly steps: Map<number, Step>;
  readonly samples: Sample[];
}

/** Clocks of nodes may be apart by this much; records are sorted by their node's. */
const SKEW_MS = 5_000;
/** Counters of values that are kept. */
const MAX_VALUES = 100_000;
const MAX_SAMPLES = 50;
/** Moments between two looks at what else is to do. */
const TURN = 200;

interface Moment<M, H> {
  readonly time: number;
  readonly event: Event;
  readonly value: Value;
  readonly of: M;
  /** Null while it is not decided. */
  readonly held: { readonly held: H; readonly admitted: boolean } | null;
}

export function refusedBy(event: Event, policyId: string | null): boolean {
  return (
    policyId !== null && event.refused !== null && event.refused.kind === 'policy' && event.refused.id === policyId
  );
}

/** Of one moment, ends come first, and what was admitted before what was refused. */
function before<M, H>(a: Moment<M, H>, b: Moment<M, H>): boolean {
  if (a.time !== b.time) return a.time < b.time;
  if ((a.held === null) !== (b.held === null)) return a.held !== null;
  if ((a.event.refused === null) !== (b.event.refused === null)) return a.event.refused === null;
  return a.event.id < b.event.id;
}

export async function replay<M, H>(engine: Engine<M, H>, options: ReplayOptions): Promise<Replayed> {
  const { kind, policyId, type, from, to, signal } = options;
  const out: Replayed = {
    records: 0,
    complete: true,
    until: to,
    seen: 0,
    matched: 0,
    blocked: 0,
    refusedOtherwise: 0,
    cost: 0,
    costBlocked: 0,
    tokens: 0,
    tokensBlocked: 0,
    unpriced: 0,
    firstBlockedAt: null,
    unestimated: 0,
    released: 0,
    blockedThen: 0,
    blockedBoth: 0,
    blockedOnlyNow: 0,
    values: new Map(),
    steps: new Map(),
    samples: [],
  };
  const waiting = new Heap<Moment<M, H>>(before);

  const take = (record: StoredLog): boolean => {
    const event = readEvent(record, kind);
    if (event === null) return true;
    const counts = event.at >= from && event.at < to;
    if (counts) out.seen += 1;
    const own = refusedBy(event, policyId);
    // Who was refused by another limit of the kind, or by one that is asked before, was not counted by this one.
    const other = event.refused !== null && !own && !(kind === 'rate' && event.refused.limit === 'usage');
    const match = engine.match(event);
    if (match === null) return true;
    if (other) {
      if (counts) out.refusedOtherwise += 1;
      return true;
    }
    let value = out.values.get(match.key);
    if (value === undefined) {
      if (out.values.size >= MAX_VALUES) return false;
      value = { valueKey: match.valueKey, requests: 0, blocked: 0, peak: 0, used: 0, firstBlockedAt: null };
      out.values.set(match.key, value);
    }
    waiting.push({ time: event.at, event, value, of: match.of, held: null });
    return true;
  };

  const decide = async ({ event, value, of }: Moment<M, H>): Promise<void> => {
    const asked = engine.admit(event, of);
    const verdict = asked instanceof Promise ? await asked : asked;
    const { admitted, used, held } = verdict;
    waiting.push({ time: event.endedAt, event, value, of, held: { held, admitted } });
    if (event.at < from || event.at >= to) return;
    if (used > value.peak) value.peak = used;
    note(event, value, admitted);
  };

  const note = (event: Event, value: Value, admitted: boolean): void => {
    const start = Math.floor(event.at / options.stepMs) * options.stepMs;
    let step = out.steps.get(start);
    if (step === undefined) {
      step = { start, requests: 0, blocked: 0 };
      out.steps.set(start, step);
    }
    out.matched += 1;
    value.requests += 1;
    step.requests += 1;
    const then = refusedBy(event, policyId);
    const spent = event.refused === null ? event.used : { ...event.used, ...event.estimate };
    out.cost += spent.cost;
    out.tokens += spent.tokens;
    out.unpriced += event.used.unpriced;
    if (!event.estimated && kind === 'usage' && type !== 'requests') out.unestimated += 1;
    if (then) out.blockedThen += 1;
    if (admitted) {
      if (then) out.released += 1;
      value.used += type === 'cost' ? spent.cost : type === 'tokens' ? spent.tokens : 1;
      return;
    }
    if (then) out.blockedBoth += 1;
    else out.blockedOnlyNow += 1;
    out.blocked += 1;
    value.blocked += 1;
    step.blocked += 1;
    out.costBlocked += spent.cost;
    out.tokensBlocked += spent.tokens;
    out.firstBlockedAt ??= event.at;
    value.firstBlockedAt ??= event.at;
    if (out.samples.length < MAX_SAMPLES) {
      out.samples.push({ id: event.id, traceId: event.traceId, at: event.at, valueKey: value.valueKey });
    }
  };

  const run = async (until: number): Promise<void> => {
    let turns = 0;
    for (let next = waiting.first; next !== undefined && next.time <= until; next = waiting.first) {
      waiting.pop();
      // Other work of this thread must not wait for a simulation.
      turns += 1;
      if (turns % TURN === 0) await new Promise((resolve) => setImmediate(resolve));
      if (next.held === null) {
        await decide(next);
        continue;
      }
      const used = engine.settle(next.event, next.held.held);
      if (used !== null && next.event.at >= from && used > next.value.peak) next.value.peak = used;
    }
  };

  let last: StoredLog | null = null;
  for (;;) {
    if (signal.aborted) throw new SluiceError('client_closed', 'The client closed the connection.');
    const page = await options.page(last);
    for (const record of page) {
      if (out.records >= options.maxRecords || !take(record)) {
        out.complete = false;
        out.until = record.time;
        break;
      }
      out.records += 1;
    }
    last = page.at(-1) ?? null;
    if (last === null || !out.complete) break;
    await run(last.time - SKEW_MS);
  }
  await run(Number.POSITIVE_INFINITY);
  return out;
}
