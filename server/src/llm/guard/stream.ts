/**
 * Guardrails over a stream. Each guardrail is run in one of four ways, the strictest of which says what happens to the
 * events: held until the end (`hold`), held back by as much text as a finding can span (`window`), passed on and judged
 * at the end (`inform`), or judged beside the request (`async`).
 */

import { type GuardrailState, hookResults, withoutChange } from '../../gateway/guardrail-state.ts';
import { canonicalTail } from '../../guardrails/canonical.ts';
import type { TextPart } from '../../guardrails/check.ts';
import type { Guardrail, GuardrailResult, Outcome } from '../../guardrails/guardrail.ts';
import type { RunOptions } from '../../guardrails/run.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { parseEvent } from '../../kernel/sse.ts';
import { formatEvent } from '../../operations/stream.ts';
import type { Uses } from '../exchange.ts';
import { judgeStream, judgeWindow } from './apart/where-judged.ts';
import type { StreamVerdict } from './judge-stream.ts';
import { judgedRequest } from './judged-exchange.ts';
import type { JudgedRequest } from './judged-request.ts';
import { insists, isEncoded, mayReplace, notJudged, outputCovered, takeOutcome, unreadable } from './output.ts';
import { StreamTexts } from './stream-texts.ts';
import { ReplacementError } from './texts.ts';

/** What this file uses of an exchange. */
type Used = Uses<'attempt' | 'clientGone' | 'outcome' | 'request', 'bodies' | 'clock' | 'guardrails' | 'log'>;

/** Events and texts of one stream that are kept. */
const HELD_BYTES = 16 * 1024 * 1024;
/** Silence after which a waiting client, and any proxy between, gets a sign that the stream lives. */
const KEEP_ALIVE_MS = 10_000;
const COMMENT = Buffer.from(': keep-alive\n\n');
/** Most text that waits to be judged: less would judge the same window again for every token. */
const PIECE = 256;

export type StreamMode = 'hold' | 'window' | 'inform' | 'async';

/** How a guardrail judges a stream. */
export function streamModeOf(guardrail: Guardrail): StreamMode {
  const { actions, checks } = guardrail;
  if (actions.async) return 'async';
  const judged = checks.filter((check) => check.phases.includes('output'));
  if (judged.length === 0) return 'inform';
  if (actions.stream === 'buffer' || mayReplace(guardrail)) return 'hold';
  if (!actions.deny) return 'inform';
  return judged.every((check) => check.judge !== null && check.judge.lookBehind !== null) ? 'window' : 'hold';
}

/** What the gate does to the answer. */
export interface GateSink {
  /** Sends whole events; the head before the first. */
  send(events: readonly Buffer[]): void;
  /** The answer is complete but for its last events. */
  finish(tail: readonly Buffer[]): void;
  /** The answer is refused; what was not sent is not sent. Results are on the exchange. */
  deny(): void;
  fail(error: unknown): void;
  /** Stops and starts the upstream. */
  pause(on: boolean): void;
}

/** One text of the answer: a choice, a content block, the arguments of one tool call. */
interface Path {
  readonly path: string;
  /** Text from `from` to `length`: what was judged last, as far as windows look back in canonical form, and what was not. */
  recent: string;
  from: number;
  length: number;
  judged: number;
  /** Nothing follows: the event that ends the text was seen. */
  ended: boolean;
  /** Judged with nothing behind it. */
  closed: boolean;
}

interface Held {
  readonly event: Buffer;
  /** Texts it holds the end of. */
  readonly marks: readonly { readonly path: Path; readonly end: number }[];
}

interface Judging {
  readonly path: Path | null;
  readonly upTo: number;
  readonly closes: boolean;
}

