import type { CallContext } from '../providers/provider.ts';
import type { Uses } from './exchange.ts';
import type { Target } from './target.ts';

/**
 * What transforms of a provider may ask about the call of a target.
 *
 * @param seen grows by the headers of the caller that are looked at, `name, value`
 */
export function contextOf(x: Uses<'attempt' | 'request', 'clock'>, target: Target, seen: string[] = []): CallContext {
  const { request } = x;
  return {
    operation: request.operation.id,
    model: target.sends(request.model),
    stream: x.attempt.stream,
    credentials: target.credentials,
    pathParams: request.params,
    header(name) {
      const value = request.header(name) ?? request.header(`x-gateway-${name}`);
      if (value !== undefined) seen.push(name, value);
      return value;
    },
    strict: target.strict,
    elsewhere: target.elsewhere,
    now: () => x.services.clock.now(),
    requestId: request.id,
  };
}
