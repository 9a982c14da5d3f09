import type { Exchange, RunTarget, Uses } from '../exchange.ts';
import { gatewayHeaders, retriesOf } from '../gateway-headers.ts';
import type { FailedResult } from '../state/attempt-result.ts';

/** Runs the steps of the only target. */
export async function tryOnlyTarget(x: Exchange, runTarget: RunTarget): Promise<void> {
  const { plan } = x.request;
  if (plan === null) return;
  await runTarget(x, plan.features);
  const { result } = x.attempt;
  if (result !== null && result.kind !== 'done') give(x, result);
}

/** The last result becomes the answer. */
export function give(
  x: Uses<'attempt' | 'limits' | 'outcome' | 'request' | 'execution', 'storeClock'>,
  result: FailedResult,
): void {
  if (x.outcome.deliveredPrefix !== null && x.outcome.deliveredPrefix.broken !== null)
    throw x.outcome.deliveredPrefix.broken;
  if (result.kind === 'failed') throw result.error;
  const body = Buffer.from(result.body);
  const headers = [...result.headers];
  // The number of attempts is known only now: the head was built with the attempt before.
  for (let i = headers.length - 2; i >= 0; i -= 2) if (headers[i]?.startsWith('x-gateway-')) headers.splice(i, 2);
  gatewayHeaders(x, headers, x.attempt.target?.retry != null && retriesOf(x) >= x.attempt.target.retry.attempts);
  headers.push('content-length', String(body.length));
  x.outcome.status = result.status;
  x.outcome.result = 'failed';
  x.outcome.errorCode = (result.error.code ?? result.error.type).slice(0, 100);
  x.outcome.errorMessage = result.error.message.slice(0, 500);
  x.outcome.ending = { kind: 'whole', status: result.status, headers, body: [body] };
}
