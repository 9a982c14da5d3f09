/** Texts as vectors, asked for in the name of the caller: counted, guarded and recorded like any request of theirs. */
import { internalRequest } from '../../gateway/internal-request.ts';
import { isObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { OPERATIONS } from '../../operations/operation.ts';
import type { Services, Uses } from '../exchange.ts';
import { cancelInternal, internalExchange } from '../internal-calls.ts';

const MAX_ANSWER = 4 * 1024 * 1024;
const MAX_DIMENSIONS = 8192;

/**
 * The unit vector of a text by a model of a stored provider; null when it cannot be had, for whatever reason: the
 * request is then answered as if nothing similar was there.
 */
export async function embed(
  x: Uses<'cancel' | 'request', keyof Services>,
  { slug, model }: { readonly slug: string; readonly model: string },
  text: string,
): Promise<Float32Array | null> {
  const {
    request: { principal },
    services,
  } = x;
  if (principal === null) return null;
  const request = internalRequest(
    '/v1/embeddings',
    {
      'x-gateway-provider': `@${slug}`,
      'x-gateway-trace-id': x.request.traceId,
      'x-gateway-parent-span-id': x.request.spanId,
    },
    { model, input: text, encoding_format: 'float' },
    MAX_ANSWER,
  );
  // The config of the key says where questions go, and not where their vectors are made.
  const { config_id: _config, ...defaults } = principal.defaults ?? {};
  const inner = internalExchange(services, OPERATIONS.embeddings, request, { ...principal, defaults });
  const former = x.cancel;
  x.cancel = (error) => {
    cancelInternal(inner, 'The request this belongs to was ended.');
    former?.(error);
  };
  try {
    await services.runInternal(inner);
  } finally {
    x.cancel = former;
  }
  const answer = await request.response.collected;
  if (!answer.complete || answer.status !== 200) return null;
  try {
    const parsed: unknown = parseJson(answer.body.toString('utf8'));
    const first = isObject(parsed) && Array.isArray(parsed.data) ? parsed.data[0] : null;
    return isObject(first) ? unit(first.embedding) : null;
  } catch {
    return null;
  }
}

/** A vector of length 1; null for what is none. */
function unit(value: unknown): Float32Array | null {
  if (!Array.isArray(value) || value.length === 0 || value.length > MAX_DIMENSIONS) return null;
  const vector = new Float32Array(value.length);
  let sum = 0;
  for (const [i, one] of value.entries()) {
    if (typeof one !== 'number' || !Number.isFinite(one)) return null;
    vector[i] = one;
    sum += one * one;
  }
  const length = Math.sqrt(sum);
  if (!(length > 0)) return null;
  for (let i = 0; i < vector.length; i++) vector[i] = (vector[i] ?? 0) / length;
  return vector;
}
