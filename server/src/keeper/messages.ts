/** What the server and its keeper say to each other, over the channel between the two processes. */
import { ERROR_KINDS, type ErrorKind, SluiceError } from '../kernel/errors.ts';

export interface Call {
  readonly call: number;
  readonly name: string;
  readonly args: readonly unknown[];
}

export interface Reply {
  readonly reply: number;
  readonly value?: unknown;
  readonly error?: SentError;
}

/** Sent once by the keeper: it answers, or why it never will. */
export interface Greeting {
  readonly ready: boolean;
  readonly why: string;
}

export type Message = Call | Reply | Greeting;

interface SentError {
  readonly kind: ErrorKind | null;
  readonly message: string;
  readonly retryAfter: number | null;
}

/** The settings of a keeper, its first argument as JSON. */
export interface KeeperSettings {
  /** Name of this node in the list of files. */
  readonly node: string;
  readonly dir: string;
  /** Directory below which the journals are, and how many processes write one now. */
  readonly spool: string;
  readonly workers: number;
  readonly memoryMb: number;
  readonly threads: number;
  /** Whether the records go to a store elsewhere, whose address is asked for: it is a secret, and arguments are not. */
  readonly remote?: boolean;
  readonly flushRecords?: number;
  readonly flushBytes?: number;
  readonly flushMs?: number;
  readonly tickMs?: number;
  readonly restMs?: number;
  readonly mostRssMb?: number;
  /** Bytes of this disk that the files of all nodes may take; absent: this node has its own alone. */
  readonly cacheBytes?: number;
}

function sentError(error: unknown): SentError {
  if (error instanceof SluiceError) {
    return { kind: error.kind, message: error.message, retryAfter: error.retryAfter };
  }
  return { kind: null, message: error instanceof Error ? error.message : String(error), retryAfter: null };
}

function receivedError({ kind, message, retryAfter }: SentError): Error {
  if (kind === null || !ERROR_KINDS.includes(kind)) return new Error(message);
  return new SluiceError(kind, message, { retryAfter });
}

/** One side of the channel: sends calls, and answers those of the other side by the functions that it is given. */
export class Channel {
  readonly #send: (message: Message) => void;
  readonly #answers: Readonly<Record<string, (...args: never[]) => unknown>>;
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #last = 0;

  constructor(send: (message: Message) => void, answers: Readonly<Record<string, (...args: never[]) => unknown>>) {
    this.#send = send;
    this.#answers = answers;
  }

  /** Rejects with the other side's error, or with that of `end`. */
  call(name: string, ...args: readonly unknown[]): Promise<unknown> {
    const call = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(call, { resolve, reject });
      this.#send({ call, name, args });
    });
  }

  async receive(message: Message): Promise<void> {
    if ('reply' in message) {
      const waiting = this.#waiting.get(message.reply);
      this.#waiting.delete(message.reply);
      if (message.error === undefined) waiting?.resolve(message.value);
      else waiting?.reject(receivedError(message.error));
    } else if ('call' in message) {
      const { call: reply, name, args } = message;
      try {
        const answer = this.#answers[name];
        if (answer === undefined) throw new TypeError(`${name} is no call`);
        this.#send({ reply, value: await answer(...(args as never[])) });
      } catch (error) {
        this.#send({ reply, error: sentError(error) });
      }
    }
  }

  /** The other side is gone. */
  end(error: Error): void {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
