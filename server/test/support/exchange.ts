/** A request without a socket, for tests of what it goes through. */
import { InProcessResponse, inProcessRequest } from '../../src/http/in-process.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import type { Services } from '../../src/llm/exchange.ts';
import { Exchange } from '../../src/llm/exchange.ts';
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
  } = {},
  services: { readonly [K in keyof Services]?: Partial<Services[K]> } = {},
): Exchange {
  const { operation = 'chat', method = 'POST', url = '/v1/chat/completions', headers = {}, params = {}, body } = given;
  const incoming = inProcessRequest(method, url, headers);
  const clock = new TestClock();
  const all = { clock, storeClock: clock, ...services } as Services;
  const x = new Exchange(all, OPERATIONS[operation], incoming, new InProcessResponse(incoming, 1024 * 1024), params);
  if (body !== undefined) x.attempt.body = body;
  return x;
}
