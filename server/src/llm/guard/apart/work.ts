/** Judges what is large, in the thread of `worker.ts`: the same run as in the event loop, whose checks call others through it. */
import { CheckError, type CheckHttpClient, type MostRead } from '../../../guardrails/check.ts';
import { guardrailFrom } from '../../../guardrails/compile.ts';
import type { Guardrail, Outcome } from '../../../guardrails/guardrail.ts';
import type { RunOptions } from '../../../guardrails/run.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { MAX_WEIGHT, parseExact } from '../../../kernel/json-exact.ts';
import { factsOf } from '../../../kernel/json-scan.ts';
import { Lru } from '../../../kernel/lru.ts';
import { bufferOf, errorOf, failureOf } from '../../large/jobs.ts';
import { judgeRequest } from '../judge-request.ts';
import { type HeldEvents, judgeStreamWindow, judgeWholeStream } from '../judge-stream.ts';
import { type JudgedRequest, judgedFrom } from '../judged-request.ts';
import { type AnswerGuard, judgeWholeAnswer } from '../output.ts';
import { shownAnswer } from '../shown-answer.ts';
import { StreamTexts } from '../stream-texts.ts';
import { ReplacementError } from '../texts.ts';
import { joinedAnswer } from './long-texts.ts';
import type {
  AnswerJudged,
  AnswerOrder,
  CallAnswer,
  FromThread,
  Judged,
  Order,
  RequestJudged,
  RequestOrder,
  StreamJudged,
  StreamOrder,
  ToThread,
  WindowOrder,
} from './messages.ts';

type Post = (message: FromThread, memory?: readonly ArrayBuffer[]) => void;

/** Guardrails that are kept ready. */
const KEPT = { maxEntries: 500, maxWeight: 64 * 1024 * 1024, weigh: (_: Guardrail, source: string) => source.length };

/** Here a large answer holds nobody up for long. */
const MOST: MostRead = { bytes: 16 * 1024 * 1024, weight: MAX_WEIGHT };

interface Call {
  readonly resolve: (answer: CallAnswer | boolean) => void;
  readonly reject: (error: Error) => void;
}

/** One run. It ends when all of its guardrails have, also those beside the request. */
interface Run {
  readonly id: number;
  readonly owner: string;
  readonly calls: Map<number, Call>;
  beside: number;
  judged: boolean;
}

export class GuardrailWork {
  readonly #post: Post;
  readonly #clock: Clock;
  readonly #runs = new Map<number, Run>();
  readonly #ready = new Lru<string, Guardrail>(KEPT);
  #calls = 0;

  constructor(post: Post, clock: Clock) {
    this.#post = post;
    this.#clock = clock;
  }

  take(message: ToThread): void {
    switch (message.kind) {
      case 'run':
        void this.#run(message.id, message.owner, message.order);
        return;
      case 'answered':
        this.#call(message.id, message.call)?.resolve(message.answer);
        return;
      case 'failed': {
        const { failure } = message;
        const error = failure.of === 'check' ? new CheckError(failure.message) : errorOf(failure);
        this.#call(message.id, message.call)?.reject(error);
        return;
      }
      case 'ping':
        this.#post({ kind: 'pong' });
    }
  }