export class StreamGate {
  readonly #x: Used;
  readonly #request: JudgedRequest;
  readonly #guard: GuardrailState;
  readonly #sink: GateSink;
  readonly #strict: boolean;
  readonly #texts: StreamTexts;
  readonly #list: readonly Guardrail[];
  readonly #windowed: readonly Guardrail[];
  readonly #whole: readonly Guardrail[];
  readonly #holds: boolean;
  readonly #lookBehind: number;
  readonly #options: RunOptions;
  readonly #paths = new Map<string, Path>();
  /** Of guardrails that judge in windows, by place in their list. */
  readonly #said: GuardrailResult[] = [];
  #held: Held[] = [];
  #heldBytes = 0;
  #textBytes = 0;
  /** Of both, as counted in the budget of all that requests hold. */
  #counted = 0;
  /** Too much was said to keep it: guardrails that only inform are skipped. */
  #overflown = false;
  #busy = false;
  /** Of the others; those that could not judge are among them. */
  #wholeSaid: readonly GuardrailResult[] = [];
  #wholeJudged: boolean;
  /** What of the events guardrails over the whole answer changed. */
  #changed: StreamVerdict['changed'] = null;
  /** Some text was sent. Before that nothing is: an early refusal then has its own status. */
  #shown = false;
  #closed = false;
  #ending: { tail: readonly Buffer[]; readonly failed: boolean } | null = null;
  /** Why some text of the answer cannot be judged. */
  #unreadable: string | null = null;
  #sentAt: number;
  #cancelTimer: (() => void) | null = null;

  constructor(x: Used, guard: GuardrailState, strict: boolean, sink: GateSink) {
    this.#x = x;
    this.#request = judgedRequest(x);
    this.#guard = guard;
    this.#sink = sink;
    this.#strict = strict;
    this.#texts = new StreamTexts(x.request.operation);
    this.#list = guard.output;
    const ways = new Map(this.#list.map((guardrail) => [guardrail, streamModeOf(guardrail)]));
    this.#holds = [...ways.values()].includes('hold');
    this.#windowed = this.#holds ? [] : this.#list.filter((guardrail) => ways.get(guardrail) === 'window');
    this.#whole = this.#list.filter((guardrail) => !this.#windowed.includes(guardrail));
    this.#wholeJudged = this.#whole.length === 0;
    this.#lookBehind = Math.max(
      0,
      ...this.#windowed.flatMap(({ checks }) => checks.map((check) => check.judge?.lookBehind ?? 0)),
    );
    this.#options = { outside: guard.outside, clock: x.services.clock, onAsync: guard.onAsync };
    this.#sentAt = x.services.clock.monotonic();
  }

  /** No more events are wanted: the end was seen, or the answer was refused. */
  get over(): boolean {
    return this.#closed || this.#ending !== null;
  }

