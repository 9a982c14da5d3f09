/**
 * The thread that judges what is large. It parses a request or answer, runs its guardrails and makes what is sent on; in the event
 * loop 31 MB would take up to half a second of it. The first of them starts the thread. Runs that wait for others, as for a
 * webhook, leave it to the next ones.
 */
import { Worker } from 'node:worker_threads';
import { CheckError } from '../../../guardrails/check.ts';
import type { GuardrailResult } from '../../../guardrails/guardrail.ts';
import type { CheckHttpClientFactory } from '../../../guardrails/run.ts';
import type { Clock } from '../../../kernel/clock.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { parseExact } from '../../../kernel/json-exact.ts';
import type { Closable } from '../../../kernel/lifecycle.ts';
import type { Log } from '../../../kernel/log.ts';
import { type PoolLimits, type PoolThread, ThreadPool } from '../../../kernel/thread-pool.ts';
import { bufferOf, errorOf, type Failure, failureOf } from '../../large/jobs.ts';
import type { CallAnswer, FromThread, Judged, Order, ToThread } from './messages.ts';

/** Runs that compute at once, one of each organisation; the bytes of those that wait are bounded as bodies are. */
const LIMITS: PoolLimits = { threads: 4, each: 2_000, all: 10_000 };
/** Checks give way every millisecond or so: a thread that is silent for so long does not any more. */
const SILENT_MS = 30_000;
const PING_MS = 10_000;

/** What a run takes of its request. */
export interface RunHost {
  readonly outside: CheckHttpClientFactory;
  readonly onAsync: (result: GuardrailResult) => void;
  /** Nobody waits for it any more. */
  over(): boolean;
}

/** A run with the memory that goes over with it, and what is called when the thread reads its bytes no longer. */
export interface Posted<O extends Order> {
  readonly order: O;
  readonly memory: readonly ArrayBuffer[];
  readonly drops: (() => void)[];
}

interface Run {
  readonly id: number;
  readonly owner: string;
  readonly posted: Posted<Order>;
  readonly host: RunHost;
  settle: ((judged: Judged | Error) => void) | null;
  /** Lets the next run begin. */
  leave: (() => void) | null;
  readonly calls: Map<number, AbortController>;
}

/** What is needed of a thread. */
export interface Judge {
  post(message: ToThread, memory: readonly ArrayBuffer[]): void;
  end(): void;
}

export type StartJudge = (told: (message: FromThread) => void, failed: (error: Error) => void) => Judge;

export class GuardrailThread implements Closable {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #start: StartJudge;
  readonly #pool: ThreadPool<Run, null>;
  readonly #runs = new Map<number, Run>();
  #judge: Judge | null = null;
  #next = 0;
  #heard = 0;
  #watch: (() => void) | null = null;

  constructor(clock: Clock, log: Log, start: StartJudge = startJudge) {
    this.#clock = clock;
    this.#log = log;
    this.#start = start;
    const tooMany = () =>
      new SluiceError('out_of_service', 'Too many large bodies wait for guardrails. Try again shortly.', {
        retryAfter: 1,
      });
    const slot = (answered: (none: null) => void): PoolThread<Run> => ({
      post: (run) => this.#begin(run, () => answered(null)),
      end: () => undefined,
    });
    this.#pool = new ThreadPool(slot, LIMITS, { endsDropped: false, tooMany });
  }

