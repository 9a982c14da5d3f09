import type { Left, Quota } from '../limits/admission.ts';
import type { Exchange } from './exchange.ts';

/**
 * Pushes Sluice's own response headers (api §34.1) onto a flat list. `exhausted` says that every allowed try failed,
 * which the attempt count tells as -1.
 */
export function gatewayHeaders(x: Exchange, into: string[], exhausted = false): void {
  into.push('x-gateway-trace-id', x.traceId, 'x-gateway-cache-status', 'DISABLED');
  if (x.quota !== null) quotaHeaders(x.quota, into);
  const target = x.target;
  if (target === null) {
    into.push('x-gateway-retry-attempt-count', '0', 'x-gateway-last-used-option-index', 'config');
    return;
  }
  into.push(
    'x-gateway-provider',
    target.provider.id,
    'x-gateway-retry-attempt-count',
    exhausted ? '-1' : String(Math.max(0, x.tries - 1)),
    'x-gateway-last-used-option-index',
    target.path,
  );
}

function quotaHeaders(quota: Quota, into: string[]): void {
  if (quota.requests !== null) left('x-gateway-limit-requests', quota.requests, into);
  if (quota.tokens !== null) left('x-gateway-limit-tokens', quota.tokens, into);
}

function left(name: string, { limit, remaining, reset }: Left, into: string[]): void {
  into.push(`${name}-limit`, String(limit), `${name}-remaining`, String(remaining), `${name}-reset`, String(reset));
}
