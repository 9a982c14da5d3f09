import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { plainBinding, requestOf } from './openai-compatible.ts';
import type { Binding } from './provider.ts';
import type { AnswerQuirk, RequestQuirk } from './quirks.ts';

/** Little-endian float32, which is what `encoding_format: base64` means. */
export function encodeFloats(values: readonly JsonValue[]): string {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => {
    bytes.writeFloatLE(typeof value === 'number' ? value : Number.NaN, i * 4);
  });
  return bytes.toString('base64');
}

/** Rows in the order of the input, whatever order the upstream answered in. */
export function inInputOrder(data: readonly JsonValue[]): JsonValue[] {
  const at = (row: JsonValue): number => (isObject(row) && typeof row.index === 'number' ? row.index : 0);
  return [...data].sort((a, b) => at(a) - at(b));
}

/** Whether a caller asked for base64, as the OpenAI client libraries do by default. */
const wantsBase64 = (body: JsonObject | undefined): boolean => body?.encoding_format === 'base64';

export interface EmbeddingQuirks {
  readonly request?: readonly RequestQuirk[];
  /** The provider answers with floats whatever was asked: `encoding_format` stays here and is done by us. */
  readonly floatsOnly?: boolean;
  readonly answer?: readonly AnswerQuirk[];
}

const FLOATS: RequestQuirk = {
  touches: ['"encoding_format"'],
  apply(body) {
    if (!Object.hasOwn(body, 'encoding_format')) return body;
    const { encoding_format: _format, ...rest } = body;
    return rest;
  },
};

/** Embeddings of a provider that differs from the published definition (providers §17). */
export function embeddingsBinding(quirks: EmbeddingQuirks): Binding {
  const request = [...(quirks.request ?? []), ...(quirks.floatsOnly ? [FLOATS] : [])];
  const answer = quirks.answer ?? [];
  return {
    ...plainBinding('embeddings'),
    ...requestOf(request),
    response(body, context) {
      const out = answer.reduce((current, quirk) => quirk.apply(current), body);
      if (!Array.isArray(out.data)) return out;
      const data = inInputOrder(out.data);
      if (!quirks.floatsOnly || !wantsBase64(context.body)) return { ...out, data };
      return {
        ...out,
        data: data.map((row) =>
          isObject(row) && Array.isArray(row.embedding) ? { ...row, embedding: encodeFloats(row.embedding) } : row,
        ),
      };
    },
  };
}
