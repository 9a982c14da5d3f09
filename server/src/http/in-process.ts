/** A request and its response without a socket, for calls that Sluice makes to itself. */
import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { IncomingMessage as Incoming, ServerResponse } from './node-http-import.ts';

/** A request whose body was read already. Names of headers in lower case. */
export function inProcessRequest(
  method: string,
  url: string,
  headers: Readonly<Record<string, string>>,
): IncomingMessage {
  const request = new Incoming(new Socket());
  request.method = method;
  request.url = url;
  request.headers = { ...headers };
  request.rawHeaders = Object.entries(headers).flat();
  request.complete = true;
  return request;
}

export interface CollectedResponse {
  /** 0 when the answer was cut before its head. */
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** The answer is whole: it was neither cut nor too large. */
  readonly complete: boolean;
}

/** Collects an answer of at most `maxBytes`; a larger one is cut like that of a client that left. */
export class InProcessResponse extends ServerResponse {
  readonly collected: Promise<CollectedResponse>;
  readonly #maxBytes: number;
  readonly #parts: Buffer[] = [];
  readonly #headers: Record<string, string> = Object.create(null);
  #bytes = 0;
  #status = 0;
  #done: (collected: CollectedResponse) => void = () => {};

  constructor(request: IncomingMessage, maxBytes: number) {
    super(request);
    this.#maxBytes = maxBytes;
    this.collected = new Promise((resolve) => {
      this.#done = resolve;
    });
  }

  override writeHead(status: number, ...rest: unknown[]): this {
    this.#status = status;
    const headers = rest.find((part) => Array.isArray(part)) ?? [];
    for (let i = 0; i + 1 < headers.length; i += 2)
      this.#headers[String(headers[i]).toLowerCase()] = String(headers[i + 1]);
    return this;
  }

  override write(chunk: unknown): boolean {
    const part = typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.isBuffer(chunk) ? Buffer.from(chunk) : null;
    if (part === null || this.destroyed) return true;
    this.#bytes += part.length;
    if (this.#bytes > this.#maxBytes) this.destroy();
    else this.#parts.push(part);
    return true;
  }

  override end(chunk?: unknown): this {
    if (chunk !== undefined && typeof chunk !== 'function') this.write(chunk);
    this.#settle(!this.destroyed);
    return this;
  }

  override destroy(): this {
    if (this.destroyed) return this;
    this.destroyed = true;
    this.#settle(false);
    this.emit('close');
    return this;
  }

  #settle(complete: boolean): void {
    const body = complete ? Buffer.concat(this.#parts) : Buffer.alloc(0);
    this.#done({ status: this.#status, headers: this.#headers, body, complete });
  }
}
