/**
 * Calls to servers that only the operator's settings name, such as the object store. They pass no egress guard, so no
 * address may come from a request or from what a tenant stored.
 */
import type { Readable } from 'node:stream';
import { Agent } from 'undici';
import type { Closable } from '../kernel/lifecycle.ts';

export interface OperatorRequest {
  readonly method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE';
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
  /** Milliseconds until the connection is open, and until the head of the answer. Default 60,000. */
  readonly timeoutMs?: number;
}

export interface OperatorAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Must be read or destroyed. */
  readonly body: Readable;
}

export interface OperatorHttp extends Closable {
  /** Sends one request: no redirect is followed and nothing is repeated. Rejects with the error of the connection. */
  send(request: OperatorRequest): Promise<OperatorAnswer>;
}

export function operatorHttp(): OperatorHttp {
  const agent = new Agent({ pipelining: 1, allowH2: false, connections: 64, bodyTimeout: 60_000 });
  return {
    async send({ method, url, headers, body, timeoutMs = 60_000 }) {
      const answer = await agent.request({
        origin: url.origin,
        path: url.pathname + url.search,
        method,
        headers,
        body,
        headersTimeout: timeoutMs,
        ...(timeoutMs < 10_000 ? { signal: AbortSignal.timeout(timeoutMs) } : {}),
      });
      // An answer that is let go of ends in an error that nobody waits for; readers still get theirs.
      answer.body.on('error', () => undefined);
      return { status: answer.statusCode, headers: answer.headers, body: answer.body };
    },
    close: () => agent.destroy(),
  };
}