  #call(id: number, call: number): Call | undefined {
    const calls = this.#runs.get(id)?.calls;
    const found = calls?.get(call);
    calls?.delete(call);
    return found;
  }

  async #run(id: number, owner: string, order: Order): Promise<void> {
    const run: Run = { id, owner, calls: new Map(), beside: 0, judged: false };
    this.#runs.set(id, run);
    try {
      const judged = await this.#judge(run, order);
      this.#post({ kind: 'judged', id, judged }, ownMemory(judged));
    } catch (error) {
      this.#post({ kind: 'judged', id, judged: failureOf(error) });
    }
    run.judged = true;
    this.#endOf(run);
  }

  #endOf(run: Run): void {
    if (!run.judged || run.beside > 0) return;
    this.#runs.delete(run.id);
    this.#post({ kind: 'ended', id: run.id });
  }

  #judge(run: Run, order: Order): Promise<Judged> {
    switch (order.of) {
      case 'request':
        return this.#request(run, order);
      case 'answer':
        return this.#answer(run, order);
      case 'window':
        return this.#window(run, order);
      case 'stream':
        return this.#stream(run, order);
    }
  }

  async #request(run: Run, { request: facts, body, guardrails, view, dryRun }: RequestOrder): Promise<RequestJudged> {
    const request = judgedFrom(facts, bufferOf(body), this.#clock);
    const list = this.#list(guardrails);
    const verdict = await judgeRequest({ request, list, view, dryRun }, this.#options(run));
    if (verdict === null) return { of: 'request', outcome: null, changed: null, refused: null };
    const { changed } = verdict;
    const outcome = told(verdict.outcome);
    if (changed instanceof ReplacementError) return { of: 'request', outcome, changed: null, refused: changed.message };
    const made = changed && { ...changed, bytes: shared(changed.bytes), scan: changed.scan && factsOf(changed.scan) };
    return { of: 'request', outcome, changed: made, refused: null };
  }

  async #answer(run: Run, { request: facts, body, guardrails, answer, before }: AnswerOrder): Promise<AnswerJudged> {
    const { outside, onAsync, onBeside } = this.#options(run);
    const guard: AnswerGuard = {
      output: this.#list(guardrails),
      before: parseExact(before) as unknown as AnswerGuard['before'],
      after: [],
      failed: false,
      soft: false,
      outside,
      onAsync,
      onBeside,
    };
    const came = Buffer.concat(answer.body);
    const shown = shownAnswer(came, answer);
    const request = judgedFrom(facts, bufferOf(body), this.#clock);
    const made = await judgeWholeAnswer(request, guard, { ...answer, body: shown });
    const { after, failed, soft } = guard;
    return { of: 'answer', body: made === came ? 'same' : made, after: JSON.stringify(after), failed, soft };
  }

  async #window(
    run: Run,
    { request: facts, body, guardrails, texts, window, callsTools }: WindowOrder,
  ): Promise<StreamJudged> {
    const outcome = await judgeStreamWindow(this.#list(guardrails), {
      request: judgedFrom(facts, bufferOf(body), this.#clock),
      texts,
      window,
      callsTools: () => callsTools,
      options: this.#options(run),
    });
    return { of: 'stream', outcome: told(outcome), unreadable: null, changed: null, refused: null };
  }

  async #stream(run: Run, { request: facts, body, guardrails, said }: StreamOrder): Promise<StreamJudged> {
    const request = judgedFrom(facts, bufferOf(body), this.#clock);
    const held = said.of === 'events' ? eventsOf(said) : null;
    const answer = said.of === 'answer' ? joinedAnswer(said) : answerOf(request, held);
    const list = this.#list(guardrails);
    const verdict = await judgeWholeStream(request, this.#options(run), list, answer, held);
    const { outcome, unreadable, changed } = verdict;
    const judged = { of: 'stream', outcome: outcome && told(outcome), unreadable } as const;
    if (changed instanceof ReplacementError) return { ...judged, changed: null, refused: changed.message };
    if (changed === null) return { ...judged, changed: null, refused: null };
    const tail = changed.tail.map((event) => new Uint8Array(event));
    return { ...judged, changed: { events: Buffer.concat(changed.events), tail }, refused: null };
  }

  #list(sources: readonly string[]): readonly Guardrail[] {
    return sources.map((source) => {
      let guardrail = this.#ready.get(source);
      if (guardrail === undefined) {
        guardrail = guardrailFrom(source);
        this.#ready.set(source, guardrail);
      }
      return guardrail;
    });
  }

  #options(run: Run): Omit<RunOptions, 'view'> & Required<Pick<RunOptions, 'onBeside'>> {
    return {
      outside: (signal) => this.#outside(run, signal),
      clock: this.#clock,
      onAsync: (result) => {
        this.#post({ kind: 'beside', id: run.id, result: JSON.stringify(result) });
        run.beside -= 1;
        this.#endOf(run);
      },
      onBeside: () => {
        run.beside += 1;
      },
    };
  }

  #outside(run: Run, signal: AbortSignal): CheckHttpClient {
    const ask = <T extends CallAnswer | boolean>(post: (call: number) => void): Promise<T> =>
      new Promise<T>((resolve, reject) => {
        signal.throwIfAborted();
        const call = this.#calls++;
        const stop = () => {
          if (!run.calls.delete(call)) return;
          this.#post({ kind: 'stop', id: run.id, call });
          reject(signal.reason instanceof Error ? signal.reason : new Error('the call was given up'));
        };
        const over = () => signal.removeEventListener('abort', stop);
        run.calls.set(call, {
          resolve: (answer) => {
            over();
            resolve(answer as T);
          },
          reject: (error) => {
            over();
            reject(error);
          },
        });
        signal.addEventListener('abort', stop, { once: true });
        post(call);
      });
    return {
      signal,
      most: MOST,
      owner: run.owner,
      now: () => this.#clock.now(),
      resolves: (host) => ask<boolean>((call) => this.#post({ kind: 'resolves', id: run.id, call, host })),
      call: async ({ body, ...rest }) => {
        const bytes = body === null ? null : new Uint8Array(typeof body === 'string' ? Buffer.from(body) : body);
        const request = { ...rest, body: bytes };
        const memory = bytes === null ? [] : [bytes.buffer];
        const answer = await ask<CallAnswer>((call) => this.#post({ kind: 'call', id: run.id, call, request }, memory));
        return { ...answer, body: bufferOf(answer.body) };
      },
    };
  }
}

/** An outcome as JSON, without what it changes. */
const told = (outcome: Outcome): string => JSON.stringify({ ...outcome, replacements: [], replaced: undefined });

type SaidEvents = Extract<StreamOrder['said'], { readonly of: 'events' }>;

function eventsOf({ bytes, lengths, tail }: SaidEvents): HeldEvents {
  const all = Buffer.concat(bytes);
  const events: Buffer[] = [];
  let at = 0;
  for (const length of lengths) {
    events.push(all.subarray(at, at + length));
    at += length;
  }
  return { events: events.slice(0, events.length - tail), tail: events.slice(events.length - tail) };
}

function answerOf({ operation }: JudgedRequest, held: HeldEvents | null): unknown {
  const texts = new StreamTexts(operation);
  if (held !== null) for (const event of [...held.events, ...held.tail]) texts.push(event);
  return texts.answer();
}

/** A body that is sent goes back to the thread when its answer is judged: in memory that both have, nothing is copied then. */
function shared(bytes: Buffer): Uint8Array {
  const out = new Uint8Array(new SharedArrayBuffer(bytes.length));
  out.set(bytes);
  return out;
}

/** Memory that can be given away. Shorter results may lie in memory that Node shares between Buffers. */
function ownMemory(judged: Judged): ArrayBuffer[] {
  const made = judged.of === 'answer' ? judged.body : judged.of === 'stream' ? judged.changed?.events : null;
  if (!(made instanceof Uint8Array)) return [];
  const { buffer } = made;
  return buffer instanceof ArrayBuffer && buffer.byteLength === made.byteLength ? [buffer] : [];
}
