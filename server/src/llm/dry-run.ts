import { isObject } from '../kernel/json.ts';
import type { Prepared } from './attempt.ts';
import type { Exchange } from './exchange.ts';
import { gatewayHeaders } from './gateway-headers.ts';
import type { Target } from './target.ts';

const VISIBLE = new Set([
  'content-type',
  'accept',
  'anthropic-version',
  'anthropic-beta',
  'openai-organization',
  'openai-project',
  'openai-beta',
]);

/** A target that may be tried, or why it cannot be. */
export interface PlannedTarget {
  readonly path: string;
  readonly provider: string | null;
  readonly slug: string | null;
  readonly model: string | null;
  readonly error?: string;
}

/** Answers what would have been sent, and an estimate of its price; nothing is called, nothing is charged. */
export function answerDryRun(
  x: Exchange,
  target: Target,
  prepared: Prepared,
  targets?: readonly PlannedTarget[],
): void {
  const { request } = prepared;
  const headers: Record<string, string> = {};
  for (let i = 0; i < request.headers.length; i += 2) {
    const name = request.headers[i] ?? '';
    headers[name] = VISIBLE.has(name) ? (request.headers[i + 1] ?? '') : '***';
  }
  if (prepared.signer !== null) headers.authorization = '***';
  const text = request.body === null ? null : Buffer.concat(request.body).toString('utf8');
  const input = x.services.pricer.estimateTokens(x.body);
  const price = x.services.pricer.price(
    target.provider.id,
    target.priced ?? prepared.context.model,
    prepared.context.model,
    target.stored,
    x.time,
  );
  const body = Buffer.from(
    JSON.stringify({
      object: 'dry_run',
      operation: x.operation.id,
      config: x.plan?.configSlug ?? null,
      ...guardrailsOf(x),
      target: {
        path: target.path,
        provider: target.provider.id,
        slug: target.stored?.slug ?? null,
        model: prepared.context.model,
      },
      ...(targets === undefined ? null : { targets }),
      request: {
        method: request.method,
        url: target.provider.local === undefined ? request.origin + request.path : `in-process:${request.path}`,
        headers,
        body: text === null ? null : bodyOf(text),
      },
      estimate: { input_tokens: input, price: price === null ? null : { source: price.source, rates: price.rates } },
    }),
  );
  x.status = 200;
  const out = ['content-type', 'application/json', 'content-length', String(body.length)];
  gatewayHeaders(x, out);
  x.ending = { kind: 'whole', status: 200, headers: out, body: [body] };
}

/** Guardrails that would judge; none of them runs. */
function guardrailsOf({ guard }: Exchange): Record<string, unknown> | null {
  if (guard === null) return null;
  const names = (list: readonly { readonly slug: string }[]) => list.map(({ slug }) => slug);
  return { guardrails: { input: names(guard.input), output: names(guard.output) } };
}

function bodyOf(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : text;
  } catch {
    return `${Buffer.byteLength(text)} bytes`;
  }
}
