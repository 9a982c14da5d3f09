/** A request without a socket, for tests of what it goes through. */
import { InProcessResponse, inProcessRequest } from '../../src/http/in-process.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import { scanJson } from '../../src/kernel/json-scan.ts';
import type { Services } from '../../src/llm/exchange.ts';
import { Exchange } from '../../src/llm/exchange.ts';
import { RequestBody } from '../../src/llm/state/body.ts';
import type { RequestHead } from '../../src/llm/state/request.ts';
import { OPERATIONS, type OperationId } from '../../src/operations/operation.ts';

/** An exchange with real parts; `services` are those that the tested step may use, beside a clock. */
export function testExchange(
  given: {
    readonly operation?: OperationId;
    readonly method?: string;
    readonly url?: string;
    /** Names in lower case. */
    readonly headers?: Readonly<Record<string, string>>;
    readonly params?: Readonly<Record<string, string>>;
    readonly body?: Buffer;
    /** Members that are looked for in the body; absent: it was not looked into. */
    readonly scan?: readonly string[];
  } = {},
  services: { readonly [K in keyof Services]?: Partial<Services[K]> } = {},
): Exchange & { readonly request: RequestHead } {
  const {
    operation = 'chat',
    method = 'POST',
    url = '/v1/chat/completions',
    headers = {},
    params = {},
    body,
    scan,
  } = given;
  const incoming = inProcessRequest(method, url, headers);
  const clock = new TestClock();
  const all = { clock, storeClock: clock, headersToMetadata: [], ...services } as unknown as Services;
  const x: Exchange & { readonly request: RequestHead } = new Exchange(
    all,
    OPERATIONS[operation],
    incoming,
    new InProcessResponse(incoming, 1024 * 1024),
    params,
  );
  if (body !== undefined) {
    x.request.body = new RequestBody(body, scan === undefined ? null : scanJson(body, scan));
    x.attempt.body = x.request.body;
  }
  return x;
}
