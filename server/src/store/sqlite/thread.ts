import { Worker } from 'node:worker_threads';
import { systemClock } from '../../kernel/clock.ts';
import type { Closable } from '../../kernel/lifecycle.ts';
import type { Log } from '../../kernel/log.ts';
import type { Result } from '../sql/engine.ts';
import {
  type Answer,
  CLOSE,
  type Opened,
  type Operation,
  type Parameter,
  QUERY,
  type Request,
  ROLLBACK,
  SCRIPT,
  type WorkerOptions,
} from './protocol.ts';

/** An error of SQLite, with its extended result code. */
export class SqliteFailure extends Error {
  readonly code: number;

  constructor(message: string, code: number) {
    super(message);
    this.name = 'SqliteFailure';
    this.code = code;
  }
}

/** The worker thread is gone, or this side is closed. */
export class ThreadLost extends Error {
  override readonly name = 'ThreadLost';
}

interface Pending {
  readonly resolve: (answer: Answer & { readonly 1: true }) => void;
  readonly reject: (error: Error) => void;
}

/** After the file could not be opened, how long until the next attempt: starting a thread costs tens of milliseconds. */
const AGAIN_MS = 500;

/** One life of the worker. A transaction belongs to one; after a crash the next statement must not run in another. */
export interface Life {
  readonly number: number;
}

/**
 * The serving thread's end of a worker thread. Requests of one turn of the event loop travel in one message. When the
 * worker dies, everything it had is refused and the next request starts another one.
 */
export class SqliteThread implements Closable {
  readonly #options: WorkerOptions;
  readonly #log: Log;
  #worker: Worker | null = null;
  #opened: Promise<void> = Promise.resolve();
  #life: Life = { number: 0 };
  #pending = new Map<number, Pending>();
  #outbox: Request[] = [];
  #nextId = 1;
  #closing: Promise<void> | null = null;
  #failedAt = Number.NEGATIVE_INFINITY;

  constructor(options: WorkerOptions, log: Log) {
    this.#options = options;
    this.#log = log;
  }

  /** Starts the worker; rejects when the file cannot be opened. */
  open(): Promise<void> {
    this.#start();
    return this.#opened;
  }

  /** The current life; starts the worker when there is none. Throws ThreadLost. */
  get life(): Life {
    if (this.#closing) throw new ThreadLost('the database is closed');
    if (!this.#worker) this.#revive();
    return this.#life;
  }

  async query(connection: number, sql: string, parameters: readonly unknown[], life?: Life): Promise<Result> {
    const answer = await this.#post(connection, QUERY, sql, parameters as readonly Parameter[], life);
    const [, , columns, stored, affected] = answer;
    const rows = stored.map((values) => {
      const row: Record<string, unknown> = {};
      for (let i = 0; i < columns.length; i++) row[columns[i] as string] = values[i];
      return row;
    });
    return { rows, affected };
  }

  async script(connection: number, sql: string, life?: Life): Promise<void> {
    await this.#post(connection, SCRIPT, sql, [], life);
  }

  /** Never rejects for want of a transaction. */
  async rollback(connection: number, life: Life): Promise<void> {
    await this.#post(connection, ROLLBACK, '', [], life);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Ends the worker without warning, as a crash does. For tests. */
  async kill(): Promise<void> {
    await this.#worker?.terminate();
  }

  async #close(): Promise<void> {
    const worker = this.#worker;
    if (!worker) return;
    const exited = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
    await this.#send(0, CLOSE, '', []).catch(() => undefined);
    await exited;
  }

  #post(connection: number, operation: Operation, sql: string, parameters: readonly Parameter[], life?: Life) {
    if (this.#closing) return Promise.reject(new ThreadLost('the database is closed'));
    if (life && (!this.#worker || life !== this.#life)) {
      return Promise.reject(new ThreadLost('the transaction was lost with its worker thread'));
    }
    return this.#send(connection, operation, sql, parameters);
  }

  #send(
    connection: number,
    operation: Operation,
    sql: string,
    parameters: readonly Parameter[],
  ): Promise<Answer & { readonly 1: true }> {
    return new Promise((resolve, reject) => {
      if (!this.#worker) this.#revive();
      const id = this.#nextId++;
      this.#pending.set(id, { resolve, reject });
      this.#outbox.push([id, connection, operation, sql, parameters]);
      if (this.#outbox.length === 1) queueMicrotask(() => this.#flush());
    });
  }

  #flush(): void {
    if (!this.#worker || this.#outbox.length === 0) return;
    const requests = this.#outbox;
    this.#outbox = [];
    this.#worker.postMessage(requests);
  }

  #revive(): void {
    if (systemClock.monotonic() - this.#failedAt < AGAIN_MS) throw new ThreadLost('the database file cannot be opened');
    this.#start();
  }

  #start(): void {
    const worker = new Worker(new URL('./worker.ts', import.meta.url), {
      workerData: this.#options,
      // Flags of the main script (an inline script's, a debugger's) are not for this thread.
      execArgv: [],
    });
    this.#worker = worker;
    this.#life = { number: this.#life.number + 1 };
    let crash: Error | null = null;
    this.#opened = new Promise((resolve, reject) => {
      worker.on('message', (message: readonly Answer[] | Opened) => {
        if (!('failure' in message)) {
          for (const answer of message) this.#answered(answer);
        } else if (message.failure === null) {
          resolve();
        } else {
          crash = new Error(`The database file ${this.#options.file} cannot be opened: ${message.failure}`);
          this.#failedAt = systemClock.monotonic();
          reject(crash);
          void worker.terminate();
        }
      });
      worker.on('exit', () => reject(crash ?? new ThreadLost('the worker thread ended')));
    });
    this.#opened.catch(() => undefined);
    worker.on('error', (error) => {
      crash = error as Error;
    });
    worker.on('exit', () => {
      if (this.#worker !== worker) return;
      this.#worker = null;
      this.#outbox = [];
      const lost = [...this.#pending.values()];
      this.#pending.clear();
      if (!this.#closing) this.#log.error('a database worker thread ended', { error: crash, lost: lost.length });
      const error = new ThreadLost('the database worker thread ended', { cause: crash });
      for (const { reject } of lost) reject(error);
    });
  }

  #answered(answer: Answer): void {
    const pending = this.#pending.get(answer[0]);
    if (!pending) return;
    this.#pending.delete(answer[0]);
    if (answer[1]) pending.resolve(answer);
    else pending.reject(new SqliteFailure(answer[2], answer[3]));
  }
}
