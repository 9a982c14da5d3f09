import type { Readable } from 'node:stream';
import type { Agent } from 'undici';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { EgressGuard } from './egress-guard.ts';

/** A call off the hot path: streamed bodies both ways, through the same guard as every other. */
export interface FetchRequest {
  readonly method: string;
  readonly url: URL;
  /** Flat `[name, value, …]`. */
  readonly headers: readonly string[];
  readonly body: Buffer | Readable | null;
  readonly organisationId: string;
  readonly storedCredential: boolean;
  /** Milliseconds until the head of the answer, from the end of the request body. */
  readonly headersTimeoutMs: number;
  /** Milliseconds between two chunks of the answer. */
  readonly idleMs: number;
  readonly signal?: AbortSignal;
}

export interface FetchAnswer {
  readonly status: number;
  /** Lower-case name → last value. */
  readonly headers: Readonly<Record<string, string>>;
  /** Every header line, `[name, value, …]`, names in lower case. */
  readonly lines: readonly string[];
  readonly stream: Readable;
}

export interface Fetcher extends Closable {
  /**
   * Sends one request; follows no redirect, repeats nothing. Rejects with a SluiceError: the guard's refusal,
   * `upstream_unreachable`, `timeout`, or the reason of `signal`.
   */
  send(request: FetchRequest): Promise<FetchAnswer>;
}

/** The whole body as text: `upstream_invalid` past `limit` bytes, `upstream_cut` when it ends early. */
export async function readText(stream: Readable, limit: number): Promise<{ text: string; bytes: number }> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of stream as AsyncIterable<Buffer>) {
      bytes += part.length;
      if (bytes > limit) {
        throw new SluiceError('upstream_invalid', `The provider's answer is longer than ${limit} bytes.`);
      }
      parts.push(part);
    }
  } catch (error) {
    if (error instanceof SluiceError) throw error;
    throw new SluiceError('upstream_cut', 'The provider ended its answer before it was complete.', { cause: error });
  }
  return { text: Buffer.concat(parts, bytes).toString('utf8'), bytes };
}

const MAX_AGENTS = 256;

export function createFetcher(options: { readonly egress: EgressGuard; readonly clock: Clock }): Fetcher {
  /** By organisation: sockets are never shared between tenants. Insertion order is age. */
  const agents = new Map<string, Agent>();

  /** The library is loaded with the first call: 40 ms of CPU and 5 MB that most starts never need. */
  async function agentOf(organisationId: string): Promise<Agent> {
    const undici = await import('undici');
    let agent = agents.get(organisationId);
    if (agent !== undefined) {
      agents.delete(organisationId);
    } else {
      agent = new undici.Agent({
        connect: options.egress.connector(organisationId),
        pipelining: 1,
        allowH2: false,
        connections: 64,
        keepAliveTimeout: 10_000,
        maxHeaderSize: 32 * 1024,
      });
      if (agents.size >= MAX_AGENTS) {
        const [oldest] = agents.keys();
        if (oldest !== undefined) {
          void agents.get(oldest)?.close();
          agents.delete(oldest);
        }
      }
    }
    agents.set(organisationId, agent);
    return agent;
  }

  return {
    async send(request) {
      options.egress.check(request.url.href, { storedCredential: request.storedCredential });
      const { signal } = request;
      if (signal?.aborted) throw reasonOf(signal);
      try {
        const agent = await agentOf(request.organisationId);
        const answer = await agent.request({
          origin: request.url.origin,
          path: request.url.pathname + request.url.search,
          method: request.method as 'GET',
          headers: [...request.headers],
          body: request.body,
          headersTimeout: request.headersTimeoutMs,
          bodyTimeout: request.idleMs,
          ...(signal === undefined ? {} : { signal }),
        });
        // An answer that is let go of ends in an error that nobody waits for; readers still get theirs.
        answer.body.on('error', () => undefined);
        const headers: Record<string, string> = Object.create(null);
        const lines: string[] = [];
        for (const [name, values] of Object.entries(answer.headers)) {
          for (const value of Array.isArray(values) ? values : [values]) {
            if (value === undefined) continue;
            headers[name.toLowerCase()] = value;
            lines.push(name.toLowerCase(), value);
          }
        }
        return { status: answer.statusCode, headers, lines, stream: answer.body };
      } catch (error) {
        if (signal?.aborted) throw reasonOf(signal);
        throw failure(error);
      }
    },
    async close() {
      await Promise.all([...agents.values()].map((agent) => agent.destroy()));
      agents.clear();
    },
  };
}

function reasonOf(signal: AbortSignal): SluiceError {
  return signal.reason instanceof SluiceError
    ? signal.reason
    : new SluiceError('client_closed', 'The request was given up.', { cause: signal.reason });
}

function failure(error: unknown): SluiceError {
  if (error instanceof SluiceError) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (error instanceof Error && error.cause instanceof SluiceError) return error.cause;
  if (code === 'UND_ERR_HEADERS_TIMEOUT') {
    return new SluiceError('timeout', 'The provider did not answer in time.', { cause: error });
  }
  return new SluiceError('upstream_unreachable', 'The provider could not be reached.', { cause: error, detail: code });
}
