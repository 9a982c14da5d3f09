import { isObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { type Decision, decisionOf } from '../../telemetry/decision.ts';
import type { Uses } from '../exchange.ts';
import { gatewayHeaders } from '../gateway-headers.ts';
import { logRecordOf } from '../log-record.ts';
import { DONE } from '../state/attempt-result.ts';

const VISIBLE = new Set([
  'content-type',
  'accept',
  'anthropic-version',
  'anthropic-beta',
  'openai-organization',
  'openai-project',
  'openai-beta',
]);

/**
 * Answers what would have been sent, and an estimate of its price. The shape is that in which a record tells of a request.
 * Nothing is called, nothing is charged.
 */
export function answerDryRun(
  x: Uses<'attempt' | 'guard' | 'limits' | 'outcome' | 'request' | 'execution', 'pricer' | 'storeClock'>,
): void {
  const target = x.attempt.requireTarget();
  const prepared = x.attempt.requirePrepared();
  const { request } = prepared;
  const headers: Record<string, string> = {};
  for (let i = 0; i < request.headers.length; i += 2) {
    const name = request.headers[i] ?? '';
    headers[name] = VISIBLE.has(name) ? (request.headers[i + 1] ?? '') : '***';
  }
  if (prepared.signer !== null) headers.authorization = '***';
  const found = x.services.pricer.price(
    target.provider.id,
    target.priced ?? prepared.context.model,
    prepared.context.model,
    target.stored,
    x.request.time,
  );
  const price = found === null ? null : { source: found.source, rates: found.rates as Record<string, number> };
  x.outcome.status = 200;
  x.outcome.price = price;
  const decision: Decision = {
    ...decisionOf({ ...logRecordOf(x) }),
    request: {
      method: request.method,
      url: target.provider.local === undefined ? request.origin + request.path : `in-process:${request.path}`,
      headers,
      body: request.body === null ? null : bodyOf(request.body),
    },
    estimate: { input_tokens: x.services.pricer.estimateTokens(x.attempt.body.bytes), price },
  };
  const body = Buffer.from(JSON.stringify(decision));
  const out = ['content-type', 'application/json', 'content-length', String(body.length)];
  gatewayHeaders(x, out);
  x.outcome.ending = { kind: 'whole', status: 200, headers: out, body: [body] };
  x.attempt.result = DONE;
}

/** Bytes and weight of a body that is shown; reading and writing more would hold the event loop up. */
const MAX_SHOWN = 1024 * 1024;
const MAX_WEIGHT = 50_000;

/** The body as JSON; of what is no JSON object, or large, its length. */
function bodyOf(parts: readonly Buffer[]): unknown {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  if (length > MAX_SHOWN) return `${length} bytes`;
  const text = Buffer.concat(parts).toString('utf8');
  try {
    const value: unknown = parseJson(text, MAX_WEIGHT);
    return isObject(value) ? value : text;
  } catch {
    return `${length} bytes`;
  }
}