  /** Whole events, in order, none of them the end marker. */
  push(events: readonly Buffer[]): void {
    if (this.over) return;
    if (this.#overflown) {
      this.#send(events);
      return;
    }
    const waits = this.#holds || this.#windowed.length > 0;
    for (const event of events) {
      const held = { event, marks: this.#read(event) };
      if (!waits) continue;
      this.#held.push(held);
      this.#heldBytes += event.length;
    }
    if (!waits) this.#send(events);
    else this.#cancelTimer ??= this.#arm(KEEP_ALIVE_MS);
    if (this.#mustRefuse()) return;
    if (!this.#fits()) this.#overflow();
    if (this.#windowed.length > 0 && !this.#busy && !this.#closed) this.#go();
  }

  /** What is left to send when everything before it may be seen: the end marker, or the error that ended the stream. */
  end(tail: readonly Buffer[], failed: boolean): void {
    if (this.over) return;
    // The end of a Responses stream repeats the answer.
    if (!this.#overflown) for (const event of tail) this.#read(event);
    if (this.#mustRefuse()) return;
    this.#ending = { tail, failed };
    // Nothing was said, which has its verdict too.
    if (this.#paths.size === 0) this.#path('');
    if (!this.#busy) this.#go();
  }

  /** The request has ended some other way. */
  close(): void {
    this.#closed = true;
    this.#held = [];
    this.#x.services.bodies.release(this.#x.request.organisationId, this.#counted);
    this.#counted = 0;
    this.#paths.clear();
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  #read(event: Buffer): Held['marks'] {
    if (this.#list.length === 0) return [];
    const marks: { path: Path; end: number }[] = [];
    for (const piece of this.#texts.push(event)) {
      const { path: name, text, whole } = piece;
      if (piece.unreadable !== undefined) this.#unreadable = unreadable([piece]);
      const path = this.#path(name);
      if (text === '') {
        // It repeats what was said.
        if (whole !== null && path.length > 0) {
          path.ended = true;
          marks.push({ path, end: path.length });
        }
        continue;
      }
      path.length += text.length;
      path.ended = whole !== null;
      path.closed = false;
      if (this.#windowed.length > 0) path.recent += text;
      if (!this.#wholeJudged) this.#textBytes += text.length;
      marks.push({ path, end: path.length });
    }
    if (this.#x.request.operation.wire.endsTexts(event)) for (const path of this.#paths.values()) path.ended = true;
    return marks;
  }

  #path(name: string): Path {
    let path = this.#paths.get(name);
    if (path === undefined) {
      path = { path: name, recent: '', from: 0, length: 0, judged: 0, ended: false, closed: false };
      this.#paths.set(name, path);
    }
    return path;
  }

  /** Judges what is due, then sends what may be seen. */
  #go(): void {
    try {
      for (let due = this.#due(); due !== null; due = this.#due()) {
        const { path } = due;
        const outcome = path === null ? this.#judgeWhole() : this.#judgeWindow(path, due.closes);
        if (outcome === null) return;
        if (outcome instanceof Promise) {
          this.#wait(due, outcome);
          return;
        }
        if (!this.#take(due, outcome)) return;
      }
      this.#release();
    } catch (error) {
      this.#sink.fail(error);
    }
  }

  #wait(due: Judging, outcome: Promise<Outcome | null>): void {
    this.#busy = true;
    this.#sink.pause(true);
    outcome.then(
      (said) => {
        this.#busy = false;
        if (this.#closed || said === null) return;
        this.#sink.pause(false);
        if (this.#take(due, said)) this.#go();
      },
      (error: unknown) => {
        if (this.#closed) return;
        if (due.path !== null || this.#whole.some(insists)) {
          this.#sink.fail(error);
          return;
        }
        this.#busy = false;
        this.#sink.pause(false);
        this.#skipWhole('The thread in which guardrails judge large answers failed.');
        this.#go();
      },
    );
  }

  #due(): Judging | null {
    if (this.#closed) return null;
    const ends = this.#ending !== null;
    const least = ends ? 1 : Math.max(1, Math.min(PIECE, this.#lookBehind >> 2));
    if (this.#windowed.length > 0)
      for (const path of this.#paths.values()) {
        const closes = ends || path.ended;
        if (closes ? !path.closed : path.length - path.judged >= least) return { path, upTo: path.length, closes };
      }
    if (!ends || this.#wholeJudged) return null;
    return { path: null, upTo: 0, closes: true };
  }

  #judgeWindow(path: Path, ends: boolean): Outcome | Promise<Outcome> {
    const texts: TextPart[] = path.path === '' ? [] : [{ path: path.path, role: 'assistant', text: path.recent }];
    return judgeWindow(this.#x, this.#guard, this.#windowed, {
      request: this.#request,
      texts,
      window: { starts: path.from === 0, ends },
      callsTools: () => this.#texts.callsTools,
      options: this.#options,
    });
  }

  /** Null: it is refused because it cannot be read. */
  #judgeWhole(): Outcome | Promise<Outcome | null> | null {
    const tail = this.#ending?.tail ?? [];
    const verdict = judgeStream(this.#x, this.#guard, this.#whole, {
      request: this.#request,
      textBytes: this.#textBytes,
      answer: () => this.#texts.answer(),
      held: this.#holds ? { bytes: this.#heldBytes, events: this.#held.map(({ event }) => event), tail } : null,
    });
    return verdict instanceof Promise ? verdict.then(this.#takeVerdict) : this.#takeVerdict(verdict);
  }

  readonly #takeVerdict = ({ outcome, changed, unreadable: why }: StreamVerdict): Outcome | null => {
    this.#changed = changed;
    if (outcome === null && !this.#closed) this.#refuseAll(why ?? '');
    return outcome;
  };

  /** False when the answer is refused. */
  #take({ path, upTo, closes }: Judging, outcome: Outcome): boolean {
    if (path === null) return this.#takeWhole(outcome);
    for (const [i, result] of outcome.results.entries()) {
      const before = this.#said[i];
      this.#said[i] =
        before === undefined ? result : { ...result, execution_time: before.execution_time + result.execution_time };
    }
    if (outcome.denied) {
      this.#refuse(outcome, this.#said);
      return false;
    }
    path.judged = upTo;
    path.closed = closes;
    // A window begins where the next one must look back to; what comes next may combine with the last character.
    const judged = path.judged - path.from;
    const from = path.from + canonicalTail(path.recent.slice(0, judged), this.#lookBehind + 1);
    path.recent = path.recent.slice(from - path.from);
    path.from = from;
    return true;
  }

  #takeWhole(outcome: Outcome): boolean {
    this.#wholeJudged = true;
    if (outcome.denied) {
      this.#refuse(outcome, outcome.results);
      return false;
    }
    this.#wholeSaid = outcome.results;
    takeOutcome(this.#guard, outcome, this.#inOrder());
    const changed = this.#changed;
    if (changed === null || this.#ending === null) return true;
    if (changed instanceof ReplacementError) {
      this.#refuse({ failed: false, soft: false }, withoutChange(this.#inOrder(), changed.message));
      return false;
    }
    this.#ending.tail = changed.tail;
    this.#held = changed.events.map((event) => ({ event, marks: [] }));
    return true;
  }

  /** Where a text cannot be read, guardrails that insist refuse. */
  #mustRefuse(): boolean {
    if (this.#unreadable === null || !this.#list.some(insists)) return false;
    this.#refuseAll(this.#unreadable);
    return true;
  }

  /** Results of both kinds as their guardrails stand. */
  #inOrder(): readonly GuardrailResult[] {
    const synchronous = this.#whole.filter(({ actions }) => !actions.async);
    const out: GuardrailResult[] = [];
    for (const guardrail of this.#list) {
      const at = this.#windowed.indexOf(guardrail);
      const result = at >= 0 ? this.#said[at] : this.#wholeSaid[synchronous.indexOf(guardrail)];
      if (result !== undefined) out.push(result);
    }
    return out;
  }

  #refuse(outcome: Pick<Outcome, 'failed' | 'soft'>, results: readonly GuardrailResult[]): void {
    takeOutcome(this.#guard, outcome, results);
    this.close();
    this.#sink.deny();
  }

  #refuseAll(why: string): void {
    notJudged(this.#x, this.#guard, this.#list, why);
    this.close();
    this.#sink.deny();
  }

  /** Whether what is kept may be kept, by this stream and by all together. */
  #fits(): boolean {
    if (this.#heldBytes > HELD_BYTES || this.#textBytes > HELD_BYTES) return false;
    const now = this.#heldBytes + this.#textBytes;
    if (!this.#x.services.bodies.grow(this.#x.request.organisationId, this.#counted, now)) return false;
    this.#counted = now;
    return true;
  }

  /** Too much to keep. */
  #overflow(): void {
    const why = 'The answer is larger than Sluice can hold back for the guardrails.';
    const insisting = this.#windowed.length > 0 || this.#whole.some(insists);
    if (insisting && (this.#holds || this.#textBytes === 0 || this.#heldBytes > HELD_BYTES)) {
      this.#refuseAll(why);
      return;
    }
    this.#overflown = this.#windowed.length === 0;
    this.#skipWhole(why);
    if (this.#overflown) this.#release();
  }

  /** Guardrails over the whole answer could not judge it. */
  #skipWhole(why: string): void {
    notJudged(this.#x, this.#guard, this.#whole, why);
    this.#wholeSaid = this.#guard.after;
    this.#wholeJudged = true;
    this.#textBytes = 0;
  }

  #release(): void {
    const all = this.#ending !== null || this.#overflown;
    let count = all ? this.#held.length : 0;
    if (!all && !this.#holds) {
      let text = this.#shown;
      let i = 0;
      for (let held = this.#held[0]; held !== undefined && this.#mayBeSeen(held); held = this.#held[++i])
        text ||= held.marks.length > 0;
      count = text ? i : 0;
    }
    if (count > 0) {
      this.#shown = true;
      const events = this.#held.splice(0, count).map(({ event }) => event);
      for (const event of events) this.#heldBytes -= event.length;
      this.#send(events);
    }
    const ending = this.#ending;
    if (ending === null) return;
    this.#guard.after = this.#inOrder();
    const tail = ending.failed ? ending.tail : this.#withResults(ending.tail);
    this.close();
    this.#sink.finish(tail);
  }

  /** Nothing that begins in the event can still become something else. */
  #mayBeSeen({ marks }: Held): boolean {
    return marks.every(({ path, end }) => end <= (path.closed ? path.judged : path.from));
  }

  #send(events: readonly Buffer[]): void {
    this.#sentAt = this.#x.services.clock.monotonic();
    this.#sink.send(events);
  }

  #arm(ms: number): () => void {
    return this.#x.services.clock.after(ms, () => {
      if (this.#closed) return;
      const silent = this.#x.services.clock.monotonic() - this.#sentAt;
      if (silent >= KEEP_ALIVE_MS && (this.#busy || this.#held.length > 0)) this.#send([COMMENT]);
      this.#cancelTimer = this.#arm(silent >= KEEP_ALIVE_MS ? KEEP_ALIVE_MS : KEEP_ALIVE_MS - silent);
    });
  }

  /** The end of the stream with `hook_results`, where fields may be added. */
  #withResults(tail: readonly Buffer[]): readonly Buffer[] {
    const guard = this.#guard;
    if (this.#strict || guard.before.length + guard.after.length === 0) return tail;
    const results = { hook_results: hookResults(guard) };
    const {
      request: { id, time, operation, model },
      outcome: { modelAnswered },
    } = this.#x;
    const { event, inEnd } = operation.wire.results ?? {};
    if (inEnd !== undefined) return tail.map((bytes) => changedEvent(bytes, (body) => inEnd(body, results)));
    if (event === undefined) return tail;
    const head = { id, created: Math.floor(time / 1000), model: modelAnswered ?? model };
    return [Buffer.from(formatEvent(event(head, results))), ...tail];
  }

  /** Whether there is anything to do with the events. */
  static judges(x: Used, guard: GuardrailState, headers: readonly string[], strict: boolean): boolean {
    if (!outputCovered(x.request.operation, true) || isEncoded(headers)) return false;
    return guard.output.length > 0 || (!strict && guard.before.length > 0);
  }

  /** Whether a stream of this operation can be judged; if not, whether it may pass all the same. */
  static refuses(x: Used, guard: GuardrailState, headers: readonly string[]): boolean {
    const list = guard.output;
    const read = outputCovered(x.request.operation, true) && !isEncoded(headers);
    return list.length > 0 && !read && notJudged(x, guard, list, 'The stream is in a form that cannot be judged.');
  }
}

/** An event with what `change` makes of its body; the same where it makes nothing, or where the body is no object. */
function changedEvent(bytes: Buffer, change: (body: JsonObject) => JsonObject | null): Buffer {
  const event = parseEvent(bytes);
  if (event === null) return bytes;
  let body: unknown;
  try {
    body = parseExact(event.data);
  } catch {
    return bytes;
  }
  const changed = isObject(body) ? change(body) : null;
  return changed === null ? bytes : Buffer.from(formatEvent({ event: event.event, data: JSON.stringify(changed) }));
}
