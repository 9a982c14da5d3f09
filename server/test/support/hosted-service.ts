import type { IncomingHttpHeaders } from 'node:http';
import { request as send } from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import { compileCheck } from '../../src/guardrails/catalog.ts';
import type { CheckHttpClient, Judgement } from '../../src/guardrails/check.ts';
import { problems, type SubjectParts, subjectOf } from './guardrails.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from './upstream.ts';

/** One published operation: what is wrong with a request for it, or null. */
export interface Operation {
  /** Whole, with the query. */
  readonly url: string;
  fault(request: Received): string | null;
}

/** What a test makes the service answer; the number of the call counts from 0. */
export type Said = (body: unknown, call: number, request: Received) => Reply;
export type Reply = {
  readonly status?: number;
  readonly body?: unknown;
  readonly hang?: boolean;
};

/** A hosted service on loopback: it knows the operations it is given and nothing else, header by header and field by field. */
export interface HostedService {
  readonly outside: CheckHttpClient;
  /** Bodies of judged requests, in order. */
  readonly bodies: unknown[];
  /** What did not fit; a test that leaves any has failed. */
  readonly faults: string[];
  says: Said;
  operations: readonly Operation[];
  now: number;
  stop(): Promise<void>;
}

/** Headers of the transport; all others must be expected. */
const TRANSPORT = new Set(['host', 'connection', 'content-length']);

export function headersFault(
  headers: IncomingHttpHeaders,
  expected: Readonly<Record<string, string | RegExp>>,
): string | null {
  for (const name of Object.keys(headers))
    if (!TRANSPORT.has(name) && !Object.hasOwn(expected, name)) return `unknown header ${name}`;
  for (const [name, wanted] of Object.entries(expected)) {
    const value = String(headers[name] ?? '');
    if (typeof wanted === 'string' ? value !== wanted : !wanted.test(value)) return `wrong header ${name}: ${value}`;
  }
  return null;
}

/** An operation that takes JSON with exactly these headers, and a body that `expected` makes of what came. */
export function jsonOperation(
  url: string,
  headers: Readonly<Record<string, string | RegExp>>,
  expected: (body: Record<string, unknown>) => unknown,
): Operation {
  return {
    url,
    fault(request) {
      const wrong = headersFault(request.headers, {
        'content-type': 'application/json',
        accept: 'application/json',
        ...headers,
      });
      if (wrong !== null) return wrong;
      const body = JSON.parse(request.body.toString('utf8'));
      const wanted = expected(body);
      return isDeepStrictEqual(body, wanted) ? null : `${JSON.stringify(body)} instead of ${JSON.stringify(wanted)}`;
    },
  };
}

const jsonOf = (bytes: Buffer): unknown => {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    return bytes.toString('utf8');
  }
};

export async function startHosted(signal: AbortSignal = new AbortController().signal): Promise<HostedService> {
  const faults: string[] = [];
  const bodies: unknown[] = [];
  const upstream: FakeUpstream = await startUpstream((request, response) => {
    const url = `https://${request.headers.host}${request.path}`;
    const operation = service.operations.find((one) => one.url === url);
    const wrong =
      operation === undefined
        ? 'no such operation'
        : request.method !== 'POST'
          ? 'wrong method'
          : operation.fault(request);
    if (wrong !== null) {
      faults.push(`${request.method} ${url}: ${wrong}`);
      return sendJson(response, 400, { error: wrong });
    }
    const body = jsonOf(request.body);
    bodies.push(body);
    const reply = service.says(body, bodies.length - 1, request);
    if (reply.hang !== true) sendJson(response, reply.status ?? 200, reply.body ?? {});
  });
  const service: HostedService = {
    faults,
    bodies,
    operations: [],
    says: () => ({ body: {} }),
    now: Date.UTC(2026, 0, 1),
    stop: () => upstream.stop(),
    outside: {
      signal,
      most: { bytes: 2 * 1024 * 1024, weight: 50_000 },
      owner: 'o',
      now: () => service.now,
      resolves: async () => true,
      call: ({ url: to, method, headers, body, maxBytes = 1024 * 1024 }) =>
        new Promise((resolve, reject) => {
          const url = new URL(to);
          if (url.protocol !== 'https:') faults.push(`${to} is not called over TLS`);
          const outgoing = send({
            host: '127.0.0.1',
            port: upstream.port,
            method,
            path: url.pathname + url.search,
            // The real layer writes these two.
            headers: { ...headers, host: url.host, 'content-length': Buffer.byteLength(body ?? '') },
            signal,
            agent: false,
          });
          outgoing.on('error', () => reject(signal.aborted ? signal.reason : new Error('cut')));
          outgoing.on('response', (incoming) => {
            const parts: Buffer[] = [];
            let size = 0;
            incoming.on('data', (part: Buffer) => {
              size += part.length;
              if (size > maxBytes) {
                reject(new Error('The answer is too long.'));
                incoming.destroy();
              } else parts.push(part);
            });
            incoming.on('end', () =>
              resolve({ status: incoming.statusCode ?? 0, headers: {}, body: Buffer.concat(parts) }),
            );
          });
          outgoing.end(body ?? undefined);
        }),
    },
  };
  return service;
}

/** Judges as a stored guardrail does: parameters are validated, compiled, and the credentials are theirs. */
export async function judgedBy(
  service: HostedService,
  id: string,
  parameters: Readonly<Record<string, unknown>>,
  subject: SubjectParts | string,
): Promise<Judgement> {
  const wrong = problems(id, parameters);
  const compiled = compileCheck({ id, is_enabled: true, parameters }, 'llm');
  if (wrong.length > 0 || compiled === null) throw new Error(`${id}: ${wrong.join('; ')}`);
  return compiled.judge.judge(subjectOf(subject), service.outside);
}