  /** Rejects with the error that the run threw, or with SluiceError('out_of_service') where the thread could not do it. */
  run<O extends Order>(owner: string, posted: Posted<O>, host: RunHost): Promise<Judged<O>> {
    return new Promise((resolve, reject) => {
      const settle = (judged: Judged | Error) => {
        if (judged instanceof Error) reject(judged);
        else resolve(judged as Judged<O>);
      };
      const run: Run = { id: this.#next++, owner, posted, host, settle, leave: null, calls: new Map() };
      this.#pool.run(owner, run, (ended) => {
        if (ended instanceof Error) this.#fail(run, ended);
      });
    });
  }

  close(): Promise<void> {
    this.#pool.close();
    this.#end(new SluiceError('unavailable', 'The server is stopping; try again shortly.'));
    return Promise.resolve();
  }

  #begin(run: Run, leave: () => void): void {
    const { id, owner, posted, host } = run;
    if (host.over()) {
      this.#fail(run, new SluiceError('client_closed', 'The client closed the connection.'));
      queueMicrotask(leave);
      return;
    }
    run.leave = leave;
    this.#runs.set(id, run);
    if (this.#judge === null) {
      const judge: Judge = this.#start(
        (message) => {
          if (this.#judge === judge) this.#take(message);
        },
        (error) => {
          if (this.#judge !== judge) return;
          this.#log.error('the thread for guardrails ended', { error: error.message });
          this.#end(unavailable(error));
        },
      );
      this.#judge = judge;
    }
    if (this.#watch === null) {
      this.#heard = this.#clock.monotonic();
      this.#watch = this.#clock.after(PING_MS, this.#look);
    }
    this.#judge.post({ kind: 'run', id, owner, order: posted.order }, posted.memory);
  }

  /** Ends a thread that is silent, as long as there is something to do. */
  readonly #look = (): void => {
    this.#watch = null;
    if (this.#runs.size === 0) return;
    if (this.#clock.monotonic() - this.#heard >= SILENT_MS) {
      const error = new Error(`a check held the thread for longer than ${SILENT_MS / 1000} s`);
      this.#log.error('the thread for guardrails ended', { error: error.message });
      this.#end(unavailable(error));
      return;
    }
    this.#judge?.post({ kind: 'ping' }, []);
    this.#watch = this.#clock.after(PING_MS, this.#look);
  };

  #end(error: Error): void {
    this.#judge?.end();
    this.#judge = null;
    this.#watch?.();
    this.#watch = null;
    const runs = [...this.#runs.values()];
    this.#runs.clear();
    for (const run of runs) {
      for (const controller of run.calls.values()) controller.abort(error);
      this.#fail(run, error);
    }
  }

  #fail(run: Run, error: Error): void {
    letGo(run);
    this.#settle(run, error);
  }

  #settle(run: Run, judged: Judged | Error): void {
    const { settle, leave } = run;
    run.settle = null;
    run.leave = null;
    leave?.();
    settle?.(judged);
  }

  #take(message: FromThread): void {
    this.#heard = this.#clock.monotonic();
    if (message.kind === 'pong') return;
    const run = this.#runs.get(message.id);
    if (run === undefined) return;
    switch (message.kind) {
      case 'call':
      case 'resolves':
        run.leave?.();
        run.leave = null;
        void this.#call(run, message);
        return;
      case 'stop':
        run.calls.get(message.call)?.abort(new SluiceError('client_closed', 'The call was given up.'));
        return;
      case 'beside':
        run.host.onAsync(parseExact(message.result) as unknown as GuardrailResult);
        return;
      case 'judged': {
        const { judged } = message;
        this.#settle(run, isJudged(judged) ? judged : errorOf(judged));
        return;
      }
      case 'ended':
        this.#runs.delete(run.id);
        letGo(run);
    }
  }

  async #call(run: Run, message: Extract<FromThread, { readonly kind: 'call' | 'resolves' }>): Promise<void> {
    const { id, call } = message;
    const judge = this.#judge;
    const controller = new AbortController();
    run.calls.set(call, controller);
    try {
      const outside = run.host.outside(controller.signal);
      let answer: CallAnswer | boolean;
      if (message.kind === 'resolves') answer = await outside.resolves(message.host);
      else {
        const { body, ...rest } = message.request;
        const bytes = body === null ? null : bufferOf(body);
        answer = await outside.call({ ...rest, body: bytes });
      }
      judge?.post({ kind: 'answered', id, call, answer }, typeof answer === 'boolean' ? [] : given(answer.body));
    } catch (error) {
      const failure =
        error instanceof CheckError ? ({ of: 'check', message: error.message } as const) : failureOf(error);
      judge?.post({ kind: 'failed', id, call, failure }, []);
    } finally {
      run.calls.delete(call);
    }
  }
}

const isJudged = (judged: Judged | Failure): judged is Judged =>
  judged.of === 'request' || judged.of === 'answer' || judged.of === 'stream';

/** What a run was lent is let go of once. */
function letGo({ posted }: Run): void {
  for (const drop of posted.drops.splice(0)) drop();
}

/** Memory that can be given away: shorter bodies lie in memory that Node shares between Buffers. */
function given({ buffer, byteLength }: Uint8Array): ArrayBuffer[] {
  return buffer instanceof ArrayBuffer && buffer.byteLength === byteLength ? [buffer] : [];
}

function unavailable(cause: Error): SluiceError {
  const message = 'This request or its answer is large, and the thread in which guardrails judge it failed. Try again.';
  return new SluiceError('out_of_service', message, { retryAfter: 1, cause, detail: cause.message });
}

/** Starts the thread of `worker.ts`. */
const startJudge: StartJudge = (told, failed) => {
  const worker = new Worker(new URL('./worker.ts', import.meta.url), { execArgv: [] });
  let ended = false;
  const fail = (error: Error) => {
    if (!ended) failed(error);
    ended = true;
  };
  // An idle thread must not keep the process alive; a request that waits is kept by its socket.
  worker.unref();
  worker.on('message', told);
  worker.on('error', (error) => fail(error instanceof Error ? error : new Error(String(error))));
  worker.on('exit', (code) => fail(new Error(`the thread exited with ${code}`)));
  return {
    post: (message, memory) => worker.postMessage(message, [...memory]),
    end() {
      ended = true;
      void worker.terminate();
    },
  };
};
