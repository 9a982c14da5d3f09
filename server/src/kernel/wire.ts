import type { SluiceError } from './errors.ts';

/**
 * One upstream call as the relays see it, whoever answers: a socket through `http/upstream.ts` or the sandbox inside
 * the process. Callbacks, not web streams: they cost a ninth of `fetch` on the hot path.
 */
export interface WireRequest {
  readonly method: string;
  /** `https://host[:port]`, already parsed and normalised. */
  readonly origin: string;
  /** Path and query, starting with `/`. */
  readonly path: string;
  /** Flat list `[name, value, name, value, …]`, names in lower case. */
  readonly headers: string[];
  /** Parts are written in order without being joined. */
  readonly body: readonly Buffer[] | null;
  /** Organisation that pays: sockets and DNS caps are kept per organisation. */
  readonly organisationId: string;
  /** True when a stored credential travels along: `https` only, except to a trusted host. */
  readonly storedCredential: boolean;
}

export interface WireControl {
  /** Stops reading from the upstream until `resume`: this is what bounds memory. */
  pause(): void;
  resume(): void;
  /** Delivers no more than so many bytes at once, between which it may be paused. Absent where pieces are small anyway. */
  cut?(bytes: number): void;
  /** Ends the call; `onError` is not called afterwards. */
  abort(): void;
}

export interface WireHandler {
  /** The request is being written, at `at` by the monotonic clock. `connectMs`: for the connection; 0 where one was open. */
  onSent?(at: number, connectMs: number): void;
  /** Status and raw headers (`[name, value, …]`) of the final answer; called once. */
  onHead(status: number, headers: readonly string[], control: WireControl): void;
  onData(chunk: Buffer): void;
  /**
   * Like `onData`, with a part of a large answer in lent memory (`http/buffer-pool.ts`). True where nothing reads it any more but
   * what keeps it. Where this is absent, no memory is lent: what it gets belongs to the handler.
   */
  onLent?(chunk: Buffer): boolean;
  onEnd(): void;
  /** The call failed; `sentBytes` of the answer may already have been delivered through `onData`. */
  onError(error: SluiceError): void;
}
